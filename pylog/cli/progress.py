"""How far a long command is: a bar on stderr with rate and time left, only where somebody looks at it.

A command that is done within a second shows nothing and pays nothing: rich is imported when the bar first shows, on a
thread of its own.
"""

import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE_S = 1.0
"""A bar shows only after this: for what is quicker it would only flash."""

BYTES = "bytes"
"""The unit whose numbers are shown as kB, MB and so on."""

_DRAW_S = 0.1
_is_off = False

_Item = TypeVar("_Item")


class Bar(Protocol):
    """Something that shows progress, or nothing."""

    def advance(self, count: int, text: str = "") -> None:
        """Go on by *count*; *text* replaces what stands before the bar."""

    def at(self, done: int, total: int) -> None:
        """Be at *done* of *total*; an `OnProgress`."""

    def make_way(self) -> None:
        """End where rows are written now: on a terminal they would go into the bar."""


def switch_off() -> None:
    """Show no bar in this process, as ``pylog --no-progress`` asks."""
    global _is_off  # of the process, like the terminal
    _is_off = True


class _NoBar:
    def advance(self, count: int, text: str = "") -> None:
        pass

    def at(self, done: int, total: int) -> None:
        pass

    def make_way(self) -> None:
        pass


class _LateBar:
    """Shows itself when its patience is over."""

    def __init__(self, text: str, total: int | None, unit: str) -> None:
        self._text, self._total, self._unit = text, total, unit
        self._done = 0
        self._drawn_s = 0.0
        self._lock = threading.Lock()
        self._is_over = False
        self._progress: Progress | None = None
        self._timer = threading.Timer(PATIENCE_S, self._show)
        self._timer.daemon = True
        self._timer.start()

    def advance(self, count: int, text: str = "") -> None:
        self._done += count
        self._text = text or self._text
        self._draw_in_time(at_once=bool(text))

    def at(self, done: int, total: int) -> None:
        self._done, self._total = done, total
        self._draw_in_time()

    def make_way(self) -> None:
        if sys.stdout.isatty():
            self.close()

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._progress is not None:
                self._progress.stop()

    def _show(self) -> None:
        bar = _new_bar(self._unit)
        with self._lock:
            if self._is_over:
                return
            bar.add_task(self._text, total=self._total, completed=self._done)
            bar.start()
            self._progress = bar

    def _draw_in_time(self, *, at_once: bool = False) -> None:
        now_s = time.monotonic()
        # Telling rich of each of a million records would cost more than reading them.
        if at_once or now_s > self._drawn_s + _DRAW_S:
            self._drawn_s = now_s
            self._draw()

    def _draw(self) -> None:
        if self._progress is not None:
            for task in self._progress.task_ids:
                self._progress.update(task, completed=self._done, total=self._total, description=self._text)


def _new_bar(unit: str) -> "Progress":
    from rich.console import Console
    from rich.filesize import decimal
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.text import Text

    def number(value: float) -> str:
        return decimal(int(value)) if unit == BYTES else f"{value:,.0f}"

    class Count(ProgressColumn):
        def render(self, task: Any) -> Text:  # noqa: ANN401  # rich's task
            if task.total is None:
                return Text(number(task.completed) if task.completed else "")
            return Text(f"{number(task.completed)}/{number(task.total)}")

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:  # noqa: ANN401
            return Text(f"{number(task.speed)}/s" if task.speed else "")

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        Count(),
        Rate(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        redirect_stdout=False,  # what is written there while a bar shows may go to a file
        transient=True,
    )


@contextmanager
def progress(text: str, total: int | None = None, unit: str = "") -> Iterator[Bar]:
    """Show a bar while the context lasts, if that is longer than `PATIENCE_S` and stderr is a terminal.

    A job in the background shows none: its bar would be drawn into what the user types.

    Args:
        text: what is being done.
        total: what 100 % is; None if nobody knows, or `Bar.at` says it later.
        unit: `BYTES` for sizes.
    """
    if _is_off or not sys.stderr.isatty() or _is_in_background():
        yield _NoBar()
        return
    bar = _LateBar(text, total, unit)
    try:
        yield bar
    finally:
        bar.close()


def _is_in_background() -> bool:
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) != os.getpgrp()
    except OSError:
        return False  # not this session's terminal, so no shell has jobs there


def sleep(bar: Bar, seconds: float, began_s: float, limit_s: float) -> None:
    """Sleep, and show which part of *limit_s* is over since *began_s*: what is left is the time until the end."""
    time.sleep(seconds)
    if limit_s:
        bar.at(round(min(time.monotonic() - began_s, limit_s)), math.ceil(limit_s))


def tracked(items: Sequence[_Item], text: str) -> Iterator[_Item]:
    """Yield *items*, showing how many were dealt with."""
    with progress(text, len(items)) as bar:
        for item in items:
            yield item
            bar.advance(1)

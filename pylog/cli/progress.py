"""How far a long command is: a bar on stderr, only where somebody looks at it."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


_DRAW_S = 0.1


class Bar(Protocol):
    """Something that shows progress, or nothing."""

    def advance(self, count: int, text: str = "") -> None:
        """Go on by *count*; *text* replaces what stands before the bar."""


class _NoBar:
    def advance(self, count: int, text: str = "") -> None:
        pass


class _RichBar:
    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        self._progress = progress
        self._task = task
        self._new = 0
        self._drawn_s = 0.0

    def advance(self, count: int, text: str = "") -> None:
        self._new += count
        now_s = time.monotonic()
        # Telling rich of each of a million records would cost more than reading them.
        if text or now_s > self._drawn_s + _DRAW_S:
            self._drawn_s = now_s
            self._progress.update(self._task, advance=self._new, description=text or None)
            self._new = 0


@contextmanager
def progress(text: str, total: int | None = None) -> Iterator[Bar]:
    """Show a bar while the context lasts.

    Args:
        text: what is being done.
        total: what 100 % is; None if nobody knows.
    """
    if not sys.stderr.isatty():
        yield _NoBar()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        yield _RichBar(shown, shown.add_task(text, total=total))

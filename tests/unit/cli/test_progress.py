"""The bar of long commands: where it shows, what it says, and that short commands do not pay for it."""

import ast
import inspect
import io
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from types import FunctionType

import pytest
import typer

from pylog.cli import progress as module
from pylog.cli.app import VERBS, run
from pylog.cli.failure import Exit
from pylog.cli.progress import BYTES, Bar, progress, tracked


class Terminal(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(module, "PATIENCE_S", 3600)  # the tests say when it is over
    monkeypatch.setattr(module, "_DRAW_S", 0)
    monkeypatch.setattr(module, "_is_off", False)
    return Terminal()


def test_a_long_command_shows_how_much_is_done_and_left(terminal: Terminal) -> None:
    with redirect_stderr(terminal), progress("copying", 4_000, BYTES) as bar:
        bar.advance(1_000)
        bar._show()  # type: ignore[attr-defined]
        bar.advance(1_500, "copying the rest")
    text = terminal.getvalue()
    assert "copying the rest" in text
    assert "2.5 kB/4.0 kB" in text
    assert "left" in text


@pytest.mark.parametrize(("group", "shown"), [("None", "_LateBar"), ("0", "_NoBar")])
def test_a_job_in_the_background_draws_nothing_into_its_terminal(group: str, shown: str) -> None:
    inner = "from pylog.cli.progress import progress\nwith progress('copying') as bar:\n    print(type(bar).__name__)\n"
    outer = f"""
import fcntl, subprocess, sys, termios
fcntl.ioctl(2, termios.TIOCSCTTY, 0)  # as the shell of a terminal has it
subprocess.run([sys.executable, "-c", {inner!r}], process_group={group}, check=True)
"""
    master, terminal = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", outer],
            stdout=subprocess.PIPE, stderr=terminal, start_new_session=True, text=True, check=False,
        )  # fmt: skip
        assert (done.stdout, done.returncode) == (f"{shown}\n", 0)
    finally:
        os.close(terminal)
        os.close(master)


def test_without_a_known_end_it_counts(terminal: Terminal) -> None:
    with redirect_stderr(terminal), progress("producing") as bar:
        bar._show()  # type: ignore[attr-defined]
        bar.advance(12_345, "producing")
    assert "12,345" in terminal.getvalue()


def test_a_command_that_is_done_at_once_shows_nothing(terminal: Terminal) -> None:
    with redirect_stderr(terminal), progress("copying", 2) as bar:
        bar.advance(2)
    bar._show()  # type: ignore[attr-defined]  # its timer was late
    assert terminal.getvalue() == ""


def test_names_with_brackets_are_not_taken_for_markup(terminal: Terminal) -> None:
    with redirect_stderr(terminal), progress("[/red]clicks[bold]", 2) as bar:
        bar._show()  # type: ignore[attr-defined]
    assert "[/red]clicks[bold]" in terminal.getvalue()


def test_it_ends_with_the_command_that_fails(terminal: Terminal) -> None:
    def copy() -> None:
        with redirect_stderr(terminal), progress("copying") as bar:
            bars.append(bar)
            bar._show()  # type: ignore[attr-defined]
            raise ValueError("bad")

    bars: list[Bar] = []
    with pytest.raises(ValueError, match="bad"):
        copy()
    [bar] = bars
    assert not bar._progress.live.is_started  # type: ignore[attr-defined]


def test_without_a_terminal_nothing_shows() -> None:
    shown = io.StringIO()
    with redirect_stderr(shown):
        assert list(tracked([1, 2, 3], "counting")) == [1, 2, 3]
    assert shown.getvalue() == ""


def test_it_can_be_switched_off(terminal: Terminal) -> None:
    assert run(["--no-progress", "explain", "PylogBrokerDown"]) == Exit.DONE
    with redirect_stderr(terminal), progress("copying", 2) as bar:
        assert not hasattr(bar, "_show")


def test_a_short_command_does_not_import_rich() -> None:
    code = (
        "import sys; sys.stderr.isatty = lambda: True; from pylog.cli.progress import progress\n"
        "with progress('x'): pass\n"
        "sys.exit('rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


WITH_A_BAR = {
    "records, of how many": (
        "audit report", "consume", "demo", "group describe", "lake retry", "mirror move", "mirror resend",
        "mirror status",
    ),
    "bytes, of how many": ("log dump", "log verify", "produce"),
    "nodes, of how many": ("cluster backup", "cluster restore", "zk open", "zk secure", "zk show"),
    "topics, partitions, users, connectors, directories or brokers, of how many": (
        "audit lake", "cluster adopt", "connect apply", "log ends", "log purge-stray", "partition elect",
        "partition reassign", "retention", "top", "topic apply", "user apply",
    ),
    "seconds, of how many it waits at most": ("cluster health", "connect status"),
    "rows, and nobody knows of how many: a query says only when it ends": ("sql",),
    "the time alone: it waits for one answer, which tells nothing before it is whole": (
        "cluster finalize", "group reset-offsets", "mirror rights", "stream check", "txn abort", "txn hanging",
    ),
}  # fmt: skip
"""What the bar of a command shows; each shows the time that it took so far too, and the rate of what it counts."""

WITHOUT_A_BAR = {
    "runs until it is stopped": (
        "audit count", "broker", "connect watch", "console", "mirror run", "probe", "registry", "ship journal",
        "stream run",
    ),
    "asks each broker once at most, all of them at once, and gives up after --timeout": (
        "acl add", "acl clients", "acl denials", "acl list", "acl remove", "cluster impact", "cluster info",
        "config alter", "config describe", "group delete", "group list", "stream forget", "topic alter", "topic create",
        "topic delete", "topic describe", "topic list", "txn describe", "txn list",
    ),
    "asks a worker once, which answers before it acts": ("connect pause", "connect restart", "connect resume"),
    "reads or writes a few small files": (
        "completion", "config check", "explain", "lake accept", "lake files", "lake status", "stream rebase",
        "stream reset",
    ),
    "reads or writes the nodes of one user, or a list of names": (
        "user delete", "user list", "user set", "zk identity",
    ),
}  # fmt: skip
"""Why a command needs no bar: it does not last two seconds, or is no work that ends."""


def callbacks() -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield each command with its function."""
    for verb in VERBS:
        app: typer.Typer = import_module(f"pylog.cli.{verb}").app
        for command in app.registered_commands:
            assert command.callback is not None
            name = command.name or command.callback.__name__.replace("_", "-")
            yield verb if name == verb and len(app.registered_commands) == 1 else f"{verb} {name}", command.callback


def shows_a_bar(function: Callable[..., object], seen: set[object]) -> bool:
    """Return whether *function* begins a bar, itself or in what it calls of `pylog.cli`."""
    seen.add(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert isinstance(function, FunctionType)
    called = {one for name in names if isinstance(one := function.__globals__.get(name), FunctionType)}
    if called & {progress, tracked}:
        return True
    return any(shows_a_bar(one, seen) for one in called - seen if one.__module__.startswith("pylog.cli."))


def test_every_command_has_a_bar_or_says_why_it_needs_none() -> None:
    bars = {name: shows_a_bar(function, set()) for name, function in callbacks()}
    with_one = [name for names in WITH_A_BAR.values() for name in names]
    without = [name for names in WITHOUT_A_BAR.values() for name in names]
    assert sorted(name for name, has_one in bars.items() if has_one) == sorted(with_one)
    assert sorted(name for name, has_one in bars.items() if not has_one) == sorted(without)


def test_its_end_may_become_known_later_and_move(terminal: Terminal) -> None:
    with redirect_stderr(terminal), progress("reading nodes") as bar:
        bar._show()  # type: ignore[attr-defined]
        bar.at(10, 40)
        bar.at(30, 1_200)
    assert "30/1,200" in terminal.getvalue()


def test_rows_that_go_to_a_file_meanwhile_arrive_there(terminal: Terminal) -> None:
    rows = io.StringIO()
    with redirect_stderr(terminal), redirect_stdout(rows), progress("sending") as bar:
        bar._show()  # type: ignore[attr-defined]
        bar.make_way()
        print("a row")
        bar.advance(7, "sent a row")
    assert rows.getvalue() == "a row\n"
    assert "sent a row" in terminal.getvalue(), "the bar goes on"


def test_it_ends_before_rows_go_to_the_same_terminal(terminal: Terminal) -> None:
    with redirect_stderr(terminal), redirect_stdout(terminal), progress("sending") as bar:
        bar._show()  # type: ignore[attr-defined]
        bar.make_way()
        shown = terminal.getvalue()
        print("a row")
        bar.advance(7, "sent a row")
    assert terminal.getvalue() == shown + "a row\n"


def test_a_wait_shows_how_much_of_its_limit_is_left(terminal: Terminal) -> None:
    with redirect_stderr(terminal), progress("waiting for connectors") as bar:
        bar._show()  # type: ignore[attr-defined]
        module.sleep(bar, 0, time.monotonic() - 50, 120)
    assert "50/120" in terminal.getvalue()

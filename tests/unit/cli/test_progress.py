"""The bar of long commands: where it shows, what it says, and that short commands do not pay for it."""

import io
import subprocess
import sys
from contextlib import redirect_stderr

import pytest

from pylog.cli import progress as module
from pylog.cli.app import run
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

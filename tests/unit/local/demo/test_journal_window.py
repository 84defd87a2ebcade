"""Which journal entries count when the journal was listed up to a cursor."""

import json
from pathlib import Path

import pytest

from local.demo.journal import Window, place_of, read_cursors
from pylog.errors import ConfigError


def cursor(number: int, *, sequence: str = "aa", time_us: int | None = None) -> str:
    return f"s={sequence};i={number:x};b=b0;m=1;t={number * 16 if time_us is None else time_us:x};x=ff"


def test_a_cursor_is_read() -> None:
    assert place_of("s=aa;i=1f;b=b0;m=1;t=10;x=ff") == ("aa", 31, 16)


@pytest.mark.parametrize("text", ["", "s=aa", "s=aa;i=zz;t=1", "hello"])
def test_what_is_no_cursor_is_named(text: str) -> None:
    with pytest.raises(ValueError):
        place_of(text)


def test_entries_of_the_list_and_between_count_and_no_others() -> None:
    window = Window([cursor(10), cursor(12), cursor(20)])
    assert [n for n in range(8, 24) if cursor(n) in window] == list(range(10, 21))


def test_across_sequences_time_decides() -> None:
    window = Window([cursor(1000, sequence="old", time_us=100), cursor(5, time_us=200)])
    assert cursor(999, sequence="old", time_us=150) not in window
    assert cursor(4, time_us=150) in window
    assert cursor(1, sequence="other", time_us=201) not in window


def test_a_listed_entry_counts_wherever_it_stands() -> None:
    # A clock that was set back puts entries out of order.
    late = cursor(7, sequence="other", time_us=9_999_999)
    assert late in Window([cursor(1), late, cursor(3)])


def test_an_empty_journal_holds_nothing() -> None:
    assert cursor(1) not in Window([])


def test_the_list_is_read_as_journalctl_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "live1.json"
    path.write_text("".join(json.dumps({"__CURSOR": cursor(n), "__MONOTONIC_TIMESTAMP": "1"}) + "\n" for n in (1, 2)))
    assert read_cursors(path) == [cursor(1), cursor(2)]


@pytest.mark.parametrize("line", ["-- No entries --", "{}", '{"__CURSOR": "x"}', "[]"])
def test_a_line_that_is_no_entry_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "live1.json"
    path.write_text(json.dumps({"__CURSOR": cursor(1)}) + f"\n{line}\n")
    with pytest.raises(ConfigError, match=r"live1\.json, line 2 is no entry"):
        read_cursors(path)


def test_a_list_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_cursors(tmp_path / "none")

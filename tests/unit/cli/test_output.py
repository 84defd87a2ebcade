"""Tables and formats."""

import json
from collections.abc import Iterator

import pytest
import yaml

from pylog.cli.options import Format
from pylog.cli.output import ROWS_AT_ONCE, Column, emit, emit_rows, table

ROWS: list[dict[str, object]] = [
    {"name": "clicks", "count": 5, "isr": [1, 2], "extra": True},
    {"name": "a", "count": None, "isr": []},
]
COLUMNS = [Column("name"), Column("count"), Column("isr"), Column("extra", is_wide=True)]


def test_text_aligns_words_left_and_numbers_right() -> None:
    assert table(ROWS, COLUMNS, is_wide=False) == ("NAME    COUNT  ISR\nclicks      5  1,2\na           -  -\n")


def test_wide_shows_more() -> None:
    assert table(ROWS, COLUMNS, is_wide=True).splitlines()[1] == "clicks      5  1,2  yes"


def test_no_rows_leave_the_heading() -> None:
    assert table([], COLUMNS, is_wide=False) == "NAME  COUNT  ISR\n"


@pytest.mark.parametrize(("format", "read"), [(Format.JSON, json.loads), (Format.YAML, yaml.safe_load)])
def test_programs_get_the_data_itself(format: Format, read: type, capsys: pytest.CaptureFixture[str]) -> None:
    emit(format, ROWS, lambda is_wide: "unused")
    assert read(capsys.readouterr().out) == ROWS


@pytest.mark.parametrize(("format", "wanted"), [(Format.TEXT, "narrow"), (Format.WIDE, "wide")])
def test_people_get_text(format: Format, wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    emit(format, ROWS, lambda is_wide: "wide" if is_wide else "narrow")
    assert capsys.readouterr().out == wanted


@pytest.mark.parametrize("count", [0, 1, ROWS_AT_ONCE, 2 * ROWS_AT_ONCE + 1])
@pytest.mark.parametrize("format", list(Format))
def test_rows_that_come_one_by_one_are_written_as_all_of_them(
    format: Format, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"name": f"row {number % 7}", "n": 100_000 + number, "more": [1, None]} for number in range(count)]
    columns = [Column(name) for name in ("name", "n", "more")]
    emit(format, rows, lambda is_wide: table(rows, columns, is_wide))
    wanted = capsys.readouterr().out
    emit_rows(format, [column.name for column in columns], iter(rows))
    assert capsys.readouterr().out == wanted


def test_rows_are_shown_before_the_last_one_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []

    def rows() -> Iterator[dict[str, object]]:
        yield from ({"n": number} for number in range(ROWS_AT_ONCE))
        shown.append(capsys.readouterr().out)
        yield {"n": -1}

    emit_rows(Format.TEXT, ["n"], rows())
    assert shown[0].splitlines()[-1].split() == [str(ROWS_AT_ONCE - 1)]

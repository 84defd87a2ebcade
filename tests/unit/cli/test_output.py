"""Tables and formats."""

import json

import pytest
import yaml

from pylog.cli.options import Format
from pylog.cli.output import Column, emit, table

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

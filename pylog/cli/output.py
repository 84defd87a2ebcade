"""Data on stdout: aligned columns for people, JSON and YAML for programs.

Nothing else is ever written to stdout; notes and errors go to stderr.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from textwrap import indent
from typing import TypeVar

from pylog.cli.options import Format

_Row = TypeVar("_Row")

ROWS_AT_ONCE = 1_000
"""Rows of an answer without end that are kept: enough that their widths are those of most that follow."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        name: key in each row; the heading is the same in capitals.
        is_wide: whether only ``--format wide`` shows it.
    """

    name: str
    is_wide: bool = False


def emit(format: Format, data: object, text: Callable[[bool], str]) -> None:
    """Write *data* in the wanted format.

    Args:
        format: how.
        data: plain lists, dictionaries, strings and numbers.
        text: makes the text for people; its argument says whether wide.
    """
    if format is Format.JSON:
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    elif format is Format.YAML:
        import yaml

        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    else:
        sys.stdout.write(text(format is Format.WIDE))


def done(format: Format, data: object, text: str) -> None:
    """Tell that a change is made: a note for people, *data* for programs."""
    if format in (Format.JSON, Format.YAML):
        emit(format, data, lambda _: "")
    else:
        note(text)


def emit_rows(
    format: Format,
    columns: Sequence[str],
    rows: Iterable[Mapping[str, object]],
    before: Callable[[], None] = lambda: None,
) -> None:
    """Write *rows* in the wanted format as they come; what `emit` would write of all of them, but for wide cells.

    Args:
        format: how.
        columns: names, in order.
        rows: one dictionary of plain data each; only `ROWS_AT_ONCE` of them are kept.
        before: called before some are written.
    """
    printed = Table([Column(name) for name in columns], is_wide=format is Format.WIDE)
    is_first = True
    for chunk in batched(rows, ROWS_AT_ONCE):
        before()
        if format is Format.JSON:
            texts = (json.dumps(row, indent=2, ensure_ascii=False) for row in chunk)
            sys.stdout.write(("[\n" if is_first else ",\n") + indent(",\n".join(texts), "  "))
        elif format is Format.YAML:
            import yaml

            sys.stdout.write(yaml.safe_dump(list(chunk), sort_keys=False, allow_unicode=True))
        else:
            sys.stdout.write(printed.text(chunk))
        sys.stdout.flush()
        is_first = False
    before()
    if format is Format.JSON:
        sys.stdout.write("[]\n" if is_first else "\n]\n")
    elif is_first:
        sys.stdout.write("[]\n" if format is Format.YAML else printed.text([]))


def batched(rows: Iterable[_Row], size: int) -> Iterator[list[_Row]]:
    """Yield *rows* in lists of *size*; the last may be shorter."""
    iterator = iter(rows)
    while chunk := list(islice(iterator, size)):
        yield chunk


def table(rows: Sequence[Mapping[str, object]], columns: Sequence[Column], is_wide: bool) -> str:
    """Return *rows* as columns aligned with blanks, heading first; numbers to the right."""
    return Table(columns, is_wide=is_wide).text(rows)


class Table:
    """Rows as columns aligned with blanks, numbers to the right; those that come later keep the width of the first.

    Args:
        columns: in order.
        is_wide: whether wide ones are shown.
    """

    def __init__(self, columns: Sequence[Column], *, is_wide: bool) -> None:
        self._shown = [column for column in columns if is_wide or not column.is_wide]
        self._widths = [0] * len(self._shown)
        self._is_number: list[bool] = []

    def text(self, rows: Sequence[Mapping[str, object]]) -> str:
        """Return the next rows; the first time under their heading."""
        lines = [[cell(row.get(column.name)) for column in self._shown] for row in rows]
        if not self._is_number:
            lines.insert(0, [column.name.upper().replace("_", "-") for column in self._shown])
            self._is_number = [
                bool(rows) and all(_is_number(row.get(column.name)) for row in rows) for column in self._shown
            ]
        found = zip(*lines, strict=True)
        self._widths = [max(width, *map(len, texts)) for width, texts in zip(self._widths, found, strict=True)]
        return "".join(
            "  ".join(
                text.rjust(width) if right else text.ljust(width)
                for text, width, right in zip(line, self._widths, self._is_number, strict=True)
            ).rstrip()
            + "\n"
            for line in lines
        )


def cell(value: object) -> str:
    """Return how one value looks in a table."""
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def note(text: str) -> None:
    """Tell the user something that is not data."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))

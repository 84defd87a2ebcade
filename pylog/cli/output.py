"""Data on stdout: aligned columns for people, JSON and YAML for programs.

Nothing else is ever written to stdout; notes and errors go to stderr.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pylog.cli.options import Format


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


def table(rows: Sequence[Mapping[str, object]], columns: Sequence[Column], is_wide: bool) -> str:
    """Return *rows* as columns aligned with blanks, heading first; numbers to the right."""
    shown = [column for column in columns if is_wide or not column.is_wide]
    cells = [[cell(row.get(column.name)) for column in shown] for row in rows]
    heading = [column.name.upper().replace("_", "-") for column in shown]
    widths = [max(map(len, texts)) for texts in zip(heading, *cells, strict=True)]
    is_number = [bool(rows) and all(_is_number(row.get(column.name)) for row in rows) for column in shown]
    lines = [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in [heading, *cells]
    ]
    return "\n".join(lines) + "\n"


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

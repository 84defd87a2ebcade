"""Which shipped journal entries belong to what the journal itself listed up to a cursor; decides only.

cursor => s=<sequence id>;i=<number, hex>;b=<boot>;m=<monotonic>;t=<microseconds since 1970, hex>;x=<hash>

Source: systemd's journal file format, sd_journal_get_cursor(3).
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pylog.errors import ConfigError


class Place(NamedTuple):
    """Where an entry stands: numbers count within one sequence id, times compare across them."""

    sequence_id: str
    number: int
    time_us: int


def place_of(cursor: str) -> Place:
    """Read a cursor.

    Raises:
        ValueError: it is none.
    """
    fields = dict(part.partition("=")[::2] for part in cursor.split(";"))
    try:
        return Place(fields["s"], int(fields["i"], 16), int(fields["t"], 16))
    except KeyError as error:
        raise ValueError(f"{cursor!r} is no journal cursor: it lacks {error}") from error


class Window:
    """The entries from the first to the last that the journal listed.

    What was shipped before the first (the journal has since vacuumed it) or after the last (it was written since) is
    not counted; what lies between and is not in the list is, so that an invented entry shows.

    Args:
        cursors: as the journal lists them, oldest first.
    """

    def __init__(self, cursors: Iterable[str]) -> None:
        self.cursors = frozenset(listed := list(cursors))
        self._first = place_of(listed[0]) if listed else None
        self._last = place_of(listed[-1]) if listed else None

    def __contains__(self, cursor: str) -> bool:
        """Return whether the entry is to be counted."""
        if cursor in self.cursors:
            return True
        if self._first is None or self._last is None:
            return False
        place = place_of(cursor)
        return not _is_before(place, self._first) and not _is_before(self._last, place)


def _is_before(one: Place, other: Place) -> bool:
    if one.sequence_id == other.sequence_id:
        return one.number < other.number
    return one.time_us < other.time_us


def read_cursors(path: Path) -> list[str]:
    """Return the cursors in what ``journalctl -o json --output-fields=__CURSOR`` wrote.

    Raises:
        ConfigError: a line is no such output; the message names file and line.
    """
    cursors = []
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    cursor = str(json.loads(line)["__CURSOR"])
                    place_of(cursor)
                except (KeyError, TypeError, ValueError) as error:
                    raise ConfigError(
                        f"{path}, line {number} is no entry of `journalctl -o json`: {error!r}"
                    ) from error
                cursors.append(cursor)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return cursors

"""Where reading starts: the words of `pylog consume --from`.

start => "beginning" | "earliest" | "end" | "latest" | offset | "-" count | "@" milliseconds since 1970
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pylog import faults
from pylog.cli.failure import Failure
from pylog.client.admin.cluster import OffsetRange
from pylog.model import Offset, TopicPartition


class StartKind(StrEnum):
    """What the number of a `Start` means."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    LAST = "last"
    TIME = "time"


# Kafka's words too, which `--to` of reset-offsets takes.
_WORDS: Mapping[str, StartKind] = {
    "beginning": StartKind.BEGINNING,
    "earliest": StartKind.BEGINNING,
    "end": StartKind.END,
    "latest": StartKind.END,
}


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading starts in every partition."""

    kind: StartKind
    number: int = 0


def parse_start(text: str) -> Start:
    """Return what *text* means.

    Raises:
        Failure: with exit code 2, if it means nothing.
    """
    if (word := _WORDS.get(text)) is not None:
        return Start(word)
    kind = {"-": StartKind.LAST, "@": StartKind.TIME}.get(text[:1], StartKind.OFFSET)
    digits = text if kind is StartKind.OFFSET else text[1:]
    if not (digits.isascii() and digits.isdecimal()):
        raise Failure(
            faults.OPTION_WRONG,
            where="--from",
            found=text,
            wanted="beginning or earliest, end or latest, an offset, -COUNT from the end, or @MILLISECONDS",
        )
    return Start(kind, int(digits))


def positions(start: Start, held: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, Offset]:
    """Return the offset to start from in each partition, for every kind but TIME, which only the brokers can tell."""
    assert start.kind is not StartKind.TIME, "only the brokers know offsets by time"
    return {partition: _position(start, found) for partition, found in held.items()}


def _position(start: Start, held: OffsetRange) -> Offset:
    match start.kind:
        case StartKind.BEGINNING:
            return held.start
        case StartKind.LAST:
            return max(held.start, held.end - start.number)
        case StartKind.OFFSET:
            # Below what is kept means "from the first kept"; above the end means "what comes next".
            return min(max(held.start, start.number), held.end)
        case _:
            return held.end

"""What clients saw, as lines of text that each of them writes while it works, and the values that the checker reads.

A line is one event, its fields are separated by tabs, its first field says what it is:

    line   => ack | failed | begin | end | poll | commit
    ack    => "a" sent_ms done_ms topic partition producer number offset      (offset -1: a copy, or not said)
    failed => "f" sent_ms done_ms topic partition producer number error
    begin  => "b" time_ms topic partition                                     (a member begins to read a partition)
    end    => "e" time_ms topic partition
    poll   => "p" time_ms topic partition offset producer number
    commit => "c" time_ms topic partition offset                              (answered without an error)

Times are CLOCK_MONOTONIC in milliseconds, which all processes of one machine share and no fault steps.  A record's
value is "producer number", and filled up behind another space where it shall be longer; a producer counts its records
up in each partition.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TextIO, TypeAlias

Partition: TypeAlias = tuple[str, int]
"""Topic and number."""

UNKNOWN_OFFSET = -1


class Ack(NamedTuple):
    """An acknowledged record."""

    producer: str
    number: int
    offset: int
    sent_ms: int
    done_ms: int


class Row(NamedTuple):
    """A record in a log."""

    offset: int
    producer: str
    number: int


@dataclass(slots=True)
class Reading:
    """What one member of a group read of a partition, from the time it got it until it lost it."""

    member: str
    begin_ms: int
    rows: list[Row] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)


class Commit(NamedTuple):
    """An acknowledged commit of a group."""

    time_ms: int
    offset: int


@dataclass(slots=True)
class Produced:
    """What producers saw, by partition."""

    acks: dict[Partition, list[Ack]] = field(default_factory=lambda: defaultdict(list))
    failed: dict[Partition, list[tuple[str, int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Producer, number and the time at which it was sent."""

    def take(self, lines: Iterable[str]) -> None:
        """Add the lines of one producer."""
        for line in lines:
            kind, *fields = line.rstrip("\n").split("\t")
            sent_ms, done_ms, topic, partition, producer, number, last = fields
            key = (topic, int(partition))
            if kind == "a":
                self.acks[key].append(Ack(producer, int(number), int(last), int(sent_ms), int(done_ms)))
            else:
                self.failed[key].append((producer, int(number), int(sent_ms)))

    def gave_up(self) -> set[str]:
        """Return the producers of which a record failed, whatever its partition: an epoch is one for all of them."""
        return {producer for failed in self.failed.values() for producer, _, _ in failed}


@dataclass(slots=True)
class Grouped:
    """What the members of one group saw, by partition."""

    readings: dict[Partition, list[Reading]] = field(default_factory=lambda: defaultdict(list))
    commits: dict[Partition, list[Commit]] = field(default_factory=lambda: defaultdict(list))

    def take(self, member: str, lines: Iterable[str]) -> None:
        """Add the lines of one member."""
        for line in lines:
            kind, time_ms, topic, partition, *rest = line.rstrip("\n").split("\t")
            key = (topic, int(partition))
            if kind == "b":
                self.readings[key].append(Reading(member, int(time_ms)))
            elif kind == "p":
                reading = self.readings[key][-1]
                reading.rows.append(Row(int(rest[0]), rest[1], int(rest[2])))
                reading.times_ms.append(int(time_ms))
            elif kind == "c":
                self.commits[key].append(Commit(int(time_ms), int(rest[0])))


def whole_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a history; a client that was killed may have left a part of one behind them."""
    with path.open() as lines:
        yield from (line for line in lines if line.endswith("\n"))


def value_of(producer: str, number: int, size_bytes: int = 0) -> bytes:
    """Return a record's value, filled up to *size_bytes* if it would be shorter."""
    value = f"{producer} {number}".encode()
    return value if len(value) + 1 >= size_bytes else (value + b" ").ljust(size_bytes, b"x")


def parse_value(value: bytes | None) -> tuple[str, int]:
    """Return producer and number of a record's value; a value that is none of ours is told as it is, number -1."""
    producer, _, rest = (value or b"").decode(errors="replace").partition(" ")
    number = rest.partition(" ")[0]
    return (producer, int(number)) if number.isdecimal() else (repr(value), -1)


def now_ms() -> int:
    """Return the time that histories have."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000


def write_line(file: TextIO, *fields: object) -> None:
    """Write one event."""
    file.write("\t".join(map(str, fields)) + "\n")

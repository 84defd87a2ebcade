"""Counting records so that two independent readers can be compared: how many, which ones, how many twice.

A count alone hides one loss beside one duplicate.  So every reader also adds up a 64-bit hash of each record's
identity; the sum does not depend on the order, needs eight bytes, and the sums of parts add up to the sum of the whole.

report => {topic: {"count": int, "key_hash": 16 hex digits}}      (JSON)

Records that carry a *stamp* are counted more closely: by producer and window of time, each sequence number once, so
that a comparison names what is missing and what came twice.

header pylog.audit => producer instance, sequence number, milliseconds since 1970, host: text with blanks between
"""

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from pylog.audit.sequences import Sequences

STAMP_HEADER = "pylog.audit"
AUDIT_TOPIC = "_audit"
"""Where every tier writes what it counted."""

MAX_RANGES = 5_000
"""Of one report's window; a producer whose numbers arrive in more pieces is counted, but not number by number."""

_MASK = (1 << 64) - 1
_SEED_MASK = (1 << 32) - 1
_NULL_KEY_HASH = 0x9E37_79B9_7F4A_7C15
"""A null key counts as itself: not as the empty key, and not as nothing, or its loss would leave the sum unchanged."""


def key_hash(key: bytes | None) -> int:
    """Return a 64-bit hash of one record's identity; the same in every process and release.

    Args:
        key: the record's key (or what names the record otherwise, such as a journal cursor); None for a null key.
    """
    if key is None:
        return _NULL_KEY_HASH
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Count:
    """What one reader saw of one topic.

    Attributes:
        count: records, each copy counted.
        key_hash: sum of every copy's `key_hash` modulo 2^64.
        duplicates: copies beyond each key's first; None where the reader cannot know.
    """

    count: int = 0
    key_hash: int = 0
    duplicates: int | None = None

    def __add__(self, other: "Count") -> "Count":
        """Count two disjoint parts together; duplicates across parts are unknown, so they are dropped."""
        return Count(self.count + other.count, (self.key_hash + other.key_hash) & _MASK)


class Counter:
    """Adds records up, one by one; eight bytes a record are kept to tell the duplicates."""

    def __init__(self) -> None:
        self._hashes = array("Q")

    def add(self, key: bytes | None) -> None:
        """Count one record."""
        self._hashes.append(key_hash(key))

    def update(self, keys: Iterable[bytes | None]) -> None:
        """Count many records."""
        self._hashes.extend(map(key_hash, keys))

    def result(self) -> Count:
        """Return what was counted so far, copies included."""
        count = len(self._hashes)
        return Count(count, sum(self._hashes) & _MASK, count - len(set(self._hashes)))

    def distinct(self) -> Count:
        """Return what was counted so far, each key once: equal at both ends of an at-least-once path."""
        distinct = set(self._hashes)
        return Count(len(distinct), sum(distinct) & _MASK, len(self._hashes) - len(distinct))


class Stamp(NamedTuple):
    """Who made a record, and when.

    Attributes:
        producer: one life of one producer.
        sequence: number of the record among those of this producer and topic, from 0.
        timestamp_ms: of the record; decides its window.
        host: the server's name.
    """

    producer: str
    sequence: int
    timestamp_ms: int
    host: str

    def encode(self) -> bytes:
        """Return the header's value."""
        return f"{self.producer} {self.sequence} {self.timestamp_ms} {self.host}".encode()


def read_stamp(value: bytes | str | None) -> Stamp | None:
    """Return what `Stamp.encode` was given; None for anything else."""
    text = value if isinstance(value, str) else (value or b"").decode(errors="replace")
    parts = text.split(" ", 3)
    try:
        found = Stamp(parts[0], int(parts[1]), int(parts[2]), parts[3])
    except (IndexError, ValueError):
        return None
    return found if 0 <= found.sequence < 1 << 62 and 0 <= found.timestamp_ms < 1 << 62 else None


@dataclass(slots=True)
class WindowCount:
    """What one reader saw of one producer in one window of one topic.

    Attributes:
        host: of the producer.
        count: records, copies included.
        content: sum over the numbers in `sequences` of a checksum of each record, modulo 2^64; None if unknown.
        sequences: each number once.
    """

    host: str
    count: int = 0
    content: int | None = 0
    sequences: Sequences = field(default_factory=Sequences)

    def add(self, sequence: int, content: int) -> None:
        """Count one record; *content* is `checksum` of it."""
        self.count += 1
        if self.sequences.add(sequence) and self.content is not None:
            self.content = (self.content + content) & _MASK

    def add_run(self, first: int, values: Sequence[bytes]) -> None:
        """Count records that are numbered from *first* on and new; what each costs is a checksum and nothing else."""
        self.count += len(values)
        self.sequences.add_range(first, first + len(values) - 1)
        if self.content is not None:
            self.content = (self.content + sum(map(crc32, values, _seeds(first, len(values))))) & _MASK

    def add_many(self, sequences: Sequence[int], values: Sequence[bytes]) -> None:
        """Count records that come in any order, each by its number and value."""
        found = Sequences.of(sequences)
        both = self.sequences.joined(found)
        if len(both) < len(self.sequences) + len(sequences):  # of a copy, only the first adds its content
            for sequence, value in zip(sequences, values, strict=True):
                self.add(sequence, checksum(sequence, value))
            return
        self.count += len(sequences)
        self.sequences = both
        if self.content is not None:
            seeds = sequences if both.last <= _SEED_MASK else [number & _SEED_MASK for number in sequences]
            self.content = (self.content + sum(map(crc32, values, seeds))) & _MASK

    def remove(self, sequence: int, content: int) -> None:
        """Take back one record that was added once."""
        self.count -= 1
        self.sequences = self.sequences.without(Sequences([(sequence, sequence)]))
        if self.content is not None:
            self.content = (self.content - content) & _MASK

    def merge(self, other: "WindowCount") -> None:
        """Add what was counted elsewhere; copies across the two leave the content unknown."""
        self.count += other.count
        copies = self.sequences.update(other.sequences)
        if copies or self.content is None or other.content is None:
            self.content = None
        else:
            self.content = (self.content + other.content) & _MASK

    @property
    def doubled(self) -> int:
        """Copies beyond each number's first."""
        return self.count - len(self.sequences)


def checksum(sequence: int, value: bytes | None) -> int:
    """Return a checksum of a record's number and value, for the sum of a window."""
    return crc32(value or b"", sequence & _SEED_MASK)


def _seeds(first: int, count: int) -> Iterable[int]:
    seed = first & _SEED_MASK
    if seed + count <= _SEED_MASK:
        return range(seed, seed + count)
    return [number & _SEED_MASK for number in range(first, first + count)]


def window_of(timestamp_ms: int, window_ms: int) -> int:
    """Return when the window that *timestamp_ms* falls into begins."""
    return timestamp_ms - timestamp_ms % window_ms


def write_report(path: Path, counts: Mapping[str, Count]) -> None:
    """Write a source's own counts, whole or not at all.

    Args:
        path: file to replace.
        counts: what was produced, by topic.
    """
    body = {topic: {"count": c.count, "key_hash": f"{c.key_hash:016x}"} for topic, c in sorted(counts.items())}
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(body, indent=1) + "\n")
    temporary.replace(path)


def read_report(path: Path) -> dict[str, Count]:
    """Read what `write_report` wrote.

    Raises:
        ValueError: the file is not a report; the message names it.
    """
    try:
        body = json.loads(path.read_text())
        return {str(topic): Count(int(c["count"]), int(c["key_hash"], 16)) for topic, c in body.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a report of counts by topic: {error!r}") from error

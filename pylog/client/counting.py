"""Counting records so that two independent readers can be compared: how many, which ones, how many twice.

A count alone hides one loss beside one duplicate.  So every reader also adds up a 64-bit hash of each record's
identity; the sum does not depend on the order, needs eight bytes, and the sums of parts add up to the sum of the whole.

report => {topic: {"count": int, "key_hash": 16 hex digits}}      (JSON)
"""

import json
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

_MASK = (1 << 64) - 1
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

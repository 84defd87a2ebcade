"""Which records a reader saw, by where each was first written: topic id, partition and offset there.

A copy carries these three in its headers, so that one record has one name at every tier, stamped or not, whoever wrote
it.  No clock is asked: neither a producer's nor a server's.

places => {topic id: {partition: [first offset that is followed, ranges of offsets]}}
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pylog.audit.sequences import Sequences
from pylog.model import Offset

ORIGIN_HEADER = "pylog.origin"
"""Names the cluster that a record was first written to."""

ORIGIN_ID_HEADER = "pylog.origin.id"
"""The id of the record's topic there."""

ORIGIN_OFFSET_HEADER = "pylog.origin.offset"
"""The record's offset there, in digits; its partition is the same."""

MAX_RANGES = 1_000
"""Of one partition; above it the lower half is no longer followed.  A log has a hole for each marker of a transaction
and for what compaction took."""

MAX_ALL_RANGES = 32_768
"""Of one topic; above it the partitions with the most no longer follow their lower halves.  A report, which says all of
them each time, then is about one megabyte of them."""

MAX_TOPIC_IDS = 8
"""Of one topic: it was made again, in either cluster.  The one of which nothing came for longest is forgotten."""

_MAX_DIGITS = 18
_NEVER = 1 << 62


def offset_of(value: bytes | None) -> Offset | None:
    """Return the number in the header `ORIGIN_OFFSET_HEADER`; None if it is none."""
    return int(value) if value is not None and len(value) <= _MAX_DIGITS and value.isdigit() else None


class Places:
    """A set of places.

    Invariants: of a partition nothing below its first followed offset is kept.  Topic ids are in the order in which
    something came of them last, also in plain data.
    """

    def __init__(self) -> None:
        self._seen: dict[str, dict[int, tuple[Offset, Sequences]]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        raise TypeError("places change")

    def topic_ids(self) -> Iterator[str]:
        """Yield the ids of the topics that the records were first written to."""
        return iter(self._seen)

    def partitions(self, topic_id: str) -> Iterator[int]:
        """Yield the partitions of one of them."""
        return iter(self._seen.get(topic_id, {}))

    def of(self, topic_id: str, partition: int) -> tuple[Offset, Sequences] | None:
        """Return the first offset that is followed, and the offsets seen from there on; None if nothing is known."""
        return self._seen.get(topic_id, {}).get(partition)

    def begin(self, topic_id: str, partition: int, offset: Offset) -> None:
        """Note where a reader begins with a partition of its own log: from 0 on it sees all that ever was there."""
        self._of_topic(topic_id).setdefault(partition, (offset, Sequences()))

    def add(self, topic_id: str, partition: int, first: Offset, last: Offset, *, floor: Offset | None = None) -> None:
        """Add all offsets from *first* to *last*, but for those below where this partition begins to be followed.

        Args:
            topic_id: of the topic they were first written to.
            partition: which.
            first: lowest offset.
            last: highest offset.
            floor: where to begin to follow a partition of which nothing is known; *first* unless given.
        """
        partitions = self._of_topic(topic_id)
        kept, seen = partitions.get(partition) or (first if floor is None else floor, Sequences())
        if kept == _NEVER:
            kept = first
        if last < kept:
            return
        seen.add_range(max(first, kept), last)
        partitions[partition] = _upper_half(seen) if seen.pieces > MAX_RANGES else (kept, seen)

    def fit(self) -> None:
        """Follow less of the partitions with the most ranges until there are no more than `MAX_ALL_RANGES`."""
        count = sum(seen.pieces for partitions in self._seen.values() for _, seen in partitions.values())
        most = MAX_RANGES
        while count > MAX_ALL_RANGES and most > 1:
            most //= 2
            for partitions in self._seen.values():
                for partition, (_, seen) in partitions.items():
                    if seen.pieces > most:
                        partitions[partition] = half = _upper_half(seen)
                        count -= seen.pieces - half[1].pieces

    def forget(self, own_id: str, partition: int) -> None:
        """Follow copies anew from the next on: one came whose place nobody told, and it may be any."""
        for topic_id, partitions in self._seen.items():
            if topic_id != own_id and partition in partitions:
                partitions[partition] = _NEVER, Sequences()
        floor, seen = self.of(own_id, partition) or (1, Sequences())
        self._of_topic(own_id)[partition] = max(1, floor), seen

    def copy(self) -> "Places":
        """Return the same, which goes its own way."""
        return Places.from_json(self.to_json())

    def _of_topic(self, topic_id: str) -> dict[int, tuple[Offset, Sequences]]:
        partitions = self._seen.pop(topic_id, None)
        if partitions is None and len(self._seen) >= MAX_TOPIC_IDS:
            del self._seen[next(iter(self._seen))]
        found = self._seen[topic_id] = {} if partitions is None else partitions
        return found

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return plain data."""
        return {
            topic_id: {
                str(partition): [floor, [list(one) for one in seen.ranges()]]
                for partition, (floor, seen) in sorted(partitions.items())
            }
            for topic_id, partitions in self._seen.items()
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Mapping[str, Any]]) -> "Places":
        """Return what `to_json` was given of."""
        found = cls()
        for topic_id, partitions in body.items():
            found._seen[topic_id] = {
                int(partition): (int(floor), Sequences(ranges)) for partition, (floor, ranges) in partitions.items()
            }
        return found


def _upper_half(seen: Sequences) -> tuple[Offset, Sequences]:
    """Return from where on the upper half of some ranges is followed, and that half."""
    ranges = list(seen.ranges())
    ranges = ranges[len(ranges) // 2 :]
    return ranges[0][0], Sequences(ranges)

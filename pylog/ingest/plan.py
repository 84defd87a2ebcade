"""Which offsets a micro-batch or a query reads, and in which pieces; decides only, asks nobody.

position => {"version": 1, "topics": {topic: {"id": topic id, "partitions": {partition: next offset}}}}
            (JSON in Spark's checkpoint, so partition numbers are text)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from pylog.errors import PylogError
from pylog.model import Offset, TopicPartition

VERSION = 1


class DataLoss(PylogError):
    """Offsets that should be read are gone; the message names topic, partition and the missing range."""

    fault = 307


class PositionError(PylogError):
    """A checkpoint does not belong to these topics: start a new one, or point at the right cluster."""

    fault = 310


class Range(NamedTuple):
    """Offsets of one partition, from *start* to before *end*."""

    partition: TopicPartition
    start: Offset
    end: Offset

    @property
    def offset_count(self) -> int:
        """Offsets in the range; records may be fewer."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Position:
    """Next offset of every partition of every topic, and which topics they were: a name can be used again.

    Attributes:
        offsets: next offset to read.
        topic_ids: text of each topic's id; all zeros where the broker has none.
    """

    offsets: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote.

        Raises:
            PositionError: the checkpoint was written by something else, or by a later release.
        """
        if body.get("version") != VERSION:
            raise PositionError(f"the checkpoint's position has version {body.get('version')!r}; {VERSION} is known")
        topics = body["topics"]
        return cls(
            {
                TopicPartition(topic, int(partition)): offset
                for topic, entry in topics.items()
                for partition, offset in entry["partitions"].items()
            },
            {topic: entry["id"] for topic, entry in topics.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """Return the position as Spark keeps it."""
        topics: dict[str, dict[str, Any]] = {
            topic: {"id": topic_id, "partitions": {}} for topic, topic_id in sorted(self.topic_ids.items())
        }
        for (topic, partition), offset in sorted(self.offsets.items()):
            topics[topic]["partitions"][str(partition)] = offset
        return {"version": VERSION, "topics": topics}


def ranges_between(start: Position, end: Position, log_starts: Mapping[TopicPartition, Offset]) -> list[Range]:
    """Return what lies between two positions, in order, without empty ranges.

    Args:
        start: where the last micro-batch ended; a partition it lacks is new and begins at its log start.
        end: where this one ends.
        log_starts: log start offset of each partition in *end*.

    Raises:
        PositionError: a topic was deleted and made again, or a partition's end lies before its start.
    """
    ranges = []
    for topic, topic_id in end.topic_ids.items():
        before = start.topic_ids.get(topic, topic_id)
        if before != topic_id:
            raise PositionError(
                f"topic {topic!r} was deleted and made again: its id was {before} and is {topic_id}; "
                "start with a new checkpoint to read the new one from its beginning"
            )
    for partition, end_offset in sorted(end.offsets.items()):
        start_offset = start.offsets.get(partition, log_starts[partition])
        if end_offset < start_offset:
            raise PositionError(
                f"{partition} ends at {end_offset}, before {start_offset} where the last run stopped: "
                "the topic was made again or its log was cut; start with a new checkpoint to read it from its beginning"
            )
        if end_offset > start_offset:
            ranges.append(Range(partition, start_offset, end_offset))
    return ranges


def present(
    ranges: list[Range], log_starts: Mapping[TopicPartition, Offset], *, fail_on_data_loss: bool
) -> list[Range]:
    """Return *ranges* without what retention has deleted.

    Raises:
        DataLoss: something was deleted and *fail_on_data_loss* is set; nothing is skipped in silence.
    """
    lost = [
        f"{r.partition} offsets {r.start} to {min(log_starts[r.partition], r.end) - 1}"
        for r in ranges
        if log_starts[r.partition] > r.start
    ]
    if lost and fail_on_data_loss:
        raise DataLoss(
            f"retention deleted {'; '.join(lost)} before they were read; "
            "set failOnDataLoss=false to go on behind the hole"
        )
    kept = (r._replace(start=max(r.start, log_starts[r.partition])) for r in ranges)
    return [r for r in kept if r.offset_count > 0]


def split(ranges: list[Range], max_count: int | None) -> Iterator[Range]:
    """Yield *ranges* in pieces of at most *max_count* offsets, so that one fat partition does not hold the job."""
    for whole in ranges:
        step = max_count or whole.offset_count
        for start in range(whole.start, whole.end, step):
            yield Range(whole.partition, start, min(start + step, whole.end))


def limited(start: Position, latest: Position, log_starts: Mapping[TopicPartition, Offset], max_count: int) -> Position:
    """Return a position at most *max_count* offsets after *start*, taken from each partition by its share.

    A partition with little left is not starved by a large one: each with anything left advances, as long as
    *max_count* reaches that far, by its share rounded down or by one.
    """
    ranges = ranges_between(start, latest, log_starts)
    total = sum(r.offset_count for r in ranges)
    if total <= max_count:
        return latest
    offsets = {partition: start.offsets.get(partition, log_starts[partition]) for partition in latest.offsets}
    left = max_count
    # Smallest first: what their rounding up takes is not missed by the large ones.
    for r in sorted(ranges, key=lambda r: r.offset_count):
        taken = min(left, max(1, r.offset_count * max_count // total))
        offsets[r.partition] += taken
        left -= taken
    return Position(offsets, latest.topic_ids)


def not_beyond(position: Position, target: Position) -> Position:
    """Return *position* with no partition beyond *target*; partitions *target* lacks are left out."""
    return Position(
        {p: min(offset, target.offsets[p]) for p, offset in position.offsets.items() if p in target.offsets},
        {topic: i for topic, i in position.topic_ids.items() if topic in target.topic_ids},
    )

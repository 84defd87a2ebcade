"""Which offsets a micro-batch or a query reads, and in which pieces; decides only, asks nobody.

position => {"version": 1, "topics": {topic: {"id": topic id, "partitions": {partition: next offset},
                                              "epochs": {partition: leader epoch when that was the end}}}}
            (JSON in Spark's checkpoint, so partition numbers are text)
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from pylog.errors import PylogError
from pylog.model import Offset, TopicPartition

VERSION = 1

GUESSED_BYTES = 1024
"""What an offset of a topic is thought to take that this driver has not read yet."""

MIN_TASK_OFFSETS = 50_000
"""A smaller share is not worth a task and a file of its own: this many records take a tenth of a second."""

MIN_QUERY_TASKS = 64
"""Partitions of a query share tasks only where it has more of them: what follows a read may be dear, and nobody here
knows how many tasks run at once."""


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
        epochs: of some partitions, a leader epoch under which all before the offset had been written: what was cut off
            since shows by it.
    """

    offsets: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote.

        Raises:
            PositionError: the checkpoint was written by something else, or by a later release.
        """
        if body.get("version") != VERSION:
            raise PositionError(f"the position of the last run has version {body.get('version')!r}; {VERSION} is known")
        topics = body["topics"]
        return cls(
            {
                TopicPartition(topic, int(partition)): offset
                for topic, entry in topics.items()
                for partition, offset in entry["partitions"].items()
            },
            {topic: entry["id"] for topic, entry in topics.items()},
            {
                TopicPartition(topic, int(partition)): epoch
                for topic, entry in topics.items()
                for partition, epoch in entry.get("epochs", {}).items()
            },
        )

    def moved_to(self, target: Self) -> Self:
        """Return this position with every partition that *target* knows moved there."""
        return replace(
            self,
            offsets={**self.offsets, **target.offsets},
            topic_ids={**self.topic_ids, **target.topic_ids},
            epochs={**self.epochs, **target.epochs},
        )

    def without(self, topics: Collection[str]) -> Self:
        """Return this position as if *topics* had never been read."""
        return replace(
            self,
            offsets={p: offset for p, offset in self.offsets.items() if p.topic not in topics},
            topic_ids={topic: i for topic, i in self.topic_ids.items() if topic not in topics},
            epochs={p: epoch for p, epoch in self.epochs.items() if p.topic not in topics},
        )

    def only(self, topics: Collection[str]) -> Self:
        """Return what this position says of *topics*."""
        return self.without(self.topic_ids.keys() - topics)

    def to_json(self) -> dict[str, Any]:
        """Return the position as Spark keeps it."""
        topics: dict[str, dict[str, Any]] = {
            topic: {"id": topic_id, "partitions": {}} for topic, topic_id in sorted(self.topic_ids.items())
        }
        for (topic, partition), offset in sorted(self.offsets.items()):
            topics[topic]["partitions"][str(partition)] = offset
        for (topic, partition), epoch in sorted(self.epochs.items()):
            topics[topic].setdefault("epochs", {})[str(partition)] = epoch
        return {"version": VERSION, "topics": topics}


def check_topics(start: Position, latest: Position) -> None:
    """Check that a run goes on with what the last one read.

    Raises:
        PositionError: the last one read a topic that this one does not.
    """
    gone = sorted(start.topic_ids.keys() - latest.topic_ids.keys())
    if gone:
        raise PositionError(
            f"the last run read {', '.join(map(repr, gone))}, this one reads "
            f"{', '.join(map(repr, sorted(latest.topic_ids))) or 'no topic'}: the checkpoint is another query's, or "
            "the topic was deleted; give the query a checkpoint of its own, or go on without it by failOnDataLoss=false"
        )


def kept(start: Position, latest: Position) -> Position:
    """Return *latest* with what *start* has of topics and partitions that *latest* lacks.

    A broker may not have heard of them yet.  A position without them would have them read once more from their
    beginning.  Of a topic that was made again, nothing is kept.
    """
    missing = {
        p: offset
        for p, offset in start.offsets.items()
        if p not in latest.offsets
        and latest.topic_ids.get(p.topic, start.topic_ids[p.topic]) == start.topic_ids[p.topic]
    }
    if not missing:
        return latest
    epochs = {p: epoch for p, epoch in start.epochs.items() if p in missing}
    return Position(missing, {p.topic: start.topic_ids[p.topic] for p in missing}, epochs).moved_to(latest)


def made_again(topic: str, before: str, now: str) -> PositionError:
    """Return the error that names a topic whose id is another one than it was."""
    return PositionError(
        f"topic {topic!r} was deleted and made again: its id was {before} and is {now}; "
        f"read the new one from its beginning with a new checkpoint (the load job: --recreated {topic})"
    )


def without_made_again(start: Position, now: Position) -> Position:
    """Return *start* without the topics that have another id *now*: they are read from their new beginning."""
    return start.without([t for t, topic_id in start.topic_ids.items() if now.topic_ids.get(t, topic_id) != topic_id])


def ranges_between(start: Position, end: Position, log_starts: Mapping[TopicPartition, Offset]) -> list[Range]:
    """Return what lies between two positions, in order, without empty ranges.

    Args:
        start: where the last micro-batch ended; a partition it lacks is new and begins at its log start.
        end: where this one ends.
        log_starts: log start offset of each partition; one that it lacks is gone, and its topic with it or not.

    Raises:
        PositionError: a topic was deleted and made again, or a partition's end lies before its start.
    """
    ranges = []
    for topic, topic_id in end.topic_ids.items():
        before = start.topic_ids.get(topic, topic_id)
        if before != topic_id:
            raise made_again(topic, before, topic_id)
    for partition, end_offset in sorted(end.offsets.items()):
        start_offset = _first(start, partition, log_starts)
        if end_offset < start_offset:
            raise PositionError(
                f"{partition} ends at {end_offset}, before {start_offset} where the last run stopped: "
                "the topic was made again or its log was cut; start with a new checkpoint to read it from its beginning"
            )
        if end_offset > start_offset:
            ranges.append(Range(partition, start_offset, end_offset))
    return ranges


def _first(start: Position, partition: TopicPartition, log_starts: Mapping[TopicPartition, Offset]) -> Offset:
    """Return the first offset to read of a partition."""
    offset = start.offsets.get(partition)
    # Of one that was never read and is gone, nobody knows where it began.
    return log_starts.get(partition, 0) if offset is None else offset


def check_not_cut(start: Position, ends: Mapping[TopicPartition, Offset]) -> None:
    """Check that what was read before *start* is still what the logs hold.

    Args:
        start: where the last run stopped.
        ends: where records of the leader epochs of *start* end now, by partition; -1 if unknown.

    Raises:
        PositionError: a log was cut behind what was read, and written on since.
    """
    for partition, end in sorted(ends.items()):
        if 0 <= end < start.offsets.get(partition, 0):
            raise PositionError(
                f"{partition} was cut back to {end}, before {start.offsets[partition]} where the last run stopped, and "
                "written on since: the cluster lost records that were read, and others stand at their offsets; start "
                "with a new checkpoint to read it from its beginning"
            )


def holes(ranges: Sequence[Range], log_starts: Mapping[TopicPartition, Offset]) -> list[Range]:
    """Return the parts of *ranges* that retention deleted, or that went with all of their partition."""
    return [
        Range(r.partition, r.start, min(log_starts.get(r.partition, r.end), r.end))
        for r in ranges
        if log_starts.get(r.partition, r.end) > r.start
    ]


def named(ranges: Iterable[Range]) -> str:
    """Return *ranges* as an error or a warning names them."""
    return "; ".join(f"{r.partition} offsets {r.start} to {r.end - 1}" for r in ranges)


def lost(missing: list[Range], gone: Collection[TopicPartition] = ()) -> DataLoss:
    """Return the error that names *missing*, of partitions that are *gone* altogether and of others."""
    what = "the topic was deleted, or is another one, with" if gone else "retention deleted"
    return DataLoss(
        f"{what} {named(missing)} before they were read; "
        "set failOnDataLoss=false (--allow-data-loss) to go on behind the hole"
    )


def present(
    ranges: list[Range], log_starts: Mapping[TopicPartition, Offset], *, fail_on_data_loss: bool
) -> list[Range]:
    """Return *ranges* without what retention has deleted.

    Raises:
        DataLoss: something was deleted and *fail_on_data_loss* is set; nothing is skipped in silence.
    """
    missing = holes(ranges, log_starts)
    if missing and fail_on_data_loss:
        gone = {r.partition for r in missing} - log_starts.keys()
        raise lost([r for r in missing if not gone or r.partition in gone], gone)
    kept = (r._replace(start=max(r.start, log_starts.get(r.partition, r.end))) for r in ranges)
    return [r for r in kept if r.offset_count > 0]


def split(ranges: Iterable[Range], max_count: int | None) -> Iterator[Range]:
    """Yield *ranges* in pieces of at most *max_count* offsets, so that one fat partition does not hold the job."""
    for whole in ranges:
        step = max_count or whole.offset_count
        for start in range(whole.start, whole.end, step):
            yield Range(whole.partition, start, min(start + step, whole.end))


def pack(ranges: Sequence[Range], task_count: int, max_count: int) -> list[list[Range]]:
    """Return *ranges* as the shares of tasks: equal, few topics each, and none hardly worth its start.

    A task writes a file of its own for each of its topics.  So the partitions of a topic stay together, and no more
    files are made than there are topics and tasks.

    Args:
        ranges: what is to be read.
        task_count: how many tasks run at once.
        max_count: most offsets of one task; more tasks than run at once follow from it.
    """
    total = sum(r.offset_count for r in ranges)
    if not total:
        return []
    size = min(max_count, max(MIN_TASK_OFFSETS, -(-total // task_count)))
    size = -(-total // -(-total // size))  # all the same, instead of a small one at the end
    shares: list[list[Range]] = [[]]
    left = size
    for whole in sorted(ranges):
        start = whole.start
        while start < whole.end:
            if not left:
                shares.append([])
                left = size
            end = min(whole.end, start + left)
            shares[-1].append(Range(whole.partition, start, end))
            left -= end - start
            start = end
    return shares


def gather(ranges: Sequence[Range], min_count: int, max_offsets: int | None) -> list[tuple[Range, ...]]:
    """Return *ranges* as the shares of tasks: small ones that follow each other are one task's, none is cut.

    Args:
        ranges: what is to be read, in order.
        min_count: where there are more ranges, at least so many tasks stay; where there are not, each is a task.
        max_offsets: most offsets of a task that reads several; None is no limit.
    """
    if len(ranges) <= min_count:
        return [(one,) for one in ranges]
    size = sum(r.offset_count for r in ranges) // min_count
    size = size if max_offsets is None else min(size, max_offsets)
    shares = _filled(ranges, size)
    # A large range takes up more than its share of all offsets, so that the others must be more than that.
    while len(shares) < min_count:
        size //= 2
        shares = _filled(ranges, size)
    return shares


def _filled(ranges: Sequence[Range], size: int) -> list[tuple[Range, ...]]:
    """Return *ranges* in shares of at most *size* offsets; a larger range is one by itself."""
    shares: list[list[Range]] = []
    left = 0
    for one in ranges:
        if one.offset_count > left:
            shares.append([])
            left = size
        shares[-1].append(one)
        left -= one.offset_count
    return [tuple(share) for share in shares]


def spread(ranges: Sequence[Range], min_count: int) -> list[Range]:
    """Return *ranges* in at least *min_count* pieces of about the same size, as long as there are so many offsets."""
    total = sum(r.offset_count for r in ranges)
    return list(split(ranges, max(1, total // min_count))) if total else []


def limited(start: Position, latest: Position, log_starts: Mapping[TopicPartition, Offset], max_count: int) -> Position:
    """Return a position at most *max_count* offsets after *start*, taken from each partition by its share.

    A partition with little left is not starved by a large one: each with anything left advances, as long as
    *max_count* reaches that far, by its share rounded down or by one.  Offsets that retention deleted count for
    nothing: the position goes behind them at once.
    """
    found = ranges_between(start, latest, log_starts)
    ranges = present(found, log_starts, fail_on_data_loss=False)
    total = sum(r.offset_count for r in ranges)
    if total <= max_count:
        return latest
    offsets = {partition: _first(start, partition, log_starts) for partition in latest.offsets}
    if max_count:
        offsets.update({hole.partition: hole.end for hole in holes(found, log_starts)})
    left = max_count
    # Smallest first: what their rounding up takes is not missed by the large ones.
    for r in sorted(ranges, key=lambda r: r.offset_count):
        taken = min(left, max(1, r.offset_count * max_count // total))
        offsets[r.partition] += taken
        left -= taken
    return Position(offsets, latest.topic_ids, latest.epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one commit of the load job is to hold; first of nothing.

    Attributes:
        start: where the last commit ended.
        latest: where the partitions ended when the run began; topics that ended since are left out.
        log_starts: where they begin.
        position: where the next commit goes on.
        ranges: what is read.
        holes: what cannot be read, and never will be.
    """

    start: Position
    latest: Position
    log_starts: Mapping[TopicPartition, Offset]
    position: Position
    ranges: Sequence[Range] = ()
    holes: Sequence[Range] = ()

    def up_to(self, max_count: int, *, fail_on_data_loss: bool) -> Self:
        """Return this with about *max_count* offsets to read.

        Raises:
            PositionError: as `ranges_between`.
            DataLoss: as `present`.
        """
        end = limited(self.start, self.latest, self.log_starts, max_count)
        wanted = ranges_between(self.start, end, self.log_starts)
        return replace(
            self,
            position=self.position.moved_to(end),
            ranges=present(wanted, self.log_starts, fail_on_data_loss=fail_on_data_loss),
            holes=[*self.holes, *holes(wanted, self.log_starts)],
        )

    def offsets_in(self, max_bytes: int, rates: Mapping[str, float]) -> int:
        """Return what `offsets_in` does, of all that is there."""
        wanted = ranges_between(self.start, self.latest, self.log_starts)
        return offsets_in(present(wanted, self.log_starts, fail_on_data_loss=False), max_bytes, rates)

    def topics(self) -> set[str]:
        """Return the topics that something is new of.

        Raises:
            PositionError: as `ranges_between`.
        """
        return {r.partition.topic for r in ranges_between(self.start, self.latest, self.log_starts)}

    def without_stopped(self, topics: Collection[str]) -> Self:
        """Return this without *topics*, which cannot be read now: the next run begins where this one did."""
        return replace(
            self,
            latest=self.latest.without(topics),
            position=self.position.without(topics).moved_to(self.start.only(topics)),
            ranges=[r for r in self.ranges if r.partition.topic not in topics],
            holes=[hole for hole in self.holes if hole.partition.topic not in topics],
        )

    def without_ended(self, topics: Collection[str]) -> Self:
        """Return this without *topics*, which were deleted: all that was to be loaded of them is a hole.

        Their position stays where it was.  Should the broker that did not know a topic only have been behind, the next
        run so goes on there and misses nothing; and one that is made again is told from it by the id.  Of a topic that
        could not have been gone on with either, nothing is a hole: nobody knows what was to be loaded.
        """
        unplanned = stopped(replace(self, latest=self.latest.only(topics)), (), fail_on_data_loss=False)
        left = self.without_stopped(unplanned)
        planned = set(topics) - unplanned.keys()
        gone = left.latest.only(planned)
        stands = limited(left.start, gone, left.log_starts, 0)
        return replace(
            left,
            latest=left.latest.without(planned),
            position=left.position.without(planned).moved_to(stands),
            ranges=[r for r in left.ranges if r.partition.topic not in planned],
            holes=[
                *(hole for hole in left.holes if hole.partition.topic not in planned),
                *ranges_between(left.start, gone, left.log_starts),
            ],
        )


def offsets_in(wanted: Sequence[Range], max_bytes: int, rates: Mapping[str, float]) -> int:
    """Return about how many offsets *max_bytes* of record batches hold, if all of *wanted* give their share.

    Args:
        wanted: what is there.
        max_bytes: as the batches are stored and fetched.
        rates: by topic, bytes an offset takes; of others `GUESSED_BYTES` are thought.
    """
    count = sum(r.offset_count for r in wanted)
    size = sum(r.offset_count * rates.get(r.partition.topic, GUESSED_BYTES) for r in wanted)
    return max(1, int(count * max_bytes / size)) if size else max_bytes


def accepting(
    start: Position,
    latest: Position,
    topics: Collection[str],
    epoch_ends: Mapping[TopicPartition, Offset] = MappingProxyType({}),
) -> Position:
    """Return *start* as it is once the losses of *topics* are accepted.

    A topic that was made again begins anew; a log that ends before the last run's stop goes on at its end, and one that
    was cut and written on since, where it was cut.
    """
    again = [t for t in topics if t in latest.topic_ids and start.topic_ids.get(t) != latest.topic_ids[t]]
    kept = start.without(again)
    cut = {
        partition: latest.offsets[partition]
        for partition, offset in kept.offsets.items()
        if partition.topic in topics and latest.offsets.get(partition, offset) < offset
    }
    for partition, end in epoch_ends.items():
        if partition.topic in topics and 0 <= end < kept.offsets.get(partition, 0):
            cut[partition] = min(end, cut.get(partition, end))
    return replace(kept, offsets={**kept.offsets, **cut})


def stopped(
    load: Load,
    accepted: Collection[str],
    *,
    fail_on_data_loss: bool,
    epoch_ends: Mapping[TopicPartition, Offset] = MappingProxyType({}),
) -> dict[str, PylogError]:
    """Return the topics that a load cannot go on with, and why; the others are none the worse for it.

    Args:
        load: as planned, of all topics.
        accepted: topics of which holes are accepted.
        fail_on_data_loss: whether holes stop a topic at all.
        epoch_ends: as for `check_not_cut`.
    """
    found: dict[str, PylogError] = {}
    for topic in load.latest.topic_ids:
        own = load.latest.only([topic])
        try:
            start = load.start.only([topic])
            check_not_cut(start, {p: epoch_ends[p] for p in start.offsets if p in epoch_ends})
            wanted = ranges_between(start, own, load.log_starts)
            present(wanted, load.log_starts, fail_on_data_loss=fail_on_data_loss and topic not in accepted)
        except (PositionError, DataLoss) as error:
            found[topic] = error
    return found


def not_beyond(position: Position, target: Position) -> Position:
    """Return *position* with no partition beyond *target*; partitions *target* lacks are left out."""
    return Position(
        {p: min(offset, target.offsets[p]) for p, offset in position.offsets.items() if p in target.offsets},
        {topic: i for topic, i in position.topic_ids.items() if topic in target.topic_ids},
        {p: epoch for p, epoch in position.epochs.items() if p in target.offsets},
    )

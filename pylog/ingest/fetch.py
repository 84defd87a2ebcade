"""What the brokers hold, asked for by topic and read by range; knows nothing of Spark or of the lake."""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias, TypedDict

import pyarrow as pa

from pylog.client.raw import RawBatches, RawClient, RawConfig, Topic
from pylog.errors import ApiError, CorruptRecords, ErrorCode, OffsetOutOfRange, PylogError
from pylog.ingest.decode import decode, whole_batches
from pylog.ingest.options import StartingOffsets
from pylog.ingest.plan import DataLoss, Position, Range, lost, made_again
from pylog.model import OWN_TOPICS, IsolationLevel, Offset, TopicPartition
from pylog.wire import records
from pylog.wire.api.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from pylog.wire.markers import without_aborted
from pylog.wire.records import HEADER_BYTES, BatchHeader


class Fetched(NamedTuple):
    """One fetch's worth.

    Attributes:
        records: the bytes.
        batches: (position, header) of every whole batch in them, without those of aborted transactions.
        start: first offset that was asked for; the first batch may hold some before it, deleted ones among them.
    """

    records: memoryview
    batches: list[tuple[int, BatchHeader]]
    start: Offset


class DeadLetter(NamedTuple):
    """A batch that does not decode.

    Attributes:
        first_offset: of the batch, or of what is read of it.
        last_offset: of the same.
        reason: why it does not decode.
        batch: as it is stored.
    """

    first_offset: Offset
    last_offset: Offset
    reason: str
    batch: bytes


class UndecidedRecords(PylogError):
    """A range ends behind the beginning of an open transaction; the message says where that began."""

    fault = 314


class _Headers(TypedDict):
    with_headers: bool
    header_errors: str


Topics: TypeAlias = Sequence[str] | re.Pattern[str]
"""Names, or what the whole name must match."""


def positions(client: RawClient, topics: Topics, timestamp: int) -> Position:
    """Return the position at *timestamp* in every partition that *topics* have now.

    Args:
        client: to ask.
        topics: which; of a pattern's topics, `OWN_TOPICS` are left out.
        timestamp: EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, or milliseconds since 1970 for the first record of that time or
            later; where none is that late, the position is the end.
    """
    if isinstance(topics, re.Pattern):
        found = {name: topic for name, topic in client.topics().items() if is_meant(name, topics)}
        failed: dict[TopicPartition, ApiError] = {}
        unreadable: dict[str, PylogError] = {}
        position = _positions_of(client, found, timestamp, failed)
        gone = deleted(client, failed, unreadable)
        for error in unreadable.values():
            raise error
        return position.without(gone)  # deleted since it was listed: the pattern does not stand for it any more
    return _positions_of(client, client.topics(topics), timestamp)


def names_of(client: RawClient, pattern: re.Pattern[str]) -> list[str]:
    """Return the topics there are now whose whole name *pattern* matches; `OWN_TOPICS` never."""
    return [name for name in client.topics() if is_meant(name, pattern)]


def is_meant(name: str, pattern: re.Pattern[str]) -> bool:
    """Return whether *pattern* stands for the topic *name*."""
    return pattern.fullmatch(name) is not None and not OWN_TOPICS.fullmatch(name)


def positions_of_present(
    client: RawClient, names: Iterable[str], timestamp: int, unreadable: dict[str, PylogError]
) -> Position:
    """Return what `positions` does, for those of the topics *names* that exist, also if some are deleted meanwhile.

    Args:
        client: to ask.
        names: which.
        timestamp: as for `positions`.
        unreadable: takes the topics that exist and whose positions nobody says, one without a leader among them; they
            are left out.
    """
    refused: dict[str, ApiError] = {}
    found = client.present_topics(names, refused)
    unreadable |= refused
    for name, topic in list(found.items()):
        if headless := sorted(p for p, leader in topic.leaders.items() if leader < 0):
            unreadable[name] = ApiError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"partition {TopicPartition(name, headless[0])} has no leader"
            )
            del found[name]
    failed: dict[TopicPartition, ApiError] = {}
    position = _positions_of(client, found, timestamp, failed)
    gone = deleted(client, failed, unreadable)
    return position.without({*gone, *(partition.topic for partition in failed)})


def deleted(
    client: RawClient, failed: Mapping[TopicPartition, ApiError], unreadable: dict[str, PylogError]
) -> set[str]:
    """Return which topics of the partitions *failed* do not exist any more; *unreadable* takes the others."""
    errors = {partition.topic: error for partition, error in sorted(failed.items(), reverse=True)}
    if not errors:
        return set()
    refused: dict[str, ApiError] = {}
    left = client.present_topics(errors, refused)
    unreadable |= {topic: error for topic, error in errors.items() if topic in left} | refused
    return errors.keys() - unreadable.keys()


def _positions_of(
    client: RawClient,
    topics: Mapping[str, Topic],
    timestamp: int,
    failed: dict[TopicPartition, ApiError] | None = None,
) -> Position:
    partitions = [TopicPartition(name, p) for name, topic in topics.items() for p in topic.leaders]
    ids = {name: str(topic.topic_id) for name, topic in topics.items()}
    if timestamp == LATEST_TIMESTAMP:
        ends = client.end_offsets(partitions, failed=failed)
        epochs = {p: epoch for p, (_, epoch) in ends.items() if epoch >= 0}
        return Position({p: offset for p, (offset, _) in ends.items()}, ids, epochs)
    return Position(offsets_at(client, partitions, timestamp, failed), ids)


def with_read_uncommitted(
    client: RawClient,
    start: Position,
    latest: Position,
    failed: dict[TopicPartition, ApiError] | None = None,
) -> Position:
    """Return *latest* with the partitions at *start* that an earlier run read beyond an open transaction.

    A run that read uncommitted records may have stopped behind the last stable offset.  Its log was not cut.

    Args:
        client: to ask.
        start: where the earlier run stopped.
        latest: where committed records end.
        failed: as for `RawClient.list_offsets`.
    """
    beyond = [
        p
        for p, end in latest.offsets.items()
        if end < start.offsets.get(p, 0) and start.topic_ids.get(p.topic) == latest.topic_ids[p.topic]
    ]
    if not beyond:
        return latest
    ends = client.end_offsets(beyond, IsolationLevel.READ_UNCOMMITTED, failed)
    stays = {p: start.offsets[p] for p, (end, _) in ends.items() if end >= start.offsets[p]}
    return replace(latest, offsets={**latest.offsets, **stays})


def epoch_ends(
    client: RawClient,
    start: Position,
    latest: Position,
    failed: dict[TopicPartition, ApiError] | None = None,
) -> dict[TopicPartition, Offset]:
    """Return where records of *start*'s leader epochs end now, of the partitions that still are of the same topics.

    Args:
        client: to ask.
        start: where the last run stopped.
        latest: where the partitions end now.
        failed: as for `RawClient.list_offsets`.
    """
    return client.epoch_ends(
        {
            p: epoch
            for p, epoch in start.epochs.items()
            if p in latest.offsets and start.topic_ids.get(p.topic) == latest.topic_ids[p.topic]
        },
        failed,
    )


SAMPLE = RawConfig(partition_max_bytes=64 << 10, max_wait_ms=0)
"""Of a client that only looks how large records are."""

MAX_SAMPLED = 100
"""Topics whose records are looked at in one request: their samples fit into one answer."""


def sampled_rates(client: RawClient, ranges: Iterable[Range], known: Container[str] = ()) -> dict[str, float]:
    """Return how many bytes an offset takes, by topic, where the first batches of a range tell.

    Args:
        client: made with `SAMPLE`.
        ranges: what is to be read; of each topic one is looked at.
        known: topics that others go before, where there are too many.
    """
    by_topic = {r.partition.topic: r for r in sorted(ranges, key=lambda r: r.offset_count)}
    asked = sorted(by_topic.values(), key=lambda r: (r.partition.topic in known, -r.offset_count))[:MAX_SAMPLED]
    starts = {r.partition: r.start for r in asked}
    try:
        found = client.fetch(starts)
        # A batch that is larger than the sample is not whole, and its header says how large it is.
        first = {
            p: records.parse_header(one.records, 0) for p, one in found.items() if len(one.records) >= HEADER_BYTES
        }
    except (ApiError, CorruptRecords):  # retention was faster, or the task will say what is wrong: the guess stands
        return {}
    return {p.topic: one.size_bytes / max(1, one.last_offset_delta + 1) for p, one in first.items()}


def offsets_at(
    client: RawClient,
    partitions: Iterable[TopicPartition],
    timestamp: int,
    failed: dict[TopicPartition, ApiError] | None = None,
) -> dict[TopicPartition, Offset]:
    """Return the offsets at *timestamp* as `positions` does, for known partitions; *failed* as for `list_offsets`."""
    offsets = client.list_offsets(partitions, timestamp, failed)
    late = [partition for partition, offset in offsets.items() if offset < 0]
    if not late:
        return offsets
    kept = {partition: offset for partition, offset in offsets.items() if offset >= 0}
    return {**kept, **client.list_offsets(late, LATEST_TIMESTAMP, failed)}


def resolve(client: RawClient, topics: Topics, wanted: StartingOffsets) -> Position:
    """Return *wanted* as numbers.

    Raises:
        ApiError: UNKNOWN_TOPIC_OR_PARTITION, for an offset given to a partition that is not there.
    """
    base = positions(client, topics, wanted.default)
    offsets = dict(base.offsets)
    for topic, by_partition in wanted.by_partition.items():
        for number, offset in by_partition.items():
            partition = TopicPartition(topic, number)
            if partition not in offsets:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"an offset is given for {partition}: no such one")
            if offset < 0:
                offset = client.list_offsets([partition], offset)[partition]
            offsets[partition] = offset
    return Position(offsets, base.topic_ids)


def read_range(
    client: RawClient,
    wanted: Range,
    config: RawConfig,
    on_hole: Callable[[Range], None] | None = None,
    topic_id: str | None = None,
) -> Iterator[Fetched]:
    """Yield one range, fetch by fetch; the first batch may begin before it and the last may end after it.

    A client of committed records gets none of aborted transactions.  Their offsets are no holes, nor are markers.

    Args:
        client: to ask.
        wanted: the range.
        config: the client's own, for its waits.
        on_hole: told of offsets that retention deleted since the range was planned; None refuses them.
        topic_id: of the topic that the range was planned for; whoever takes all of the range in knows at its end that
            no other of the same name came in between.

    Raises:
        PositionError: the topic was deleted and made again.
        DataLoss: retention was faster and *on_hole* is None, or the partition ends before the range does.
        UndecidedRecords: a transaction stays open before the end of the range.
    """
    partition, position, end = wanted
    # A first batch larger than the fetch's limit still comes whole, so every fetch that is not empty advances.
    empty_fetches = 0
    while position < end:
        try:
            fetched = client.fetch({partition: position})[partition]
        except OffsetOutOfRange:
            position = _behind_hole(client, wanted, position, on_hole)
            continue
        batches = whole_batches(fetched.records)
        if not batches:
            empty_fetches += 1
            _refuse_to_wait(fetched, wanted, position, empty_fetches * config.max_wait_ms >= config.retry_ms)
            continue
        empty_fetches = 0
        if len(batches) > 1 and not _is_sound(fetched.records, batches[-1][0]):
            # Its header may lie about where it ends.  The next fetch begins with it, and what follows it tells.
            batches = batches[:-1]
        if fetched.aborted:
            batches = _before_damage(fetched.records, batches)
        yield Fetched(fetched.records, without_aborted(batches, fetched.aborted), position)
        last = min(batches[-1][1].last_offset, max(fetched.high_watermark, position + 1) - 1)
        position = max(last, position) + 1
    if topic_id is not None:
        now = str(client.topics([partition.topic])[partition.topic].topic_id)
        if now != topic_id:
            raise made_again(partition.topic, topic_id, now)


def _before_damage(view: memoryview, batches: list[tuple[int, BatchHeader]]) -> list[tuple[int, BatchHeader]]:
    """Return the batches before the first damaged one; where that is the first, return it alone.

    A damaged batch may be the marker of an aborted transaction.  Without it, the same producer's next transaction would
    be taken for the aborted one.  The answer of a fetch that begins behind it names only transactions that end there.
    """
    for number, (at, header) in enumerate(batches):
        if not _is_sound(view, at):
            if number:
                return batches[:number]
            if len(batches) > 1:
                # Its own header may lie about where it ends.
                header = replace(header, last_offset_delta=batches[1][1].base_offset - 1 - header.base_offset)
            return [(at, header)]
    return batches


def _is_sound(view: memoryview, at: int) -> bool:
    """Return whether a batch's bytes, its last offset among them, are those that its CRC was made of."""
    try:
        records.check_stored_batch(view, at)
    except CorruptRecords:
        return False
    return True


def _behind_hole(client: RawClient, wanted: Range, position: Offset, on_hole: Callable[[Range], None] | None) -> Offset:
    partition = wanted.partition
    log_start = client.list_offsets([partition], EARLIEST_TIMESTAMP)[partition]
    if log_start <= position:
        raise _ended(wanted, position, "before")
    hole = Range(partition, position, min(log_start, wanted.end))
    if on_hole is None:
        raise lost([hole])
    on_hole(hole)
    return log_start


def _refuse_to_wait(fetched: RawBatches, wanted: Range, position: Offset, is_late: bool) -> None:
    if len(fetched.records):
        raise CorruptRecords(f"{wanted.partition} offset {position}: a fetch ends inside its first batch")
    if is_late and 0 <= fetched.last_stable_offset <= position < fetched.high_watermark:
        raise UndecidedRecords(
            f"{wanted.partition} offset {position}: a transaction is open since offset {fetched.last_stable_offset}, "
            f"and the end that was asked for, {wanted.end}, lies behind it; ask for an end before it, try again once "
            "the transaction has ended, or read uncommitted records"
        )
    if is_late:
        # A new leader may know less for a moment, never for as long as a client retries.
        raise _ended(wanted, position, f"at {fetched.high_watermark}, before")


def _ended(wanted: Range, position: Offset, where: str) -> DataLoss:
    return DataLoss(
        f"{wanted.partition} ends {where} {wanted.end} where it ended when this was planned: "
        f"offsets {position} to {wanted.end - 1} are gone"
    )


def decoded(
    fetched: Fetched, end: Offset, *, with_headers: bool, header_errors: str = "strict"
) -> Iterator[pa.RecordBatch | DeadLetter]:
    """Yield the records of one fetch before *end*, and the batches that do not decode, in their order."""
    view, batches, position = fetched
    try:
        for rows in decode(
            view, batches, start=position, end=end, with_headers=with_headers, header_errors=header_errors
        ):
            yield rows
            position = rows["offset"][-1].as_py() + 1
    except CorruptRecords:
        # One of many batches is bad; which one shows when each is decoded alone.
        for number, (at, header) in enumerate(batches):
            if header.base_offset >= end or (header.last_offset < position and _is_sound(view, at)):
                continue
            try:
                yield from list(
                    decode(
                        view,
                        [(at, header)],
                        start=position,
                        end=end,
                        with_headers=with_headers,
                        header_errors=header_errors,
                    )
                )
            except CorruptRecords as error:
                # A damaged header may say any last offset; where another batch follows, that one says where it ended.
                last = batches[number + 1][1].base_offset - 1 if number + 1 < len(batches) else header.last_offset
                first = max(header.base_offset, position)
                batch = bytes(view[at : at + header.size_bytes])
                yield DeadLetter(first, max(first, min(last, end - 1)), str(error), batch)

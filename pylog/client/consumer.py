"""Reads records by assignment: no group, no commit, every caller gets every record."""

import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, Message
from confluent_kafka import Consumer as _Consumer
from confluent_kafka import TopicPartition as _TopicPartition

from pylog.client.admin.cluster import Admin, OffsetRange
from pylog.client.connection import Connection, as_connection, error_of, translate
from pylog.errors import PylogError, Unreachable
from pylog.model import IsolationLevel, Offset, OnProgress, TopicPartition, nobody

BATCH_MESSAGES = 500
"""Messages taken at a time.  More are not faster: their objects then leave the processor's caches before they are
used (505 thousand messages a second with 500, 334 with 2,000, 200 with 10,000)."""

QUEUE_BACKOFF_MS = 10
"""How long librdkafka fetches nothing once its queue was full.

Its own choice is a second, in which a reader of a million messages a second finds the queue empty.
"""

BY_ASSIGNMENT: Mapping[str, object] = {
    # librdkafka wants a name even where no group is ever joined and nothing committed.
    "group__id": "pylog-by-assignment",
    "enable__auto__commit": False,
    "enable__auto__offset__store": False,
    "isolation__level": IsolationLevel.READ_COMMITTED.value,
    # So that we hear of it and can tell how much is missing.
    "auto__offset__reset": "error",
    "fetch__queue__backoff__ms": QUEUE_BACKOFF_MS,
}
"""What a librdkafka consumer is told that only reads what it is assigned, with ``__`` for ``.``."""

_POLL_S = 0.2


def take(consumer: _Consumer, timeout_s: float, max_count: int = BATCH_MESSAGES) -> list[Message]:
    """Return what *consumer* has, waiting for the first message only: `consume` waits until it is full or out of time.

    Raises:
        KafkaException: as `consume` does.
    """
    batch = consumer.consume(min(max_count, BATCH_MESSAGES), 0)
    if not batch and (first := consumer.poll(timeout_s)) is not None:
        batch = [first]
    return batch


@dataclass(slots=True)
class ConsumedRecord:
    """One record and where it came from; `timestamp_ms` is -1 if it has none."""

    topic: str
    partition: int
    offset: Offset
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Consumer:
    """Reads the partitions it is told to, from the offsets it is told.

    Of transactions it gets what was committed, and waits before the first open one, unless the property
    ``isolation.level`` is ``read_uncommitted``.

    Args:
        cluster: a `Connection`, or just ``host:port``.
        check_crcs: whether every batch is checked against its CRC.

    Attributes:
        at_end: partitions whose end was reached, with that end; a later record takes its partition out again.  The
            last offsets before it may hold no record, and it may be the beginning of an open transaction.
    """

    # librdkafka looks for the coordinator of a group whether it is used or not. Who reads by assignment need not have
    # any right to one.
    _passed_over: Collection[int] = (KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED)

    def __init__(self, cluster: Connection | str, *, check_crcs: bool = True, **properties: object) -> None:
        self._cluster = as_connection(cluster)
        self.at_end: dict[TopicPartition, Offset] = {}
        self._positions: dict[TopicPartition, Offset] = {}
        # Errors that came together with records: librdkafka would not hand the records out again.
        self._failures: deque[PylogError] = deque()
        own: dict[str, object] = dict(BY_ASSIGNMENT) | {
            "enable__partition__eof": True,
            "check__crcs": check_crcs,
            "fetch__wait__max__ms": 100,
        }
        try:
            self._consumer = _Consumer(self._cluster.librdkafka(**(own | properties)))
        except KafkaException as exception:
            raise translate(error_of(exception), self._cluster) from exception

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def assign(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Read these partitions from these offsets from now on, and no others."""
        self.at_end.clear()
        self._failures.clear()
        self._positions = dict(positions)
        self._consumer.assign([_TopicPartition(p.topic, p.partition, offset) for p, offset in positions.items()])

    def assign_topic(self, topic: str, offset: Offset = OFFSET_BEGINNING) -> None:
        """Read all partitions of *topic* from now on, from the beginning unless *offset* says otherwise."""
        partitions = Admin(self._cluster).topic(topic).partitions
        self.assign({TopicPartition(topic, p.partition): offset for p in partitions})

    def pause(self, partition: TopicPartition) -> None:
        """Fetch no more of this partition; records already fetched still come."""
        self._consumer.pause([_TopicPartition(partition.topic, partition.partition)])

    def read(self, timeout_s: float, max_count: int = BATCH_MESSAGES) -> list[ConsumedRecord]:
        """Return what has arrived, waiting at most *timeout_s* for the first record.

        An error that came together with records is raised by the next call: whoever reads on after it misses none.

        Raises:
            ApiError: the cluster refused, OFFSET_OUT_OF_RANGE among others.
            Unreachable: no broker answers.
        """
        if self._failures:
            raise self._failures.popleft()
        try:
            messages = take(self._consumer, timeout_s, max_count)
        except KafkaException as exception:
            raise translate(error_of(exception), self._cluster) from exception
        records = [record for message in messages if (record := self._record(message)) is not None]
        if self._failures and not records:
            raise self._failures.popleft()
        return records

    def records(self) -> Iterator[ConsumedRecord]:
        """Yield records for ever; waits at the end of the partitions."""
        while True:
            yield from self.read(_POLL_S)

    def records_to_end(self, on_progress: OnProgress = nobody) -> Iterator[ConsumedRecord]:
        """Yield records up to the ends that the assigned partitions have now, or to the first open transaction.

        Args:
            on_progress: told how many records the caller is done with, and how many offsets there were.

        Raises:
            Unreachable: nothing came for the connection's time-out although the end is not reached.
        """
        left = self._open_ranges()
        ends = {partition: range_.end for partition, range_ in left.items()}
        done, total = 0, sum(range_.end - range_.start for range_ in left.values())
        deadline = self._deadline()
        while ends:
            for record in self.read(_POLL_S):
                deadline = self._deadline()
                partition = TopicPartition(record.topic, record.partition)
                end = ends.get(partition, 0)
                if record.offset < end:
                    yield record
                    done += 1
                if record.offset >= end - 1 and ends.pop(partition, None) is not None:
                    self.pause(partition)
            on_progress(done, total)
            # The last offsets of a partition may hold no record: compaction, transaction markers.
            for partition in self.at_end.keys() & ends.keys():
                del ends[partition]
            if ends and time.monotonic() > deadline:
                raise Unreachable(f"{self._cluster.bootstrap}: no record of {min(ends)} came in time")

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()

    def _open_ranges(self) -> dict[TopicPartition, OffsetRange]:
        """Return what is left of every assigned partition that is not read from its end on."""
        found = Admin(self._cluster).offsets(list(self._positions))
        positions = {p: found[p].end if offset == OFFSET_END else offset for p, offset in self._positions.items()}
        left = {p: OffsetRange(max(positions[p], r.start), r.end) for p, r in found.items()}
        return {p: r for p, r in left.items() if r.start < r.end}

    def _deadline(self) -> float:
        return time.monotonic() + self._cluster.timeout_s

    def _record(self, message: Message) -> ConsumedRecord | None:
        topic, partition, offset = message.topic() or "", int(message.partition() or 0), int(message.offset() or 0)
        error = message.error()
        if error is not None:
            if error.code() not in self._passed_over:
                self._failures.append(translate(error, self._cluster))
            elif error.code() == KafkaError._PARTITION_EOF:
                self.at_end[TopicPartition(topic, partition)] = offset
            return None
        if self.at_end:
            self.at_end.pop(TopicPartition(topic, partition), None)
        headers: Any = message.headers() or []  # the stub also allows what only `produce` takes
        return ConsumedRecord(topic, partition, offset, message.timestamp()[1], message.key(), message.value(), headers)


# Who commits with one of these is no longer the owner: the next owner reads those records again.
_NOT_OWNER = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._NO_OFFSET,
        KafkaError._ASSIGNMENT_LOST,
    }
)


class GroupConsumer(Consumer):
    """Reads as one member of a group: at least once, because it commits what `read` returned only when told.

    Asking `read` again says that everything returned before is done with; a rebalance commits that much by itself.

    Args:
        cluster: a `Connection`, or just ``host:port``.
        group_id: the group.
        topics: what it reads.
        start: ``earliest`` or ``latest``: where the group begins that has committed nothing.
    """

    _passed_over = (KafkaError._PARTITION_EOF,)

    def __init__(
        self,
        cluster: Connection | str,
        group_id: str,
        topics: Sequence[str],
        *,
        start: str = "earliest",
        **properties: object,
    ) -> None:
        super().__init__(cluster, check_crcs=True, group__id=group_id, auto__offset__reset=start, **properties)
        self._next: dict[TopicPartition, Offset] = {}
        self._consumer.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    @property
    def is_at_end(self) -> bool:
        """Whether it owns partitions and has seen the end of every one."""
        return bool(self._positions) and self._positions.keys() <= self.at_end.keys()

    def read(self, timeout_s: float, max_count: int = BATCH_MESSAGES) -> list[ConsumedRecord]:
        """Return what has arrived, as `Consumer.read` does."""
        records = super().read(timeout_s, max_count)
        for record in records:
            self._next[TopicPartition(record.topic, record.partition)] = record.offset + 1
        return records

    def commit(self) -> None:
        """Commit everything that `read` returned, and wait until that is written down."""
        offsets = [_TopicPartition(one.topic, one.partition, offset) for one, offset in self._next.items()]
        self._next.clear()
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as exception:
            error = error_of(exception)
            if error.code() not in _NOT_OWNER:
                raise translate(error, self._cluster) from exception

    def _assigned(self, _: object, partitions: Sequence[_TopicPartition]) -> None:
        self.at_end.clear()
        self._positions = {TopicPartition(one.topic, one.partition): one.offset for one in partitions}

    def _revoked(self, _: object, partitions: Sequence[_TopicPartition]) -> None:
        self.commit()
        self._positions = {}

    def _lost(self, _: object, partitions: Sequence[_TopicPartition]) -> None:
        self._next.clear()
        self._positions = {}

"""librdkafka as the paper's consumer uses it: it fetches what it is told, and coordinates nothing."""

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TypeAlias

from confluent_kafka import Consumer as _Consumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Transported
from confluent_kafka import TopicPartition as _TopicPartition

from pylog.client.connection import Connection, error_of, translate
from pylog.client.consumer import BY_ASSIGNMENT, take
from pylog.errors import CorruptRecords, OffsetOutOfRange, PylogError
from pylog.model import Offset, TopicPartition

_logger = logging.getLogger(__name__)

# librdkafka says so and then goes on by itself; or the topic is gone, which ZooKeeper tells too.
_PASSING = frozenset(
    {
        KafkaError._PARTITION_EOF,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.REPLICA_NOT_AVAILABLE,
        # librdkafka looks for the group's coordinator, whom nobody needs here: the group is ZooKeeper's.
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)


class Start(StrEnum):
    """Where a partition begins that a group never read, or whose next message is no longer there."""

    SMALLEST = "smallest"
    """With the first message that is kept."""
    LARGEST = "largest"
    """With the next one that is written."""


OnGap: TypeAlias = Callable[[TopicPartition, Offset, Offset], None]
"""Hears that a partition goes on elsewhere than where it was: the offset that was wanted, and the one instead of it."""


def log_gap(partition: TopicPartition, wanted: Offset, found: Offset) -> None:
    """Log a gap."""
    _logger.warning("messages skipped partition=%s wanted_offset=%d next_offset=%d", partition, wanted, found)


class FetchByAssignment:
    """One librdkafka consumer without a group; see `pylog.client.paper.stream.Transport`.

    Args:
        cluster: where to fetch.
        start: where to go on when the wanted offset is gone; None raises `OffsetOutOfRange` to the application.
        on_gap: told when that happened.
        own: librdkafka's properties, with ``__`` for ``.``.
    """

    def __init__(self, cluster: Connection, start: Start | None, on_gap: OnGap = log_gap, **own: object) -> None:
        self._cluster = cluster
        self._start = start
        self._on_gap = on_gap
        try:
            self._consumer = _Consumer(cluster.librdkafka(**(dict(BY_ASSIGNMENT) | own)))
        except KafkaException as exception:
            raise translate(error_of(exception), cluster) from exception

    def assign(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Read these too."""
        self._consumer.incremental_assign(
            [_TopicPartition(one.topic, one.partition, offset) for one, offset in offsets.items()]
        )

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no longer."""
        self._consumer.incremental_unassign(_plain(partitions))

    def take(self, timeout_s: float) -> tuple[list[Transported], list[PylogError]]:
        """Return what arrived, waiting for the first message only."""
        try:
            batch = take(self._consumer, timeout_s)
        except KafkaException as exception:
            return [], [translate(error_of(exception), self._cluster)]
        if next(filter(Transported.error, batch), None) is None:
            return batch, []
        failures = [failure for one in batch if (failure := self._failure_of(one)) is not None]
        return [one for one in batch if one.error() is None], failures

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the positions behind what was taken."""
        rows = self._consumer.position(_plain(partitions))
        return {TopicPartition(row.topic, row.partition): row.offset for row in rows if row.offset >= 0}

    def close(self) -> None:
        """Stop."""
        self._consumer.close()

    def _failure_of(self, message: Transported) -> PylogError | None:
        error = message.error()
        if error is None or error.code() in _PASSING:
            return None
        partition = TopicPartition(message.topic() or "", int(message.partition() or 0))
        offset = int(message.offset() or 0)
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            return self._go_on_elsewhere(partition, offset)
        if error.code() in (KafkaError._BAD_MSG, KafkaError.INVALID_MSG):
            return CorruptRecords(f"{partition} at offset {offset}: {error.str()}")
        return translate(error, self._cluster)

    def _go_on_elsewhere(self, partition: TopicPartition, wanted: Offset) -> PylogError | None:
        if self._start is None:
            return OffsetOutOfRange(f"{partition}: offset {wanted} is not there; retention may have deleted it")
        at = _TopicPartition(partition.topic, partition.partition, wanted)
        try:
            low, high = self._consumer.get_watermark_offsets(at, self._cluster.timeout_s)
            at.offset = low if self._start is Start.SMALLEST else high
        except KafkaException as exception:  # asked for once more, the offset is refused once more
            _logger.warning("end not known partition=%s reason=%s", partition, error_of(exception).str())
        self._consumer.incremental_unassign([at])
        self._consumer.incremental_assign([at])
        if at.offset != wanted:
            self._on_gap(partition, wanted, at.offset)
        return None


def _plain(partitions: Iterable[TopicPartition]) -> list[_TopicPartition]:
    return [_TopicPartition(one.topic, one.partition) for one in partitions]

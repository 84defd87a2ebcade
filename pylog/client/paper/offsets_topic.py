"""Committed offsets of the paper's consumer in the brokers' offsets topic, where today's tools find them."""

from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer as _Consumer
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as _TopicPartition

from pylog.client.connection import Connection, error_of, translate
from pylog.client.paper.ownership import StartOffsets
from pylog.model import Offset, TopicPartition
from pylog.store.base import Operation


class OffsetsTopic:
    """Offsets that a broker keeps for the group; see `pylog.client.paper.ownership.Offsets`.

    The brokers take commits from somebody outside any group while the group has no members of its own, and have no
    version to fence with.  Owners are checked right before each commit; a process that is stopped between the two and
    wakes up after another took over could still set an offset back.  Offsets in ZooKeeper have no such gap.
    """

    def __init__(self, cluster: Connection, group: str, start: StartOffsets) -> None:
        self._cluster = cluster
        self._start = start
        self._consumer = _Consumer(cluster.librdkafka(group__id=group, enable__auto__commit=False))

    def claiming(self, partitions: Iterable[TopicPartition]) -> list[Operation]:
        """Return nothing; see `Offsets`."""
        return []

    def claimed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return where each goes on; those that are new are committed where they start."""
        wanted = list(partitions)
        known = self._committed(wanted)
        new = [partition for partition in wanted if partition not in known]
        first = dict(self._start(new)) if new else {}
        self.committed(first)
        return known | first

    def committing(self, offsets: Mapping[TopicPartition, Offset]) -> list[Operation]:
        """Return nothing; see `Offsets`."""
        return []

    def committed(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit; see `Offsets`.

        Raises:
            ApiError: the coordinator refuses, UNKNOWN_MEMBER_ID for instance if the group has members.
            Unreachable: it does not answer.
        """
        if not offsets:
            return
        try:
            rows = self._consumer.commit(
                offsets=[_TopicPartition(one.topic, one.partition, offset) for one, offset in offsets.items()],
                asynchronous=False,
            )
        except KafkaException as exception:
            raise translate(error_of(exception), self._cluster) from exception
        for row in rows:
            if row.error is not None:
                raise translate(row.error, self._cluster)

    def reread(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return what is committed; see `Offsets`."""
        return self._committed(list(partitions))

    def close(self) -> None:
        """Let the connection go."""
        self._consumer.close()

    def _committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Offset]:
        try:
            rows = self._consumer.committed(
                [_TopicPartition(one.topic, one.partition) for one in partitions], self._cluster.timeout_s
            )
        except KafkaException as exception:
            raise translate(error_of(exception), self._cluster) from exception
        return {TopicPartition(row.topic, row.partition): row.offset for row in rows if row.offset >= 0}

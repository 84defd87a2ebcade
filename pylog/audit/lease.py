"""Which of several counters of one tier counts: the member of a group that owns the one partition of `_audit`.

Whoever counts although another does is found out by its reports (`pylog.audit.ledger`); the lease saves the work, and
lets a second counter take over from one whose host is gone.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer as _Consumer
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as _TopicPartition

from pylog.audit.counting import AUDIT_TOPIC
from pylog.client.connection import Connection, error_of, translate

SESSION_MS = 6_000
"""How long a counter that was killed keeps the lease: the least that a broker allows unless told otherwise."""


class Lease:
    """Membership in a group; whoever has the partition keeps it when others come and go.

    Args:
        cluster: whose tier is counted.
        group: names the lease.

    Attributes:
        is_held: whether this member counts.
    """

    def __init__(self, cluster: Connection, group: str) -> None:
        self.is_held = False
        self._cluster = cluster
        try:
            self._member = _Consumer(
                cluster.librdkafka(
                    group__id=group,
                    enable__auto__commit=False,
                    auto__offset__reset="latest",
                    partition__assignment__strategy="cooperative-sticky",
                    session__timeout__ms=SESSION_MS,
                    heartbeat__interval__ms=SESSION_MS // 4,
                    # One that reads for long without a poll is alive all the same: its reports say whether they count.
                    max__poll__interval__ms=600_000,
                )
            )
            self._member.subscribe([AUDIT_TOPIC], on_assign=self._gain, on_revoke=self._give, on_lost=self._give)
        except KafkaException as exception:
            raise translate(error_of(exception), cluster) from exception

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._member.close()

    def look(self, timeout_s: float = 0.0) -> bool:
        """Take the group's news, waiting at most so long for it; return whether this member counts."""
        self._member.poll(timeout_s)
        return self.is_held

    def _gain(self, member: _Consumer, partitions: Sequence[_TopicPartition]) -> None:
        if partitions:
            member.incremental_assign(list(partitions))
            # Its records are of no interest here.
            member.pause(list(partitions))
            self.is_held = True

    def _give(self, member: _Consumer, partitions: Sequence[_TopicPartition]) -> None:
        if partitions:
            self.is_held = False
            member.incremental_unassign(list(partitions))

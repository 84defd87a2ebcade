"""Consumer groups as an operator sees and changes them."""

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as _TopicPartition

from pylog.client.admin.cluster import Admin, OffsetRange
from pylog.client.connection import translate
from pylog.model import NodeAddress, Offset, TopicPartition

_OFFSET_MISSING = 0
"""librdkafka's offsets below this mean that there is none."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group and its state, by Kafka's names: Empty, PreparingRebalance, CompletingRebalance, Stable, Dead."""

    group_id: str
    state: str


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member and what it reads; `instance_id` is of a static member."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group; Dead and without a member if nobody ever used it."""

    group_id: str
    state: str
    assignor: str
    coordinator: NodeAddress | None
    members: tuple[MemberView, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group is in one partition.

    Attributes:
        committed: the next offset it reads; None if it committed none.
        held: what the partition holds; None while nobody leads it, or when it is gone.
    """

    committed: Offset | None
    held: OffsetRange | None

    @property
    def lag(self) -> int | None:
        """Records it has not read: from what it committed, or all that are kept if they begin later."""
        if self.committed is None or self.held is None:
            return None
        return max(0, self.held.end - max(self.committed, self.held.start))


class GroupAdmin(Admin):
    """Asks about groups and changes them; raises as `Admin` does."""

    def groups(self) -> list[GroupListing]:
        """Return the groups of all brokers, by name.

        Raises:
            PylogError: some broker did not tell its own.
        """
        with self._translated():
            found = self._client.list_consumer_groups(request_timeout=self._cluster.timeout_s).result(
                self._cluster.timeout_s + 1
            )
        for error in found.errors:
            raise translate(error, self._cluster)
        return sorted(
            (GroupListing(one.group_id, _state(one.state)) for one in found.valid), key=lambda one: one.group_id
        )

    def group(self, group_id: str) -> GroupView:
        """Return one group."""
        with self._translated():
            found = self._client.describe_consumer_groups([group_id], request_timeout=self._cluster.timeout_s)[
                group_id
            ].result(self._cluster.timeout_s + 1)
        at = found.coordinator
        coordinator = NodeAddress(at.id, str(at.host), at.port) if at is not None and at.id >= 0 else None
        members = tuple(
            MemberView(
                one.member_id,
                one.group_instance_id or None,
                one.client_id,
                one.host.removeprefix("/"),
                tuple(sorted(TopicPartition(p.topic, p.partition) for p in one.assignment.topic_partitions)),
            )
            for one in found.members
        )
        return GroupView(group_id, _state(found.state), found.partition_assignor or "", coordinator, members)

    def committed(self, group_id: str) -> dict[TopicPartition, Offset]:
        """Return every offset *group_id* has committed."""
        with self._translated():
            found = self._client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group_id)],
                request_timeout=self._cluster.timeout_s,
            )[group_id].result(self._cluster.timeout_s + 1)
        return {
            TopicPartition(one.topic, one.partition): one.offset
            for one in found.topic_partitions
            if one.offset >= _OFFSET_MISSING
        }

    def progress(self, group: GroupView) -> dict[TopicPartition, Progress]:
        """Return how far *group* is in every partition it committed or reads."""
        committed = self.committed(group.group_id)
        partitions = sorted(committed.keys() | {one for member in group.members for one in member.partitions})
        held = self.offsets(self.led(partitions))
        return {one: Progress(committed.get(one), held.get(one)) for one in partitions}

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Set offsets of a group that has no members.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, if it has.
        """
        wanted = [_TopicPartition(one.topic, one.partition, offset) for one, offset in offsets.items()]
        with self._translated():
            found = self._client.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group_id, wanted)],
                request_timeout=self._cluster.timeout_s,
            )[group_id].result(self._cluster.timeout_s + 1)
        for one in found.topic_partitions:
            if one.error is not None:
                raise translate(one.error, self._cluster)

    def delete_group(self, group_id: str) -> None:
        """Delete a group without members, and its offsets."""
        with self._translated():
            self._client.delete_consumer_groups([group_id], request_timeout=self._cluster.timeout_s)[group_id].result(
                self._cluster.timeout_s + 1
            )


def _state(state: object) -> str:
    """Return Kafka's name of librdkafka's constant: PREPARING_REBALANCING is PreparingRebalance."""
    name = getattr(state, "name", str(state))
    return "".join(word.capitalize() for word in name.replace("REBALANCING", "REBALANCE").split("_"))

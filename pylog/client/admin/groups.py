"""Consumer groups as an operator sees and changes them."""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pylog.client.admin.cluster import Admin, OffsetRange
from pylog.client.connection import Connection, translate
from pylog.group.subscription import assigned_partitions
from pylog.model import NodeAddress, Offset, TopicPartition

if TYPE_CHECKING:
    # At run time only where a coordinator is asked: it brings the protocol's messages.
    from pylog.client.admin.group_coordinator import GroupCoordinators

_MOST_IDLE = 4
"""Threads for which open connections to coordinators are kept."""


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

    def __init__(self, cluster: Connection | str) -> None:
        super().__init__(cluster)
        self._idle: list[GroupCoordinators] = []
        weakref.finalize(self, _close, self._idle)

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
        with self._coordinators() as coordinators:
            broker, found = coordinators.describe(group_id)
        members = tuple(
            MemberView(
                one.member_id,
                one.group_instance_id or None,
                one.client_id,
                one.client_host.removeprefix("/"),
                tuple(sorted(assigned_partitions(one.member_assignment) or ())),
            )
            for one in found.members
        )
        return GroupView(group_id, found.group_state, found.protocol_data, broker, members)

    def committed(self, group_id: str) -> dict[TopicPartition, Offset]:
        """Return every offset *group_id* has committed."""
        with self._coordinators() as coordinators:
            return coordinators.committed(group_id)

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
        with self._coordinators() as coordinators:
            coordinators.commit(group_id, offsets)

    def delete_group(self, group_id: str) -> None:
        """Delete a group without members, and its offsets."""
        with self._coordinators() as coordinators:
            coordinators.delete(group_id)

    @contextmanager
    def _coordinators(self) -> Iterator["GroupCoordinators"]:
        """Lend what asks coordinators, to one thread.

        librdkafka is not asked: it ends the whole process by an assertion when the connection breaks of a coordinator
        that an admin client asks (confluentinc/librdkafka, issue 4605).
        """
        from pylog.client.admin.group_coordinator import GroupCoordinators

        try:
            coordinators = self._idle.pop()
        except IndexError:
            coordinators = GroupCoordinators(self._cluster)
        try:
            yield coordinators
        except BaseException:
            coordinators.close()  # an answer may still be under way
            raise
        finally:
            # It keeps its connections: `pylog top` asks for a thousand groups at each look.
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(coordinators)
            else:
                coordinators.close()


def _close(idle: list["GroupCoordinators"]) -> None:
    for coordinators in idle:
        coordinators.close()


def _state(state: object) -> str:
    """Return Kafka's name of librdkafka's constant: PREPARING_REBALANCING is PreparingRebalance."""
    name = getattr(state, "name", str(state))
    return "".join(word.capitalize() for word in name.replace("REBALANCING", "REBALANCE").split("_"))

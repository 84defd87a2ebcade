"""Consumer groups of the simulated cluster: one that only commits, one whose members come, share, go and fall silent.

A member does what a consumer does, and what a consumer does that was away for too long: it goes on as if nothing had
happened, until it is told that others have its partitions.
"""

import asyncio
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pylog.errors import ErrorCode
from pylog.model import TopicPartition
from pylog.wire.api.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pylog.wire.api.group_offsets import OffsetCommitResponse, OffsetFetchResponse
from pylog.wire.api.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from tests import kafka_client
from tests.kafka_client import Membership
from tests.sim.clients import Client, Unanswered, Witness

READERS = "readers"
"""The group without members."""

WORKERS = "workers"
"""The group with members."""

SESSION_MS = 1_000
REBALANCE_MS = 1_500
REST_S = (0.05, 0.3)
SILENCE_S = (0.2, 2.5)
"""How long a member is away now and then; its session lasts a second."""


class Coordinator:
    """Where a client believes its group to be."""

    def __init__(self, client: Client, group_id: str) -> None:
        self._client = client
        self._group_id = group_id
        self._broker_id = -1

    async def find(self) -> int:
        """Return the broker, asking for it if need be.

        Raises:
            Unanswered: nobody knows.
        """
        if self._broker_id < 0:
            wanted = FindCoordinatorRequest(key=self._group_id, coordinator_keys=[self._group_id])
            client = self._client
            (found,) = (await client.call(client.some_broker(), wanted, FindCoordinatorResponse)).coordinators
            if found.error_code:
                raise Unanswered("no coordinator")
            self._broker_id = found.node_id
        return self._broker_id

    def forget(self) -> None:
        """Ask again next time."""
        self._broker_id = -1


async def commit(
    client: Client, witness: Witness, group_id: str, keys: list[TopicPartition], may_go_on: Callable[[], bool]
) -> None:
    """Commit growing offsets of a group without members, and ask for them, until told to stop and once more.

    Whenever it has to look for its coordinator it asks for all of them first, as a consumer does that begins.
    """
    offsets: defaultdict[TopicPartition, int] = defaultdict(int)
    coordinator = Coordinator(client, group_id)
    unknown: list[TopicPartition] = []
    is_committed = False
    while may_go_on() or not is_committed:
        is_committing = not unknown and client.world.random.random() < 0.7
        key = unknown.pop() if unknown else client.world.random.choice(keys)
        try:
            if is_committing:
                offsets[key] += 1
                error = await commit_one(client, witness, group_id, key, offsets[key], await coordinator.find())
            else:
                offset = await fetch_one(client, witness, group_id, key, await coordinator.find())
                error = ErrorCode.NONE if offset is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        except Unanswered:
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        if error is not ErrorCode.NONE:
            coordinator.forget()
            unknown = list(keys)
        is_committed = is_committing and error is ErrorCode.NONE
        await client.pause()


async def take_part(
    client: Client,
    witness: Witness,
    keys: list[TopicPartition],
    may_go_on: Callable[[], bool],
    instance_id: str | None = None,
) -> None:
    """Be a member again and again, until told to stop and once more a member that the coordinator knows."""
    member = Member(client, witness, keys, new_membership(instance_id))
    is_known = False
    while may_go_on() or not is_known:
        try:
            if member.membership.generation < 0:
                await member.join()
            is_known = await member.act()
        except Unanswered:
            member.coordinator.forget()
            is_known = False
            await client.pause()
    if member.membership.member_id:
        await member.leave()


def new_membership(instance_id: str | None = None) -> Membership:
    """Return a place in the group with members, that has yet to be asked for."""
    return Membership(WORKERS, "lot", SESSION_MS, REBALANCE_MS, instance_id=instance_id)


@dataclass(slots=True)
class Member:
    """One consumer of the group.

    Attributes:
        membership: its generation is -1 while it has to join.
        positions: offset up to which it has read, by partition it owns; None until it has asked.
        before: the generation that came before, and where it was then.
    """

    client: Client
    witness: Witness
    keys: list[TopicPartition]
    membership: Membership
    positions: dict[TopicPartition, int | None] = field(default_factory=dict)
    before: tuple[int, dict[TopicPartition, int | None]] = (-1, {})
    coordinator: Coordinator = field(init=False)

    def __post_init__(self) -> None:
        self.coordinator = Coordinator(self.client, WORKERS)

    async def join(self) -> None:
        """Take part in a generation and learn what is ours in it.

        Raises:
            Unanswered: not this time.
        """
        broker_id = await self.coordinator.find()
        membership = self.membership
        wanted = kafka_client.subscription(*sorted({key.topic for key in self.keys}))
        joined = await self.client.call(broker_id, membership.join(wanted), JoinGroupResponse)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            membership.member_id = joined.member_id
            await self.join()
            return
        self._refuse(ErrorCode(joined.error_code))
        membership.member_id = joined.member_id
        given = self._assign([one.member_id for one in joined.members])
        assignments = {member_id: _encode(numbers) for member_id, numbers in given.items()}
        request = membership.sync(joined.generation_id, assignments)
        synced = await self.client.call(broker_id, request, SyncGroupResponse)
        self._refuse(ErrorCode(synced.error_code))
        owned = [self.keys[number] for number in _decode(synced.assignment)]
        who = membership.instance_id or membership.member_id
        self.client.world.note(
            "assigned", self.client.name, membership.member_id, joined.generation_id, broker_id, owned
        )
        self.witness.assigned(WORKERS, joined.generation_id, who, owned)
        if membership.instance_id is not None:
            self.client.world.happened("static member joined")
        membership.generation, self.positions = joined.generation_id, dict.fromkeys(owned)

    def _assign(self, member_ids: list[str]) -> Mapping[str, list[int]]:
        """Return who shall own what, by lot: the same members share otherwise the next time."""
        given: dict[str, list[int]] = {one: [] for one in member_ids}
        for number in range(len(self.keys) if given else 0):
            given[self.client.world.random.choice(member_ids)].append(number)
        return given

    async def act(self) -> bool:
        """Do what a member does next; return whether the coordinator took it for a member of this generation."""
        chance = self.client.world.random
        await asyncio.sleep(chance.uniform(*REST_S))
        lot = chance.random()
        if lot < 0.03:
            await self.leave(is_said=lot < 0.015)
            return False
        if lot < 0.08:
            await asyncio.sleep(chance.uniform(*SILENCE_S))
        elif lot < 0.14:
            await self._commit_late()
        if self.positions and lot < 0.7:
            error = await self._advance(chance.choice(list(self.positions)))
        else:
            request = self.membership.heartbeat()
            answer = await self.client.call(await self.coordinator.find(), request, HeartbeatResponse)
            error = ErrorCode(answer.error_code)
        self._refuse(error)
        return True

    async def _advance(self, key: TopicPartition) -> ErrorCode:
        """Read on from where the group is, and commit."""
        broker_id = await self.coordinator.find()
        position = self.positions[key]
        if position is None:
            position = await fetch_one(self.client, self.witness, WORKERS, key, broker_id)
            if position is None:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.positions[key] = position = max(position, 0) + 1
        member = self.membership
        return await commit_one(
            self.client,
            self.witness,
            WORKERS,
            key,
            position,
            broker_id,
            member.member_id,
            member.generation,
            member.instance_id,
        )

    async def _commit_late(self) -> None:
        """Commit what was read in the generation before, as a thread does that nobody has told; it is to be refused."""
        generation, positions = self.before
        for key, position in positions.items():
            if position is not None:
                broker_id = await self.coordinator.find()
                await commit_one(
                    self.client, self.witness, WORKERS, key, position, broker_id, self.membership.member_id, generation
                )

    async def leave(self, *, is_said: bool = True) -> None:
        """Go, saying so or not, and come back as somebody else."""
        request = self.membership.leave()
        self.membership.member_id, self.membership.generation, self.positions = "", -1, {}
        try:
            if not is_said:
                return
            await self.client.call(await self.coordinator.find(), request, LeaveGroupResponse)
        except Unanswered:
            self.coordinator.forget()

    def _refuse(self, error: ErrorCode) -> None:
        """Draw the conclusions of an answer.

        Raises:
            Unanswered: unless it was NONE.
        """
        if error is ErrorCode.NONE:
            return
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.membership.member_id, self.membership.generation = "", -1
        elif error in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            if self.membership.generation >= 0:
                self.before = (self.membership.generation, self.positions)
            self.membership.generation = -1
        raise Unanswered(error.name)


async def delete_group(client: Client, witness: Witness, group_id: str) -> None:
    """Ask once to have a group and its offsets deleted; raise Unanswered."""
    broker_id = await Coordinator(client, group_id).find()
    witness.deleting(group_id)
    answer = await client.call(broker_id, DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse)
    error = ErrorCode(answer.results[0].error_code)
    witness.deleted(group_id, error)
    client.world.note("delete_group", group_id, broker_id, error.name)
    if error is ErrorCode.NONE:
        client.world.happened("group deleted")


def _encode(numbers: list[int]) -> bytes:
    return struct.pack(f">{len(numbers)}H", *numbers)


def _decode(assignment: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(assignment) // 2}H", assignment)


async def commit_one(
    client: Client,
    witness: Witness,
    group_id: str,
    key: TopicPartition,
    offset: int,
    coordinator: int,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
) -> ErrorCode:
    """Ask once to have an offset committed; raise Unanswered."""
    offsets = {key.partition: offset}
    request = kafka_client.commit(group_id, key.topic, offsets, member_id, generation, instance_id)
    newest_generation = witness.newest_generation(group_id)
    witness.in_doubt(group_id, key, offset)
    incarnation, deletions = witness.known_incarnation(key.topic, coordinator), witness.deletions(group_id)
    answer = await client.call(coordinator, request, OffsetCommitResponse)
    error = ErrorCode(answer.topics[0].partitions[0].error_code)
    client.world.note("commit", client.name, key, coordinator, offset, generation, error.name)
    if error is ErrorCode.NONE:
        witness.committed(group_id, key, offset, incarnation, deletions, generation, newest_generation)
    return error


async def fetch_one(
    client: Client, witness: Witness, group_id: str, key: TopicPartition, coordinator: int
) -> int | None:
    """Return what the coordinator says is committed, -1 for nothing; None if it did not say."""
    request = kafka_client.committed(group_id, key.topic, [key.partition])
    least = witness.committed_offset(group_id, key)
    incarnation, deletions = witness.known_incarnation(key.topic, coordinator), witness.deletions(group_id)
    answer = (await client.call(coordinator, request, OffsetFetchResponse)).groups[0]
    part = answer.topics[0].partitions[0] if answer.topics else None
    if answer.error_code or part is None or part.error_code:
        return None
    client.world.note("committed", client.name, key, coordinator, part.committed_offset)
    witness.fetched_offset(group_id, key, coordinator, part.committed_offset, least, incarnation, deletions)
    return part.committed_offset

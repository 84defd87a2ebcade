"""A bare member of a group: one connection, requests by hand, no library that could hide a fault.

It works the way every consumer does: join, assign if it leads, sync, then read, process and commit until it is told to
join again.  What it does is written to a `Ledger`, which checks it at once.
"""

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field

from pylog.errors import ErrorCode
from pylog.wire.api.group_offsets import OffsetCommitResponse, OffsetFetchResponse
from pylog.wire.api.groups import HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse
from tests.kafka_client import Link, Membership, committed

TOPIC = "storm"
SESSION_MS = 1_000
REBALANCE_MS = 3_000
BEAT_S = 0.1


class Rejoin(Exception):
    """The coordinator wants the member to join again, maybe under a new id."""


@dataclass
class Ledger:
    """What all members did, checked as it happens.

    Attributes:
        owners: by generation, who was assigned each partition.
        processed: by partition, offsets somebody worked on.
        committed: by partition, generation and offset of the last commit that was accepted.
    """

    partitions: int
    owners: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    processed: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    committed: dict[int, tuple[int, int]] = field(default_factory=dict)
    generations: set[int] = field(default_factory=set)
    commits: int = 0

    def assigned(self, generation: int, member: str, partitions: list[int]) -> None:
        """A member was told what it owns."""
        self.generations.add(generation)
        for partition in partitions:
            owner = self.owners[generation].setdefault(partition, member)
            assert owner == member, f"generation {generation}: {partition} is of {owner} and of {member}"

    def starts_at(self, partition: int, offset: int) -> None:
        """A new owner asked where to go on: never before what was committed."""
        _, last = self.committed.get(partition, (0, 0))
        assert offset >= last, f"partition {partition} goes back from {last} to {offset}"

    def accepted(self, generation: int, member: str, partition: int, offset: int) -> None:
        """A commit was acknowledged."""
        assert self.owners[generation].get(partition) == member, f"{member} committed what it does not own"
        last_generation, last = self.committed.get(partition, (0, 0))
        assert generation >= last_generation, f"partition {partition}: {generation} after {last_generation}"
        assert offset >= last, f"partition {partition} goes back from {last} to {offset}"
        lost = set(range(offset)) - self.processed[partition]
        assert not lost, f"partition {partition}: {sorted(lost)[:5]} were committed and never processed"
        self.committed[partition] = (generation, offset)
        self.commits += 1


class RawMember:
    """One member; `run` lives until it is cancelled, and says nothing then, as a crash would."""

    def __init__(self, address: tuple[str, int], ledger: Ledger, seed: int) -> None:
        self._address = address
        self._link = Link(address)
        self._ledger = ledger
        self._random = random.Random(seed)
        self._membership = Membership(TOPIC, "chunks", SESSION_MS, REBALANCE_MS, protocol_type="storm")
        self._positions: dict[int, int] = {}

    async def run(self) -> None:
        """Join, work, join again; connect again when the broker goes away."""
        while True:
            try:
                await self._link.connect()
                while True:
                    try:
                        await self._join()
                        await self._work()
                    except Rejoin:
                        continue
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.05)
            finally:
                self._link.close()

    async def leave(self) -> None:
        """Tell the coordinator, on a connection of its own, as the other may be in use."""
        other = Link(self._address)
        try:
            await other.connect()
            await other.call(self._membership.leave(), LeaveGroupResponse)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the broker is away; the session ends by itself
        finally:
            other.close()

    async def _join(self) -> None:
        membership = self._membership
        joined = await self._link.call(membership.join(), JoinGroupResponse)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            membership.member_id = joined.member_id
            return await self._join()
        await self._check(joined.error_code)
        membership.member_id, membership.generation = joined.member_id, joined.generation_id
        assignments: dict[str, bytes] = {}
        if joined.leader == joined.member_id:
            members = [one.member_id for one in joined.members]
            assignments = {
                member: bytes(range(number, self._ledger.partitions, len(members)))
                for number, member in enumerate(members)
            }
        synced = await self._link.call(membership.sync(joined.generation_id, assignments), SyncGroupResponse)
        await self._check(synced.error_code)
        owned = list(synced.assignment)
        self._ledger.assigned(membership.generation, membership.member_id, owned)
        await self._find_positions(owned)
        return None

    async def _find_positions(self, owned: list[int]) -> None:
        found = await self._link.call(committed(TOPIC, TOPIC, owned), OffsetFetchResponse)
        await self._check(found.groups[0].error_code)
        self._positions = {}
        for topic in found.groups[0].topics:
            for row in topic.partitions:
                self._positions[row.partition_index] = max(row.committed_offset, 0)
                self._ledger.starts_at(row.partition_index, self._positions[row.partition_index])

    async def _work(self) -> None:
        while True:
            for partition, position in self._positions.items():
                count = self._random.randrange(3)
                self._ledger.processed[partition].update(range(position, position + count))
                self._positions[partition] += count
            await asyncio.sleep(self._random.random() * BEAT_S)  # here a crash is one between work and commit
            if self._positions:
                await self._commit()
            beat = await self._link.call(self._membership.heartbeat(), HeartbeatResponse)
            await self._check(beat.error_code)

    async def _commit(self) -> None:
        wanted = dict(self._positions)
        membership = self._membership
        answer = await self._link.call(membership.commit(TOPIC, wanted), OffsetCommitResponse)
        for row in answer.topics[0].partitions:
            await self._check(row.error_code)
            partition = row.partition_index
            self._ledger.accepted(membership.generation, membership.member_id, partition, wanted[partition])

    async def _check(self, code: int) -> None:
        if code == ErrorCode.NONE:
            return
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._membership.member_id = ""
        elif code in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        ):
            await asyncio.sleep(0.02)
        else:
            assert code == ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode(code)
        raise Rejoin

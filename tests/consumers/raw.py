"""A bare member of a group: one connection, requests by hand, no library that could hide a fault.

It works the way every consumer does: join, assign if it leads, sync, then read, process and commit until it is told to
join again.  What it does is written to a `Ledger`, which checks it at once.
"""

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeVar

from pylog.errors import ErrorCode
from pylog.wire.api.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from pylog.wire.api.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from pylog.wire.api.header import encode_response_header
from pylog.wire.api.message import Message, Request
from pylog.wire.api.table import ApiKey, is_flexible

TOPIC = "storm"
VERSIONS = {
    ApiKey.JOIN_GROUP: 7,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 4,
}
SESSION_MS = 1_000
REBALANCE_MS = 3_000
BEAT_S = 0.1

MessageT = TypeVar("MessageT", bound=Message)


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
        self._ledger = ledger
        self._random = random.Random(seed)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._member_id = ""
        self._generation = -1
        self._positions: dict[int, int] = {}

    async def run(self) -> None:
        """Join, work, join again; connect again when the broker goes away."""
        while True:
            try:
                await self.connect()
                while True:
                    try:
                        await self._join()
                        await self._work()
                    except Rejoin:
                        continue
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.05)
            finally:
                self.disconnect()

    async def leave(self) -> None:
        """Tell the coordinator, on a connection of its own, as the other may be in use."""
        other = RawMember(self._address, self._ledger, 0)
        try:
            await other.connect()
            await other.ask(
                LeaveGroupRequest(group_id=TOPIC, members=[MemberIdentity(member_id=self._member_id)]),
                LeaveGroupResponse,
            )
        except (OSError, asyncio.IncompleteReadError):
            pass  # the broker is away; the session ends by itself
        finally:
            other.disconnect()

    async def _join(self) -> None:
        joined = await self.ask(
            JoinGroupRequest(
                group_id=TOPIC,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self._member_id,
                protocol_type="storm",
                protocols=[JoinGroupRequestProtocol(name="chunks", metadata=b"")],
            ),
            JoinGroupResponse,
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return await self._join()
        await self._check(joined.error_code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            members = [one.member_id for one in joined.members]
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=member, assignment=bytes(range(number, self._ledger.partitions, len(members)))
                )
                for number, member in enumerate(members)
            ]
        synced = await self.ask(
            SyncGroupRequest(
                group_id=TOPIC,
                generation_id=self._generation,
                member_id=self._member_id,
                protocol_type="storm",
                protocol_name="chunks",
                assignments=assignments,
            ),
            SyncGroupResponse,
        )
        await self._check(synced.error_code)
        owned = list(synced.assignment)
        self._ledger.assigned(self._generation, self._member_id, owned)
        await self._find_positions(owned)
        return None

    async def _find_positions(self, owned: list[int]) -> None:
        found = await self.ask(
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=TOPIC, topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=owned)]
                    )
                ]
            ),
            OffsetFetchResponse,
        )
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
            beat = await self.ask(
                HeartbeatRequest(group_id=TOPIC, generation_id=self._generation, member_id=self._member_id),
                HeartbeatResponse,
            )
            await self._check(beat.error_code)

    async def _commit(self) -> None:
        wanted = dict(self._positions)
        answer = await self.ask(
            OffsetCommitRequest(
                group_id=TOPIC,
                generation_id_or_member_epoch=self._generation,
                member_id=self._member_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name=TOPIC,
                        partitions=[
                            OffsetCommitRequestPartition(partition_index=partition, committed_offset=position)
                            for partition, position in wanted.items()
                        ],
                    )
                ],
            ),
            OffsetCommitResponse,
        )
        for row in answer.topics[0].partitions:
            await self._check(row.error_code)
            self._ledger.accepted(self._generation, self._member_id, row.partition_index, wanted[row.partition_index])

    async def _check(self, code: int) -> None:
        if code == ErrorCode.NONE:
            return
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._member_id = "" if code == ErrorCode.UNKNOWN_MEMBER_ID else self._member_id
        elif code in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        ):
            await asyncio.sleep(0.02)
        else:
            assert code == ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode(code)
        raise Rejoin

    async def connect(self) -> None:
        """Open the connection."""
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    def disconnect(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()

    async def ask(self, request: Request, answer: type[MessageT]) -> MessageT:
        """Send *request* and return what comes back."""
        assert self._reader is not None
        assert self._writer is not None
        key = request.api_key
        version = VERSIONS[key]
        head = int(key).to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\5storm"
        frame = request.encode(version, head + (b"\0" if is_flexible(key, version) else b""))
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        body = memoryview(await self._reader.readexactly(size))
        return answer.decode(version, body[len(encode_response_header(0, int(key), version)) :])

"""A small Kafka client for tests and measurements: no retries, no thread, nothing that could hide a fault.

The core builds frames, parses answers and knows what a member of a group sends; it waits for nothing. `Link` is the
shell: one connection through asyncio, a real one or, on the simulator's loop, a simulated one. Both use pylog's codec.
Where that is what is tested, see `tests.interop.frames`, which is written without it.
"""

import asyncio
import itertools
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from pylog.wire.api.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pylog.wire.api.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from pylog.wire.api.header import encode_response_header
from pylog.wire.api.message import Message, Request
from pylog.wire.api.table import ApiKey, is_flexible

MAX_FRAME_BYTES = 1 << 24

VERSIONS: Mapping[ApiKey, int] = {
    ApiKey.JOIN_GROUP: 7,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 4,
}

MessageT = TypeVar("MessageT", bound=Message)


def payload(api_key: int, version: int, correlation_id: int, client_id: str, body: bytes) -> bytes:
    """Return a request without the size in front of it."""
    name = client_id.encode()
    tags = b"\0" if is_flexible(api_key, version) else b""  # none, in the header
    return struct.pack(f">hhih{len(name)}s", api_key, version, correlation_id, len(name), name) + tags + body


def answer_body(answer: bytes, api_key: int, version: int, correlation_id: int) -> memoryview:
    """Return the body of an answer that came without its size.

    Raises:
        EOFError: it answers something else.
    """
    header = encode_response_header(correlation_id, api_key, version)
    if not answer.startswith(header):
        raise EOFError(f"answer {answer[:4].hex()} where {correlation_id} was asked")
    return memoryview(answer)[len(header) :]


def subscription(*topics: str) -> bytes:
    """Return what a consumer says that it wants to read; see `pylog.group.subscription`."""
    names = b"".join(struct.pack(f">h{len(name)}s", len(name), name.encode()) for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names


@dataclass(slots=True)
class Membership:
    """What one member of a group knows of its place, and the requests that say so.

    Attributes:
        instance_id: of a static member, which keeps its place when it comes back as another process.
        member_id: as the coordinator named it, "" before.
        generation: in which it was told what it owns, -1 before.
    """

    group_id: str
    protocol: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str = "consumer"
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1

    def join(self, metadata: bytes = b"") -> JoinGroupRequest:
        """Return the request to take part in the next generation."""
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=metadata)],
        )

    def sync(self, generation: int, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
        """Return the request for what is ours in *generation*; its leader has *assignments* by member id."""
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )

    def heartbeat(self) -> HeartbeatRequest:
        """Return the request that keeps the session."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def leave(self) -> LeaveGroupRequest:
        """Return the request that ends it."""
        gone = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        return LeaveGroupRequest(group_id=self.group_id, members=[gone])

    def commit(self, topic: str, offsets: Mapping[int, int]) -> OffsetCommitRequest:
        """Return the request to commit *offsets* by partition."""
        return commit(self.group_id, topic, offsets, self.member_id, self.generation, self.instance_id)


def commit(
    group_id: str,
    topic: str,
    offsets: Mapping[int, int],
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
) -> OffsetCommitRequest:
    """Return the request to commit *offsets* by partition, of a group without members if nothing else is given."""
    parts = [
        OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        for partition, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=parts)],
    )


def committed(group_id: str, topic: str, partitions: list[int]) -> OffsetFetchRequest:
    """Return the request for the committed offsets of *partitions*."""
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])


class Link:
    """One connection to a broker; a request is answered before the next is sent.

    Every method that waits raises OSError or EOFError when the broker goes away.
    """

    def __init__(
        self, address: tuple[str, int], client_id: str = "test", versions: Mapping[ApiKey, int] = VERSIONS
    ) -> None:
        self._address = address
        self._client_id = client_id
        self._versions = versions
        self._correlation_ids = itertools.count(1)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        """Open the connection."""
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._writer is not None:
            self._writer.close()

    def send(self, api_key: int, version: int, body: bytes) -> int:
        """Send a request and return its correlation id."""
        assert self._writer is not None, "not connected"
        correlation_id = next(self._correlation_ids)
        request = payload(api_key, version, correlation_id, self._client_id, body)
        self._writer.write(len(request).to_bytes(4, "big") + request)
        return correlation_id

    async def ask(self, api_key: int, version: int, body: bytes) -> memoryview:
        """Send a request and return the body of its answer."""
        correlation_id = self.send(api_key, version, body)
        assert self._reader is not None
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        if not 4 <= size <= MAX_FRAME_BYTES:
            raise EOFError(f"frame of {size} bytes")
        return answer_body(await self._reader.readexactly(size), api_key, version, correlation_id)

    async def call(self, request: Request, response: type[MessageT]) -> MessageT:
        """Send a message and return the message that answers."""
        version = self._versions[request.api_key]
        return response.decode(version, await self.ask(request.api_key, version, request.encode(version)))

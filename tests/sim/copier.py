"""A transactional producer of either protocol over the simulated network, and what a log has for readers."""

import os
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pylog.errors import ErrorCode
from pylog.log.log import Log
from pylog.model import TopicPartition
from pylog.wire import records
from pylog.wire.api import ApiKey
from pylog.wire.api.coordinator import GROUP, TRANSACTION, FindCoordinatorRequest, FindCoordinatorResponse
from pylog.wire.api.message import Message, Request
from pylog.wire.api.producers import InitProducerIdRequest, InitProducerIdResponse
from pylog.wire.api.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TransactionTopic,
    TxnOffset,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetTopic,
)
from pylog.wire.markers import decode_marker
from pylog.wire.primitives import write_unsigned_varint
from pylog.wire.records import TRANSACTIONAL, Record, encode_batch
from tests.sim.clients import Client, Unanswered
from tests.sim.world import Violation

MessageT = TypeVar("MessageT", bound=Message)

TIMEOUT_MS = 120_000
PATIENCE_S = 60.0
VERSIONS = {
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 3,
}
AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors at which a producer tries again, as librdkafka does."""


EPOCH_EACH_VERSIONS = {ApiKey.END_TXN: 5, ApiKey.TXN_OFFSET_COMMIT: 5}
"""Of a client whose transactions have an epoch each (KIP-890)."""


class Copier:
    """A transactional producer, which does one thing after the other.

    With *has_epoch_each* it speaks the protocol of KIP-890: leaders add partitions to its transactions, and each of
    those has an epoch of its own.  It asks for each thing for *patience_s* at most.

    Attributes:
        client: what it asks with.
        transactional_id: its id.
        committed: the values of its committed transactions, in order.
        offset: what its group committed last.
    """

    def __init__(
        self,
        client: Client,
        transactional_id: str,
        key: TopicPartition,
        group_id: str,
        *,
        has_epoch_each: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.has_epoch_each = has_epoch_each
        self.committed: list[bytes] = []
        self.offset = -1
        self.client, self.transactional_id = client, transactional_id
        self._key, self._group_id, self._patience_s = key, group_id, patience_s
        self._producer = (-1, -1)
        self._sequences: Counter[int] = Counter()

    async def begin(self) -> None:
        """Get a producer id and an epoch."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS)

        async def ask() -> ErrorCode:
            answer = await self._call(
                await self.coordinator(self.transactional_id, TRANSACTION), request, InitProducerIdResponse
            )
            self._producer = answer.producer_id, answer.producer_epoch
            return ErrorCode(answer.error_code)

        await self._until_done("a producer id", ask)
        self._sequences.clear()

    async def run(self, number: int, *, is_commit: bool, between: Callable[[int], Awaitable[None]]) -> None:
        """Carry one transaction out; *between* is called before each of its steps with the step's number."""
        values = [f"transactional:{self.transactional_id}:{number}:{one}".encode() for one in range(3)]
        await between(0)
        await self._until_done("a partition added", lambda: self._add([self._key.partition]))
        await between(1)
        for value in values:
            await self._until_done(f"{value!r}", lambda value=value: self._produce(value, self._key.partition))
            self._sequences[self._key.partition] += 1
        await between(2)
        await self._until_done("a group added", self._add_group)
        await between(3)
        await self._until_done("an offset", lambda: self._commit_offset(number))
        await between(4)
        await self._until_done("the end", lambda: self.end_once(is_commit=is_commit))
        if is_commit:
            self.committed += values
            self.offset = number

    async def coordinator(self, name: str, kind: int) -> int:
        """Return the broker that coordinates an id or a group.

        Raises:
            Unanswered: nobody knows.
        """
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        answer = await self._call(self.client.some_broker(), request, FindCoordinatorResponse)
        (found,) = answer.coordinators
        if found.error_code:
            raise Unanswered("no coordinator")
        return found.node_id

    async def _add(self, partitions: list[int]) -> ErrorCode:
        if self.has_epoch_each:
            return ErrorCode.NONE  # their leaders do
        topics = [TransactionTopic(name=self._key.topic, partitions=partitions)]
        request = AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            topics=topics,
        )
        answer = await self._call(
            await self.coordinator(self.transactional_id, TRANSACTION), request, AddPartitionsToTxnResponse
        )
        return ErrorCode(answer.results_by_topic[0].results_by_partition[0].partition_error_code)

    async def _produce(self, value: bytes, partition: int) -> ErrorCode:
        leader = await self.client.find_leader(TopicPartition(self._key.topic, partition))
        batch = encode_batch(
            [Record(0, self.client.world.wall_ns() // 1_000_000, None, value)],
            attributes=TRANSACTIONAL,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._sequences[partition],
        )
        name, topic = self.transactional_id.encode(), self._key.topic.encode()
        if self.has_epoch_each:
            size = bytearray()
            write_unsigned_varint(size, len(batch) + 1)
            body = bytes([len(name) + 1]) + name + struct.pack(">hi", -1, 5_000) + bytes([2, len(topic) + 1]) + topic
            body += b"\2" + struct.pack(">i", partition) + size + batch + b"\0\0\0"
            answer = await self.client.ask(leader, ApiKey.PRODUCE, 12, body)
            (error,) = struct.unpack_from(">h", answer, 1 + 1 + len(topic) + 1 + 4)
            return ErrorCode.NONE if error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER else ErrorCode(error)
        body = struct.pack(">h", len(name)) + name + struct.pack(">hiih", -1, 5_000, 1, len(topic)) + topic
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        answer = await self.client.ask(leader, ApiKey.PRODUCE, 7, body)
        (error,) = struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)
        return ErrorCode.NONE if error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER else ErrorCode(error)

    async def _add_group(self) -> ErrorCode:
        if self.has_epoch_each:
            return ErrorCode.NONE  # its coordinator does
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            group_id=self._group_id,
        )
        answer = await self._call(
            await self.coordinator(self.transactional_id, TRANSACTION), request, AddOffsetsToTxnResponse
        )
        return ErrorCode(answer.error_code)

    async def _commit_offset(self, offset: int) -> ErrorCode:
        rows = [TxnOffset(partition_index=self._key.partition, committed_offset=offset)]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self._group_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            topics=[TxnOffsetTopic(name=self._key.topic, partitions=rows)],
        )
        answer = await self._call(await self.coordinator(self._group_id, GROUP), request, TxnOffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def end_once(self, *, is_commit: bool) -> ErrorCode:
        """Send the end of the transaction once, and return the answer.

        Raises:
            Unanswered: nobody answers.
        """
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=is_commit,
        )
        answer = await self._call(await self.coordinator(self.transactional_id, TRANSACTION), request, EndTxnResponse)
        if self.has_epoch_each and not answer.error_code:
            self._producer = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        return ErrorCode(answer.error_code)

    async def _call(self, broker_id: int, request: Request, response: type[MessageT]) -> MessageT:
        versions = VERSIONS | EPOCH_EACH_VERSIONS if self.has_epoch_each else VERSIONS
        version = versions[request.api_key]
        answer = await self.client.ask(broker_id, request.api_key, version, request.encode(version))
        return response.decode(version, answer)

    async def _until_done(self, what: str, ask: Callable[[], Awaitable[ErrorCode]]) -> None:
        """Ask until it is done.

        Raises:
            Violation: it is refused for good, or takes too long.
        """
        world, last = self.client.world, "nothing"
        deadline_s = world.now_s + self._patience_s
        while world.now_s < deadline_s:
            try:
                code = await ask()
            except Unanswered as fault:
                last = str(fault)
            else:
                last = code.name
                if code is ErrorCode.NONE:
                    return
                if code not in AGAIN:
                    raise Violation("a transaction goes on when brokers die", f"{what}: {last}")
            self.client.leaders.clear()
            await self.client.pause()
        raise Violation("progress", f"{what} not done after {self._patience_s:g} s: {last}")


def read_committed(log: Log) -> list[bytes] | None:
    """Return what a log has that was committed; None while it is not all decided."""
    if log.last_stable_offset != log.log_end_offset:
        return None
    found: list[bytes] = []
    pending: dict[int, list[bytes]] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 1 << 20, upper_bound_offset=log.log_end_offset, min_one_batch=True)
        assert part is not None
        data = memoryview(os.pread(part.fd, part.size_bytes, part.position))
        for position, header in records.iter_batches(data):
            if header.is_control:
                marker = decode_marker(data, header, position)
                values = pending.pop(header.producer_id, [])
                if marker is not None and marker.is_commit:
                    found += values
            elif header.is_transactional:
                values = [row.value or b"" for row in records.decode_records(data, header, position)]
                pending.setdefault(header.producer_id, []).extend(values)
            offset = header.last_offset + 1
    return found

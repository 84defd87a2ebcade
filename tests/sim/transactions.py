"""Stories of transactions: a producer that commits and aborts, with its group's offsets, while brokers die."""

import os
import struct
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pylog.errors import ErrorCode
from pylog.group.records import TOPIC as OFFSETS_TOPIC
from pylog.group.records import partition_for
from pylog.model import TopicPartition
from pylog.transaction.records import TOPIC as STATE_TOPIC
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
from pylog.wire.records import TRANSACTIONAL, Record, encode_batch
from tests.sim.clients import Client, Unanswered
from tests.sim.stage import KEY, TOPIC, Stage
from tests.sim.world import Violation

MessageT = TypeVar("MessageT", bound=Message)

ID, GROUP_ID = "copier", "copied"
TRANSACTIONS = 12
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


class Copier:
    """A transactional producer of the classic protocol, which does one thing after the other.

    Attributes:
        committed: the values of its committed transactions, in order.
        offset: what its group committed last.
    """

    def __init__(self, client: Client) -> None:
        self.committed: list[bytes] = []
        self.offset = -1
        self._client = client
        self._producer = (-1, -1)
        self._sequence = 0

    async def begin(self) -> None:
        """Get a producer id and an epoch."""
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS)

        async def ask() -> ErrorCode:
            answer = await self._call(await self.coordinator(ID, TRANSACTION), request, InitProducerIdResponse)
            self._producer = answer.producer_id, answer.producer_epoch
            return ErrorCode(answer.error_code)

        await self._until_done("a producer id", ask)

    async def run(self, number: int, *, is_commit: bool, between: Callable[[int], Awaitable[None]]) -> None:
        """Carry one transaction out; *between* is called before each of its steps with the step's number."""
        values = [f"transactional:{number}:{one}".encode() for one in range(3)]
        await between(0)
        await self._until_done("a partition added", self._add)
        await between(1)
        for value in values:
            await self._until_done(f"{value!r}", lambda value=value: self._produce(value))
            self._sequence += 1
        await between(2)
        await self._until_done("a group added", self._add_group)
        await between(3)
        await self._until_done("an offset", lambda: self._commit_offset(number))
        await between(4)
        await self._until_done("the end", lambda: self._end(is_commit=is_commit))
        if is_commit:
            self.committed += values
            self.offset = number

    async def coordinator(self, name: str, kind: int) -> int:
        """Return the broker that coordinates an id or a group.

        Raises:
            Unanswered: nobody knows.
        """
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        answer = await self._call(self._client.some_broker(), request, FindCoordinatorResponse)
        (found,) = answer.coordinators
        if found.error_code:
            raise Unanswered("no coordinator")
        return found.node_id

    async def _add(self) -> ErrorCode:
        topics = [TransactionTopic(name=KEY.topic, partitions=[KEY.partition])]
        request = AddPartitionsToTxnRequest(
            transactional_id=ID, producer_id=self._producer[0], producer_epoch=self._producer[1], topics=topics
        )
        answer = await self._call(await self.coordinator(ID, TRANSACTION), request, AddPartitionsToTxnResponse)
        return ErrorCode(answer.results_by_topic[0].results_by_partition[0].partition_error_code)

    async def _produce(self, value: bytes) -> ErrorCode:
        leader = await self._client.find_leader(KEY)
        batch = encode_batch(
            [Record(0, self._client.world.wall_ns() // 1_000_000, None, value)],
            attributes=TRANSACTIONAL,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._sequence,
        )
        name, topic = ID.encode(), KEY.topic.encode()
        body = struct.pack(">h", len(name)) + name + struct.pack(">hiih", -1, 5_000, 1, len(topic)) + topic
        body += struct.pack(">iii", 1, KEY.partition, len(batch)) + batch
        answer = await self._client.ask(leader, ApiKey.PRODUCE, 7, body)
        (error,) = struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)
        return ErrorCode.NONE if error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER else ErrorCode(error)

    async def _add_group(self) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=self._producer[0], producer_epoch=self._producer[1], group_id=GROUP_ID
        )
        answer = await self._call(await self.coordinator(ID, TRANSACTION), request, AddOffsetsToTxnResponse)
        return ErrorCode(answer.error_code)

    async def _commit_offset(self, offset: int) -> ErrorCode:
        rows = [TxnOffset(partition_index=KEY.partition, committed_offset=offset)]
        request = TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id=GROUP_ID,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            topics=[TxnOffsetTopic(name=TOPIC, partitions=rows)],
        )
        answer = await self._call(await self.coordinator(GROUP_ID, GROUP), request, TxnOffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def _end(self, *, is_commit: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=is_commit,
        )
        answer = await self._call(await self.coordinator(ID, TRANSACTION), request, EndTxnResponse)
        return ErrorCode(answer.error_code)

    async def _call(self, broker_id: int, request: Request, response: type[MessageT]) -> MessageT:
        version = VERSIONS[request.api_key]
        answer = await self._client.ask(broker_id, request.api_key, version, request.encode(version))
        return response.decode(version, answer)

    async def _until_done(self, what: str, ask: Callable[[], Awaitable[ErrorCode]]) -> None:
        """Ask until it is done.

        Raises:
            Violation: it is refused for good, or takes too long.
        """
        world, last = self._client.world, "nothing"
        deadline_s = world.now_s + PATIENCE_S
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
            self._client.leaders.clear()
            await self._client.pause()
        raise Violation("progress", f"{what} not done after {PATIENCE_S:g} s: {last}")


async def commit_while_coordinators_die(stage: Stage) -> None:
    """The coordinator of a transactional id, that of its group, and its partition's leader die, one at each step."""
    copier = Copier(stage.client)
    await copier.begin()
    victims: list[int] = []

    def leader_of(topic: str, name: str) -> int:
        if topic == TOPIC:
            return stage.leader()
        for key, state in stage.checks.states.items():
            if key.topic == topic and key.partition == _partition_of(stage, topic, name):
                return state.leader
        return -1

    async def end_of_life(step: int, number: int) -> None:
        if step != number % 5 or number in (0, TRANSACTIONS - 1):
            return
        for victim in victims:
            if not stage.is_registered(victim):
                stage.start(victim)
                await stage.until(lambda victim=victim: stage.is_registered(victim), "the last victim is back")
        await stage.until(stage.checks.is_settled, "all are in sync again")
        kind = number % 3
        topic, name = ((STATE_TOPIC, ID), (OFFSETS_TOPIC, GROUP_ID), (TOPIC, ""))[kind]
        victim = leader_of(topic, name)
        if victim > 0:
            stage.kill(victim)
            victims[:] = [victim]

    for number in range(TRANSACTIONS):
        await copier.run(
            number, is_commit=number % 4 != 3, between=lambda step, number=number: end_of_life(step, number)
        )
    for victim in victims:
        if not stage.is_registered(victim):
            stage.start(victim)
    await stage.until(stage.checks.is_settled, "all are in sync again")
    await stage.until(lambda: _read_committed(stage) is not None, "the last transaction is decided")
    if _read_committed(stage) != copier.committed:
        raise Violation("readers get what was committed", f"{_read_committed(stage)} for {copier.committed}")
    await _check_offset(stage, copier)


def _partition_of(stage: Stage, topic: str, name: str) -> int:
    return partition_for(name, len([key for key in stage.checks.states if key.topic == topic]))


def _read_committed(stage: Stage) -> list[bytes] | None:
    """Return what the log of the leader has that was committed; None while it is not all decided."""
    log = stage.log(stage.leader())
    if log is None or log.last_stable_offset != log.log_end_offset:
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


async def _check_offset(stage: Stage, copier: Copier) -> None:
    broker_id = await copier.coordinator(GROUP_ID, GROUP)
    broker = stage.host(broker_id).broker
    assert broker is not None
    await stage.until(lambda: broker.groups.is_loaded(_partition_of(stage, OFFSETS_TOPIC, GROUP_ID)), "it is loaded")
    held = broker.groups.offsets(GROUP_ID).get(TopicPartition(*KEY))
    if held is None or held.offset != copier.offset:
        raise Violation("offsets count with their transaction", f"{held} for {copier.offset}")

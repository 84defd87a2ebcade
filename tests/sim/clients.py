"""Clients of the simulated cluster, speaking the protocol's bytes: producers, consumers, an operator.

They do what a patient client does: ask again after every fault, at another broker, until told that something was done.
What they are told goes to the checks.
"""

import asyncio
import contextlib
import itertools
import struct
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar
from uuid import UUID

from pylog.errors import ErrorCode
from pylog.model import TopicPartition
from pylog.wire.api import ApiKey, Message
from pylog.wire.api.message import Request
from pylog.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pylog.wire.api.offsets import (
    EARLIEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pylog.wire.api.partitions import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    ReassignablePartition,
    ReassignableTopic,
)
from pylog.wire.api.producers import InitProducerIdRequest, InitProducerIdResponse
from pylog.wire.api.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from pylog.wire.records import Record, encode_batch
from tests.kafka_client import Link
from tests.sim.world import World

MessageT = TypeVar("MessageT", bound=Message)

TIMEOUT_S = 3.0
BACKOFF_S = (0.02, 0.2)
PRODUCE_TIMEOUT_MS = 1_500
FETCH_WAIT_MS = 200
KEYS = 6
"""Of records in a compacted topic."""

_VERSIONS: Mapping[ApiKey, int] = {
    ApiKey.METADATA: 12,
    ApiKey.CREATE_TOPICS: 4,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.OFFSET_COMMIT: 7,
    ApiKey.OFFSET_FETCH: 5,
    ApiKey.JOIN_GROUP: 5,
    ApiKey.SYNC_GROUP: 3,
    ApiKey.HEARTBEAT: 3,
    ApiKey.LEAVE_GROUP: 3,
    ApiKey.ELECT_LEADERS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 3,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.DELETE_GROUPS: 1,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 0,
}
"""The last ones without tagged fields, where there are any, and the first ones that name topics by id."""


class Witness(Protocol):
    """Who is told what clients were told."""

    def acknowledged(
        self,
        key: TopicPartition,
        broker_id: int,
        base_offset: int,
        values: list[bytes],
        *,
        is_first: bool,
        crc: int | None = None,
    ) -> None:
        """A leader said that these records, written with acks=all, are safe; at the first attempt it wrote them too.

        *crc* is the batch's.  Without it they belong to the present incarnation of the topic.
        """

    def refused_for_good(self, key: TopicPartition, broker_id: int, error: ErrorCode) -> bool:
        """An idempotent producer got an error that no retry helps against; return whether it should try again."""

    def served(self, key: TopicPartition, broker_id: int, high_watermark: int, records: bytes) -> None:
        """A consumer was given these batches."""

    def known_incarnation(self, topic: str, broker_id: int) -> UUID | None:
        """Return the id of a topic's present incarnation if a broker knows it."""

    def committed(
        self,
        group_id: str,
        key: TopicPartition,
        offset: int,
        incarnation: UUID | None,
        deletions: int | None,
        generation: int = -1,
        newest_generation: int = -1,
    ) -> None:
        """A group's offset was said to be safe.

        When it was sent, the coordinator knew *incarnation*, the group had been deleted so many times, and the newest
        generation handed out was that one.
        """

    def kept_value(self, key: TopicPartition, record_key: bytes, offset: int, value: bytes | None) -> None:
        """A record of a compacted topic was acknowledged with acks=all."""

    def deletions(self, group_id: str) -> int | None:
        """Return how many deletions of a group were asked for; None while one is not answered."""

    def deleting(self, group_id: str) -> None:
        """A group is to be deleted; unless that is answered, it may happen at any later time."""

    def deleted(self, group_id: str, error: ErrorCode) -> None:
        """The answer came, which may leave open what became of the deletion."""

    def may_trim(self, key: TopicPartition, before: int) -> None:
        """Records before an offset are to be deleted, before any for -1."""

    def trimmed(self, key: TopicPartition, before: int, start: int, incarnation: UUID | None) -> None:
        """That was answered: the log begins at *start*, or -1 for an error.

        When it was sent, the leader knew *incarnation*.
        """

    def in_doubt(self, group_id: str, key: TopicPartition, offset: int) -> None:
        """A commit was sent; it may be carried out at any later time."""

    def committed_offset(self, group_id: str, key: TopicPartition) -> int:
        """Return the offset that was said to be safe last."""

    def fetched_offset(
        self,
        group_id: str,
        key: TopicPartition,
        broker_id: int,
        offset: int,
        least: int,
        incarnation: UUID | None,
        deletions: int | None,
    ) -> None:
        """A group was told this offset, -1 is none.

        When it asked, *least* was safe, the coordinator knew *incarnation*, and so many deletions of it were asked for.
        """

    def newest_generation(self, group_id: str) -> int:
        """Return the newest generation in which a member was told what it owns."""

    def assigned(self, group_id: str, generation: int, member_id: str, keys: Iterable[TopicPartition]) -> None:
        """A member was told what it owns in a generation."""


class Unanswered(Exception):
    """No answer, or none that makes sense; nobody knows what became of the request."""


class Client:
    """Connections to all brokers from one host."""

    def __init__(self, world: World, name: str, brokers: Mapping[int, tuple[str, int]]) -> None:
        self.world = world
        self.name = name
        self.leaders: dict[TopicPartition, int] = {}
        self._brokers = brokers
        self._links: dict[int, Link] = {}

    async def ask(self, broker_id: int, api_key: int, version: int, body: bytes) -> memoryview:
        """Return the body of a broker's answer; raise Unanswered."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await (await self._link(broker_id)).ask(api_key, version, body)
        except (OSError, EOFError, TimeoutError) as error:
            self.forget(broker_id)
            raise Unanswered(f"{error!r}") from error

    def forget(self, broker_id: int) -> None:
        """Close the connection to a broker."""
        link = self._links.pop(broker_id, None)
        if link is not None:
            link.close()

    async def tell(self, broker_id: int, api_key: int, version: int, body: bytes) -> None:
        """Send a request that nobody answers; raise Unanswered."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                (await self._link(broker_id)).send(api_key, version, body)
        except (OSError, TimeoutError) as error:
            raise Unanswered(f"{error!r}") from error

    async def _link(self, broker_id: int) -> Link:
        if broker_id not in self._links:
            link = Link(self._brokers[broker_id], self.name)
            await link.connect()
            self._links[broker_id] = link
        return self._links[broker_id]

    async def call(self, broker_id: int, request: Request, response: type[MessageT]) -> MessageT:
        """Ask with a message and return the message that answers; raise Unanswered."""
        version = _VERSIONS[request.api_key]
        return response.decode(version, await self.ask(broker_id, request.api_key, version, request.encode(version)))

    def some_broker(self) -> int:
        """Return any broker's id."""
        return self.world.random.choice(sorted(self._brokers))

    async def pause(self) -> None:
        """Wait a little before trying again."""
        await asyncio.sleep(self.world.random.uniform(*BACKOFF_S))

    async def find_leader(self, key: TopicPartition) -> int:
        """Return who leads a partition, as some broker knows it."""
        found = self.leaders.get(key)
        if found is not None:
            return found
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=key.topic)], allow_auto_topic_creation=False)
        answer = await self.call(self.some_broker(), wanted, MetadataResponse)
        for topic in answer.topics:
            for part in topic.partitions:
                if part.leader_id in self._brokers:
                    self.leaders[TopicPartition(topic.name or "", part.partition_index)] = part.leader_id
        if key not in self.leaders:
            raise Unanswered(f"no leader of {key}")
        return self.leaders[key]

    async def topic_id(self, name: str) -> uuid.UUID:
        """Return the id that a topic has now, as some broker knows it."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        (found,) = (await self.call(self.some_broker(), wanted, MetadataResponse)).topics
        if found.error_code != ErrorCode.NONE:
            raise Unanswered(f"{name}: {ErrorCode(found.error_code).name}")
        return found.topic_id

    async def produce(self, broker_id: int, key: TopicPartition, batch: bytes, acks: int) -> tuple[ErrorCode, int]:
        """Return error and base offset."""
        topic = key.topic.encode()
        body = struct.pack(">hhiih", -1, acks, PRODUCE_TIMEOUT_MS, 1, len(topic)) + topic
        body += struct.pack(">iii", 1, key.partition, len(batch)) + batch
        if acks == 0:
            await self.tell(broker_id, ApiKey.PRODUCE, 7, body)
            self.forget(broker_id)  # on a stream of its own: the broker closes it to say that it failed
            return ErrorCode.NONE, -1
        answer = await self.ask(broker_id, ApiKey.PRODUCE, 7, body)
        error, offset = struct.unpack_from(">hq", answer, 4 + 2 + len(topic) + 4 + 4)
        return ErrorCode(error), offset

    async def fetch(
        self, broker_id: int, key: TopicPartition, offset: int, rack: str = ""
    ) -> tuple[ErrorCode, int, bytes, int]:
        """Return error, high watermark, record batches, and the broker to read from instead, -1 for this one."""
        topic = key.topic.encode()
        body = struct.pack(">iiiibiiih", -1, FETCH_WAIT_MS, 1, 1 << 20, 0, 0, -1, 1, len(topic)) + topic
        body += (
            struct.pack(">iiiqqi", 1, key.partition, -1, offset, -1, 1 << 16)
            + struct.pack(">ih", 0, len(rack))
            + rack.encode()
        )
        answer = await self.ask(broker_id, ApiKey.FETCH, 11, body)
        at = 10 + 4 + 2 + len(topic) + 4
        _, error, high_watermark, _, _, _, replica, size = struct.unpack_from(">ihqqqiii", answer, at)
        return ErrorCode(error), high_watermark, bytes(answer[at + 42 : at + 42 + max(size, 0)]), replica


async def create_topics(client: Client, topics: Mapping[str, tuple[int, int, Mapping[str, str]]]) -> None:
    """Create topics (partitions, replicas, configs), asking until all are there."""
    left = dict(topics)
    while left:
        wanted = [
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replicas,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name, (partitions, replicas, configs) in left.items()
        ]
        try:
            answer = await client.call(
                client.some_broker(), CreateTopicsRequest(topics=wanted, timeout_ms=2000), CreateTopicsResponse
            )
        except Unanswered:
            await client.pause()
            continue
        for row in answer.topics:
            if row.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                left.pop(row.name, None)
        await client.pause()


async def create_assigned(client: Client, broker_id: int, name: str, replicas: list[int]) -> None:
    """Create a topic of one partition on these brokers, the leader first, asking one broker until it is there."""
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=500)
    while True:
        with contextlib.suppress(Unanswered):
            (row,) = (await client.call(broker_id, request, CreateTopicsResponse)).topics
            client.world.note("create", name, ErrorCode(row.error_code).name)
            if row.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
        await client.pause()


async def delete_topic(client: Client, broker_id: int, name: str) -> None:
    """Delete a topic, asking one broker until it is gone."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=500)
    while True:
        with contextlib.suppress(Unanswered):
            (row,) = (await client.call(broker_id, request, DeleteTopicsResponse)).responses
            client.world.note("delete", name, ErrorCode(row.error_code).name)
            if row.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                return
        await client.pause()


async def produce(
    client: Client,
    witness: Witness,
    keys: list[TopicPartition],
    *,
    acks: int,
    is_idempotent: bool,
    may_go_on: Callable[[], bool],
    rest_s: tuple[float, float],
    age_ms: int = 0,
) -> None:
    """Write numbered records, *age_ms* old, until told to stop; each batch is sent until it is acknowledged."""
    world = client.world
    producer_id, epoch = (await init_producer(client)) if is_idempotent else (-1, -1)
    sequences: defaultdict[TopicPartition, int] = defaultdict(int)
    numbers = itertools.count()
    while may_go_on():
        key = world.random.choice(keys)
        values = [f"{client.name}:{key}:{next(numbers)}".encode() for _ in range(world.random.randint(1, 3))]
        timestamp = world.wall_ns() // 1_000_000 - age_ms
        rows = [Record(number, timestamp, None, value) for number, value in enumerate(values)]
        sequence = sequences[key] if is_idempotent else -1
        batch = encode_batch(rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        if await _send(client, witness, key, batch, values, acks, is_idempotent, may_go_on):
            sequences[key] += len(values)
        elif is_idempotent:
            return  # nobody knows what became of it, so nothing may follow it
        await asyncio.sleep(world.random.uniform(*rest_s))


async def _send(
    client: Client,
    witness: Witness,
    key: TopicPartition,
    batch: bytes,
    values: list[bytes],
    acks: int,
    is_idempotent: bool,
    may_go_on: Callable[[], bool],
) -> bool:
    attempts = 0
    while attempts == 0 or may_go_on() or is_idempotent:
        try:
            leader = await client.find_leader(key)
            attempts += 1
            error, offset = await client.produce(leader, key, batch, acks)
        except Unanswered:
            client.leaders.pop(key, None)
            await client.pause()
            continue
        client.world.note("produced", client.name, key, leader, error.name, offset)
        if error is ErrorCode.NONE:
            if acks == -1:
                (crc,) = struct.unpack_from(">I", batch, 17)
                is_first = attempts == 1 or not is_idempotent
                witness.acknowledged(key, leader, offset, values, is_first=is_first, crc=crc)
            return True
        is_fatal = error in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH)
        if is_fatal and not witness.refused_for_good(key, leader, error):
            return False
        client.leaders.pop(key, None)
        await client.pause()
    return False


async def keep(client: Client, witness: Witness, key: TopicPartition, may_go_on: Callable[[], bool]) -> None:
    """Write the newest values of a few keys, or delete keys, until told to stop; each is sent until acknowledged."""
    chance = client.world.random
    producer_id, epoch = await init_producer(client)
    number = 0
    while may_go_on():
        # Several keys in a batch: compaction then leaves a part of it.
        rows = []
        for delta in range(chance.choice((1, 1, 2, 4))):
            record_key = f"key-{chance.randrange(KEYS)}".encode()
            value = f"{client.name}:{number + delta}".encode() if chance.random() < 0.85 else None
            rows.append(Record(delta, client.world.wall_ns() // 1_000_000, record_key, value))
        batch = encode_batch(rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=number)
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        while error is not ErrorCode.NONE:
            try:
                leader = await client.find_leader(key)
                error, offset = await client.produce(leader, key, batch, -1)
            except Unanswered:
                error = ErrorCode.UNKNOWN_SERVER_ERROR
            if error is not ErrorCode.NONE:
                client.leaders.pop(key, None)
                await client.pause()
        number += len(rows)
        for row in rows:
            assert row.key is not None
            client.world.note("kept", key, leader, row.key, offset + row.offset, row.value)
            witness.kept_value(key, row.key, offset + row.offset, row.value)
        await asyncio.sleep(chance.uniform(0.01, 0.1))


async def init_producer(client: Client) -> tuple[int, int]:
    while True:
        try:
            answer = await client.call(client.some_broker(), InitProducerIdRequest(), InitProducerIdResponse)
            if answer.error_code == ErrorCode.NONE:
                return answer.producer_id, answer.producer_epoch
        except Unanswered:
            pass
        await client.pause()


async def consume(
    client: Client, witness: Witness, key: TopicPartition, may_go_on: Callable[[], bool], rack: str = ""
) -> None:
    """Read a partition from its start on, until told to stop; with a *rack* from the replica that the leader names."""
    offset, replica = 0, -1
    while may_go_on():
        try:
            leader = replica if replica >= 0 else await client.find_leader(key)
            error, high_watermark, records, preferred = await client.fetch(leader, key, offset, rack)
        except Unanswered:
            client.leaders.pop(key, None)
            replica = -1
            await client.pause()
            continue
        if replica >= 0 and records:
            client.world.happened("read from a follower")
        # What a follower refuses is asked of the leader again, and so is what the leader sends elsewhere for.
        replica = preferred if error is ErrorCode.NONE and (preferred >= 0 or replica < 0) else -1
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            offset = await _start(client, leader, key, offset)
        if error is not ErrorCode.NONE:
            client.leaders.pop(key, None)
            await client.pause()
            continue
        if records:
            client.world.note("served", client.name, key, leader, offset, high_watermark, len(records))
            witness.served(key, leader, high_watermark, records)
            offset = _next_offset(records, offset)
        await asyncio.sleep(0.01)


async def _start(client: Client, leader: int, key: TopicPartition, offset: int) -> int:
    """Return where a partition begins, as its leader says; *offset* if it does not."""
    part = ListOffsetsPartition(partition_index=key.partition, timestamp=EARLIEST_TIMESTAMP)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=key.topic, partitions=[part])])
    with contextlib.suppress(Unanswered):
        row = (await client.call(leader, request, ListOffsetsResponse)).topics[0].partitions[0]
        if row.error_code == ErrorCode.NONE:
            return row.offset
    return offset


def _next_offset(records: bytes, offset: int) -> int:
    position = 0
    while position + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, position)
        if position + 12 + length > len(records):
            break
        offset = max(offset, base + struct.unpack_from(">i", records, position + 23)[0] + 1)
        position += 12 + length
    return offset


async def delete_records(client: Client, witness: Witness, key: TopicPartition, before: int) -> ErrorCode:
    """Have a partition begin at an offset, at its high watermark for -1; raise Unanswered."""
    leader = await client.find_leader(key)
    part = DeleteRecordsPartition(partition_index=key.partition, offset=before)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=key.topic, partitions=[part])], timeout_ms=1000)
    witness.may_trim(key, before)
    incarnation = witness.known_incarnation(key.topic, leader)
    row = (await client.call(leader, request, DeleteRecordsResponse)).topics[0].partitions[0]
    error = ErrorCode(row.error_code)
    client.world.note("delete_records", key, leader, before, row.low_watermark, error.name)
    if error is ErrorCode.NONE or error is ErrorCode.OFFSET_OUT_OF_RANGE:
        witness.trimmed(key, before, row.low_watermark, incarnation)
    if error is not ErrorCode.NONE:
        client.leaders.pop(key, None)
    return error


async def move_once(client: Client, broker_id: int, key: TopicPartition, replicas: list[int]) -> None:
    """Ask one broker, once, to have a partition moved to others."""
    with contextlib.suppress(Unanswered):
        await move(client, broker_id, key, replicas)


async def move(client: Client, broker_id: int, key: TopicPartition, replicas: list[int] | None) -> bool:
    """Have a partition held by these brokers, or with None its move called off; return whether that is accepted."""
    part = ReassignablePartition(partition_index=key.partition, replicas=replicas)
    wish = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=key.topic, partitions=[part])], timeout_ms=500
    )
    answer = await client.call(broker_id, wish, AlterPartitionReassignmentsResponse)
    error = answer.error_code or answer.responses[0].partitions[0].error_code
    client.world.note("move", key, replicas, ErrorCode(error).name)
    return not error

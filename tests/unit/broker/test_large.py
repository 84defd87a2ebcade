"""A request of thousands of names is handled in parts: others have turns, answers are whole, nothing overtakes it."""

import asyncio
import dataclasses
import itertools
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.broker import apis, large, requests
from pylog.broker.broker import Broker
from pylog.broker.groups.coordinator import GroupCoordinator
from pylog.broker.large import PART_ELEMENTS, Steps, in_steps
from pylog.broker.places import Room, RoomHolder
from pylog.broker.quotas import Quotas
from pylog.config import standalone_config
from pylog.errors import ApiError, ErrorCode
from pylog.log.directory import LogDirectory
from pylog.security.principal import Session
from pylog.wire.api import SERVED, ApiKey
from pylog.wire.api.coordinator import GROUP, FindCoordinatorRequest, FindCoordinatorResponse
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
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from pylog.wire.api.message import Message, Request
from pylog.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pylog.wire.api.offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pylog.wire.api.partitions import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from pylog.wire.api.producers import DescribeProducersRequest, DescribeProducersResponse, DescribeProducersTopic
from pylog.wire.api.table import is_flexible

NAMES = [f"topic-{number:05}" for number in range(3 * PART_ELEMENTS + 7)]


def wanted(*counts: int) -> ListOffsetsRequest:
    """Ask for so many partitions of each of some topics."""
    return ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name=f"t{number}",
                partitions=[
                    ListOffsetsPartition(partition_index=one, timestamp=LATEST_TIMESTAMP) for one in range(count)
                ],
            )
            for number, count in enumerate(counts)
        ]
    )


@pytest.mark.parametrize("counts", [(1,), (3, 0, 4), (10,), (25, 1, 1), (4, 9, 30, 0), (9, 9)])
def test_the_parts_of_a_request_are_all_of_it_and_none_is_larger_than_it_may_be(counts: tuple[int, ...]) -> None:
    request = wanted(*counts)
    found: list[ListOffsetsTopic] = []
    for part in large.parts(request, 10):
        assert isinstance(part.request, ListOffsetsRequest)
        topics = part.request.topics
        assert sum(1 + len(topic.partitions) for topic in topics) <= 10
        if part.goes_on:
            assert topics[0].name == found[-1].name
            found[-1].partitions.extend(topics[0].partitions)
            topics = topics[1:]
        found += topics
    assert found == request.topics


class Cluster:
    """A standalone broker on the loop of the test."""

    def __init__(self, port: int, broker: Broker) -> None:
        self._port = port
        self.broker = broker

    @asynccontextmanager
    async def connected(self) -> "AsyncIterator[Client]":
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()


class Client:
    """Frames of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, request: Request, number: int = 1, version: int = -1) -> None:
        key = request.api_key
        if version < 0:
            version = SERVED[key].max_advertised
        head = struct.pack(">hhih", key, version, number, -1) + (b"\0" if is_flexible(key, version) else b"")
        frame = request.encode(version, head)
        self._writer.write(len(frame).to_bytes(4, "big") + frame)

    def send_bytes(self, key: ApiKey, body: bytes, version: int = -1) -> None:
        if version < 0:
            version = SERVED[key].max_advertised
        frame = struct.pack(">hhih", key, version, 1, -1) + (b"\0" if is_flexible(key, version) else b"") + body
        self._writer.write(len(frame).to_bytes(4, "big") + frame)

    async def receive_bytes(self) -> memoryview:
        """Return the body of an answer whose header has no tagged fields."""
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return memoryview(await self._reader.readexactly(size))[4:]

    async def receive(self, kind: type[Message], version: int = -1) -> Any:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        reply = await self._reader.readexactly(size)
        if version < 0:
            version = SERVED[kind.api_key].max_advertised
        return kind.decode(version, memoryview(reply)[5 if is_flexible(kind.api_key, version) else 4 :])

    async def is_closed(self) -> bool:
        return not await self._reader.read()


def run(directory: Path, story: Callable[[Cluster], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        config = standalone_config(directory, port=0, overrides=settings)
        broker = Broker(config, LogDirectory.open(directory, broker_id=0), asyncio.Event())
        await broker.start()
        try:
            address = broker.partitions.image.brokers[0].address(config.client_name)
            assert address is not None
            await story(Cluster(address.port, broker))
        finally:
            await broker.stop()

    asyncio.run(main())


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What handlers are given, in its order."""
    seen: list[Request] = []

    def noting(handler: Callable[..., Any]) -> Callable[..., Any]:
        def note(cluster: Any, request: Request, caller: Any) -> Any:
            seen.append(request)
            return handler(cluster, request, caller)

        return note

    noted = {key: (request, noting(handler)) for key, (request, handler) in apis.APIS.items()}
    monkeypatch.setattr("pylog.broker.requests.APIS", noted)
    return seen


def test_thousands_of_names_are_looked_up_in_parts_and_answered_in_their_order(
    tmp_path: Path, handled: list[Request]
) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            client.send(MetadataRequest(topics=list(map(asked, NAMES)), allow_auto_topic_creation=False))
            answer = await client.receive(MetadataResponse)
        assert [topic.name for topic in answer.topics] == NAMES
        assert {topic.error_code for topic in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert [len(one.topics) for one in handled] == [PART_ELEMENTS] * 3 + [7]  # type: ignore[attr-defined]

    run(tmp_path, story)


def asked(name: str) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=name)


def test_the_partitions_of_one_topic_are_answered_as_one_topic(tmp_path: Path, handled: list[Request]) -> None:
    count = 2 * PART_ELEMENTS

    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            client.send(wanted(count, 1))
            answer = await client.receive(ListOffsetsResponse)
        first, second = answer.topics
        assert [one.partition_index for one in first.partitions] == list(range(count))
        assert len(second.partitions) == 1
        assert len(handled) == 3

    run(tmp_path, story)


def test_another_client_is_answered_between_two_parts(tmp_path: Path, handled: list[Request]) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as one, cluster.connected() as other:
            names = [f"{name}-{number}" for name in NAMES for number in range(20)]
            one.send(MetadataRequest(topics=list(map(asked, names)), allow_auto_topic_creation=False))
            while not handled:
                await asyncio.sleep(0)
            other.send(MetadataRequest(topics=[asked("small")], allow_auto_topic_creation=False))
            await other.receive(MetadataResponse)
            assert [len(request.topics) for request in handled].count(1) == 1  # type: ignore[attr-defined]
            assert len(handled) < len(names) / PART_ELEMENTS, "the large request goes on"
            assert len((await one.receive(MetadataResponse)).topics) == len(names)

    run(tmp_path, story)


async def commit_first(client: Client) -> None:
    """Have the topic made, and that of the group."""
    client.send(MetadataRequest(topics=[asked("there")], allow_auto_topic_creation=True))
    while (await client.receive(MetadataResponse)).topics[0].error_code:
        client.send(MetadataRequest(topics=[asked("there")], allow_auto_topic_creation=True))
    # Who asks for the coordinator has its topic made.
    error = ErrorCode.NOT_COORDINATOR
    while error is not ErrorCode.NONE:
        client.send(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=["g"]))
        await client.receive(FindCoordinatorResponse)
        client.send(commit(0))
        error = ErrorCode((await client.receive(OffsetCommitResponse)).topics[0].partitions[0].error_code)


@pytest.mark.parametrize("count", [250, 254, 255, 256, 257, 285, 290, 300, 1000])
def test_a_commit_does_not_overtake_one_of_many_partitions_in_the_shortest_version(tmp_path: Path, count: int) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            await commit_first(client)
            many = commit(1)
            one = many.topics[0].partitions[0]
            many.topics[0].partitions += [dataclasses.replace(one, partition_index=at) for at in range(1, count)]
            client.send(many, version=2)
            client.send(commit(2), version=2)
            first = await client.receive(OffsetCommitResponse, version=2)
            assert len(first.topics[0].partitions) == count
            await client.receive(OffsetCommitResponse, version=2)
            client.send(fetch("there"))
            [group] = (await client.receive(OffsetFetchResponse)).groups
            assert group.topics[0].partitions[0].committed_offset == 2

    run(tmp_path, story, **{"auto.create.topics.enable": "true", "offsets.topic.num.partitions": "1"})


def test_a_request_behind_a_large_one_does_not_overtake_it(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            await commit_first(client)
            client.send(commit(1, *NAMES))
            client.send(commit(2))
            first = await client.receive(OffsetCommitResponse)
            assert [topic.partitions[0].error_code for topic in first.topics[:2]] == [
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            assert len(first.topics) == 1 + len(NAMES)
            assert len((await client.receive(OffsetCommitResponse)).topics) == 1
            client.send(fetch("there", *NAMES))
            [group] = (await client.receive(OffsetFetchResponse)).groups
            assert [topic.name for topic in group.topics] == ["there", *NAMES]
            assert group.topics[0].partitions[0].committed_offset == 2

    run(tmp_path, story, **{"auto.create.topics.enable": "true", "offsets.topic.num.partitions": "1"})


def commit(offset: int, *more: str) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name=name, partitions=[part]) for name in ("there", *more)]
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)


def fetch(*names: str) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in names]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])


def test_a_group_is_described_once_however_often_it_is_named(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            client.send(DescribeGroupsRequest(groups=["twice"] * 3000))
            answer = await client.receive(DescribeGroupsResponse)
            assert [row.group_id for row in answer.groups] == ["twice"]

    run(tmp_path, story)


def test_a_topic_is_described_once_however_often_it_is_named(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            client.send(MetadataRequest(topics=[asked("twice")] * 3000))
            answer = await client.receive(MetadataResponse)
            assert [row.name for row in answer.topics] == ["twice"]

    run(tmp_path, story)


def test_the_producers_of_a_partition_are_told_once_however_often_it_is_named(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            client.send(
                DescribeProducersRequest(topics=[DescribeProducersTopic(name="t", partition_indexes=[0, 1, 0])] * 3000)
            )
            answer = await client.receive(DescribeProducersResponse)
            [row] = answer.topics
            assert [part.partition_index for part in row.partitions] == [0, 1]

    run(tmp_path, story)


def test_all_offsets_of_a_group_are_told_once_however_often_it_is_named(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            await commit_first(client)
            client.send(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * 3000))
            [group] = (await client.receive(OffsetFetchResponse)).groups
            assert [topic.name for topic in group.topics] == ["there"]

    run(tmp_path, story, **{"auto.create.topics.enable": "true", "offsets.topic.num.partitions": "1"})


def test_records_of_thousands_of_partitions_are_deleted_with_turns_for_others(tmp_path: Path) -> None:
    topics = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
        for name in NAMES
    ]

    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            client.send(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
            answer = await client.receive(DeleteRecordsResponse)
            assert [topic.name for topic in answer.topics] == NAMES
            codes = {topic.partitions[0].error_code for topic in answer.topics}
            assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run(tmp_path, story)


def test_a_large_request_that_cannot_be_decoded_costs_its_client_the_connection(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            client.send_bytes(ApiKey.METADATA, b"\xff" * 2 * large.LARGE_BYTES)
            assert await client.is_closed()
        async with cluster.connected() as client:
            client.send(MetadataRequest(topics=[asked("small")], allow_auto_topic_creation=False))
            assert len((await client.receive(MetadataResponse)).topics) == 1

    run(tmp_path, story)


def test_steps_end_with_their_answer_in_the_same_turn() -> None:
    taken: list[int] = []

    def steps(count: int) -> Iterator[None]:
        for number in range(count):
            yield
            taken.append(number)

    answer = MetadataResponse(brokers=[], topics=[])
    assert in_steps(steps(PART_ELEMENTS - 1), lambda: answer) is answer
    taken.clear()
    left = in_steps(steps(2 * PART_ELEMENTS), lambda: answer)
    assert isinstance(left, Steps)
    assert len(taken) == PART_ELEMENTS - 1
    assert left.take_some() is None
    assert left.take_some() is answer
    assert taken == list(range(2 * PART_ELEMENTS))


def test_steps_that_are_refused_are_not_answered() -> None:
    def steps() -> Iterator[None]:
        yield from [None] * PART_ELEMENTS
        raise ApiError(ErrorCode.NOT_COORDINATOR, "gone")

    left = in_steps(steps(), lambda: MetadataResponse(brokers=[], topics=[]))
    assert isinstance(left, Steps)
    with pytest.raises(ApiError, match="gone"):
        left.take_some()


def of(host: str) -> Session:
    return Session(client_host=host, listener_name="client")


def test_large_requests_have_room_for_so_many_bytes_in_the_order_they_came() -> None:
    async def story() -> None:
        room, held, ended = Room(10), list[str](), dict[str, asyncio.Event]()

        async def handle(name: str, size_bytes: int) -> None:
            ended[name] = asyncio.Event()
            async with room.hold(of(name), size_bytes):
                held.append(name)
                try:
                    await ended[name].wait()
                finally:
                    held.remove(name)

        async def settle() -> list[str]:
            for _ in range(10):
                await asyncio.sleep(0)
            return held

        tasks = [asyncio.create_task(handle(*one)) for one in (("a", 6), ("b", 4), ("c", 500), ("d", 1), ("e", 1))]
        assert await settle() == ["a", "b"]
        ended["b"].set()
        assert await settle() == ["a"], "what is larger than the room waits for all of it, and keeps its place"
        ended["a"].set()
        assert await settle() == ["c"]
        ended["c"].set()
        assert await settle() == ["d", "e"]
        tasks[3].cancel()
        assert await settle() == ["e"], "who goes away gives its room back"
        ended["e"].set()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())


def test_a_client_has_one_large_request_in_memory_and_the_room_is_not_its_own() -> None:
    async def story() -> None:
        room = Room(10)
        async with room.hold(of("a"), 4):
            second = asyncio.create_task(room.hold(of("a"), 4).__aenter__())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not second.done()
            async with room.hold(of("b"), 4):
                pass
        await second

    asyncio.run(story())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_waits_outside_holds_up_no_other_and_comes_back_for_its_room() -> None:
    async def story() -> None:
        room, slow = Room(10, 10), asyncio.Event()
        ended = list[str]()

        async def wait(name: str) -> None:
            async with room.hold(of(name), 10) as holder:
                async with holder.outside():
                    await slow.wait()
                ended.append(name)

        waiting = [asyncio.create_task(wait(name)) for name in ("a", "b")]
        await settle()
        async with room.hold(of("a"), 10):
            slow.set()
            await settle()
            assert ended == []
        await asyncio.gather(*waiting)
        assert sorted(ended) == ["a", "b"]

    asyncio.run(story())


@pytest.mark.parametrize(("is_bounded", "has_turn"), [(True, False), (False, True)])
def test_a_client_of_which_much_waits_outside_keeps_its_turn_but_not_the_room(is_bounded: bool, has_turn: bool) -> None:
    async def story() -> None:
        room, slow = Room(10, 5), asyncio.Event()

        async def wait() -> None:
            async with room.hold(of("a"), 3) as holder, holder.outside(is_bounded=is_bounded):
                await slow.wait()

        waiting = [asyncio.create_task(wait()) for _ in range(3)]
        await settle()
        following = asyncio.create_task(wait())
        await settle()
        async with room.hold(of("b"), 10):
            pass
        turn = asyncio.create_task(room.hold(of("a"), 3).__aenter__())
        await settle()
        assert turn.done() is has_turn
        slow.set()
        if not has_turn:
            await asyncio.gather(*waiting, following)
        await turn

    asyncio.run(story())


def test_an_error_outside_is_raised_inside_and_who_goes_away_holds_nothing() -> None:
    async def story() -> None:
        room = Room(10, 10)
        async with room.hold(of("a"), 10) as holder:
            with pytest.raises(ApiError, match="gone"):
                async with holder.outside():
                    raise ApiError(ErrorCode.NOT_COORDINATOR, "gone")
            second = asyncio.create_task(room.hold(of("b"), 10).__aenter__())
            await settle()
            assert not second.done(), "the room is held again"
        holding = await second

        async def wait() -> None:
            async with room.hold(of("c"), 10) as holder, holder.outside():
                await asyncio.sleep(3600)

        holding.leave()
        gone = asyncio.create_task(wait())
        await settle()
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        async with room.hold(of("c"), 10):
            pass

    asyncio.run(story())


def test_a_large_request_that_waits_for_something_slow_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        begun, slow = asyncio.Event(), asyncio.Event()

        async def delete(_: object, group_id: str) -> ErrorCode:
            begun.set()
            await slow.wait()
            return ErrorCode.GROUP_ID_NOT_FOUND

        monkeypatch.setattr(GroupCoordinator, "delete", delete)
        async with cluster.connected() as one, cluster.connected() as other, asyncio.timeout(30):
            one.send(DeleteGroupsRequest(groups_names=NAMES))
            await begun.wait()
            other.send(MetadataRequest(topics=list(map(asked, NAMES)), allow_auto_topic_creation=False))
            assert len((await other.receive(MetadataResponse)).topics) == len(NAMES)
            slow.set()
            results = (await one.receive(DeleteGroupsResponse)).results
            assert [row.group_id for row in results] == NAMES

    monkeypatch.setattr(large, "HELD_BYTES", 1)
    run(tmp_path, story)


def test_a_large_request_has_its_room_until_its_answer_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list[str]()
    hold, encode = Room.hold, large.encode

    @asynccontextmanager
    async def noting_hold(room: Room, session: Session, size_bytes: int) -> AsyncIterator[RoomHolder]:
        async with hold(room, session, size_bytes) as holder:
            yield holder
        events.append("room is free")

    def noting_encode(*arguments: Any) -> Any:
        events.append("encode")
        return encode(*arguments)

    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            await commit_first(client)
            events.clear()
            client.send(MetadataRequest(topics=list(map(asked, NAMES)), allow_auto_topic_creation=False))
            await client.receive(MetadataResponse)
            client.send(commit(1, *NAMES))
            await client.receive(OffsetCommitResponse)
            await settle()

    monkeypatch.setattr(Room, "hold", noting_hold)
    monkeypatch.setattr(large, "encode", noting_encode)
    run(tmp_path, story, **{"auto.create.topics.enable": "true", "offsets.topic.num.partitions": "1"})
    assert events == ["encode", "room is free"] * 2


def test_no_more_is_decoded_at_a_time_than_there_is_room_for(
    tmp_path: Path, handled: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as one, cluster.connected() as other:
            for client, letter in ((one, "a"), (other, "b")):
                topics = [asked(f"{letter}{name}") for name in NAMES]
                client.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
            for client in (one, other):
                assert len((await client.receive(MetadataResponse)).topics) == len(NAMES)
            firsts = [request.topics[0].name[0] for request in handled]  # type: ignore[attr-defined]
            assert firsts == sorted(firsts, key="ab".index), "one after the other"

    monkeypatch.setattr(large, "HELD_BYTES", 1)
    run(tmp_path, story)


def test_a_member_that_waits_for_others_leaves_them_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription of thousands of topics is large, and a rebalance waits for all members."""

    def join(member_id: str = "") -> JoinGroupRequest:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"m" * 2 * large.LARGE_BYTES)]
        return JoinGroupRequest(
            group_id="g", member_id=member_id, protocol_type="consumer", protocols=protocols,
            session_timeout_ms=10_000, rebalance_timeout_ms=30_000,
        )  # fmt: skip

    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as one, cluster.connected() as other:
            await commit_first(one)
            members = []
            for client in (one, other):
                client.send(join())
                answer = await client.receive(JoinGroupResponse)
                assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
                members.append(answer.member_id)
            one.send(join(members[0]))
            other.send(join(members[1]))
            answers = [await client.receive(JoinGroupResponse) for client in (one, other)]
            assert [answer.error_code for answer in answers] == [ErrorCode.NONE, ErrorCode.NONE]
            assert sorted(one.member_id for answer in answers for one in answer.members) == sorted(members)

    monkeypatch.setattr(large, "HELD_BYTES", 1)
    run(
        tmp_path,
        story,
        **{
            "auto.create.topics.enable": "true",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "500",
        },
    )


def test_the_time_of_all_steps_counts_for_the_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[float] = []
    ticks = itertools.count(step=1_000_000)

    def charge(seconds: float) -> int:
        counted.append(seconds)
        return 77

    async def story(cluster: Cluster) -> None:
        async with cluster.connected() as client:
            await commit_first(client)
            monkeypatch.setattr(requests, "now_ns", lambda: next(ticks))  # a millisecond passes between two looks
            meter = SimpleNamespace(worked=lambda: 0, worked_on=charge)
            monkeypatch.setattr(Quotas, "is_any", property(lambda _: True, lambda *_: None), raising=False)
            monkeypatch.setattr(Quotas, "meter", lambda *_: meter)
            client.send(commit(1, *NAMES))
            answer = await client.receive(OffsetCommitResponse)
            assert answer.throttle_time_ms == 77
            [seconds] = counted
            assert seconds >= 0.001 * (1 + 2 * len(NAMES) // PART_ELEMENTS)

    run(tmp_path, story, **{"auto.create.topics.enable": "true", "offsets.topic.num.partitions": "1"})

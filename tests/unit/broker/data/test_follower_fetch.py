"""What a follower answers a consumer (KIP-392), and which images a broker takes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from pylog.broker.control.images import Images
from pylog.broker.data import replication
from pylog.broker.data.fetch import FetchHandler
from pylog.broker.data.partitions import Partitions
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.peers import PeerClient, PeerRequests
from pylog.broker.data.throttles import Throttles
from pylog.broker.settings import Value, parse_broker_settings, typed
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.metrics import Metrics
from pylog.model import NodeAddress
from pylog.security.principal import Session
from pylog.wire.api import parse_request_header
from pylog.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResult,
    encode_replica_request,
    parse_replica_response,
)
from tests.unit.broker.data.test_list_offsets import follower

CONSUMER = -1


def fetch(partitions: Partitions, offset: int, *, epoch: int = 0) -> FetchResult[memoryview]:
    """Return what broker 1, which follows, answers a consumer that asks at once."""

    async def run() -> FetchResult[memoryview]:
        throttles = Throttles(1, parse_broker_settings({}), partitions, lambda: 0)
        handler = FetchHandler(partitions, Metrics(), max_bytes=1 << 20, now_ms=lambda: 0, throttles=throttles)
        part = FetchPartition("t", 0, epoch, offset, -1, 0, 1 << 20)
        asked = FetchRequest(CONSUMER, 0, 1, 1 << 20, 0, 0, -1, [part])
        frame = memoryview(encode_replica_request(1, CONSUMER, -1, asked))[4:]
        connection: Any = SimpleNamespace(answered=[], read_ns=0)
        parts = handler.handle(connection, parse_request_header(frame), frame)
        assert parts is not None
        whole = b"".join(one if isinstance(one, bytes) else bytes(one.size_bytes) for one in parts)
        [result], _ = parse_replica_response(memoryview(whole)[4:], 1)
        return result

    return asyncio.run(run())


def replication_of(
    partitions: Partitions,
    settings: Mapping[str, Value],
    *,
    keys: PeerKeys | None = None,
    sync: Callable[[Iterable[Log]], Awaitable[None]] | None = None,
) -> replication.Replication:
    """Return broker 1's replication, whose logs want no sync unless *sync* is told."""
    unused: Any = None

    async def sync_nothing(_: object) -> None:
        """Nothing wants one."""

    return replication.Replication(
        1,
        partitions,
        typed(replication.ReplicationConfig, settings),
        Metrics(),
        now_ms=lambda: 0,
        keys=keys or PeerKeys(b""),
        broker_epoch=lambda: 7,
        ask_isr=unused,
        sync=sync or sync_nothing,
        throttles=Throttles(1, settings, partitions, lambda: 0),
    )


def test_a_follower_shows_records_up_to_the_high_watermark_that_it_knows(tmp_path: Path) -> None:
    partitions = follower(tmp_path)
    found = partitions.get("t", 0)
    assert found is not None
    assert found.log is not None
    assert found.log.log_end_offset == 1
    behind = fetch(partitions, 0)
    assert (behind.error, behind.records_bytes, behind.high_watermark) == (ErrorCode.NONE, 0, 0)
    found.log.high_watermark = 1
    assert fetch(partitions, 0).records_bytes > 0
    assert fetch(partitions, 1).error is ErrorCode.NONE, "its end is a place to wait at"


def test_trap_34_what_a_follower_does_not_have_yet_is_asked_of_the_leader(tmp_path: Path) -> None:
    assert fetch(follower(tmp_path), 2).error is ErrorCode.OFFSET_NOT_AVAILABLE


@pytest.mark.parametrize(("epoch", "error"), [(-1, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_a_follower_compares_leader_epochs_too(tmp_path: Path, epoch: int, error: ErrorCode) -> None:
    assert fetch(follower(tmp_path), 0, epoch=epoch).error is error


def test_rule_4_an_image_of_a_controller_that_was_deposed_is_dropped(tmp_path: Path) -> None:
    partitions = follower(tmp_path)
    latest = ClusterImage(2, 1, "c", 2)

    async def run() -> None:
        images = Images(1, partitions, None)
        images.start()
        images.offer(latest)
        assert await images.wait_until(lambda image: image is latest, 10)
        images.offer(ClusterImage(1, 99, "c", 3))
        images.offer(ClusterImage(2, 1, "c", 2))
        for _ in range(10):
            await asyncio.sleep(0)
        assert images.current is latest
        await images.stop()

    asyncio.run(run())


@pytest.mark.parametrize(("fault", "is_mended"), [(OSError(28, "full"), True), (AssertionError("a bug"), False)])
def test_an_image_that_the_disk_refuses_is_tried_again_and_one_that_meets_a_bug_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception, is_mended: bool
) -> None:
    partitions = follower(tmp_path)
    faults = [fault]
    prepare = partitions.prepare

    def refuse_once(image: ClusterImage) -> Any:
        if faults:
            raise faults.pop()
        return prepare(image)

    monkeypatch.setattr(partitions, "prepare", refuse_once)
    bugs: list[Exception] = []
    changed: list[str] = []

    async def run() -> None:
        met = asyncio.Event()

        def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            bugs.append(context["exception"])
            met.set()

        asyncio.get_running_loop().set_exception_handler(note)
        images = Images(1, partitions, None)
        images.on_applied = lambda found: changed.extend(one.key.topic for one in found)
        images.start()
        latest = ClusterImage(2, 1, "c", 2)
        images.offer(latest)
        if is_mended:
            assert await images.wait_until(lambda image: image is latest, 10)
        else:
            await asyncio.wait_for(met.wait(), 10)
            assert images.current is not latest
        await images.stop()

    asyncio.run(run())
    assert bugs == ([] if is_mended else [fault])
    assert changed == (["t"] if is_mended else []), "what the image took away is told once it holds"


class _SilentPeer:
    """Stands for a connection: the first call is never answered, as by a host that was cut off."""

    def __init__(self) -> None:
        self.called: asyncio.Queue[NodeAddress] = asyncio.Queue()
        self._waiting: asyncio.Future[bytes] | None = None

    async def call(self, address: NodeAddress, *_: object) -> bytes:
        self.called.put_nowait(address)
        self._waiting = asyncio.get_running_loop().create_future()
        return await self._waiting

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.set_exception(ApiError(ErrorCode.NETWORK_EXCEPTION, "closed here"))


def test_a_pull_that_a_former_controller_does_not_answer_ends_when_another_is_elected(tmp_path: Path) -> None:
    partitions = follower(tmp_path)
    peer = _SilentPeer()
    former, latter = NodeAddress(2, "h", 1), NodeAddress(3, "h", 2)

    async def run() -> None:
        images = Images(1, partitions, cast(PeerClient, peer))
        images.start()
        images.follow(former)
        assert await peer.called.get() == former
        images.follow(former)
        images.follow(latter)
        assert await asyncio.wait_for(peer.called.get(), 5) == latter
        await images.stop()

    asyncio.run(run())


def test_a_follower_waits_for_as_long_as_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = follower(tmp_path)
    settings = parse_broker_settings({"replica.fetch.wait.max.ms": 40, "replica.socket.timeout.ms": 70_000})

    async def run() -> None:
        asked: asyncio.Queue[tuple[float, int, float]] = asyncio.Queue()

        class Leader:
            """Stands for the connection to it: tells what is asked, and does not answer."""

            def __init__(self, *_: object) -> None:
                self.reach_s = 0.0

            async def reach(self, _: NodeAddress, timeout_s: float) -> bool:
                self.reach_s = timeout_s
                return True

            async def fetch(self, _: NodeAddress, epoch: int, request: FetchRequest, timeout_s: float) -> None:
                asked.put_nowait((self.reach_s, request.max_wait_ms, timeout_s))
                await asyncio.Event().wait()

            def close(self) -> None:
                """Nothing is open."""

        monkeypatch.setattr(replication, "PeerClient", Leader)
        following = replication_of(partitions, settings)
        following.image_applied()
        assert await asyncio.wait_for(asked.get(), 10) == (70.0, 40, 70.0)
        await following.stop()

    asyncio.run(run())


def test_a_fetcher_stopped_while_it_connects_closes_the_connection(tmp_path: Path) -> None:
    partitions = follower(tmp_path)
    secret = b"s" * 32
    unused: Any = None

    async def run() -> None:
        closed = asyncio.Event()
        requests = PeerRequests(PeerKeys(secret), unused, unused, unused)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection: Any = SimpleNamespace(
                state=None, session=Session(client_host="h", listener_name="internal"), admit=lambda: None
            )
            with contextlib.suppress(asyncio.IncompleteReadError):
                while True:
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    parts = requests.on_frame(connection, memoryview(await reader.readexactly(size)))
                    assert parts is not None
                    writer.writelines(cast(list[bytes], parts))
            writer.close()
            closed.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        following = replication_of(partitions, parse_broker_settings({}), keys=PeerKeys(secret))
        fetcher = replication._Fetcher(following, PeerClient(1, PeerKeys(secret), lambda: 1))
        found = list(partitions)
        fetcher.assign(NodeAddress(2, *server.sockets[0].getsockname()), {one.key: one for one in found})
        running = asyncio.create_task(fetcher.run())
        while fetcher._fetch is None:
            await asyncio.sleep(0)
        fetcher.stop()
        await running
        async with server:
            await asyncio.wait_for(closed.wait(), 10)

    asyncio.run(run())


def test_a_deleted_topic_leaves_no_rest_behind(tmp_path: Path) -> None:
    partitions = follower(tmp_path)
    following = replication_of(partitions, parse_broker_settings({}))
    [partition] = partitions
    place = (partition.topic_id, partition.key.partition)
    deleted = (UUID(int=99), partition.key.partition)
    following._isr_rests_ms = {place: 1_000, deleted: 1_000}
    following._passed_on = {place: (1, 1_000), deleted: (1, 1_000)}

    async def run() -> None:
        following.image_applied()
        await following.stop()

    asyncio.run(run())
    assert list(following._isr_rests_ms) == [place]
    assert list(following._passed_on) == [place]


@pytest.mark.parametrize(
    "error", [ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no room"), StorageError("the disk fails")], ids=["room", "disk"]
)
def test_a_partition_that_cannot_be_synced_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    settings = parse_broker_settings({})
    partitions = Partitions(LogDirectory.open(tmp_path, broker_id=1), 1, settings)
    address = NodeAddress(2, "h", 9092)
    state = PartitionImage(2, 0, (1, 2), (1, 2), 1)
    topics = {"t": TopicImage("t", UUID(int=5), {0: state, 1: state}, {"flush.messages": "1"})}
    image = ClusterImage(1, 1, "c", 2, {one: BrokerInfo(one, 7, None, address, address) for one in (1, 2)}, topics)
    partitions.switch(image, partitions.prepare(image))
    has_room = [False]

    async def sync(logs: Iterable[Log]) -> None:
        for log in logs:
            if log.topic_partition.partition == 0 and not has_room[0]:
                raise error

    async def run() -> None:
        asked: asyncio.Queue[FetchRequest] = asyncio.Queue()

        class Leader:
            """Stands for the connection to it: tells what is asked, and has nothing new."""

            def __init__(self, *_: object) -> None:
                """Nothing is to be opened."""

            async def reach(self, _: NodeAddress, timeout_s: float) -> bool:
                return False

            async def fetch(
                self, _: NodeAddress, epoch: int, request: FetchRequest, timeout_s: float
            ) -> tuple[list[FetchResult[memoryview]], bool]:
                asked.put_nowait(request)
                await asyncio.sleep(0.001)
                return [], False

            def close(self) -> None:
                """Nothing is open."""

        monkeypatch.setattr(replication, "PeerClient", Leader)
        monkeypatch.setattr(replication, "FIRST_REST_S", 0.001)
        following = replication_of(partitions, settings, sync=sync)
        following.image_applied()
        for _ in range(3):
            request = await asyncio.wait_for(asked.get(), 10)
            assert [part.partition for part in request.partitions] == [1], (
                "of 0 the leader must not think that we have it"
            )
        has_room[0] = True
        while 0 not in [part.partition for part in request.partitions]:
            request = await asyncio.wait_for(asked.get(), 10)
        await following.stop()

    asyncio.run(run())
    partitions._directory.close()

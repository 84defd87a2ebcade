"""What a cluster refuses: pretenders, the deposed, the late and the lost.  State and data stay as they are."""

import asyncio
import struct
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.peers import PeerClient
from pylog.cluster import znodes
from pylog.errors import ErrorCode
from pylog.model import NodeAddress
from pylog.store.base import Store
from pylog.store.zookeeper import ZooKeeperStore
from pylog.wire.fetch import FetchPartition, FetchRequest, FetchResult, encode_replica_request, parse_replica_response
from pylog.wire.internal import InternalKey, encode_isr_wishes, encode_process, parse_isr_answers
from tests.cluster.conftest import Brokers, bootstrap, controller_of, create, leaders, running, wait_for
from tests.cluster.history import Load
from tests.cluster.test_replication import all_in_sync, check
from tests.servers.zookeeper import ZooKeeper

SECRET = b"hush"
T = TypeVar("T")


@pytest.fixture
def store(zookeeper: ZooKeeper) -> Iterator[Store]:
    with closing(ZooKeeperStore(zookeeper.hosts)) as session:
        session.connect()
        yield session


class Target:
    """One replicated partition with some records, and how to find it unchanged."""

    def __init__(self, brokers: Brokers, store: Store, topic: str) -> None:
        self.brokers, self.store, self.topic = brokers, store, topic
        create(brokers[1], topic, 1, 3)
        wait_for(all_in_sync(brokers, topic), "all replicas are in sync")
        with Load(bootstrap(brokers), topic, 1) as load:
            wait_for(lambda: load.acknowledged > 50, "some records")
        [self.leader] = leaders(brokers, topic).values()
        self.follower = next(one for one in brokers if one != self.leader)
        self.topic_id = znodes.decode_assignment(store.get(znodes.topic_path(topic))[0]).topic_id
        self.before = self._facts()
        self.state = znodes.decode_state(self.before[0], self.before[1], (1, 2, 3))

    def address(self, broker: int) -> NodeAddress:
        """Return a broker's own listener."""
        data, stat = self.store.get(znodes.broker_path(broker))
        return znodes.decode_broker(broker, data, stat.czxid).internal

    def epoch(self, broker: int) -> int:
        return self.store.get(znodes.broker_path(broker))[1].czxid

    def assert_unchanged(self) -> None:
        assert self._facts() == self.before

    def _facts(self) -> tuple[bytes, int, set[int]]:
        data, stat = self.store.get(znodes.state_path(self.topic, 0))
        ends = {
            row["log_end_offset"]
            for broker in self.brokers.values()
            for row in broker.admin("GET", "/status")[1]["partitions"]
            if row["topic"] == self.topic
        }
        return data, stat.version, ends


def fetch_request(target: Target, replica: int, *, epoch: int | None = None, offset: int = 0) -> FetchRequest:
    leader_epoch = target.state.leader_epoch if epoch is None else epoch
    part = FetchPartition(target.topic, 0, leader_epoch, offset, -1, 0, 1 << 20, target.topic_id.bytes)
    return FetchRequest(replica, 0, 1, 1 << 20, 0, 0, -1, [part])


def as_broker(broker: int, ask: Callable[[PeerClient], Coroutine[Any, Any, T]], secret: bytes = SECRET) -> T:
    """Return what *ask* gets as a broker that knows the cluster's secret."""

    async def run() -> T:
        client = PeerClient(broker, PeerKeys(secret), lambda: 2)
        try:
            return await ask(client)
        finally:
            client.close()

    return asyncio.run(run())


def fetch_as(target: Target, broker: int, request: FetchRequest, broker_epoch: int) -> FetchResult[memoryview]:
    address = target.address(target.leader)
    [result], _ = as_broker(broker, lambda client: client.fetch(address, broker_epoch, request, 5))
    return result


def test_a_client_that_pretends_to_be_a_replica_is_refused(brokers: Brokers, store: Store) -> None:
    target = Target(brokers, store, "pretend")
    host, port = brokers[target.leader].bootstrap.split(":")
    follower = target.follower
    frame = encode_replica_request(1, follower, target.epoch(follower), fetch_request(target, follower))

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(frame)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        answer = await reader.readexactly(size)
        writer.close()
        return answer

    [result], _ = parse_replica_response(memoryview(asyncio.run(ask())), 1)
    assert result.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not result.records_bytes
    target.assert_unchanged()


def test_a_broker_that_pretends_to_be_another_is_refused(brokers: Brokers, store: Store) -> None:
    target = Target(brokers, store, "another")
    other = next(one for one in brokers if one not in (target.leader, target.follower))

    # The frame names the broker that asks; so only a forged one can name another.
    async def forged(client: PeerClient) -> FetchResult[memoryview]:
        async with client._reaching(target.address(target.leader), 5):
            answer = await client._call(encode_replica_request(77, other, 1, fetch_request(target, other)))
        [result], _ = parse_replica_response(memoryview(answer), 77)
        return result

    assert as_broker(target.follower, forged).error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    target.assert_unchanged()


@pytest.mark.parametrize(
    ("ahead", "error"),
    [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
    ids=["stale", "of a later leader"],
)
def test_a_fetch_under_another_leader_epoch_is_refused(
    brokers: Brokers, store: Store, ahead: int, error: ErrorCode
) -> None:
    target = Target(brokers, store, f"epoch{ahead + 1}")
    if ahead < 0 and target.state.leader_epoch == 0:
        # There is nothing before the first epoch, so let there be a second one.
        brokers[target.leader].stop()
        brokers[target.leader].start()
        wait_for(all_in_sync(brokers, target.topic), "all replicas are in sync")
        [target.leader] = leaders(brokers, target.topic).values()
        target.follower = next(one for one in brokers if one != target.leader)
        target.before = target._facts()
        target.state = znodes.decode_state(target.before[0], target.before[1], (1, 2, 3))
    request = fetch_request(target, target.follower, epoch=target.state.leader_epoch + ahead)
    assert fetch_as(target, target.follower, request, target.epoch(target.follower)).error is error
    target.assert_unchanged()


def test_a_fetch_beyond_the_log_end_is_out_of_range(brokers: Brokers, store: Store) -> None:
    target = Target(brokers, store, "beyond")
    request = fetch_request(target, target.follower, offset=1_000_000)
    result = fetch_as(target, target.follower, request, target.epoch(target.follower) - 1)
    assert result.error is ErrorCode.OFFSET_OUT_OF_RANGE
    target.assert_unchanged()


@pytest.mark.parametrize("fault", ["deposed leader", "stale leader epoch", "stale broker epoch", "stale member"])
def test_isr_changes_that_are_out_of_date_are_refused(brokers: Brokers, store: Store, fault: str) -> None:
    target = Target(brokers, store, "isr-" + fault.replace(" ", "-"))
    asks = target.follower if fault == "deposed leader" else target.leader
    epoch = target.epoch(asks) - (fault == "stale broker epoch")
    leader_epoch = target.state.leader_epoch - (fault == "stale leader epoch")
    members = [(asks, target.epoch(asks))]
    if fault == "stale member":
        members.append((target.follower, target.epoch(target.follower) - 1))
    wish = (target.topic_id, 0, leader_epoch, target.state.partition_epoch, tuple(members))
    body = encode_isr_wishes(asks, epoch, [wish])
    controller = target.address(controller_of(brokers[1]))
    [(code, isr, partition_epoch)] = parse_isr_answers(
        as_broker(asks, lambda client: client.call(controller, InternalKey.ALTER_ISR, body, 5))
    )
    wanted = {
        "deposed leader": ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "stale leader epoch": ErrorCode.FENCED_LEADER_EPOCH,
        "stale broker epoch": ErrorCode.STALE_BROKER_EPOCH,
        "stale member": ErrorCode.STALE_BROKER_EPOCH,
    }
    assert ErrorCode(code) is wanted[fault]
    assert (set(isr), partition_epoch) == (set(target.state.isr), target.state.partition_epoch)
    target.assert_unchanged()


def test_a_process_that_was_replaced_cannot_shut_its_successor_down(brokers: Brokers, store: Store) -> None:
    target = Target(brokers, store, "replaced")
    controller = target.address(controller_of(brokers[1]))
    body = encode_process(target.leader, target.epoch(target.leader) - 1)
    with pytest.raises(Exception, match="STALE_BROKER_EPOCH"):
        as_broker(target.leader, lambda client: client.call(controller, InternalKey.SHUT_DOWN, body, 5))
    target.assert_unchanged()


def test_whoever_is_not_the_controller_says_so(brokers: Brokers, store: Store) -> None:
    target = Target(brokers, store, "who")
    other = next(one for one in brokers if one != controller_of(brokers[1]))
    body = encode_process(target.leader, target.epoch(target.leader))
    with pytest.raises(Exception, match="NOT_CONTROLLER"):
        as_broker(target.leader, lambda client: client.call(target.address(other), InternalKey.SHUT_DOWN, body, 5))
    target.assert_unchanged()


def test_t20_zk_wiped(tmp_path: Path) -> None:
    """With the whole store gone no broker starts, and each says why; nothing is made anew over the data."""
    # Without a store nobody can take over, so there is nothing to wait for.
    settings = {"controlled.shutdown.max.wait.ms": 200}
    with (
        ZooKeeper(tmp_path / "zookeeper") as zookeeper,
        running(tmp_path / "brokers", zookeeper, **settings) as brokers,
    ):
        create(brokers[1], "wiped", 3, 3)
        wait_for(all_in_sync(brokers, "wiped"), "all replicas are in sync")
        with Load(bootstrap(brokers), "wiped", 3) as load:
            wait_for(lambda: load.acknowledged > 300, "some records")
        zookeeper.stop()
        before = {path: path.stat().st_size for path in tmp_path.glob("brokers/*/data/wiped-*/*.log")}
        assert len(before) == 9
        kept = tmp_path / "kept"
        (tmp_path / "zookeeper/zk1/data").rename(kept)
        (tmp_path / "zookeeper/zk1/data").mkdir()
        zookeeper.start()
        wait_for(
            lambda: not any(one.admin("GET", "/status")[1]["is_registered"] for one in brokers.values()),
            "nobody is registered in an empty store",
        )
        for broker in brokers.values():
            broker.stop()
            with pytest.raises(RuntimeError, match=r"is of cluster .*, but the store names no cluster"):
                broker.start()
        with closing(ZooKeeperStore(zookeeper.hosts)) as store:
            store.connect()
            assert store.exists(znodes.topic_path("wiped")) is None
            assert store.exists(znodes.CLUSTER_ID) is None
        assert {path: path.stat().st_size for path in before} == before
        zookeeper.stop()
        (tmp_path / "zookeeper/zk1/data").rename(tmp_path / "empty")
        kept.rename(tmp_path / "zookeeper/zk1/data")
        zookeeper.start()
        for broker in brokers.values():
            broker.start()
        wait_for(all_in_sync(brokers, "wiped"), "with the store back everything is as it was")
        check(load.read_back())

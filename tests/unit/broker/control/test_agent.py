"""A broker's seat in the cluster, on both stores: joining, electing, topics, and what happens when sessions end."""

import json
import resource
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from pylog.broker.clock import wall_ms
from pylog.broker.control import agent as agent_module
from pylog.broker.control import configs, formats, producer_ids, registration, topics
from pylog.broker.control.agent import ClusterAgent, ControllerInfo
from pylog.broker.control.controller import ActiveController, TopicResult
from pylog.cluster import znodes
from pylog.cluster.image import ClusterImage, topic_id_text
from pylog.cluster.topics import ClusterConfig, NewTopic
from pylog.cluster.znodes import BrokerRegistration
from pylog.errors import ApiError, ConfigError, ErrorCode, PylogError, StorageError
from pylog.model import NO_LEADER, NodeAddress
from pylog.store.base import (
    BadVersion,
    Create,
    Delete,
    NotAllowed,
    NotConnected,
    Operation,
    Result,
    SessionState,
    Set,
    Stat,
    Store,
)
from pylog.store.embedded import EmbeddedStore, EmbeddedTree
from pylog.store.tree import ClusterTree, Deposed
from pylog.store.zookeeper import ZooKeeperStore
from tests.servers.stores import expire_embedded, expire_zookeeper
from tests.servers.zookeeper import ZooKeeper, zk_cli

T = TypeVar("T")

WAIT_S = 20.0


class Member:
    """An agent and everything it told its broker, in order."""

    def __init__(self, broker_id: int, store: Store, registration: BrokerRegistration, config: ClusterConfig) -> None:
        self.broker_id = broker_id
        self.store = store
        self.told: list[ControllerInfo | ClusterImage | SessionState | PylogError | None] = []
        self._heard = threading.Condition()
        self.agent = ClusterAgent(
            store,
            registration,
            config,
            on_controller=self._hear,
            on_image=self._hear,
            on_session=self._hear,
            on_failure=self._hear,
        )

    def _hear(self, what: ControllerInfo | ClusterImage | SessionState | PylogError | None) -> None:
        with self._heard:
            self.told.append(what)
            self._heard.notify_all()

    def wait(self, found: Callable[[], T | None]) -> T:
        """Return the first thing that *found* finds, asked again whenever something was told."""
        with self._heard:
            assert self._heard.wait_for(lambda: found() is not None, WAIT_S), self.told[-5:]
            result = found()
            assert result is not None
            return result

    @property
    def images(self) -> list[ClusterImage]:
        return [one for one in self.told if isinstance(one, ClusterImage)]

    @property
    def sessions(self) -> list[SessionState]:
        return [one for one in self.told if isinstance(one, SessionState)]

    @property
    def controller(self) -> ControllerInfo | None:
        return next((one for one in reversed(self.told) if one is None or isinstance(one, ControllerInfo)), None)

    def wait_controller(self, broker_id: int, epoch: int) -> ControllerInfo:
        def found() -> ControllerInfo | None:
            now = self.controller
            return now if now is not None and now[:2] == (broker_id, epoch) else None

        return self.wait(found)

    def wait_image(self, fits: Callable[[ClusterImage], bool]) -> ClusterImage:
        return self.wait(lambda: self.images[-1] if self.images and fits(self.images[-1]) else None)

    def create_topics(self, new: Sequence[NewTopic], *, validate_only: bool = False) -> Future[list[TopicResult]]:
        ids = topics.new_topic_ids(topic.name for topic in new)
        return self.agent.ask(partial(topics.create_topics, topics=new, topic_ids=ids, validate_only=validate_only))

    def delete_topics(self, names: Sequence[str]) -> Future[list[TopicResult]]:
        present = self.images[-1].topics if self.images else {}
        ids = {name: present[name].topic_id if name in present else uuid.uuid4() for name in names}
        wanted = [topics.Topic(name, ids[name]) for name in names]
        return self.agent.ask(partial(topics.delete_topics, topics=wanted, begun=set()))

    def confirm_cleanup(self, broker_id: int, topic_ids: Collection[uuid.UUID]) -> Future[None]:
        return self.agent.ask(lambda controller: topics.confirm_cleanup(controller, broker_id, topic_ids))

    def take_producer_ids(self, broker_id: int) -> Future[tuple[int, int]]:
        return self.agent.ask(lambda controller: producer_ids.take_producer_ids(controller, broker_id))

    def alter_topic_configs(
        self, changes: Mapping[str, configs.Change], *, validate_only: bool = False
    ) -> Future[list[TopicResult]]:
        return self.agent.ask(partial(configs.alter_topic_configs, changes=changes, validate_only=validate_only))

    def create(self, *new: NewTopic) -> None:
        for result in self.create_topics(new).result(WAIT_S):
            assert result.error is ErrorCode.NONE, result


class Cluster:
    """Members on one tree."""

    def __init__(self, make_store: Callable[[], Store], expire: Callable[[Store], None]) -> None:
        self.make_store = make_store
        self.expire = expire
        self._members: list[Member] = []
        self._stores: list[Store] = []

    def member(
        self,
        broker_id: int = 1,
        *,
        host: str | None = None,
        cluster_id: str | None = None,
        rack: str | None = None,
        config: ClusterConfig | None = None,
        store: Store | None = None,
    ) -> Member:
        """Return a member that has not started."""
        name = host or f"h{broker_id}"
        registration = BrokerRegistration(
            broker_id, NodeAddress(broker_id, name, 9092), NodeAddress(broker_id, name, 9192), rack, cluster_id
        )
        member = Member(broker_id, store or self.make_store(), registration, config or ClusterConfig())
        self._members.append(member)
        return member

    def join(self, broker_id: int = 1, *, config: ClusterConfig | None = None) -> Member:
        member = self.member(broker_id, config=config)
        member.agent.start(WAIT_S)
        return member

    def lead(self, broker_id: int = 1, *, config: ClusterConfig | None = None) -> Member:
        """Return a member that has become the controller."""
        member = self.join(broker_id, config=config)
        member.wait(lambda: member.controller)
        assert member.controller is not None
        assert member.controller.broker_id == broker_id
        return member

    def outsider(self) -> Store:
        """Return a session of another tool."""
        store = self.make_store()
        store.connect()
        self._stores.append(store)
        return store

    def close(self) -> None:
        for member in self._members:
            member.agent.stop()
        for store in self._stores:
            store.close()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture(params=["embedded", "zookeeper"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if request.param == "embedded":
        tree = EmbeddedTree(tmp_path)
        cluster = Cluster(tree.session, expire_embedded)
    else:
        hosts = f"{request.getfixturevalue('zookeeper').hosts}/{request.node.name.partition('[')[0]}"
        cluster = Cluster(lambda: ZooKeeperStore(hosts, session_timeout_ms=4_000), expire_zookeeper)
    yield cluster
    cluster.close()
    if request.param == "embedded":
        tree.close()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Cluster]:
    tree = EmbeddedTree(tmp_path)
    cluster = Cluster(tree.session, expire_embedded)
    yield cluster
    cluster.close()
    tree.close()


def text(store: Store, path: str) -> str:
    return store.get(path)[0].decode()


def leaders(image: ClusterImage, topic: str) -> list[int]:
    return [partition.leader for partition in image.topics[topic].partitions.values()]


def test_a_lone_broker_registers_and_becomes_controller(cluster: Cluster) -> None:
    one = cluster.lead(1)
    assert one.told[0] is SessionState.CONNECTED
    image = one.images[0]
    assert one.told.index(image) < one.told.index(one.controller), "nothing is asked of a controller before its image"
    assert one.controller == ControllerInfo(1, 1, NodeAddress(1, "h1", 9192))
    assert image.order == (1, 1)
    assert image.controller_id == 1
    assert image.cluster_id == one.agent.cluster_id != ""
    assert list(image.brokers) == [1]
    assert image.brokers[1].epoch == one.agent.broker_epoch > 0


def test_the_store_holds_exactly_what_kafka_would_write(cluster: Cluster) -> None:
    one = cluster.lead(1)
    one.create(NewTopic("T", 2, configs={"retention.ms": "1000"}))
    store = cluster.outsider()
    topic_id = topic_id_text(one.images[-1].topics["T"].topic_id)
    registered = json.loads(text(store, "/brokers/ids/1"))
    assert registered.pop("timestamp").isdigit()
    assert registered == {
        "features": {"pylog.formats": {"min_version": 2, "max_version": 5}},
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "INTERNAL": "PLAINTEXT"},
        "endpoints": ["PLAINTEXT://h1:9092", "INTERNAL://h1:9192"],
        "jmx_port": -1,
        "port": 9092,
        "host": "h1",
        "version": 5,
    }
    claim = json.loads(text(store, "/controller"))
    assert claim.pop("timestamp").isdigit()
    assert claim == {"version": 2, "brokerid": 1, "kraftControllerEpoch": -1}
    assert text(store, "/controller_epoch") == "1"
    assert text(store, "/cluster/id") == f'{{"version":"1","id":"{one.agent.cluster_id}"}}'
    created_ms = one.images[-1].topics["T"].created_ms
    assert abs(created_ms - wall_ms()) < WAIT_S * 1000
    assert text(store, "/brokers/topics/T") == (
        f'{{"partitions":{{"0":[1],"1":[1]}},"topic_id":"{topic_id}","adding_replicas":{{}},'
        f'"removing_replicas":{{}},"version":3,"pylog_created_ms":{created_ms}}}'
    )
    state = '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    assert text(store, "/brokers/topics/T/partitions/0/state") == state
    assert text(store, "/brokers/topics/T/partitions/1/state") == state
    assert text(store, "/config/topics/T") == '{"version":1,"config":{"retention.ms":"1000"}}'
    assert None not in store.get_many(znodes.BASE_PATHS)
    owners = [store.get(path)[1].ephemeral_owner for path in ("/brokers/ids/1", "/controller")]
    assert owners == [one.store.session_id] * 2


def test_zookeepers_own_shell_reads_a_topic(zookeeper: ZooKeeper) -> None:
    cluster = Cluster(lambda: ZooKeeperStore(f"{zookeeper.hosts}/shell"), expire_zookeeper)
    cluster.lead(1).create(NewTopic("T", 3))
    assert "[0, 1, 2]" in zk_cli(zookeeper.hosts, "ls", "/shell/brokers/topics/T/partitions").splitlines()
    cluster.close()


def test_a_created_topic_is_in_the_image_before_its_answer(cluster: Cluster) -> None:
    one = cluster.lead(1, config=ClusterConfig(num_partitions=4))
    [result] = one.create_topics([NewTopic("t")]).result(WAIT_S)
    topic = one.images[-1].topics["t"]
    assert (result.error, result.topic_id) == (ErrorCode.NONE, topic.topic_id)
    assert (result.partitions, result.replication_factor) == (4, 1)
    assert leaders(one.images[-1], "t") == [1, 1, 1, 1]
    assert one.images[-1].topic_by_id(result.topic_id) is topic


def test_each_topic_of_a_request_has_its_own_answer(cluster: Cluster) -> None:
    one = cluster.lead(1)
    one.create(NewTopic("old"))
    wanted = [NewTopic("new"), NewTopic("old"), NewTopic("a/b"), NewTopic("twice"), NewTopic("twice"), NewTopic("x", 0)]
    results = one.create_topics(wanted).result(WAIT_S)
    assert [(result.name, result.error) for result in results] == [
        ("new", ErrorCode.NONE),
        ("old", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("x", ErrorCode.INVALID_PARTITIONS),
    ]
    assert set(one.images[-1].topics) == {"old", "new"}


def test_validation_writes_nothing(cluster: Cluster) -> None:
    one = cluster.lead(1)
    [result] = one.create_topics([NewTopic("t", 3)], validate_only=True).result(WAIT_S)
    assert (result.error, result.partitions) == (ErrorCode.NONE, 3)
    assert cluster.outsider().children("/brokers/topics") == []


def test_more_partitions_than_one_multi_holds(cluster: Cluster) -> None:
    one = cluster.lead(1)
    one.create(NewTopic("wide", 1200), *[NewTopic(f"narrow{number}", 3) for number in range(300)])
    image = one.images[-1]
    assert len(image.topics) == 301
    assert leaders(image, "wide") == [1] * 1200
    names = sorted(image.topics)
    topics, stateless = ClusterTree(cluster.outsider()).topics(names)
    assert not stateless
    assert topics == dict(image.topics)


def test_a_topic_that_another_tool_made_first_is_told(embedded: Cluster) -> None:
    one = embedded.lead(1)
    other = embedded.outsider()
    # Its node alone: the watch has the agent read it, and give it leaders, as Kafka's controller does.
    other.create("/brokers/topics/theirs", b'{"partitions":{"0":[1]},"topic_id":"vS7img6LTLWcAmLY8OZ6Uw","version":3}')
    image = one.wait_image(lambda image: "theirs" in image.topics)
    assert leaders(image, "theirs") == [1]
    assert '"leader":1' in text(other, "/brokers/topics/theirs/partitions/0/state")
    [result] = one.create_topics([NewTopic("theirs")]).result(WAIT_S)
    assert result.error is ErrorCode.TOPIC_ALREADY_EXISTS


def test_configs_left_by_another_tool_give_way_to_the_new_topics(cluster: Cluster) -> None:
    one = cluster.lead(1)
    other = cluster.outsider()
    other.create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
    one.create(NewTopic("t", configs={"segment.bytes": "2048"}))
    assert text(other, "/config/topics/t") == '{"version":1,"config":{"segment.bytes":"2048"}}'


def test_one_of_three_becomes_controller_and_all_know(cluster: Cluster) -> None:
    one, two, three = cluster.lead(1), cluster.join(2), cluster.join(3)
    for member in (two, three):
        assert member.wait_controller(1, 1).address == NodeAddress(1, "h1", 9192)
        assert not member.images, "only the controller makes images"
    image = one.wait_image(lambda image: len(image.brokers) == 3)
    assert {broker: info.epoch for broker, info in image.brokers.items()} == {
        member.broker_id: member.agent.broker_epoch for member in (one, two, three)
    }


def test_only_the_controller_answers(cluster: Cluster) -> None:
    cluster.lead(1)
    two = cluster.join(2)
    two.wait_controller(1, 1)
    for future in (
        two.create_topics([NewTopic("t")]),
        two.delete_topics(["t"]),
        two.take_producer_ids(1),
    ):
        with pytest.raises(ApiError) as refused:
            future.result(WAIT_S)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER


def test_the_controller_leaves_and_another_takes_over_its_partitions(cluster: Cluster) -> None:
    one, two, three = cluster.lead(1), cluster.join(2), cluster.join(3)
    one.wait_image(lambda image: len(image.brokers) == 3)
    one.create(NewTopic("t", assignments={0: [1, 2], 1: [2, 1], 2: [3, 1]}), NewTopic("alone", assignments={0: [1]}))
    last = one.images[-1]
    one.agent.stop()
    elected = two.wait(lambda: two.controller if two.controller and two.controller.epoch == 2 else None)
    heir, other = (two, three) if elected.broker_id == 2 else (three, two)
    info = heir.wait_controller(heir.broker_id, 2)
    assert other.wait_controller(heir.broker_id, 2) == info
    image = heir.wait_image(lambda image: 1 not in image.brokers)
    states = image.topics["t"].partitions
    assert [(state.leader, state.leader_epoch, state.isr) for state in states.values()] == [
        (2, 1, (2,)),
        (2, 0, (2,)),
        (3, 0, (3,)),
    ]
    alone = image.topics["alone"].partitions[0]
    assert (alone.leader, alone.leader_epoch, alone.isr) == (NO_LEADER, 1, (1,)), "its ISR does not become empty"
    assert image.order > last.order
    store = cluster.outsider()
    assert text(store, "/controller_epoch") == "2"
    assert text(store, "/brokers/topics/t/partitions/0/state") == (
        '{"controller_epoch":2,"leader":2,"version":1,"leader_epoch":1,"isr":[2]}'
    )
    assert [state.partition_epoch for state in states.values()] == [
        store.get(znodes.state_path("t", number))[1].version for number in states
    ]


def test_a_returning_broker_leads_what_only_it_has(cluster: Cluster) -> None:
    one, two = cluster.lead(1), cluster.join(2)
    one.wait_image(lambda image: len(image.brokers) == 2)
    one.create(NewTopic("t", assignments={0: [2]}))
    two.agent.stop()
    one.wait_image(lambda image: leaders(image, "t") == [NO_LEADER])
    cluster.join(2)
    image = one.wait_image(lambda image: leaders(image, "t") == [2])
    assert image.topics["t"].partitions[0].leader_epoch == 2


def test_an_expired_broker_bounces_and_leads_in_a_new_epoch(cluster: Cluster) -> None:
    one, two = cluster.lead(1), cluster.join(2)
    one.wait_image(lambda image: len(image.brokers) == 2)
    one.create(NewTopic("t", assignments={0: [2]}))
    before = two.agent.broker_epoch
    cluster.expire(two.store)
    two.wait(lambda: two.sessions.count(SessionState.CONNECTED) == 2 or None)
    assert SessionState.LOST in two.sessions
    assert two.agent.broker_epoch > before
    image = one.wait_image(lambda image: 2 in image.brokers and image.brokers[2].epoch == two.agent.broker_epoch)
    image = one.wait_image(lambda image: leaders(image, "t") == [2])
    assert image.topics["t"].partitions[0].leader_epoch >= 1


def test_an_expired_controller_gives_up_before_it_comes_back(cluster: Cluster) -> None:
    one = cluster.lead(1)
    one.create(NewTopic("t"))
    cluster.expire(one.store)
    one.wait_controller(1, 2)
    told = [what for what in one.told if what is None or isinstance(what, ControllerInfo | SessionState)]
    told = [what for what in told if what is not SessionState.SUSPENDED]
    assert told[-4:] == [None, SessionState.LOST, SessionState.CONNECTED, one.controller]
    image = one.images[-1]
    assert image.order[0] == 2
    assert leaders(image, "t") == [1]


def test_a_deposed_controllers_write_is_refused(cluster: Cluster) -> None:
    one = cluster.lead(1)
    one.create(NewTopic("t"))
    thief = cluster.outsider()
    tree = ClusterTree(thief)
    old = tree.controller()
    assert old is not None
    before = text(thief, "/brokers/topics/t/partitions/0/state")
    thief.multi(
        [
            Delete(znodes.CONTROLLER),
            Create(znodes.CONTROLLER, znodes.encode_controller(9, 0), ephemeral=True),
            Set(znodes.CONTROLLER_EPOCH, b"2"),
        ]
    )
    with pytest.raises(Deposed):
        tree.write(old.fence, [Create("/brokers/topics/x", b"")])
    assert thief.exists("/brokers/topics/x") is None
    assert text(thief, "/brokers/topics/t/partitions/0/state") == before
    # The agent's own next write meets the same fence, whether its watch has fired by then or not.
    with pytest.raises(ApiError) as refused:
        one.create_topics([NewTopic("late")]).result(WAIT_S)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert thief.children("/brokers/topics") == ["t"]


def test_resigning_takes_no_other_controllers_claim(cluster: Cluster) -> None:
    cluster.lead(1)
    other = cluster.outsider()
    before = other.exists(znodes.CONTROLLER)
    ClusterTree(other).resign()
    assert other.exists(znodes.CONTROLLER) == before


def test_a_claim_removed_by_hand_brings_a_new_election(cluster: Cluster) -> None:
    one = cluster.lead(1)
    cluster.outsider().delete("/controller")
    one.wait_controller(1, 2)
    assert one.wait_image(lambda image: image.order >= (2, 1)).controller_id == 1


def test_an_epoch_written_by_hand_does_not_stop_the_cluster(cluster: Cluster) -> None:
    one = cluster.lead(1)
    cluster.outsider().set("/controller_epoch", b"40")
    with pytest.raises(ApiError) as refused:
        one.create_topics([NewTopic("t")]).result(WAIT_S)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    one.wait_controller(1, 41)
    one.create(NewTopic("t"))


def test_a_registration_removed_by_hand_is_made_again(cluster: Cluster) -> None:
    one = cluster.lead(1)
    before = one.agent.broker_epoch
    cluster.outsider().delete("/brokers/ids/1")
    one.wait_image(lambda image: 1 in image.brokers and image.brokers[1].epoch > before)


def test_deleted_topics_leave_the_image_and_the_store(cluster: Cluster) -> None:
    one = cluster.lead(1)
    one.create(NewTopic("t", 3), NewTopic("kept"))
    topic_id = one.images[-1].topics["t"].topic_id
    results = one.delete_topics(["t", "none"]).result(WAIT_S)
    assert [(result.name, result.error) for result in results] == [
        ("t", ErrorCode.NONE),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    image = one.images[-1]
    assert set(image.topics) == {"kept"}
    store = cluster.outsider()
    assert store.children("/brokers/topics") == store.children("/config/topics") == ["kept"]
    assert store.children("/admin/delete_topics") == []
    deleted = image.deleted_topics[topic_id]
    assert (deleted.name, deleted.replicas) == ("t", (1,))


def test_a_deletion_is_remembered_until_every_replica_carried_it_out(cluster: Cluster) -> None:
    one, two = cluster.lead(1), cluster.join(2)
    one.wait_image(lambda image: len(image.brokers) == 2)
    one.create(NewTopic("t", assignments={0: [1, 2]}))
    topic_id = one.images[-1].topics["t"].topic_id
    one.delete_topics(["t"]).result(WAIT_S)
    one.confirm_cleanup(1, [topic_id, uuid.uuid4()]).result(WAIT_S)
    assert one.images[-1].deleted_topics[topic_id].replicas == (2,)
    one.agent.stop()
    two.wait_controller(2, 2)
    assert two.images[-1].deleted_topics[topic_id].replicas == (2,), "the next controller remembers"
    two.confirm_cleanup(2, [topic_id]).result(WAIT_S)
    assert not two.images[-1].deleted_topics
    assert cluster.outsider().children("/pylog/deleted_topics") == []


def test_a_deletion_that_comes_late_leaves_the_topic_that_was_made_since(cluster: Cluster) -> None:
    one = cluster.lead(1)
    one.create(NewTopic("t"))
    former = topics.Topic("t", one.images[-1].topics["t"].topic_id)
    one.delete_topics(["t"]).result(WAIT_S)
    one.create(NewTopic("t"))
    late = one.agent.ask(partial(topics.delete_topics, topics=[former], begun=set()))
    assert [result.error for result in late.result(WAIT_S)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert one.images[-1].topics["t"].topic_id != former.topic_id


def test_a_name_is_free_again_at_once_and_means_another_topic(cluster: Cluster) -> None:
    one = cluster.lead(1)
    one.create(NewTopic("t"))
    before = one.images[-1].topics["t"].topic_id
    one.delete_topics(["t"]).result(WAIT_S)
    one.create(NewTopic("t"))
    image = one.images[-1]
    assert image.topics["t"].topic_id != before
    assert list(image.deleted_topics) == [before]


def test_a_deletion_ordered_in_the_store_is_carried_out(cluster: Cluster) -> None:
    one = cluster.lead(1)
    one.create(NewTopic("t"))
    other = cluster.outsider()
    other.create("/admin/delete_topics/t")
    other.create("/admin/delete_topics/none")
    one.wait_image(lambda image: "t" not in image.topics)
    assert other.children("/brokers/topics") == []


def test_what_a_controller_left_half_done_the_next_one_finishes(cluster: Cluster) -> None:
    one = cluster.lead(1)
    one.create(NewTopic("half", 2), NewTopic("going", 2))
    one.agent.stop()
    store = cluster.outsider()
    # Creation stopped before the second partition, deletion after the first.
    store.delete("/brokers/topics/half/partitions/1/state")
    store.delete("/brokers/topics/half/partitions/1")
    store.create("/admin/delete_topics/going")
    store.delete("/brokers/topics/going/partitions/0/state")
    two = cluster.member(1)
    two.agent.start(WAIT_S)
    two.wait_controller(1, 2)
    first = two.images[0]
    assert leaders(first, "half") == [1, 1]
    assert "going" not in first.topics
    assert [deleted.name for deleted in first.deleted_topics.values()] == ["going"]
    assert store.children("/brokers/topics") == ["half"]


def test_no_image_is_served_while_a_topic_cannot_be_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "RETRY_S", 0.02)
    first = cluster.lead(1)
    first.create(NewTopic("t"))
    first.agent.stop()
    store = cluster.outsider()
    good = store.get("/brokers/topics/t")[0]
    store.set("/brokers/topics/t", b"{")
    second = cluster.join(1)
    with pytest.raises(ApiError) as refused:
        second.create_topics([NewTopic("u")]).result(WAIT_S)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert not second.images
    assert second.controller is None
    store.set("/brokers/topics/t", good)
    second.wait_controller(1, 2)
    assert set(second.images[0].topics) == {"t"}


def test_a_broker_that_cannot_be_read_takes_nothing_from_the_others(cluster: Cluster) -> None:
    cluster.outsider().create("/brokers/ids/7", b"nonsense", make_parents=True)
    one = cluster.lead(1)
    one.create(NewTopic("t"))
    assert list(one.images[-1].brokers) == [1]


def test_producer_ids_come_in_blocks_that_never_meet(cluster: Cluster) -> None:
    one = cluster.lead(1)
    assert one.take_producer_ids(1).result(WAIT_S) == (0, 1000)
    assert one.take_producer_ids(2).result(WAIT_S) == (1000, 1000)
    assert text(cluster.outsider(), "/latest_producer_id_block") == (
        '{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}'
    )
    one.agent.stop()
    assert cluster.lead(1).take_producer_ids(1).result(WAIT_S) == (2000, 1000)


def test_configs_are_set_and_unset(cluster: Cluster) -> None:
    def check(configs: object) -> None:
        if "bad" in str(configs):
            raise ConfigError("bad: no such topic setting")

    one = cluster.lead(1, config=ClusterConfig(check_configs=check))
    one.create(NewTopic("t", configs={"a": "1", "b": "2"}))
    results = one.alter_topic_configs({"t": {"a": None, "c": "3"}, "none": {"a": "1"}}, validate_only=False).result(
        WAIT_S
    )
    assert [result.error for result in results] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert one.images[-1].topics["t"].configs == {"b": "2", "c": "3"}
    assert text(cluster.outsider(), "/config/topics/t") == '{"version":1,"config":{"b":"2","c":"3"}}'
    [result] = one.alter_topic_configs({"t": {"bad": "1"}}).result(WAIT_S)
    assert result.error is ErrorCode.INVALID_CONFIG
    assert one.alter_topic_configs({"t": {"c": "4"}}, validate_only=True).result(WAIT_S)[0].configs == {
        "b": "2",
        "c": "4",
    }
    assert one.images[-1].topics["t"].configs == {"b": "2", "c": "3"}


def test_a_stale_node_of_our_own_is_waited_out(cluster: Cluster) -> None:
    before = cluster.outsider()
    stale = BrokerRegistration(1, NodeAddress(1, "h1", 1234), NodeAddress(1, "h1", 1235))
    before.create(znodes.broker_path(1), znodes.encode_broker(stale, 0), ephemeral=True, make_parents=True)
    one = cluster.member(1)
    starting = threading.Thread(target=one.agent.start, args=(WAIT_S,))
    starting.start()
    watcher = cluster.outsider()
    assert watcher.get("/brokers/ids/1")[1].ephemeral_owner == before.session_id, "it is not deleted"
    before.close()
    starting.join(WAIT_S)
    assert one.sessions == [SessionState.CONNECTED]
    assert watcher.get("/brokers/ids/1")[1].czxid == one.agent.broker_epoch


def test_a_node_of_our_own_that_never_goes_is_another_process(
    embedded: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "STALE_NODE_TIMEOUTS", 0.1)
    embedded.lead(1)
    twin = embedded.member(1)
    with pytest.raises(ConfigError, match="broker id 1 is registered by another process on this host, h1"):
        twin.agent.start(WAIT_S)


def test_an_id_of_another_host_is_refused(cluster: Cluster) -> None:
    cluster.lead(1)
    foreign = cluster.member(1, host="elsewhere")
    with pytest.raises(ConfigError, match="broker id 1 is registered by host h1; this is elsewhere"):
        foreign.agent.start(WAIT_S)


def test_data_of_another_cluster_is_refused_with_both_ids(cluster: Cluster) -> None:
    one = cluster.lead(1)
    foreign = cluster.member(2, cluster_id="another-cluster")
    with pytest.raises(ConfigError) as refused:
        foreign.agent.start(WAIT_S)
    assert "another-cluster" in str(refused.value)
    assert one.agent.cluster_id in str(refused.value)
    assert cluster.outsider().children("/brokers/ids") == ["1"]


def test_data_of_a_cluster_is_refused_by_a_wiped_store(cluster: Cluster) -> None:
    one = cluster.member(1, cluster_id="lost-cluster")
    with pytest.raises(ConfigError, match="lost-cluster, but the store names no cluster"):
        one.agent.start(WAIT_S)
    assert cluster.outsider().exists("/cluster/id") is None


def test_rule_15_a_cluster_of_later_formats_is_refused(cluster: Cluster) -> None:
    cluster.lead(1)
    cluster.outsider().set("/pylog/format_level", b'{"version":1,"level":6}')
    two = cluster.member(2)
    with pytest.raises(ConfigError, match="level 6; this release knows up to 5"):
        two.agent.start(WAIT_S)


class FinalizingStore(EmbeddedStore):
    """A session that registers just after somebody has finalized the cluster to the formats of a later release."""

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if any(operation.path == "/brokers/ids/2" for operation in operations):
            super().multi([Set("/pylog/format_level", b'{"version":1,"level":6}')])
        return super().multi(operations)


def test_rule_15_a_broker_that_registers_while_a_later_release_is_finalized_ends(embedded: Cluster) -> None:
    embedded.lead(1)
    session = embedded.make_store()
    assert isinstance(session, EmbeddedStore)
    two = embedded.member(2, store=FinalizingStore(session.tree))
    with pytest.raises(ConfigError, match="level 6; this release knows up to 5"):
        two.agent.start(WAIT_S)
    assert embedded.outsider().children("/brokers/ids") == ["1"]


def test_rule_15_a_broker_of_an_earlier_release_is_not_counted_in(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    one = cluster.lead(1)
    data = text(cluster.outsider(), "/brokers/ids/1")
    for broker_id, level in ((7, 4), (8, 5)):
        other = data.replace('"max_version":5', f'"max_version":{level}')
        cluster.outsider().create(f"/brokers/ids/{broker_id}", other.encode())
    assert list(one.wait_image(lambda image: 8 in image.brokers).brokers) == [1, 8]
    assert "broker_ignored broker=7 reason=its release reads formats up to level 4" in caplog.text
    one.agent.stop()
    two = cluster.lead(2)
    assert list(two.images[-1].brokers) == [2, 8], "nor by the next controller"


def test_rule_15_a_cluster_of_formats_before_the_last_release_is_refused(cluster: Cluster) -> None:
    cluster.outsider().create("/cluster/id", b'{"version":"1","id":"c"}', make_parents=True)
    one = cluster.member(1)
    with pytest.raises(ConfigError, match="level 1; this release reads from 2 on: run `pylog cluster finalize`"):
        one.agent.start(WAIT_S)


def test_a_new_cluster_begins_with_this_release_s_formats(cluster: Cluster) -> None:
    assert cluster.lead(1).images[-1].level == 5


def test_a_cluster_of_the_release_before_keeps_its_formats(cluster: Cluster) -> None:
    store = cluster.outsider()
    store.create("/cluster/id", b'{"version":"1","id":"c"}', make_parents=True)
    store.create("/pylog/format_level", b'{"version":1,"level":2}', make_parents=True)
    one = cluster.lead(1)
    assert one.images[-1].level == 2
    assert one.agent.ask(formats.finalize).result(WAIT_S) == 5
    assert one.images[-1].level == 5


def test_configs_that_another_tool_changes_are_seen_by_its_notice(cluster: Cluster) -> None:
    one = cluster.lead(1)
    one.create(NewTopic("t", 1))
    store = cluster.outsider()
    store.set("/config/topics/t", b'{"version":1,"config":{"retention.ms":"7"}}')
    store.create("/config/brokers/<default>", b'{"version":1,"config":{"a":"b"}}')
    store.create("/config/changes/config_change_", b'{"version":2,"entity_path":"topics/t"}', sequence=True)
    image = one.wait_image(lambda image: image.topics["t"].configs == {"retention.ms": "7"})
    assert image.broker_configs == {"<default>": {"a": "b"}}


def test_rule_2_a_store_that_lost_the_cluster_is_not_joined_anew(cluster: Cluster) -> None:
    one = cluster.lead(1)
    cluster.outsider().delete("/cluster/id")
    cluster.expire(one.store)
    failure = one.wait(lambda: next((told for told in one.told if isinstance(told, PylogError)), None))
    assert f"is of cluster {one.agent.cluster_id}, but the store names no cluster" in str(failure)
    assert cluster.outsider().exists("/cluster/id") is None


def test_data_of_this_cluster_is_welcome(cluster: Cluster) -> None:
    one = cluster.lead(1)
    two = cluster.member(2, cluster_id=one.agent.cluster_id)
    two.agent.start(WAIT_S)
    two.wait_controller(1, 1)


def test_a_store_that_is_away_is_waited_for_no_longer_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "CONNECT_ATTEMPT_S", 0.05)
    registration = BrokerRegistration(1, NodeAddress(1, "h", 1), NodeAddress(1, "h", 2))
    member = Member(1, ZooKeeperStore("127.0.0.1:1"), registration, ClusterConfig())
    with pytest.raises(NotConnected, match=r"not registered within 0\.2 s"):
        member.agent.start(0.2)


def test_after_stopping_everything_is_refused(cluster: Cluster) -> None:
    one = cluster.lead(1)
    one.agent.stop()
    one.agent.stop()
    with pytest.raises(ApiError) as refused:
        one.create_topics([NewTopic("t")]).result(WAIT_S)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert cluster.outsider().children("/brokers/ids") == []


def test_requests_wait_while_the_session_is_suspended(embedded: Cluster) -> None:
    one = embedded.lead(1)
    assert isinstance(one.store, EmbeddedStore)
    one.store.suspend()
    one.wait(lambda: SessionState.SUSPENDED in one.sessions or None)
    future = one.create_topics([NewTopic("t")])
    one.store.resume()
    assert future.result(WAIT_S)[0].error is ErrorCode.NONE
    assert one.controller == ControllerInfo(1, 1, NodeAddress(1, "h1", 9192)), "it never stopped being controller"


def test_requests_that_wait_are_refused_when_the_session_is_lost(embedded: Cluster) -> None:
    one = embedded.lead(1)
    assert isinstance(one.store, EmbeddedStore)
    one.store.suspend()
    future = one.create_topics([NewTopic("t")])
    one.store.expire()
    with pytest.raises(ApiError) as refused:
        future.result(WAIT_S)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


class ForgetfulStore(EmbeddedStore):
    """A session whose connection breaks before a multi is done, or after it and before its answer came."""

    breaks_at: str = ""
    loses: Operation | None = None
    always_loses: str = ""

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        is_lost = self.always_loses and any(self.always_loses in operation.path for operation in operations)
        if is_lost or self.loses in operations:
            self.loses = None
            self.suspend()
            self.resume()
            raise NotConnected(message="the request was lost")
        results = super().multi(operations)
        if self.breaks_at and any(self.breaks_at in operation.path for operation in operations):
            self.breaks_at = ""
            self.suspend()
            self.resume()
            raise NotConnected(message="the answer was lost")
        return results


def forgetful(cluster: Cluster, tmp_path: Path) -> tuple[Member, ForgetfulStore]:
    session = cluster.make_store()
    assert isinstance(session, EmbeddedStore)
    store = ForgetfulStore(session.tree)
    member = cluster.member(1, store=store)
    member.agent.start(WAIT_S)
    member.wait(lambda: member.controller)
    return member, store


def test_a_creation_with_unknown_outcome_is_read_again_and_not_refused(embedded: Cluster, tmp_path: Path) -> None:
    one, store = forgetful(embedded, tmp_path)
    store.breaks_at = "/brokers/topics/t"
    [result] = one.create_topics([NewTopic("t", 2)]).result(WAIT_S)
    assert result.error is ErrorCode.NONE
    assert one.images[-1].topics["t"].topic_id == result.topic_id


def test_a_deletion_with_unknown_outcome_is_read_again_and_not_refused(embedded: Cluster, tmp_path: Path) -> None:
    one, store = forgetful(embedded, tmp_path)
    one.create(NewTopic("t", 2))
    for part in ("/admin/delete_topics/t", "/brokers/topics/t/partitions"):
        store.breaks_at = part
        [result] = one.delete_topics(["t"]).result(WAIT_S)
        assert result.error is ErrorCode.NONE
        assert not one.images[-1].topics
        one.create(NewTopic("t"))


def test_a_request_that_loses_the_connection_again_and_again_is_answered(embedded: Cluster, tmp_path: Path) -> None:
    one, store = forgetful(embedded, tmp_path)
    store.always_loses = "/brokers/topics/bad"
    bad, good = one.create_topics([NewTopic("bad")]), one.create_topics([NewTopic("good")])
    with pytest.raises(ApiError) as refused:
        bad.result(WAIT_S)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert good.result(WAIT_S)[0].error is ErrorCode.NONE, "those behind it are carried out"


def test_what_a_store_does_not_take_is_refused_and_the_controller_goes_on(cluster: Cluster) -> None:
    one = cluster.lead(1)
    one.create(NewTopic("t"))
    key, too_long = "leader.replication.throttled.replicas", ",".join(f"{number}:1" for number in range(150_000))
    for asked in (
        one.alter_topic_configs({"t": {key: too_long}}),
        one.create_topics([NewTopic("before"), NewTopic("large", configs={key: too_long})]),
    ):
        with pytest.raises(ApiError, match="in the cluster's store") as refused:
            asked.result(WAIT_S)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    fits = ",".join(f"{number}:1" for number in range(100_000))
    assert one.alter_topic_configs({"t": {key: fits}}).result(WAIT_S)[0].error is ErrorCode.NONE
    assert set(one.images[-1].topics) == {"t"}
    assert text(cluster.outsider(), "/config/topics/t").endswith(f'{fits}"}}}}')


def test_a_store_that_keeps_changing_underneath_is_read_again_after_the_refusal(embedded: Cluster) -> None:
    one = embedded.lead(1)
    one.create(NewTopic("t", 3))
    other, attempts = embedded.outsider(), iter("123")

    def write_past(controller: ActiveController) -> None:
        configs = f'{{"version":1,"config":{{"retention.ms":"{next(attempts)}"}}}}'
        other.set("/config/topics/t", configs.encode())  # without a notice
        raise BadVersion("/config/topics/t")

    with pytest.raises(ApiError) as refused:
        one.agent.ask(write_past).result(WAIT_S)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    one.wait_image(lambda image: image.topics["t"].configs == {"retention.ms": "3"})


def test_a_registration_with_unknown_outcome_is_recognised(embedded: Cluster, tmp_path: Path) -> None:
    session = embedded.make_store()
    assert isinstance(session, EmbeddedStore)
    store = ForgetfulStore(session.tree)
    store.breaks_at = "/brokers/ids/1"
    one = embedded.member(1, store=store)
    one.agent.start(WAIT_S)
    one.wait_controller(1, 1)


def test_a_claim_with_unknown_outcome_is_recognised(embedded: Cluster) -> None:
    session = embedded.make_store()
    assert isinstance(session, EmbeddedStore)
    store = ForgetfulStore(session.tree)
    one = embedded.member(1, store=store)
    store.breaks_at = "/controller"
    one.agent.start(WAIT_S)
    one.wait_controller(1, 1)
    one.create(NewTopic("t"))


def test_a_resignation_that_failed_is_repeated_and_no_epoch_served_twice(embedded: Cluster, tmp_path: Path) -> None:
    one, store = forgetful(embedded, tmp_path)
    one.create(NewTopic("t"))
    store.loses = Delete(znodes.CONTROLLER)
    embedded.outsider().set("/controller_epoch", b"1")
    with pytest.raises(ApiError):
        one.create_topics([NewTopic("u")]).result(WAIT_S)
    one.wait_controller(1, 2)
    orders = [image.order for image in one.images]
    assert orders == sorted(set(orders))


def test_a_broken_journal_ends_the_agent_and_says_so(tmp_path: Path) -> None:
    tree = EmbeddedTree(tmp_path)
    cluster = Cluster(tree.session, expire_embedded)
    one = cluster.lead(1)
    tree.close()
    with pytest.raises(ApiError):
        one.create_topics([NewTopic("t")]).result(WAIT_S)
    failure = one.wait(lambda: next((what for what in one.told if isinstance(what, PylogError)), None))
    assert isinstance(failure, StorageError)
    assert one.told.index(SessionState.LOST) < one.told.index(failure), "it leads nothing more before it ends"
    cluster.close()


def test_a_request_that_the_controller_stumbles_over_costs_nobody_else_anything(cluster: Cluster) -> None:
    one = cluster.lead(1)

    def stumble(controller: ActiveController) -> None:
        [planned], _ = controller.state.plan_topics([(NewTopic("half"), uuid.uuid4())])
        controller.tree.create_topics(controller.fence, [planned])
        controller.tree.store.get("/config//nobody")  # a path that no client's name should have led to

    stumbled, created = one.agent.ask(stumble), one.create_topics([NewTopic("t")])
    with pytest.raises(ApiError) as refused:
        stumbled.result(WAIT_S)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert created.result(WAIT_S)[0].error is ErrorCode.NONE
    assert set(one.images[-1].topics) == {"half", "t"}, "what was written before is read again"
    assert one.controller is not None
    assert one.controller.epoch == 1
    assert not any(isinstance(what, PylogError) for what in one.told)


def test_a_controller_without_room_refuses_changes_and_stays(tmp_path: Path) -> None:
    tree = EmbeddedTree(tmp_path)
    cluster = Cluster(tree.session, expire_embedded)
    one = cluster.lead(1)
    one.create(NewTopic("before"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "store.journal").stat().st_size + 50, hard))
    try:
        for _ in range(4):
            with pytest.raises(ApiError) as refused:
                one.create_topics([NewTopic("t")]).result(WAIT_S)
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    one.create(NewTopic("t"))
    assert set(one.images[-1].topics) == {"before", "t"}
    assert not any(isinstance(what, PylogError) for what in one.told)
    cluster.close()
    tree.close()


class RefusingStore(EmbeddedStore):
    """A session whose identity lacks the rights for what a node's path has in it."""

    closed: str = ""
    refusals = 0

    def get_many(self, paths: Iterable[str]) -> list[tuple[bytes, Stat] | None]:
        wanted = list(paths)
        self._refuse(wanted)
        return super().get_many(wanted)

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._refuse([operation.path for operation in operations])
        return super().multi(operations)

    def _refuse(self, paths: Sequence[str]) -> None:
        if self.closed and any(self.closed in path for path in paths):
            self.refusals += 1
            raise NotAllowed(self.closed)


def refusing(cluster: Cluster) -> tuple[Member, RefusingStore]:
    session = cluster.make_store()
    assert isinstance(session, EmbeddedStore)
    store = RefusingStore(session.tree)
    return cluster.member(1, store=store), store


def test_a_broker_without_rights_at_its_start_does_not_start(embedded: Cluster) -> None:
    one, store = refusing(embedded)
    store.closed = "/brokers"
    with pytest.raises(NotAllowed):
        one.agent.start(WAIT_S)


def test_a_controller_that_loses_its_rights_looks_again_now_and_then(
    embedded: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, store = refusing(embedded)
    one.agent.start(WAIT_S)
    one.wait_controller(1, 1)
    store.closed = "/brokers/topics"
    monkeypatch.setattr(agent_module, "RETRY_S", 1_000.0)
    for _ in range(3):
        with pytest.raises(ApiError) as refused:
            one.create_topics([NewTopic("t")]).result(WAIT_S)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
    # One for each request: by itself it would look again after a pause.
    assert store.refusals <= 3
    store.closed = ""
    one.create(NewTopic("t"))


def test_a_broker_that_may_not_register_again_keeps_trying(embedded: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "RETRY_S", 0.02)
    one, store = refusing(embedded)
    one.agent.start(WAIT_S)
    one.wait_controller(1, 1)
    refused = threading.Event()
    monkeypatch.setattr(store, "_refuse", _noting(store._refuse, refused))
    store.closed = "/brokers/ids"
    embedded.expire(store)
    assert refused.wait(WAIT_S)
    store.closed = ""
    one.wait_controller(1, 2)
    assert not any(isinstance(what, PylogError) for what in one.told)


def _noting(refuse: Callable[[Sequence[str]], None], refused: threading.Event) -> Callable[[Sequence[str]], None]:
    def noting(paths: Sequence[str]) -> None:
        try:
            refuse(paths)
        except NotAllowed:
            refused.set()
            raise

    return noting

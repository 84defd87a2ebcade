"""The paper's consumer: it coordinates through ZooKeeper alone, so these brokers know no consumer groups at all."""

import json
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from pylog.client import ConsumerConnector, Message, MessageSet, Producer
from pylog.client.admin.groups import GroupAdmin
from pylog.client.connection import ClientError
from pylog.client.paper.connector import ConsumerExists
from pylog.client.paper.ownership import OwnershipLost
from pylog.client.paper.registries import reset_offsets
from pylog.errors import ConfigError, CorruptRecords, OffsetOutOfRange
from pylog.model import TopicPartition
from pylog.store.zookeeper import ZooKeeperStore
from pylog.testing import BrokerProcess
from tests.cluster.conftest import write_config
from tests.consumers.conftest import PARTITIONS, MemberProcess, create_topic, produce, run_members, wait_until
from tests.consumers.test_clients import at_least_once, each_once, numbered
from tests.servers.stores import expire_zookeeper
from tests.servers.zookeeper import ZooKeeper, zk_shell

SESSION_MS = 2_000
CONFIG: dict[str, Any] = {"log.segment.bytes": 1 << 20}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper) -> Iterator[BrokerProcess]:
    """A broker that neither advertises nor answers the APIs of groups."""
    home = tmp_path_factory.mktemp("broker")
    config = write_config(home, 1, zookeeper, **CONFIG)
    with BrokerProcess(home, config_file=config, module="tests.servers.groupless") as running:
        yield running


@pytest.fixture
def start(tmp_path: Path, broker: BrokerProcess, zookeeper: ZooKeeper) -> Iterator[Callable[..., MemberProcess]]:
    """Starts consumers as processes."""
    with run_members(tmp_path, broker.bootstrap) as start_member:
        yield lambda group, topic, **options: start_member(
            "streams", group, topic, zookeeper=zookeeper.hosts, **options
        )


Connect = Callable[..., ConsumerConnector]


@pytest.fixture
def connect(broker: BrokerProcess, zookeeper: ZooKeeper) -> Iterator[Connect]:
    """Makes consumers in this process, and closes them."""
    made: list[ConsumerConnector] = []

    def connect_one(group: str, **options: Any) -> ConsumerConnector:
        own: dict[str, Any] = {"start": "smallest", "auto_commit_interval_ms": 200, "session_timeout_ms": SESSION_MS}
        made.append(ConsumerConnector(broker.bootstrap, zookeeper.hosts, group, **own | options))
        return made[-1]

    yield connect_one
    for consumer in made:
        consumer.close()


@pytest.fixture
def store(zookeeper: ZooKeeper) -> Iterator[ZooKeeperStore]:
    session = ZooKeeperStore(zookeeper.hosts)
    session.connect()
    yield session
    session.close()


class Reader(threading.Thread):
    """Reads a stream in the background and keeps what it got."""

    def __init__(self, stream: Any) -> None:
        super().__init__(daemon=True)
        self.got: list[tuple[int, int, str]] = []
        self._stream = stream
        self.start()

    def run(self) -> None:
        for message in self._stream:
            self.got.append((message.partition(), message.offset(), message.payload().decode()))

    @property
    def values(self) -> list[str]:
        return [value for _, _, value in self.got]


def committed(store: ZooKeeperStore, group: str, topic: str, partition: int = 0) -> int:
    return int(store.get(f"/consumers/{group}/offsets/{topic}/{partition}")[0])


def make_again(bootstrap: str, topic: str) -> None:
    """Delete a topic and create it again."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(15)
    create_topic(bootstrap, topic)


def zk_owners(zookeeper: ZooKeeper, group: str, topic: str) -> dict[int, str]:
    """Ask ZooKeeper's own command line who owns what."""
    path = f"/consumers/{group}/owners/{topic}"
    children, *owners = zk_shell(zookeeper.hosts, f"ls {path}", *(f"get {path}/{n}" for n in range(PARTITIONS)))
    return dict(zip(json.loads(children), owners, strict=True))


def test_the_brokers_here_refuse_groups(broker: BrokerProcess) -> None:
    with pytest.raises(ClientError, match="not supported by broker"):
        GroupAdmin(broker.bootstrap).groups()


class TestSamples:
    """F11, F12: the paper's lines, and ours."""

    def test_the_papers_sample_lines(self, broker: BrokerProcess, zookeeper: ZooKeeper) -> None:
        create_topic(broker.bootstrap, "topic1", partitions=1)
        seen = []

        producer = Producer(broker.bootstrap)
        message = Message(b"test message str")
        set = MessageSet(message)
        producer.send("topic1", set)
        producer.flush()

        consumer = ConsumerConnector(broker.bootstrap, zookeeper.hosts, "sample", start="smallest")
        streams = consumer.createMessageStreams("topic1", 1)
        for message in streams[0]:  # type: ignore[assignment]  # the paper's lines use one name for both
            bytes = message.payload()
            seen.append(bytes)
            consumer.close()
        assert seen == [b"test message str"]

    def test_in_pythons_spelling(self, broker: BrokerProcess, zookeeper: ZooKeeper) -> None:
        create_topic(broker.bootstrap, "topic2", partitions=4)
        with Producer(broker.bootstrap, acks="all", sync=True) as producer:
            producer.send("topic2", MessageSet(Message(b"%d" % number) for number in range(20)))
        got: queue.SimpleQueue[bytes] = queue.SimpleQueue()

        def read(stream: Any) -> None:
            for message in stream:
                got.put(message.payload())

        with ConsumerConnector(broker.bootstrap, zookeeper.hosts, "sample", start="smallest") as consumer:
            streams = consumer.create_message_streams({"topic2": 2})
            threads = [threading.Thread(target=read, args=(stream,)) for stream in streams["topic2"]]
            for thread in threads:
                thread.start()
            assert sorted(int(got.get(timeout=30)) for _ in range(20)) == list(range(20))
            assert Counter(consumer.owned().values()) == {stream.name: 2 for stream in streams["topic2"]}
            assert set(consumer.commit().values()) <= set(range(21))
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()


class TestGroups:
    """F49 to F54, F59, F65 to F72: who gets what."""

    def test_four_processes_one_killed(
        self,
        broker: BrokerProcess,
        zookeeper: ZooKeeper,
        topic: str,
        start: Callable[..., MemberProcess],
        store: ZooKeeperStore,
    ) -> None:
        members = [start("four", topic) for _ in range(4)]
        wait_until(lambda: all(one.events() for one in members), lambda: repr(members))
        ids = {one: one.events()[0]["consumer_id"] for one in members}

        def wait_for_owners(*alive: MemberProcess) -> None:
            path = f"/consumers/four/owners/{topic}"
            wanted = {f"{ids[one]}-0": PARTITIONS // len(alive) for one in alive}

            def owners() -> Counter[str]:
                nodes = store.get_many(f"{path}/{number}" for number in range(PARTITIONS))
                return Counter(node[0].decode() for node in nodes if node is not None)

            wait_until(lambda: owners() == wanted, lambda: f"{owners()}, wanted {wanted}: {members}")
            assert Counter(zk_owners(zookeeper, "four", topic).values()) == wanted

        wait_for_owners(*members)
        produce(broker.bootstrap, topic, numbered("all"))
        each_once(members, numbered("all"))
        assert [len(one.values) for one in members] == [10] * 4

        killed, *rest = members
        killed.kill()
        late = start("four", topic)
        wait_until(lambda: bool(late.events()), lambda: repr(late))
        ids[late] = late.events()[0]["consumer_id"]
        wait_for_owners(*rest, late)
        produce(broker.bootstrap, topic, numbered("after"))
        each_once([*rest, late], numbered("after"))

        rest[0].stop()
        rest[1].stop()
        wait_for_owners(rest[2], late)
        produce(broker.bootstrap, topic, numbered("two"))
        each_once([rest[2], late], numbered("two"))
        # Who was stopped and not killed let nothing come twice.
        each_once([*rest, late], [*numbered("after"), *numbered("two")])

    def test_two_groups_each_get_every_record(
        self, broker: BrokerProcess, topic: str, start: Callable[..., MemberProcess]
    ) -> None:
        produce(broker.bootstrap, topic, numbered("news"))
        ones, twos = [start("one", topic), start("one", topic)], [start("two", topic)]
        at_least_once(ones, numbered("news"))
        each_once(twos, numbered("news"))

    def test_new_partitions_and_topics_are_noticed(self, broker: BrokerProcess, connect: Connect) -> None:
        create_topic(broker.bootstrap, "wide-1", partitions=1)
        consumer = connect("wide")
        [stream] = consumer.create_message_streams_by_filter(r"wide-\d")
        reader = Reader(stream)
        produce(broker.bootstrap, "wide-1", ["a"], partitions=1)
        wait_until(lambda: reader.values == ["a"], lambda: repr(reader.got))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions("wide-1", 3)])["wide-1"].result(15)
        create_topic(broker.bootstrap, "wide-2", partitions=1)
        create_topic(broker.bootstrap, "wide-other", partitions=1)
        produce(broker.bootstrap, "wide-2", ["b"], partitions=1)
        wait_until(lambda: reader.values == ["a", "b"], lambda: repr(reader.got))
        wait_until(lambda: len(consumer.owned()) == 4, lambda: repr(consumer.owned()))
        produce(broker.bootstrap, "wide-1", ["x", "c", "d"], partitions=3)
        wait_until(lambda: sorted(reader.values) == ["a", "b", "c", "d", "x"], lambda: repr(reader.got))

    def test_an_owner_in_the_way_is_waited_out(
        self, broker: BrokerProcess, topic: str, connect: Connect, store: ZooKeeperStore
    ) -> None:
        """F72: all is let go, and tried again."""
        store.create(f"/consumers/way/owners/{topic}/3", b"someone-0", ephemeral=True, make_parents=True)
        produce(broker.bootstrap, topic, numbered("way"))
        consumer = connect("way")
        reader = Reader(consumer.createMessageStreams(topic, 1)[0])
        wait_until(lambda: consumer._failed_attempts > 2, "it tries again")
        assert (store.children(f"/consumers/way/owners/{topic}"), reader.got) == (["3"], [])
        store.delete(f"/consumers/way/owners/{topic}/3")
        wait_until(lambda: len(reader.got) == len(numbered("way")), lambda: repr(reader.got))
        assert sorted(reader.values) == sorted(numbered("way"))

    def test_a_second_consumer_with_the_same_id_is_refused(self, topic: str, connect: Connect) -> None:
        first = connect("ids", consumer_id="same")
        first.createMessageStreams(topic, 1)
        with pytest.raises(ConsumerExists, match="/consumers/ids/ids/ids_same"):
            connect("ids", consumer_id="same", session_timeout_ms=1_000).createMessageStreams(topic, 1)
        wait_until(lambda: len(first.owned()) == PARTITIONS, "the first is left alone")

    def test_bad_arguments_are_named(self, connect: Connect) -> None:
        for wrong in ({"start": "middle"}, {"offsets_in": "memory"}, {"consumer_id": "a/b"}):
            with pytest.raises(ConfigError, match="wanted"):
                connect("bad", **wrong)
        with pytest.raises(ConfigError, match="group 'a/b'"):
            connect("a/b")
        consumer = connect("bad")
        with pytest.raises(ConfigError, match="pattern"):
            consumer.create_message_streams_by_filter("(")
        with pytest.raises(ConfigError, match="streams"):
            consumer.createMessageStreams("t", 0)


class TestOffsets:
    """F41, F43, F48, F68, F73, F74: where reading begins and goes on."""

    def test_a_new_group_begins_at_the_largest_unless_told(
        self, broker: BrokerProcess, topic: str, connect: Connect
    ) -> None:
        produce(broker.bootstrap, topic, numbered("old"))
        consumer = connect("largest", start="largest")
        reader = Reader(consumer.createMessageStreams(topic, 1)[0])
        wait_until(lambda: len(consumer.owned()) == PARTITIONS, "it has its partitions")
        consumer.close()
        # What is written while nobody reads belongs to the group from its first claim on.
        produce(broker.bootstrap, topic, numbered("new"))
        again = Reader(connect("largest", start="largest").createMessageStreams(topic, 1)[0])
        wait_until(lambda: len(again.got) == len(numbered("new")), lambda: repr(again.got))
        assert (sorted(again.values), reader.values) == (sorted(numbered("new")), [])

    def test_the_smallest_offset_not_stored_yet_is_committed(
        self, broker: BrokerProcess, topic: str, connect: Connect, store: ZooKeeperStore
    ) -> None:
        """As the paper's full-text indexer does, which has many messages in memory."""
        produce(broker.bootstrap, topic, numbered("index", 20), partitions=1)
        consumer = connect("indexer", auto_commit_interval_ms=0)
        messages = iter(consumer.createMessageStreams(topic, 1)[0])
        for _ in range(12):
            message = next(messages)
        where = message.topic_partition()
        assert consumer.commit({where: 5}) == {where: 5}
        assert committed(store, "indexer", topic) == 5
        assert consumer.commit({where: 3}) == {where: 5}
        with pytest.raises(ConfigError, match="offset 13, and only 12 is handed out"):
            consumer.commit({where: 13})
        with pytest.raises(OwnershipLost, match="other-0"):
            consumer.commit({TopicPartition("other", 0): 1})
        assert consumer.commit()[where] == 12
        consumer.close()
        assert committed(store, "indexer", topic) == 12
        assert next(iter(connect("indexer").createMessageStreams(topic, 1)[0])).offset() == 12

    def test_without_automatic_commits_nothing_is_committed(
        self, broker: BrokerProcess, topic: str, connect: Connect, store: ZooKeeperStore
    ) -> None:
        produce(broker.bootstrap, topic, numbered("none", 5), partitions=1)
        consumer = connect("manual", auto_commit_interval_ms=0)
        reader = Reader(consumer.createMessageStreams(topic, 1)[0])
        wait_until(lambda: len(reader.got) == 5, lambda: repr(reader.got))
        consumer.close()
        assert committed(store, "manual", topic) == 0

    def test_a_replay_begins_where_the_group_is_reset_to(
        self, broker: BrokerProcess, topic: str, connect: Connect, store: ZooKeeperStore
    ) -> None:
        produce(broker.bootstrap, topic, numbered("bug", 10), partitions=1)
        consumer = connect("replay")
        first = Reader(consumer.createMessageStreams(topic, 1)[0])
        wait_until(lambda: len(first.got) == 10, lambda: repr(first.got))
        with pytest.raises(ConfigError, match="has consumers"):
            reset_offsets(store, "replay", {TopicPartition(topic, 0): 4})
        consumer.close()
        reset_offsets(store, "replay", {TopicPartition(topic, 0): 4})
        second = Reader(connect("replay").createMessageStreams(topic, 1)[0])
        wait_until(lambda: len(second.got) == 6, lambda: repr(second.got))
        assert second.values == numbered("bug", 10)[4:]

    def test_a_topic_made_again_is_read_from_its_beginning_by_a_group_that_was_away(
        self, broker: BrokerProcess, topic: str, connect: Connect, store: ZooKeeperStore
    ) -> None:
        produce(broker.bootstrap, topic, numbered("former", 10), partitions=1)
        consumer = connect("made-again-away", start="smallest")
        first = Reader(consumer.createMessageStreams(topic, 1)[0])
        wait_until(lambda: len(first.got) == 10, lambda: repr(first.got))
        consumer.close()
        assert committed(store, "made-again-away", topic) == 10
        make_again(broker.bootstrap, topic)
        produce(broker.bootstrap, topic, numbered("present", 30), partitions=2)
        second = Reader(connect("made-again-away", start="largest").createMessageStreams(topic, 1)[0])
        wait_until(lambda: len(second.got) == 30, lambda: repr(second.got))
        assert sorted(second.values) == sorted(numbered("present", 30))

    def test_a_topic_made_again_is_read_from_its_beginning_by_consumers_that_run(
        self, broker: BrokerProcess, topic: str, connect: Connect, store: ZooKeeperStore
    ) -> None:
        produce(broker.bootstrap, topic, numbered("former", 20), partitions=2)
        readers = [Reader(connect("made-again").createMessageStreams(topic, 1)[0]) for _ in range(2)]

        def values() -> set[str]:
            return {value for reader in readers for value in reader.values}

        wait_until(lambda: values() == set(numbered("former", 20)), lambda: repr(values()))
        make_again(broker.bootstrap, topic)
        produce(broker.bootstrap, topic, numbered("present", 60), partitions=2)
        wait_until(lambda: values() >= set(numbered("present", 60)), lambda: repr(values()))
        wait_until(
            lambda: [committed(store, "made-again", topic, number) for number in range(2)] == [30, 30], "they commit"
        )

    def test_a_deserializer_makes_the_payload(self, broker: BrokerProcess, topic: str, connect: Connect) -> None:
        with Producer(broker.bootstrap, serializer=lambda payload: json.dumps(payload).encode()) as producer:
            producer.send(topic, Message({"user": 7}, key=b"k", headers=[("h", b"1")]))
        consumer = connect("json", deserializer=lambda data: json.loads(data or b"null"))
        message = next(iter(consumer.createMessageStreams(topic, 1)[0]))
        assert (message.payload(), message.key(), message.headers()) == ({"user": 7}, b"k", (("h", b"1"),))


class TestFaults:
    def test_t21_rebalance_storm(self, broker: BrokerProcess, connect: Connect) -> None:
        """Consumers come and go in good order, so that every record comes once: two owners would show as two copies."""
        topic, partitions = "storm-of-streams", 40
        create_topic(broker.bootstrap, topic, partitions)
        values = numbered("storm", 100 * 60)
        chance = random.Random(21)
        running: list[tuple[ConsumerConnector, Reader]] = []
        readers: list[Reader] = []

        def join() -> None:
            consumer = connect("storm", backoff_ms=20)
            reader = Reader(consumer.createMessageStreams(topic, 1)[0])
            running.append((consumer, reader))
            readers.append(reader)

        for first in range(0, len(values), 100):
            produce(broker.bootstrap, topic, values[first : first + 100], partitions)
            join()
            for _ in range(chance.randrange(3) if len(running) > 5 else 0):
                running.pop(chance.randrange(len(running)))[0].close()
        wait_until(
            lambda: sum(len(one.got) for one in readers) >= len(values),
            lambda: repr(Counter(len(one.got) for one in readers)),
        )
        each_once(readers, values)  # type: ignore[arg-type]
        assert len(readers) == 60
        alive = [consumer for consumer, _ in running]
        wait_until(lambda: sum(len(one.owned()) for one in alive) == partitions, "every partition is owned")
        assert len({partition for one in alive for partition in one.owned()}) == partitions

    def test_t22_consumer_crash_between_process_and_commit(
        self, broker: BrokerProcess, topic: str, start: Callable[..., MemberProcess], store: ZooKeeperStore
    ) -> None:
        produce(broker.bootstrap, topic, numbered("crash", 200))
        first = start("crash", topic, auto_commit_interval_ms="0")
        wait_until(lambda: len(first.values) == 200, lambda: repr(first))
        first.kill()
        second = start("crash", topic)
        each_once([second], numbered("crash", 200))
        wait_until(
            lambda: sum(committed(store, "crash", topic, number) for number in range(PARTITIONS)) == 200, "it commits"
        )
        second.kill()
        produce(broker.bootstrap, topic, numbered("next"))
        third = start("crash", topic)
        each_once([third], numbered("next"))
        assert not [value for value in third.values if value.startswith("crash")]

    def test_t23_slow_consumer_past_retention(
        self, broker: BrokerProcess, topic: str, connect: Connect, store: ZooKeeperStore
    ) -> None:
        produce(broker.bootstrap, topic, numbered("slow", 30), partitions=1)
        where = TopicPartition(topic, 0)
        for group in ("slow", "strict"):
            reset_offsets(store, group, {where: 3})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        [deleted] = admin.delete_records([Partition(topic, 0, 20)]).values()
        deleted.result(15)
        gaps: list[tuple[TopicPartition, int, int]] = []
        reader = Reader(connect("slow", on_gap=lambda *gap: gaps.append(gap)).createMessageStreams(topic, 1)[0])
        wait_until(lambda: len(reader.got) == 10, lambda: repr(reader.got))
        assert gaps == [(where, 3, 20)]
        assert reader.values == numbered("slow", 30)[20:]
        with pytest.raises(OffsetOutOfRange, match="offset 3 is not there"):
            next(iter(connect("strict", start="error").createMessageStreams(topic, 1)[0]))

    def test_a_lost_session_begins_anew_and_delivers_at_most_what_was_in_flight_again(
        self, broker: BrokerProcess, topic: str, connect: Connect, zookeeper: ZooKeeper
    ) -> None:
        first, second = connect("session"), connect("session")
        readers = [Reader(one.createMessageStreams(topic, 1)[0]) for one in (first, second)]
        values = numbered("session", 3_000)
        for at in range(0, len(values), 300):
            produce(broker.bootstrap, topic, values[at : at + 300])
            store = random.Random(at).choice([first, second])._store
            wait_until(lambda store=store: store._client.client_id, "it has a session")
            expire_zookeeper(store)
        wait_until(
            lambda: {value for one in readers for value in one.values} >= set(values),
            lambda: repr([len(one.got) for one in readers]),
        )
        wait_until(lambda: len(first.owned()) == len(second.owned()) == PARTITIONS // 2, "both have their share")
        assert not first.owned().keys() & second.owned().keys()
        assert len(zk_owners(zookeeper, "session", topic)) == PARTITIONS
        produce(broker.bootstrap, topic, numbered("calm"))
        each_once(readers, numbered("calm"))  # type: ignore[arg-type]

    @pytest.mark.parametrize("step", ["before the claim", "after the claim", "before the release"])
    def test_a_session_lost_in_the_middle_of_a_rebalance(
        self, broker: BrokerProcess, topic: str, connect: Connect, zookeeper: ZooKeeper, step: str
    ) -> None:
        """Whatever of a rebalance is done by then is undone or done again; nobody owns what another one owns."""
        group = step.replace(" ", "-")
        produce(broker.bootstrap, topic, numbered("before"))
        first = connect(group)
        readers = [Reader(first.createMessageStreams(topic, 1)[0])]
        wait_until(lambda: len(readers[0].got) == len(numbered("before")), lambda: repr(readers[0].got))
        second = connect(group)
        loser = first if step == "before the release" else second
        act = loser._ownership.release if loser is first else loser._ownership.claim
        expired: list[object] = []

        def once(*arguments: Any) -> Any:
            if expired:
                return act(*arguments)
            expired.append(step)
            if step.startswith("before"):
                expire_zookeeper(loser._store)
                return act(*arguments)
            done = act(*arguments)
            expire_zookeeper(loser._store)
            return done

        setattr(loser._ownership, act.__name__, once)
        readers.append(Reader(second.createMessageStreams(topic, 1)[0]))
        wait_until(
            lambda: len(first.owned()) == len(second.owned()) == PARTITIONS // 2,
            lambda: f"{first.owned()} {second.owned()}",
        )
        assert expired
        assert not first.owned().keys() & second.owned().keys()
        wait_until(lambda: len(zk_owners(zookeeper, group, topic)) == PARTITIONS, "each partition has an owner")
        produce(broker.bootstrap, topic, numbered("calm"))
        each_once(readers, numbered("calm"))  # type: ignore[arg-type]

    def test_a_frozen_owner_commits_nothing_when_it_wakes(
        self,
        broker: BrokerProcess,
        topic: str,
        start: Callable[..., MemberProcess],
        connect: Connect,
        store: ZooKeeperStore,
    ) -> None:
        """SIGSTOP is what a machine that stalls looks like: its session ends, another takes over, it wakes up."""
        produce(broker.bootstrap, topic, numbered("one", 500), partitions=1)
        frozen = start("frozen", topic, linger_ms="10")
        wait_until(lambda: len(frozen.values) > 5, lambda: repr(frozen))
        frozen.freeze()
        other = connect("frozen")
        reader = Reader(other.createMessageStreams(topic, 1)[0])
        wait_until(lambda: reader.values[-1:] == numbered("one", 500)[-1:], lambda: repr(len(reader.got)))
        wait_until(lambda: committed(store, "frozen", topic) == 500, "the other commits")
        other.close()
        before = len(frozen.values)
        frozen.thaw()
        produce(broker.bootstrap, topic, ["end"], partitions=1)
        wait_until(lambda: frozen.values[-1:] == ["end"], lambda: repr(frozen))
        # At most the messages that it had fetched were delivered twice; what came after was not, and no offset moved.
        assert len(frozen.values) - before <= 500 + 1
        assert frozen.values.count("end") == 1
        wait_until(lambda: committed(store, "frozen", topic) == 501, "it commits again")
        assert not set(numbered("one", 500)) - set(reader.values) - set(frozen.values[:before])

    def test_a_damaged_batch_is_not_handed_out(self, broker: BrokerProcess, connect: Connect) -> None:
        """F78: the CRC is checked on the way out as well."""
        create_topic(broker.bootstrap, "damaged", partitions=1)
        produce(broker.bootstrap, "damaged", ["a" * 50], partitions=1)
        [log] = broker.data_dir.glob("damaged-0/*.log")
        data = bytearray(log.read_bytes())
        data[data.index(b"a" * 50)] ^= 1
        log.write_bytes(data)
        with pytest.raises(CorruptRecords, match="damaged-0 at offset 0"):
            next(iter(connect("damaged").createMessageStreams("damaged", 1)[0]))
        trusting = connect("trusting", check_crcs=False).createMessageStreams("damaged", 1)[0]
        assert next(iter(trusting)).payload() == b"`" + b"a" * 49

    def test_zookeeper_away_for_a_while(
        self, broker: BrokerProcess, topic: str, connect: Connect, zookeeper: ZooKeeper
    ) -> None:
        consumer = connect("away")
        reader = Reader(consumer.createMessageStreams(topic, 1)[0])
        produce(broker.bootstrap, topic, numbered("before"))
        wait_until(lambda: len(reader.got) == len(numbered("before")), lambda: repr(reader.got))
        zookeeper.stop()
        wait_until(lambda: not consumer._is_connected, "it notices")
        produce(broker.bootstrap, topic, numbered("while"))
        time.sleep(0.5)  # nothing may come, however long one waits
        assert len(reader.got) == len(numbered("before"))
        zookeeper.start()
        wait_until(lambda: set(reader.values) >= set(numbered("while")), lambda: repr(reader.got))

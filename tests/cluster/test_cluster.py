"""Three brokers and a real ZooKeeper: one image everywhere, any broker answers, the controller may die."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.testing import BrokerProcess
from tests.servers.zookeeper import ZooKeeper, free_ports, zk_cli

DEADLINE_S = 30.0


def write_config(directory: Path, broker_id: int, zookeeper: ZooKeeper, secret: bytes = b"hush") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    client, internal = free_ports(2)
    (directory / "secret").write_bytes(secret)
    config = {
        "version": 1,
        "broker_id": broker_id,
        "listeners": {
            "client": {"host": "127.0.0.1", "port": client},
            "internal": {"host": "127.0.0.1", "port": internal},
        },
        "data_dir": str(directory / "data"),
        "admin_socket": str(directory / "data" / "admin.sock"),
        "store": {"kind": "zookeeper", "hosts": zookeeper.hosts, "session_timeout_ms": 2000},
        "cluster_secret_file": str(directory / "secret"),
        "config": {"num.partitions": 6},
    }
    path = directory / "broker.yml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper) -> Iterator[dict[int, BrokerProcess]]:
    directory = tmp_path_factory.mktemp("brokers")
    with ExitStack() as stack:
        found = {}
        for broker_id in (1, 2, 3):
            home = directory / str(broker_id)
            config = write_config(home, broker_id, zookeeper)
            found[broker_id] = stack.enter_context(BrokerProcess(home, config_file=config))
        yield found


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.05)


def bootstrap(brokers: dict[int, BrokerProcess]) -> str:
    return ",".join(broker.bootstrap for broker in brokers.values())


def controller_of(broker: BrokerProcess) -> int:
    return int(broker.admin("GET", "/status")[1]["controller_id"])


def create(brokers: dict[int, BrokerProcess], topic: str, through: BrokerProcess, partitions: int = 6) -> None:
    admin = AdminClient({"bootstrap.servers": through.bootstrap})
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1)
    admin.create_topics([wanted], operation_timeout=20)[topic].result(30)


def produce(brokers: dict[int, BrokerProcess], topic: str, partitions: range, count: int) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap(brokers), "acks": "all", "message.timeout.ms": 30_000})
    for number in range(count):
        producer.produce(
            topic,
            key=str(number),
            value=f"{topic} {number}",
            partition=partitions[number % len(partitions)],
            on_delivery=lambda error, message: failures.append(error) if error else None,
        )
    assert producer.flush(40) == 0
    assert not failures


def consume(brokers: dict[int, BrokerProcess], topic: str, partitions: int, count: int) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap(brokers),
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[str] = []
    deadline_s = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline_s:
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            found.append(message.value().decode())
    consumer.close()
    return sorted(found)


def test_every_broker_answers_and_passes_changes_on(brokers: dict[int, BrokerProcess]) -> None:
    controllers = {controller_of(broker) for broker in brokers.values()}
    assert len(controllers) == 1
    [controller] = controllers
    for broker_id, broker in brokers.items():
        create(brokers, f"through-{broker_id}", broker)
    other = next(broker for broker_id, broker in brokers.items() if broker_id != controller)
    admin = AdminClient({"bootstrap.servers": other.bootstrap})
    wanted = {f"through-{broker_id}" for broker_id in brokers}
    wait_for(lambda: wanted <= set(admin.list_topics(timeout=10).topics), "every topic is in every broker's image")
    leaders = {row.leader for row in admin.list_topics(timeout=10).topics["through-1"].partitions.values()}
    assert leaders == set(brokers), "six partitions are spread over three brokers"
    produce(brokers, "through-1", range(6), 600)
    assert consume(brokers, "through-1", 6, 600) == sorted(f"through-1 {number}" for number in range(600))


def test_zookeeper_holds_kafkas_layout(brokers: dict[int, BrokerProcess], zookeeper: ZooKeeper) -> None:
    create(brokers, "layout", brokers[1], partitions=1)
    node = json.loads(zk_cli(zookeeper.hosts, "get", "/brokers/ids/1").strip().splitlines()[-1])
    assert node["version"] == 5
    assert node["port"] == int(brokers[1].bootstrap.rpartition(":")[2])
    state = json.loads(zk_cli(zookeeper.hosts, "get", "/brokers/topics/layout/partitions/0/state").splitlines()[-1])
    assert state["leader"] in brokers
    assert state["isr"] == [state["leader"]]


def test_topics_are_made_on_first_use_through_any_broker(brokers: dict[int, BrokerProcess]) -> None:
    produce(brokers, "on-first-use", range(1), 10)
    assert len(consume(brokers, "on-first-use", 1, 10)) == 10


def test_a_deleted_topic_leaves_no_data_and_may_come_again(brokers: dict[int, BrokerProcess]) -> None:
    create(brokers, "gone", brokers[2], partitions=3)
    produce(brokers, "gone", range(3), 30)
    admin = AdminClient({"bootstrap.servers": brokers[3].bootstrap})
    admin.delete_topics(["gone"], operation_timeout=20)["gone"].result(30)
    wait_for(
        lambda: not [path for broker in brokers.values() for path in broker.data_dir.glob("gone-*")],
        "the directories of the deleted topic go",
    )
    create(brokers, "gone", brokers[1], partitions=3)
    assert consume(brokers, "gone", 3, 0) == []
    produce(brokers, "gone", range(3), 9)
    assert len(consume(brokers, "gone", 3, 9)) == 9


def test_producer_ids_differ_between_brokers(brokers: dict[int, BrokerProcess]) -> None:
    create(brokers, "idempotent", brokers[1], partitions=3)
    for broker in brokers.values():
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for number in range(30):
            producer.produce("idempotent", value=str(number), partition=number % 3)
        assert producer.flush(20) == 0
    assert len(consume(brokers, "idempotent", 3, 90)) == 90


def test_replication_is_refused_until_it_is_built(brokers: dict[int, BrokerProcess]) -> None:
    admin = AdminClient({"bootstrap.servers": brokers[1].bootstrap})
    with pytest.raises(KafkaException, match="replication is not built"):
        admin.create_topics([NewTopic("three", 1, 3)])["three"].result(20)


def test_the_controllers_death_moves_its_duties(brokers: dict[int, BrokerProcess]) -> None:
    create(brokers, "before", brokers[1])
    produce(brokers, "before", range(6), 60)
    old = controller_of(brokers[1])
    survivors = {broker_id: broker for broker_id, broker in brokers.items() if broker_id != old}
    brokers[old].kill()
    wait_for(
        lambda: all(controller_of(broker) in survivors for broker in survivors.values()),
        "another controller is elected",
    )
    create(survivors, "after", next(iter(survivors.values())))
    produce(survivors, "after", range(6), 60)
    brokers[old].start()
    wait_for(lambda: brokers[old].admin("GET", "/ready")[0] == 200, "the killed broker is ready again")
    assert len(consume(brokers, "after", 6, 60)) == 60
    assert len(consume(brokers, "before", 6, 60)) == 60, "what the killed broker had acknowledged is still there"


def test_a_peer_without_the_secret_gets_nothing(
    brokers: dict[int, BrokerProcess], zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    stranger = BrokerProcess(tmp_path, config_file=write_config(tmp_path, 9, zookeeper, secret=b"wrong"))
    with stranger:
        status, answer = stranger.admin("GET", "/ready")
        assert (status, answer["ready"]) == (503, False)
        assert "does not know the cluster secret" in stranger.log


def test_data_of_another_cluster_is_refused_with_both_ids(
    brokers: dict[int, BrokerProcess], zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    config = write_config(tmp_path, 8, zookeeper)
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=0\nbroker.id=8\ncluster.id=elsewhere-1234567890abc\n")
    with pytest.raises(RuntimeError) as caught, BrokerProcess(tmp_path, config_file=config):
        pass
    assert "elsewhere-1234567890abc" in str(caught.value)
    assert brokers[1].admin("GET", "/status")[1]["cluster_id"] in str(caught.value)

"""Partitions move to other brokers under load, and nothing acknowledged is lost on the way."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonPartition

from pylog.client.admin.cluster import Admin
from pylog.errors import ErrorCode
from pylog.model import TopicPartition
from tests.cluster.conftest import Brokers, bootstrap, controller_of, isrs, leaders, wait_for, wait_known
from tests.cluster.history import Load
from tests.cluster.test_replication import check
from tests.servers.kafka import REASSIGN_PARTITIONS, java_tool
from tests.servers.zookeeper import ZooKeeper, zk_cli

RATE = 400_000


def create_on(brokers: Brokers, topic: str, assignment: list[list[int]], **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(brokers)})
    wanted = NewTopic(topic, num_partitions=len(assignment), replica_assignment=assignment, config=configs)
    admin.create_topics([wanted], operation_timeout=20)[topic].result(30)
    wait_known(admin, topic)


def replicas(brokers: Brokers, topic: str) -> dict[int, tuple[int, ...]]:
    view = Admin(bootstrap(brokers)).topic(topic)
    return {one.partition: one.replicas for one in view.partitions}


def wait_moved(brokers: Brokers, topic: str) -> None:
    admin = Admin(bootstrap(brokers))
    wait_for(lambda: not [key for key in admin.reassignments() if key.topic == topic], f"{topic} has arrived")


def directories(brokers: Brokers, topic: str) -> set[int]:
    return {one for one, broker in brokers.items() if (broker.data_dir / f"{topic}-0").exists()}


@pytest.fixture
def throttled(brokers: Brokers) -> Iterator[None]:
    def set_rates(operation: AlterConfigOpType) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap(brokers)})
        names = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
        for one in brokers:
            entries = [ConfigEntry(name, str(RATE), incremental_operation=operation) for name in names]
            resource = ConfigResource(ResourceType.BROKER, str(one), incremental_configs=entries)
            admin.incremental_alter_configs([resource])[resource].result(20)

    set_rates(AlterConfigOpType.SET)
    yield
    set_rates(AlterConfigOpType.DELETE)


def test_a_partition_moves_with_its_leader_under_load(brokers: Brokers, zookeeper: ZooKeeper) -> None:
    create_on(brokers, "move", [[1, 2]], **{"min.insync.replicas": "2"})
    with Load(bootstrap(brokers), "move", 1, **{"enable.idempotence": True}) as load:
        wait_for(lambda: load.acknowledged > 1000, "some records")
        assert Admin(bootstrap(brokers)).reassign_partitions({TopicPartition("move", 0): [3, 2]}) == {
            TopicPartition("move", 0): None
        }
        wait_moved(brokers, "move")
        wait_for(lambda: leaders(brokers, "move") == {0: 3}, "the leader has moved")
        before = load.acknowledged
        wait_for(lambda: load.acknowledged > before + 300, "writes go on")
    history = load.read_back()
    check(history)
    assert not any(history.failed.values())
    assert not history.doubled()
    wait_for(lambda: replicas(brokers, "move") == {0: (3, 2)}, "every broker has heard of it")
    wait_for(lambda: directories(brokers, "move") == {2, 3}, "the broker that it left has deleted it")
    wait_for(
        lambda: "leaving" not in zk_cli(zookeeper.hosts, "get", "/brokers/topics/move"), "the order is carried out"
    )
    assert not list(brokers[1].data_dir.glob("move-0*-stray")), "what an order names is not set aside"


def test_a_move_waits_for_a_broker_that_is_away_and_for_a_new_controller(
    brokers: Brokers, zookeeper: ZooKeeper
) -> None:
    controller = controller_of(brokers[1])
    away = next(one for one in brokers if one != controller)
    stays = next(one for one in brokers if one not in (controller, away))
    create_on(brokers, "later", [[stays]])
    with Load(bootstrap(brokers), "later", 1) as load:
        wait_for(lambda: load.acknowledged > 300, "some records")
    # It must be registered to be chosen, and gone before it has anything.
    admin = Admin(bootstrap(brokers))
    brokers[away].kill()
    wanted = {TopicPartition("later", 0): [away]}
    assert admin.reassign_partitions(wanted)[TopicPartition("later", 0)] is None
    found = admin.reassignments([TopicPartition("later", 0)])[TopicPartition("later", 0)]
    assert (found.adding, found.removing, found.target) == ((away,), (stays,), (away,))
    written = zk_cli(zookeeper.hosts, "get", "/brokers/topics/later")
    assert f'"adding_replicas":{{"0":[{away}]}},"removing_replicas":{{"0":[{stays}]}}' in written
    brokers[controller].kill()
    wait_for(lambda: controller_of(brokers[stays]) == stays, "the last one is controller")
    assert admin.reassignments()[TopicPartition("later", 0)] == found
    brokers[away].start()
    wait_moved(brokers, "later")
    brokers[controller].start()
    wait_for(lambda: leaders(brokers, "later") == {0: away}, "it leads")
    wait_for(lambda: isrs(brokers, "later") == {0: {away}}, "it is alone")
    check(load.read_back())
    wait_for(lambda: directories(brokers, "later") == {away}, "the broker that it left has deleted it")


def test_a_move_is_called_off(brokers: Brokers, throttled: None) -> None:
    limits = dict.fromkeys(("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"), "*")
    create_on(brokers, "back", [[1]], **limits)
    fill(brokers, "back", 20 * RATE)
    admin = Admin(bootstrap(brokers))
    key = TopicPartition("back", 0)
    assert admin.reassign_partitions({key: [2]})[key] is None
    wait_for(lambda: 2 in directories(brokers, "back"), "it has begun")
    assert admin.reassign_partitions({key: None})[key] is None
    assert admin.reassignments() == {}
    wait_for(lambda: replicas(brokers, "back") == {0: (1,)}, "every broker has heard of it")
    wait_for(lambda: directories(brokers, "back") == {1}, "what had come is deleted again")
    refused = admin.reassign_partitions({key: None})[key]
    assert refused is not None
    assert refused.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_throttled_replicas_take_their_time_and_others_do_not(brokers: Brokers, throttled: None) -> None:
    limited = {"follower.replication.throttled.replicas": "0:2", "leader.replication.throttled.replicas": "0:1"}
    seconds: dict[str, float] = {}
    for topic, configs in (("slow", limited), ("fast", {})):
        create_on(brokers, topic, [[1]], **configs)
        fill(brokers, topic, 4 * RATE)
        began_s = time.monotonic()
        Admin(bootstrap(brokers)).reassign_partitions({TopicPartition(topic, 0): [2]})
        wait_moved(brokers, topic)
        seconds[topic] = time.monotonic() - began_s
    print(seconds)
    assert seconds["slow"] > 2, "3 of 4 parts come at the rate, after what may be sent at once"
    assert seconds["fast"] < seconds["slow"]


def test_kafkas_own_tool_moves_partitions_and_takes_its_throttles_off(brokers: Brokers, tmp_path: Path) -> None:
    create_on(brokers, "java", [[1, 2], [2, 3]])
    plan = tmp_path / "plan.json"
    rows = [
        {"topic": "java", "partition": 0, "replicas": [3, 2]},
        {"topic": "java", "partition": 1, "replicas": [2, 1]},
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))

    def tool(*arguments: str) -> str:
        base = ("--bootstrap-server", bootstrap(brokers), "--reassignment-json-file", str(plan))
        return java_tool(REASSIGN_PARTITIONS, *base, *arguments).decode()

    begun = tool("--execute", "--throttle", "10000000")
    assert "Successfully started partition reassignments for java-0,java-1" in begun, begun
    wait_moved(brokers, "java")
    verified = tool("--verify")
    assert "Reassignment of partition java-0 is completed" in verified, verified
    assert "Clearing broker-level throttles" in verified, verified
    wait_for(lambda: replicas(brokers, "java") == {0: (3, 2), 1: (2, 1)}, "every broker has heard of it")
    config = Admin(bootstrap(brokers)).topic_config("java")
    assert not config["leader.replication.throttled.replicas"].is_own


def fill(brokers: Brokers, topic: str, size: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap(brokers), "acks": 1})
    for _ in range(size // 1000):
        producer.produce(topic, b"x" * 1000, partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0


def test_kafka_python_moves_partitions_and_calls_moves_off(brokers: Brokers, throttled: None) -> None:
    limits = dict.fromkeys(("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"), "*")
    create_on(brokers, "python", [[1]], **limits)
    fill(brokers, "python", 20 * RATE)
    client = KafkaAdminClient(bootstrap_servers=bootstrap(brokers).split(","))
    try:
        key = PythonPartition("python", 0)
        client.alter_partition_reassignments({key: [2]})
        listed = str(client.list_partition_reassignments([key]))
        assert "python" in listed, listed
        client.alter_partition_reassignments({key: None})
        assert "python" not in str(client.list_partition_reassignments())
    finally:
        client.close()

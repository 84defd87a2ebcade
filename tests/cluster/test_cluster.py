"""Three brokers and a real ZooKeeper: one image everywhere, any broker answers, the controller may die."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.testing import BrokerProcess
from tests.cluster.conftest import DEADLINE_S, Brokers, bootstrap, controller_of, create, wait_for, write_config
from tests.servers.zookeeper import ZooKeeper, zk_cli


def produce(brokers: Brokers, topic: str, partitions: range, count: int) -> None:
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


def consume(brokers: Brokers, topic: str, partitions: int, count: int) -> list[str]:
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
            found.append((message.value() or b"").decode())
    consumer.close()
    return sorted(found)


def test_every_broker_answers_and_passes_changes_on(brokers: Brokers) -> None:
    controllers = {controller_of(broker) for broker in brokers.values()}
    assert len(controllers) == 1
    [controller] = controllers
    for broker_id, broker in brokers.items():
        create(broker, f"through-{broker_id}", 6)
    other = next(broker for broker_id, broker in brokers.items() if broker_id != controller)
    admin = AdminClient({"bootstrap.servers": other.bootstrap})
    wanted = {f"through-{broker_id}" for broker_id in brokers}
    wait_for(lambda: wanted <= set(admin.list_topics(timeout=10).topics), "every topic is in every broker's image")
    leaders = {row.leader for row in admin.list_topics(timeout=10).topics["through-1"].partitions.values()}
    assert leaders == set(brokers), "six partitions are spread over three brokers"
    produce(brokers, "through-1", range(6), 600)
    assert consume(brokers, "through-1", 6, 600) == sorted(f"through-1 {number}" for number in range(600))


def test_zookeeper_holds_kafkas_layout(brokers: Brokers, zookeeper: ZooKeeper) -> None:
    create(brokers[1], "layout", 1)
    node = json.loads(zk_cli(zookeeper.hosts, "get", "/brokers/ids/1").strip().splitlines()[-1])
    assert node["version"] == 5
    assert node["port"] == int(brokers[1].bootstrap.rpartition(":")[2])
    state = json.loads(zk_cli(zookeeper.hosts, "get", "/brokers/topics/layout/partitions/0/state").splitlines()[-1])
    assert state["leader"] in brokers
    assert state["isr"] == [state["leader"]]


def test_topics_are_made_on_first_use_through_any_broker(brokers: Brokers) -> None:
    produce(brokers, "on-first-use", range(1), 10)
    assert len(consume(brokers, "on-first-use", 1, 10)) == 10


def test_a_deleted_topic_leaves_no_data_and_may_come_again(brokers: Brokers) -> None:
    create(brokers[2], "gone", 3)
    produce(brokers, "gone", range(3), 30)
    admin = AdminClient({"bootstrap.servers": brokers[3].bootstrap})
    admin.delete_topics(["gone"], operation_timeout=20)["gone"].result(30)
    wait_for(
        lambda: not [path for broker in brokers.values() for path in broker.data_dir.glob("gone-*")],
        "the directories of the deleted topic go",
    )
    create(brokers[1], "gone", 3)
    assert consume(brokers, "gone", 3, 0) == []
    produce(brokers, "gone", range(3), 9)
    assert len(consume(brokers, "gone", 3, 9)) == 9


def test_producer_ids_differ_between_brokers(brokers: Brokers) -> None:
    create(brokers[1], "idempotent", 3)
    for broker in brokers.values():
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for number in range(30):
            producer.produce("idempotent", value=str(number), partition=number % 3)
        assert producer.flush(20) == 0
    assert len(consume(brokers, "idempotent", 3, 90)) == 90


def test_the_controllers_death_moves_its_duties(brokers: Brokers) -> None:
    create(brokers[1], "before", 6)
    produce(brokers, "before", range(6), 60)
    old = controller_of(brokers[1])
    survivors = {broker_id: broker for broker_id, broker in brokers.items() if broker_id != old}
    brokers[old].kill()
    wait_for(
        lambda: all(controller_of(broker) in survivors for broker in survivors.values()),
        "another controller is elected",
    )
    create(next(iter(survivors.values())), "after", 6)
    produce(survivors, "after", range(6), 60)
    brokers[old].start()
    wait_for(lambda: brokers[old].admin("GET", "/ready")[0] == 200, "the killed broker is ready again")
    assert len(consume(brokers, "after", 6, 60)) == 60
    assert len(consume(brokers, "before", 6, 60)) == 60, "what the killed broker had acknowledged is still there"


def test_a_peer_without_the_secret_gets_nothing(brokers: Brokers, zookeeper: ZooKeeper, tmp_path: Path) -> None:
    stranger = BrokerProcess(tmp_path, config_file=write_config(tmp_path, 9, zookeeper, secret=b"wrong"))
    # It never comes to an image, so it never serves a client, however often it asks.
    refusal = "does not know the cluster secret"
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(stranger.start)
        wait_for(lambda: stranger.log.count(refusal) >= 3, "it is refused again and again")
        stranger.kill()
        with pytest.raises(RuntimeError, match=refusal):
            starting.result()
    assert " ready port=" not in stranger.log


def test_data_of_another_cluster_is_refused_with_both_ids(
    brokers: Brokers, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    config = write_config(tmp_path, 8, zookeeper)
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=0\nbroker.id=8\ncluster.id=elsewhere-1234567890abc\n")
    with pytest.raises(RuntimeError) as caught, BrokerProcess(tmp_path, config_file=config):
        pass
    assert "elsewhere-1234567890abc" in str(caught.value)
    assert brokers[1].admin("GET", "/status")[1]["cluster_id"] in str(caught.value)


def test_an_admin_client_that_lived_through_kills_finds_every_broker_again(brokers: Brokers) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(brokers)})
    for number, victim in enumerate(brokers):
        admin.list_topics(timeout=10)
        brokers[victim].kill()
        brokers[victim].start()
        wanted = NewTopic(f"lived-{number}", 1, 3)
        admin.create_topics([wanted], operation_timeout=20)[wanted.topic].result(30)
        wait_for(lambda: len(admin.list_topics(timeout=10).brokers) == len(brokers), "all are known to whom it asks")


def test_all_preferred_leaders_are_elected_by_one_request_that_names_none(brokers: Brokers) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(brokers)})
    create(brokers[1], "named", 6, 3)
    brokers[2].stop()
    while_away = admin.elect_leaders(ElectionType.PREFERRED, None).result(30)
    refused = {one: error.name() for one, error in while_away.items() if error is not None and one.topic == "named"}
    assert set(refused.values()) == {"PREFERRED_LEADER_NOT_AVAILABLE"}
    brokers[2].start()
    wait_for(lambda: brokers[2].admin("GET", "/ready")[1]["ready"], "it is in sync again")
    elected = admin.elect_leaders(ElectionType.PREFERRED, None).result(30)
    assert {one.partition for one in elected if one.topic == "named"} == {one.partition for one in refused}
    assert set(elected.values()) == {None}
    assert admin.elect_leaders(ElectionType.PREFERRED, None).result(30) == {}

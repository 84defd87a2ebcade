"""What a single broker does, with three: syncs before acknowledgement, settings and growth asked of any broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import KafkaError, NewPartitions

from tests.cluster.conftest import Brokers, bootstrap, controller_of, create, isrs, leaders, running, wait_for
from tests.servers.zookeeper import ZooKeeper

ALL = {1, 2, 3}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with (
        ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        running(tmp_path_factory.mktemp("brokers"), zookeeper) as found,
    ):
        yield found


def other_than_controller(brokers: Brokers) -> AdminClient:
    controller = controller_of(brokers[1])
    broker = next(broker for broker_id, broker in brokers.items() if broker_id != controller)
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def produce(brokers: Brokers, topic: str, count: int, value: bytes = b"value") -> list[KafkaError | None]:
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap(brokers), "acks": "all", "message.timeout.ms": 20_000})
    for _ in range(count):
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: told.append(error))
        producer.poll(0)
    assert producer.flush(30) == 0
    return told


def rows(brokers: Brokers, topic: str, *names: str) -> list[tuple[int, ...]]:
    """Return what every broker's status says of the topic's partition 0, under the given names."""
    found = [row for broker in brokers.values() for row in broker.admin("GET", "/status")[1]["partitions"]]
    return [tuple(row[name] for name in names) for row in found if (row["topic"], row["partition"]) == (topic, 0)]


def ends(brokers: Brokers, topic: str) -> list[tuple[int, ...]]:
    """Return high watermark and log end of the topic's partition 0 on every broker."""
    return rows(brokers, topic, "high_watermark", "log_end_offset")


@pytest.mark.parametrize("settings", [{"flush_messages": "1"}, {"flush_ms": "50"}], ids=["each record", "by time"])
def test_rule_8_records_are_acknowledged_when_all_replicas_have_synced_them(
    brokers: Brokers, settings: dict[str, str]
) -> None:
    topic = f"synced-{next(iter(settings))}"
    create(brokers[1], topic, 1, 3, min_insync_replicas="2", **settings)
    wait_for(lambda: isrs(brokers, topic).get(0) == ALL, "all replicas are in sync")
    assert produce(brokers, topic, 200) == [None] * 200
    wait_for(lambda: ends(brokers, topic) == [(200, 200)] * 3, "all replicas know")


def test_a_setting_changed_through_any_broker_holds_on_the_leader(brokers: Brokers) -> None:
    create(brokers[1], "limited", 1, 3)
    entry = ConfigEntry("max.message.bytes", "500", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "limited", incremental_configs=[entry])
    client = other_than_controller(brokers)
    client.incremental_alter_configs([resource])[resource].result(30)

    def is_refused() -> bool:
        [error] = produce(brokers, "limited", 1, b"x" * 1_000)
        return error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE

    wait_for(is_refused, "the leader goes by it")


def test_a_topic_grows_through_any_broker_and_keeps_its_replication(brokers: Brokers) -> None:
    create(brokers[1], "grown", 1, 3)
    client = other_than_controller(brokers)
    client.create_partitions([NewPartitions("grown", 3)])["grown"].result(30)
    wait_for(lambda: isrs(brokers, "grown") == dict.fromkeys(range(3), ALL), "all replicas are in sync")
    assert set(leaders(brokers, "grown").values()) <= ALL


def test_followers_compact_too(tmp_path: Path) -> None:
    with (
        ZooKeeper(tmp_path / "zookeeper") as zookeeper,
        running(tmp_path / "brokers", zookeeper, **{"log.cleaner.backoff.ms": 100}) as brokers,
    ):
        create(brokers[1], "compacted", 1, 3, cleanup_policy="compact", segment_bytes="4096")
        producer = Producer({"bootstrap.servers": bootstrap(brokers), "acks": "all", "batch.num.messages": 5})
        for number in range(2_000):
            producer.produce("compacted", b"value %d" % number, b"key %d" % (number % 5), 0)
            producer.poll(0)
        assert producer.flush(30) == 0
        wait_for(lambda: all(size < 16_000 for (size,) in rows(brokers, "compacted", "size_bytes")), "all are small")
        wait_for(lambda: ends(brokers, "compacted") == [(2_000, 2_000)] * 3, "all replicas end alike")
        assert isrs(brokers, "compacted").get(0) == ALL

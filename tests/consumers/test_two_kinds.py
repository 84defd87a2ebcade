"""The paper's consumers beside the brokers' own groups: neither takes the other's partitions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError

from pylog.client import ConsumerConnector
from pylog.client.admin.groups import GroupAdmin
from pylog.client.paper.connector import GroupInUse
from pylog.model import TopicPartition
from pylog.testing import BrokerProcess
from tests.cluster.conftest import write_config
from tests.consumers.conftest import CONFIG, PARTITIONS, GroupView, Start, produce, run_members, wait_until
from tests.consumers.test_clients import each_once, numbered
from tests.consumers.test_streams import Reader
from tests.servers.zookeeper import ZooKeeper


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper) -> Iterator[BrokerProcess]:
    home = tmp_path_factory.mktemp("broker")
    config = write_config(home, 1, zookeeper, **CONFIG | {"offsets.topic.replication.factor": 1})
    with BrokerProcess(home, config_file=config) as running:
        yield running


@pytest.fixture
def start(tmp_path: Path, broker: BrokerProcess) -> Iterator[Start]:
    with run_members(tmp_path, broker.bootstrap) as start_member:
        yield start_member


def connect(broker: BrokerProcess, zookeeper: ZooKeeper, group: str, **options: Any) -> ConsumerConnector:
    own: dict[str, Any] = {"start": "smallest", "auto_commit_interval_ms": 200, "session_timeout_ms": 2_000} | options
    return ConsumerConnector(broker.bootstrap, zookeeper.hosts, group, **own)


def test_a_group_with_members_is_refused_to_the_papers_consumer(
    broker: BrokerProcess, zookeeper: ZooKeeper, topic: str, start: Start
) -> None:
    member = start("confluent", "theirs", topic)
    GroupView(broker.bootstrap, "theirs").wait_stable("confluent")
    with connect(broker, zookeeper, "theirs") as refused, pytest.raises(GroupInUse, match="'theirs' has members"):
        refused.createMessageStreams(topic, 1)
    produce(broker.bootstrap, topic, numbered("t"))
    each_once([member], numbered("t"))


def test_a_group_of_the_papers_kind_is_refused_to_members(
    broker: BrokerProcess, zookeeper: ZooKeeper, topic: str
) -> None:
    member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "ours", "log_level": 0})
    with connect(broker, zookeeper, "ours") as consumer:
        reader = Reader(consumer.createMessageStreams(topic, 1)[0])
        wait_until(lambda: len(consumer.owned()) == PARTITIONS, "it owns all")
        errors: list[Any] = []
        member.subscribe([topic])

        def is_refused() -> bool:
            message = member.poll(0.1)
            if message is not None and (error := message.error()) is not None:
                errors.append(error.code())
            return KafkaError.INCONSISTENT_GROUP_PROTOCOL in errors

        wait_until(is_refused, lambda: repr(errors))
        assert not member.assignment()
        produce(broker.bootstrap, topic, numbered("o"))
        each_once([reader], numbered("o"))  # type: ignore[list-item]
    # Once it has no such consumer any more, the group is anybody's.
    wait_until(lambda: member.poll(0.1) is None and len(member.assignment()) == PARTITIONS, "it joins")
    member.close()


def test_offsets_in_the_offsets_topic_are_seen_by_every_tool(
    broker: BrokerProcess, zookeeper: ZooKeeper, topic: str
) -> None:
    produce(broker.bootstrap, topic, numbered("first"))
    with connect(broker, zookeeper, "topic-offsets", offsets_in="kafka") as consumer:
        reader = Reader(consumer.createMessageStreams(topic, 1)[0])
        each_once([reader], numbered("first"))  # type: ignore[list-item]
    per_partition = len(numbered("first")) // PARTITIONS
    assert GroupAdmin(broker.bootstrap).committed("topic-offsets") == {
        TopicPartition(topic, number): per_partition for number in range(PARTITIONS)
    }
    produce(broker.bootstrap, topic, numbered("second"))
    with connect(broker, zookeeper, "topic-offsets", offsets_in="kafka") as consumer:
        reader = Reader(consumer.createMessageStreams(topic, 1)[0])
        each_once([reader], numbered("second"))  # type: ignore[list-item]
        assert not set(numbered("first")) & set(reader.values)
        assert consumer.commit() == consumer.commit()

"""Consumers read from the replica in their rack, and are never shown less or more than at the leader (KIP-392)."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.broker.settings import RACK_AWARE_SELECTOR
from pylog.testing import BrokerProcess
from tests.cluster.conftest import Brokers, bootstrap, leaders, wait_for, write_config
from tests.cluster.history import Load
from tests.servers.zookeeper import ZooKeeper

RACKS = {1: "east", 2: "west", 3: "west"}


@pytest.fixture
def racked(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Brokers]:
    with ExitStack() as stack:
        found: Brokers = {}
        for one, rack in RACKS.items():
            home = tmp_path / str(one)
            settings: dict[str, Any] = {"replica.selector.class": RACK_AWARE_SELECTOR}
            config = write_config(home, one, zookeeper, rack=rack, **settings)
            found[one] = stack.enter_context(BrokerProcess(home, config_file=config))
        yield found


class Reader:
    """A consumer in a rack that remembers which brokers it fetched from."""

    def __init__(self, brokers: Brokers, topic: str, rack: str) -> None:
        self.sources: set[int] = set()
        self.offsets: list[int] = []
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap(brokers),
                "group.id": f"near-{rack}",
                "client.rack": rack,
                "auto.offset.reset": "earliest",
                "statistics.interval.ms": 100,
                "stats_cb": self._stats,
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *error: object) -> None:
        self._consumer.close()

    def read(self) -> None:
        for message in self._consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            self.offsets.append(message.offset() or 0)

    def _stats(self, text: str) -> None:
        topics = json.loads(text)["topics"]
        if self._topic in topics:
            self.sources.add(topics[self._topic]["partitions"]["0"]["broker"])


def test_a_consumer_reads_from_its_rack_and_from_the_leader_when_that_is_gone(racked: Brokers) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(racked)})
    wanted = NewTopic("near", num_partitions=1, replica_assignment=[[1, 2]])
    admin.create_topics([wanted], operation_timeout=20)["near"].result(30)
    wait_for(lambda: all(leaders({one: racked[one]}, "near") == {0: 1} for one in racked), "all have heard of it")
    with Reader(racked, "near", "west") as west, Reader(racked, "near", "east") as east:
        with Load(bootstrap(racked), "near", 1) as load:

            def has_read_much() -> bool:
                west.read()
                east.read()
                return min(len(west.offsets), len(east.offsets)) > 1000 and west.sources >= {2}

            wait_for(has_read_much, "both read on, and one of them from the follower")
            assert east.sources <= {-1, 1}, "the leader is as near as can be"
            racked[2].kill()
            count = len(west.offsets)

            def has_read_more() -> bool:
                west.read()
                return len(west.offsets) > count + 300

            wait_for(has_read_more, "without the follower it reads from the leader")

        def has_read_all() -> bool:
            west.read()
            east.read()
            return min(len(west.offsets), len(east.offsets)) >= load.acknowledged

        wait_for(has_read_all, "everything is read")
    for reader in (west, east):
        assert reader.offsets == list(range(len(reader.offsets))), "nothing is skipped, doubled or turned round"

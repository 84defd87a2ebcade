"""Two clusters of one broker each, and what goes through them."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import pytest

from pylog.client.admin.cluster import Admin
from pylog.client.consumer import ConsumedRecord, Consumer
from pylog.client.producer import Producer
from pylog.model import TopicPartition
from pylog.testing import BrokerProcess

CONFIG = {
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.min.cleanable.ratio": 0.01,
}
_numbers = count(1)


@dataclass
class Datacenter:
    """One cluster."""

    name: str
    broker: BrokerProcess

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def admin(self) -> Admin:
        return Admin(self.bootstrap)

    def end(self) -> Mapping[str, object]:
        """Return what a mirror's file says of this cluster."""
        return {"name": self.name, "bootstrap": self.bootstrap}

    def create(self, topic: str, partitions: int = 2, **config: str) -> None:
        settings = {name.replace("__", "."): value for name, value in config.items()}
        self.admin.create_topic(topic, partitions=partitions, replication_factor=1, config=settings)

    def send(self, topic: str, values: Sequence[bytes], partitions: int = 2, *, keys: int = 0) -> None:
        """Write records, going round the partitions; with *keys*, under so many keys a partition."""
        with Producer(self.bootstrap, batch__size=4000) as producer:
            for number, value in enumerate(values):
                key = b"%d" % (number // partitions % keys) if keys else None
                producer.send(topic, value, key, partition=number % partitions)

    def records(self, topic: str) -> dict[int, list[ConsumedRecord]]:
        """Return all there is, by partition."""
        partitions = [one.partition for one in self.admin.topic(topic).partitions]
        found: dict[int, list[ConsumedRecord]] = {one: [] for one in partitions}
        with Consumer(self.bootstrap) as consumer:
            consumer.assign_topic(topic)
            for record in consumer.records_to_end():
                found[record.partition].append(record)
        return found

    def values(self, topic: str) -> dict[int, list[bytes | None]]:
        return {partition: [one.value for one in records] for partition, records in self.records(topic).items()}

    def broker_signal(self, number: signal.Signals) -> None:
        os.kill(self.broker.pid, number)

    def ends(self, topic: str) -> list[int]:
        if topic not in self.admin.cluster().topics:
            return []
        partitions = [TopicPartition(topic, one.partition) for one in self.admin.topic(topic).partitions]
        return list(self.admin.ends(partitions).values())


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Datacenter]:
    with BrokerProcess(tmp_path_factory.mktemp("live"), config=CONFIG) as broker:
        yield Datacenter("live", broker)


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Datacenter]:
    with BrokerProcess(tmp_path_factory.mktemp("offline"), config=CONFIG) as broker:
        yield Datacenter("offline", broker)


@pytest.fixture
def topic() -> str:
    """A name of this test's own."""
    return f"clicks-{next(_numbers)}"


def first_copies(values: Sequence[bytes | None]) -> list[bytes | None]:
    """Return each value where it came first."""
    return list(dict.fromkeys(values))

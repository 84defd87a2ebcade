"""Transactions of Java's clients, of which that of release 4 gives each an epoch, of kafka-python and of aiokafka."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.interop.clients.transactional import Aiokafka, ClientError, Java, Java4, KafkaPython, TransactionalClient
from tests.interop.conftest import PEER, Broker, create_topic, run_broker

SETTINGS = {
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker that the tests of this module share."""
    settings = SETTINGS if PEER == "kafka" else {key: value for key, value in SETTINGS.items() if "min.isr" not in key}
    with run_broker(tmp_path_factory.mktemp("transactions"), settings) as running:
        yield running


@pytest.fixture(scope="module", params=[Java, Java4, KafkaPython, Aiokafka], ids=lambda made: made.name)
def client(request: pytest.FixtureRequest, broker: Broker) -> Iterator[TransactionalClient]:
    made: Any = request.param()
    made.start(broker.bootstrap)
    yield made
    made.stop()


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t{uuid4().hex[:8]}"
    create_topic(broker.bootstrap, name, 3)
    return name


def test_committed_records_are_read_and_aborted_ones_are_not(client: TransactionalClient, topic: str) -> None:
    producer = client.producer(f"id-{topic}")
    wanted = []
    for number in range(12):
        producer.begin()
        for partition in range(3):
            producer.send(topic, partition, f"{number}-{partition}")
        if number % 3 == 1:
            producer.abort()
        else:
            producer.commit()
            wanted += [f"{number}-{partition}" for partition in range(3)]
    producer.close()
    assert sorted(client.read(topic)) == sorted(wanted)


def test_a_producer_whose_id_another_one_took_commits_nothing(client: TransactionalClient, topic: str) -> None:
    zombie = client.producer(f"id-{topic}")
    zombie.begin()
    zombie.send(topic, 0, "zombie")
    heir = client.producer(f"id-{topic}")
    heir.begin()
    heir.send(topic, 0, "heir")
    with pytest.raises(ClientError, match=r"Fenced|InvalidProducerEpoch"):
        zombie.commit()
    heir.commit()
    heir.close()
    zombie.close()
    assert client.read(topic) == ["heir"]


def test_what_is_copied_and_how_far_it_was_read_is_committed_together(
    client: TransactionalClient, broker: Broker, topic: str
) -> None:
    target, group = f"{topic}-copy", f"g-{topic}"
    create_topic(broker.bootstrap, target, 3)
    writer, copier = client.producer(f"id-{topic}"), client.producer(f"copier-{topic}")

    def write(*values: str) -> None:
        writer.begin()
        for partition, value in enumerate(values):
            writer.send(topic, partition, value)

    def copied(*, is_commit: bool) -> int:
        copier.begin()
        count = copier.copy(group, topic, target)
        (copier.commit if is_commit else copier.abort)()
        return count

    write("a", "b", "c")
    writer.commit()
    write("x", "y", "z")
    writer.abort()
    assert copied(is_commit=False) == 3
    assert copied(is_commit=True) == 3, "an aborted copy commits no offsets"
    assert copied(is_commit=True) == 0
    write("d", "e", "f")
    writer.commit()
    assert copied(is_commit=True) == 3
    writer.close()
    copier.close()
    assert sorted(client.read(target)) == ["a", "b", "c", "d", "e", "f"]

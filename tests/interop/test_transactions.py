"""Transactions of real producers: what is committed is read, what is aborted is not, and a zombie writes nothing."""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.interop.conftest import PEER, Broker, create_topic, run_broker

TIMEOUT_S = 30.0
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


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t{uuid4().hex[:8]}"
    create_topic(broker.bootstrap, name, 3)
    return name


def producer(broker: Broker, transactional_id: str, **settings: Any) -> Producer:
    """Return a producer that has fenced all others of its id."""
    made = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, **settings})
    made.init_transactions(TIMEOUT_S)
    return made


def consumer(
    broker: Broker, group: str, isolation: str = "read_committed", settings: Mapping[str, Any] | None = None
) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **(settings or {}),
        }
    )


def read(broker: Broker, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Return the values that a reader gets up to the end of all partitions, sorted."""
    reader = consumer(broker, uuid4().hex, isolation)
    number_count = len(reader.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
    reader.assign([TopicPartition(topic, number, 0) for number in range(number_count)])
    values: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < number_count:
        message = reader.poll(TIMEOUT_S)
        assert message is not None, f"nothing more came; at the end of {ended}"
        fault, partition = message.error(), message.partition()
        assert partition is not None
        if fault is None:
            values.append(message.value() or b"")
        else:
            assert fault.code() == KafkaError._PARTITION_EOF, fault
            ended.add(partition)
    reader.close()
    return sorted(values)


def send(made: Producer, topic: str, *values: bytes) -> None:
    for number, value in enumerate(values):
        made.produce(topic, value, partition=number % 3)
    assert made.flush(TIMEOUT_S) == 0


def test_committed_records_are_read_and_aborted_ones_are_not(broker: Broker, topic: str) -> None:
    made = producer(broker, f"{topic}-id")
    made.begin_transaction()
    send(made, topic, b"1", b"2", b"3", b"4")
    assert read(broker, topic) == [], "nothing is decided yet"
    made.commit_transaction(TIMEOUT_S)
    made.begin_transaction()
    send(made, topic, b"5", b"6")
    made.abort_transaction(TIMEOUT_S)
    made.begin_transaction()
    send(made, topic, b"7")
    made.commit_transaction(TIMEOUT_S)
    assert read(broker, topic) == [b"1", b"2", b"3", b"4", b"7"]
    assert read(broker, topic, "read_uncommitted") == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]


def test_hundreds_of_transactions_in_a_row_are_all_there(broker: Broker, topic: str) -> None:
    made, wanted = producer(broker, f"{topic}-id"), []
    for number in range(200):
        made.begin_transaction()
        values = [b"%03d-%d" % (number, part) for part in range(3)]
        for part, value in enumerate(values):
            made.produce(topic, value, partition=part)
        if number % 3:
            made.commit_transaction(TIMEOUT_S)
            wanted += values
        else:
            made.abort_transaction(TIMEOUT_S)
    assert read(broker, topic) == sorted(wanted)


def test_a_producer_whose_id_another_one_took_writes_nothing_more(broker: Broker, topic: str) -> None:
    zombie = producer(broker, f"{topic}-id")
    zombie.begin_transaction()
    send(zombie, topic, b"zombie")
    heir = producer(broker, f"{topic}-id")
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(TIMEOUT_S)
    assert fenced.value.args[0].fatal()
    heir.begin_transaction()
    send(heir, topic, b"heir")
    heir.commit_transaction(TIMEOUT_S)
    assert read(broker, topic) == [b"heir"]


def test_a_transaction_that_is_open_for_too_long_is_aborted(broker: Broker, topic: str) -> None:
    made = producer(broker, f"{topic}-id", **{"transaction.timeout.ms": 1_000})
    made.begin_transaction()
    send(made, topic, b"left")
    other = Producer({"bootstrap.servers": broker.bootstrap})
    other.produce(topic, b"other", partition=0)
    assert other.flush(TIMEOUT_S) == 0
    reader = consumer(broker, uuid4().hex, settings={"enable.partition.eof": False})
    reader.assign([TopicPartition(topic, 0, 0)])
    message = reader.poll(TIMEOUT_S)
    assert message is not None, "the open transaction holds readers back for ever"
    assert message.value() == b"other"
    reader.close()
    with pytest.raises(KafkaException):
        made.commit_transaction(TIMEOUT_S)


def copy(broker: Broker, source: str, target: str, group: str, *, is_commit: bool) -> list[TopicPartition]:
    """Copy all of *source* in one transaction with the group's offsets; return the offsets that the group has then."""
    reader = consumer(broker, group)
    reader.subscribe([source])
    made = producer(broker, f"{group}-id")
    made.begin_transaction()
    ended: set[int] = set()
    while len(ended) < 3:
        message = reader.poll(TIMEOUT_S)
        assert message is not None
        partition = message.partition()
        assert partition is not None
        if message.error() is None:
            made.produce(target, message.value(), partition=partition)
        else:
            ended.add(partition)
    made.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata(), TIMEOUT_S)
    (made.commit_transaction if is_commit else made.abort_transaction)(TIMEOUT_S)
    reader.close()
    asking = consumer(broker, group)
    found = asking.committed([TopicPartition(source, number) for number in range(3)], TIMEOUT_S)
    asking.close()
    return found


def test_offsets_and_records_are_committed_together_or_not_at_all(broker: Broker, topic: str) -> None:
    target = f"{topic}-copy"
    create_topic(broker.bootstrap, target, 3)
    made = producer(broker, f"{topic}-id")
    made.begin_transaction()
    send(made, topic, b"1", b"2", b"3", b"4", b"5")
    made.commit_transaction(TIMEOUT_S)
    aborted = copy(broker, topic, target, f"{topic}-g", is_commit=False)
    assert {one.offset for one in aborted} == {-1001}, "no offset is committed"
    assert read(broker, target) == []
    copied = copy(broker, topic, target, f"{topic}-g", is_commit=True)
    assert sum(one.offset for one in copied) == 5 + 3, "five records and three markers"
    assert read(broker, target) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_member_that_was_replaced_commits_no_offsets_in_its_transaction(broker: Broker, topic: str) -> None:
    zombie = consumer(broker, f"{topic}-g", settings={"group.instance.id": "one"})
    zombie.subscribe([topic])
    assert zombie.poll(TIMEOUT_S) is not None
    stale = zombie.consumer_group_metadata()
    heir = consumer(broker, f"{topic}-g", settings={"group.instance.id": "one"})
    heir.subscribe([topic])
    assert heir.poll(TIMEOUT_S) is not None
    made = producer(broker, f"{topic}-id")
    made.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        made.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], stale, TIMEOUT_S)
    assert refused.value.args[0].txn_requires_abort()
    made.abort_transaction(TIMEOUT_S)
    assert heir.committed([TopicPartition(topic, 0)], TIMEOUT_S)[0].offset == -1001
    zombie.close()
    heir.close()


def test_transactions_go_on_after_the_broker_was_killed(broker: Broker, topic: str) -> None:
    made = producer(broker, f"{topic}-id", **{"transaction.timeout.ms": 600_000})
    made.begin_transaction()
    send(made, topic, b"1", b"2", b"3")
    made.commit_transaction(TIMEOUT_S)
    made.begin_transaction()
    send(made, topic, b"4", b"5")
    broker.kill()
    broker.start()
    made.commit_transaction(TIMEOUT_S)
    assert read(broker, topic) == [b"1", b"2", b"3", b"4", b"5"]
    made.begin_transaction()
    send(made, topic, b"6")
    broker.kill()
    broker.start()
    heir = producer(broker, f"{topic}-id")
    heir.begin_transaction()
    send(heir, topic, b"7")
    heir.commit_transaction(TIMEOUT_S)
    assert read(broker, topic) == [b"1", b"2", b"3", b"4", b"5", b"7"]

"""Compacted topics: readers get the last value of every key, Kafka's tool reads the files, null keys are refused."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import KafkaError, KafkaException

from pylog.testing import BrokerProcess
from tests.interop import frames
from tests.interop.batches import Batch
from tests.interop.conftest import Broker, create_topic, run_broker, wait_until
from tests.interop.frames import Connection
from tests.servers.dump import check_all
from tests.servers.kafka import DUMP_LOG_SEGMENTS, java_tool

KEY_COUNT = 20
RECORD_COUNT = 2_000
DELETED = b"key 3"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that looks for something to compact all the time."""
    config = {"log.cleaner.backoff.ms": 100}
    with run_broker(tmp_path_factory.mktemp("broker"), config) as running:
        yield running


@pytest.fixture(scope="module")
def compacted(broker: Broker) -> str:
    """A topic of 2,000 records with 20 keys, one of which was deleted, once it is compacted."""
    create_topic(
        broker.bootstrap, "compacted", cleanup_policy="compact", segment_bytes="16384", delete_retention_ms="3600000",
        min_cleanable_dirty_ratio="0.01",
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "batch.num.messages": 7})
    for number in range(RECORD_COUNT):
        producer.produce("compacted", b"value %d" % number, b"key %d" % (number % KEY_COUNT), 0)
        producer.poll(0)
    producer.produce("compacted", None, DELETED, 0)
    # What closes the segments before.
    for _ in range(4):
        assert producer.flush(30) == 0
        producer.produce("compacted", b"x" * 6_000, b"filler", 0)
    assert producer.flush(30) == 0

    def is_small() -> bool:
        assert isinstance(broker, BrokerProcess)
        (row,) = (row for row in broker.admin("GET", "/status")[1]["partitions"] if row["topic"] == "compacted")
        return bool(row["size_bytes"] < 30_000)

    wait_until(is_small, "it is compacted")
    return "compacted"


def test_readers_end_with_the_last_value_of_every_key(broker: Broker, compacted: str) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.partition.eof": True})
    consumer.assign([TopicPartition(compacted, 0, OFFSET_BEGINNING)])
    table: dict[bytes, bytes | None] = {}
    offsets: list[int] = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            break
        key, offset = message.key(), message.offset()
        assert isinstance(key, bytes)
        assert offset is not None
        value = message.value()
        assert value is None or isinstance(value, bytes)
        table[key] = value
        offsets.append(offset)
    consumer.close()
    first = RECORD_COUNT - KEY_COUNT
    expected: dict[bytes, bytes | None] = {
        b"key %d" % (number % KEY_COUNT): b"value %d" % number for number in range(first, RECORD_COUNT)
    }
    expected |= {DELETED: None, b"filler": b"x" * 6_000}
    assert table == expected
    assert offsets == sorted(set(offsets))
    assert len(offsets) < 60


def test_kafka_s_tool_reads_the_compacted_segments(broker: Broker, compacted: str) -> None:
    files = sorted((broker.data_dir / f"{compacted}-0").glob("*.log"))
    output = java_tool(
        DUMP_LOG_SEGMENTS, "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, files)),
        with_stderr=True,
    ).decode()  # fmt: skip
    assert "isvalid: false" not in output
    assert not re.search(r"(?i)exception|corrupt|mismatch", output), output[-2000:]
    assert f"payload: value {RECORD_COUNT - 1}" in output
    assert "payload: value 5\n" not in output
    assert re.search(r"deleteHorizonMs: OptionalLong\[\d+\]", output)


def test_a_record_without_key_is_refused(broker: Broker, compacted: str) -> None:
    batch = Batch(values=(b"no key",)).encode()
    with Connection(broker.bootstrap) as connection:
        error, _ = frames.produce_result(connection.ask(frames.produce(compacted, batch)))
    assert error == KafkaError.INVALID_RECORD


def test_a_record_without_key_is_refused_to_a_client(broker: Broker, compacted: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    refused: list[object] = []
    producer.produce(compacted, b"no key", partition=0, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(30) == 0
    [error] = refused
    assert isinstance(error, KafkaError)
    assert error.code() == KafkaError.INVALID_RECORD


def test_a_client_tells_records_to_blame_from_those_beside_them(broker: Broker, compacted: str) -> None:
    """Produce names them from version 8 on; librdkafka blames the whole batch if there is only one such record."""
    # One batch: nothing is sent before the flush, and none of it waits for the partitions to be known.
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 60_000})
    producer.list_topics(compacted, timeout=30)
    codes: dict[int, int] = {}

    def delivered(number: int, error: object) -> None:
        assert isinstance(error, KafkaError)
        codes[number] = error.code()

    for number in range(6):
        key = None if number in (2, 4) else b"key"
        producer.produce(
            compacted, b"v", key, partition=0, on_delivery=lambda error, _, number=number: delivered(number, error)
        )
    assert producer.flush(30) == 0
    blamed, others = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert codes == {0: others, 1: others, 2: blamed, 3: others, 4: blamed, 5: others}


def test_a_killed_broker_serves_the_same_table(tmp_path: Path) -> None:
    with run_broker(tmp_path, {"log.cleaner.backoff.ms": 50}) as broker:
        create_topic(broker.bootstrap, "kept", cleanup_policy="compact", segment_bytes="4096")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 5})
        for number in range(500):
            producer.produce("kept", b"v%d" % number, b"k%d" % (number % 5), 0)
            producer.poll(0)
        assert producer.flush(30) == 0
        broker.kill()
        broker.start()
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
        consumer.assign([TopicPartition("kept", 0, OFFSET_BEGINNING)])
        table: dict[object, object] = {}
        while table.get(b"k4") != b"v499":
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                raise KafkaException(message.error())
            table[message.key()] = message.value()
        consumer.close()
        assert table == {b"k%d" % (number % 5): b"v%d" % number for number in range(495, 500)}
        broker.stop()
        check_all(broker.data_dir)

"""`flush.ms` and `flush.messages` of a running broker, as clients see them (rule 8)."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pylog.testing import BrokerProcess

FLUSH_MS = 400


def make_topic(broker: BrokerProcess, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("synced", 1, 1, config=config)])["synced"].result(30)


def produce_s(broker: BrokerProcess, acks: str) -> float:
    """Return how long one record takes to be acknowledged, on a connection that stands."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": acks, "linger.ms": 0})
    producer.list_topics(timeout=30)
    began = time.monotonic()
    producer.produce("synced", b"value", partition=0)
    assert producer.flush(30) == 0
    return time.monotonic() - began


@pytest.mark.parametrize("acks", ["1", "all"])
def test_an_acknowledgement_waits_for_the_sync(tmp_path: Path, acks: str) -> None:
    with BrokerProcess(tmp_path) as broker:
        make_topic(broker, {"flush.ms": str(FLUSH_MS)})
        assert produce_s(broker, acks) >= FLUSH_MS / 1000


def test_acks_0_waits_for_nothing_and_consumers_see_nothing_before_the_sync(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        make_topic(broker, {"flush.ms": str(FLUSH_MS)})
        began = time.monotonic()
        produce_s(broker, "0")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "fetch.wait.max.ms": 50})
        consumer.assign([TopicPartition("synced", 0, 0)])
        message = consumer.poll(30)
        seen_s = time.monotonic() - began
        consumer.close()
        assert message is not None
        assert message.value() == b"value"
        assert seen_s >= FLUSH_MS / 1000


def test_a_number_of_records_that_never_comes_holds_nobody_up(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        make_topic(broker, {"flush.messages": "1000000"})
        assert produce_s(broker, "all") < 10


def test_flush_messages_1_counts_every_record_at_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, config={"log.flush.interval.messages": 1}) as broker:
        make_topic(broker, {})
        for _ in range(3):
            produce_s(broker, "all")
        [row] = broker.admin("GET", "/status")[1]["partitions"]
        assert (row["high_watermark"], row["log_end_offset"]) == (3, 3)


def test_written_logs_are_synced_by_the_clock(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, config={"log.flush.offset.checkpoint.interval.ms": 100}) as broker:
        make_topic(broker, {})
        produce_s(broker, "all")
        checkpoint = broker.data_dir / "recovery-point-offset-checkpoint"
        deadline_s = time.monotonic() + 20
        while not (checkpoint.exists() and "synced 0 1" in checkpoint.read_text()):
            assert time.monotonic() < deadline_s, checkpoint.read_text()
            time.sleep(0.02)
        # What is below the recovery point is not read again after a crash.
        broker.kill()
        broker.start()
        assert broker.admin("GET", "/status")[1]["partitions"][0]["high_watermark"] == 1

"""A broker killed under load keeps every acknowledged record, in order and once, and its files stay sound."""

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from tests.interop.conftest import create_topic, run_broker, wait_until
from tests.servers.dump import check_all

KILLS = 3
BETWEEN_KILLS = 400
"""Acknowledged records before the next kill."""


class Load:
    """A producer that never stops, and what it was told."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self._topic = topic
        self._is_over = threading.Event()
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "batch.num.messages": 7,
            "queue.buffering.max.messages": 200, "reconnect.backoff.max.ms": 100,
        })  # fmt: skip
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            try:
                self._producer.produce(self._topic, b"%d" % number, partition=0, on_delivery=self._delivered)
                number += 1
            except BufferError:
                self._producer.poll(0.01)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def _delivered(self, error: object, message: Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        assert error is None, f"{error} for {value!r}"
        self.acknowledged.append(int(value))

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(90)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("topic_config", [{}, {"compression_type": "lz4"}], ids=["as sent", "packed anew"])
def test_every_acknowledged_record_survives_kills_under_load(tmp_path: Path, topic_config: dict[str, Any]) -> None:
    settings = {"log.segment.bytes": 16 << 10, "log.flush.offset.checkpoint.interval.ms": 100}
    with run_broker(tmp_path, settings) as broker:
        create_topic(broker.bootstrap, "loaded", **topic_config)
        load = Load(broker.bootstrap, "loaded")
        try:
            for round_number in range(1, KILLS + 1):
                wait_until(lambda: len(load.acknowledged) >= BETWEEN_KILLS * round_number, "records are acknowledged")  # noqa: B023
                broker.kill()
                broker.start()
        finally:
            load.stop()
        acknowledged = load.acknowledged
        assert read_all(broker.bootstrap, "loaded", len(acknowledged)) == list(range(len(acknowledged)))
        assert sorted(acknowledged) == list(range(len(acknowledged)))
        broker.stop()
        check_all(broker.data_dir)


def read_all(bootstrap: str, topic: str, count: int) -> list[int]:
    """Return the numbers that the topic holds, to its end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    numbers: list[int] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"{len(numbers)} of {count} came"
        if message.error() is not None:
            break
        value = message.value()
        assert isinstance(value, bytes)
        numbers.append(int(value))
    consumer.close()
    return numbers

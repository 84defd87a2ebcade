"""A client of somebody else's that produces with acks=all until it is told to stop, then counts what arrived.

python -m tests.infra.load CLIENT BOOTSTRAP TOPIC RESULT.json       (CLIENT: librdkafka or kafka-python)

Sends numbered records at a steady rate.  On SIGTERM it waits for every acknowledgement, reads the topic and
writes ``{"sent", "acked", "failed", "lost", "duplicates", "longest_pause_ms", "p99_ms", ...}``.  Both clients are as
released, with their own defaults beside ``acks=all`` and a delivery time-out; "failed" counts what they report as
failed after their own retries, and "p99_ms" is how long after a send its acknowledgement came, for 99 of 100 records.
"""

import json
import math
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

PARTITIONS = 6
RECORDS_PER_S = 100
VALUE = b"x" * 200
READ_LIMIT_S = 120
DELIVERY_TIMEOUT_MS = 120_000
"""After so long a client calls a send failed; faults last half of it at most."""
NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})


class Tally:
    """What was acknowledged and after how long, and the longest time in which nothing was.

    Acknowledgements come on other threads.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.acked: set[int] = set()
        self.sent_s: dict[int, float] = {}
        self.took_s: list[float] = []
        self.failures: list[str] = []
        self.last_s = time.monotonic()
        self.longest_s = 0.0
        self.lap_s = 0.0

    def send(self, number: int, now_s: float) -> None:
        with self.lock:
            self.sent_s[number] = now_s

    def ack(self, number: int, now_s: float) -> None:
        with self.lock:
            self.took_s.append(now_s - self.sent_s.pop(number))
            # The first one includes connecting, which is no pause.
            if self.acked:
                self.longest_s = max(self.longest_s, now_s - self.last_s)
                self.lap_s = max(self.lap_s, now_s - self.last_s)
            self.last_s = now_s
            self.acked.add(number)

    def fail(self, error: object) -> None:
        with self.lock:
            self.failures.append(str(error))

    def lap_ms(self, now_s: float) -> int:
        """Return the longest pause since the last call in ms, the one that still lasts too."""
        with self.lock:
            found_s = max(self.lap_s, now_s - self.last_s)
            self.lap_s = 0.0
            return round(found_s * 1000)

    def percentile_ms(self, percent: int) -> int:
        """Return after how long so many of 100 records were acknowledged, in ms; 0 where none was."""
        took_s = sorted(self.took_s)
        return round(took_s[math.ceil(len(took_s) * percent / 100) - 1] * 1000) if took_s else 0


def librdkafka(
    bootstrap: str, topic: str, tally: Tally, numbers: Iterator[int], settings: Mapping[str, Any] = NO_SETTINGS
) -> None:
    """Produce with confluent-kafka, with more *settings* of its own."""
    from confluent_kafka import Producer

    usual = {"bootstrap.servers": bootstrap, "acks": "all", "delivery.timeout.ms": DELIVERY_TIMEOUT_MS}
    producer = Producer(usual | dict(settings))

    def on_delivery(number: int) -> Callable[[Any, Any], None]:
        return lambda error, message: tally.fail(error) if error else tally.ack(number, time.monotonic())

    for number in numbers:
        partition = number % PARTITIONS
        producer.produce(topic, b"%d " % number + VALUE, partition=partition, on_delivery=on_delivery(number))
        producer.poll(0)
    tally.failures += ["not acknowledged in time"] * producer.flush(60)


def kafka_python(bootstrap: str, topic: str, tally: Tally, numbers: Iterator[int]) -> None:
    """Produce with kafka-python."""
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all",
        linger_ms=5,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
    )
    for number in numbers:
        future = producer.send(topic, b"%d " % number + VALUE, partition=number % PARTITIONS)
        future.add_callback(lambda metadata, number=number: tally.ack(number, time.monotonic()))
        future.add_errback(tally.fail)
    producer.flush(timeout=60)
    producer.close()


CLIENTS = {"librdkafka": librdkafka, "kafka-python": kafka_python}


def create(bootstrap: str, topic: str) -> None:
    """Create the topic with as many copies as there are brokers, at most three."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    factor = min(3, len(admin.list_topics(timeout=30).brokers))
    new = NewTopic(topic, PARTITIONS, factor, config={"min.insync.replicas": str(max(1, factor - 1))})
    admin.create_topics([new], operation_timeout=20)[topic].result(30)


def read_back(bootstrap: str, topic: str, settings: Mapping[str, Any] = NO_SETTINGS) -> Counter[int]:
    """Return how often each number lies in the topic."""
    from confluent_kafka import Consumer, TopicPartition

    usual = {"bootstrap.servers": bootstrap, "group.id": "load", "enable.auto.commit": False}
    consumer = Consumer(usual | dict(settings))
    left = {}
    for number in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
        if high > low:
            left[number] = high
    consumer.assign([TopicPartition(topic, number, 0) for number in left])
    found: Counter[int] = Counter()
    deadline_s = time.monotonic() + READ_LIMIT_S
    while left and time.monotonic() < deadline_s:
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                found[int((message.value() or b"").split()[0])] += 1
                if (message.offset() or 0) + 1 >= left.get(message.partition() or 0, 0):
                    left.pop(message.partition() or 0, None)
    consumer.close()
    return found


def paced(stop: threading.Event) -> Iterator[int]:
    """Yield numbers at a steady rate until told to stop; after a stall the rate is not made up for."""
    number = 0
    while not stop.wait(1 / RECORDS_PER_S):
        yield number
        number += 1


def report_of(client: str, tally: Tally, sent: int, found: Counter[int], took_s: float) -> dict[str, Any]:
    """Return what became of *sent* records, of which a topic has those *found*."""
    return {
        "client": client,
        "seconds": round(took_s, 1),
        "sent": sent,
        "acked": len(tally.acked),
        "failed": len(tally.failures),
        "first_failures": tally.failures[:3],
        "lost": len(tally.acked - found.keys()),
        "duplicates": sum(found.values()) - len(found),
        "longest_pause_ms": round(tally.longest_s * 1000),
        "p99_ms": tally.percentile_ms(99),
    }


def main(client: str, bootstrap: str, topic: str, result: str) -> int:
    """Run until SIGTERM, then judge."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    create(bootstrap, topic)
    tally, began_s, sent = Tally(), time.monotonic(), 0

    def counted() -> Iterator[int]:
        nonlocal sent
        for number in paced(stop):
            sent += 1
            tally.send(number, time.monotonic())
            yield number

    CLIENTS[client](bootstrap, topic, tally, counted())
    took_s = time.monotonic() - began_s
    report = report_of(client, tally, sent, read_back(bootstrap, topic), took_s)
    Path(result).write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report))
    return 1 if report["failed"] or report["lost"] or not report["acked"] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

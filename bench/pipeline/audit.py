"""What accounting costs a producer and a reader: CPU of the process, the same messages with and without, by turns.

python -m bench.pipeline.audit [--rounds 5] [--messages 300000] [--size 200]

plain     confluent-kafka's own producer in the shortest loop there is
header    the same with a header as long as a stamp, the same one on each record: what carrying one costs in C
audited   `pylog.audit.producer.AuditedProducer`: stamps, counts, checksums, reports
read      `pylog.client.consumer.Consumer` reads what that sent
counted   the same, and `pylog.audit.reader.TopicCounter` counts it, as a tier's reader does

Sent with acks=all, idempotence and five milliseconds of linger.  The process does nothing but send, so the ratio is the
worst there is; what a service pays is the difference, for each record that it sends.
"""

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import Producer

from pylog.audit.counting import STAMP_HEADER, Stamp
from pylog.audit.load import ensure_topic
from pylog.audit.producer import DEFAULT_WINDOW_MS, AuditedProducer
from pylog.audit.reader import TopicCounter
from pylog.audit.reports import Tier
from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection
from pylog.client.consumer import ConsumedRecord, Consumer
from pylog.testing import BrokerProcess

_POLL_EVERY = 1_000


def plain(
    bootstrap: str, topic: str, values: Sequence[bytes], headers: list[tuple[str, str | bytes | None]] | None = None
) -> None:
    """Send as confluent-kafka's users do."""
    failed = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failed.append(error),
        }
    )
    produce = producer.produce
    for number, value in enumerate(values):
        while True:
            try:
                if headers is None:
                    produce(topic, value)
                else:
                    produce(topic, value, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    producer.flush()
    assert not failed, failed[0]


def with_header(bootstrap: str, topic: str, values: Sequence[bytes]) -> None:
    """Send with a header that nobody makes."""
    stamp = Stamp("0123456789abcdef", 123_456, time.time_ns() // 1_000_000, "web-17.example").encode()
    plain(bootstrap, topic, values, [(STAMP_HEADER, stamp)])


def audited(bootstrap: str, topic: str, values: Sequence[bytes]) -> None:
    """Send with everything."""
    with AuditedProducer(bootstrap, host="web-17.example") as producer:
        send = producer.send
        for value in values:
            send(topic, value)


def read(bootstrap: str, topic: str, values: Sequence[bytes]) -> None:
    """Read all that *topic* has."""
    count = sum(1 for _ in _records(bootstrap, topic))
    assert count == len(values), count


def counted(bootstrap: str, topic: str, values: Sequence[bytes]) -> None:
    """Read and count all that *topic* has."""
    counter = TopicCounter(Tier.LIVE, topic, "bench", DEFAULT_WINDOW_MS)
    for record in _records(bootstrap, topic):
        counter.add(record.partition, record.offset, record.headers, record.value)
    found = counter.report(0, 0)
    assert sum(one.count for one in found.windows.values()) == len(values), found.unstamped


def _records(bootstrap: str, topic: str) -> Iterator[ConsumedRecord]:
    with Consumer(bootstrap) as consumer:
        consumer.assign_topic(topic)
        yield from consumer.records_to_end()


Way = Callable[[str, str, Sequence[bytes]], None]
SENDING: dict[str, Way] = {"plain": plain, "header": with_header, "audited": audited}
READING: dict[str, Way] = {"read": read, "counted": counted}


def main(arguments: Sequence[str]) -> int:
    """Print each round and the medians."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipeline.audit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("rounds", 5), ("messages", 300_000), ("size", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    values = [b"%08d" % number + b"x" * (options.size - 8) for number in range(options.messages)]
    gc.freeze()
    found: dict[str, list[float]] = {name: [] for name in SENDING | READING}
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory)) as broker:
        ensure_topic(Connection(bootstrap=broker.bootstrap), 1)
        for number in range(options.rounds + 1):
            for name, way in (SENDING | READING).items():
                topic = f"{name if name in SENDING else 'audited'}-{number}"
                if name in SENDING:
                    Admin(broker.bootstrap).create_topic(topic, partitions=4, replication_factor=1)
                began_s = time.process_time()
                way(broker.bootstrap, topic, values)
                us = (time.process_time() - began_s) / len(values) * 1e6
                if number:  # the first round warms up
                    found[name].append(us)
            if number:
                print(
                    f"round {number}: " + ", ".join(f"{name} {each[-1]:.2f} us" for name, each in found.items()),
                    flush=True,
                )
    median = {name: statistics.median(each) for name, each in found.items()}
    print("median: " + ", ".join(f"{name} {us:.2f} us" for name, us in median.items()))
    for with_it, without in (("audited", "plain"), ("counted", "read")):
        more_us = statistics.median(a - b for a, b in zip(found[with_it], found[without], strict=True))
        print(
            f"{with_it}: {median[with_it] / median[without]:.2f} times {without}, {more_us:.2f} us more a record: "
            f"2 % of a core is {20_000 / more_us:,.0f} records a second"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

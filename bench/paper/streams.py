"""The paper's consumer against the transport under it: the same messages, by turns, in one process.

python -m bench.paper.streams [--rounds 5] [--messages 1000000] [--size 200] [--partitions 4]

Each turn reads every message once and looks at its payload.  The first tenth is not timed: neither connecting nor the
rebalance counts, nor what was fetched before somebody looked.  The transport's loop is what its users write: take a
batch, skip errors.  It is told what the paper's consumer tells it; the third figure is the same loop with librdkafka's
own defaults, whose pause after a full queue leaves a fast reader waiting for up to a second.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from pylog.client import ConsumerConnector, Producer
from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection
from pylog.client.consumer import BATCH_MESSAGES, BY_ASSIGNMENT
from pylog.testing import BrokerProcess
from tests.cluster.conftest import write_config
from tests.servers.zookeeper import ZooKeeper

TOPIC = "streams"
RATIO_WANTED = 0.9


def fill(bootstrap: str, partitions: int, count: int, size: int) -> None:
    """Write the messages."""
    Admin(bootstrap).create_topic(TOPIC, partitions=partitions, replication_factor=1)
    payload = b"x" * size
    with Producer(bootstrap, acks="leader", linger_ms=20) as producer:
        for first in range(0, count, 1_000):
            producer.send_many(TOPIC, [(None, payload)] * min(1_000, count - first))


def transport(bootstrap: str, partitions: int, *, is_as_it_comes: bool) -> Iterator[int]:
    """Yield the payloads' lengths as confluent-kafka's users read them."""
    told: dict[str, object] = {
        name: value
        for name, value in BY_ASSIGNMENT.items()
        if not (is_as_it_comes and name == "fetch__queue__backoff__ms")
    }
    consumer = Consumer(Connection(bootstrap=bootstrap).librdkafka(**told, check__crcs=True))
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(partitions)])
    try:
        while True:
            for message in consumer.consume(BATCH_MESSAGES, 0.1):
                if message.error() is None:
                    yield len(message.value() or b"")
    finally:
        consumer.close()


def streams(bootstrap: str, zookeeper: str) -> Iterator[int]:
    """Yield the payloads' lengths as the paper's consumer hands them out."""
    with ConsumerConnector(bootstrap, zookeeper, f"bench-{time.monotonic_ns()}", start="smallest") as consumer:
        for message in consumer.createMessageStreams(TOPIC, 1)[0]:
            yield len(message.payload())


def rate(read: Callable[[], Iterator[int]], count: int, size: int) -> tuple[float, float]:
    """Return messages a second, and microseconds of this thread's CPU a message."""
    lengths = read()
    total = sum(islice(lengths, count // 10))
    start_s, start_cpu_s = time.perf_counter(), time.thread_time()
    timed = count - count // 10
    for length in islice(lengths, timed):
        total += length
    took_s, cpu_s = time.perf_counter() - start_s, time.thread_time() - start_cpu_s
    assert total == count * size, f"{total} bytes came, {count * size} were sent"
    lengths.close()  # type: ignore[attr-defined]  # it is a generator
    return timed / took_s, cpu_s / timed * 1e6


def main(arguments: Sequence[str]) -> int:
    """Print each round and the median of the ratios; return 1 if that is below what was wanted."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.paper.streams", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("rounds", 5), ("messages", 1_000_000), ("size", 200), ("partitions", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory, ZooKeeper(Path(directory) / "zookeeper") as zookeeper:
        config = write_config(Path(directory) / "broker", 1, zookeeper)
        with BrokerProcess(Path(directory) / "broker", config_file=config) as broker:
            fill(broker.bootstrap, options.partitions, options.messages, options.size)
            ratios, cpu_ratios = [], []

            def read_as(*, is_as_it_comes: bool) -> tuple[float, float]:
                return rate(
                    lambda: transport(broker.bootstrap, options.partitions, is_as_it_comes=is_as_it_comes),
                    options.messages,
                    options.size,
                )

            for number in range(options.rounds + 1):
                as_it_comes, _ = read_as(is_as_it_comes=True)
                under, under_us = read_as(is_as_it_comes=False)
                ours, ours_us = rate(lambda: streams(broker.bootstrap, zookeeper.hosts), options.messages, options.size)
                kind = f"round {number}" if number else "warm-up"
                print(
                    f"{kind}: transport {under:,.0f}/s {under_us:.2f} us, streams {ours:,.0f}/s {ours_us:.2f} us, "
                    f"ratio {ours / under:.3f}; librdkafka's defaults {as_it_comes:,.0f}/s",
                    flush=True,
                )
                if number:
                    ratios.append(ours / under)
                    cpu_ratios.append(under_us / ours_us)
    print(
        f"median ratio {statistics.median(ratios):.3f}, wanted {RATIO_WANTED}; "
        f"{statistics.median(cpu_ratios):.3f} where nothing but the reading thread's CPU limits the rate"
    )
    return 0 if statistics.median(ratios) >= RATIO_WANTED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What is hardest for a broker that is one Python process: work by record or by partition, and more than one core.

python -m bench.broker.limits                                           some 2 minutes, nobody else at work
python -m bench.broker.limits --rounds 1 --count 50000 --no-write       does it run at all?
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from confluent_kafka import Consumer, TopicPartition

from bench.harness import pages, pairs, process
from bench.harness.clients import run
from bench.harness.contenders import TIMEOUT_S, KafkaLike, rate_of
from bench.harness.measure import Row, write_rows
from bench.paper.paper import SIZE_BYTES
from tests.interop import frames
from tests.interop.frames import Connection
from tests.servers.kafka import KAFKA_VERSION

_ROW = Row(label="p50a1", batch=50, acks=1)
_PRODUCERS = 4
_PARTITIONS = 1_000
_REQUESTS = 200
_FIGURES = (
    ("kept as sent: messages a second", "plain_rate", ",.0f"),
    ("… broker CPU s per million", "plain_cpu", ".2f"),
    ("`compression.type=lz4`, sent without: messages a second", "lz4_rate", ",.0f"),
    ("… broker CPU s per million", "lz4_cpu", ".2f"),
    ("`compression.type=zstd`, sent without: messages a second", "zstd_rate", ",.0f"),
    ("… broker CPU s per million", "zstd_cpu", ".2f"),
    (f"{_PRODUCERS} producers, a partition each: messages a second", "many_rate", ",.0f"),
    (f"metadata of a topic of {_PARTITIONS:,} partitions: ms a request", "metadata_ms", ".2f"),
    ("offset commit, one after the other: ms each", "commit_ms", ".2f"),
)
_PAGE = """\
# Limits

What is hardest for a broker that is one process of Python: work that grows with records or partitions, and clients
that could use more than one core. {count:,} messages of {size} bytes in batches of 50, acks=1, librdkafka; {rounds}
rounds by turns with Apache Kafka {kafka}, brokers and clients share {cores} cores, nothing pinned, {day}, load average
{load:.0f} when it began. Every run: [{csv_name}](../results/{csv_name}).

{table}

Ratios are medians over the pairs of a round, pylog's figure over Kafka's: pylog loses where a rate's is below 1, and
where a time's is above. What that comes to: [where pylog loses](where-pylog-loses.md).

Again: `make bench BENCH=limits`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """One round of one system; rates in messages a second, CPU of the broker in seconds per million messages."""

    round: int
    system: str
    plain_rate: float
    plain_cpu: float
    lz4_rate: float
    lz4_cpu: float
    zstd_rate: float
    zstd_cpu: float
    many_rate: float
    metadata_ms: float
    commit_ms: float


def produced(one: KafkaLike, topic: str, count: int, **configs: str) -> tuple[float, float]:
    """Return the rate of one producer into a topic of its own, and the broker's CPU for a million messages."""
    one.topics.request(topic, 1, **configs)
    one.topics.count(topic, 1)
    before_s = process.cpu_s(one.pid)
    rate = rate_of(run(_ROW.command(one.client, one.broker.bootstrap, topic, count, SIZE_BYTES), None, TIMEOUT_S))
    used_s = process.cpu_s(one.pid) - before_s
    assert one.topics.count(topic, 1) == count, f"{one.name} has not all of {topic}"
    one.end(topic)
    return round(rate), round(used_s / count * 1e6, 3)


def many(one: KafkaLike, topic: str, count: int) -> float:
    """Return the rate of several producers together."""
    one.topics.request(topic, _PRODUCERS)
    one.topics.count(topic, _PRODUCERS)
    begun_s = time.monotonic()
    command = _ROW.command(one.client, one.broker.bootstrap, topic, count // _PRODUCERS, SIZE_BYTES)
    at = command.index("-p") + 1
    running = [
        subprocess.Popen(
            [*command[:at], str(number), *command[at + 1 :]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for number in range(_PRODUCERS)
    ]
    codes = [producer.wait(TIMEOUT_S) for producer in running]
    took_s = time.monotonic() - begun_s
    assert not any(codes), f"producers ended with {codes}"
    one.end(topic)
    return round(count / took_s)


def metadata_ms(one: KafkaLike, topic: str) -> float:
    """Return the milliseconds of the median request for the metadata of one large topic."""
    one.topics.request(topic, _PARTITIONS)
    one.topics.count(topic, _PARTITIONS)
    took = []  # and the topic stays: Kafka would go on deleting under what is measured next
    with Connection(one.broker.bootstrap) as connection:
        for _ in range(_REQUESTS):
            begun_s = time.perf_counter()
            connection.ask(frames.metadata(topic.encode()))
            took.append(time.perf_counter() - begun_s)
    return round(statistics.median(took) * 1000, 3)


def commit_ms(one: KafkaLike, topic: str) -> float:
    """Return the milliseconds of the median commit of one offset."""
    one.begin(topic)
    consumer = Consumer({"bootstrap.servers": one.broker.bootstrap, "group.id": topic, "enable.auto.commit": False})
    took = []
    for number in range(_REQUESTS):
        begun_s = time.perf_counter()
        consumer.commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=False)
        took.append(time.perf_counter() - begun_s)
    consumer.close()
    one.end(topic)
    return round(statistics.median(took) * 1000, 3)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print its table and keep its results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.broker.limits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=500_000)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    options = parser.parse_args(arguments)

    def measure(one: KafkaLike, number: int) -> Limits:
        plain = produced(one, f"plain-{number}", options.count)
        lz4 = produced(one, f"lz4-{number}", options.count, compression_type="lz4")
        zstd = produced(one, f"zstd-{number}", options.count, compression_type="zstd")
        return Limits(
            round=number,
            system=one.name,
            plain_rate=plain[0],
            plain_cpu=plain[1],
            lz4_rate=lz4[0],
            lz4_cpu=lz4[1],
            zstd_rate=zstd[0],
            zstd_cpu=zstd[1],
            many_rate=many(one, f"many-{number}", 2 * options.count),
            metadata_ms=metadata_ms(one, f"large-{number}"),
            commit_ms=commit_ms(one, f"commit-{number}"),
        )

    load = os.getloadavg()[0]
    found = pairs.by_turns(options.rounds, measure, None)
    csv_name = pages.result_name("limits")
    text = _PAGE.format(
        count=options.count,
        size=SIZE_BYTES,
        rounds=options.rounds,
        kafka=KAFKA_VERSION,
        cores=os.cpu_count(),
        load=load,
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        csv_name=csv_name,
        table=pairs.table(found, _FIGURES),
    )
    print(text)
    if options.write:
        write_rows(pages.RESULTS / csv_name, Limits, found)
        pages.write_page("limits", text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

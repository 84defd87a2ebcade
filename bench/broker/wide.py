"""A topic of a thousand partitions: how long it takes to make, and how fast it is written to, by turns with Kafka.

python -m bench.broker.wide                                              some 2 minutes, nobody else at work
python -m bench.broker.wide --rounds 1 --count 50000 --partitions 50 --no-write    does it run at all?
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bench.harness import pages, pairs, process
from bench.harness.clients import run
from bench.harness.contenders import TIMEOUT_S, KafkaLike, rate_of
from bench.harness.measure import write_rows
from bench.paper.paper import SIZE_BYTES, split_cpus
from tests.servers.kafka import KAFKA_VERSION

_PAGE = """\
# A thousand partitions

A topic of {partitions:,} partitions is made, {count:,} messages of {size} bytes are sent to partitions drawn at random
(acks=1, linger 50 ms, one librdkafka producer): {rounds} rounds, each with a topic more, by turns with Apache Kafka
{kafka}, broker and client pinned to a core each, {day}, load average {load:.0f} when it began. Every run:
[{csv_name}](../results/{csv_name}).

{table}

Ratios are medians over the pairs of a round, pylog's figure over Kafka's. A request holds a small batch for each of
many partitions here, so what counts is the work a partition costs, not a message. Lost: {lost}.

Again: `make bench BENCH=wide`.
"""


_FIGURES = (
    ("topic made, s", "create_s", ".2f"),
    ("until every partition answers, s", "led_s", ".2f"),
    ("messages a second", "rate", ",.0f"),
    ("broker CPU s per million messages", "cpu_s_per_million", ".2f"),
    ("broker memory, MB", "rss_mb", ",.0f"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wide:
    """One round of one system.

    Attributes:
        create_s: until the controller said that the topic is made.
        led_s: until every partition answers.
        lost: messages that are in no partition.
    """

    round: int
    system: str
    partitions: int
    count: int
    create_s: float
    led_s: float
    rate: float
    cpu_s_per_million: float
    other_cores: float
    rss_mb: float
    lost: int


def measure(one: KafkaLike, partitions: int, count: int, cpus: frozenset[int] | None, number: int) -> Wide:
    """Make a topic and write to it; it stays, since Kafka would go on deleting under what is measured next."""
    topic = f"wide-{number}"
    begun_s = time.monotonic()
    one.topics.request(topic, partitions)
    create_s = time.monotonic() - begun_s
    one.topics.count(topic, partitions)
    led_s = time.monotonic() - begun_s
    command = [
        str(one.client),
        "-P",
        "-b",
        one.broker.bootstrap,
        "-t",
        topic,
        "-c",
        str(count),
        "-s",
        str(SIZE_BYTES),
        "-X",
        "acks=1",
        "-X",
        "linger.ms=50",
        "-X",
        "partitioner=random",
        "-X",
        "sticky.partitioning.linger.ms=0",
    ]
    before, begun_s = process.usage(one.pid), time.monotonic()
    output = run(command, cpus, TIMEOUT_S)
    wall_s, used = time.monotonic() - begun_s, process.usage(one.pid) - before
    lost = count - one.topics.count(topic, partitions)
    rss_mb = process.rss_mb(one.pid)
    return Wide(
        round=number,
        system=one.name,
        partitions=partitions,
        count=count,
        create_s=round(create_s, 3),
        led_s=round(led_s, 3),
        rate=round(rate_of(output)),
        cpu_s_per_million=round(used.broker_cpu_s / count * 1e6, 3),
        other_cores=round(used.other_cpu_s / wall_s, 3),
        rss_mb=round(rss_mb, 1),
        lost=lost,
    )


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print its table and keep its results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.broker.wide", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--count", type=int, default=500_000)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    options = parser.parse_args(arguments)
    broker_cpus, client_cpus = split_cpus()
    load = os.getloadavg()[0]
    found = pairs.by_turns(
        options.rounds,
        lambda one, number: measure(one, options.partitions, options.count, client_cpus, number),
        broker_cpus,
    )
    text = _PAGE.format(
        partitions=options.partitions,
        count=options.count,
        size=SIZE_BYTES,
        rounds=options.rounds,
        kafka=KAFKA_VERSION,
        load=load,
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        csv_name=pages.result_name("wide"),
        table=pairs.table(found, _FIGURES),
        lost=sum(one.lost for one in found),
    )
    print(text)
    if options.write:
        write_rows(pages.RESULTS / pages.result_name("wide"), Wide, found)
        pages.write_page("wide", text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

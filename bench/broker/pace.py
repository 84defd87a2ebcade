"""Latency from end to end at a thousand messages a second, by turns with Kafka.

One producer sends at a steady pace without lingering, one consumer reads along; a message carries when it was sent.

python -m bench.broker.pace                                       some 2 minutes, nobody else at work
python -m bench.broker.pace --rounds 1 --seconds 3 --no-write     does it run at all?
"""

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bench.harness import pages, pairs
from bench.harness.contenders import KafkaLike
from bench.harness.measure import write_rows
from bench.paper.paper import SIZE_BYTES, split_cpus
from bench.paper.sustained import hold
from tests.servers.kafka import KAFKA_VERSION

_TICK_S = 0.0005
_PAGE = """\
# Latency at a steady pace

{rate:,} messages of {size} bytes a second, acks=1, sent one by one without lingering; from handing a message to the
producer until the consumer has it. {rounds} rounds of {seconds:g} s, by turns with Apache Kafka {kafka}, brokers pinned
to one core and the client with both its sides to the other, {day}. Every run: [{csv_name}](../results/{csv_name}).

{table}

Ratios are medians over the pairs of a round, pylog's figure over Kafka's. The client is confluent-kafka in one Python
process, whose own work is in every figure of both.

Again: `make bench BENCH=pace`.
"""


_FIGURES = (
    ("p50, ms", "p50_ms", ".2f"),
    ("p99, ms", "p99_ms", ".2f"),
    ("worst, ms", "max_ms", ".2f"),
    ("broker CPU, cores", "cpu_cores", ".3f"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """One run."""

    round: int
    system: str
    received: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_cores: float


def measure(one: KafkaLike, rate: int, seconds: float, number: int) -> Pace:
    """Hold the pace once, on a topic of its own; the first interval is left out, since clients connect in it."""
    intervals, sent, received = hold(
        one, rate, seconds, seconds / 4, topic=f"pace-{number}", linger_ms=0, tick_s=_TICK_S
    )
    assert received == sent, f"{one.name} delivered {received} of {sent}"
    steady = intervals[1:]
    return Pace(
        round=number,
        system=one.name,
        received=received,
        p50_ms=round(statistics.median(one.p50_ms for one in steady), 2),
        p99_ms=round(statistics.median(one.p99_ms for one in steady), 2),
        max_ms=max(one.max_ms for one in steady),
        cpu_cores=round(sum(one.broker_cpu_s for one in steady) / (steady[-1].second - intervals[0].second), 3),
    )


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print its table and keep its results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.broker.pace", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    options = parser.parse_args(arguments)
    broker_cpus, client_cpus = split_cpus()

    def run(one: KafkaLike, number: int) -> Pace:
        os.sched_setaffinity(0, client_cpus)  # for the threads of the clients, which are made now
        return measure(one, options.rate, options.seconds, number)

    found = pairs.by_turns(options.rounds, run, broker_cpus)
    text = _PAGE.format(
        rate=options.rate,
        size=SIZE_BYTES,
        rounds=options.rounds,
        seconds=options.seconds,
        kafka=KAFKA_VERSION,
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        csv_name=pages.result_name("pace"),
        table=pairs.table(found, _FIGURES),
    )
    print(text)
    if options.write:
        write_rows(pages.RESULTS / pages.result_name("pace"), Pace, found)
        pages.write_page("pace", text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

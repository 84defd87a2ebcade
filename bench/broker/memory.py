"""What a broker holds in memory: idle, and with a thousand partitions, five hundred connections and 8 GB of log.

python -m bench.broker.memory                                              some 3 minutes, of which it mostly writes
python -m bench.broker.memory --gb 0.1 --partitions 50 --connections 20 --no-write   does it run at all?
"""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

from bench.broker.startup import fill
from bench.harness import pages, process
from bench.harness.clients import WORK_DIR
from bench.harness.contenders import KafkaLike, contender
from bench.harness.measure import write_rows
from tests.interop import frames
from tests.interop.frames import Connection
from tests.servers.kafka import KAFKA_VERSION

_TOPIC = "full"
_SETTLE_S = 3.0
_IDLE = "idle"
_PAGE = """\
# Memory

Resident memory of one broker with its default settings, in 10^6 bytes, {settle:g} s after each step; Apache Kafka
{kafka} with the heap its own start script asks for, {day}. Every figure: [{csv_name}](../results/{csv_name}).

{table}

The log was written in batches of 100 KB over all partitions. Aimed at: 60 MB idle, 120 MB with everything.

Again: `make bench BENCH=memory`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One reading."""

    system: str
    step: str
    rss_mb: float


def steps(one: KafkaLike, partitions: int, connections: int, size_bytes: int) -> list[Held]:
    """Give *one* more and more to hold, and read after each step."""
    found: list[Held] = []

    def read(step: str) -> None:
        time.sleep(_SETTLE_S)
        found.append(Held(system=one.name, step=step, rss_mb=round(process.rss_mb(one.pid), 1)))
        print(found[-1], flush=True)

    read(_IDLE)
    one.topics.request(_TOPIC, partitions)
    one.topics.count(_TOPIC, partitions)
    read(f"{partitions:,} partitions")
    with ExitStack() as stack:
        for _ in range(connections):
            stack.enter_context(Connection(one.broker.bootstrap)).ask(frames.api_versions())
        read(f"and {connections:,} connections")
        fill(one.broker.bootstrap, _TOPIC, partitions, size_bytes)
        read(f"and {size_bytes / 1e9:g} GB of log")
    return found


def table(found: Sequence[Held]) -> str:
    """Return a row for each step and a column for each system."""
    systems = list(dict.fromkeys(one.system for one in found))
    held = {(one.step, one.system): one.rss_mb for one in found}
    rows = [f"| | {' | '.join(f'{system}, MB' for system in systems)} |", "|---" + "|--:" * len(systems) + "|"]
    rows += [
        f"| {step} | {' | '.join(f'{held[step, system]:,.0f}' for system in systems)} |"
        for step in dict.fromkeys(one.step for one in found)
    ]
    return "\n".join(rows)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print its table and keep its results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.broker.memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--gb", type=float, default=8)
    parser.add_argument("--systems", nargs="+", choices=("pylog", "kafka"), default=("pylog", "kafka"))
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    options = parser.parse_args(arguments)
    found: list[Held] = []
    for system in options.systems:
        with contender(system, WORK_DIR, None) as one:
            assert isinstance(one, KafkaLike), "both speak Kafka's protocol"
            found += steps(one, options.partitions, options.connections, int(options.gb * 1e9))
    text = _PAGE.format(
        settle=_SETTLE_S,
        kafka=KAFKA_VERSION,
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        csv_name=pages.result_name("memory"),
        table=table(found),
    )
    print(text)
    if options.write:
        write_rows(pages.RESULTS / pages.result_name("memory"), Held, found)
        pages.write_page("memory", text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

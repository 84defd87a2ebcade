"""One topic, many readers: what another subscriber costs.

python -m bench.paper.fan_out                              some 2 minutes
python -m bench.paper.fan_out --count 100000 --no-write    does it run at all?
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bench.harness import pages, process
from bench.harness.clients import WORK_DIR
from bench.harness.contenders import TIMEOUT_S, KafkaLike, contender, measure
from bench.harness.measure import Row, write_rows
from bench.paper.paper import SIZE_BYTES

READERS = (1, 5, 20)
_TOPIC = "fan-out"
_PAGE = """\
# Fan-out

{count:,} messages of {size} bytes in one partition, read whole by 1, 5 and 20 consumers at once that know nothing of
each other; brokers and clients share {cores} cores, {day}. Every figure: [{csv_name}](../results/{csv_name}).

![CPU](fan_out.svg)

{table}

Every byte is in the page cache once; each reader costs a sendfile of its own and nothing else. The total is bounded by
the clients, which share the cores with the broker here.

Again: `make bench BENCH=fan_out`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fan:
    """So many readers of one topic.

    Attributes:
        total_rate: messages a second, all readers together.
        cpu_s_per_million: the broker's CPU seconds for a million messages delivered.
    """

    system: str
    readers: int
    total_rate: float
    cpu_s_per_million: float
    broker_rss_mb: float


def fan(broker: KafkaLike, readers: int, count: int) -> Fan:
    """Let *readers* read the topic at once, each of them all of it."""
    command = [
        str(broker.client),
        "-C",
        "-b",
        broker.broker.bootstrap,
        "-t",
        _TOPIC,
        "-p",
        "0",
        "-c",
        str(count),
        "-X",
        "fetch.message.max.bytes=204800",
        "-X",
        "queued.min.messages=50000",
    ]
    before, start = process.cpu_s(broker.pid), time.monotonic()
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(readers)]
    codes = [one.wait(TIMEOUT_S) for one in running]
    assert not any(codes), f"readers ended with {codes}"
    took, used = time.monotonic() - start, process.cpu_s(broker.pid) - before
    delivered = readers * count
    return Fan(
        system=broker.name,
        readers=readers,
        total_rate=round(delivered / took),
        cpu_s_per_million=round(used / delivered * 1e6, 3),
        broker_rss_mb=round(process.rss_mb(broker.pid), 1),
    )


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print its table and keep its results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.paper.fan_out", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--systems", nargs="+", choices=("pylog", "kafka"), default=("pylog", "kafka"))
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    options = parser.parse_args(arguments)
    found: list[Fan] = []
    for system in options.systems:
        with contender(system, WORK_DIR, None) as broker:
            assert isinstance(broker, KafkaLike), "both speak Kafka's protocol"
            broker.begin(_TOPIC)
            measure(broker, Row(label="fill", batch=50, acks=1), _TOPIC, options.count, SIZE_BYTES, None, 0)
            fan(broker, 1, options.count)  # not counted: a Java machine compiles meanwhile
            for readers in READERS:
                found.append(fan(broker, readers, options.count))
                print(found[-1], flush=True)
    rows = ["| system | readers | msgs/s, all together | broker CPU s/M | broker RSS |", "|---|--:|--:|--:|--:|"]
    rows += [
        f"| {one.system} | {one.readers} | {one.total_rate:,.0f} | {one.cpu_s_per_million:.2f} "
        f"| {one.broker_rss_mb:.0f} MB |"
        for one in found
    ]
    table = "\n".join(rows)
    print(table)
    if options.write:
        csv_name = pages.result_name("fan_out")
        write_rows(pages.RESULTS / csv_name, Fan, found)
        pages.lines(
            "fan_out",
            "Broker CPU a message delivered",
            ("readers", "CPU s per million"),
            {
                system: [(one.readers, one.cpu_s_per_million) for one in found if one.system == system]
                for system in options.systems
            },
        )
        pages.write_page(
            "fan_out",
            _PAGE.format(
                count=options.count,
                size=SIZE_BYTES,
                cores=os.cpu_count(),
                day=f"{datetime.now(UTC):%Y-%m-%d}",
                csv_name=csv_name,
                table=table,
            ),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

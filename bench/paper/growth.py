"""Throughput over a growing log, and what a message costs on disk.

One topic grows to 8 GB in steps; after each step the newest and the oldest gigabyte are read. The paper's claim: what a
log holds changes nothing. Then the bytes on disk a message, beside Apache Kafka, RabbitMQ and ActiveMQ.

python -m bench.paper.growth                               some 10 minutes and 9 GB of disk
python -m bench.paper.growth --step-mb 50 --no-write       does it run at all?
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.harness import pages, process
from bench.harness.clients import WORK_DIR, run
from bench.harness.contenders import SYSTEMS, TIMEOUT_S, KafkaLike, contender, measure, rate_of
from bench.harness.measure import Row
from bench.paper.paper import SIZE_BYTES

STEPS = (1, 4, 8)
_PRODUCE = Row(label="p50a1", batch=50, acks=1)
_TOPIC = "growth"
_PAGE = """\
# A growing log

One partition of {size}-byte messages in batches of 50 grows to {end:.1f} GB; at each size the last step was timed, then
the oldest and the newest {window:,} messages were read. {day}, every figure: [{csv_name}](../results/{csv_name}).

![throughput](growth.svg)

{table}

The broker's memory holds no message: what grows is the page cache, which the kernel takes back when it wants.

## Bytes on disk a message

{count:,} messages of {size} bytes each, uncompressed, what the data directory had more afterwards, divided.

{footprint}

Again: `make bench BENCH=growth`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The log at one size.

    Attributes:
        size_gb: of the topic's messages, in 10^9 bytes of payload.
        produce_rate: messages a second while it grew to that size.
        oldest_rate: reading its first messages.
        newest_rate: reading its last messages.
    """

    size_gb: float
    produce_rate: float
    oldest_rate: float
    newest_rate: float
    broker_rss_mb: float


def grow(broker: KafkaLike, step_mb: int, window: int) -> list[Step]:
    """Grow one topic in `STEPS` of *step_mb* each and return what was measured at every size."""
    broker.begin(_TOPIC)
    steps, total = [], 0
    for wanted in STEPS:
        count = wanted * step_mb * 1_000_000 // SIZE_BYTES - total
        sample = measure(broker, _PRODUCE, _TOPIC, count, SIZE_BYTES, None, 0)
        assert sample is not None, "every system produces"
        total += count
        oldest, newest = (_read(broker, offset, window) for offset in (0, -window))
        steps.append(
            Step(
                size_gb=total * SIZE_BYTES / 1e9,
                produce_rate=sample.rate,
                oldest_rate=oldest,
                newest_rate=newest,
                broker_rss_mb=process.rss_mb(broker.pid),
            )
        )
        print(steps[-1], flush=True)
    return steps


def _read(broker: KafkaLike, start: int, count: int) -> float:
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
        "-o",
        str(start),
        "-X",
        "fetch.message.max.bytes=204800",
    ]
    return rate_of(run(command, None, TIMEOUT_S))


def disk_bytes(directory: Path) -> int:
    """Return the bytes that the files below *directory* occupy."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def footprint(count: int) -> dict[str, float]:
    """Return bytes on disk a message, by system and batch size."""
    found: dict[str, float] = {}
    for system in SYSTEMS:
        with contender(system, WORK_DIR, None) as one:
            for batch in (1, 50):
                row, queue = Row(label=f"p{batch}a1", batch=batch, acks=1), f"footprint-{batch}"
                one.begin(queue)
                before = disk_bytes(one.data_dir)
                if measure(one, row, queue, count, SIZE_BYTES, None, 0) is not None:
                    found[f"{system}, batches of {batch}"] = (disk_bytes(one.data_dir) - before) / count
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print its table and keep its results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.paper.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--step-mb", type=int, default=1_000, help="payload of one of the 8 steps")
    parser.add_argument("--window", type=int, default=1_000_000, help="messages read at each end")
    parser.add_argument("--footprint-count", type=int, default=300_000)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    options = parser.parse_args(arguments)
    window = min(options.window, options.step_mb * 1_000_000 // SIZE_BYTES)
    with contender("pylog", WORK_DIR, None) as broker:
        assert isinstance(broker, KafkaLike), "pylog speaks Kafka's protocol"
        steps = grow(broker, options.step_mb, window)
    sizes = footprint(options.footprint_count)
    table = "\n".join(
        ["| log | produce msgs/s | read oldest msgs/s | read newest msgs/s | broker RSS |", "|--:|--:|--:|--:|--:|"]
        + [
            f"| {step.size_gb:.1f} GB | {step.produce_rate:,.0f} | {step.oldest_rate:,.0f} | {step.newest_rate:,.0f} "
            f"| {step.broker_rss_mb:.0f} MB |"
            for step in steps
        ]
    )
    sizes_table = "\n".join(
        ["| system | bytes a message | above the payload |", "|---|--:|--:|"]
        + [f"| {name} | {size:.0f} | {size - SIZE_BYTES:.0f} |" for name, size in sizes.items()]
    )
    print(table, sizes_table, sep="\n\n")
    if options.write:
        csv_name = pages.result_name("growth")
        pages.RESULTS.mkdir(parents=True, exist_ok=True)
        with (pages.RESULTS / csv_name).open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["size_gb", "produce_rate", "oldest_rate", "newest_rate", "broker_rss_mb"])
            writer.writerows(
                [step.size_gb, step.produce_rate, step.oldest_rate, step.newest_rate, step.broker_rss_mb]
                for step in steps
            )
            writer.writerow(["system", "bytes_a_message"])
            writer.writerows(sizes.items())
        pages.lines(
            "growth",
            "Throughput over a growing log",
            ("GB in the log", "messages a second"),
            {
                "produce": [(step.size_gb, step.produce_rate) for step in steps],
                "read oldest": [(step.size_gb, step.oldest_rate) for step in steps],
                "read newest": [(step.size_gb, step.newest_rate) for step in steps],
            },
        )
        pages.write_page(
            "growth",
            _PAGE.format(
                size=SIZE_BYTES,
                end=steps[-1].size_gb,
                window=window,
                day=f"{datetime.now(UTC):%Y-%m-%d}",
                csv_name=csv_name,
                table=table,
                count=options.footprint_count,
                footprint=sizes_table,
            ),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

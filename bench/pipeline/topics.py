"""A thousand topics in one load: how many files, how long, and is everything there once?

python -m bench.pipeline.topics [--topics 1000] [--partitions 8] [--records 8] [--loads 2] [--directory DIR]

Each partition gets some records before each load, so every load reads all partitions.  A load is one run of the job in
a process of its own, Spark's start included, as a timer starts it.  Ends with 1 when a record is missing or doubled, or
when a load makes more files than there are topics and tasks: a topic's partitions then no longer stay together.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.dataset as ds
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.pipeline.ingest import measured
from pylog.ingest.lake import Lake
from pylog.ingest.plan import MIN_TASK_OFFSETS
from pylog.model import TopicPartition
from pylog.testing import BrokerProcess

_TIMEOUT_S = 600
_AT_ONCE = 50


def create(bootstrap: str, names: Sequence[str], partitions: int) -> None:
    """Create the topics, some at a time."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for start in range(0, len(names), _AT_ONCE):
        wanted = [NewTopic(name, partitions, 1) for name in names[start : start + _AT_ONCE]]
        for created in admin.create_topics(wanted, request_timeout=_TIMEOUT_S).values():
            created.result(_TIMEOUT_S)


def fill(bootstrap: str, names: Sequence[str], partitions: int, numbers: range, at_ms: int) -> None:
    """Produce one record of each of *numbers* to each partition, all of the same time."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 500,
            "enable.idempotence": True, "queue.buffering.max.messages": 1_000_000,
         "message.timeout.ms": _TIMEOUT_S * 1000}
    )  # fmt: skip
    for name in names:
        for partition in range(partitions):
            for number in numbers:
                producer.produce(name, bytes(100), b"%d" % number, partition, timestamp=at_ms)
        producer.poll(0)
    left = producer.flush(_TIMEOUT_S)
    assert left == 0, f"{left} records were not acknowledged"


def faults(lake: Path, names: Sequence[str], partitions: int, count: int, files: int) -> list[str]:
    """Return what is wrong with the lake after a load.

    Args:
        lake: its directory.
        names: of the topics.
        partitions: of each topic.
        count: records that each partition has.
        files: that the load made.
    """
    state = Lake.open(lake).visible()
    where = ["topic", "partition", "offset"]
    rows = ds.dataset(
        [str(lake / path) for path in state.files], format="parquet", partitioning="hive", partition_base_dir=str(lake)
    )
    table = rows.to_table(columns=where)
    ends = {TopicPartition(name, partition): count for name in names for partition in range(partitions)}
    found = []
    if table.num_rows != len(ends) * count:
        found.append(f"{table.num_rows} records are in the lake, {len(ends) * count} were produced")
    # What the load doubled has one offset twice; what a producer sent twice has two.
    if doubled := table.num_rows - table.group_by(where).aggregate([]).num_rows:
        found.append(f"{doubled} offsets are in the lake more than once")
    if table.num_rows != sum(state.position.offsets.values()):
        found.append(f"{table.num_rows} records are in the lake, and the topics have other ends")
    if state.position.offsets != ends:
        found.append(f"a partition was not loaded up to offset {count}")
    # All records are of one hour, and a topic between two tasks has a file of each.
    if files > len(names) + len(ends) * count // MIN_TASK_OFFSETS:
        found.append(f"one load made {files} files of {len(names)} topics")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Load some times, and print a row of each load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, default in (("topics", 1000), ("partitions", 8), ("records", 8), ("loads", 2)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--directory", type=Path, help="for broker and lake, on the disk that is meant")
    given = parser.parse_args(arguments)
    names = [f"topic-{number:04}" for number in range(given.topics)]
    work = Path(tempfile.mkdtemp(prefix="pylog-bench-", dir=given.directory))
    wrong: list[str] = []
    try:
        with BrokerProcess(work / "broker", config={"log.retention.ms": "-1"}) as broker:
            began, at_ms = time.monotonic(), int(time.time() * 1000)
            create(broker.bootstrap, names, given.partitions)
            print(
                f"{given.topics} topics of {given.partitions} partitions in {time.monotonic() - began:.0f} s",
                flush=True,
            )
            print("| load | records | files | CPU s | elapsed s | load of the machine |")
            print("|---|--:|--:|--:|--:|--:|", flush=True)
            before = 0
            for load in range(1, given.loads + 1):
                numbers = range((load - 1) * given.records, load * given.records)
                fill(broker.bootstrap, names, given.partitions, numbers, at_ms)
                wall_s, cpu_s = measured([
                    sys.executable, "-m", "pylog.ingest.job", f"--bootstrap={broker.bootstrap}",
                    "--topic-pattern=topic-[0-9]+", f"--lake={work / 'lake'}", f"--checkpoint={work / 'checkpoint'}",
                ])  # fmt: skip
                state = Lake.open(work / "lake").visible()
                made, before = len(state.files) - before, len(state.files)
                print(
                    f"| {load} | {given.topics * given.partitions * given.records:,} | {made:,} "
                    f"| {cpu_s:.0f} | {wall_s:.0f} | {os.getloadavg()[0]:.0f} |",
                    flush=True,
                )
                wrong += faults(work / "lake", names, given.partitions, load * given.records, made)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for fault in wrong[:10]:
        print(f"topics: {fault}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

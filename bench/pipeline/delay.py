"""End-to-end delay: from a producer in one datacenter to a consumer in the other, and to Parquet in continuous mode.

python -m bench.pipeline.delay [--rate 5000] [--seconds 60] [--size 200] [--partitions 8] [--pause 1]

Two brokers of pylog, `pylog mirror run` between them as deployed, a load job that loads every second from the second
one.  Each message holds the time at which it was handed to the producer.  A consumer in the second datacenter and
whoever lists the lake take the time at which they see it: one clock, since all runs on one machine.
"""

import argparse
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.pipeline.mirror import TOPIC, pylog_command
from pylog.client.admin.cluster import Admin
from pylog.testing import BrokerProcess

_TIME = struct.Struct(">q")
_TICK_S = 0.005
_WARM_UP_S = 10.0
_LOOK_S = 0.02
_PATIENCE_S = 60.0


class Watch(threading.Thread):
    """Notes when each of the lake's files was there, which is when a reader of the directory sees it."""

    def __init__(self, lake: Path) -> None:
        super().__init__(daemon=True)
        self.seen_ns: dict[Path, int] = {}
        self._lake = lake
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(_LOOK_S):
            for path in self._lake.glob("topic=*/*/*/*.parquet"):
                self.seen_ns.setdefault(path, time.time_ns())

    def stop(self) -> None:
        self._end.set()
        self.join()

    def delays(self) -> Iterator[tuple[int, int]]:
        """Yield when each message was sent and how long it took, in ns."""
        for path, seen_ns in self.seen_ns.items():
            for value in pq.read_table(path, columns=["value"])["value"].to_pylist():
                sent_ns = _TIME.unpack_from(value)[0]
                yield sent_ns, seen_ns - sent_ns


class Reader(threading.Thread):
    """Consumes in the second datacenter."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.found: list[tuple[int, int]] = []
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": "delay", "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        })  # fmt: skip
        self._consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(partitions)])
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                sent_ns = _TIME.unpack_from(message.value() or b"")[0]
                self.found.append((sent_ns, time.time_ns() - sent_ns))
        self._consumer.close()

    def stop(self) -> None:
        self._end.set()
        self.join()


def send(bootstrap: str, rate: int, seconds: float, size: int) -> int:
    """Send at a steady rate; return how many."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"})
    filler, count, began = os.urandom(size - _TIME.size), 0, time.monotonic()
    while (elapsed_s := time.monotonic() - began) < seconds:
        for _ in range(int(elapsed_s * rate) - count):
            producer.produce(TOPIC, _TIME.pack(time.time_ns()) + filler)
            count += 1
        producer.poll(_TICK_S)
    left = producer.flush(_PATIENCE_S)
    assert left == 0, f"{left} messages were not acknowledged"
    return count


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[None]:
    """Run a program meanwhile."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"{command[2]} ended:\n{log.read_text()[-3000:]}")
        finally:
            process.terminate()


def row(name: str, delays: Iterator[tuple[int, int]], from_ns: int, until_ns: int) -> str:
    """Return a line of the result: count and percentiles in ms of what was sent in a stretch of time."""
    taken = np.array([delay for sent_ns, delay in delays if from_ns <= sent_ns < until_ns], dtype=np.float64) / 1e6
    cuts = [f"{np.percentile(taken, q):,.0f}" for q in (50, 90, 99, 99.9)]
    return f"| {name} | {len(taken):,} | {' | '.join(cuts)} | {taken.max():,.0f} |"


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline.delay")
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--pause", type=float, default=1)
    given = parser.parse_args()
    config = {"log.retention.ms": "-1"}
    with (
        tempfile.TemporaryDirectory() as text,
        BrokerProcess(Path(text) / "live", config=config) as live,
        BrokerProcess(Path(text) / "offline", config=config) as offline,
    ):
        directory, lake = Path(text), Path(text) / "lake"
        for broker in (live, offline):
            Admin(broker.bootstrap).create_topic(TOPIC, partitions=given.partitions, replication_factor=1)
        load = [sys.executable, "-m", "pylog.ingest.job", "--bootstrap", offline.bootstrap, "--topics", TOPIC,
                "--lake", str(lake), "--checkpoint", str(directory / "checkpoint"), "--every",
                str(given.pause)]  # fmt: skip
        watch, reader = Watch(lake), Reader(offline.bootstrap, given.partitions)
        with (
            running(pylog_command(directory, live.bootstrap, offline.bootstrap, 0), directory / "mirror.log"),
            running(load, directory / "load.log"),
        ):
            watch.start()
            reader.start()
            send(live.bootstrap, given.rate, _WARM_UP_S, given.size)
            deadline = time.monotonic() + _PATIENCE_S
            while not watch.seen_ns:  # Spark has started and loaded for the first time
                assert time.monotonic() < deadline, (directory / "load.log").read_text()[-3000:]
                time.sleep(_LOOK_S)
            send(live.bootstrap, given.rate, _WARM_UP_S, given.size)
            from_ns = time.time_ns()
            count = send(live.bootstrap, given.rate, given.seconds, given.size)
            until_ns = time.time_ns()
            while sum(pq.read_metadata(path).num_rows for path in list(watch.seen_ns)) < len(reader.found):
                assert time.monotonic() < deadline + given.seconds + _PATIENCE_S, "the lake lacks records"
                time.sleep(0.5)
            time.sleep(2)
            load_average = os.getloadavg()[0]
        watch.stop()
        reader.stop()
        print(f"{count:,} messages in {given.seconds:g} s, {given.size} bytes, {given.partitions} partitions, "
              f"load {load_average:.1f}\n")  # fmt: skip
        print("| from the producer to | messages | p50 ms | p90 ms | p99 ms | p99.9 ms | worst ms |")
        print("|---|--:|--:|--:|--:|--:|--:|")
        print(row("a consumer in the other datacenter", iter(reader.found), from_ns, until_ns))
        print(row("Parquet in the lake", watch.delays(), from_ns, until_ns))
    return 0


if __name__ == "__main__":
    sys.exit(main())

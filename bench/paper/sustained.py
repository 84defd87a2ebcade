"""A billion messages a day, held: 12,000 a second for ten minutes, with memory and latency drawn.

One producer sends at a steady pace, one consumer reads along; a message carries when it was sent.

python -m bench.paper.sustained                            ten minutes
python -m bench.paper.sustained --seconds 20 --no-write    does it run at all?
"""

import argparse
import os
import statistics
import struct
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.harness import pages, process
from bench.harness.clients import WORK_DIR
from bench.harness.contenders import KafkaLike, contender
from bench.harness.measure import write_rows
from bench.paper.paper import SIZE_BYTES

_TOPIC = "sustained"
_TICK_S = 0.01
_STAMP = struct.Struct(">q")
_PAGE = """\
# A billion messages a day

{rate:,} messages of {size} bytes a second for {minutes:.0f} minutes, one producer, one consumer that reads along,
acks=1, on a machine of {cores} cores that runs all three, {day}. The latency is from handing a message to the producer
(linger 5 ms) until the consumer has it. Every {interval:.0f} seconds: [{csv_name}](../results/{csv_name}).

![latency](sustained_p99.svg)

![memory](sustained_rss.svg)

{sent:,} sent, {received:,} received. p99 in the median interval {p99:.1f} ms, in the worst {worst:.1f} ms; the broker's
memory {rss_first:.0f} MB at first and {rss_last:.0f} MB at last; its CPU {cpu:.3f} of a core.

Again: `make bench BENCH=sustained`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """What was seen since the one before."""

    second: float
    received: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    broker_rss_mb: float
    broker_cpu_s: float


class _Reader(threading.Thread):
    """Collects latencies; whoever looks takes them along."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "sustained",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._latencies: list[float] = []
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self.received = 0

    def run(self) -> None:
        """Read until stopped."""
        while not self._is_over.is_set():
            # One is waited for, then what else is there: asked for a thousand, the library waits for all of them.
            first = self._consumer.poll(0.1)
            messages = [first, *self._consumer.consume(1_000, timeout=0)] if first is not None else []
            now = time.monotonic_ns()
            took = [
                (now - _STAMP.unpack_from(message.value() or b"")[0]) / 1e6
                for message in messages
                if not message.error()
            ]
            self.received += len(took)
            with self._lock:
                self._latencies += took
        self._consumer.close()

    def take(self) -> list[float]:
        """Return the milliseconds of what came since last asked."""
        with self._lock:
            taken, self._latencies = self._latencies, []
        return taken

    def stop(self) -> None:
        """Let the thread end."""
        self._is_over.set()
        self.join()


def hold(
    broker: KafkaLike,
    rate: int,
    seconds: float,
    interval_s: float,
    *,
    topic: str = _TOPIC,
    linger_ms: float = 5,
    tick_s: float = _TICK_S,
) -> tuple[list[Interval], int, int]:
    """Send *rate* messages a second for *seconds*; return the intervals, and how many were sent and received."""
    broker.begin(topic)
    reader = _Reader(broker.broker.bootstrap, topic)
    reader.start()
    producer = Producer({"bootstrap.servers": broker.broker.bootstrap, "acks": "1", "linger.ms": linger_ms})
    intervals: list[Interval] = []
    start, sent, seen, cpu = time.monotonic(), 0, 0, process.cpu_s(broker.pid)
    filling = b"x" * (SIZE_BYTES - _STAMP.size)
    while (elapsed := time.monotonic() - start) < seconds:
        # By the clock, not by naps: what a late wake-up missed is sent with the next one.
        for _ in range(int(elapsed * rate) - sent):
            producer.produce(topic, _STAMP.pack(time.monotonic_ns()) + filling, partition=0)
            sent += 1
        producer.poll(0)
        if elapsed >= (len(intervals) + 1) * interval_s and (took := reader.take()):
            cuts = statistics.quantiles(took, n=100)
            used = process.cpu_s(broker.pid)
            intervals.append(
                Interval(
                    second=round(elapsed, 1),
                    received=reader.received - seen,
                    p50_ms=round(cuts[49], 2),
                    p99_ms=round(cuts[98], 2),
                    max_ms=round(max(took), 2),
                    broker_rss_mb=round(process.rss_mb(broker.pid), 1),
                    broker_cpu_s=round(used - cpu, 2),
                )
            )
            seen, cpu = reader.received, used
            print(intervals[-1], flush=True)
        time.sleep(tick_s)
    producer.flush(30)
    end = time.monotonic() + 30
    while reader.received < sent and time.monotonic() < end:
        time.sleep(_TICK_S)
    reader.stop()
    return intervals, sent, reader.received


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark and keep its results; 1 when a message is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.paper.sustained",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rate", type=int, default=12_000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--interval", type=float, default=10)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    options = parser.parse_args(arguments)
    with contender("pylog", WORK_DIR, None) as broker:
        assert isinstance(broker, KafkaLike), "pylog speaks Kafka's protocol"
        intervals, sent, received = hold(broker, options.rate, options.seconds, options.interval)
    print(f"{sent:,} sent, {received:,} received")
    if options.write and intervals:
        csv_name = pages.result_name("sustained")
        write_rows(pages.RESULTS / csv_name, Interval, intervals)
        pages.lines(
            "sustained_p99",
            f"{options.rate:,} messages a second",
            ("seconds", "ms from end to end"),
            {
                "p99": [(one.second, one.p99_ms) for one in intervals],
                "p50": [(one.second, one.p50_ms) for one in intervals],
            },
        )
        pages.lines(
            "sustained_rss",
            "The broker's memory",
            ("seconds", "MB resident"),
            {"pylog": [(one.second, one.broker_rss_mb) for one in intervals]},
        )
        pages.write_page(
            "sustained",
            _PAGE.format(
                rate=options.rate,
                size=SIZE_BYTES,
                minutes=options.seconds / 60,
                cores=os.cpu_count(),
                day=f"{datetime.now(UTC):%Y-%m-%d}",
                interval=options.interval,
                csv_name=csv_name,
                sent=sent,
                received=received,
                p99=statistics.median(one.p99_ms for one in intervals),
                worst=max(one.p99_ms for one in intervals),
                rss_first=intervals[0].broker_rss_mb,
                rss_last=intervals[-1].broker_rss_mb,
                cpu=sum(one.broker_cpu_s for one in intervals) / intervals[-1].second,
            ),
        )
    return 0 if received == sent else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

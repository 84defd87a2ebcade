"""Four systems behind one face, for the paper's comparison: who produces and consumes how, and what it costs them."""

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.harness import process
from bench.harness.brokers import Broker, run_broker
from bench.harness.clients import Topics, build_rdk_client, run
from bench.harness.measure import Row, Sample
from bench.harness.peers.activemq import ActiveMq
from bench.harness.peers.rabbitmq import RabbitMq

TIMEOUT_S = 600.0
SYSTEMS = ("pylog", "kafka", "rabbitmq", "activemq")
_RATE = re.compile(r"^rate=(\d+)|rate avg: (\d+) msg/s", re.MULTILINE)


class Contender(Protocol):
    """A running broker with the client that is made for it."""

    @property
    def name(self) -> str:
        """One of `SYSTEMS`."""

    @property
    def pid(self) -> int:
        """The broker's process."""

    @property
    def data_dir(self) -> Path:
        """What grows with the messages."""

    def begin(self, queue: str) -> None:
        """Make a topic or queue, where that is not done by the first message."""

    def end(self, queue: str) -> None:
        """Remove it, where that can be done."""

    def arrived(self, queue: str, count: int) -> tuple[int, float] | None:
        """Return how many messages are there and since when, once that is *count* or nothing more comes.

        None if the client's own account must do: it has waited for every message.
        """

    def command(self, queue: str, row: Row, count: int, size: int) -> list[str] | None:
        """Return the client's command line, or None: this system cannot do that."""


@dataclass(frozen=True, slots=True)
class KafkaLike:
    """pylog or Apache Kafka with the librdkafka client, which gets *properties*."""

    name: str
    broker: Broker
    topics: Topics
    client: Path
    data_dir: Path
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """See `Contender`."""
        return self.broker.pid

    def begin(self, queue: str) -> None:
        """See `Contender`."""
        self.topics.create(queue)

    def end(self, queue: str) -> None:
        """See `Contender`."""
        self.topics.delete(queue)

    def arrived(self, queue: str, count: int) -> tuple[int, float]:
        """See `Contender`."""
        return self.topics.wait_end(queue, count)

    def command(self, queue: str, row: Row, count: int, size: int) -> list[str]:
        """See `Contender`."""
        command = row.command(self.client, self.broker.bootstrap, queue, count, size)
        for name, value in self.properties.items():
            command += ["-X", f"{name}={value}"]
        return command


@dataclass(frozen=True, slots=True)
class Queueing:
    """RabbitMQ or ActiveMQ."""

    name: str
    broker: ActiveMq | RabbitMq

    @property
    def pid(self) -> int:
        """See `Contender`."""
        return self.broker.pid

    @property
    def data_dir(self) -> Path:
        """See `Contender`."""
        return self.broker.data_dir

    def begin(self, queue: str) -> None:
        """The first message makes the queue."""

    def end(self, queue: str) -> None:
        """What was consumed is gone already."""

    def arrived(self, queue: str, count: int) -> None:
        """Both clients wait until the broker has taken everything before they end."""

    def command(self, queue: str, row: Row, count: int, size: int) -> list[str] | None:
        """See `Contender`; neither has batches that are not transactions."""
        if row.batch > 1 and row.acks is not None:
            return None
        verb = "consume" if row.acks is None else "produce"
        return self.broker.command(queue, verb, count, size, 1, row.acks or 0)


@contextmanager
def contender(name: str, work_dir: Path, cpus: frozenset[int] | None) -> Iterator[Contender]:
    """Run one of `SYSTEMS` over an empty directory and remove its data afterwards."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # otherwise a bench that is ended leaves brokers behind
    if name in ("pylog", "kafka"):
        with run_broker(name, work_dir, cpus) as broker, closing(Topics(broker.bootstrap)) as topics:
            yield KafkaLike(name, broker, topics, build_rdk_client(work_dir), broker.data_dir)
        return
    directory = work_dir / f"{name}-{os.getpid()}"
    everything = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus or everything)
        with ActiveMq(directory) if name == "activemq" else RabbitMq(directory) as queueing:
            os.sched_setaffinity(0, everything)
            yield Queueing(name, queueing)
    finally:
        os.sched_setaffinity(0, everything)
        shutil.rmtree(directory, ignore_errors=True)


def measure(
    one: Contender, row: Row, queue: str, count: int, size: int, cpus: frozenset[int] | None, round_number: int
) -> Sample | None:
    """Run *row* once; None if the system cannot do that."""
    command = one.command(queue, row, count, size)
    if command is None:
        return None
    before, start = process.usage(one.pid), time.monotonic()
    output = run(command, cpus, TIMEOUT_S)
    end_time, lost = time.monotonic(), 0
    found = one.arrived(queue, count) if row.acks is not None else None
    if found is not None:
        lost, end_time = count - found[0], max(end_time, found[1])
    used = process.usage(one.pid) - before
    rate = (count - lost) / (end_time - start) if row.acks == 0 and found is not None else rate_of(output)
    return Sample(
        round=round_number,
        system=one.name,
        label=row.label,
        count=count,
        size=size,
        rate=round(rate),
        wall_s=round(end_time - start, 2),
        broker_cpu_s=round(used.broker_cpu_s, 2),
        client_cpu_s=round(used.clients_cpu_s, 2),
        other_cpu_s=round(used.other_cpu_s, 2),
        lost=lost,
        rss_mb=round(process.rss_mb(one.pid), 1),
    )


def rate_of(output: str) -> float:
    """Return the messages per second that a client printed."""
    # PerfTest tells both directions, of which one is 0.
    found = [float(ours or theirs) for ours, theirs in _RATE.findall(output)]
    assert any(found), f"no rate in {output[-1000:]!r}"
    return max(found)

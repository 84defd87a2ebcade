"""What a transaction costs beside the same records of an idempotent producer, by turns in one run.

python -m bench.broker.transactions [--rounds 7] [--seconds 2]

One broker in a process of its own, a topic of six partitions, one producer of librdkafka in this process.  A turn
writes so many records of 100 bytes over the partitions and waits until they are there: for all acknowledgements, or for
the commit.  Each round does that for both, first one, then the other; a ratio is of one round.

records/s   of the median round; the ratio is transactions to plain, median and extremes of the rounds
CPU         of the broker, a turn
p50, p99    of the turns of all rounds: flush, or commit
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from bench.harness.process import cpu_s
from pylog.client.admin.cluster import Admin
from pylog.testing import BrokerProcess

SIZES = (1, 100, 1_000)
PARTITIONS = 6
VALUE = bytes(100)
TOPIC = "bench"
CALL_S = 30.0


@dataclass
class Turns:
    """What one kind of producer did, a value for each round but for *waits_s*, which has one for each turn."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)


def _write(producer: Producer, size: int) -> None:
    for number in range(size):
        producer.produce(TOPIC, VALUE, partition=number % PARTITIONS)


def _plain(producer: Producer, size: int) -> float:
    """Write one batch of records; return how long the last acknowledgement took, in seconds."""
    _write(producer, size)
    began_s = time.perf_counter()
    assert producer.flush(CALL_S) == 0
    return time.perf_counter() - began_s


def _transaction(producer: Producer, size: int) -> float:
    """Write them in a transaction; return how long the commit took, in seconds."""
    producer.begin_transaction()
    _write(producer, size)
    began_s = time.perf_counter()
    producer.commit_transaction(CALL_S)
    return time.perf_counter() - began_s


def _run(
    turn: Callable[[Producer, int], float], producer: Producer, size: int, seconds: float, pid: int, to: Turns
) -> None:
    count, cpu_before_s, began_s = 0, cpu_s(pid), time.perf_counter()
    while time.perf_counter() - began_s < seconds:
        to.waits_s.append(turn(producer, size))
        count += 1
    to.rates.append(count * size / (time.perf_counter() - began_s))
    to.cpu_us.append((cpu_s(pid) - cpu_before_s) / count * 1e6)


def _row(name: str, turns: Turns) -> str:
    waits = sorted(turns.waits_s)
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    rate, cpu_us = statistics.median(turns.rates), statistics.median(turns.cpu_us)
    return f"  {name:12} {rate:9.0f} records/s {cpu_us:8.0f} us CPU  p50 {p50 * 1e3:7.2f} ms  p99 {p99 * 1e3:7.2f} ms"


def _ratio(above: list[float], below: list[float]) -> str:
    ratios = sorted(one / other for one, other in zip(above, below, strict=True))
    return f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory)) as broker:
        Admin(broker.bootstrap).create_topic(TOPIC, partitions=PARTITIONS, replication_factor=1, config={})
        common = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0}
        plain = Producer({**common, "enable.idempotence": True})
        transactional = Producer({**common, "transactional.id": "bench"})
        transactional.init_transactions(CALL_S)
        for size in SIZES:
            kinds = (("plain", _plain, plain, Turns()), ("transaction", _transaction, transactional, Turns()))
            for _, turn, producer, _ in kinds:  # to warm up
                _run(turn, producer, size, given.seconds / 2, broker.pid, Turns())
            for number in range(given.rounds):
                for _, turn, producer, turns in kinds if number % 2 else kinds[::-1]:
                    _run(turn, producer, size, given.seconds, broker.pid, turns)
            (_, _, _, before), (_, _, _, after) = kinds
            print(f"{size} records, load average {os.getloadavg()[0]:.1f}")
            print(_row("plain", before))
            print(_row("transaction", after))
            print(f"  records/s: {_ratio(after.rates, before.rates)}   CPU: {_ratio(after.cpu_us, before.cpu_us)}")


if __name__ == "__main__":
    main()

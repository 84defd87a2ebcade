"""Real load while something happens: idempotent producers that send 10 MB/s of 1 KiB records, and groups that read it.

Clients, histories and the checker are those of `tests.chaos`: half of the records comes from librdkafka and half from
Apache Kafka's own producer, one group is librdkafka's and one Apache Kafka's.
"""

import math
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import checker
from tests.chaos.checker import Violation
from tests.chaos.history import Ack, Grouped, Partition, Produced, Row, whole_lines
from tests.chaos.java import JavaClients
from tests.chaos.operations import Operator, Topic
from tests.rolls import cluster

PARTITIONS = 12
VALUE_BYTES = 1024
RATE = 5_500
"""Records a second that each producer is asked for: with what it leaves out by rounding, both send 10 MB/s."""

DELIVERY_S = 120
"""After so long a producer calls a send failed."""

MEMBERS = 2
"""Of each group."""

_PRODUCER, _MEMBER = "tests.chaos.producer", "tests.chaos.group"
_BEGIN_S = 120.0
_OUTCOME_S = 330.0
"""A producer may wait for outcomes for 310 s."""

_CAUGHT_UP_S = 300.0


@dataclass
class Judged:
    """What became of the load.

    Attributes:
        clients: a row for each producer.
        groups: a row for each group.
        violations: what the checker found.
    """

    clients: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)

    def check(self) -> None:
        """Fail unless each send was acknowledged, and everything is there once, in order, and read by both groups."""
        assert self.clients, "it was not judged"
        assert self.violations == []
        for row in self.clients:
            assert (row["failed"], row["lost"], row["duplicates"]) == (0, 0, 0), row
            assert row["acked"] == row["sent"] > 0, row


@contextmanager
def loaded(name: str) -> Iterator[Judged]:
    """Keep the load going during the block, and judge it afterwards; its topic is deleted then."""
    found = Judged()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pylog-load-")))
        operator = Operator(cluster.bootstrap().split(","))
        configs = (("min.insync.replicas", "2"),)
        topic = Topic(f"load-{name}-{time.time_ns()}", PARTITIONS, configs=configs, value_bytes=VALUE_BYTES)
        operator.create(topic)
        stack.callback(operator.delete, topic)
        clients = _Clients(stack, directory, operator.bootstrap, topic)
        clients.wait_until_all_work()
        yield found
        clients.stop(clients.producers)
        rows, ends = operator.read(topic, {})
        for group in clients.groups:
            operator.wait_committed(group, {(topic.name, number): end for number, end in ends.items()}, _CAUGHT_UP_S)
        clients.stop([member for members in clients.groups.values() for member in members])
        _judge(found, clients, {(topic.name, number): found_rows for number, found_rows in rows.items()})


class _Clients:
    """The processes, by their names."""

    def __init__(self, stack: ExitStack, directory: Path, bootstrap: str, topic: Topic) -> None:
        self._directory = directory
        self._stack = stack
        self._runs: dict[str, subprocess.Popen[bytes]] = {}
        self.producers = ["librdkafka", "java"]
        names = {f"{library}-{topic.name}": library for library in self.producers}
        self.groups = {
            group: [f"{library}-member-{number}" for number in range(MEMBERS)] for group, library in names.items()
        }
        java, python = JavaClients(directory / "java"), [sys.executable, "-m"]
        for group, members in self.groups.items():
            for member in members:
                arguments = [member, group, bootstrap, str(self.history(member)), topic.name]
                is_java = names[group] == "java"
                self._start(member, java.command("read", *arguments) if is_java else [*python, _MEMBER, *arguments])
        for producer in self.producers:
            limits = [str(RATE), str(DELIVERY_S)]
            arguments = [producer, bootstrap, str(self.history(producer)), *limits, topic.spec]
            is_java = producer == "java"
            self._start(producer, java.command("produce", *arguments) if is_java else [*python, _PRODUCER, *arguments])

    def history(self, name: str) -> Path:
        """Return where a client writes what it sees."""
        return self._directory / f"{name}.tsv"

    def _start(self, name: str, command: Sequence[str]) -> None:
        run = subprocess.Popen(command, cwd=cluster.ROOT)
        self._runs[name] = run
        self._stack.callback(run.wait)
        self._stack.callback(run.kill)

    def wait_until_all_work(self) -> None:
        """Wait until each producer has written down an acknowledgement, and each member something that it read."""
        deadline_s = time.monotonic() + _BEGIN_S
        while silent := [name for name in self._runs if not self._has_begun(name)]:
            assert time.monotonic() < deadline_s, f"{silent} did not begin to work"
            time.sleep(1)

    def _has_begun(self, name: str) -> bool:
        assert self._runs[name].poll() is None, f"{name} ended with {self._runs[name].returncode}"
        path = self.history(name)
        return path.exists() and any(line.startswith(("a", "p")) for line in whole_lines(path))

    def stop(self, names: Sequence[str]) -> None:
        """Let these end, and wait until they have written everything."""
        for name in names:
            self._runs[name].send_signal(signal.SIGTERM)
        for name in names:
            assert self._runs[name].wait(_OUTCOME_S) == 0, f"{name} does not know what became of its records"


def _judge(found: Judged, clients: _Clients, logs: dict[Partition, list[Row]]) -> None:
    produced = Produced()
    for name in clients.producers:
        produced.take(whole_lines(clients.history(name)))
    for (topic, number), rows in logs.items():
        found.violations += checker.check_log(f"{topic}-{number}", produced.acks[topic, number], rows)
    for name in clients.producers:
        found.clients.append(_of_producer(name, produced, logs))
    for group, members in clients.groups.items():
        grouped = Grouped()
        for member in members:
            grouped.take(member, whole_lines(clients.history(member)))
        for key, rows in logs.items():
            where = f"{key[0]}-{key[1]} {group}"
            found.violations += checker.check_group(where, rows, grouped.readings[key], grouped.commits[key])
        found.groups.append(_of_group(group, grouped, logs))


def _of_producer(name: str, produced: Produced, logs: dict[Partition, list[Row]]) -> dict[str, Any]:
    acks = {key: [ack for ack in acks if _is_of(ack.producer, name)] for key, acks in produced.acks.items()}
    failed = sum(_is_of(producer, name) for rows in produced.failed.values() for producer, _, _ in rows)
    stored = [(key, row) for key, rows in logs.items() for row in rows if _is_of(row.producer, name)]
    different = {(key, row.number, row.producer) for key, row in stored}
    every = sorted((ack for found in acks.values() for ack in found), key=lambda ack: ack.done_ms)
    took_s = (every[-1].done_ms - every[0].done_ms) / 1000 if every else 0.0
    return {
        "client": name,
        "mb_per_s": round(len(every) * VALUE_BYTES / took_s / 1e6, 2) if took_s else 0.0,
        "sent": len(every) + failed,
        "acked": len(every),
        "failed": failed,
        "lost": sum(len(checker.lost(acks[key], logs.get(key, []))) for key in acks),
        "duplicates": len(stored) - len(different),
        "longest_pause_ms": _longest_pause_ms(acks.values()),
        "p99_ms": _percentile_ms([ack.done_ms - ack.sent_ms for ack in every], 99),
    }


def _is_of(producer: str, name: str) -> bool:
    return producer.rpartition(".")[0] == name


def _longest_pause_ms(acks: Iterable[Sequence[Ack]]) -> int:
    """Return the longest time in which one partition acknowledged nothing."""
    pauses = [checker.longest_pauses_ms(rows, rows[0].done_ms, rows[-1].done_ms)[0] for rows in acks if rows]
    return max(pauses, default=0)


def _percentile_ms(took_ms: list[int], percent: int) -> int:
    return sorted(took_ms)[math.ceil(len(took_ms) * percent / 100) - 1] if took_ms else 0


def _of_group(group: str, grouped: Grouped, logs: dict[Partition, list[Row]]) -> dict[str, Any]:
    readings = [one for key in logs for one in grouped.readings[key]]
    pauses = [
        after - before
        for reading in readings
        for before, after in zip(reading.times_ms, reading.times_ms[1:], strict=False)
    ]
    return {
        "group": group.partition("-")[0],
        "records": sum(map(len, logs.values())),
        "read": sum(len(one.rows) for one in readings),
        "commits": sum(len(grouped.commits[key]) for key in logs),
        "longest_pause_ms": max(pauses, default=0),
    }

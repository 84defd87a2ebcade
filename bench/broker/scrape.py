"""What a scrape costs: a broker with many partitions, principals and groups, and a probe that shows all it may.

The broker runs in this process, so that the CPU time of each callback of its event loop can be taken.  Each partition
was written to, and each group has rebalanced, over the wire.  Principals are put into the broker's counts.

python -m bench.broker.scrape                              some minutes
python -m bench.broker.scrape --topics 10 --no-write       does it run at all?
"""

import argparse
import asyncio
import gc
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.harness import pages
from bench.harness.measure import write_rows
from pylog.broker.broker import Broker
from pylog.broker.client_counts import MAX_PRINCIPALS
from pylog.broker.groups.rebalances import MAX_GROUPS
from pylog.client.raw import CoordinatorAnswer, RawClient, raise_for
from pylog.config import standalone_config
from pylog.log.directory import LogDirectory
from pylog.metrics import Metrics, render
from pylog.probe.lag import MAX_ROWS, MAX_STUCK, LagReport, Stuck
from pylog.probe.reader import show_report
from pylog.wire.api.coordinator import GROUP
from pylog.wire.api.groups import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse

_CHUNK = 50
_JOIN_VERSION = 3  # the last that asks for no second request with the member's id
_JOINED = JoinGroupRequestProtocol(name="range", metadata=b"")
_PAGE = """\
# What a scrape costs

A broker with {topics:,} topics of {partitions} partitions, each written to, {principals} principals on its listener
and {groups} groups that have rebalanced, scraped {rounds} times by its admin socket while no client sends, {day},
load average {load:.1f} when it began. Every scrape: [{csv_name}](../results/{csv_name}).

| | median | worst |
|---|--:|--:|
| longest callback of the event loop meanwhile, ms of CPU | {loop_ms} | {loop_worst_ms} |
| making the text on its thread, ms of CPU | {render_ms} | {render_worst_ms} |
| from asking to the last byte, ms | {whole_ms} | {whole_worst_ms} |
| page, KB | {kb} | {kb} |

CPU times are those of the thread: on the clock a thread waits for the interpreter while the other one runs, and for a
processor that other programs use.

A probe's page with all the rows that it may show ({rows:,} pairs of group and topic in three tables, as many groups
with members, {stuck} places where a group stands still), made {rounds} times, by the thread that answers the scrape;
a probe has no loop that clients wait for:

| | median | worst |
|---|--:|--:|
| making the text, ms of CPU | {probe_ms} | {probe_worst_ms} |
| page, KB | {probe_kb} | {probe_kb} |

Again: `make bench BENCH=scrape`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """One scrape.

    Attributes:
        loop_ms: CPU time of the longest callback of the loop, from the request until the answer.
        render_ms: CPU time of making the text.
        whole_ms: time until the answer was read.
    """

    number: int
    loop_ms: float
    render_ms: float
    whole_ms: float
    size_bytes: int


@contextmanager
def longest_callback() -> Iterator[list[int]]:
    """Keep the CPU time of the longest callback of this thread's loop, in ns, in the only element of the list."""
    longest = [0]
    original = asyncio.Handle._run

    def run(handle: asyncio.Handle) -> None:
        began = time.thread_time_ns()
        original(handle)
        longest[0] = max(longest[0], time.thread_time_ns() - began)

    asyncio.Handle._run = run  # type: ignore[method-assign, assignment]
    try:
        yield longest
    finally:
        asyncio.Handle._run = original  # type: ignore[method-assign]


def _make_topics(bootstrap: str, topics: int, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for first in range(0, topics, _CHUNK):
        names = [f"scraped-{number:04}" for number in range(first, min(topics, first + _CHUNK))]
        for made in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
            made.result(60)


def _write_each(bootstrap: str, topics: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(topics):
        for partition in range(partitions):
            producer.produce(f"scraped-{number:04}", b"v" * 200, partition=partition)
        producer.poll(0)
    assert producer.flush(300) == 0


def _rebalance_each(bootstrap: str, groups: int) -> None:
    with RawClient(bootstrap) as client:
        for number in range(groups):
            join = JoinGroupRequest(
                group_id=f"group-{number:04}",
                session_timeout_ms=300_000,
                rebalance_timeout_ms=300_000,
                protocol_type="consumer",
                protocols=[_JOINED],
            )
            client.ask_coordinator(join.group_id, GROUP, join, _JOIN_VERSION, _joined)


def _joined(answer: CoordinatorAnswer) -> None:
    raise_for(JoinGroupResponse.decode(_JOIN_VERSION, answer.body).error_code, "a group's member")


def _count_principals(broker: Broker, count: int) -> None:
    counts = broker._listeners._counts
    for number in range(count):
        row = "CLIENT", f"User:user-{number:04}"
        counts._closed[row] = 1000 + number
        counts._last_ns[row] = time.perf_counter_ns()


def probe_page(rounds: int) -> tuple[list[float], int]:
    """Return the CPU times in ms of making a probe's page with all that it may show, and its size in bytes."""
    rows = {(f"group-of-somebody-{number:05}", "a-topic-of-theirs"): number / 7 for number in range(MAX_ROWS)}
    stuck = {Stuck(g, t, "7", f"{g}-4b1c8d52-member", "10.0.0.7"): 1e6 for g, t in list(rows)[:MAX_STUCK]}
    report = LagReport(rows, rows, rows, {(group,): 3.0 for group, _ in rows}, stuck)
    metrics = Metrics()
    show_report(metrics, lambda: report)
    times, text = [], ""
    for _ in range(rounds):
        began = time.thread_time_ns()
        text = metrics.render()
        times.append((time.thread_time_ns() - began) / 1e6)
    return times, len(text)


async def _get(path: Path) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    text = await reader.read()
    writer.close()
    return text


def _timed_render(samples: Any) -> float:  # noqa: ANN401  # what Metrics.sample returns
    began = time.thread_time_ns()
    render(samples)
    return (time.thread_time_ns() - began) / 1e6


async def scrapes(directory: Path, topics: int, partitions: int, rounds: int) -> list[Scrape]:
    """Return *rounds* scrapes of a broker with so many topics, and as many principals and groups as it tells apart."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = standalone_config(directory / "data", port=port, overrides={"group.initial.rebalance.delay.ms": "0"})
    broker = Broker(config, LogDirectory.open(directory / "data", broker_id=0), asyncio.Event())
    await broker.start()
    found = []
    try:
        await asyncio.to_thread(_make_topics, f"127.0.0.1:{port}", topics, partitions)
        while f"pylog_partitions {topics * partitions}\n" not in broker.metrics.render():
            await asyncio.sleep(0.2)
        await asyncio.to_thread(_write_each, f"127.0.0.1:{port}", topics, partitions)
        await asyncio.to_thread(_rebalance_each, f"127.0.0.1:{port}", MAX_GROUPS)
        _count_principals(broker, MAX_PRINCIPALS)
        page = broker.metrics.render()
        assert page.count("\npylog_group_rebalances_total{") == MAX_GROUPS
        assert page.count("\npylog_principal_requests_total{") >= MAX_PRINCIPALS
        gc.freeze()  # as a broker's process does when it has opened its partitions
        for number in range(rounds):
            with longest_callback() as longest:
                began = time.monotonic_ns()
                text = await _get(config.admin_socket)
                whole_ns = time.monotonic_ns() - began
                loop_ns = longest[0]  # now: what follows is this benchmark's own, in a callback of the same loop
            render_ms = await asyncio.to_thread(_timed_render, broker.metrics.sample())
            row = Scrape(
                number=number,
                loop_ms=round(loop_ns / 1e6, 2),
                render_ms=round(render_ms, 2),
                whole_ms=round(whole_ns / 1e6, 2),
                size_bytes=len(text),
            )
            print(row, flush=True)
            found.append(row)
    finally:
        await broker.stop()
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print its table and keep its results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.broker.scrape", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(scrapes(Path(directory), options.topics, options.partitions, options.rounds))
    figures: dict[str, object] = {}
    for name in ("loop", "render", "whole"):
        values = [getattr(row, f"{name}_ms") for row in found]
        figures |= {f"{name}_ms": f"{statistics.median(values):.1f}", f"{name}_worst_ms": f"{max(values):.1f}"}
    probe_ms, probe_bytes = probe_page(options.rounds)
    csv_name = pages.result_name("scrape")
    text = _PAGE.format(
        topics=options.topics,
        partitions=options.partitions,
        rounds=options.rounds,
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        load=load,
        csv_name=csv_name,
        kb=f"{found[-1].size_bytes / 1e3:,.0f}",
        principals=MAX_PRINCIPALS,
        groups=MAX_GROUPS,
        rows=MAX_ROWS,
        stuck=MAX_STUCK,
        probe_ms=f"{statistics.median(probe_ms):.1f}",
        probe_worst_ms=f"{max(probe_ms):.1f}",
        probe_kb=f"{probe_bytes / 1e3:,.0f}",
        **figures,
    )
    print(text)
    if options.write:
        write_rows(pages.RESULTS / csv_name, Scrape, found)
        pages.write_page("scrape", text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

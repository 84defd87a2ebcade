"""What encryption, logins and ACLs cost a broker, beside the same broker without and beside Apache Kafka with TLS.

python -m bench.broker.secured                                             some 20 minutes
python -m bench.broker.secured --rounds 1 --batched 100000 --single 5000 --idle 100 --seconds 1 --no-write   runs?
"""

import argparse
import asyncio
import gc
import os
import platform
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.broker.scrape import longest_callback
from bench.harness import pages, process
from bench.harness.brokers import Broker
from bench.harness.clients import WORK_DIR, Topics, build_rdk_client
from bench.harness.contenders import KafkaLike, measure
from bench.harness.measure import Row, Sample, write_rows, write_samples
from bench.harness.secured import ADMIN, PREFIX, broker_file, client, connected, kafka_by_tls, pylog_broker
from bench.paper.paper import SIZE_BYTES
from bench.paper.releases import interval
from pylog.broker.broker import Broker as BrokerHere
from pylog.client.security import client_context
from pylog.config import load_broker_config
from pylog.log.directory import LogDirectory
from tests.interop import frames
from tests.servers.certificates import Authority
from tests.servers.kafka import KAFKA_VERSION
from tests.servers.ports import free_ports

PROTOCOLS = {"plain": "PLAINTEXT", "tls": "SSL", "login": "SASL_PLAINTEXT", "secured": "SASL_SSL", "kafka": "SSL"}
"""What each contender asks of its clients; those with logins check ACLs too."""

ROWS = (
    Row(label="p50a1", batch=50, acks=1),
    Row(label="c50", batch=50, acks=None),
    Row(label="p1a1", batch=1, acks=1),
)
LOGINS = {"SASL_PLAINTEXT": 1_000.0, "SASL_SSL": 200.0}
"""Logins a second on listeners of each protocol."""

_NAMES = {"p50a1": "produce, batches of 50", "c50": "consume", "p1a1": "produce, batches of 1"}
_SETTLE_S = 3.0
_ENOUGH_FILES = 1_000
_PAGE = """\
# What security costs

One broker of pylog for each kind of listener, and Apache Kafka {kafka} with TLS: messages of {size} bytes, acks=1, one
librdkafka producer and consumer, one partition, default settings, Python {python}. {rounds} rounds by turns after
one to warm up, {batched:,} messages a run in batches of 50 and {single:,} in batches of one, {cores} cores, nothing
pinned, {day}, load average {load:.1f} when it began and {load_end:.1f} when it ended. Every run:
[{csv_name}](../results/{csv_name}).

CPU of the broker's process, µs a message:

| | {systems} |
|---|{columns}
{costs}

*plain*: no encryption, no login. *tls*: `SSL`. *login*: `SASL_PLAINTEXT` with {mechanism} and ACLs. *secured*:
`SASL_SSL` with both. *kafka*: Kafka's `SSL`. TLS is 1.3 with AES-256-GCM, as clients and brokers choose by themselves.

| | found | aimed at, at most |
|---|--:|--:|
{found}

Ratios are geometric means over the rounds, in brackets their 95 % interval. What TLS adds for a GB is the difference of
the medians of *tls* and *plain* when consuming. An idle connection has shaken hands and asked once for the versions.
For logins the broker runs in the benchmark's own process, whose loop is asyncio's; a login is a connection, a request
for the versions, and SCRAM with keys that the client has prepared. Callbacks are measured in CPU time of their thread.
A load above the number of cores makes CPU times longer and the intervals wide.
A batch of 50 messages from librdkafka comes as 57 records of TLS, since the library hands most messages to OpenSSL one
by one. The broker reads each record by two system calls: Python cannot tell OpenSSL to read ahead. This is most of what
TLS costs when producing; encryption is little of it. A producer that compresses its batches sends two records for each.

Again: `make bench BENCH=secured`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of the page, and what was aimed at."""

    what: str
    found: str
    aimed_at: str


@contextmanager
def contenders(directory: Path, systems: Sequence[str]) -> Iterator[dict[str, KafkaLike]]:
    """Run a broker of each of *systems*."""
    authority = Authority(directory / "authority")
    found = {}
    with ExitStack() as stack:
        for name in systems:
            protocol = PROTOCOLS[name]
            if name == "kafka":
                broker: Broker = stack.enter_context(kafka_by_tls(directory / name, authority))
            else:
                broker = stack.enter_context(pylog_broker(directory / name, protocol, authority))
            topics = Topics(broker.bootstrap, client(protocol, authority.trusted, ADMIN))
            stack.enter_context(closing(topics))
            properties = client(protocol, authority.trusted)
            found[name] = KafkaLike(name, broker, topics, build_rdk_client(), broker.data_dir, properties)
        yield found


def pairs(directory: Path, rounds: int, batched: int, single: int) -> tuple[list[Sample], float]:
    """Return the runs of every contender, who begins changes with every round; and the bytes of a message in a log."""
    samples = []
    with contenders(directory, list(PROTOCOLS)) as running:
        every, size = list(running.values()), 0.0
        for number in range(rounds + 1):
            first = number % len(every)
            topics: list[str] = []
            for row in ROWS:
                if row.acks is not None:
                    topics.append(f"{PREFIX}{number}-{row.label}")
                    for one in every:
                        one.begin(topics[-1])
                count = batched if row.batch > 1 else single
                for one in every[first:] + every[:first]:
                    sample = measure(one, row, topics[-1], count, SIZE_BYTES, None, number)
                    assert sample is not None, "all of them have every row"
                    print(sample, flush=True)
                    if number:
                        samples.append(sample)
                if row.label == "c50":
                    size = _log_bytes(running["plain"].data_dir, topics[-1]) / count
            for one in every:
                for topic in topics:
                    one.end(topic)
    return samples, size


def _log_bytes(data_dir: Path, topic: str) -> int:
    return sum(path.stat().st_size for path in data_dir.rglob("*.log") if path.parent.name == f"{topic}-0")


def idle(directory: Path, count: int) -> float:
    """Return how many MB of memory *count* idle connections by TLS cost a broker."""
    authority = Authority(directory / "authority")
    context = client_context(authority.trusted)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + _ENOUGH_FILES)), hard))
    with pylog_broker(directory / "idle", "SSL", authority) as broker, ExitStack() as stack:
        with connected(broker.bootstrap, context) as first:
            first.ask(frames.api_versions())
        time.sleep(_SETTLE_S)
        before = process.rss_mb(broker.pid)
        for _ in range(count):
            stack.enter_context(connected(broker.bootstrap, context)).ask(frames.api_versions())
        time.sleep(_SETTLE_S)
        return process.rss_mb(broker.pid) - before


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedIn:
    """What a broker did while clients logged in.

    Attributes:
        rate: logins a second that succeeded.
        longest_ms: CPU time of the longest callback of its loop.
        cpu_ms: CPU time of its process, a login.
    """

    protocol: str
    count: int
    rate: float
    longest_ms: float
    cpu_ms: float


async def logins(directory: Path, protocol: str, rate: float, seconds: float) -> LoggedIn:
    """Run a broker here, and a process that logs in *rate* times a second."""
    authority = Authority(directory / "authority")
    [port] = free_ports(1)
    config = load_broker_config(broker_file(directory / protocol, protocol, authority, port))
    broker = BrokerHere(config, LogDirectory.open(config.data_dir, broker_id=config.broker_id), asyncio.Event())
    await broker.start()
    try:
        gc.freeze()  # as a broker's process does when it has opened its partitions
        command = ["-m", "bench.harness.secured", f"127.0.0.1:{port}", protocol, str(authority.trusted)]
        with longest_callback() as longest:
            cpu_s = time.process_time()
            told = await asyncio.create_subprocess_exec(
                sys.executable, *command, str(rate), str(seconds), stdout=asyncio.subprocess.PIPE
            )
            output = (await told.communicate())[0].decode().split()
            cpu_s = time.process_time() - cpu_s
            longest_ns = longest[0]
        assert told.returncode == 0, "the process that logs in has said why"
    finally:
        await broker.stop()
    count, took_s = int(output[0]), float(output[1])
    return LoggedIn(
        protocol=protocol,
        count=count,
        rate=round(count / took_s, 1),
        longest_ms=round(longest_ns / 1e6, 2),
        cpu_ms=round(cpu_s / count * 1e3, 3),
    )


def ratio(samples: Sequence[Sample], label: str, system: str, beside: str) -> tuple[float, float, float]:
    """Return *system*'s CPU a message over that of *beside*, and the bounds of its interval."""
    costs = [
        {one.round: one.cpu_s_per_million for one in samples if (one.label, one.system) == (label, name)}
        for name in (system, beside)
    ]
    found = [cost / costs[1][number] for number, cost in sorted(costs[0].items())]
    return interval(found) if len(found) > 1 else (found[0],) * 3


def cost(samples: Sequence[Sample], label: str, system: str) -> float:
    """Return the median CPU of a message in µs."""
    return statistics.median(one.cpu_s_per_million for one in samples if (one.label, one.system) == (label, system))


def figures(samples: Sequence[Sample], message_bytes: float, idle_count: int, idle_mb: float) -> Iterator[Figure]:
    """Yield what the pairs and the idle connections show."""

    def compared(what: str, label: str, system: str, beside: str, aim: str) -> Figure:
        middle, low, high = ratio(samples, label, system, beside)
        return Figure(what=what, found=f"{middle:.3f} ({low:.3f} to {high:.3f})", aimed_at=aim)

    for label in ("p50a1", "p1a1", "c50"):
        aim = "0.6" if label == "c50" else "0.5"
        yield compared(f"{_NAMES[label]}: *tls* beside Kafka with TLS", label, "tls", "kafka", aim)
    added_us = cost(samples, "c50", "tls") - cost(samples, "c50", "plain")
    yield Figure(
        what="CPU that TLS adds for a GB sent", found=f"{added_us / message_bytes * 1e3:.2f} s", aimed_at="0.5 s"
    )
    for label in ("p50a1", "p1a1", "c50"):
        yield compared(f"{_NAMES[label]}: *login* beside *plain*", label, "login", "plain", "1.05")
    yield Figure(what=f"memory of {idle_count:,} idle TLS connections", found=f"{idle_mb:.0f} MB", aimed_at="200 MB")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print its page and keep its results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.broker.secured",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--batched", type=int, default=2_000_000, help="messages a run in batches of 50")
    parser.add_argument("--single", type=int, default=60_000, help="messages a run in batches of one")
    parser.add_argument("--idle", type=int, default=10_000, help="idle connections")
    parser.add_argument("--seconds", type=float, default=10, help="of logins")
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # otherwise a bench that is ended leaves brokers behind
    load = os.getloadavg()[0]
    WORK_DIR.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="secured-", dir=WORK_DIR))
    try:
        logged_in = []
        for protocol, rate in LOGINS.items():
            logged_in.append(asyncio.run(logins(directory, protocol, rate, options.seconds)))
            print(logged_in[-1], flush=True)
        idle_mb = idle(directory, options.idle)
        print(f"{options.idle} idle connections: {idle_mb:.1f} MB", flush=True)
        samples, message_bytes = pairs(directory, options.rounds, options.batched, options.single)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    found = [*figures(samples, message_bytes, options.idle, idle_mb)]
    for one in logged_in:
        asked = f"{one.rate:,.0f} logins a second, asked for {LOGINS[one.protocol]:,.0f}"
        what = f"{asked}, over {one.protocol}: longest callback"
        found.append(Figure(what=what, found=f"{one.longest_ms:.1f} ms", aimed_at="20 ms"))
        what = f"CPU of such a login over {one.protocol}"
        found.append(Figure(what=what, found=f"{one.cpu_ms:.2f} ms", aimed_at=""))
    csv_name = pages.result_name("secured")
    text = _PAGE.format(
        kafka=KAFKA_VERSION,
        size=SIZE_BYTES,
        python=platform.python_version(),
        rounds=options.rounds,
        batched=options.batched,
        single=options.single,
        cores=os.cpu_count(),
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        load=load,
        load_end=os.getloadavg()[0],
        csv_name=csv_name,
        systems=" | ".join(PROTOCOLS),
        columns="--:|" * len(PROTOCOLS),
        costs="\n".join(
            f"| {_NAMES[row.label]} | {' | '.join(f'{cost(samples, row.label, name):.2f}' for name in PROTOCOLS)} |"
            for row in ROWS
        ),
        mechanism="SCRAM-SHA-256",
        found="\n".join(f"| {one.what} | {one.found} | {one.aimed_at} |" for one in found),
    )
    print(text)
    if options.write:
        write_samples(pages.RESULTS / csv_name, samples)
        write_rows(pages.RESULTS / pages.result_name("secured-figures"), Figure, found)
        pages.write_page("secured", text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Three brokers, three replicas, acks=all: pylog beside Apache Kafka 3.9, by turns, and what a lost leader costs.

    python -m bench.cluster.replicated pairs [--rounds 5] [--go-on] [--count 1500000] [--seconds 10]
    python -m bench.cluster.replicated pauses [--rounds 3]
    python -m bench.cluster.replicated beside [--seconds 10]
    python -m bench.cluster.replicated page RESULTS.csv PAUSES.csv

`pairs` runs both clusters at once and gives each round to one and at once to the other; who begins changes with every
round.  A round is librdkafka writing 100-byte messages to six partitions, then 1,000 messages a second to one partition
with a consumer that waits for each.  `pauses` kills leaders and restarts brokers of pylog while a producer writes.
`beside` writes 200 messages a second to one partition beside none, 300 and 1,000 that nobody uses, with pylog alone.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from csv import DictReader
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.cluster.failover_partitions import cluster, wait_in_sync
from bench.harness import process
from bench.harness.clients import WORK_DIR, build_rdk_client, run
from bench.harness.contenders import rate_of
from bench.harness.measure import write_rows
from bench.harness.pages import PAGES, RESULTS, result_name, write_page
from bench.harness.report import NOISY_CORES
from pylog.client.admin.cluster import Admin
from tests.cluster.history import Load
from tests.servers.kafka import KAFKA_VERSION, KafkaServer, fetch
from tests.servers.ports import free_ports
from tests.servers.zookeeper import ZooKeeper

SIZE_BYTES = 100
PARTITIONS = 6
RATE = 1_000
SHORTEST_POLL_S = 0.001
"""librdkafka counts milliseconds: told to wait for less it does not wait, and the client takes a whole core."""

WARM_UP_S = 1.0
WARM_UP_REQUESTS = 60_000
WARM_UP_RUNS = 6
WARM_UP_GAIN = 1.05
IDLE_CORES = 0.3
BEHIND_MS = 100
"""A median latency from which on a system has a queue that grows: it is no measure of how long a message takes."""

BESIDE = (0, 300, 1_000)
BESIDE_RATE = 200
SESSION_MS = 6_000
"""As in production: what follows the death of a leader is mostly waiting for its session to end."""

TIMEOUT_S = 120.0
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One round of one system.

    Attributes:
        broker_cpu_s: of all three brokers, while the messages of the throughput run were written.
        other_cores: what neither brokers nor clients used meanwhile.
        p50_ms: from `produce()` until the waiting consumer has the message, as are the others.
    """

    round: int
    system: str
    count: int
    rate: float
    broker_cpu_s: float
    client_cpu_s: float
    other_cores: float
    p50_ms: float
    p99_ms: float
    p999_ms: float

    @property
    def cpu_s_per_million(self) -> float:
        """CPU seconds of the three brokers for a million messages."""
        return self.broker_cpu_s / self.count * 1e6

    def __str__(self) -> str:
        return (
            f"round {self.round} {self.system:<5} {self.rate:>9,.0f} msgs/s {self.cpu_s_per_million:5.2f} CPU s/M "
            f"p50 {self.p50_ms:.2f} p99 {self.p99_ms:.2f} p99.9 {self.p999_ms:.2f} ms "
            f"{self.other_cores:.2f} other cores"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """How long a producer of one partition had no acknowledgement, at most, when one broker went."""

    round: int
    kind: str
    longest_pause_s: float
    lost: int
    failed: int


@dataclass(frozen=True, slots=True)
class Trio:
    """Three running brokers."""

    system: str
    bootstrap: str
    pids: tuple[int, ...]

    def cpu_s(self) -> float:
        """Return what they have used so far."""
        return sum(map(process.cpu_s, self.pids))


@contextmanager
def trio(system: str, directory: Path) -> Iterator[Trio]:
    """Run three brokers of ``pylog`` or ``kafka`` with their default settings."""
    with ExitStack() as stack:
        if system == "pylog":
            zookeeper = stack.enter_context(ZooKeeper(directory / "zookeeper"))
            brokers = stack.enter_context(cluster(directory, zookeeper, session_timeout_ms=SESSION_MS, settings={}))
            found = [(one.bootstrap, one.pid) for one in brokers.values()]
        else:
            fetch()  # once, before three start at a time
            quorum = dict(zip((1, 2, 3), free_ports(3), strict=True))
            servers = [KafkaServer(directory / f"kafka-{one}", node_id=one, quorum=quorum) for one in quorum]
            for server in servers:
                stack.callback(server.kill)  # one of a quorum that ends waits for the others
            with ThreadPoolExecutor(len(servers)) as pool:  # none is ready before the others are
                list(pool.map(KafkaServer.start, servers))
            found = [(one.bootstrap, one.pid) for one in servers]
        yield Trio(system, ",".join(address for address, _ in found), tuple(pid for _, pid in found))


def create(bootstrap: str, topic: str, partitions: int) -> None:
    """Make a topic with three replicas, and wait until all are in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    admin.create_topics([NewTopic(topic, partitions, 3, config={"min.insync.replicas": "2"})])[topic].result(60)
    while True:
        rows = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions.values()
        if len(rows) == partitions and all(len(row.isrs) == 3 and row.leader >= 0 for row in rows):
            return
        time.sleep(0.05)


def write(one: Trio, client: Path, topic: str, count: int) -> tuple[float, float, float, float]:
    """Write *count* messages; return their rate, the brokers' CPU, the client's, and cores that others used."""
    command = [
        str(client),
        "-P",
        "-b",
        one.bootstrap,
        "-t",
        topic,
        "-c",
        str(count),
        "-s",
        str(SIZE_BYTES),
        "-X",
        "acks=all",
        "-X",
        "batch.size=65536",
        "-X",
        "linger.ms=5",
    ]
    before, cpu_s, start_s = process.usage(one.pids[0]), one.cpu_s(), time.monotonic()
    rate = rate_of(run(command, None, TIMEOUT_S))
    took_s, brokers_s = time.monotonic() - start_s, one.cpu_s() - cpu_s
    used = process.usage(one.pids[0]) - before
    others_s = used.machine_cpu_s - brokers_s - used.own_cpu_s - used.clients_cpu_s
    return rate, brokers_s, used.clients_cpu_s, others_s / took_s


def warm_up(one: Trio, client: Path, count: int) -> None:
    """Let Java machines compile what they need: large requests until they get no faster, and many small ones."""
    create(one.bootstrap, "warm-up", PARTITIONS)
    best = 0.0
    for _ in range(WARM_UP_RUNS):
        rate, _, _, _ = write(one, client, "warm-up", count)
        print(f"warm-up {one.system:<5} {rate:>9,.0f} msgs/s", flush=True)
        if rate < best * WARM_UP_GAIN:
            break
        best = max(best, rate)
    command = [
        str(client),
        "-P",
        "-b",
        one.bootstrap,
        "-t",
        "warm-up",
        "-p",
        "0",
        "-c",
        str(WARM_UP_REQUESTS),
        "-s",
        str(SIZE_BYTES),
        "-X",
        "acks=all",
        "-X",
        "batch.num.messages=1",
        "-X",
        "linger.ms=0",
    ]
    run(command, None, TIMEOUT_S)


def settle(one: Trio) -> None:
    """Wait until the brokers have done what was left to do: followers fetch, compilers compile."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        cpu_s = one.cpu_s()
        time.sleep(1)
        if one.cpu_s() - cpu_s < IDLE_CORES:
            return


def latencies_ms(bootstrap: str, topic: str, seconds: float, rate: int = RATE) -> list[float]:
    """Return the milliseconds of every message at *rate*, sorted."""
    times = paced(bootstrap, topic, seconds, rate)[int(WARM_UP_S * rate) :]
    return sorted((arrived_s - sent_s) * 1e3 for sent_s, arrived_s in times)


def paced(bootstrap: str, topic: str, seconds: float, rate: int) -> list[tuple[float, float]]:
    """Send at *rate*; return when each message, by its offset, was sent and when it arrived, by `perf_counter`."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "latency", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])  # it was made for this
    count = int((seconds + WARM_UP_S) * rate)
    sent_s: list[float] = []
    arrived_s: list[float] = []
    begin_s = time.perf_counter() + 0.5
    while len(arrived_s) < count:
        now_s = time.perf_counter()
        due_s = begin_s + len(sent_s) / rate
        assert now_s < begin_s + count / rate + PATIENCE_S, f"only {len(arrived_s)} of {count} messages arrived"
        if len(sent_s) < count and now_s >= due_s:
            value = (b"%010d" % len(sent_s)).ljust(SIZE_BYTES, b"x")
            sent_s.append(now_s)
            producer.produce(topic, value, partition=0)
            producer.poll(0)
            continue
        message = consumer.poll(max(due_s - now_s, SHORTEST_POLL_S) if len(sent_s) < count else 0.1)
        if message is not None:
            now_s = time.perf_counter()
            assert message.error() is None, message.error()
            number = int(bytes(message.value() or b"")[:10])
            assert number == message.offset() == len(arrived_s), f"{number} came, {len(arrived_s)} was due"
            arrived_s.append(now_s)
    producer.flush(PATIENCE_S)
    consumer.close()
    return list(zip(sent_s, arrived_s, strict=True))


def run_pairs(rounds: int, count: int, seconds: float, work_dir: Path) -> Iterator[list[Pair]]:
    """Carry out `pairs`, and yield the two of each round."""
    client = build_rdk_client(work_dir)
    with tempfile.TemporaryDirectory(dir=work_dir) as scratch, ExitStack() as stack:
        both = [stack.enter_context(trio(system, Path(scratch) / system)) for system in ("pylog", "kafka")]
        for one in both:
            warm_up(one, client, count)
        for number in range(1, rounds + 1):
            pairs: list[Pair] = []
            for one in both if number % 2 else both[::-1]:
                topic = f"replicated-{number}"
                create(one.bootstrap, topic, PARTITIONS)
                rate, brokers_s, client_s, others = write(one, client, topic, count)
                create(one.bootstrap, f"paced-{number}", 1)
                settle(one)
                cuts = statistics.quantiles(latencies_ms(one.bootstrap, f"paced-{number}", seconds), n=1_000)
                pair = Pair(
                    round=number,
                    system=one.system,
                    count=count,
                    rate=round(rate),
                    broker_cpu_s=round(brokers_s, 2),
                    client_cpu_s=round(client_s, 2),
                    other_cores=round(others, 2),
                    p50_ms=round(cuts[499], 3),
                    p99_ms=round(cuts[989], 3),
                    p999_ms=round(cuts[998], 3),
                )
                print(pair, flush=True)
                pairs.append(pair)
            yield pairs


def run_beside(seconds: float, work_dir: Path) -> None:
    """Carry out `beside` and print what comes of it."""
    for idle in BESIDE:
        with tempfile.TemporaryDirectory(dir=work_dir) as scratch, trio("pylog", Path(scratch)) as one:
            if idle:
                create(one.bootstrap, "idle", idle)
            create(one.bootstrap, "used", 1)
            settle(one)
            cpu_s, start_s = one.cpu_s(), time.monotonic()
            cuts = statistics.quantiles(latencies_ms(one.bootstrap, "used", seconds, BESIDE_RATE), n=100)
            cores = (one.cpu_s() - cpu_s) / (time.monotonic() - start_s)
            print(f"beside {idle:>5} p50 {cuts[49]:.2f} p99 {cuts[98]:.2f} ms, {cores:.2f} cores", flush=True)


def run_pauses(rounds: int, work_dir: Path) -> list[Pause]:
    """Carry out `pauses`."""
    pauses: list[Pause] = []
    with tempfile.TemporaryDirectory(dir=work_dir) as scratch, ExitStack() as stack:
        directory = Path(scratch)
        zookeeper = stack.enter_context(ZooKeeper(directory / "zookeeper"))
        brokers = stack.enter_context(cluster(directory, zookeeper, session_timeout_ms=SESSION_MS, settings={}))
        bootstrap = ",".join(one.bootstrap for one in brokers.values())
        admin = Admin(bootstrap)
        for number in range(1, rounds + 1):
            for kind in ("kill -9", "restart"):
                topic = f"pause-{number}-{kind[0]}"
                create(bootstrap, topic, 3)
                victim = brokers[(number - 1) % 3 + 1]
                with Load(bootstrap, topic, 3, rate=RATE, **{"enable.idempotence": True}) as load:
                    time.sleep(2)
                    if kind == "restart":
                        victim.stop()
                        time.sleep(1)
                    else:
                        victim.kill()
                        time.sleep(SESSION_MS / 1000 + 3)
                    victim.start()
                    wait_in_sync(admin)
                    time.sleep(1)
                history = load.read_back()
                pause = Pause(
                    round=number,
                    kind=kind,
                    longest_pause_s=round(history.longest_pause_s, 3),
                    lost=sum(map(len, history.lost().values())),
                    failed=sum(map(len, history.failed.values())),
                )
                print(pause, flush=True)
                pauses.append(pause)
    return pauses


_PAGE = """\
# Three replicas

Three brokers, three replicas, `acks=all`, `min.insync.replicas=2`, messages of {size} bytes: pylog beside Apache Kafka
{kafka} (KRaft), both with their default settings, on one machine of {cores} cores. Both clusters run all the time, each
round goes to one and at once to the other, and who begins changes with every round. Throughput and CPU are those of
librdkafka writing {count:,} messages to {partitions} partitions in batches of up to 64 KB; latencies those of {rate:,}
messages a second to one partition, from `produce()` until a consumer that waits has the message. The ratio is the
median of the ratios of {rounds} pairs. Every run: [{pairs_csv}](../results/{pairs_csv}).

| | pylog | Kafka | ratio | wanted |
|---|--:|--:|--:|--:|
{rows}

Latencies of a system whose median is above {behind_ms} ms are left out: it did not keep up with the pace, so the figure
would be the length of its queue. CPU is that of all three brokers. In {noisy} of {runs} runs something else used more
than {noisy_cores} of a core.

## When a leader goes

pylog alone, a session time-out of {session_s:g} s, {rate:,} messages a second, idempotent: the longest time between two
acknowledgements of one partition. Every run: [{pauses_csv}](../results/{pauses_csv}).

| | longest of each run, s | wanted | records lost | sends failed |
|---|--:|--:|--:|--:|
{pauses}

{notes}Again: `python -m bench.cluster.replicated pairs`, then `pauses`, then `page` with their two files.
"""


def page(pairs_csv: Path, pauses_csv: Path, notes: str) -> str:
    """Return the page that tells the medians."""
    runs, pauses = read_pairs(pairs_csv), _read(pauses_csv)
    facts: list[tuple[str, Callable[[Pair], float], str, str]] = [
        ("messages a second", lambda pair: pair.rate, ",.0f", ">= 1.3"),
        ("broker CPU s a million", lambda pair: pair.cpu_s_per_million, ".2f", "<= 0.5"),
        ("p50, ms", lambda pair: pair.p50_ms, ".2f", ""),
        ("p99, ms", lambda pair: pair.p99_ms, ".2f", "<= 1.2"),
        ("p99.9, ms", lambda pair: pair.p999_ms, ".2f", ""),
    ]
    is_behind = statistics.median(pair.p50_ms for pair in runs if pair.system == "kafka") > BEHIND_MS
    rows = []
    for name, value, form, wanted in facts:
        ours, theirs = ([value(pair) for pair in runs if pair.system == system] for system in ("pylog", "kafka"))
        ratio = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
        medians = [format(statistics.median(found), form) for found in (ours, theirs)]
        if is_behind and name.endswith("ms"):
            rows.append(f"| {name} | {medians[0]} | left out | | {wanted} |")
            continue
        rows.append(f"| {name} | {medians[0]} | {medians[1]} | {ratio:.2f} | {wanted} |")
    lines = []
    for kind, wanted in (("kill -9", f"{SESSION_MS / 1000 + 1:g}"), ("restart", "0.5")):
        found = [row for row in pauses if row["kind"] == kind]
        each = ", ".join(f"{float(row['longest_pause_s']):.2f}" for row in found)
        lost, failed = (sum(int(row[name]) for row in found) for name in ("lost", "failed"))
        lines.append(f"| {kind} | {each} | {wanted} | {lost} | {failed} |")
    return _PAGE.format(
        size=SIZE_BYTES,
        kafka=KAFKA_VERSION,
        cores=os.cpu_count(),
        count=runs[0].count,
        partitions=PARTITIONS,
        rate=RATE,
        rounds=len(runs) // 2,
        pairs_csv=pairs_csv.name,
        rows="\n".join(rows),
        noisy=sum(pair.other_cores > NOISY_CORES for pair in runs),
        runs=len(runs),
        noisy_cores=NOISY_CORES,
        behind_ms=BEHIND_MS,
        session_s=SESSION_MS / 1000,
        pauses_csv=pauses_csv.name,
        pauses="\n".join(lines),
        notes=notes,
    )


def read_pairs(path: Path) -> list[Pair]:
    """Read a result file."""
    types = {"system": str, "round": int, "count": int}
    return [Pair(**{name: types.get(name, float)(text) for name, text in row.items()}) for row in _read(path)]


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(DictReader(file))


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for and keep its results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.cluster.replicated",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", choices=("pairs", "pauses", "beside", "page"))
    parser.add_argument("files", nargs="*", type=Path, help="result files, for the page")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--count", type=int, default=1_500_000, help="messages of a throughput run")
    parser.add_argument("--seconds", type=float, default=10, help="of paced messages")
    parser.add_argument("--go-on", action="store_true", help="add the rounds to today's")
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    parser.add_argument("--work-dir", type=Path, default=WORK_DIR)
    options = parser.parse_args(arguments)
    options.work_dir.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # otherwise brokers stay behind
    if options.part == "pairs":
        target = RESULTS / result_name("replicated")
        pairs = read_pairs(target) if options.go_on and target.exists() else []
        before = max((pair.round for pair in pairs), default=0)
        for found in run_pairs(options.rounds or 5, options.count, options.seconds, options.work_dir):
            pairs += [replace(pair, round=before + pair.round) for pair in found]
            if options.write:
                write_rows(target, Pair, pairs)
    elif options.part == "beside":
        run_beside(options.seconds, options.work_dir)
    elif options.part == "pauses":
        pauses = run_pauses(options.rounds or 3, options.work_dir)
        if options.write:
            write_rows(RESULTS / result_name("replicated-pauses"), Pause, pauses)
    else:
        done = PAGES / "replicated.md"
        # What was found out about the figures is written by hand and stays.
        _, marker, rest = done.read_text().partition("## Why\n") if done.exists() else ("", "", "")
        notes = marker + rest.rpartition("Again: ")[0] if marker else ""
        pairs_csv, pauses_csv = options.files
        text = page(pairs_csv, pauses_csv, notes)
        write_page("replicated", text)
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

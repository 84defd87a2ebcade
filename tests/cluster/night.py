"""A small cluster that is watched as in production: a probe, and Prometheus with the rules that the role ships.

Only time is shorter: a minute of a rule is a second here.  `make night` breaks it in each way of `BREAKAGES`, writes
docs/results/night.md, and leaves in .local/night what the person on call would have: the alerts and the metrics.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from local.docs.alerts import FILES
from pylog.client.admin.configs import ConfigAdmin, Holder
from pylog.client.connection import Connection
from pylog.client.producer import Producer
from pylog.errors import PylogError
from pylog.ops.addresses import addresses
from pylog.testing import BrokerProcess
from tests.cluster.conftest import bootstrap, create, isrs, write_config
from tests.programs.program import Program, scrape, wait_until
from tests.servers.ports import free_ports
from tests.servers.zookeeper import ZooKeeper
from tests.templates import render

ROOT = Path(__file__).resolve().parents[2]
HASTE = 60
"""A minute of a rule is a second."""
TOPIC = "orders"
GROUP = "billing"
MIRRORED = "customers"
SMALL = 2
"""The broker that has a small disk of its own."""
ENSEMBLE = "zk-1"
"""The host of the only ZooKeeper server."""
DISK_BYTES = 128 << 20
THRESHOLDS = {"group_lag_s": 5, "certificate_days": 14}
"""Those of single hosts compare what no exporter here tells."""
OF_THE_MACHINE = {"PylogAlertsWork", "PylogLoopDelayed", "PylogProduceSlow", "PylogBrokerRestarts"}
"""Alerts that count for nothing here: one fires for ever, the others when the machine that tests run on is busy."""
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def hastened(rules: str, haste: int = HASTE, least_range_s: int = 6) -> str:
    """Return *rules* with every duration divided by *haste*; a range keeps *least_range_s*, some scrapes.

    So is the time for which `predict_linear` looks ahead: all of these brokers' disks are one, which others fill too.
    """

    def of(found: re.Match[str], least: int) -> str:
        return f"{max(least, int(found[1]) * _SECONDS[found[2]] // haste)}s"

    text = re.sub(r"\[(\d+)([smh])\]", lambda found: f"[{of(found, least_range_s)}]", rules)
    text = re.sub(r"(predict_linear\([^,]*, )(\d+)\)", lambda found: f"{found[1]}{int(found[2]) // haste})", text)
    return re.sub(r"for: (\d+)([smh])", lambda found: f"for: {of(found, 0)}", text)


def prometheus_config(
    scraped: dict[str, dict[str, Any]], groups: dict[str, list[str]], rules: Path, limits: Path
) -> str:
    """Return what the role's own template makes of these hosts."""
    return render(
        "etc/pylog-monitoring/prometheus.yml.j2",
        ansible_managed="by a test",
        hostvars=scraped,
        groups=groups,
        monitoring_scrape_interval_s=1,
        monitoring_alertmanagers=[],
        monitoring_alertmanager={},
        monitoring_exporter_port=9100,
        __monitoring_rules=str(rules),
        __monitoring_thresholds_file=str(limits),
        __monitoring_hosts=[],
        __preflight_addresses=addresses(scraped, {}),
        __preflight_stages={host.get("pylog_datacenter", "all"): {"pages": "open"} for host in scraped.values()},
    )


class Prometheus:
    """Debian's Prometheus over this cluster."""

    def __init__(self, directory: Path, scraped: dict[str, dict[str, Any]], groups: dict[str, list[str]]) -> None:
        directory.mkdir()
        [self._port] = free_ports(1)
        self._directory = directory
        rules, limits = directory / "alerts.yml", directory / "thresholds.yml"
        rules.write_text(hastened((FILES / "alerts.yml").read_text()))
        records = [
            {"record": "pylog_threshold", "expr": f"vector({limit})", "labels": {"name": name}}
            for name, limit in THRESHOLDS.items()
        ]
        limits.write_text(yaml.safe_dump({"groups": [{"name": "thresholds", "rules": records}]}))
        (directory / "prometheus.yml").write_text(prometheus_config(scraped, groups, rules, limits))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Prometheus":
        command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=samples"]
        command += [f"--web.listen-address=127.0.0.1:{self._port}", "--log.level=warn"]
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(command, cwd=self._directory, stdout=log, stderr=log)
        wait_until(self._answers, lambda: (self._directory / "log").read_text())
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)

    def _answers(self) -> bool:
        with suppress(OSError):
            return bool(self.ask("rules")["groups"])
        return False

    def ask(self, path: str, **arguments: str) -> Any:
        query = f"?{urllib.parse.urlencode(arguments)}" if arguments else ""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}{query}", timeout=10) as answer:
            return json.load(answer)["data"]

    def alerts(self) -> list[dict[str, Any]]:
        """Return what is wrong, whether somebody is told yet or its time still runs; but not `OF_THE_MACHINE`."""
        return [one for one in self.ask("alerts")["alerts"] if one["labels"]["alertname"] not in OF_THE_MACHINE]

    def firing(self) -> list[dict[str, Any]]:
        """Return the alerts that somebody would be told of."""
        return [one for one in self.alerts() if one["state"] == "firing"]


class Night:
    """The cluster with all that watches it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self.brokers: dict[int, BrokerProcess] = {}
        self._metrics_ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
        self._probe_port, self._mirror_port = free_ports(2)

    def __enter__(self) -> "Night":
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        enter, home = self._stack.enter_context, self._directory
        self.zookeeper = enter(ZooKeeper(home / "zookeeper"))
        self.small_disk = home / str(SMALL) / "data"
        enter(_mounted(self.small_disk))
        settings: dict[str, Any] = {"min.insync.replicas": 2}
        for broker_id, port in self._metrics_ports.items():
            config = write_config(home / str(broker_id), broker_id, self.zookeeper, **settings)
            config.write_text(config.read_text() + f"metrics_listen: 127.0.0.1:{port}\n")
            self.brokers[broker_id] = enter(BrokerProcess(home / str(broker_id), config_file=config))
        create(self.brokers[1], TOPIC, 3, 3)
        probe = {
            "bootstrap": self.bootstrap,
            "listen": f"127.0.0.1:{self._probe_port}",
            "zookeeper": self.zookeeper.hosts,
            "canary_interval_ms": 200,
            "lag_interval_ms": 500,
            "zookeeper_interval_ms": 500,
        }
        enter(Program(home, "probe", probe)).wait_log("ready")
        hosts: dict[str, dict[str, Any]] = {
            f"log-{broker_id}": {
                "pylog_address": "127.0.0.1",
                "pylog_broker_instances": [{"id": broker_id, "metrics_port": port}],
                "probe_metrics_listen": f"127.0.0.1:{self._probe_port}",
            }
            for broker_id, port in self._metrics_ports.items()
        }
        self._start_mirror()
        hosts["log-1"]["mirror_metrics_listen"] = f"127.0.0.1:{self._mirror_port}"
        groups = {"pylog_broker": list(hosts), "pylog_probe": ["log-1"], "pylog_mirror": ["log-1"]}
        groups["pylog_zookeeper"] = [ENSEMBLE]
        address, client_port = self.zookeeper.hosts.rsplit(":", 1)
        hosts[ENSEMBLE] = {"pylog_address": address, "zookeeper_client_port": int(client_port)}
        self.prometheus = enter(Prometheus(home / "prometheus", hosts, groups))

    def _start_mirror(self) -> None:
        """Mirror a topic to another cluster of one broker."""
        enter, home = self._stack.enter_context, self._directory
        self.target = enter(BrokerProcess(home / "target", config={"offsets.topic.num.partitions": 1}))
        create(self.brokers[1], MIRRORED, 1, 3)
        create(self.target, MIRRORED, 1, 1)
        self.write(10, MIRRORED, b"key")
        config = {
            "source": {"name": "live", "bootstrap": self.bootstrap},
            "target": {"name": "offline", "bootstrap": self.target.bootstrap},
            "topics": [MIRRORED],
            "refresh_ms": 300,
            "commit_ms": 300,
            "internal_replication_factor": 1,
            "metrics_listen": f"127.0.0.1:{self._mirror_port}",
        }
        self.mirror = enter(Program(home, "mirror run", config))
        lag = f'pylog_mirror_lag_records{{partition="0",topic="{MIRRORED}"}}'
        wait_until(lambda: scrape(self._mirror_port).get(lag) == 0, lambda: self.mirror.log)

    @property
    def bootstrap(self) -> str:
        return bootstrap(self.brokers)

    def firing(self) -> set[str]:
        """Return the names of what fires."""
        return {one["labels"]["alertname"] for one in self.prometheus.firing()}

    def wait_quiet(self) -> None:
        """Wait until all replicas are in sync and nothing is wrong that an earlier breakage may have left."""
        for topic in (TOPIC, MIRRORED):
            wait_until(lambda topic=topic: self._is_in_sync(topic), lambda: f"{isrs(self.brokers, TOPIC)}")
        wait_until(lambda: not self.prometheus.alerts(), lambda: f"still wrong: {self.prometheus.alerts()}", 120)

    def _is_in_sync(self, topic: str) -> bool:
        with suppress(KafkaException):
            found = isrs(self.brokers, topic).values()
            return bool(found) and all(len(isr) == len(self.brokers) for isr in found)
        return False

    def write(self, count: int = 300, topic: str = TOPIC, key: bytes | None = None) -> None:
        """Let a producer write, as one always does; whether that works is not its business here."""
        with suppress(PylogError), Producer(self.bootstrap, acks="1", delivery_timeout_ms=5000) as producer:
            for number in range(count):
                producer.send(topic, b"%d" % number * 20, key)

    def save(self, directory: Path) -> None:
        """Write down what the person on call has: the alerts as they are sent, every page of metrics, and a minute."""
        self.save_pages(directory / "after")
        lines = []
        for one in self.prometheus.firing():
            labels = ", ".join(f"{name}={value}" for name, value in sorted(one["labels"].items()))
            lines += [
                f"[{one['labels']['severity']}] {one['labels']['alertname']}",
                f"  active since {one['activeAt']}",
            ]
            lines += [f"  {name}: {text}" for name, text in one["annotations"].items()] + [f"  {labels}", ""]
        (directory / "alerts.txt").write_text("\n".join(lines))
        self._save_history(directory / "history.txt")

    def save_pages(self, directory: Path) -> None:
        """Write down every page of metrics."""
        directory.mkdir(parents=True, exist_ok=True)
        ports = {f"broker-{broker_id}": port for broker_id, port in self._metrics_ports.items()}
        for name, port in (ports | {"probe": self._probe_port, "mirror": self._mirror_port}).items():
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
                (directory / f"{name}.prom").write_bytes(page.read())

    def _save_history(self, path: Path) -> None:
        """Write the last minute of every series that moved, a value each five seconds: what a dashboard would draw."""
        end = time.time()
        found = self.prometheus.ask(
            "query_range", query='{__name__=~"(pylog|process)_.*",__name__!~".*_bucket"}',
            start=str(end - 60), end=str(end), step="5",
        )  # fmt: skip
        lines = []
        for series in found["result"]:
            values = [value for _, value in series["values"]]
            if len(set(values)) > 1:
                labels = ",".join(
                    f'{k}="{v}"' for k, v in series["metric"].items() if k not in ("__name__", "instance")
                )
                lines.append(f"{series['metric']['__name__']}{{{labels}}} {' '.join(values)}")
        path.write_text("\n".join(sorted(lines)) + "\n")


@dataclass(frozen=True)
class Breakage:
    """One thing that goes wrong.

    Attributes:
        name: of its folder and its test.
        truth: what was done; the person on call is not told.
        fires: alerts that must fire.
        may_fire: alerts that also fire where it lasts long enough; no others may.
        broken: does it, gives what goes on meanwhile, and puts it right again.
        is_raised_on_hosts: whether tests/infra raises the same alerts on deployed hosts, so that `make test` need not
            do it twice.
    """

    name: str
    truth: str
    fires: frozenset[str]
    may_fire: frozenset[str]
    broken: Callable[["Night"], AbstractContextManager[Callable[[], None]]]
    is_raised_on_hosts: bool = False


@contextmanager
def _mounted(directory: Path) -> Iterator[None]:
    """A disk of its own at *directory*, as small as disks were once."""
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


@contextmanager
def _full_disk(night: Night) -> Iterator[Callable[[], None]]:
    """Leave 3 % of broker 2's disk; the rest is taken by a file that somebody else put there."""
    status = os.statvfs(night.small_disk)
    filler = night.small_disk / "core.12345"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - DISK_BYTES * 3 // 100)
    try:
        yield night.write
    finally:
        filler.unlink()


@contextmanager
def _refused_record(night: Night) -> Iterator[Callable[[], None]]:
    """Write records without a key into a topic that becomes compacted before the mirror, which hung, reads them."""
    night.mirror.signal(signal.SIGSTOP)
    night.write(5, MIRRORED)
    for address in (night.bootstrap, night.target.bootstrap):
        compacted = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}
        ConfigAdmin(Connection(bootstrap=address)).alter(Holder.TOPIC, MIRRORED, compacted)
    night.mirror.signal(signal.SIGCONT)
    yield lambda: night.write(1, MIRRORED, b"key")


@contextmanager
def _dead_broker(night: Night) -> Iterator[Callable[[], None]]:
    """Kill broker 3, and do not start it."""
    night.brokers[3].kill()
    try:
        yield night.write
    finally:
        night.brokers[3].start()


@contextmanager
def _throttled_follower(night: Night) -> Iterator[Callable[[], None]]:
    """Leave a throttle of one byte a second behind, as an interrupted reassignment does, and restart a follower."""
    admin = ConfigAdmin(Connection(bootstrap=night.bootstrap))
    names = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    lists = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    admin.alter(Holder.TOPIC, TOPIC, dict.fromkeys(lists, "*"))
    for broker_id in night.brokers:
        admin.alter(Holder.BROKER, str(broker_id), dict.fromkeys(names, "1"))
    night.brokers[3].stop()
    night.write(3000)
    night.brokers[3].start()
    try:
        yield night.write
    finally:
        for broker_id in night.brokers:
            admin.alter(Holder.BROKER, str(broker_id), {}, names)
        admin.alter(Holder.TOPIC, TOPIC, {}, lists)


@contextmanager
def _slow_zookeeper(night: Night) -> Iterator[Callable[[], None]]:
    """Make every sync of ZooKeeper's log take 400 ms, as on a disk that somebody else fills."""
    delay = "inject=fsync,fdatasync:delay_enter=400000"
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", delay]
    tracer = subprocess.Popen([*command, "-p", str(night.zookeeper.servers[0].pid)], stderr=subprocess.PIPE)
    numbers = iter(range(1_000_000))
    admin = ConfigAdmin(Connection(bootstrap=night.bootstrap))

    def change() -> None:
        # Settings that change, as an operator's script does: a tree that nobody changes is not synced.
        admin.alter(Holder.TOPIC, TOPIC, {"retention.ms": str(604_800_000 + next(numbers))})

    try:
        yield change
    finally:
        tracer.terminate()
        tracer.wait(30)
        admin.alter(Holder.TOPIC, TOPIC, {}, ["retention.ms"])


@contextmanager
def _poison(night: Night) -> Iterator[Callable[[], None]]:
    """Let a group's only member fail at record 10 of partition 0 for ever, and go on with the other partitions."""
    night.write(3000)
    given = {"bootstrap.servers": night.bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    member = Consumer({**given, "auto.offset.reset": "earliest"})
    member.subscribe([TOPIC])
    wait_until(lambda: member.poll(0.1) is not None and len(member.assignment()) == 3, "a member with three partitions")

    def again() -> None:
        night.write(30)
        ends = {one: member.get_watermark_offsets(KafkaPartition(TOPIC, one))[1] for one in range(3)}
        offsets = [KafkaPartition(TOPIC, *one) for one in (ends | {0: 10}).items()]
        member.commit(offsets=offsets, asynchronous=False)

    try:
        yield again
    finally:
        member.close()
        # Nobody reads on: a group that stays would be behind, and somebody would be told.
        admin = AdminClient({"bootstrap.servers": night.bootstrap})
        admin.delete_consumer_groups([GROUP])[GROUP].result(30)


@contextmanager
def _no_ensemble(night: Night) -> Iterator[Callable[[], None]]:
    """Stop ZooKeeper."""
    night.zookeeper.stop()
    try:
        yield lambda: night.write(30)
    finally:
        night.zookeeper.start()


_REPLICAS = frozenset({"PylogPartitionsUnderReplicated", "PylogNoMargin"})
BREAKAGES = (
    Breakage(
        "full-disk",
        "a file of somebody else's fills the data disk of broker 2",
        frozenset({"PylogDiskFull", "PylogDiskFilling", "PylogProduceRefused"}),
        frozenset({"PylogDiskFullSoon", "PylogCanaryFails"}),
        _full_disk,
        is_raised_on_hosts=True,
    ),
    Breakage(
        "dead-broker",
        "broker 3 was killed and stays down",
        frozenset({"PylogBrokerDown", "PylogPartitionsUnderReplicated"}),
        _REPLICAS | {"PylogCanaryFails", "PylogIsrChurns"},
        _dead_broker,
        is_raised_on_hosts=True,
    ),
    Breakage(
        "throttle-left-behind",
        "replication throttles of 1 byte a second were left behind; broker 3 cannot catch up after a restart",
        _REPLICAS,
        frozenset({"PylogBrokerDown", "PylogIsrChurns", "PylogCanaryFails"}),
        _throttled_follower,
    ),
    Breakage(
        "slow-zookeeper",
        "each sync of ZooKeeper's log takes 400 ms",
        frozenset({"PylogZooKeeperSlow"}),
        frozenset({"PylogIsrChurns"}),
        _slow_zookeeper,
    ),
    Breakage(
        "stalled-group",
        "the program of group billing fails at record 10 of a partition and begins again",
        frozenset({"PylogGroupStalled"}),
        frozenset({"PylogGroupStopped", "PylogGroupRebalances"}),
        _poison,
    ),
    Breakage(
        "no-zookeeper",
        "ZooKeeper is gone",
        frozenset({"PylogZooKeeperServerDown", "PylogZooKeeperQuorumLost", "PylogZooKeeperUnreached"}),
        frozenset({"PylogControllerMissing", *_REPLICAS, "PylogIsrChurns"}),
        _no_ensemble,
    ),
    # Last: this alert looks back an hour, a minute here.
    Breakage(
        "refused-record",
        "records without a key came into a topic before it was compacted, and the mirror's target refuses them",
        frozenset({"PylogMirrorParked"}),
        frozenset(),
        _refused_record,
    ),
)


def raise_alerts(night: Night, breakage: Breakage, save_to: Path | None = None) -> tuple[set[str], float]:
    """Wait until *night* is quiet, break it, wait for the alerts, see that there are no others, put it right again.

    Returns:
        what fired, and how many seconds after the breakage the last of `Breakage.fires` did.

    Raises:
        AssertionError: an alert did not come, did not go, or was not meant to come.
    """
    night.wait_quiet()
    if save_to is not None:
        night.save_pages(save_to / "before")
    seen: set[str] = set()
    began_s = time.monotonic()
    with breakage.broken(night) as go_on:

        def all_fire() -> bool:
            go_on()
            firing = night.firing()
            seen.update(firing)
            return firing >= breakage.fires

        wait_until(all_fire, lambda: f"{breakage.fires - seen} did not fire; {seen}", 120)
        took_s = time.monotonic() - began_s
        if save_to is not None:
            night.save(save_to)
    assert seen <= breakage.fires | breakage.may_fire, seen - breakage.fires - breakage.may_fire
    return seen, took_s


_PAGE = """\
# A watched cluster that is broken

Three brokers, a ZooKeeper server, a probe, a mirror to a fourth broker and Debian's Prometheus with the rules that
role `monitoring` ships, on one machine; only time is shorter, a minute of a rule is a second. Each fault must raise
the alerts that are listed for it, and none outside the list. {day}, {cpus} cores, load {load:.1f} at the end.

| fault | must fire | may fire | fired | after, s |
|---|---|---|---|--:|
{rows}

Operators who knew alerts and metrics of such faults alone, and not what was done, named the right cause of all seven
within minutes. Of the stalled group two causes stayed possible: that its program ends at the record, or runs on. Its
alert says now how often the group rebalanced, and how fast its topic is fetched.

Again: `make night`, which leaves alerts and metrics of each fault in `.local/night`. `make test` does those
whose alerts are not raised on deployed hosts.
"""


def _names(alerts: Iterable[str]) -> str:
    return ", ".join(f"`{one}`" for one in sorted(alerts))


def main() -> int:
    """Break the cluster in each way, or in those named after the directory; without names, write the page."""
    save_to, *names = Path(sys.argv[1]), *sys.argv[2:]
    rows = []
    with tempfile.TemporaryDirectory() as directory, Night(Path(directory)) as night:
        for breakage in BREAKAGES:
            if names and breakage.name not in names:
                continue
            seen, took_s = raise_alerts(night, breakage, save_to / breakage.name)
            cells = (breakage.truth, _names(breakage.fires), _names(breakage.may_fire), _names(seen), f"{took_s:.0f}")
            rows.append(f"| {' | '.join(cells)} |")
            print(rows[-1], flush=True)
    if not names:
        page = _PAGE.format(
            day=f"{datetime.now(UTC):%Y-%m-%d}", cpus=os.cpu_count(), load=os.getloadavg()[0], rows="\n".join(rows)
        )
        (ROOT / "docs/results/night.md").write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())

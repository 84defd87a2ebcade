"""Faults on deployed hosts raise the alerts that are listed for them, and no others.

Prometheus and its Alertmanager are those that `site` deployed, with the rules that role `monitoring` ships; only time
is shorter, see `HASTE`.  What an Alertmanager would send is what it calls active: an alert that follows from another
one is suppressed there.
"""

import json
import re
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic

from local.docs.alerts import FILES
from pylog.client.producer import Producer
from pylog.client.raw import RawClient
from pylog.errors import ErrorCode, PylogError
from pylog.ops.certificates import expiries
from pylog.wire.api.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaChange,
    QuotaEntity,
    QuotaOperation,
)
from tests.cluster.night import OF_THE_MACHINE, hastened
from tests.rolls import cluster
from tests.rolls.cluster import HOSTS_FILE, inside
from tests.servers.certificates import Authority

HASTE = 20
"""Times are divided by it; a range keeps `LEAST_RANGE_S`."""
LEAST_RANGE_S = 60
"""The canary's alert wants 30 failures in its range, and there is one a second."""
WATCHER, AWAY, FILLED = "live2", "live3", "live1"
"""The host with Prometheus and the probe, the one that most faults hit, and the one with the load balancer."""
TOPIC = "orders"
RULES, LIMITS = "/etc/pylog-monitoring/alerts.yml", "/etc/pylog-monitoring/thresholds.yml"
METRICS = "/var/lib/pylog/metrics"
GROUP_LAG = re.compile(r"vector\((\d+)\)(, labels: {name: group_lag_s})")
BUSY = OF_THE_MACHINE | {"PylogZooKeeperSlow", "PylogSyncSlow", "PylogMemoryShort", "PylogHostDiskFull"}
"""Alerts that count for nothing here: hosts in containers share a machine, which others keep busy."""
FIRES_WITHIN_S = 420
QUIET_WITHIN_S = 420


class Watch:
    """Prometheus and its Alertmanager, on their host."""

    def __init__(self) -> None:
        address = json.loads(HOSTS_FILE.read_text())["hosts"][WATCHER]["ip"]
        self._url = f"http://{address}:9090/api/v1"

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{path}", timeout=30) as answer:
            return json.load(answer)["data"]

    def alerts(self) -> list[dict[str, Any]]:
        """Return what is wrong, whether it fires yet or its time still runs; but not `BUSY`."""
        return [one for one in self.ask("alerts")["alerts"] if one["labels"]["alertname"] not in BUSY]

    def firing(self) -> set[tuple[str, str]]:
        """Return name and host of what fires."""
        return {
            (one["labels"]["alertname"], one["labels"].get("host", ""))
            for one in self.alerts()
            if one["state"] == "firing"
        }

    def told(self) -> set[str]:
        """Return the names of what the Alertmanager sends to whom its configuration names."""
        script = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9093/api/v2/alerts').read().decode())"
        found = json.loads(inside(WATCHER, f'python3 -c "{script}"'))
        return {one["labels"]["alertname"] for one in found if one["status"]["state"] == "active"} - BUSY

    def put(self, path: str, text: str) -> None:
        """Replace a file that Prometheus reads, and have it read that, as a change of the inventory does."""
        cluster.put(WATCHER, path, text)
        inside(WATCHER, "systemctl reload pylog-prometheus")

    def read(self, path: str) -> str:
        return inside(WATCHER, f"cat {path}")

    def wait_quiet(self) -> None:
        """Wait until nothing is wrong that an earlier fault may have left."""
        cluster.wait_for(lambda: not self.alerts(), QUIET_WITHIN_S)


def write() -> None:
    """Let a producer write to every partition; whether that works is not its business here."""
    with suppress(PylogError), Producer(cluster.bootstrap(), acks="all", delivery_timeout_ms=4000) as producer:
        for number in range(60):
            producer.send(TOPIC, b"%d" % number * 20)


def nothing() -> None:
    """Go on with nothing."""


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong on a host.

    Attributes:
        name: of its test.
        truth: what was done.
        fires: alerts that must fire, each with its host; "" for any.
        may_fire: alerts that also fire where it lasts long enough; no others may.
        broken: does it, and puts it right again.
        go_on: what goes on meanwhile.
    """

    name: str
    truth: str
    fires: frozenset[tuple[str, str]]
    may_fire: frozenset[str]
    broken: Callable[[Watch], AbstractContextManager[object]]
    go_on: Callable[[], None] = nothing


@contextmanager
def _dead_broker(_: Watch) -> Iterator[None]:
    """Kill a broker and keep systemd from starting it again."""
    inside(AWAY, "systemctl kill --signal=KILL pylog-broker@3; systemctl stop pylog-broker@3")
    try:
        yield
    finally:
        inside(AWAY, "systemctl start pylog-broker@3")
        cluster.health()


@contextmanager
def _full_disk(_: Watch) -> Iterator[None]:
    """Leave 3 % of a data disk: the rest is taken by a file of somebody else's."""
    disk = "/var/lib/pylog/disk1"
    free, size = map(int, inside(FILLED, f"df --block-size=1 --output=avail,size {disk} | tail -n 1").split())
    inside(FILLED, f"fallocate --length {free - size * 3 // 100} {disk}/core.12345")
    try:
        yield
    finally:
        inside(FILLED, f"rm {disk}/core.12345")


@contextmanager
def _stopped_zookeeper(_: Watch) -> Iterator[None]:
    inside(AWAY, "systemctl stop pylog-zookeeper")
    try:
        yield
    finally:
        inside(AWAY, "systemctl start pylog-zookeeper")


@contextmanager
def _quorum_lost(_: Watch) -> Iterator[None]:
    for host in (AWAY, FILLED):
        inside(host, "systemctl stop pylog-zookeeper")
    try:
        yield
    finally:
        for host in (AWAY, FILLED):
            inside(host, "systemctl start pylog-zookeeper")
        cluster.health()


@contextmanager
def _stopped_programs(_: Watch) -> Iterator[None]:
    stopped = ((AWAY, "pylog-node-exporter"), (FILLED, "pylog-load-balancer"), (WATCHER, "pylog-probe"))
    for host, unit in stopped:
        inside(host, f"systemctl stop {unit}")
    try:
        yield
    finally:
        for host, unit in stopped:
            inside(host, f"systemctl start {unit}")


@contextmanager
def _two_dead_brokers(_: Watch) -> Iterator[None]:
    """Stop two of three brokers, one of which has a partition alone."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
    admin.create_topics([NewTopic("alone", 1, replica_assignment=[[3]])], operation_timeout=30)["alone"].result(60)
    for host, number in ((AWAY, 3), (WATCHER, 2)):
        inside(host, f"systemctl stop pylog-broker@{number}")
    try:
        yield
    finally:
        for host, number in ((AWAY, 3), (WATCHER, 2)):
            inside(host, f"systemctl start pylog-broker@{number}")
        cluster.health()
        admin.delete_topics(["alone"], operation_timeout=30)["alone"].result(60)
        cluster.said("partition", "elect")


@contextmanager
def _few_descriptors(_: Watch) -> Iterator[None]:
    """Leave a broker a tenth more file descriptors than it has open."""
    pid = inside(AWAY, "systemctl show -P MainPID pylog-broker@3").strip()
    as_broker = "runuser --user pylog --"  # root of a container may not do it for others
    limit = inside(AWAY, f"{as_broker} prlimit --pid {pid} --nofile --output SOFT --noheadings").strip()
    used = len(inside(AWAY, f"{as_broker} ls /proc/{pid}/fd").split())
    inside(AWAY, f"{as_broker} prlimit --pid {pid} --nofile={used * 10 // 9}:")
    try:
        yield
    finally:
        inside(AWAY, f"{as_broker} prlimit --pid {pid} --nofile={limit}:")


@contextmanager
def _stray(_: Watch) -> Iterator[None]:
    """Put the partition of a topic that the cluster does not know beside the others, as a restored disk may."""
    data = "/var/lib/pylog/disk1/broker-3"
    inside(AWAY, f"runuser --user pylog -- cp -r {data}/{TOPIC}-0 {data}/forgotten-0")
    metadata = f"{data}/forgotten-0/partition.metadata"
    inside(AWAY, f"sed -i 's/^topic_id: .*/topic_id: AAAAAAAAAAAAAAAAAAAAKg/' {metadata}")
    inside(AWAY, "systemctl restart pylog-broker@3")
    cluster.health()
    try:
        yield
    finally:
        inside(AWAY, f"rm --recursive {data}/forgotten-0*")
        cluster.said("partition", "elect")


@contextmanager
def _stopped_group(_: Watch) -> Iterator[None]:
    """Read as a group, commit some times, and end for good."""
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap(),
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    reader.subscribe([TOPIC])
    commits = 0
    while commits < 5:
        write()
        if reader.consume(1000, timeout=5):
            reader.commit(asynchronous=False)
            commits += 1
    reader.close()
    try:
        yield
    finally:
        cluster.said("group", "delete", "billing", "--yes")


@contextmanager
def _dropped(host: str, chain: str, rule: str) -> Iterator[None]:
    """Drop what matches *rule* on *host*."""
    inside(
        host, f"nft add table inet fault; nft 'add chain inet fault cut {{ type filter hook {chain} priority -10; }}'"
    )
    inside(host, f"nft add rule inet fault cut {rule}")
    try:
        yield
    finally:
        inside(host, "nft delete table inet fault")
        cluster.health()


def _cut_off_from_zookeeper(_: Watch) -> AbstractContextManager[None]:
    return _dropped(AWAY, "output", "tcp dport 2181 meta skuid pylog drop")


def _balancer_cut_off(_: Watch) -> AbstractContextManager[None]:
    return _dropped(FILLED, "output", "tcp dport 9092 meta skuid haproxy reject with tcp reset")


def _closed_to_clients(watch: Watch) -> AbstractContextManager[None]:
    # The canary asks a broker for what it leads, and the fault before took its leaders away.
    cluster.said("partition", "elect")
    fresh = 'time() - pylog_canary_last_success_timestamp_seconds{broker="3"} < 10'
    cluster.wait_for(lambda: watch.ask(f"query?{urllib.parse.urlencode({'query': fresh})}")["result"])
    return _dropped(AWAY, "input", "tcp dport 9092 reject with tcp reset")


@contextmanager
def _crash_loop(_: Watch) -> Iterator[None]:
    """A configuration that the broker does not take."""
    path = "/etc/pylog/broker-3.yml"
    inside(
        AWAY,
        f"cp -p {path} /root/broker.yml; echo 'nonsense: true' >> {path}; systemctl restart pylog-broker@3 || true",
    )
    try:
        yield
    finally:
        inside(AWAY, f"cp -p /root/broker.yml {path}; systemctl restart pylog-broker@3")
        cluster.health()


@contextmanager
def _failed_unit(_: Watch) -> Iterator[None]:
    inside(AWAY, "systemd-run --unit=pylog-fails /bin/false")
    try:
        yield
    finally:
        inside(AWAY, "systemctl reset-failed pylog-fails")


@contextmanager
def _certificate_near_its_end(_: Watch) -> Iterator[None]:
    """Show a certificate that ends in a day, as `site` writes down what it finds on a host."""
    with tempfile.TemporaryDirectory() as directory:
        certificate = Authority(Path(directory)).server().read_text()
    metrics = expiries({"/etc/pylog-registry/tls.pem": certificate})
    path = f"{METRICS}/certificates.prom"
    cluster.put(AWAY, path, metrics)
    try:
        yield
    finally:
        inside(AWAY, f"rm {path}")


@contextmanager
def _restarted_broker(watch: Watch) -> Iterator[None]:
    """Start a broker anew three times, each time well, as soon as Prometheus has seen the start before.

    On a busy machine that lasts for minutes, so the rule's range is longer than the other rules' meanwhile.
    """
    began = urllib.parse.urlencode({"query": 'process_start_time_seconds{job="pylog-broker",broker="3"}'})

    def start() -> Any:
        return [row["value"][1] for row in watch.ask(f"query?{began}")["result"]]

    with _changed(watch, r"\[\w+\]", "[15m]", "PylogBrokerRestarts"):
        for _start in range(3):
            before = start()
            inside(AWAY, "systemctl restart pylog-broker@3")
            cluster.wait_for(lambda before=before: start() not in ([], before))
        try:
            yield
        finally:
            cluster.health()
            cluster.said("partition", "elect")


PAST = "1"
"""A time long ago, in seconds since the Unix epoch."""
OLD_NEWS = {
    "backup": f"pylog_backup_last_success_timestamp_seconds {PAST}",
    "ship": f"pylog_ship_last_progress_timestamp_seconds {PAST}",
    "ingest": f"""pylog_ingest_last_run_timestamp_seconds {PAST}
pylog_ingest_topic_stopped_timestamp_seconds{{topic="{TOPIC}",code="PYLOG-0402"}} {PAST}
pylog_lake_dead_letters{{topic="{TOPIC}"}} 3""",
    "audit": f"""pylog_audit_judged_timestamp_seconds {PAST}
pylog_audit_findings{{topic="{TOPIC}",kind="lost"}} 2
pylog_audit_findings{{topic="{TOPIC}",kind="unknown"}} 1""",
    "connect": f"""pylog_connect_looked_timestamp_seconds {PAST}
pylog_connect_up 0
pylog_connect_tasks{{connector="files",state="failed"}} 1""",
    "stream": f'pylog_stream_seen_timestamp_seconds{{query="counts"}} {PAST}',
}
"""By task, what its program writes for Prometheus, from when it was last well."""


@contextmanager
def _old_news(watch: Watch) -> Iterator[None]:
    """Let every task of a host be one of the inventory that was last well long ago, and its disk fill slowly.

    The files are what the programs write; that they write them is shown by tests of theirs.
    """
    limits = watch.read(LIMITS)
    rule = f"{{record: pylog_expected, expr: vector(1), labels: {{task: TASK, host: {AWAY}, datacenter: live}}}}"
    expected = "".join(f"      - {rule}\n".replace("TASK", task) for task in ("load", "audit", "connect", "stream"))
    disk = "/var/lib/pylog/disk1"
    free, size = map(int, inside(FILLED, f"df --block-size=1 --output=avail,size {disk} | tail -n 1").split())
    inside(AWAY, "systemctl stop pylog-ship")
    for task, text in OLD_NEWS.items():
        path = f"{METRICS}/{task}.prom"
        inside(AWAY, f"cp -p {path} /root/{task}.prom || true")
        cluster.put(AWAY, path, f"{text}\n")  # without it the node exporter passes a file over
    watch.put(LIMITS, limits.rstrip("\n") + "\n" + expected)
    inside(FILLED, f"fallocate --length {free - size * 40 // 100} {disk}/core.12345")
    try:
        yield
    finally:
        inside(FILLED, f"rm {disk}/core.12345")
        watch.put(LIMITS, limits)
        for task in OLD_NEWS:
            path = f"{METRICS}/{task}.prom"
            inside(AWAY, f"mv /root/{task}.prom {path} || rm {path}")
        inside(AWAY, "systemctl start pylog-ship")


@contextmanager
def _changed(watch: Watch, pattern: str, replacement: str, *alerts: str) -> Iterator[None]:
    """Let the conditions of *alerts* have *replacement* for what matches *pattern*, once in each."""
    rules = watch.read(RULES)
    tree = yaml.safe_load(rules)
    for rule in (rule for group in tree["groups"] for rule in group["rules"] if rule.get("alert") in alerts):
        rule["expr"], count = re.subn(pattern, replacement, rule["expr"])
        assert count == 1, rule
    watch.put(RULES, yaml.safe_dump(tree, sort_keys=False))
    try:
        yield
    finally:
        watch.put(RULES, rules)


def _within_a_minute(watch: Watch, *alerts: str) -> AbstractContextManager[None]:
    """Let a number of seconds in the conditions of *alerts* be a minute: it is no range, which `hastened` divides."""
    return _changed(watch, r"([<>]) \d{3,}", r"\1 60", *alerts)


@contextmanager
def _probe_cut_off(watch: Watch) -> Iterator[None]:
    """Refuse what programs of pylog send to brokers as clients: beside the probe that is the shipper."""
    with (
        _within_a_minute(watch, "PylogCanarySilent", "PylogGroupLagUnknown"),
        _dropped(WATCHER, "output", "tcp dport 9092 meta skuid pylog reject with tcp reset"),
    ):
        yield


def _quota(client_id: str, *, remove: bool = False) -> None:
    """Let a client write a kilobyte a second at each broker, or as much as it likes again."""
    change = QuotaChange(
        entity=[QuotaEntity(entity_type="client-id", entity_name=client_id)],
        ops=[QuotaOperation(key="producer_byte_rate", value=1024, remove=remove)],
    )
    with RawClient(cluster.bootstrap()) as client:
        answer = AlterClientQuotasResponse.decode(1, client.ask(AlterClientQuotasRequest(entries=[change]), 1))
    assert [one.error_code for one in answer.entries] == [ErrorCode.NONE], answer


GREEDY, RESTLESS, SILENT = "greedy", "restless", "silent"


@contextmanager
def _bad_clients(watch: Watch) -> Iterator[None]:
    """A producer that falls silent in its transaction; see `_go_on_badly` for the others."""
    bootstrap = cluster.bootstrap()
    _quota(GREEDY)
    producer = KafkaProducer(
        {"bootstrap.servers": bootstrap, "transactional.id": SILENT, "transaction.timeout.ms": 900_000}
    )
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(TOPIC, b"and then silence", partition=0)
    assert producer.flush(60) == 0
    with _within_a_minute(watch, "PylogTransactionHangs"):
        try:
            yield
        finally:
            producer.abort_transaction(120)
            _quota(GREEDY, remove=True)
            cluster.said("group", "delete", RESTLESS, "--yes")


def _go_on_badly() -> None:
    """Write more than the quota allows; join a group, read nothing and leave it."""
    greedy = KafkaProducer({"bootstrap.servers": cluster.bootstrap(), "client.id": GREEDY, "message.timeout.ms": 9000})
    for _ in range(20):
        greedy.produce(TOPIC, b"v" * 2000)
    greedy.flush(2)
    greedy.purge()
    reader = Consumer({"bootstrap.servers": cluster.bootstrap(), "group.id": RESTLESS, "enable.auto.commit": False})
    reader.subscribe([TOPIC])
    deadline_s = time.monotonic() + 10
    while not reader.assignment() and time.monotonic() < deadline_s:
        reader.poll(0.1)
    reader.close()


# Whoever writes to the leader of before is refused once, which a range of a minute shows for longer than the divided
# time of the alert.
_MOVED_LEADERS = frozenset({"PylogProduceRefused"})
_REPLICAS = _MOVED_LEADERS | {"PylogPartitionsUnderReplicated", "PylogNoMargin", "PylogIsrChurns"}
FAULTS = (
    # First: what filled the disk before would bend the line that foretells when it is full.
    Fault(
        "old-news",
        f"tasks of {AWAY} were last well long ago, say the files that their programs write; a file of somebody else's "
        f"fills the data disk of the broker on {FILLED} to 60 %",
        frozenset(
            {
                ("PylogBackupLate", AWAY),
                ("PylogShipLate", AWAY),
                ("PylogLoadLate", AWAY),
                ("PylogLoadTopicStopped", AWAY),
                ("PylogLakeDeadLetters", AWAY),
                ("PylogAuditLate", AWAY),
                ("PylogAuditFindings", AWAY),
                ("PylogAuditUnknown", AWAY),
                ("PylogConnectDown", AWAY),
                ("PylogConnectWatchSilent", AWAY),
                ("PylogConnectTaskFailed", ""),
                ("PylogStreamSilent", AWAY),
                ("PylogDiskFullSoon", FILLED),
            }
        ),
        frozenset(),
        _old_news,
    ),
    Fault(
        "failed-unit",
        f"a unit on {AWAY} fails, and is not started again",
        frozenset({("PylogUnitFailed", AWAY)}),
        frozenset(),
        _failed_unit,
    ),
    Fault(
        "zookeeper-server",
        f"the ZooKeeper server on {AWAY} is stopped",
        frozenset({("PylogZooKeeperServerDown", AWAY)}),
        frozenset(),
        _stopped_zookeeper,
        write,
    ),
    Fault(
        "crash-loop",
        f"the broker on {AWAY} ends at each start: its file has a word that it does not know",
        frozenset({("PylogBrokerDown", AWAY), ("PylogUnitRestarts", AWAY), ("PylogPartitionsUnderReplicated", "")}),
        _REPLICAS | {"PylogCanaryFails"},
        _crash_loop,
        write,
    ),
    Fault(
        "closed-to-clients",
        f"a packet filter on {AWAY} refuses clients of the broker, and nobody else",
        frozenset({("PylogCanaryFails", "")}),
        _MOVED_LEADERS | {"PylogShipLate"},
        _closed_to_clients,
    ),
    Fault(
        "full-disk",
        f"a file of somebody else's fills the data disk of the broker on {FILLED}",
        frozenset({("PylogDiskFull", FILLED), ("PylogDiskFilling", FILLED), ("PylogProduceRefused", FILLED)}),
        frozenset({"PylogDiskFullSoon", "PylogCanaryFails", "PylogShipLate"}),
        _full_disk,
        write,
    ),
    Fault(
        "dead-broker",
        f"the broker on {AWAY} was killed and stays down",
        frozenset({("PylogBrokerDown", AWAY), ("PylogPartitionsUnderReplicated", "")}),
        _REPLICAS | {"PylogCanaryFails", "PylogUnitFailed"},
        _dead_broker,
        write,
    ),
    Fault(
        "cut-off",
        f"the broker on {AWAY} does not reach ZooKeeper",
        frozenset({("PylogZooKeeperUnreached", AWAY), ("PylogPartitionsUnderReplicated", "")}),
        _REPLICAS | {"PylogCanaryFails"},
        _cut_off_from_zookeeper,
        write,
    ),
    Fault(
        "quorum-lost",
        f"the ZooKeeper servers on {AWAY} and {FILLED} are stopped, two of three",
        frozenset({("PylogZooKeeperQuorumLost", ""), ("PylogZooKeeperServerDown", AWAY)}),
        _REPLICAS | {"PylogZooKeeperUnreached", "PylogControllerMissing", "PylogCanaryFails"},
        _quorum_lost,
        write,
    ),
    Fault(
        "programs-stopped",
        f"node exporter on {AWAY}, load balancer on {FILLED} and probe on {WATCHER} are stopped",
        frozenset({("PylogHostDown", AWAY), ("PylogLoadBalancerDown", FILLED), ("PylogProbeDown", WATCHER)}),
        frozenset(),
        _stopped_programs,
        write,
    ),
    Fault(
        "balancer-cut-off",
        f"a packet filter on {FILLED} refuses what its load balancer asks brokers",
        frozenset({("PylogBalancerWithoutBroker", FILLED)}),
        frozenset(),
        _balancer_cut_off,
    ),
    Fault(
        "descriptors",
        f"the broker on {AWAY} may open a tenth more files than it has open",
        frozenset({("PylogDescriptorsShort", AWAY)}),
        _REPLICAS | {"PylogCanaryFails"},
        _few_descriptors,
    ),
    Fault(
        "stray",
        f"the broker on {AWAY} finds a partition of a topic that the cluster does not know",
        frozenset({("PylogStrayDirectories", AWAY)}),
        _REPLICAS,
        _stray,
        write,
    ),
    Fault(
        "certificate",
        f"the certificate of a registry on {AWAY} ends in a day",
        frozenset({("PylogHostCertificateExpires", AWAY)}),
        frozenset(),
        _certificate_near_its_end,
    ),
    Fault(
        "restarts",
        f"the broker on {AWAY} is started anew three times",
        frozenset({("PylogBrokerRestarts", AWAY)}),
        _REPLICAS | {"PylogCanaryFails"},
        _restarted_broker,
    ),
    Fault(
        "group-stopped",
        "the program of a group has ended, and records go on coming",
        frozenset({("PylogGroupStopped", "")}),
        _MOVED_LEADERS,
        _stopped_group,
        write,
    ),
    Fault(
        "bad-clients",
        "a producer falls silent in its transaction, one exceeds its quota, a member joins and leaves for ever",
        frozenset({("PylogTransactionHangs", ""), ("PylogClientsThrottled", ""), ("PylogGroupRebalances", "")}),
        _MOVED_LEADERS,
        _bad_clients,
        _go_on_badly,
    ),
    Fault(
        "probe-cut-off",
        f"a packet filter on {WATCHER} refuses what probe and shipper send to brokers",
        frozenset({("PylogCanarySilent", WATCHER), ("PylogGroupLagUnknown", WATCHER)}),
        frozenset({"PylogCanaryFails", "PylogShipLate"}),
        _probe_cut_off,
    ),
    Fault(
        "two-dead-brokers",
        f"the brokers on {AWAY} and {WATCHER} are stopped, and one of them had a partition alone",
        frozenset(
            {
                ("PylogBrokerDown", AWAY),
                ("PylogBrokerDown", WATCHER),
                ("PylogWritesRefused", FILLED),
                ("PylogPartitionsLeaderless", ""),
            }
        ),
        _REPLICAS | {"PylogControllerMissing", "PylogCanaryFails", "PylogShipLate"},
        _two_dead_brokers,
        write,
    ),
)


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    """Prometheus on the deployed hosts, in a hurry."""
    found = Watch()
    rules = found.read(RULES)
    pid = inside(WATCHER, "systemctl show -P MainPID pylog-prometheus")
    limits = found.read(LIMITS)
    short, count = GROUP_LAG.subn(lambda limit: f"vector({int(limit[1]) // HASTE}){limit[2]}", limits)
    assert count == 1
    found.put(LIMITS, short)
    found.put(RULES, hastened((FILES / "alerts.yml").read_text(), HASTE, LEAST_RANGE_S))
    assert inside(WATCHER, "systemctl show -P MainPID pylog-prometheus") == pid, "it was read, without a new start"
    [down] = [
        rule for group in found.ask("rules")["groups"] for rule in group["rules"] if rule["name"] == "PylogBrokerDown"
    ]
    assert down["duration"] == 60 / HASTE
    if TOPIC not in {row["name"] for row in cluster.said("topic", "list")}:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
        made = admin.create_topics([NewTopic(TOPIC, 6, 3, config={"min.insync.replicas": "2"})], operation_timeout=60)
        made[TOPIC].result(90)
    try:
        yield found
    finally:
        found.put(LIMITS, limits)
        found.put(RULES, rules)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_raises_its_alerts_and_no_others(fault: Fault, watch: Watch) -> None:
    watch.wait_quiet()
    seen: set[tuple[str, str]] = set()
    told: set[str] = set()
    with fault.broken(watch):
        began_s = time.monotonic()

        def all_fire() -> bool:
            fault.go_on()
            firing = watch.firing()
            seen.update(firing)
            return all(any(name == one and host in ("", at) for one, at in firing) for name, host in fault.fires)

        deadline_s = began_s + FIRES_WITHIN_S
        while not all_fire():
            assert time.monotonic() < deadline_s, f"{fault.fires - seen} did not fire; {seen}"
            time.sleep(1)
        took_s = time.monotonic() - began_s
        # Those that follow from another alert need some seconds more to be suppressed.
        names = {name for name, _ in fault.fires}
        while not told & names:
            assert time.monotonic() < deadline_s + 30, f"nobody is told: {told}"
            told = watch.told()
            time.sleep(1)
    wanted = {name for name, _ in fault.fires}
    others = {(name, host) for name, host in seen if name not in wanted | fault.may_fire}
    cluster.keep_more(
        "monitored",
        "faults",
        {
            "fault": fault.truth,
            "must fire": ", ".join(sorted(f"{name} {host}".strip() for name, host in fault.fires)),
            "may fire": ", ".join(sorted(fault.may_fire - wanted)),
            "fired": ", ".join(sorted(f"{name} {host}".strip() for name, host in seen)),
            "sent": ", ".join(sorted(told)),
            "after_s": round(took_s),
        },
    )
    assert not others, others

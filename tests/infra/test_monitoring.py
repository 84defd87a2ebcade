"""Prometheus as an operator meets it: everything is scraped, and what goes wrong on live hosts raises its alert."""

import json
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from testinfra.host import Host
from testinfra.utils.ansible_runner import AnsibleRunner

from local.docs.alerts import rules
from tests.infra.conftest import ask_broker, datacenter_of, members, read_json, setting

Variables = Callable[[str], dict[str, Any]]
DEADLINE_S = 90.0
BALANCER = "pylog-load-balancer"
NOT_RAISED = {
    "PylogControllerMissing": "it takes all brokers or ZooKeeper away",
    "PylogPartitionsOffline": "it takes a disk that fails",
    "PylogSegmentDamaged": "closed segments are read again once a week",
    "PylogUpkeepFails": "it takes a bug",
    "PylogCompactionFails": "it takes damage in a compacted log, which tests/unit/broker has",
    "PylogIsrChurns": "it takes ten minutes of unrest",
    "PylogClientsThrottled": "it takes a client over its quota, which tests/rolls/monitored has",
    "PylogBalancerWithoutBroker": "it takes all brokers away from the balancer, which tests/rolls/monitored does",
    "PylogNoMargin": "it takes a quarter of an hour, which tests/cluster/night.py shortens",
    "PylogPartitionsLeaderless": "it takes all replicas of a partition away, which tests/rolls/monitored does",
    "PylogProduceSlow": "it takes ten minutes of slow writes",
    "PylogLoopDelayed": "it takes ten minutes of load",
    "PylogBrokerRestarts": "it takes three starts of a broker, which tests/rolls/monitored does",
    "PylogDescriptorsShort": "it takes another limit of a running broker, which tests/rolls/monitored does",
    "PylogDiskFullSoon": "it takes hours, which tests/rolls/monitored shortens",
    **dict.fromkeys(
        ("PylogCanarySilent", "PylogGroupLagUnknown", "PylogGroupRebalances"),
        "it takes minutes, which tests/rolls/monitored shortens",
    ),
    "PylogCanaryFails": "it takes minutes, which tests/rolls/monitored shortens",
    "PylogGroupStopped": "it takes minutes, which tests/rolls/monitored shortens",
    "PylogGroupStalled": "it takes minutes, which tests/cluster/night.py shortens",
    "PylogGroupSlow": "it takes an hour",
    "PylogZooKeeperSlow": "it takes a slow disk, which tests/cluster/night.py shows",
    "PylogZooKeeperQuorumLost": "it takes a majority of ZooKeeper's servers away, which tests/cluster/night.py shows",
    "PylogZooKeeperUnreached": "it takes minutes without ZooKeeper, which tests/cluster/night.py shows",
    "PylogSyncSlow": "it takes a slow disk",
    "PylogCertificateExpires": "it takes days",
    "PylogHostCertificateExpires": "it takes days, which tests/rolls/monitored shortens",
    "PylogRevocationListExpires": "it takes a revocation list, which tests/unit/security has",
    "PylogLoginsFail": "it takes ten minutes of wrong passwords, which tests/net/test_login.py shows",
    "PylogClockWrong": "hosts in containers share their clock",
    "PylogMemoryShort": "hosts in containers share their memory",
    "PylogHostDiskFull": "hosts in containers share their root disk",
    "PylogZooKeeperUnasked": "it takes five minutes without keys, which tests/unit/store/test_secured_zookeeper.py has",
    "PylogLoadLate": "it takes twenty minutes, of which tests/rolls/monitored writes the file",
    "PylogLoadBehind": "it takes two hours of loads that land less than is written",
    "PylogStreamSilent": "it takes five minutes, of which tests/rolls/monitored writes the file",
    "PylogBackupLate": "it takes a day, of which tests/rolls/monitored writes the file",
    "PylogTransactionHangs": "it takes 25 minutes of a silent producer, which tests/rolls/monitored shortens",
    "PylogShipLate": "it takes ten minutes without brokers, of which tests/rolls/monitored writes the file",
    "PylogLoadTopicStopped": "it takes a topic that is made again, of which tests/rolls/monitored writes the file",
    "PylogLakeDeadLetters": "it takes records that do not decode, of which tests/rolls/monitored writes the file",
    "PylogMirrorLags": "it takes five minutes without a link, which tests/programs/test_mirror.py shows",
    "PylogMirrorHearsNothing": "it takes minutes without a link, which tests/programs/test_link_cut.py shows",
    "PylogMirrorTopicRefused": "it takes a target that refuses, which tests/programs/test_mirror.py shows",
    "PylogMirrorForgot": "it takes retention at the source, which tests/programs/test_mirror.py shows",
    "PylogMirrorLeftOut": "it takes a batch that cannot be unpacked, which tests/programs/test_mirror.py shows",
    "PylogMirrorGroupsLate": "it takes ten minutes without a coordinator",
    "PylogMirrorParked": "it takes a target that refuses a record, which tests/cluster/night.py shows",
    "PylogRegistryPrimaryMissing": "it takes two registries",
    "PylogRegistryFollowsLate": "it takes ten minutes without a link",
    "PylogConnectDown": "no host runs Kafka Connect; tests/rolls/monitored writes what its watch tells",
    "PylogConnectTaskFailed": "no host runs Kafka Connect; tests/rolls/monitored writes what its watch tells",
    "PylogConnectRestarts": "no host of the scenario runs Kafka Connect",
    "PylogConnectWatchSilent": "no host runs Kafka Connect; tests/rolls/monitored writes what its watch tells",
    "PylogRegistryConflict": "it takes two registries that gave ids apart",
    "PylogAuditFindings": "it takes a record that is lost, of which tests/rolls/monitored writes the file",
    "PylogAuditUnknown": "it takes ten minutes, of which tests/rolls/monitored writes the file",
    "PylogAuditLate": "it takes twenty minutes, of which tests/rolls/monitored writes the file",
}
"""Alerts that no test raises on live hosts, each with its reason."""
RECORDED = {"pylog_threshold", "pylog_expected", "pylog_expected_since_timestamp_seconds"}
"""What Prometheus is told of the inventory; `pylog_data_disk` where there is one."""
RAISED_APART = {"PylogZooKeeperServerDown"}
"""Alerts of what must not happen while a broker is away; they have a test of their own."""


class Prometheus:
    """Asks a Prometheus on its own host, where it listens in any inventory."""

    def __init__(self, host: Host, address: str) -> None:
        self.host = host
        self.address = address

    def ask(self, path: str, **arguments: str) -> Any:
        query = f"?{urllib.parse.urlencode(arguments)}" if arguments else ""
        url = f"http://{self.address}/api/v1/{path}{query}"
        return read_json(self.host, "python3 -c %s %s", _FETCH, url)["data"]

    def raised(self) -> set[tuple[str, str]]:
        """Return name and host of what is wrong now, whether somebody is told yet or its time still runs."""
        return {(one["labels"]["alertname"], one["labels"].get("host", "")) for one in self.ask("alerts")["alerts"]}


_FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"


@pytest.fixture(scope="module")
def prometheus(runner: AnsibleRunner, variables: Variables) -> Prometheus:
    """The first one of this inventory."""
    name = members(runner, "pylog_monitoring")[0]
    host, _, port = str(setting(variables(name), "monitoring", "monitoring_listen")).rpartition(":")
    return Prometheus(runner.get_host(name), f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}")


@pytest.mark.readonly
def test_the_node_exporter_runs_and_not_the_packages_own(host: Host, runner: AnsibleRunner) -> None:
    members(runner, "pylog_monitoring")  # with one, every host has it
    service = host.service("pylog-node-exporter")
    assert (service.is_running, service.is_enabled) == (True, True)
    assert not host.service("prometheus-node-exporter").is_running


def is_ours(group: str) -> bool:
    return group.startswith("pylog_")


@pytest.mark.readonly
def test_everything_in_the_inventory_is_scraped(
    runner: AnsibleRunner, variables: Variables, prometheus: Prometheus
) -> None:
    deployed = [name for name in runner.get_hosts("all") if any(map(is_ours, variables(name)["group_names"]))]
    wanted = {("pylog-host", name) for name in deployed}
    wanted |= {
        ("pylog-broker", name)
        for name in runner.get_hosts("pylog_broker")
        if any("metrics_port" in one for one in variables(name)["pylog_broker_instances"])
    }
    wanted |= {(BALANCER, name) for name in runner.get_hosts("pylog_load_balancer")}
    wanted |= {("pylog-probe", name) for name in runner.get_hosts("pylog_probe")}
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        targets = prometheus.ask("targets")["activeTargets"]
        found = {(one["labels"]["job"], one["labels"]["host"]) for one in targets if one["health"] == "up"}
        if wanted <= found:
            break
        assert time.monotonic() < deadline_s, [(one["labels"], one["lastError"]) for one in targets]
        time.sleep(1)
    assert {one["labels"]["job"] for one in targets} >= {job for job, _ in wanted}


@pytest.mark.readonly
def test_prometheus_has_every_rule(prometheus: Prometheus) -> None:
    found = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    names = {rule["name"] for rule in found} - {"pylog_data_disk"}
    assert names == {rule["alert"] for rule in rules()} | RECORDED
    assert [rule["lastError"] for rule in found if rule["health"] == "err"] == []


@pytest.mark.readonly
def test_prometheus_knows_the_tasks_of_every_host(runner: AnsibleRunner, prometheus: Prometheus) -> None:
    found = prometheus.ask("query", query="pylog_expected")["result"]
    tasks = {(one["metric"]["task"], one["metric"]["host"]) for one in found}
    groups = {"retention": "pylog_broker", "backup": "pylog_broker", "ship": "pylog_ship", "load": "pylog_spark"}
    wanted = {(task, name) for task, group in groups.items() for name in runner.get_hosts(group)}
    assert {one for one in tasks if one[0] != "audit"} == wanted
    assert {name for task, name in tasks if task == "audit"} <= set(runner.get_hosts("pylog_audit"))


@pytest.mark.readonly
def test_the_alertmanager_hears_that_alerts_work(runner: AnsibleRunner, variables: Variables) -> None:
    telling = [name for name in members(runner, "pylog_monitoring") if variables(name).get("monitoring_alertmanager")]
    if not telling:
        pytest.skip("Prometheus tells nobody here, or somebody else's Alertmanager")
    host = runner.get_host(telling[0])
    assert host.service("pylog-alertmanager").is_enabled
    assert not host.service("prometheus-alertmanager").is_running, "the package's own"
    listens = setting(variables(telling[0]), "monitoring", "monitoring_alertmanager_listen")
    url = f"http://{listens}/api/v2/alerts"
    deadline_s = time.monotonic() + DEADLINE_S
    while "PylogAlertsWork" not in {
        one["labels"]["alertname"] for one in read_json(host, "python3 -c %s %s", _FETCH, url)
    }:
        assert time.monotonic() < deadline_s, "the alert that fires for ever did not reach it"
        time.sleep(1)


@contextmanager
def stopped(host: Host, unit: str) -> Iterator[None]:
    host.check_output("systemctl stop %s", unit)
    try:
        yield
    finally:
        host.check_output("systemctl start %s", unit)


@contextmanager
def full_disk(host: Host, directory: str) -> Iterator[None]:
    """Reserve all but three in a hundred bytes of the disk; nothing is written."""
    path = f"{directory}/filled-by-a-test"
    free, size = map(int, host.check_output("df --block-size=1 --output=avail,size %s | tail -n 1", directory).split())
    host.check_output("fallocate --length %s %s", str(free - size * 3 // 100), path)
    try:
        yield
    finally:
        host.check_output("rm %s", path)


@contextmanager
def late_retention(host: Host) -> Iterator[None]:
    """Set the time of the last success back, and have one broker fail, as retention itself would write it."""
    path = "/var/lib/pylog/metrics/retention.prom"
    text = "pylog_retention_last_success_timestamp_seconds 1\npylog_retention_failed_brokers 1"
    host.check_output("runuser -u pylog -- cp -p %s %s.kept 2>/dev/null || true", path, path)
    host.check_output("echo %s > %s", text, path)
    try:
        yield
    finally:
        host.check_output("mv %s.kept %s 2>/dev/null || rm %s", path, path, path)


@contextmanager
def transient(host: Host, unit: str, *properties: str) -> Iterator[None]:
    """Run a unit that ends at once and badly."""
    options = " ".join(f"--property={one}" for one in properties)
    host.check_output(f"systemd-run --unit=%s {options} /bin/false", unit)
    try:
        yield
    finally:
        host.check_output("systemctl stop %s; systemctl reset-failed %s 2>/dev/null || true", unit, unit)


@contextmanager
def stray(host: Host, directory: str) -> Iterator[None]:
    path = f"{directory}/gone-0.{uuid.uuid4().hex}-stray"
    host.check_output("runuser -u pylog -- mkdir %s", path)
    try:
        yield
    finally:
        host.check_output("rmdir %s", path)


def refuse_a_record(bootstrap: str, topic: str) -> None:
    """Produce what the topic is too small for."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 10_000})
    errors: list[object] = []
    producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(15)
    assert errors[0] is not None, "the record was taken"


def test_each_alert_is_raised_on_live_hosts(
    runner: AnsibleRunner, variables: Variables, prometheus: Prometheus
) -> None:
    """Everything that one can make go wrong without harm goes wrong at once; then all is put right again."""
    [balancer] = runner.get_hosts("pylog_load_balancer")
    live = [
        name
        for name in runner.get_hosts("pylog_broker")
        if datacenter_of(variables(name)) == datacenter_of(variables(balancer))
    ]
    kept, away = live[0], live[-1]
    assert kept != away
    [instance] = variables(away)["pylog_broker_instances"]
    [keeper] = variables(kept)["pylog_broker_instances"]
    bootstrap = f"{variables(kept).get('pylog_address', kept)}:{keeper['port']}"
    admin, topic = AdminClient({"bootstrap.servers": bootstrap}), f"alerts-{uuid.uuid4().hex[:8]}"
    strict = f"{topic}-strict"
    made = admin.create_topics(
        [
            NewTopic(topic, 3, len(live), config={"max.message.bytes": "1000"}),
            NewTopic(strict, len(live), len(live), config={"min.insync.replicas": str(len(live))}),
        ]
    )
    for done in made.values():
        done.result(30)

    wanted = {
        ("PylogBrokerDown", away),
        ("PylogHostDown", away),
        ("PylogLoadBalancerDown", balancer),
        ("PylogPartitionsUnderReplicated", kept),
        ("PylogWritesRefused", kept),
        ("PylogDiskFilling", kept),
        ("PylogDiskFull", kept),
        ("PylogStrayDirectories", kept),
        ("PylogRetentionLate", kept),
        ("PylogRetentionFailed", kept),
        ("PylogProduceRefused", kept),
        ("PylogUnitFailed", kept),
        ("PylogUnitRestarts", kept),
        ("PylogAlertsWork", ""),
    }
    parts = ("Mirror", "Registry", "Audit", "Probe")
    others = {f"Pylog{part}Down": f"pylog_{part.lower()}" for part in parts}
    firsts = {alert: runner.get_hosts(group)[0] for alert, group in others.items()}
    wanted |= {*firsts.items()}
    assert {name for name, _ in wanted} | RAISED_APART == {rule["alert"] for rule in rules()} - NOT_RAISED.keys()
    here, there = runner.get_host(kept), runner.get_host(away)
    with ExitStack() as wrong:
        wrong.enter_context(stopped(there, f"pylog-broker@{instance['id']}"))
        wrong.enter_context(stopped(there, "pylog-node-exporter"))
        wrong.enter_context(stopped(runner.get_host(balancer), BALANCER))
        for alert, name in firsts.items():
            wrong.enter_context(stopped(runner.get_host(name), others[alert].replace("_", "-")))
        wrong.enter_context(stray(here, keeper["data_dir"]))
        wrong.enter_context(late_retention(here))
        wrong.enter_context(transient(here, "pylog-fails"))
        wrong.enter_context(
            transient(here, "pylog-restarts", "Restart=always", "RestartSec=1", "StartLimitIntervalSec=0")
        )
        wrong.enter_context(full_disk(here, keeper["data_dir"]))
        deadline_s, raised = time.monotonic() + DEADLINE_S, set[tuple[str, str]]()
        while missing := wanted - raised:
            assert time.monotonic() < deadline_s, f"not raised: {missing}"
            if ("PylogProduceRefused", kept) in missing:
                try:
                    refuse_a_record(bootstrap, topic)
                except KafkaException:
                    time.sleep(1)
            raised |= prometheus.raised()
            time.sleep(1)
    for done in admin.delete_topics([topic, strict]).values():
        done.result(30)
    deadline_s = time.monotonic() + DEADLINE_S
    while not ask_broker(there, instance["id"], "/ready")["ready"]:
        assert time.monotonic() < deadline_s, "the broker did not get ready again"
        time.sleep(0.5)


def test_a_zookeeper_server_that_is_away_is_told_by_the_probe_and_named(
    runner: AnsibleRunner, variables: Variables, prometheus: Prometheus
) -> None:
    [probe, *_] = members(runner, "pylog_probe")
    ensemble = [
        name
        for name in runner.get_hosts("pylog_zookeeper")
        if datacenter_of(variables(name)) == datacenter_of(variables(probe))
    ]
    assert len(ensemble) >= 3, "brokers must go on without it"
    with stopped(runner.get_host(ensemble[-1]), "pylog-zookeeper"):
        deadline_s = time.monotonic() + DEADLINE_S
        while ("PylogZooKeeperServerDown", ensemble[-1]) not in prometheus.raised():
            assert time.monotonic() < deadline_s, "not raised"
            time.sleep(1)


@pytest.mark.readonly
def test_a_grafana_finds_the_dashboards_and_their_source(
    runner: AnsibleRunner, variables: Variables, prometheus: Prometheus
) -> None:
    server = prometheus.host
    provisioning = "/etc/pylog-monitoring/grafana"
    [provider] = yaml.safe_load(server.file(f"{provisioning}/dashboards/pylog.yml").content_string)["providers"]
    titles = {
        json.loads(server.file(f"{provider['options']['path']}/{name}").content_string)["title"]
        for name in server.file(provider["options"]["path"]).listdir()
    }
    assert "pylog broker" in titles
    [source] = yaml.safe_load(server.file(f"{provisioning}/datasources/pylog.yml").content_string)["datasources"]
    mine = variables(members(runner, "pylog_monitoring")[0])
    listens = str(setting(mine, "monitoring", "monitoring_listen")).replace("0.0.0.0:", "127.0.0.1:")
    assert source["url"] == f"http://{mine.get('monitoring_grafana_source') or listens}"
    assert provider["type"] == "file"
    assert source["type"] == "prometheus"

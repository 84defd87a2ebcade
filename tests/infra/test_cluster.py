"""The cluster as its users meet it, from the machine that runs the tests and from its hosts."""

import json
import re
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from testinfra.host import Host
from testinfra.utils.ansible_runner import AnsibleRunner

from pylog.ops.host import NOT_WELL
from pylog.ops.status import HOST_PROGRAM
from tests.infra.conftest import ask_broker, datacenter_of, places, pylog, setting, want_group

Variables = Callable[[str], dict[str, Any]]

DEADLINE_S = 60.0


@pytest.fixture
def datacenter(mine: dict[str, Any]) -> str:
    return datacenter_of(mine)


@pytest.fixture
def bootstrap(runner: AnsibleRunner, variables: Variables, datacenter: str) -> str:
    """All brokers of the host's datacenter, as an application outside reaches them."""
    return places(runner, variables, datacenter)


@pytest.fixture
def topic(bootstrap: str, name: str) -> str:
    """A topic of this test's own, led by all brokers."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = f"infra-{name}-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, 6)], operation_timeout=20)[topic].result(30)
    return topic


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 30_000})
    failures: list[object] = []
    for number in range(count):
        producer.produce(
            topic,
            str(number),
            partition=number % 6,
            on_delivery=lambda error, message: failures.append(error) if error else None,
        )
    assert producer.flush(40) == 0
    assert not failures


def consume(bootstrap: str, topic: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "infra", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(6)])
    found: list[int] = []
    deadline_s = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline_s:
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            found.append(int(message.value() or -1))
    consumer.close()
    return sorted(found)


def mode_of(host: Host, mine: dict[str, Any], size: int) -> str:
    """Return what the ZooKeeper server of *host* is in its ensemble of *size*, empty if silent."""
    about = {
        "id": mine["zookeeper_id"], "port": setting(mine, "zookeeper", "zookeeper_client_port"), "members": size,
        "started_file": "/run/pylog-zookeeper/started", "wait_s": DEADLINE_S,
    }  # fmt: skip
    done = host.run("python3 -c %s zookeeper %s", HOST_PROGRAM, json.dumps(about))
    assert done.rc in (0, NOT_WELL), done.stderr
    return str(json.loads(done.stdout)["mode"])


@pytest.mark.readonly
def test_the_ensemble_has_one_leader_and_the_rest_follow(
    runner: AnsibleRunner, variables: Variables, datacenter: str
) -> None:
    members = [name for name in runner.get_hosts("pylog_zookeeper") if datacenter_of(variables(name)) == datacenter]
    if not members:
        pytest.skip(f"no ZooKeeper server in {datacenter}")
    modes = [mode_of(runner.get_host(name), variables(name), len(members)) for name in members]
    if len(modes) == 1:
        assert modes == ["standalone"]
    else:
        assert sorted(modes) == ["follower"] * (len(modes) - 1) + ["leader"]


@pytest.mark.readonly
def test_every_broker_of_the_datacenter_is_registered(
    host: Host,
    instances: list[dict[str, Any]],
    runner: AnsibleRunner,
    variables: Variables,
    bootstrap: str,
    datacenter: str,
) -> None:
    wanted = {
        one["id"]
        for name in runner.get_hosts("pylog_broker")
        if datacenter_of(variables(name)) == datacenter
        for one in variables(name)["pylog_broker_instances"]
    }
    # Asked on the host: the machine that runs the tests may reach it by SSH alone.
    found = pylog(host, "cluster", "info", "--bootstrap", bootstrap, "--format", "json")
    assert {broker["id"] for broker in found["brokers"]} == wanted


@pytest.mark.readonly
def test_cluster_health_says_healthy(host: Host, instances: list[dict[str, Any]], bootstrap: str) -> None:
    result = host.run("PYTHONDONTWRITEBYTECODE=1 /opt/pylog/current/bin/pylog cluster health --bootstrap %s", bootstrap)
    assert result.rc == 0, result.stdout + result.stderr


def test_records_go_in_and_come_out(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, 600)
    assert consume(bootstrap, topic, 600) == list(range(600))


def test_a_broker_restart_keeps_its_data(
    host: Host, instances: list[dict[str, Any]], bootstrap: str, topic: str
) -> None:
    produce(bootstrap, topic, 300)
    for instance in instances:
        assert host.run("systemctl restart pylog-broker@%s", str(instance["id"])).rc == 0
        deadline_s = time.monotonic() + DEADLINE_S
        while not ask_broker(host, instance["id"], "/ready")["ready"]:
            assert time.monotonic() < deadline_s, "not ready again"
            time.sleep(0.5)
    assert consume(bootstrap, topic, 300) == list(range(300))


def test_a_backup_as_cron_makes_it_is_whole(host: Host, instances: list[dict[str, Any]]) -> None:
    line = host.file("/etc/cron.d/pylog-backup").content_string.splitlines()[-1]
    command = line.split(" pylog ", 1)[1].split(" 2>&1")[0]
    done = host.run(f"runuser -u pylog -- {command}")
    assert done.rc == 0, done.stderr
    [path] = re.findall(r"written to (\S+)", done.stderr)
    made = json.loads(host.file(path).content_string)
    assert {"cluster_id", "sha256", "nodes"} <= {*made}
    assert (
        "pylog_backup_last_success_timestamp_seconds" in host.file("/var/lib/pylog/metrics/backup.prom").content_string
    )


def test_retention_by_hand_answers_and_writes_its_metrics(host: Host, instances: list[dict[str, Any]]) -> None:
    entry = host.file("/etc/cron.d/pylog-retention").content_string
    [metrics_file] = {word for line in entry.splitlines() for word in line.split() if word.endswith(".prom")}
    command = f"runuser -u pylog -- /opt/pylog/current/bin/pylog retention --all --metrics-file {metrics_file}"
    result = host.run(command)
    assert result.rc == 0, result.stdout + result.stderr
    assert "pylog_retention" in host.file(metrics_file).content_string


def test_a_line_in_the_journal_reaches_the_log(
    host: Host, name: str, runner: AnsibleRunner, variables: Variables
) -> None:
    """Written here, read from the topic that the shipper of this host writes to."""
    want_group(variables(name), "pylog_ship")
    target = variables(name).get("ship_datacenter", datacenter_of(variables(name)))
    addresses = places(runner, variables, target)
    marker = f"infra {uuid.uuid4().hex}"
    assert host.run("logger -t pylog-infra %s", marker).rc == 0
    consumer = Consumer({"bootstrap.servers": addresses, "group.id": "infra", "enable.auto.commit": False})
    partitions = consumer.list_topics("host.journal", timeout=20).topics["host.journal"].partitions
    consumer.assign([TopicPartition("host.journal", number, 0) for number in partitions])
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        for message in consumer.consume(500, 0.5):
            if message.error() is None and marker.encode() in (message.value() or b""):
                assert message.key() == name.encode()
                consumer.close()
                return
    raise AssertionError(f"{marker} did not come within {DEADLINE_S} s")

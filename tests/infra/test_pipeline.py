"""Between the datacenters: registry, mirror and audit run with what is installed, and do their work."""

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from testinfra.host import Host
from testinfra.utils.ansible_runner import AnsibleRunner

DEADLINE_S = 60
Variables = Callable[[str], dict[str, Any]]


def hosts(runner: AnsibleRunner, group: str) -> list[Host]:
    """Return the hosts of a group; one without hosts would test nothing."""
    found = [runner.get_host(name) for name in runner.get_hosts(group)]
    assert found, f"the inventory names no host in {group}"
    return found


@pytest.mark.readonly
@pytest.mark.parametrize("part", ["mirror", "registry", "audit"])
def test_it_runs_with_the_files_that_are_installed(runner: AnsibleRunner, part: str) -> None:
    for host in hosts(runner, f"pylog_{part}"):
        unit = f"pylog-{part}"
        assert host.service(unit).is_running, host.run("journalctl -u %s -n 30 --no-pager", unit).stdout
        assert host.service(unit).is_enabled
        done = host.run("sha256sum --check --quiet /run/pylog-%s/started", part)
        assert (done.rc, done.stdout) == (0, "")


@pytest.mark.readonly
def test_the_tiers_are_compared_again_and_again(runner: AnsibleRunner, variables: Variables) -> None:
    comparing = [one for one in runner.get_hosts("pylog_audit") if variables(one).get("audit_ledgers")]
    assert comparing, "nobody compares"
    for name in runner.get_hosts("pylog_audit"):
        host = runner.get_host(name)
        assert host.file("/etc/systemd/system/pylog-audit-report.timer").exists == (name in comparing)
        if name in comparing:
            timer = host.service("pylog-audit-report.timer")
            assert (timer.is_running, timer.is_enabled) == (True, True)


@pytest.mark.readonly
def test_the_registry_answers(runner: AnsibleRunner) -> None:
    ask = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8081/config').read().decode())"
    for host in hosts(runner, "pylog_registry"):
        assert json.loads(host.check_output("python3 -c %s", ask))["compatibilityLevel"] == "BACKWARD"


def test_a_line_in_the_live_journal_reaches_the_offline_datacenter(runner: AnsibleRunner, variables: Variables) -> None:
    [writer, *_] = runner.get_hosts("live")
    marker = f"infra {uuid.uuid4().hex}"
    assert runner.get_host(writer).run("logger -t pylog-infra %s", marker).rc == 0
    brokers = ",".join(
        f"{variables(name)['ansible_host']}:{instance['port']}"
        for name in runner.get_hosts("pylog_broker")
        if variables(name)["pylog_datacenter"] == "offline"
        for instance in variables(name)["pylog_broker_instances"]
    )
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "infra", "enable.auto.commit": False})
    partitions = consumer.list_topics("host.journal", timeout=20).topics["host.journal"].partitions
    consumer.assign([TopicPartition("host.journal", number, 0) for number in partitions])
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        for message in consumer.consume(500, 0.5):
            if message.error() is None and marker.encode() in (message.value() or b""):
                assert ("pylog.origin", b"live") in (message.headers() or [])
                consumer.close()
                return
    raise AssertionError(f"{marker} did not come within {DEADLINE_S} s")

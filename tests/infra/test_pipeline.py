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

from tests.infra.conftest import datacenter_of, members, places, setting

DEADLINE_S = 60
Variables = Callable[[str], dict[str, Any]]


def hosts(runner: AnsibleRunner, group: str) -> list[Host]:
    """Return the hosts of a group; one without hosts is skipped."""
    return [runner.get_host(name) for name in members(runner, group)]


@pytest.mark.readonly
@pytest.mark.parametrize("part", ["mirror", "registry", "audit", "probe"])
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
    if not comparing:
        pytest.skip("nobody compares")
    for name in runner.get_hosts("pylog_audit"):
        host = runner.get_host(name)
        assert host.file("/etc/systemd/system/pylog-audit-report.timer").exists == (name in comparing)
        if name in comparing:
            timer = host.service("pylog-audit-report.timer")
            assert (timer.is_running, timer.is_enabled) == (True, True)


@pytest.mark.readonly
def test_the_registry_answers(runner: AnsibleRunner, variables: Variables) -> None:
    for name in members(runner, "pylog_registry"):
        # Whoever may change it over the API has; that it answers with a level is all that holds everywhere.
        assert registry(runner, variables, name, "/config")["compatibilityLevel"]


def test_schemas_of_the_live_datacenter_come_to_the_offline_one_with_their_ids(
    runner: AnsibleRunner, variables: Variables
) -> None:
    """Every registry that follows another; the suite as a probe registers nothing."""
    follows = [one for one in members(runner, "pylog_registry") if variables(one).get("registry_source")]
    if not follows:
        pytest.skip("no registry follows another")
    subject = f"infra-{uuid.uuid4().hex}"
    for name in follows:
        sources = members(runner, "pylog_registry")
        [source, *_] = [one for one in sources if datacenter_of(variables(one)) == variables(name)["registry_source"]]
        registered = registry(runner, variables, source, f"/subjects/{subject}/versions", {"schema": '"string"'})
        path = f"/subjects/{subject}/versions/1"
        deadline_s = time.monotonic() + DEADLINE_S
        while (found := registry(runner, variables, name, path)).get("id") is None:
            assert time.monotonic() < deadline_s, f"{subject} did not come to {name} within {DEADLINE_S} s"
            time.sleep(1)
        assert (found["id"], found["schema"]) == (registered["id"], '"string"')
        # Under a new name: a schema that does not fit its subject is refused for that, wherever it is sent.
        refused = registry(runner, variables, name, f"/subjects/{subject}-new/versions", {"schema": '"long"'})
        assert refused["error_code"] == 42205, "while it follows, clients change nothing in it"


def registry(
    runner: AnsibleRunner, variables: Variables, name: str, path: str, body: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return what the registry of a host answers, asked on that host: with *body* a POST, else a GET."""
    port = setting(variables(name), "registry", "registry_port")
    listens = setting(variables(name), "registry", "registry_listen_host")
    is_secured = variables(name).get("pylog_security") == "sasl_ssl"
    scheme = "https" if is_secured else "http"
    url = f"{scheme}://{'127.0.0.1' if listens == '0.0.0.0' else listens}:{port}{path}"
    data = None if body is None else json.dumps(body).encode()
    script = _ASK.format(url=url, data=data, is_secured=is_secured)
    answer = runner.get_host(name).check_output("/opt/pylog/current/bin/python -c %s", script)
    found: dict[str, Any] = json.loads(answer)
    return found


_ASK = """
import base64, ssl, urllib.error, urllib.request
import yaml
headers, context = {{"Content-Type": "application/json"}}, None
if {is_secured!r}:
    with open("/etc/pylog/registry.yml") as file:
        own = yaml.safe_load(file)["properties"]
    context = ssl.create_default_context(cafile=own["ssl.ca.location"])
    login = own["sasl.username"] + ":" + own["sasl.password"]
    headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
request = urllib.request.Request({url!r}, {data!r}, headers)
try:
    answer = urllib.request.urlopen(request, timeout=20, context=context)
except urllib.error.HTTPError as error:
    answer = error
print(answer.read().decode())
"""


def test_a_line_in_the_live_journal_reaches_the_offline_datacenter(runner: AnsibleRunner, variables: Variables) -> None:
    [writer, *_] = runner.get_hosts("live")
    marker = f"infra {uuid.uuid4().hex}"
    assert runner.get_host(writer).run("logger -t pylog-infra %s", marker).rc == 0
    brokers = places(runner, variables, "offline")
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

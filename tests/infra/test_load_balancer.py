"""The one address that clients start from, while brokers are down or hang."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from testinfra.host import Host
from testinfra.utils.ansible_runner import AnsibleRunner

from pylog.ops.addresses import addresses
from tests.infra.conftest import ask_broker, datacenter_of, members

Variables = Callable[[str], dict[str, Any]]
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def balancers(runner: AnsibleRunner) -> list[str]:
    """Return the hosts with a balancer; an inventory without one is skipped."""
    return members(runner, "pylog_load_balancer")


def address(variables: Variables, name: str) -> str:
    return str(addresses({name: variables(name)}, {"load_balancer_port": {"default": 9092}})["load_balancer"][name])


def brokers_a_new_client_hears_of(bootstrap: str) -> set[int]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).brokers)


@contextmanager
def hung(host: Host, broker_id: int) -> Iterator[None]:
    """Stop a broker's process where it stands; the kernel goes on accepting connections for it."""
    unit = f"pylog-broker@{broker_id}"
    host.check_output("systemctl kill --signal=STOP %s", unit)
    try:
        yield
    finally:
        host.check_output("systemctl kill --signal=CONT %s", unit)


@contextmanager
def down(host: Host, broker_id: int) -> Iterator[None]:
    unit = f"pylog-broker@{broker_id}"
    host.check_output("systemctl stop %s", unit)
    try:
        yield
    finally:
        host.check_output("systemctl start %s", unit)


def wait_ready(host: Host, broker_id: int) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not ask_broker(host, broker_id, "/ready")["ready"]:
        assert time.monotonic() < deadline_s, f"broker {broker_id} did not get ready again"
        time.sleep(0.5)


@pytest.mark.readonly
def test_haproxy_runs_with_its_own_configuration(runner: AnsibleRunner, balancers: list[str]) -> None:
    for name in balancers:
        host = runner.get_host(name)
        service = host.service("pylog-load-balancer")
        assert (service.is_running, service.is_enabled) == (True, True)
        assert host.run("sha256sum --check --quiet /run/pylog-load-balancer/started").rc == 0
        assert not host.service("haproxy").is_running


@pytest.mark.readonly
def test_shippers_know_the_balancer_only(runner: AnsibleRunner, variables: Variables, balancers: list[str]) -> None:
    for name in runner.get_hosts("pylog_ship"):
        target = variables(name).get("ship_datacenter", datacenter_of(variables(name)))
        known = {address(variables, one) for one in balancers if datacenter_of(variables(one)) == target}
        if not known:
            continue  # all its brokers instead
        words = runner.get_host(name).file("/etc/systemd/system/pylog-ship.service").content_string.split()
        assert set(words[words.index("--bootstrap") + 1].split(",")) <= known


def test_a_new_client_starts_while_two_of_three_brokers_are_away(
    runner: AnsibleRunner, variables: Variables, balancers: list[str]
) -> None:
    """One is stopped and one hangs; the third answers for all, and afterwards every broker is well again."""
    for name in balancers:
        datacenter = variables(name)["pylog_datacenter"]
        brokers = [
            (runner.get_host(one), instance["id"])
            for one in runner.get_hosts("pylog_broker")
            if variables(one)["pylog_datacenter"] == datacenter
            for instance in variables(one)["pylog_broker_instances"]
        ]
        assert len(brokers) >= 3
        bootstrap = address(variables, name)
        everybody = brokers_a_new_client_hears_of(bootstrap)
        assert everybody == {broker_id for _, broker_id in brokers}
        with down(*brokers[1]), hung(*brokers[2]):
            deadline_s = time.monotonic() + DEADLINE_S
            # A start may meet the broker that hangs before the balancer noticed; then each one is a new client again.
            while True:
                try:
                    heard = brokers_a_new_client_hears_of(bootstrap)
                    break
                except KafkaException:
                    assert time.monotonic() < deadline_s, "no new client could start"
            assert brokers[0][1] in heard
        for broker in brokers:
            wait_ready(*broker)

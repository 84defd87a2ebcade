"""Which ports a host's parts listen on, who can reach them, and the rules of the packet filter that follow."""

import ipaddress
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pylog.ops.firewall import rules, rules_of
from pylog.ops.listeners import DEFAULT_TRUSTED, Listener, listeners, networks, outside
from pylog.ops.preflight import load_specs

ROOT = Path(__file__).resolve().parents[3]
SPECS = load_specs(ROOT / "roles")
TRUSTED = networks({})


def found(groups: list[str], is_watched: bool = False, **variables: Any) -> list[tuple[str, str, int]]:
    return [(one.what, one.address, one.port) for one in listeners(variables, groups, SPECS, is_watched=is_watched)]


def test_each_part_has_its_ports_and_others_do_not() -> None:
    assert found(["pylog_ship"]) == []
    assert found(["pylog_zookeeper"]) == [
        ("ZooKeeper for clients", "0.0.0.0", 2181),
        ("ZooKeeper for followers", "0.0.0.0", 2888),
        ("ZooKeeper for votes", "0.0.0.0", 3888),
    ]
    assert found(["pylog_registry"], registry_port="8082") == [("the registry", "0.0.0.0", 8082)]
    assert found(["pylog_connect"]) == [("Kafka Connect's REST API", "127.0.0.1", 8083)]
    assert found(["pylog_connect"], pylog_security="sasl_ssl") == [("Kafka Connect's REST API", "0.0.0.0", 8083)]
    assert found(["pylog_spark_master"]) == [
        ("Spark's master", "0.0.0.0", 7077),
        ("the page of Spark's master", "0.0.0.0", 8080),
    ]


def test_metrics_are_for_others_only_where_somebody_scrapes_them() -> None:
    instance = {"id": 1, "port": 9092, "internal_port": 9192, "metrics_port": 9400}
    for is_watched, address in ((False, "127.0.0.1"), (True, "0.0.0.0")):
        assert ("broker 1 metrics_port", address, 9400) in found(
            ["pylog_broker"], is_watched, pylog_broker_instances=[instance]
        )
        assert ("metrics of the mirror", address, 9181) in found(["pylog_mirror"], is_watched)
    assert ("the node exporter", "0.0.0.0", 9100) in found(["pylog_ship"], is_watched=True)


def test_a_host_and_port_in_one_variable_are_taken_apart() -> None:
    assert ("Prometheus", "192.0.2.1", 9091) in found(["pylog_monitoring"], monitoring_listen="192.0.2.1:9091")
    assert ("Prometheus", "::1", 9090) in found(["pylog_monitoring"], monitoring_listen="[::1]:9090")


def test_what_is_no_port_is_left_to_other_checks() -> None:
    instances = [{"id": 1, "port": "x"}, {"id": 2, "port": 70_000}, {"id": 3, "port": True}, "nothing"]
    assert found([], pylog_broker_instances=instances) == []


@pytest.mark.parametrize(
    ("address", "addresses", "reached"),
    [
        ("0.0.0.0", ["10.1.2.3"], []),
        ("0.0.0.0", ["10.1.2.3", "203.0.113.7"], ["203.0.113.7"]),
        ("::", ["2001:db8::1"], ["2001:db8::1"]),
        ("127.0.0.1", ["203.0.113.7"], []),
        ("10.1.2.3", ["10.1.2.3", "203.0.113.7"], []),
        ("203.0.113.7", ["10.1.2.3"], ["203.0.113.7"]),
        ("a-name", ["203.0.113.7"], []),
    ],
)
def test_only_addresses_outside_the_trusted_networks_are_named(
    address: str, addresses: list[str], reached: list[str]
) -> None:
    assert [str(one) for one in outside(Listener("x", address, 1), addresses, TRUSTED)] == reached


def test_the_role_trusts_what_preflight_trusts() -> None:
    assert SPECS["pylog_trusted_networks"]["default"] == list(DEFAULT_TRUSTED)


def test_the_filter_opens_ssh_to_all_and_pylog_to_the_trusted() -> None:
    listening = [Listener("a", "0.0.0.0", 9092), Listener("b", "127.0.0.1", 9400), Listener("c", "::", 2181)]
    trusted = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fc00::/7")]
    text = rules(listening, trusted, ssh_ports=[2222], open_ports=[443], peers=["10.0.0.9"])
    assert "policy drop" in text
    assert "tcp dport { 443, 2222 } accept" in text
    assert "ip saddr { 10.0.0.0/8 } tcp dport { 2181, 9092 } accept" in text
    assert "ip6 saddr { fc00::/7 } tcp dport { 2181, 9092 } accept" in text
    assert "ip saddr 10.0.0.9 accept" in text
    assert "9400" not in text


def test_no_filter_is_made_that_locks_ssh_out() -> None:
    with pytest.raises(AssertionError, match="locked"):
        rules([], TRUSTED, ssh_ports=[])


def test_f24_votes_are_for_the_ensemble_alone_and_udp_ports_can_be_opened() -> None:
    found = [Listener("clients", "0.0.0.0", 2181), Listener("votes", "0.0.0.0", 3888)]
    text = rules(
        found, networks({}), ssh_ports=[22], open_udp_ports=[123], members={3888: ["10.0.0.3", "10.0.0.2", "10.0.0.2"]}
    )
    assert "ip saddr 10.0.0.2 tcp dport 3888 accept\n    ip saddr 10.0.0.3 tcp dport 3888 accept" in text
    assert "tcp dport { 2181 } accept" in text
    assert "udp dport { 68, 123, 546 } accept" in text
    assert "3888" in rules(found, networks({}), ssh_ports=[22], members={3888: []}), "unknown members lock nobody out"


def test_the_kernel_takes_the_rules_that_the_program_makes(tmp_path: Path) -> None:
    question = {
        "variables": {"pylog_broker_instances": [{"id": 1, "port": 9092, "internal_port": 9192}]},
        "groups": ["pylog_broker", "pylog_spark"],
        "is_watched": True,
        "ssh_ports": [22],
        "open_ports": [],
        "open_udp_ports": [123],
        "members": {"9192": ["10.0.0.8", "fd00::8"]},
        "peers": ["10.0.0.9", "fd00::9"],
    }
    path = tmp_path / "rules.nft"
    path.write_text(rules_of(question, ROOT / "roles"))
    # In a network namespace of its own, where they harm nobody; twice, as a second load replaces the first.
    script = f"nft -f {path} && nft -f {path} && nft list table inet pylog"
    loaded = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.count("chain input") == 1

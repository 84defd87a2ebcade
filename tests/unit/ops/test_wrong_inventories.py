"""Wrong inventories, as an operator would get them wrong, each with the line of the table that stops the run."""

import hashlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pylog.ops.preflight import GROUPS, UNREADABLE, host_of, jars, judge, load_specs, notes, table
from tests.unit.ops.test_certificates import CA, CA_KEY, NOW, authority

ROOT = Path(__file__).resolve().parents[3]
NOW_MS = int(NOW.timestamp() * 1000)
Question = dict[str, Any]
HOSTS = ("h1", "h2", "h3")


def reading(number: int) -> dict[str, Any]:
    """Return what a good host says of itself."""
    return {
        "os": {"id": "debian", "version": "12", "arch": "x86_64"},
        "init": "systemd",
        "memory_bytes": 8 << 30,
        "listeners": [],
        "resolved": {},
        "clock_ms": 1_000_000_000,
        "python": [3, 11],
        "free_bytes": {"/": 8 << 30},
        "addresses": [f"10.0.0.{number}"],
        "disks": {"/dev/vdb": {"exists": True, "type": "", "label": "", "mounts": []}},
    }


def good() -> Question:
    """Return three hosts with a broker and a ZooKeeper server each."""
    hosts = {
        f"h{n}": {
            "ansible_host": f"10.0.0.{n}",
            "pylog_cluster_name": "test",
            "pylog_cluster_secret": "s" * 32,
            "zookeeper_id": n,
            "disks_devices": [{"device": "/dev/vdb", "mount": "/d"}],
            "pylog_broker_instances": [
                {"id": n, "port": 9092, "internal_port": 9192, "metrics_port": 9400, "data_dir": f"/d/broker-{n}"}
            ],
            "__preflight_reading": {"answer": reading(n)},
        }
        for n in (1, 2, 3)
    }
    names = list(hosts)
    return {"groups": {"all": names, "pylog_zookeeper": names, "pylog_broker": names}, "hosts": hosts}


def judged(question: Question) -> list[str]:
    """Return the lines of the table, below its head."""
    return table(judge(question, ROOT / "roles"))[1:]


def set_(name: str, value: Any, host: str = "h2") -> Callable[[Question], None]:
    def change(question: Question) -> None:
        question["hosts"][host][name] = value

    return change


def unset(name: str) -> Callable[[Question], None]:
    return lambda question: question["hosts"]["h2"].pop(name)


def instance(name: str, value: Any) -> Callable[[Question], None]:
    def change(question: Question) -> None:
        question["hosts"]["h2"]["pylog_broker_instances"][0][name] = value

    return change


def says(name: str, value: Any) -> Callable[[Question], None]:
    def change(question: Question) -> None:
        question["hosts"]["h2"]["__preflight_reading"]["answer"][name] = value

    return change


def group(name: str, members: list[str]) -> Callable[[Question], None]:
    def change(question: Question) -> None:
        question["groups"][name] = members

    return change


def ensemble(*ids: int) -> Callable[[Question], None]:
    """Have every server run as one of the servers *ids*, with data."""

    def change(question: Question) -> None:
        for host in question["hosts"].values():
            answer = host["__preflight_reading"]["answer"]
            answer.update(ensemble=list(ids), files={"/var/lib/pylog-zookeeper/version-2": "directory"})

    return change


def both(*changes: Callable[[Question], Any]) -> Callable[[Question], None]:
    def change(question: Question) -> None:
        for one in changes:
            one(question)

    return change


def with_sites(then: Callable[[Question], Any]) -> Callable[[Question], None]:
    return both(group("north", ["h1", "h2", "h3"]), *(set_("pylog_datacenter", "north", h) for h in HOSTS), then)


PASSWORDS = {"pylog-admin": "p" * 24, "pylog-probe": "p" * 16}


def secured(*changes: Callable[[Question], Any]) -> Callable[[Question], None]:
    """Secure the hosts, with an authority of ten years from NOW_MS on; then make *changes*."""

    def change(question: Question) -> None:
        question["now_ms"] = NOW_MS
        for host in question["hosts"].values():
            host.update(
                pylog_security="sasl_ssl",
                certificates_ca=CA,
                certificates_ca_key=CA_KEY,
                users_passwords=PASSWORDS,
                backup_keys=["k" * 64],
            )
        both(*changes)(question)

    return change


def everywhere(name: str, value: Any) -> Callable[[Question], None]:
    return both(*(set_(name, value, host) for host in HOSTS))


def without_metrics(question: Question) -> None:
    del question["hosts"]["h2"]["pylog_broker_instances"][0]["metrics_port"]


# what is wrong, and the columns of its line: host, check, found, wanted
WRONG: list[tuple[Callable[[Question], Any], tuple[str, str, str, str]]] = [
    (unset("zookeeper_id"), ("h2", "variable zookeeper_id", "not set", "set on hosts of pylog_zookeeper")),
    (unset("pylog_broker_instances"), ("h2", "variable pylog_broker_instances", "not set", "set on hosts of")),
    (unset("pylog_cluster_name"), ("h2", "variable pylog_cluster_name", "not set", "set on hosts of all")),
    (unset("pylog_cluster_secret"), ("h2", "variable pylog_cluster_secret", "not set", "set on hosts of pylog_broker")),
    (set_("zookeeper_id", 3), ("all", "zookeeper_id", "3 on h2, h3", "unique in the cluster")),
    (set_("zookeeper_id", "two"), ("h2", "variable zookeeper_id", "'two'", "int")),
    (instance("id", 1), ("all", "broker id", "1 on h1, h2", "unique in the cluster")),
    (instance("id", -1), ("h2", "variable pylog_broker_instances[0].id", "-1", "0 to 2147483647")),
    (instance("port", 0), ("h2", "variable pylog_broker_instances[0].port", "0", "1 to 65535")),
    (instance("port", "http"), ("h2", "variable pylog_broker_instances[0].port", "'http'", "int")),
    (instance("prot", 9092), ("h2", "variable pylog_broker_instances[0].prot", "set", "one of id, port")),
    (instance("internal_port", 9092),
     ("h2", "port", "9092 for broker 2 internal_port, broker 2 port", "unique on the")),
    (instance("port", 2181), ("h2", "port", "2181 for ZooKeeper for clients, broker 2 port", "unique on the host")),
    (instance("data_dir", "/var/broker-2"), ("h2", "data_dir of broker 2", "/var/broker-2", "below /d")),
    (set_("ship_topics", []), ("h2", "unknown variable", "ship_topics", "ship_topic?")),
    (set_("broker_confg", {}), ("h2", "unknown variable", "broker_confg", "broker_config?")),
    (set_("pylog_trusted_network", []), ("h2", "unknown variable", "pylog_trusted_network", "pylog_trusted_networks?")),
    (set_("broker_config", {"default.replication.factor": 4}),
     ("h2", "default.replication.factor", "4", "at most 3, the hosts")),
    (set_("broker_config", {"min.insync.replicas": 4}),
     ("h2", "min.insync.replicas", "4", "at most 3, the default.replication.factor")),
    (set_("broker_config", {"num.partitions": 9}), ("all", "num.partitions", "2 values", "one for the cluster")),
    (set_("pylog_cluster_secret", "t" * 32), ("all", "pylog_cluster_secret", "2 values", "one for the cluster")),
    (lambda question: [set_("pylog_cluster_secret", "guess me", host)(question) for host in HOSTS],
     ("h1", "variable pylog_cluster_secret", "8 characters", "at least 16")),
    (set_("zookeeper_log_level", "loud"),
     ("h2", "variable zookeeper_log_level", "'loud'", "error or warn or info or debug")),
    (set_("retention_schedule", ["hourly"]), ("h2", "variable retention_schedule", "['hourly']", "str")),
    (set_("topics_wanted", [{"partitions": 3}]), ("h2", "variable topics_wanted[0].name", "missing", "str")),
    (set_("topics_wanted", [{"name": "a", "partitions": 0}]),
     ("h2", "variable topics_wanted[0].partitions", "0", "at least 1")),
    (set_("topics_absent", [{"name": "a"}]), ("h2", "variable topics_absent[0]", "{'name': 'a'}", "str")),
    (group("pylog_mirror", ["h2"]), ("h2", "variable mirror_source", "not set", "set on hosts of pylog_mirror")),
    (group("pylog_audit", ["h2"]), ("h2", "variable audit_tier", "not set", "set on hosts of pylog_audit")),
    (set_("firewall_enabled", "yes please"), ("h2", "variable firewall_enabled", "'yes please'", "bool")),
    (set_("pylog_trusted_networks", ["ten"]), ("h2", "variable pylog_trusted_networks", "'ten'", "networks, such as")),
    (set_("broker_listen_host", "203.0.113.7"),
     ("h2", "broker 2 port, port 9092", "reachable at 203.0.113.7", "only within pylog_trusted_networks")),
    (says("addresses", ["10.0.0.2", "203.0.113.7"]),
     ("h2", "ZooKeeper for clients, port 2181", "reachable at 203.0.113.7", "only within pylog_trusted_networks")),
    (set_("pylog_datacenter", "ofline"), ("h2", "variable pylog_datacenter", "ofline", "a group with hosts")),
    (with_sites(set_("pylog_datacenter", "noth")), ("h2", "variable pylog_datacenter", "noth", "north?")),
    (with_sites(unset("pylog_datacenter")), ("h2", "variable pylog_datacenter", "not set", "north")),
    (with_sites(group("north", ["h1", "h3"])), ("h2", "group north", "not a member", "a member")),
    (set_("mirror_source", "lvie"), ("h2", "variable mirror_source", "lvie", "a group with hosts")),
    (set_("audit_ledgers", ["all", "lvie"]), ("h2", "variable audit_ledgers", "lvie", "a group with hosts")),
    (both(group("pylog_audit", ["h2"]), set_("audit_tier", "miror")),
     ("h2", "variable audit_tier", "'miror'", "live or mirror")),
    (both(group("pylog_audit", ["h2"]), set_("audit_replication_factor", 4)),
     ("h2", "audit_replication_factor", "4", "at most 3, the brokers")),
    (both(group("pylog_registry", ["h2"]), set_("registry_replication_factor", 4)),
     ("h2", "registry_replication_factor", "4", "at most 3, the brokers")),
    (both(group("pylog_mirror", ["h2"]), set_("mirror_internal_replication_factor", 4)),
     ("h2", "mirror_internal_replication_factor", "4", "at most 3, the brokers")),
    (set_("broker_config", {"offsets.topic.replication.factor": 4}),
     ("h2", "broker_config offsets.topic.replication.factor", "4", "at most 3, the brokers")),
    (set_("zookeeper_election_port", 3889), ("all", "zookeeper_election_port", "2 values", "one for the cluster")),
    (both(set_("firewall_enabled", True), says("addresses", ["192.0.2.7"])),
     ("h2", "address", "192.0.2.7", "within pylog_trusted_networks")),
    (group("pylog_monitoring", ["h1"]), ("all", "probe", "no host in pylog_probe", "one")),
    (both(group("pylog_monitoring", ["h1"]), group("pylog_probe", ["h1"]), without_metrics),
     ("h2", "broker 2", "no metrics_port", "a metrics_port")),
    (set_("pylog_cluster_secret", {UNREADABLE: "'vault_cluster_secret' is undefined"}),
     ("h2", "variable pylog_cluster_secret", "'vault_cluster_secret' is undefined", "a value")),
    (both(group("pylog_spark_worker", ["h2"]), says("resolved", {"h2": ["127.0.1.1"]})),
     ("h2", "own name", "h2 is 127.0.1.1", "an address that others reach")),
    (lambda question: question["hosts"].update(localhost={"ansible_become": True}),
     ("localhost", "variable ansible_become", "true", "not set on this machine")),
    (lambda question: question.update(files=["all", "pylog_broker", "pylog_brokers"]),
     ("all", "group_vars/pylog_brokers", "no such group", "pylog_broker?")),
    (group("pylog_zookeeper", ["h1", "h2"]), ("all", "size of the ensemble", "2", "an odd number")),
    (ensemble(1, 2, 4), ("all", "change of the ensemble", "servers 1, 2, 4 become 1, 2, 3", "one server more or less")),
    (both(group("pylog_zookeeper", ["h1"]), ensemble(1, 2, 3)),
     ("all", "change of the ensemble", "servers 1, 2, 3 become 1", "one server more or less at a time")),
    (group("pylog_zookeeper", []), ("all", "group pylog_zookeeper", "no host", "at least one")),
    (group("pylog_brokers", ["h1"]), ("all", "group pylog_brokers", "in the inventory", "pylog_broker?")),
    (says("os", {"id": "debian", "version": "11", "arch": "x86_64"}), ("h2", "distribution", "debian 11", "debian 12")),
    (says("os", {"id": "debian", "version": "12", "arch": "ppc64"}),
     ("h2", "architecture", "ppc64", "x86_64 or aarch64")),
    (both(secured(), set_("pylog_security", "none")),
     ("all", "pylog_security", "none and sasl_ssl", "one for the cluster")),
    (set_("users_wanted", [{"name": "alice"}]), ("all", "variable users_wanted", "users, and no logins", "logins")),
    (secured(says("secured", {"pylog-broker@2.service": False})),
     ("h2", "pylog-broker@2.service", "runs open", "secured, or stopped")),
    (says("secured", {"pylog-broker@2.service": True}),
     ("h2", "pylog-broker@2.service", "runs secured", "open, or stopped")),
    (secured(everywhere("zookeeper_encrypted", True), says("secured", {"pylog-zookeeper.service": False})),
     ("h2", "pylog-zookeeper.service", "runs open", "secured, or stopped")),
    (set_("zookeeper_encrypted", True),
     ("all", "variable zookeeper_encrypted", "true, without pylog_security", "sasl_ssl")),
    (secured(everywhere("backup_keys", [])),
     ("all", "variable backup_keys", "not set: backups of metadata would hold the SCRAM keys of all users in clear",
      "a list of secrets that encrypt them")),
    (secured(set_("pylog_security", "ssl")), ("h2", "variable pylog_security", "'ssl'", "none or sasl_ssl")),
    (secured(everywhere("certificates_ca", "")), ("h2", "variable certificates_ca", "not set", "an authority's")),
    (secured(everywhere("certificates_ca_key", "")),
     ("h2", "certificate of pylog", "none, and no key to sign", "one")),
    (secured(everywhere("certificates_ca_key", "no key")),
     ("all", "authority of the certificates", "certificates_ca_key is no private key in PEM, or it has a passphrase",
      "its private key")),
    (secured(everywhere("certificates_ca", authority(days=59)[0])),
     ("all", "authority of the certificates", "it ends on 2030-03-31", "60 days left")),
    (secured(set_("certificates_given", {"pylog": {"chain": CA, "key": CA_KEY}})),
     ("h2", "certificates_given pylog", "it does not cover 127.0.0.1, h2, localhost", "a certificate that fits")),
    (secured(set_("certificates_given", {"pylog": {"chain": authority()[0], "key": CA_KEY}})),
     ("h2", "certificates_given pylog", "no trusted authority has issued it", "a certificate that fits")),
    (secured(set_("certificates_given", {"pylog": CA})),
     ("h2", "certificates_given pylog", "it lacks chain or key", "a certificate that fits")),
    (secured(lambda question: [host.pop("users_passwords") for host in question["hosts"].values()]),
     ("all", "variable users_passwords", "not set", "passwords of pylog-admin")),
    (secured(everywhere("users_passwords", {"pylog-admin": "guess me"})),
     ("all", "users_passwords pylog-admin", "8 characters", "at least 16")),
    (secured(group("pylog_registry", ["h2"])),
     ("all", "users_passwords pylog-registry", "not set", "at least 16 characters")),
    (both(group("pylog_connect", ["h2"]), set_("connect_config", {"offset.flush.intervall.ms": 1})),
     ("h2", "connect_config offset.flush.intervall.ms", "no setting of the worker", "offset.flush.interval.ms?")),
    (both(group("pylog_connect", ["h2"]), set_("connect_config", {"group.id": "x"})),
     ("h2", "connect_config group.id", "set", "not set: the role writes it")),
    (both(group("pylog_connect", ["h2"]), set_("connect_listen_host", "0.0.0.0")),
     ("h2", "variable connect_listen_host", "0.0.0.0", "127.0.0.1, or pylog_security: sasl_ssl")),
    (group("pylog_connect", ["h1", "h2"]),
     ("all", "group pylog_connect", "h1, h2, without login", "one host, or pylog_security: sasl_ssl")),
    (secured(group("pylog_connect", ["h1", "h2"]), set_("connect_absent", ["old"])),
     ("all", "connect_absent", "several values", "one for all workers")),
    (secured(group("pylog_connect", ["h2"])),
     ("all", "users_passwords pylog-connect", "not set", "at least 16 characters")),
    (both(group("pylog_connect", ["h2"]), set_("connect_connectors", [{"name": "a", "config": {}}])),
     ("h2", "connect_connectors connector a: config", "no connector.class", "the class of the connector")),
    (both(group("pylog_connect", ["h2"]), set_("connect_plugins", {"jdbc": "jdbc.txt"})),
     ("localhost", "plugin jdbc", "jdbc.txt: No such file or directory", "a lock")),
    (both(group("pylog_connect", ["h2"]), set_("connect_jars", "/nowhere")),
     ("localhost", "plugin worker", "at.yawk.lz4:lz4-java:1.10.1 and 58 more not fetched", "its jars here")),
    (both(group("pylog_connect", ["h2"]), set_("connect_plugins", {"worker": "jdbc.txt"})),
     ("h2", "connect_plugins worker", "no name of a plugin", "another name")),
    (both(group("pylog_connect", ["h2"]), set_("connect_replication_factor", 4)),
     ("h2", "connect_replication_factor", "4", "at most 3, the brokers")),
    (both(group("pylog_connect", ["h2"]), set_("connect_heap_mib", 9000)),
     ("h2", "memory", "8192 MiB", "at least 10184 MiB")),
    (both(group("pylog_connect", ["h2"]), set_("connect_heap_mib", "512m")),
     ("h2", "variable connect_heap_mib", "'512m'", "int")),
    (set_("zookeeper_heap_mib", "1g"), ("h2", "variable zookeeper_heap_mib", "'1g'", "int")),
    (says("init", "tini"), ("h2", "init", "tini", "systemd")),
    (says("python", [3, 9]), ("h2", "Python", "3.9", "at least 3.11")),
    (says("free_bytes", {"/": 8 << 30, "/var/lib/pylog-zookeeper": 100 << 20}),
     ("h2", "disk of /var/lib/pylog-zookeeper", "100 MiB free", "at least 512 MiB free")),
    (says("memory_bytes", 256 << 20), ("h2", "memory", "256 MiB", "at least 928 MiB")),
    (says("resolved", {"zk-9": []}), ("h2", "name resolution", "zk-9 unknown", "an address")),
    (says("clock_ms", 1_000_600_000), ("h2", "clock", "+600 s from the others", "within 30 s")),
    (says("listeners", [{"port": 9092, "address": "*", "user": "kafka"}]),
     ("h2", "port 9092", "held by a program of kafka", "free for broker 2 port")),
    (says("disks", {}), ("h2", "disk /dev/vdb", "no such block device", "a block device")),
    (says("disks", {"/dev/vdb": {"exists": True, "type": "ext4", "label": "home", "mounts": ["/home"]}}),
     ("h2", "disk /dev/vdb", "ext4 home, carries /home", "blank, or XFS labelled pylog-")),
    (says("disks", {"/dev/vdb": {"exists": True, "type": "xfs", "label": "pylog-d", "mounts": ["/srv"]}}),
     ("h2", "disk /dev/vdb", "mounted at /srv", "/d")),
]  # fmt: skip


def test_the_good_one_passes() -> None:
    assert judged(good()) == []


@pytest.mark.parametrize(("break_it", "columns"), WRONG, ids=[columns[1] for _, columns in WRONG])
def test_a_wrong_inventory_is_stopped_with_host_variable_found_and_wanted(
    break_it: Callable[[Question], Any], columns: tuple[str, str, str, str]
) -> None:
    question = good()
    break_it(question)
    rows = [re.split(r"\s{2,}", line) for line in judged(question)]
    assert [row for row in rows if tuple(row[:3]) == columns[:3] and row[3].startswith(columns[3])], rows
    assert all(len(row) == 5 for row in rows), "every line ends with what to do"


def test_f19_a_short_secret_that_brokers_run_with_is_told_and_stops_nobody() -> None:
    question = good()
    for name in HOSTS:
        set_("pylog_cluster_secret", "guess me", name)(question)
        question["hosts"][name]["__preflight_reading"]["answer"]["files"] = {"/etc/pylog/cluster.secret": "0600"}
    assert judged(question) == []
    assert [(row.host, row.found) for row in notes(question)] == [(name, "8 characters") for name in HOSTS]
    assert notes(good()) == []


RUNS_SECURED = says("secured", {"pylog-broker@2.service": True, "pylog-zookeeper.service": True})


def test_only_a_secured_cluster_needs_keys_of_backups() -> None:
    question = good()
    assert judged(question) == [], "without logins no password is in them"
    secured(RUNS_SECURED)(question)
    assert judged(question) == []
    everywhere("backup_keys", {UNREADABLE: "vault is shut"})(question)
    assert all("vault is shut" in line for line in judged(question)), "what cannot be read has a row of its own"


WATCHED = group("pylog_monitoring", ["h1"])
INSTALLED = says("files", {"/opt/pylog": "directory", "/etc/pylog/broker-2.yml": "a"})


@pytest.mark.parametrize("change", [INSTALLED, lambda question: question.update(is_repair=True)])
def test_a_missing_probe_does_not_stop_who_mends_a_cluster(change: Callable[[Question], None]) -> None:
    question = good()
    WATCHED(question)
    assert (len(judged(question)), notes(question)) == (1, [])
    change(question)
    assert judged(question) == []
    assert [(found.host, found.check) for found in notes(question)] == [("all", "probe")]


def test_a_full_disk_does_not_stop_who_takes_partitions_from_a_broker() -> None:
    question = good()
    both(says("free_bytes", {"/": 100 << 20}), INSTALLED)(question)
    assert judged(question) == []
    assert [(found.host, found.check) for found in notes(question)] == [("h2", "disk of /")]


def test_the_root_counts_until_packages_are_installed_where_it_carries_nothing_else() -> None:
    question = good()
    says("free_bytes", {"/": 1, "/opt": 8 << 30, "/var/lib": 8 << 30})(question)
    assert ["disk of /" in line for line in judged(question)] == [True]
    says("files", {"/opt/pylog": "directory"})(question)
    assert (judged(question), notes(question)) == ([], [])
    says("free_bytes", {"/": 1, "/opt": 8 << 30})(question)
    assert ["disk of /" in line for line in judged(question)] == [True]


def test_jars_are_looked_at_once_and_one_with_another_checksum_is_named(tmp_path: Path) -> None:
    content = b"not really a jar"
    good_hash = hashlib.sha256(content).hexdigest()
    lock = tmp_path / "worker.txt"
    lock.write_text(f"a:b:1 --sha256={good_hash}\n")
    places = {"connect_jars": "jars", "connect_worker_lock": "worker.txt"}
    hosts = [host_of(name, places) for name in ("h1", "h2")]
    groups = {"pylog_connect": ["h1", "h2"]}
    [missing] = jars(hosts, groups, tmp_path)
    assert (missing.check, missing.found, missing.remedy) == (
        "plugin worker", "a:b:1 not fetched", "make jars LOCKS=worker.txt"
    )  # fmt: skip
    jar = tmp_path / "jars" / f"{good_hash}.jar"
    jar.parent.mkdir()
    jar.write_bytes(content)
    assert list(jars(hosts, groups, tmp_path)) == []
    jar.write_bytes(b"changed")
    [damaged] = jars(hosts, groups, tmp_path)
    assert (damaged.found, damaged.wanted) == ("a:b:1: another checksum", good_hash)
    assert damaged.remedy.startswith(f"remove {jar}")
    lock.write_text("a:b:1\n")
    [wrong] = jars(hosts, groups, tmp_path)
    assert "worker.txt:1: found 'a:b:1'" in wrong.found
    assert list(jars(hosts, {}, tmp_path)) == [], "who has no group needs no jars"


def test_a_repair_is_not_stopped_by_backups_that_are_not_encrypted() -> None:
    question = good()
    both(secured(RUNS_SECURED), everywhere("backup_keys", []))(question)
    assert ["variable backup_keys" in line for line in judged(question)] == [True]
    assert notes(question) == []
    question["is_repair"] = True
    assert judged(question) == []
    assert [found.check for found in notes(question)] == ["variable backup_keys"]


@pytest.mark.parametrize(
    ("listen", "is_refused"),
    [
        ("127.0.0.1:9090", False),
        ("[::1]:9090", False),
        ("localhost:9090", False),
        (None, False),
        ("0.0.0.0:9090", True),
        ("[::]:9090", True),
        ("h2:9090", True),
    ],
)
def test_a_prometheus_of_a_secured_cluster_that_others_reach_is_refused(listen: str | None, is_refused: bool) -> None:
    question = good()
    change = [] if listen is None else [set_("monitoring_listen", listen)]
    both(group("pylog_monitoring", ["h2"]), group("pylog_probe", ["h2"]), *change)(question)
    assert judged(question) == [], "where nobody logs in nothing is promised"
    secured(RUNS_SECURED)(question)
    assert [re.split(r"\s{2,}", line)[1] for line in judged(question)] == ["variable monitoring_listen"] * is_refused


def test_an_alertmanager_is_refused_only_where_there_is_one() -> None:
    question = good()
    given = set_("monitoring_alertmanager_listen", "0.0.0.0:9093")
    secured(RUNS_SECURED, group("pylog_monitoring", ["h2"]), group("pylog_probe", ["h2"]), given)(question)
    assert judged(question) == []
    set_("monitoring_alertmanager", {"route": {}})(question)
    [line] = judged(question)
    assert "variable monitoring_alertmanager_listen" in line


@pytest.mark.parametrize("ids", [(), (1, 2), (1, 2, 3), (1, 2, 3, 4)])
def test_an_ensemble_may_change_by_one_server(ids: tuple[int, ...]) -> None:
    question = good()
    ensemble(*ids)(question)
    assert judged(question) == []


def test_an_ensemble_that_grows_may_have_an_even_number_for_a_while() -> None:
    question = good()
    group("pylog_zookeeper", ["h1", "h2"])(question)
    assert any("size of the ensemble" in line for line in judged(question))
    ensemble(1)(question)
    assert judged(question) == []
    # A run over other hosts alone does not know what the servers run.
    for name in ("h1", "h2"):
        del question["hosts"][name]["__preflight_reading"]
    assert not any("size of the ensemble" in line for line in judged(question))


SUDO = """#!/bin/sh
echo "sudo: 1 incorrect password attempt" >&2
exit 1
"""


def test_hosts_that_cannot_be_read_have_rows_beside_all_others_and_no_host_is_touched(tmp_path: Path) -> None:
    (tmp_path / "sudo").write_text(SUDO)
    (tmp_path / "sudo").chmod(0o755)
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    sudo = {"ansible_become": True, "ansible_become_user": "nobody"}
    hosts = {
        "h1": {"ansible_host": "127.0.0.1", "ansible_port": 1},
        "h2": here,
        "h3": {**here, **sudo, "ansible_become_exe": str(tmp_path / "sudo")},
        "h4": {**here, "ansible_python_interpreter": "/nonexistent/python3"},
    }
    groups = {"pylog_broker": {"hosts": hosts}, "pylog_zookeeper": {"hosts": hosts}}
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"children": groups, "vars": {"pylog_cluster_name": "test"}}}))
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    done = subprocess.run(
        [program, "-i", str(inventory), "playbooks/site.yml"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    rows = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()]
    found = {(row[0], row[1]): row[2] for row in rows if row[1:2] in (["login"], ["reading"])}
    assert found.keys() == {("h1", "login"), ("h3", "reading"), ("h4", "reading")}
    assert "Connection refused" in found["h1", "login"]
    assert "incorrect password" in found["h3", "reading"]
    assert "/nonexistent/python3" in found["h4", "reading"]
    assert {("all", "size of the ensemble"), ("h2", "variable zookeeper_id")} <= {tuple(row[:2]) for row in rows}
    assert "TASK [tuning" not in done.stdout
    assert len(re.findall(r"^h\d +: ok=\d+ +changed=0 ", done.stdout, re.MULTILINE)) == len(hosts)


def test_what_a_role_requires_is_asked_for_before_any_host_is_touched() -> None:
    # `site` has the roles check nothing again.
    required = {name for name, spec in load_specs(ROOT / "roles").items() if spec.get("required")}
    bare = {"ansible_host": "10.0.0.1", "__preflight_reading": {"answer": reading(1)}}
    question: Question = {"groups": {name: ["h1"] for name in ("all", *GROUPS)}, "hosts": {"h1": bare}}
    asked = {re.split(r"\s{2,}", line)[1] for line in judged(question)}
    assert {f"variable {name}" for name in required} <= asked


def test_a_text_in_the_place_of_any_number_is_a_finding() -> None:
    numbers = [name for name, spec in load_specs(ROOT / "roles").items() if spec.get("type") in ("int", "float")]
    question = good()
    question["groups"] |= {one: [*HOSTS] for one in GROUPS}
    for name in numbers:
        everywhere(name, "many")(question)
    rows = [re.split(r"\s{2,}", line)[:3] for line in judged(question)]
    assert [name for name in numbers if ["h2", f"variable {name}", "'many'"] not in rows] == []


def test_the_table_is_as_long_as_was_asked_for() -> None:
    assert len(WRONG) >= 25


def test_every_verb_that_changes_hosts_judges_first() -> None:
    for name in ("site", "rolling_upgrade", "rolling_restart", "expand", "replace_broker", "mirror", "registry"):
        plays = yaml.safe_load((ROOT / "playbooks" / f"{name}.yml").read_text())
        first = next(one for one in plays if one.get("hosts") != "localhost")
        imported = first.get("ansible.builtin.import_playbook", "")
        assert imported in ("preflight.yml", "site.yml"), name
    [judging] = yaml.safe_load((ROOT / "playbooks" / "preflight.yml").read_text())
    assert judging["any_errors_fatal"] is True


def test_a_secured_inventory_that_is_right_has_no_findings() -> None:
    question = good()
    secured(says("secured", {"pylog-broker@2.service": True, "pylog-zookeeper.service": True}))(question)
    assert judged(question) == []


def test_passwords_and_keys_are_in_no_finding() -> None:
    question = good()
    secured(everywhere("users_passwords", {"pylog-admin": "guess me"}), everywhere("certificates_ca_key", "hidden"))(
        question
    )
    lines = "\n".join(judged(question))
    assert "guess me" not in lines
    assert "hidden" not in lines

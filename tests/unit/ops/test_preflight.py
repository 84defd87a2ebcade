"""What preflight finds: a table of wrong inventories and hosts, each with the finding it must give."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pylog.ops.preflight import (
    DEFAULT_FACTOR,
    Finding,
    Host,
    absent,
    check_hosts,
    check_inventory,
    clocks,
    failure_of,
    group_files,
    host_of,
    judge,
    load_specs,
    probed,
    table,
    verdict,
)

ROOT = Path(__file__).resolve().parents[3]
SPECS = load_specs(ROOT / "roles")
ROLES = ["broker", "disks", "zookeeper", "tuning"]
GROUPS = {"all": ["h1", "h2", "h3"], "pylog_zookeeper": ["h1", "h2", "h3"], "pylog_broker": ["h1", "h2", "h3"]}


ONE_COPY = {"default.replication.factor": 1, "min.insync.replicas": 1, "offsets.topic.replication.factor": 1}


def instance(broker_id: int, **changes: Any) -> dict[str, Any]:
    good = {"id": broker_id, "port": 9092, "internal_port": 9192, "data_dir": f"/d/{broker_id}"}
    return good | changes


def variables(number: int, **changes: Any) -> dict[str, Any]:
    good: dict[str, Any] = {
        "pylog_cluster_name": "test",
        "pylog_cluster_secret": "s" * 32,
        "zookeeper_id": number,
        "pylog_broker_instances": [instance(number)],
    }
    return {name: value for name, value in (good | changes).items() if value is not None}


def facts(**changes: Any) -> dict[str, Any]:
    return {
        "os": {"id": "debian", "version": "12", "arch": "x86_64"},
        "init": "systemd",
        "memory_bytes": 8 << 30,
        "listeners": [],
        "disks": {},
        "resolved": {},
        "clock_ms": 1_000_000_000,
        "python": [3, 11],
        "free_bytes": {"/": 8 << 30},
    } | changes


def three_hosts(**changes: Any) -> list[Host]:
    """Return three good hosts, the second with *changes* to its variables."""
    return [Host(name=f"h{n}", variables=variables(n, **(changes if n == 2 else {}))) for n in (1, 2, 3)]


def findings(hosts: list[Host], groups: dict[str, list[str]] | None = None) -> list[Finding]:
    return check_inventory(hosts, GROUPS if groups is None else groups, SPECS, ROLES)


def test_a_good_inventory_has_no_findings() -> None:
    assert findings(three_hosts()) == []


@pytest.mark.parametrize(
    ("changes", "host", "check", "found"),
    [
        ({"pylog_broker_instnces": []}, "h2", "unknown variable", "pylog_broker_instnces"),
        ({"zookeeper_heapmib": 5}, "h2", "unknown variable", "zookeeper_heapmib"),
        ({"zookeeper_id": "two"}, "h2", "variable zookeeper_id", "'two'"),
        ({"zookeeper_id": True}, "h2", "variable zookeeper_id", "True"),
        ({"zookeeper_id": None}, "h2", "variable zookeeper_id", "not set"),
        ({"zookeeper_log_level": "loud"}, "h2", "variable zookeeper_log_level", "'loud'"),
        ({"zookeeper_four_letter_words": "ruok"}, "h2", "variable zookeeper_four_letter_words", "'ruok'"),
        ({"pylog_cluster_name": None}, "h2", "variable pylog_cluster_name", "not set"),
        ({"pylog_cluster_secret": ""}, "h2", "variable pylog_cluster_secret", "not set"),
        ({"pylog_broker_instances": []}, "h2", "variable pylog_broker_instances", "not set"),
        ({"pylog_broker_instances": [instance(2, prot=1)]}, "h2", "variable pylog_broker_instances[0].prot", "set"),
        ({"pylog_broker_instances": [{"id": 2}]}, "h2", "variable pylog_broker_instances[0].port", "missing"),
        ({"pylog_broker_instances": [instance(2, port="x")]}, "h2", "variable pylog_broker_instances[0].port", "'x'"),
        ({"pylog_broker_instances": [instance(1)]}, "all", "broker id", "1 on h1, h2"),
        ({"zookeeper_id": 3}, "all", "zookeeper_id", "3 on h2, h3"),
        (
            {"pylog_broker_instances": [instance(2), instance(4, internal_port=9193)]},
            "h2", "port", "9092 for broker 2 port, broker 4 port",
        ),
        (
            {"pylog_broker_instances": [instance(2), instance(4, port=9093, internal_port=9193, data_dir="/d/2")]},
            "h2", "data_dir", "/d/2 for broker 2, broker 4",
        ),
        ({"broker_config": {"default.replication.factor": 4}}, "h2", "default.replication.factor", "4"),
        ({"broker_config": {"min.insync.replicas": 4}}, "h2", "min.insync.replicas", "4"),
        ({"broker_config": {"min.insync.replicas": 1}}, "all", "min.insync.replicas", "2 values"),
        ({"pylog_cluster_secret": "t" * 32}, "all", "pylog_cluster_secret", "2 values"),
        ({"zookeeper_peer_port": 2889}, "all", "zookeeper_peer_port", "2 values"),
        ({"zookeeper_client_port": 2182}, "all", "zookeeper_client_port", "2 values"),
        ({"pylog_broker_instances": [instance(2, port=0)]}, "h2", "variable pylog_broker_instances[0].port", "0"),
        ({"pylog_broker_instances": [instance(2, port=70_000)]}, "h2", "variable pylog_broker_instances[0].port",
         "70000"),
        ({"pylog_broker_instances": [instance(-2)]}, "h2", "variable pylog_broker_instances[0].id", "-2"),
        ({"broker_session_timeout_ms": 10}, "h2", "variable broker_session_timeout_ms", "10"),
        ({"broker_ready_readings": 0}, "h2", "variable broker_ready_readings", "0"),
        ({"disks_devices": [{"device": "/dev/vdb", "mount": "/elsewhere"}]}, "h2", "data_dir of broker 2", "/d/2"),
    ],
)  # fmt: skip
def test_a_wrong_inventory_is_named(changes: dict[str, Any], host: str, check: str, found: str) -> None:
    assert (host, check, found) in [(one.host, one.check, one.found) for one in findings(three_hosts(**changes))]


@pytest.mark.parametrize(
    ("groups", "check"),
    [
        ({"pylog_zookeeper": ["h1", "h2"]}, "size of the ensemble"),
        ({"pylog_zookeeper": []}, "group pylog_zookeeper"),
        ({"pylog_broker": []}, "group pylog_broker"),
    ],
)
def test_wrong_groups_are_named(groups: dict[str, list[str]], check: str) -> None:
    assert check in [one.check for one in findings(three_hosts(), GROUPS | groups)]


def test_the_default_factor_is_the_roles() -> None:
    defaults = yaml.safe_load((ROOT / "roles/broker/defaults/main.yml").read_text())
    assert defaults["broker_config_base"]["default.replication.factor"] == DEFAULT_FACTOR
    hosts = [Host(name="h1", variables=variables(1))]
    found = findings(hosts, {"pylog_zookeeper": ["h1"], "pylog_broker": ["h1"]})
    assert [(one.check, one.found) for one in found] == [
        ("broker_config offsets.topic.replication.factor", str(DEFAULT_FACTOR)),
        ("default.replication.factor", str(DEFAULT_FACTOR)),
    ]


def test_ids_may_repeat_in_another_datacenter() -> None:
    hosts = [
        Host(name="h1", variables=variables(1, pylog_datacenter="a", broker_config=ONE_COPY)),
        Host(name="h2", variables=variables(1, pylog_datacenter="b", broker_config=ONE_COPY)),
    ]
    groups = {"pylog_zookeeper": ["h1", "h2"], "pylog_broker": ["h1", "h2"], "a": ["h1"], "b": ["h2"]}
    assert findings(hosts, groups) == []


def test_all_findings_come_at_once() -> None:
    wrong = three_hosts(pylog_typo=1, zookeeper_id=3, pylog_cluster_name=None)
    assert len(findings(wrong)) == 3


@pytest.mark.parametrize(
    ("changes", "check", "found"),
    [
        ({"os": {"id": "ubuntu", "version": "24.04", "arch": "x86_64"}}, "distribution", "ubuntu 24.04"),
        ({"os": {"id": "debian", "version": "12", "arch": "i686"}}, "architecture", "i686"),
        ({"init": "tini"}, "init", "tini"),
        ({"memory_bytes": 512 << 20}, "memory", "512 MiB"),
        ({"resolved": {"zk-9": []}}, "name resolution", "zk-9 unknown"),
        ({"listeners": [{"port": 2181, "address": "*", "user": "root"}]}, "port 2181", "held by a program of root"),
        ({"listeners": [{"port": 9192, "address": "*", "user": "kafka"}]}, "port 9192", "held by a program of kafka"),
    ],
)
def test_a_wrong_host_is_named(changes: dict[str, Any], check: str, found: str) -> None:
    host = Host(name="h1", variables=variables(1), facts=facts(**changes))
    assert [(one.check, one.found) for one in check_hosts([host], GROUPS, SPECS)] == [(check, found)]


@pytest.mark.parametrize(
    ("reading", "found"),
    [
        ({"exists": True, "type": "", "label": "", "mounts": []}, None),
        ({"exists": True, "type": "xfs", "label": "pylog-disk1", "mounts": ["/d"]}, None),
        ({"exists": False}, "no such block device"),
        ({"exists": True, "type": "xfs", "label": "", "mounts": []}, "xfs"),
        ({"exists": True, "type": "ext4", "label": "home", "mounts": []}, "ext4 home"),
        ({"exists": True, "type": "gpt", "label": "", "mounts": []}, "gpt"),
        (
            {"exists": True, "type": "gpt", "label": "", "mounts": [], "carries": ["/", "/boot"]},
            "gpt, carries /, /boot",
        ),
        ({"exists": True, "type": "xfs", "label": "pylog-disk1", "mounts": ["/srv"]}, "mounted at /srv"),
    ],
)
def test_a_disk_with_foreign_data_is_refused(reading: dict[str, Any], found: str | None) -> None:
    devices = [{"device": "/dev/vdb", "mount": "/d"}]
    host = Host(name="h1", variables=variables(1, disks_devices=devices), facts=facts(disks={"/dev/vdb": reading}))
    assert [one.found for one in check_hosts([host], GROUPS, SPECS)] == ([found] if found else [])


@pytest.mark.parametrize(
    ("mounts", "carries", "remedy"),
    [
        ([], [], "correct disks_devices, or save its data, then: wipefs --all /dev/vdb"),
        ([], ["/"], "correct disks_devices: this disk is in use"),
        (["/home"], ["/home"], "correct disks_devices: this disk is in use"),
    ],
)
def test_nobody_is_told_to_wipe_a_disk_that_is_in_use(mounts: list[str], carries: list[str], remedy: str) -> None:
    reading = {"exists": True, "type": "gpt", "label": "", "mounts": mounts, "carries": carries}
    devices = [{"device": "/dev/vdb", "mount": "/d"}]
    host = Host(name="h1", variables=variables(1, disks_devices=devices), facts=facts(disks={"/dev/vdb": reading}))
    assert [one.remedy for one in check_hosts([host], GROUPS, SPECS)] == [remedy]


@pytest.mark.parametrize(
    ("given", "is_refused"),
    [
        ({}, True),
        ({"replace_host": "h1", "replace_mount": "/d"}, False),
        ({"replace_host": "h1", "replace_mount": "/e"}, True),
        ({"replace_host": "h2", "replace_mount": "/d"}, True),
    ],
)
def test_only_replace_disk_takes_a_blank_disk_for_another(given: dict[str, str], is_refused: bool) -> None:
    blank = {"exists": True, "type": "", "label": "", "mounts": []}
    fstab = ["# comment", "UUID=12-34 /d xfs noatime,nofail 0 0", "UUID=56-78 /e xfs noatime 0 0"]
    host = Host(
        name="h1", variables=variables(1, disks_devices=[{"device": "/dev/vdb", "mount": "/d"}], **given),
        facts=facts(disks={"/dev/vdb": blank}, fstab=fstab),
    )  # fmt: skip
    found = check_hosts([host], GROUPS, SPECS)
    assert [(one.found, "UUID=12-34" in one.wanted) for one in found] == ([("blank", True)] if is_refused else [])
    assert all("-e replace_host=h1 -e replace_mount=/d" in one.remedy for one in found)


def test_ports_that_pylog_itself_holds_are_free() -> None:
    listening = [
        {"port": 2181, "address": "*", "user": "pylog-zookeeper"},
        {"port": 9092, "address": "*", "user": "pylog"},
    ]
    host = Host(name="h1", variables=variables(1), facts=facts(listeners=listening))
    assert check_hosts([host], GROUPS, SPECS) == []


def test_a_clock_far_from_the_others_is_named() -> None:
    times = {"h1": 1_000_000_000, "h2": 1_000_000_500, "h3": 1_000_090_000}
    hosts = [Host(name=name, variables=variables(1), facts=facts(clock_ms=ms)) for name, ms in times.items()]
    assert [(one.host, one.found) for one in check_hosts(hosts, GROUPS, SPECS)] == [("h3", "+90 s from the others")]


def test_hosts_outside_the_limit_are_not_judged() -> None:
    assert check_hosts([Host(name="h1", variables=variables(1))], GROUPS, SPECS) == []


def query(**changes: Any) -> dict[str, Any]:
    return {"name": "q", "sql": "SELECT value FROM a", "inputs": {"a": {"topic": "t"}}, "output": "out"} | changes


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"name": "Q"}, "name: must be small letters"),
        ({"output": "t"}, "output: topic 't' is an input too"),
        ({"trigger": "often"}, "trigger: must be a time"),
        ({"inputs": {"a": {"topic": "t", "water": "x"}}}, "inputs.a.water: unknown key"),
        ({"inputs": {"a": "t"}}, "inputs: wanted names with topic or path each"),
        ({"inputs": {"a": {"topic": "t", "watermark": "10m"}}}, "inputs.a.watermark: must be a column and a time"),
        ({"inputs": {"a": {"topic": "t", "table": True}}}, "inputs: none of them is a stream"),
    ],
)
def test_a_query_that_cannot_run_is_named(changes: dict[str, Any], found: str) -> None:
    hosts = three_hosts(stream_queries=[query(), query(name="r", inputs={"a": {"topic": "t", "table": False}})])
    members = {**GROUPS, "pylog_stream": ["h2"]}
    assert findings(hosts, members) == []
    wrong = findings(three_hosts(stream_queries=[query(**changes)]), members)
    assert [(one.host, one.found[: len(found)]) for one in wrong] == [("h2", found)]


def test_a_query_is_of_one_host_and_of_its_own_kind() -> None:
    hosts = [Host(name=f"h{n}", variables=variables(n, stream_queries=[query()])) for n in (1, 2, 3)]
    [twice] = findings(hosts, {**GROUPS, "pylog_stream": ["h1", "h3"]})
    assert (twice.check, twice.found) == ("stream_queries q", "on h1, h3")
    [wrong] = findings(three_hosts(stream_queries=[{**query(), "mode": "update"}]), GROUPS)
    assert wrong.check == "variable stream_queries[0].mode"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"console_public_url": "https://console.example"}, ["variable console_public_url"]),
        ({"console_listen": "0.0.0.0:8085"}, ["variable console_listen"]),
        ({"console_login": "scram", "console_public_url": "https://console.example"}, []),
        ({"console_login": "scram", "console_public_url": "http://console.example"}, ["variable console_public_url"]),
    ],
)
def test_a_console_that_would_be_open_to_others_is_named(changes: dict[str, Any], found: list[str]) -> None:
    hosts = {host.name: host.variables for host in three_hosts(**changes)}
    question = {"groups": {**GROUPS, "pylog_console": ["h2"]}, "hosts": hosts}
    assert [one.check for one in judge(question, ROOT / "roles") if "console" in one.check] == found
    repair = judge({**question, "is_repair": True}, ROOT / "roles")
    assert [one.check for one in repair if "console" in one.check] == []


@pytest.mark.parametrize(("topic", "is_found"), [("*-pii", True), ("a*b", True), ("", True), ("hr-*", False)])
def test_a_mask_that_would_hide_nothing_is_named(topic: str, is_found: bool) -> None:
    hosts = three_hosts(console_masks=[{"topic": topic, "field": "card"}])
    found = [one.check for one in findings(hosts, {**GROUPS, "pylog_console": ["h2"]})]
    assert found == ["variable console_masks"] * is_found
    assert findings(hosts) == []


def test_the_table_is_aligned() -> None:
    lines = table([Finding("h1", "memory", "1 MiB", "2 MiB", "add memory")])
    assert lines == ["host  check   found  wanted  remedy", "h1    memory  1 MiB  2 MiB   add memory"]


def test_the_verdict_has_the_table_or_the_addresses() -> None:
    def question(**changes: Any) -> dict[str, Any]:
        reading = {"answer": facts(**changes)}
        hosts = {f"h{n}": variables(n) | {"__preflight_reading": reading} for n in (1, 2, 3)}
        return {"groups": GROUPS | {"all": list(hosts)}, "hosts": hosts, "sources": ["/no/hosts.yml"]}

    assert len(verdict(question(init="tini"), ROOT / "roles")["table"]) == 4
    good = verdict(question(), ROOT / "roles")
    assert (good["table"], good["addresses"]["brokers"]["h1"]) == ([], ["h1:9092"])


def test_a_file_of_group_vars_is_taken_with_its_ending_or_as_a_directory() -> None:
    assert group_files([str(ROOT / "inventories/example/hosts.yml")]) == ["all", "live", "offline", "servers"]


def test_a_host_that_is_away_has_a_row_and_stops_nobody() -> None:
    hosts = {f"h{n}": variables(n) | ({"__preflight_reading": {"answer": facts()}} if n < 3 else {}) for n in (1, 2, 3)}
    question = {"groups": GROUPS | {"all": list(hosts)}, "hosts": hosts, "sources": ["/no/hosts.yml"], "away": ["h3"]}
    found = verdict(question, ROOT / "roles")
    assert found["table"] == []
    assert found["notes"][1].split()[:2] == ["h3", "away"]


def test_away_names_hosts_of_the_inventory_and_leaves_a_majority() -> None:
    hosts = [Host(name=f"h{n}", variables=variables(n)) for n in (1, 2, 3)]
    assert list(absent(["h3"], hosts, GROUPS)) == []
    assert [found.found for found in absent(["h9"], hosts, GROUPS)] == ["h9"]
    assert [found.found for found in absent(["h1", "h3"], hosts, GROUPS)] == ["h1, h3 of 3 ZooKeeper servers"]


def test_hosts_that_are_read_minutes_apart_have_the_same_clock() -> None:
    minute_ms = 60_000
    hosts = [host_read(n, 1_000_000 + n * minute_ms + 700, 1_000_000 + n * minute_ms) for n in range(60)]
    assert list(clocks(hosts)) == []
    [found] = clocks([*hosts, host_read(99, 1_000_000 + 40_000, 1_000_000)])
    assert (found.host, found.found) == ("h99", "+39 s from the others")


def host_read(number: int, clock_ms: int, asked_ms: int, took_ms: int = 1_400) -> Host:
    """Return a host whose answer came *took_ms* after it was asked."""
    read_ms = (asked_ms, asked_ms + took_ms)
    return Host(name=f"h{number}", variables={}, facts=facts(clock_ms=clock_ms), read_ms=read_ms)


@pytest.mark.parametrize("before_ms", [0, 20_000, 45_000])
def test_f12_a_login_that_takes_long_is_no_difference_of_clocks(before_ms: int) -> None:
    """The clock is read somewhere between question and answer."""
    hosts = [host_read(n, 1_000_700, 1_000_000) for n in range(3)]
    assert list(clocks([*hosts, host_read(4, 1_000_000 + before_ms, 1_000_000, took_ms=45_000)])) == []
    [late] = clocks([*hosts, host_read(4, 1_000_000 - 31_000, 1_000_000, took_ms=45_000)])
    assert (late.host, late.found) == ("h4", "-31 s from the others")


def test_a_host_that_was_not_read_says_why_on_one_line() -> None:
    assert failure_of({}) == "", "it was not asked"
    assert failure_of({"answer": {}, "asked_ms": 1}) == ""
    assert failure_of({"unreachable": True, "msg": "ssh: connect to\n  host h1"}) == "ssh: connect to host h1"
    crashed = {"failed": True, "msg": "MODULE FAILURE", "module_stderr": "Traceback\nSyntaxError: invalid syntax\n"}
    assert failure_of(crashed) == "Traceback SyntaxError: invalid syntax"


@pytest.mark.parametrize(
    ("reading", "check", "remedy"),
    [
        ({"unreachable": True, "msg": "no route"}, "login", "correct how it is reached"),
        ({"failed": True, "msg": "MODULE FAILURE", "module_stderr": "Traceback"}, "reading", "sudo and its python3"),
    ],
)
def test_a_host_that_fails_while_it_is_read_is_told_from_one_that_is_not_reached(
    reading: dict[str, Any], check: str, remedy: str
) -> None:
    host = host_of("h1", variables(1) | {"__preflight_reading": reading})
    [found] = check_hosts([host], GROUPS, SPECS)
    assert (found.check, remedy in found.remedy, "-e away=HOST" in found.remedy) == (check, True, True)


def test_a_probe_counts_for_the_datacenter_that_it_measures() -> None:
    hosts = [
        Host(name="h1", variables={"pylog_datacenter": "a"}),
        Host(name="h2", variables={"pylog_datacenter": "b", "probe_datacenter": "a"}),
    ]
    groups = {"pylog_monitoring": ["h2"], "pylog_broker": ["h1"], "pylog_probe": ["h2"]}
    assert list(probed(hosts, groups)) == []
    assert [found.host for found in probed(hosts, {**groups, "pylog_broker": ["h2"]})] == ["b"]

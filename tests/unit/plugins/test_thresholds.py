"""What is late follows from the inventory's schedules, as Ansible itself reads the role's variables."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.templates import render

ROOT = Path(__file__).resolve().parents[3]


def variable(directory: Path, groups: dict[str, Any], name: str, own: str = "{}") -> Any:
    """Return what *name* is of the variables of role `monitoring` with these groups of hosts."""
    (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": groups}}))
    show = {"ansible.builtin.debug": {"var": name}, "run_once": True}
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "vars": {"monitoring_thresholds": json.loads(own)},
        "vars_files": [str(ROOT / "roles/monitoring/vars/main.yml")],
        "tasks": [show],
    }
    (directory / "play.yml").write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "play.yml"],
        cwd=directory, capture_output=True, text=True, check=False,
        env=os.environ | {"ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    [play_found] = json.loads(done.stdout[done.stdout.index("{") :])["plays"]
    [task] = play_found["tasks"]
    return next(iter(task["hosts"].values()))[name]


def test_late_is_what_a_host_s_own_schedule_does_not_explain(tmp_path: Path) -> None:
    brokers = {
        "a": {"retention_schedule": "*/5 * * * *", "backup_schedule": "0 4 * * sun"},
        "b": {"monitoring_thresholds": {"backup_late_s": 7, "host_disk_free_percent": 3}},
        "c": {"retention_schedule": "0 4 * * *"},
    }
    spark = {"s": {"ingest_interval_s": 300}, "t": {"ingest_interval_s": 5}}
    groups = {"pylog_broker": {"hosts": brokers}, "pylog_spark": {"hosts": spark}}
    rows = variable(tmp_path, groups, "__monitoring_host_thresholds", '{"host_memory_free_percent": 9}')
    found = {(row["host"], row["name"]): row["limit"] for row in rows}
    assert {host: found[host, "retention_late_s"] for host in brokers} == {"a": 600, "b": 3900, "c": 86_700}
    assert {host: found[host, "backup_late_s"] for host in brokers} == {"a": 7 * 86_400 + 3600, "b": 7, "c": 90_000}
    assert {host: found[host, "load_late_s"] for host in spark} == {"s": 1140, "t": 900}
    assert {host: found[host, "host_disk_free_percent"] for host in brokers} == {"a": 10, "b": 3, "c": 10}
    assert {found[host, "host_memory_free_percent"] for host in [*brokers, *spark]} == {9}


def test_a_cluster_has_limits_too_that_the_inventory_names(tmp_path: Path) -> None:
    groups: dict[str, Any] = {"pylog_broker": {"hosts": {"a": {}}}}
    found = variable(tmp_path, groups, "__monitoring_thresholds", '{"group_lag_s": 5, "backup_late_s": 7}')
    assert {name: int(limit) for name, limit in found.items()} == {"group_lag_s": 5, "certificate_days": 14}


def test_every_host_has_the_tasks_that_the_inventory_gives_it_and_no_others(tmp_path: Path) -> None:
    ledgers = {"a1": {"audit_ledgers": ["live"]}, "a2": {"audit_ledgers": []}, "a3": {}}
    groups = {"pylog_broker": {"hosts": {"b2": {}, "b1": {}}}, "pylog_audit": {"hosts": ledgers}}
    tasks = variable(tmp_path, groups, "__monitoring_expected")
    backed = {"retention": ["b1", "b2"], "backup": ["b1", "b2"]}
    assert tasks == {**backed, "ship": [], "audit": ["a1"], "load": [], "connect": [], "stream": []}
    shippers: dict[str, Any] = {"pylog_ship": {"hosts": {"b1": {}, "s": {}}}, "pylog_spark": {"hosts": {"k": {}}}}
    tasks = variable(tmp_path, groups | shippers, "__monitoring_expected")
    assert (tasks["ship"], tasks["load"]) == (["b1", "s"], ["k"])
    queries = {"pylog_stream": {"hosts": {"q": {"stream_queries": [{"name": "q"}]}, "none": {"stream_queries": []}}}}
    assert variable(tmp_path, groups | queries, "__monitoring_expected")["stream"] == ["q"]


def test_data_disks_are_the_mounts_with_a_broker_s_directory(tmp_path: Path) -> None:
    disks = [{"device": f"/dev/{name}", "mount": f"/data/{name}"} for name in ("1", "2", "spare")]
    instances = [
        {"id": 1, "data_dir": "/data/1/broker-1"},
        {"id": 2, "data_dir": "/data/1/b"},
        {"id": 3, "data_dir": "/data/2"},
    ]
    hosts = {"b1": {"disks_devices": disks, "pylog_broker_instances": instances}}
    hosts["b2"] = {"pylog_broker_instances": [{"id": 4, "data_dir": "/data/1/broker-4"}]}
    found = variable(tmp_path, {"pylog_broker": {"hosts": hosts}}, "__monitoring_data_disks")
    assert found == [{"host": "b1", "mountpoint": "/data/1"}, {"host": "b1", "mountpoint": "/data/2"}]


def test_prometheus_takes_the_limits_and_tasks_that_the_role_writes(tmp_path: Path) -> None:
    path = tmp_path / "thresholds.yml"
    path.write_text(
        render(
            "etc/pylog-monitoring/thresholds.yml.j2",
            ansible_managed="managed",
            hostvars={"b1": {"pylog_datacenter": "live"}, "k": {}},
            __monitoring_thresholds={"group_lag_s": 600},
            __monitoring_host_thresholds=[{"name": "backup_late_s", "host": "b1", "limit": 90_000}],
            __monitoring_expected={"backup": ["b1"], "ship": [], "load": ["k"]},
            __monitoring_data_disks=[{"host": "b1", "mountpoint": "/data/1"}],
        )
    )
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [group] = yaml.safe_load(path.read_text())["groups"]
    assert [(rule["record"], rule["expr"], rule.get("labels")) for rule in group["rules"]] == [
        ("pylog_threshold", "vector(600)", {"name": "group_lag_s"}),
        ("pylog_threshold", "vector(90000)", {"name": "backup_late_s", "host": "b1"}),
        ("pylog_expected", "vector(1)", {"task": "backup", "host": "b1", "datacenter": "live"}),
        ("pylog_expected", "vector(1)", {"task": "load", "host": "k", "datacenter": "all"}),
        ("pylog_expected_since_timestamp_seconds", group["rules"][4]["expr"], None),
        ("pylog_data_disk", "vector(1)", {"host": "b1", "mountpoint": "/data/1", "datacenter": "live"}),
    ]


def test_a_task_is_expected_since_prometheus_first_heard_of_it(tmp_path: Path) -> None:
    rules = render(
        "etc/pylog-monitoring/thresholds.yml.j2",
        ansible_managed="managed",
        hostvars={"b1": {}},
        __monitoring_thresholds={},
        __monitoring_host_thresholds=[],
        __monitoring_expected={"backup": ["b1"]},
        __monitoring_data_disks=[],
    )
    (tmp_path / "thresholds.yml").write_text(rules)
    # Another inventory, whose load of host k comes at minute 10 and again two days after it has gone.
    wanted = 'pylog_expected{task="load", host="k"}'
    since = "pylog_expected_since_timestamp_seconds"
    samples = {"9m": (0, None), "10m": (0, 600), "60m": (0, 600), "61m": (0, None), "3000m": (0, 180_000)}
    cases = [
        {
            "expr": since,
            "eval_time": at,
            "exp_samples": [
                {"labels": f"{since}{{task='{task}', host='{host}'{more}}}", "value": value}
                for task, host, more, value in (
                    ("backup", "b1", ", datacenter='all'", known), ("load", "k", "", added),
                ) if value is not None
            ],
        }
        for at, (known, added) in samples.items()
    ]  # fmt: skip
    test = {
        "rule_files": ["thresholds.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": wanted, "values": "_x10 1x50 stale _x2938 1x60"}],
                "promql_expr_test": cases,
            }
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "SUCCESS" in done.stdout, done.stdout + done.stderr

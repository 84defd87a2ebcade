"""Whom the role `ingest` asks on other hosts, by Ansible itself; a host that must not be asked cannot be reached."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from pylog.ingest import compact, job
from pylog.model import IsolationLevel
from tests.templates import TEMPLATES

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles" / "ingest"
GONE = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_connection": "ssh"}
GROUPS = {"pylog_broker": ["live1", "live2"], "pylog_spark_worker": ["spark1", "spark2"]}
GIVEN = {
    "ingest_datacenter": "live",
    "users_passwords": {"pylog-ingest": "secret"},
    "__preflight_logins": ["live"],
    "__preflight_addresses": {"brokers": {"live1": ["192.0.2.1:9092"], "live2": ["192.0.2.2:9092"]}},
    "__preflight_host": {"files": {}},
}


def run(
    directory: Path, tasks: list[dict[str, Any]], gone: str, *, on: str = "spark1", **given: Any
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and result of each task on one host, in check mode and with *gone* out of reach; all must pass."""
    names = [name for members in GROUPS.values() for name in members]
    hosts = {name: GONE if name == gone else {"ansible_connection": "local"} for name in names}
    children: dict[str, Any] = {name: {"hosts": {one: {} for one in members}} for name, members in GROUPS.items()}
    children["live"] = {"hosts": {one: {} for one in GROUPS["pylog_broker"]}}
    inventory = {"all": {"hosts": hosts, "children": children, "vars": {"ansible_python_interpreter": sys.executable}}}
    parts = [str(ROLE / part / "main.yml") for part in ("defaults", "vars")]
    play = {"hosts": on, "gather_facts": False, "become": False, "vars_files": parts, "tasks": tasks}
    (directory / "hosts.yml").write_text(yaml.safe_dump(inventory))
    (directory / "play.yml").write_text(yaml.safe_dump([play]))
    (directory / "vars.json").write_text(json.dumps(GIVEN | given))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "--inventory", str(directory / "hosts.yml")]
    command += [str(directory / "play.yml"), "--check", "-e", f"@{directory / 'vars.json'}"]
    reports = {"ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json", "ANSIBLE_ROLES_PATH": str(ROOT / "roles")}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | reports | {"NO_COLOR": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for task in json.loads(done.stdout[done.stdout.index("{") :])["plays"][0]["tasks"]:
        for result in task["hosts"].values():
            yield task["task"]["name"], result


def test_a_worker_that_is_away_is_asked_nothing(tmp_path: Path) -> None:
    shared = [task for task in yaml.safe_load((ROLE / "tasks" / "shared.yml").read_text()) if "loop" in task]
    lacking = {"name": "Lacking", "ansible.builtin.debug": {"msg": "{{ __ingest_lacking }}"}}
    found = dict(run(tmp_path, [*shared, lacking], "spark2", on="live1", away="spark2"))
    assert found["Lacking"]["msg"] == ["spark1"]
    asked = [[one["item"] for one in result["results"]] for result in found.values() if "results" in result]
    assert asked == [["spark1"]] * 2


APPLY = {
    "name": "Topics",
    "ansible.builtin.include_role": {"name": "ingest", "tasks_from": "topics", "rolespec_validate": False},
}


@pytest.mark.parametrize("gone", ["spark1", "live1"])
def test_topics_are_made_where_a_broker_has_the_login_for_it(tmp_path: Path, gone: str) -> None:
    away = {"away": gone} if gone == "live1" else {}
    found = dict(run(tmp_path, [APPLY], gone, **away))
    [command] = (result["cmd"] for name, result in found.items() if name.endswith("with what is wanted"))
    assert command.split()[0] == "/opt/pylog/current/bin/pylog"
    assert "192.0.2.1:9092,192.0.2.2:9092" in command


def test_topics_of_brokers_that_no_host_has_are_made_by_the_jobs_own_command(tmp_path: Path) -> None:
    found = dict(run(tmp_path, [APPLY], "live1", ingest_datacenter="spark", ingest_bootstrap="kafka:9092"))
    [command] = (result["cmd"] for name, result in found.items() if name.endswith("with what is wanted"))
    assert command.split()[0] == "/opt/pylog/spark/current/bin/pylog"


def _command(unit: str, **given: Any) -> list[str]:
    """Return the arguments of the program that a unit of the role runs, by the role's defaults and *given*."""
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    lines = (TEMPLATES / "etc" / "systemd" / "system" / f"{unit}.service.j2").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("ExecStart=")]
    text = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(line).render(defaults | given)
    return shlex.split(text)[3:]


def test_the_units_pass_on_how_long_files_stay_and_which_records_land() -> None:
    given = {
        "ingest_environment": "/opt", "ingest_bootstrap": "h:9092", "ingest_spark_master": "local",
        "ingest_lake_dir": "/l", "ingest_continuous": False, "__ingest_logs_in": False, "ingest_grace_s": 7200,
        "ingest_isolation_level": "read_uncommitted",
    }  # fmt: skip
    load = job.parse(_command("pylog-ingest", **given))
    assert (load.grace_s, load.isolation_level) == (7200, IsolationLevel.READ_UNCOMMITTED)
    assert compact.parse(_command("pylog-compact", **given)).grace_s == 7200

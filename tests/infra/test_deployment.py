"""What runs is what is installed, and a second deployment would change nothing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host
from testinfra.utils.ansible_runner import AnsibleRunner

from tests.infra.conftest import want_group

pytestmark = pytest.mark.readonly

ROOT = Path(__file__).resolve().parents[2]


def test_the_release_is_whole_and_only_root_may_change_it(host: Host, mine: dict[str, Any]) -> None:
    programs = ("ship", "mirror", "registry", "audit", "probe", "console")
    want_group(mine, "pylog_broker", *(f"pylog_{program}" for program in programs))
    current = host.check_output("readlink --canonicalize /opt/pylog/current")
    assert re.fullmatch(r"/opt/pylog/releases/\d+\.\d+\.\d+-[0-9a-f]{10}", current)
    assert host.file(f"{current}/requirements.lock").contains("^pylog-cluster==")
    assert host.check_output("find %s/ -not -user root -or -perm /022 -not -type l", current) == ""


def test_servers_run_with_the_files_that_are_installed(host: Host, mine: dict[str, Any]) -> None:
    units = {"pylog_zookeeper": "pylog-zookeeper", "pylog_ship": "pylog-ship"}
    want_group(mine, "pylog_broker", *units)
    records = [f"/run/{unit}/started" for group, unit in units.items() if group in mine["group_names"]]
    if "pylog_broker" in mine["group_names"]:
        records += [f"/run/pylog/broker-{instance['id']}.started" for instance in mine["pylog_broker_instances"]]
    done = [host.run("sha256sum --check --quiet %s", record) for record in records]
    assert [one.stdout + one.stderr for one in done if one.rc != 0] == []


def test_data_lies_on_a_data_disk_and_belongs_to_pylog(host: Host, mine: dict[str, Any]) -> None:
    want_group(mine, "pylog_broker")
    mounts = {device["mount"] for device in mine.get("disks_devices", [])}
    for instance in mine["pylog_broker_instances"]:
        directory = host.file(instance["data_dir"])
        assert (directory.user, directory.group, directory.mode) == ("pylog", "pylog", 0o750)
        lies_on = host.check_output("findmnt --noheadings --output TARGET --target %s", instance["data_dir"])
        # Where the operator mounts disks, any but the root's own serves.
        assert lies_on in mounts if mounts else lies_on != "/"


def test_a_second_deployment_would_change_nothing_and_shows_no_secret(
    request: pytest.FixtureRequest, runner: AnsibleRunner
) -> None:
    inventory = str(request.config.getoption("--ansible-inventory"))
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    command = [program, "-i", inventory, "playbooks/site.yml", "--check", "--diff", "-vv"]
    # Molecule leaves its own ansible.cfg in the environment; an operator's run reads the checkout's, and his vault.
    kept = {"ANSIBLE_VAULT_PASSWORD_FILE"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_") or name in kept}
    environment["ANSIBLE_STDOUT_CALLBACK"] = "ansible.posix.json"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    stats = json.loads(done.stdout[done.stdout.index("{") :])["stats"]
    assert stats
    # What the JSON holds is more than anybody sees on a screen: every argument and every result of every task.
    for name in runner.get_hosts("pylog_broker"):
        secret = runner.get_host(name).file("/etc/pylog/cluster.secret").content_string.strip()
        assert len(secret) >= 32
        assert secret not in done.stdout + done.stderr
    assert {name: counts["changed"] for name, counts in stats.items()} == dict.fromkeys(stats, 0)

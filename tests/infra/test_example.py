"""The production example, judged on the hosts of this inventory in place of its own."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from testinfra.utils.ansible_runner import AnsibleRunner

pytestmark = pytest.mark.readonly

ROOT = Path(__file__).resolve().parents[2]
# How to reach a host, and what the local inventory's disks_devices refers to.
CONNECTION = ("ansible_host", "ansible_ssh_private_key_file", "ansible_ssh_common_args", "local_disks")


def test_the_production_example_passes_preflight_on_these_hosts(
    runner: AnsibleRunner, variables: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    """Each of its hosts is one of ours in turn, with our disks at the places that it gives its own."""
    example = AnsibleRunner(str(ROOT / "inventories" / "example"))
    ours = [variables(name) for name in runner.get_hosts("all")]
    if not all("local_disks" in one for one in ours):
        pytest.skip("only hosts of the local inventory may stand in for others")
    directory = tmp_path / "ours"
    (directory / "host_vars").mkdir(parents=True)
    names = example.get_hosts("all")
    assert len(names) >= 10
    (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {key: {} for key in names}}}))
    for name, mine in zip(names, itertools.cycle(ours), strict=False):
        given = example.get_variables(name)
        stand_in = {key: mine[key] for key in CONNECTION if key in mine} | {
            "ansible_user": mine.get("ansible_user", "root"),
            "ansible_become": False,
            "pylog_address": mine["ansible_host"],
            # Without the filter, so that who can reach which port is judged by these hosts' own addresses.
            "firewall_enabled": False,
            "pylog_trusted_networks": [str(mine["ansible_host"]).rpartition(".")[0] + ".0/24"],
        }
        if "disks_devices" in given:
            pairs = zip(given["disks_devices"], mine["disks_devices"], strict=False)
            stand_in["disks_devices"] = [{**entry, "device": own["device"]} for entry, own in pairs]
        (directory / "host_vars" / f"{name}.yml").write_text(yaml.safe_dump(stand_in))
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    command = [
        program,
        "-i",
        "inventories/example",
        "-i",
        str(directory),
        "playbooks/preflight.yml",
        "-e",
        f"vault_cluster_secret={'x' * 32} vault_sudo_password=unused",
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    # The stand-ins run what their own inventory gives them; preflight names that, and must find nothing else.
    faults, _, recap = done.stdout.partition("PLAY RECAP")
    rows = [line for line in faults.splitlines() if line.strip().startswith(tuple(f"{name} " for name in names))]
    assert rows, done.stdout[-4000:] + done.stderr
    assert [row for row in rows if "runs here" not in row] == []
    assert "unreachable=0" in recap
    assert recap.count("failed=1") == 1, recap
    assert all(f"{name} " in recap for name in names)

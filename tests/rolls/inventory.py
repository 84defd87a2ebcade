"""An inventory of the repository as an operator has it: copied, its vault filled in, and what only these hosts know.

python -m tests.rolls.inventory SOURCE DIRECTORY

Nothing of it is changed but the networks that are trusted, which are these hosts' own. Beside the set's hosts.json it
writes ``ssh_config``, ``vault.secret`` and ``names``, the part of DNS that the control machine sees.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
HOSTS_FILE = Path(os.environ.get("PYLOG_HOSTS_FILE", ROOT / ".local" / "hosts.json"))


def ssh_config(state: dict[str, Any]) -> str:
    """Return what an operator keeps in ~/.ssh/config; ssh hands it on to the one that goes to the bastion."""
    options = {
        "IdentityFile": state["ssh_key"],
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": state["known_hosts"],
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
    }
    return "Host *\n" + "".join(f"  {name} {value}\n" for name, value in options.items())


def ours(state: dict[str, Any], config: Path) -> dict[str, Any]:
    """Return the variables that only these hosts have: keys and networks."""
    return {
        "ansible_ssh_private_key_file": state["ssh_key"],
        "ansible_ssh_extra_args": f"-F {config} -o UserKnownHostsFile={state['known_hosts']}",
        "pylog_trusted_networks": [state["data_subnet"] or state["subnet"]],
        # Nothing else uses this network, so a second between two readings says as much as five elsewhere.
        "broker_ready_readings": 3,
        "broker_ready_interval_s": 1,
    }


def name_disks(state: dict[str, Any], inventory: Path) -> None:
    """Give each host's disks the names that the inventory knows them by, as udev does on machines."""
    for name, facts in state["hosts"].items():
        places = [inventory / "host_vars" / f"{name}.yml", inventory / "group_vars" / "servers" / "main.yml"]
        given = [yaml.safe_load(path.read_text()) for path in places if path.exists()]
        devices: list[dict[str, str]] = next((one["disks_devices"] for one in given if "disks_devices" in one), [])
        script = "".join(
            f"mkdir -p {Path(device['device']).parent} && ln -sf {disk} {device['device']}\n"
            for device, disk in zip(devices, facts["disks"], strict=False)
        )
        subprocess.run(
            ["podman", "exec", "--interactive", facts["container"], "sh"], input=script, text=True, check=True
        )


def encrypt(path: Path, values: dict[str, str], password: Path) -> None:
    """Write *values* to *path* as `ansible-vault create` does."""
    program = str(Path(sys.executable).with_name("ansible-vault"))
    # Not as an option: the environment may name the same file, and two passwords are one too many.
    environment = os.environ | {"ANSIBLE_VAULT_PASSWORD_FILE": str(password)}
    command = [program, "encrypt", "--output", str(path), "-"]
    subprocess.run(command, input=yaml.safe_dump(values), text=True, check=True, env=environment)


def main(source: str, directory: str) -> int:
    """Make the inventory for the hosts of hosts.json, which run."""
    state = json.loads(HOSTS_FILE.read_text())
    own, inventory = HOSTS_FILE.parent, Path(directory)
    shutil.rmtree(inventory, ignore_errors=True)
    shutil.copytree(ROOT / source, inventory)
    # Where the inventory says that its vault is.
    place = inventory / "group_vars" / ("servers" if (inventory / "group_vars" / "servers").is_dir() else "all")
    (own / "ssh_config").write_text(ssh_config(state))
    (place / "ours.yml").write_text(yaml.safe_dump(ours(state, own / "ssh_config")))
    for name in ("vault", "cluster"):
        (own / f"{name}.secret").write_text(secrets.token_hex(32) + "\n")
    values = {f"vault_{key}": (own / f"{name}.secret").read_text().strip()
              for key, name in (("cluster_secret", "cluster"), ("sudo_password", "sudo"))}  # fmt: skip
    encrypt(place / "vault.yml", values, own / "vault.secret")
    logins = "".join(f"{facts['ip']} {name}\n" for name, facts in state["hosts"].items())
    (own / "names").write_text(f"127.0.0.1 localhost\n{logins}")
    name_disks(state, inventory)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The hosts of an inventory and how to reach them, as Ansible itself resolves them."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 10
"""A host that does not let us in in this time, where the inventory has no `ansible_timeout`, is unreachable."""


class InventoryError(Exception):
    """The inventory cannot be read; the message is Ansible's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One host: its name, how to reach it, and what it has.

    Attributes:
        known_hosts: file with the host keys to trust; None for the operator's own.
        is_root: whether commands run as root without sudo.
        timeout_s: how long a login may take.
    """

    name: str
    address: str
    user: str
    port: int
    key_file: str | None
    known_hosts: str | None
    is_root: bool
    timeout_s: int
    groups: frozenset[str]
    variables: Mapping[str, Any]

    @property
    def broker_ids(self) -> list[int]:
        """Ids of the broker instances of this host; one that left the group has none, whatever variables it keeps."""
        if "pylog_broker" not in self.groups:
            return []
        return [instance["id"] for instance in self.variables.get("pylog_broker_instances", [])]


def groups_of(inventory: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return host -> names of its groups, through any depth of children."""

    def members(group: str) -> set[str]:
        entry = inventory.get(group, {})
        below = [members(child) for child in entry.get("children", [])]
        return set(entry.get("hosts", [])).union(*below)

    found: dict[str, set[str]] = {}
    for group in inventory:
        for host in members(group):
            found.setdefault(host, set()).add(group)
    return found


def target(name: str, variables: Mapping[str, Any], groups: set[str]) -> Target:
    """Return the host *name* from Ansible's own connection variables."""
    user = str(variables.get("ansible_user", "root"))
    options = str(variables.get("ansible_ssh_common_args", ""))
    known_hosts = re.search(r"UserKnownHostsFile=(\S+)", options)
    return Target(
        name=name,
        address=str(variables.get("ansible_host", name)),
        user=user,
        port=int(variables.get("ansible_port", 22)),
        key_file=variables.get("ansible_ssh_private_key_file"),
        known_hosts=known_hosts[1] if known_hosts else None,
        is_root=user == "root",
        timeout_s=int(variables.get("ansible_timeout", TIMEOUT_S)),
        groups=frozenset(groups),
        variables=variables,
    )


def load(inventory: str) -> list[Target]:
    """Return the hosts of the inventory at *inventory*, by name.

    Raises:
        InventoryError: Ansible cannot read it.
    """
    # Beside this interpreter, where the locked Ansible is, and not whatever the path has.
    command = [str(Path(sys.executable).with_name("ansible-inventory")), "-i", inventory, "--list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InventoryError(done.stderr.strip())
    read: dict[str, Any] = json.loads(done.stdout)
    variables = read.pop("_meta")["hostvars"]
    return [target(name, variables.get(name, {}), groups) for name, groups in sorted(groups_of(read).items())]

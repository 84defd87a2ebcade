"""The hosts of an inventory and how to reach them, as Ansible itself resolves them."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pylog.ops.addresses import joined

TIMEOUT_S = 10
"""A host that does not let us in in this time, where the inventory has no `ansible_timeout`, is unreachable."""


# What the filter puts in the place of a variable that cannot be filled in.
UNREADABLE = "__preflight_unreadable"


PROMPT = "[password for pylog] "
"""What sudo asks with, so that nothing else is taken for its question."""


class InventoryError(Exception):
    """The inventory cannot be read; the message is Ansible's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One host: its name, how to reach it, and what it has.

    Attributes:
        known_hosts: file with the host keys to trust; None for the operator's own.
        is_root: whether commands run as root without sudo.
        timeout_s: how long a login may take.
        proxy: command whose standard input and output lead to the host, through a bastion; None for a direct way.
        password: for the login; None where a key serves.
        sudo_password: None where sudo asks for none.
        is_watched: whether the inventory has a host that watches all others, which then run the node exporter.
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
    proxy: str | None = None
    password: str | None = field(default=None, repr=False)
    sudo_password: str | None = field(default=None, repr=False)
    is_watched: bool = False

    @property
    def sudo(self) -> str:
        """What a command begins with that root has to run; where sudo asks for a password, it does so with `PROMPT`."""
        if self.is_root:
            return ""
        return "sudo -n " if self.sudo_password is None else f"sudo -S -p {shlex.quote(PROMPT)} "

    @property
    def broker_ids(self) -> list[int]:
        """Ids of the broker instances of this host; one that left the group has none, whatever variables it keeps."""
        if "pylog_broker" not in self.groups:
            return []
        return [instance["id"] for instance in self.variables.get("pylog_broker_instances", [])]


_SSH_ARGUMENTS = ("ansible_ssh_common_args", "ansible_ssh_extra_args")
# Options of ssh that take a value, as `man ssh` lists them.
_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")


def ssh_options(text: str) -> tuple[dict[str, str], list[str]]:
    """Return option -> value of ssh's command line *text*, in small letters, and the words but for a way around.

    The words serve for the connection to a bastion, which is made with the same keys and known hosts.
    """
    short = {"i": "identityfile", "J": "proxyjump", "l": "user", "p": "port"}
    found: dict[str, str] = {}
    kept: list[str] = []
    words = shlex.split(text)
    while words:
        word = words.pop(0)
        given = [word]
        if len(word) == 2 and word[0] == "-" and word[1] in _WITH_VALUE and words:
            given.append(words.pop(0))
        letter, value = word[1:2], given[1] if len(given) > 1 else word[2:]
        name = short.get(letter, "") if word[:1] == "-" else ""
        if word[:2] == "-o":
            name, _, value = re.sub(r"\s*=\s*|\s+", "=", value, count=1).partition("=")
            name = name.lower()
        if name:
            found.setdefault(name, value)
        if name not in ("proxyjump", "proxycommand", "port", "user"):
            kept += given
    return found, kept


def _proxy(options: Mapping[str, str], kept: list[str], address: str, port: int, user: str) -> str | None:
    """Return the command that leads to *address* through the bastions of *options*, with what stands for it filled in.

    Here, because Fabric takes the port for 22 when it fills in a command.
    """
    if command := options.get("proxycommand"):
        known = {"%h": address, "%p": str(port), "%r": user, "%%": "%"}
        return None if command.lower() == "none" else re.sub("%[hpr%]", lambda found: known[found[0]], command)
    jump = options.get("proxyjump", "none")
    if jump.lower() == "none":
        return None
    *before, last = jump.split(",")
    way = ["-J", ",".join(before)] if before else []
    host, _, door = last.rpartition(":") if re.search(r":\d+$", last) else (last, "", "")
    return shlex.join(["ssh", *kept, *way, *(["-p", door] if door else []), "-W", joined(address, port), host])


def _first(variables: Mapping[str, Any], *names: str) -> Any:  # noqa: ANN401  a variable holds anything
    return next((variables[name] for name in names if variables.get(name) not in (None, "")), None)


def target(name: str, variables: Mapping[str, Any], groups: set[str], *, is_watched: bool = False) -> Target:
    """Return the host *name* from Ansible's own connection variables."""
    options, kept = ssh_options(" ".join(str(variables.get(one, "")) for one in _SSH_ARGUMENTS))
    user = str(_first(variables, "ansible_user", "ansible_ssh_user") or options.get("user", "root"))
    key = _first(variables, "ansible_ssh_private_key_file", "ansible_private_key_file") or options.get("identityfile")
    known_hosts = options.get("userknownhostsfile")
    password = _first(variables, "ansible_password", "ansible_ssh_pass", "ansible_ssh_password")
    sudo_password = _first(variables, "ansible_become_password", "ansible_become_pass", "ansible_sudo_pass")
    if sudo_password is None and (file := os.environ.get("ANSIBLE_BECOME_PASSWORD_FILE")):
        sudo_password = Path(file).read_text().rstrip("\n")
    address = str(variables.get("ansible_host", name))
    port = int(_first(variables, "ansible_port", "ansible_ssh_port") or options.get("port", 22))
    kept += ["-i", str(key)] if key and "identityfile" not in options else []
    return Target(
        name=name,
        address=address,
        user=user,
        port=port,
        key_file=key and str(Path(key).expanduser()),
        known_hosts=known_hosts and str(Path(known_hosts).expanduser()),
        is_root=user == "root",
        timeout_s=int(variables.get("ansible_timeout", TIMEOUT_S)),
        groups=frozenset(groups),
        variables=variables,
        proxy=_proxy(options, kept, address, port, user),
        password=None if password is None else str(password),
        sudo_password=None if sudo_password is None else str(sudo_password),
        is_watched=is_watched,
    )


ROOT = Path(__file__).resolve().parents[2]
# The filter that role preflight reads with fills in templates and vaults, so that both judge the same values.
_QUESTION = "{{ {'groups': groups, 'hosts': hostvars | readable_variables(groups['all'], ['ansible_'])} }}"


def _closed_vaults(inventory: str, said: str) -> list[str]:
    """Return which files a password of the vault was wanted for, where that is what Ansible *said*: it names none."""
    if not re.search("Decryption failed|no vault secrets", said):
        return []
    place = Path(inventory) if Path(inventory).is_dir() else Path(inventory).parent
    found = [path for path in sorted(place.rglob("*")) if path.is_file() and _is_vault(path)]
    given = os.environ.get("ANSIBLE_VAULT_PASSWORD_FILE")
    from_where = f"was read from {given}" if given else "is missing: ANSIBLE_VAULT_PASSWORD_FILE names its file"
    return [f"vaults: {', '.join(map(str, found)) or 'values within variables'}; the password {from_where}"]


def _is_vault(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(14) == b"$ANSIBLE_VAULT"


def load(inventory: str) -> list[Target]:
    """Return the hosts of the inventory at *inventory*, by name, with variables as Ansible fills them in.

    Raises:
        InventoryError: Ansible cannot read it, or how to reach a host cannot be filled in.
    """
    # Beside this interpreter, where the locked Ansible is, and not whatever the path has.
    program = str(Path(sys.executable).with_name("ansible"))
    command = [program, "-i", inventory, "localhost", "-m", "ansible.builtin.debug", "-a", f"msg={_QUESTION}"]
    environment = {name: value for name, value in os.environ.items() if name != "ANSIBLE_FORCE_COLOR"} | {
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1",
        "ANSIBLE_FILTER_PLUGINS": str(ROOT / "plugins" / "filter"),
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    start = done.stdout.find("{")
    if done.returncode != 0 or start < 0:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise InventoryError("\n".join([said, *_closed_vaults(inventory, said)]))
    # Further callbacks of the operator's configuration, such as a recap of times, write behind the document.
    document, _ = json.JSONDecoder().raw_decode(done.stdout[start:])
    read = document["plays"][0]["tasks"][0]["hosts"]["localhost"]["msg"]
    found = []
    for name, variables in sorted(read["hosts"].items()):
        broken = {
            key: value[UNREADABLE]
            for key, value in variables.items()
            if isinstance(value, dict) and UNREADABLE in value
        }
        if wrong := [f"{key}: {why}" for key, why in broken.items() if key in ("*",) or key.startswith("ansible_")]:
            raise InventoryError(f"{name}: {'; '.join(wrong)}")
        known = {key: value for key, value in variables.items() if key not in broken}
        groups = {group for group, members in read["groups"].items() if name in members}
        found.append(target(name, known, groups, is_watched=bool(read["groups"].get("pylog_monitoring"))))
    return found

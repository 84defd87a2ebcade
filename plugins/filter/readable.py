"""Reads the variables of hosts so that one that cannot be filled in is named, and the others are still judged."""

import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2

# Ansible loads this file by itself; the checkout that it belongs to need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pylog.ops.preflight import ALL, UNREADABLE, verdict

ROOT = Path(__file__).resolve().parents[2]
# What Ansible itself brings is no business of preflight, but for how a host is reached.
CONNECTION = ("ansible_host", "ansible_port", "ansible_become", "ansible_connection")
OWN = ("__preflight_reading", "__preflight_repaired")
NOT_OURS = ("groups", "hostvars", "vars", "omit", "environment")


def _plain(value: Any) -> Any:  # noqa: ANN401  a variable holds anything
    """Return *value* with all its templates filled in.

    Raises:
        Exception: one cannot be; its message says why.
    """
    if isinstance(value, jinja2.Undefined):
        return str(value)  # raises what it stands for
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(one) for one in value]
    return value


def readable_variables(
    hostvars: Mapping[str, Any], names: Iterable[str], more: Iterable[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return host -> variable -> value; what cannot be read is ``{"__preflight_unreadable": why}``.

    Those that begin with one of *more* are returned too, passwords among them.
    """
    more = tuple(more)
    found: dict[str, dict[str, Any]] = {}
    for host in names:
        found[host] = {}
        try:
            variables = hostvars[host]
        except Exception as error:  # noqa: BLE001  a file of group_vars that its vault keeps shut
            found[host][ALL] = {UNREADABLE: str(error).splitlines()[0]}
            continue
        for name in variables:
            is_known = name in (*CONNECTION, *OWN) or name.startswith(more)
            if not is_known and (name in NOT_OURS or name.startswith(("ansible_", "__", "inventory_"))):
                continue
            try:
                found[host][name] = _plain(variables[name])
            except Exception as error:  # noqa: BLE001  whatever a template, a lookup or a vault raises
                found[host][name] = {UNREADABLE: str(error).splitlines()[0]}
    return found


def judge_inventory(
    hostvars: Mapping[str, Any],
    groups: Mapping[str, Iterable[str]],
    sources: Iterable[str],
    away: Iterable[str],
    is_repair: bool = False,
    secure: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return what `pylog.ops.preflight.verdict` says of an inventory and of the hosts that were read.

    Inside Ansible's own process: no sudo of the control machine is involved, and no task has the inventory's secrets
    among its arguments, so none has to be hidden.
    """
    members = {name: list(hosts) for name, hosts in groups.items()}
    hosts = readable_variables(hostvars, [*members["all"], *({"localhost"} - {*members["all"]})])
    question = {
        "groups": members,
        "hosts": hosts,
        "sources": list(sources),
        "away": list(away),
        "is_repair": bool(is_repair),
        "secure": {key: str(value) for key, value in (secure or {}).items()},
        "now_ms": time.time_ns() // 1_000_000,
    }
    # As JSON's own types, which are all that Ansible keeps.
    plain = json.loads(json.dumps(question, default=str))
    return dict(json.loads(json.dumps(verdict(plain, ROOT / "roles"))))


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Any]:
        """Return the filters of this file by name."""
        return {"readable_variables": readable_variables, "judge_inventory": judge_inventory}

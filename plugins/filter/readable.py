"""Reads the variables of hosts so that one that cannot be filled in is named, and the others are still judged."""

from collections.abc import Iterable, Mapping
from typing import Any

import jinja2

# What Ansible itself brings is no business of preflight, but for how a host is reached.
CONNECTION = ("ansible_host", "ansible_port", "ansible_become", "ansible_connection")
OWN = ("__preflight_reading",)
NOT_OURS = ("groups", "hostvars", "vars", "omit", "environment")
UNREADABLE = "__preflight_unreadable"
ALL = "*"


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


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Any]:
        """Return the filters of this role by name."""
        return {"readable_variables": readable_variables}

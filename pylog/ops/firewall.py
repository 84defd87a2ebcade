"""The packet filter of one host: what pylog's parts need from the networks that are trusted, SSH from anywhere.

A host's variables come in, the rules for ``nft -f`` go out; role `firewall` asks through a filter, inside Ansible's own
process.  The rules replace one table, ``inet pylog``, in one step, and touch no other table of the host.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pylog.ops.listeners import SPARK_GROUPS, Listener, Network, listeners, networks
from pylog.ops.preflight import load_specs

TABLE = "inet pylog"
DHCP_CLIENT_PORTS = (68, 546)


def rules(
    found: Iterable[Listener],
    trusted: Collection[Network],
    *,
    ssh_ports: Collection[int],
    open_ports: Collection[int] = (),
    open_udp_ports: Collection[int] = (),
    members: Mapping[int, Collection[str]] | None = None,
    peers: Collection[str] = (),
) -> str:
    """Return the table for ``nft -f``.

    Args:
        found: what listens on the host.
        trusted: the networks that may reach it.
        ssh_ports: ports of SSH, open to everybody; never empty, or nobody could get in again.
        open_ports: TCP ports of other programs of the host, open to everybody.
        open_udp_ports: UDP ports of other programs of the host, open to everybody.
        members: port -> addresses that alone may reach it, such as the other servers of an ensemble.
        peers: addresses of hosts that may reach every port; Spark's executors and drivers choose theirs by lot.
    """
    assert ssh_ports, "a host without a port for SSH would be locked"
    members = {port: addresses for port, addresses in (members or {}).items() if addresses}
    reachable = {one.port for one in found if not one.address.startswith("127.") and one.address != "::1"}
    ports = sorted(reachable - members.keys())
    lines = [
        "ct state established,related accept",
        "ct state invalid drop",
        'iifname "lo" accept',
        "meta l4proto { icmp, ipv6-icmp } accept",
        f"udp dport {_set(sorted({*DHCP_CLIENT_PORTS, *open_udp_ports}))} accept",
        f"tcp dport {_set(sorted({*ssh_ports, *open_ports}))} accept",
        *_from_trusted(trusted, f"tcp dport {_set(ports)} " if ports else ""),
        *(
            f"{_family(one)} saddr {one} tcp dport {port} accept"
            for port in sorted(members.keys() & reachable)
            for one in sorted({*members[port]})
        ),
        *(f"{_family(one)} saddr {one} accept" for one in sorted(peers)),
    ]
    body = "".join(f"    {line}\n" for line in ["type filter hook input priority filter; policy drop;", *lines])
    return (
        f"# Made anew in one step; other tables are not touched.\ntable {TABLE} {{}}\ndelete table {TABLE}\n"
        f"table {TABLE} {{\n  chain input {{\n{body}  }}\n}}\n"
    )


def _from_trusted(trusted: Collection[Network], match: str) -> Iterator[str]:
    for version, family in ((4, "ip"), (6, "ip6")):
        members = sorted(str(one) for one in trusted if one.version == version)
        if members and match:
            yield f"{family} saddr {_set(members)} {match}accept"


def _set(members: Iterable[object]) -> str:
    return "{ " + ", ".join(map(str, members)) + " }"


def _family(address: str) -> str:
    return "ip6" if ":" in address else "ip"


def rules_of(question: Mapping[str, Any], roles: Path) -> str:
    """Return the rules of one host.

    Args:
        question: ``variables``, ``groups`` and ``is_watched`` as `pylog.ops.listeners` takes them; the rest as `rules`.
        roles: directory of the roles, for their defaults.
    """
    found = listeners(question["variables"], question["groups"], load_specs(roles), is_watched=question["is_watched"])
    return rules(
        found,
        networks(question["variables"]),
        ssh_ports=question["ssh_ports"],
        open_ports=question["open_ports"],
        open_udp_ports=question["open_udp_ports"],
        members={int(port): addresses for port, addresses in question["members"].items()},
        peers=question["peers"] if {*question["groups"]} & {*SPARK_GROUPS} else [],
    )

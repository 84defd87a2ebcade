"""The packet filter of one host: what pylog's parts need from the networks that are trusted, SSH from anywhere.

Pure but for `main`, which role `firewall` calls on the control machine: a host's variables come in as JSON, the rules
for ``nft -f`` go out.  They replace one table, ``inet pylog``, in one step, and touch no other table of the host.
"""

import json
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from pylog.ops.listeners import SPARK_GROUPS, Listener, Network, listeners, networks
from pylog.ops.preflight import load_specs

TABLE = "inet pylog"


def rules(
    found: Iterable[Listener],
    trusted: Collection[Network],
    *,
    ssh_ports: Collection[int],
    open_ports: Collection[int] = (),
    peers: Collection[str] = (),
) -> str:
    """Return the table for ``nft -f``.

    Args:
        found: what listens on the host.
        trusted: the networks that may reach it.
        ssh_ports: ports of SSH, open to everybody; never empty, or nobody could get in again.
        open_ports: ports of other programs of the host, open to everybody.
        peers: addresses of hosts that may reach every port; Spark's executors and drivers choose theirs by lot.
    """
    assert ssh_ports, "a host without a port for SSH would be locked"
    ports = sorted({one.port for one in found if not one.address.startswith("127.") and one.address != "::1"})
    lines = [
        "ct state established,related accept",
        "ct state invalid drop",
        'iifname "lo" accept',
        "meta l4proto { icmp, ipv6-icmp } accept",
        "udp dport { 68, 546 } accept",
        f"tcp dport {_set(sorted({*ssh_ports, *open_ports}))} accept",
        *_from_trusted(trusted, f"tcp dport {_set(ports)} " if ports else ""),
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


def main(roles: Path) -> int:
    """Read ``{variables, groups, is_watched, ssh_ports, open_ports, peers}`` from stdin; print the rules."""
    asked = json.load(sys.stdin)
    found = listeners(asked["variables"], asked["groups"], load_specs(roles), is_watched=asked["is_watched"])
    peers = asked["peers"] if {*asked["groups"]} & {*SPARK_GROUPS} else []
    print(
        rules(
            found,
            networks(asked["variables"]),
            ssh_ports=asked["ssh_ports"],
            open_ports=asked["open_ports"],
            peers=peers,
        ),
        end="",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

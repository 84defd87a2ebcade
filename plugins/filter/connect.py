"""The filters by which role `connect` writes a worker's files and its connectors, and role `topics` its topics."""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

# Ansible loads this file by itself; the checkout that it belongs to need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pylog.connect.document import with_dead_letters
from pylog.connect.properties import for_all_clients, login_line, properties
from pylog.connect.topics import internal_topics, workers_of


def java_properties(settings: Mapping[str, object]) -> str:
    """Return settings as the lines of a file of Java's, without the last end of line."""
    return properties(settings).removesuffix("\n")


def dead_letters(connectors: Iterable[Mapping[str, Any]], group: str, replication_factor: int) -> list[dict[str, Any]]:
    """Return connectors of which each sink has a topic for records that it cannot convert."""
    return with_dead_letters(list(connectors), str(group), int(replication_factor))


def workers_topics(hosts: Iterable[Mapping[str, Any]], place: str) -> list[dict[str, Any]]:
    """Return the topics that workers on *hosts* keep in datacenter *place*, as role `topics` takes them."""
    return internal_topics(list(hosts), str(place))


def sharing_workers(names: Iterable[str], hostvars: Mapping[str, Any], host: str) -> list[str]:
    """Return those of *names* whose workers are in the group of *host*'s worker, in the order given."""
    return [name for name in names if workers_of(hostvars[name]) == workers_of(hostvars[host])]


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> filter."""
        return {
            "workers_topics": workers_topics,
            "dead_letters": dead_letters,
            "for_all_clients": for_all_clients,
            "java_properties": java_properties,
            "login_line": login_line,
            "sharing_workers": sharing_workers,
        }

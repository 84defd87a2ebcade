"""The three topics in which the workers of a group keep connectors, offsets and states.

Pure.  Source: ``KafkaConfigBackingStore``, ``KafkaOffsetBackingStore`` and ``KafkaStatusBackingStore`` of Kafka 3.9.2.
A worker makes them where it may, and ends where one that is there is not compacted or the first has two partitions.
"""

from collections.abc import Iterable, Mapping
from typing import Any

_DEFAULTS = {
    "connect_group": "connect",
    "connect_replication_factor": 3,
    "connect_offset_partitions": 25,
    "connect_status_partitions": 5,
}


def workers_of(host: Mapping[str, Any]) -> tuple[str, str]:
    """Return datacenter and group of the worker on a host, by the host's variables."""
    place = str(host.get("connect_datacenter") or host.get("pylog_datacenter") or "all")
    return place, str(host.get("connect_group") or _DEFAULTS["connect_group"])


def internal_topics(hosts: Iterable[Mapping[str, Any]], place: str) -> list[dict[str, Any]]:
    """Return the topics of workers in datacenter *place*, each once, as ``pylog topic apply`` takes them.

    Args:
        hosts: the variables of each worker's host.
        place: name of a datacenter.
    """
    found: dict[str, dict[str, Any]] = {}
    for host in hosts:
        if workers_of(host)[0] != place:
            continue
        given = {name: host.get(name) or default for name, default in _DEFAULTS.items()}
        for suffix, partitions in (
            ("configs", 1),
            ("offsets", given["connect_offset_partitions"]),
            ("status", given["connect_status_partitions"]),
        ):
            name = f"{given['connect_group']}-{suffix}"
            found[name] = {
                "name": name,
                "partitions": int(str(partitions)),
                "replication_factor": int(str(given["connect_replication_factor"])),
                "config": {"cleanup.policy": "compact"},
            }
    return list(found.values())

"""Which instances restart, why, and in which order.

The decision compares what runs with what is installed; it remembers nothing, so a run that died between writing a file
and restarting loses no restart, and a second run restarts nothing.  Readings come from `pylog.ops.host`.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """One restart to make, with its reasons in an operator's words."""

    host: str
    id: int
    unit: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Restarts in the order they must happen, or the reasons why none may happen now.

    Invariant: whoever carries the plan out makes no restart while there is a blocker.
    """

    restarts: tuple[Restart, ...]
    blockers: tuple[str, ...]


def broker_reasons(reading: Mapping[str, Any], version: str) -> tuple[str, ...]:
    """Return why this broker must restart to run *version* with the files that are installed; empty if it need not."""
    if not reading["is_active"]:
        return ()
    reasons = [f"{path} changed since the process started" for path in reading["changed_files"]]
    status = reading["status"]
    if status is not None and status["release"] != version:
        reasons.append(f"runs release {status['release']}, installed is {version}")
    if status is not None and status["config_hash"] != reading["config_hash"]:
        reasons.append(f"runs configuration {status['config_hash']}, installed is {reading['config_hash']}")
    return tuple(reasons)


def zookeeper_reasons(reading: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why this ZooKeeper server must restart; empty if it need not."""
    return tuple(f"{path} changed since the process started" for path in reading["changed_files"])


def is_recovering(reading: Mapping[str, Any]) -> bool:
    """Say whether a broker is reading its logs after a crash; a restart would make it begin again."""
    return (reading.get("status") or {}).get("state") == "recovering"


def leads(reading: Mapping[str, Any]) -> bool:
    """Say whether this is the controller or the ensemble's leader, which restarts last."""
    if reading.get("mode") == "leader":
        return True
    status = reading.get("status") or {}
    return bool(status) and status.get("controller_id") == reading["id"]


def plan(readings: Iterable[tuple[str, Mapping[str, Any]]], version: str | None) -> Plan:
    """Return the restarts that (host, reading) pairs call for; *version* is None for ZooKeeper.

    Instances that are not well restart first, since they serve nobody; then the others by host and id; controllers and
    leaders last.  An instance that is unwell and would not be restarted blocks everything: taking down another one
    beside it could take a partition offline.
    """
    due: list[tuple[tuple[bool, bool, str, int], Restart]] = []
    blockers = []
    for host, reading in readings:
        name = f"{reading['unit']} on {host}"
        reasons = zookeeper_reasons(reading) if version is None else broker_reasons(reading, version)
        if is_recovering(reading):
            blockers.append(f"{name} is recovering its log; run again when it is done")
        elif reasons:
            order = (reading["is_ready"], leads(reading), host, reading["id"])
            due.append((order, Restart(host=host, id=reading["id"], unit=reading["unit"], reasons=reasons)))
        elif not reading["is_ready"]:
            blockers.append(f"{name} is not well: {reading['reason']}")
    return Plan(
        restarts=tuple(restart for _, restart in sorted(due, key=lambda pair: pair[0])), blockers=tuple(blockers)
    )


def main() -> int:
    """Read ``{"version": ..., "readings": {host: what pylog.ops.host printed}}`` from stdin; print the plan as JSON."""
    question = json.load(sys.stdin)
    pairs = [
        (host, reading)
        for host, printed in question["readings"].items()
        for reading in printed.get("brokers", [printed])
    ]
    print(json.dumps(asdict(plan(pairs, question["version"]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

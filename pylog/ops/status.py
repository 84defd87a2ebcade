"""What runs where: questions to a host, and its answers as rows of a table.  Pure."""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pylog.ops.inventory import Target
from pylog.ops.orphans import EXPORTER, PROGRAMS

HEADER = ("host", "unit", "state", "detail")
HOST_PROGRAM = Path(__file__).with_name("host.py").read_text()


def questions(target: Target) -> dict[str, str]:
    """Return verb -> command to run on *target*."""
    asked: dict[str, dict[str, Any]] = {"units": {"units": units(target)}}
    if target.broker_ids:
        asked["brokers"] = {"brokers": target.broker_ids}
    if "pylog_zookeeper" in target.groups:
        port = target.variables.get("zookeeper_client_port", 2181)
        started = "/run/pylog-zookeeper/started"
        zookeeper_id = target.variables["zookeeper_id"]
        # Whether the ensemble is complete is the deployment's question; one member asks for the role alone.
        asked["zookeeper"] = {"id": zookeeper_id, "port": port, "members": 1, "started_file": started}
    # As an argument: Fabric sends standard input character by character, a hundredth of a second each.
    program = f"{target.sudo}python3 -c {shlex.quote(HOST_PROGRAM)}"
    return {verb: f"{program} {verb} {shlex.quote(json.dumps(wanted))}" for verb, wanted in asked.items()}


def units(target: Target) -> dict[str, str]:
    """Return the units that *target* should run -> the record of what each started with, empty where none is kept."""
    found: dict[str, str] = {}
    if not any(group.startswith("pylog_") for group in target.groups):
        return found
    if _is(target, "firewall_enabled"):
        found["pylog-firewall.service"] = "/run/pylog-firewall/started"
    if "pylog_zookeeper" in target.groups:
        found["pylog-zookeeper.service"] = "/run/pylog-zookeeper/started"
    for broker_id in target.broker_ids:
        found[f"pylog-broker@{broker_id}.service"] = f"/run/pylog/broker-{broker_id}.started"
    if target.broker_ids:
        found["cron.service"] = ""
    for unit, groups in PROGRAMS.items():
        if {*groups} & target.groups and _is_wanted(target, unit):
            found |= {one: _record(one) for one in _instances(target, unit)}
    if target.is_watched:
        found[EXPORTER] = _record(EXPORTER)
    return found


def _instances(target: Target, unit: str) -> list[str]:
    """Return the units that *unit* of `PROGRAMS` stands for on *target*."""
    if "@" not in unit:
        return [unit]
    return [unit.replace("@", f"@{query['name']}") for query in target.variables.get("stream_queries") or []]


def _record(unit: str) -> str:
    """Return the file in which *unit* notes what it started with; empty for a timer, which keeps none."""
    name, _, kind = unit.rpartition(".")
    if "@" in name:
        return f"/run/pylog/{name.removeprefix('pylog-').replace('@', '-')}.started"
    return f"/run/{name}/started" if kind == "service" else ""


def _is_wanted(target: Target, unit: str) -> bool:
    """Say whether the variables of *target*, which is in a group of *unit*, have it run there."""
    match unit:
        case "pylog-ingest.service":
            return _is(target, "ingest_continuous")
        case "pylog-ingest.timer":
            return not _is(target, "ingest_continuous")
        case "pylog-compact.timer":
            return (
                _seconds(target, "ingest_compact_interval_s") > 0 and _value(target, "ingest_table_format") == "parquet"
            )
        case "pylog-audit-lake.timer":
            return _seconds(target, "ingest_audit_interval_s") > 0
        case "pylog-audit-report.timer":
            return bool(_value(target, "audit_ledgers"))
        case "pylog-alertmanager.service":
            return bool(_value(target, "monitoring_alertmanager"))
    return True


DEFAULTS: Mapping[str, Any] = {
    "audit_ledgers": [],
    "firewall_enabled": False,
    "ingest_audit_interval_s": 60,
    "ingest_compact_interval_s": 3600,
    "ingest_continuous": False,
    "ingest_table_format": "parquet",
    "monitoring_alertmanager": {},
}
"""Variable that decides on a unit -> what it is where the inventory does not set it: the role's own default."""


def _value(target: Target, name: str) -> Any:  # noqa: ANN401  a variable holds anything
    return target.variables.get(name, DEFAULTS[name])


def _is(target: Target, name: str) -> bool:
    # Text where a template or the command line made it.
    return str(_value(target, name)).lower() in ("true", "yes", "on", "1")


def _seconds(target: Target, name: str) -> int:
    return int(_value(target, name))


def rows(host: str, answers: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    """Return a row for each unit of *host* from what `questions` brought."""
    details = {reading["unit"]: broker_detail(reading) for reading in answers.get("brokers", {}).get("brokers", [])}
    if "zookeeper" in answers:
        details["pylog-zookeeper.service"] = answers["zookeeper"]["mode"] or "silent"
    for unit, reading in answers["units"]["units"].items():
        changed = reading["changed_files"]
        detail = [details.get(unit, ""), f"restart due: {', '.join(changed)}" if changed else ""]
        yield host, unit, reading["state"], "; ".join(filter(None, detail))


def broker_detail(reading: Mapping[str, Any]) -> str:
    """Return what a broker says of itself in one line."""
    status = reading["status"]
    if status is None:
        return str(reading["reason"])
    words = [f"release {status['release']}", str(status["state"])]
    words.append("in sync" if reading["is_ready"] else f"not ready: {reading['reason']}")
    if status.get("controller_id") == reading["id"]:
        words.append("controller")
    # A release of before says neither.
    if status.get("format_level", 0) < status.get("newest_format_level", 0):
        words.append(f"not finalized: formats of level {status['format_level']}")
    return ", ".join(words)


def is_well(answers: Mapping[str, Mapping[str, Any]]) -> bool:
    """Say whether every unit runs with what is installed, and every server is in its cluster."""
    running = all(unit["is_active"] and not unit["changed_files"] for unit in answers["units"]["units"].values())
    return running and all(answers[verb]["is_ready"] for verb in ("brokers", "zookeeper") if verb in answers)

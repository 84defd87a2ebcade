"""`pylog acl denials` and `pylog acl clients`: what brokers of this host would deny, and who uses which listener."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import FormatOption, format_of
from pylog.cli.output import Column, emit, note, table
from pylog.client.admin.broker_socket import RUN_DIR, ask, socket_of
from pylog.errors import Unreachable

Brokers = Annotated[
    list[int] | None, typer.Option("--broker", metavar="ID", help="Ask this broker of this host; repeatable.")
]
Sockets = Annotated[
    list[Path] | None,
    typer.Option("--socket", metavar="PATH", help="Ask the broker at this admin socket; repeatable."),
]

_DENIALS = [Column(name) for name in ("principal", "operation", "resource", "name", "request", "count", "last")] + [
    Column("host", is_wide=True),
    Column("broker", is_wide=True),
]
_CLIENTS = [Column(name) for name in ("listener", "protocol", "principal", "last")] + [Column("broker", is_wide=True)]


def denials(broker: Brokers = None, socket: Sockets = None, format: FormatOption = None) -> None:
    """Show what brokers of this host would deny (authorizer.mode: report), or have denied, the latest first.

    A broker forgets it when it restarts. Without options all brokers of this host are asked.
    """
    answers = _answers(broker, socket)
    rows = _latest(
        {**row, "last": _time(row["last_ms"]), "broker": name}
        for name, answer in answers.items()
        for row in answer["denials"]
    )
    emit(format_of(format), {"modes": _modes(answers), "denials": rows}, lambda wide: table(rows, _DENIALS, wide))
    for name, mode in _modes(answers).items():
        if mode == "off":
            note(f"{name} has no authorizer: nobody asks for rights there")
        if answers[name]["dropped"]:
            note(f"{name} had no room for {answers[name]['dropped']} more kinds; see its log")


def clients(broker: Brokers = None, socket: Sockets = None, format: FormatOption = None) -> None:
    """Show who sent the last request when, by listener; a listener that nobody has used has a row too.

    A broker forgets it when it restarts. Without options all brokers of this host are asked.
    """
    answers = _answers(broker, socket)
    rows = _latest(
        {**row, "last": _time(row["last_ms"]), "broker": name}
        for name, answer in answers.items()
        for row in answer["last_requests"]
    )
    data = {"started_ms": {name: answer["started_ms"] for name, answer in answers.items()}, "clients": rows}
    emit(format_of(format), data, lambda wide: table(rows, _CLIENTS, wide))


def _latest(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: -row["last_ms"])


def _modes(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {name: str(answer["mode"]) for name, answer in answers.items()}


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if ms else "never"


def _answers(brokers: Sequence[int] | None, sockets: Sequence[Path] | None) -> dict[str, Mapping[str, Any]]:
    """Return name of the socket -> what the broker said."""
    given = [*map(socket_of, brokers or ()), *(sockets or ())]
    paths = given or sorted(RUN_DIR.glob("broker-*.sock"))
    if not paths:
        raise Failure(
            faults.NO_BROKER_HERE,
            where=str(RUN_DIR),
            found="no broker-*.sock",
            wanted="a broker",
            next="systemctl status 'pylog-broker@*'",
        )
    found: dict[str, Mapping[str, Any]] = {}
    for path in paths:
        try:
            status, answer = ask(path, "GET", "/rights")
        except Unreachable as error:
            raise _silent(path, str(error)) from error
        if status != 200:
            raise _silent(path, f"status {status}")
        found[path.stem if path.parent == RUN_DIR else str(path)] = answer
    return found


def _silent(path: Path, found: str) -> Failure:
    return Failure(
        faults.HOST_BROKERS_SILENT,
        where=str(path),
        found=found,
        wanted="a reply to GET /rights, which brokers of release 0.2.0 give",
        next="systemctl status 'pylog-broker@*'",
    )

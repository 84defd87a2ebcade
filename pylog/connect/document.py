"""Connectors as code: what somebody wants of them against what the workers have, and what follows.

Pure: a document and the connectors there are come in, changes go out.  ``pylog connect apply`` carries them out.

document  => {"connectors": [connector], "absent": [name]}          (both keys may be left out)
connector => {"name": string, "config": {setting: value}, "state": "running" | "paused" | "stopped"}

A connector has exactly the settings that the document gives it.  One that the document does not name is left alone, and
one is deleted only where `absent` names it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pylog.errors import ConfigError

MASK = "****"
CLASS = "connector.class"

_SECRET = re.compile(r"(?i)password|passphrase|secret|token|credential|jaas|api[._-]?key|private[._-]?key")
# A value that Connect looks up when a task starts says where a secret is, and not what it is.
_PLACEHOLDER = re.compile(r"\$\{[^}]+\}")
_ROW_KEYS = {"name", "config", "state"}


class State(StrEnum):
    """What a connector should do."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


class Action(StrEnum):
    """What is done to a connector."""

    CREATE = "create"
    CONFIGURE = "configure"
    RUN = "run"
    PAUSE = "pause"
    STOP = "stop"
    DELETE = "delete"


_TOWARDS = {State.RUNNING: Action.RUN, State.PAUSED: Action.PAUSE, State.STOPPED: Action.STOP}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A connector as the document has it."""

    name: str
    config: Mapping[str, str]
    state: State = State.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A connector as the workers have it; `state` is Connect's own word in lower case, ``failed`` among them."""

    config: Mapping[str, str]
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not as wanted.

    Attributes:
        what: the name of a setting, ``state``, or ``connector`` for all of it.
        found: what is there; None where nothing is.  Secrets are masked.
        wanted: what should be; None where nothing should.  Secrets are masked.
    """

    connector: str
    what: str
    found: str | None
    wanted: str | None

    def __str__(self) -> str:
        return f"{self.connector}: {self.what}: found {self.found or 'none'}, wanted {self.wanted or 'none'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One request to the workers, and the differences that it removes."""

    action: Action
    connector: str
    differences: tuple[Difference, ...]
    config: Mapping[str, str] = field(default_factory=dict)
    state: State = State.RUNNING


def read(document: object) -> tuple[list[Wanted], list[str]]:
    """Return the wanted connectors and the names that must not be there.

    Raises:
        ConfigError: all that is wrong with the document, each with connector, what was found and what is wanted.
    """
    if not isinstance(document, Mapping):
        raise ConfigError(f"the document: found {document!r}, wanted a mapping with connectors and absent")
    wrong = [
        f"the document: found the key {key!r}, wanted connectors or absent"
        for key in document.keys() - {"connectors", "absent"}
    ]
    rows, absent = document.get("connectors") or [], document.get("absent") or []
    for name, value in (("connectors", rows), ("absent", absent)):
        if not isinstance(value, list):
            raise ConfigError(f"{name}: found {value!r}, wanted a list")
    wrong += [
        f"absent: found {name!r}, wanted the name of a connector"
        for name in absent
        if not isinstance(name, str) or not name
    ]
    wanted = []
    for number, row in enumerate(rows, 1):
        faults = list(_faults_of_row(row))
        wrong += [f"connector {_label(row, number)}: {text}" for text in faults]
        if not faults:
            config = {key: _text(value) for key, value in row["config"].items()}
            wanted.append(
                Wanted(
                    name=row["name"], config=config | {"name": row["name"]}, state=State(row.get("state", "running"))
                )
            )
    names = [one.name for one in wanted]
    wrong += [
        f"connector {name}: found twice, wanted once" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    wrong += [
        f"connector {name}: found under connectors and absent, wanted in one of them"
        for name in names
        if name in absent
    ]
    if wrong:
        raise ConfigError("; ".join(wrong))
    return wanted, list(dict.fromkeys(absent))


def compare(wanted: Sequence[Wanted], absent: Sequence[str], there: Mapping[str, Found]) -> list[Change]:
    """Return what makes the connectors as wanted, deletions first: a new one may take over what an old one did."""
    changes = [
        Change(
            action=Action.DELETE,
            connector=name,
            differences=(Difference(connector=name, what="connector", found=there[name].state, wanted=None),),
        )
        for name in absent
        if name in there
    ]
    for one in wanted:
        changes += _towards(one, there.get(one.name))
    return changes


def with_dead_letters(
    connectors: Sequence[Mapping[str, Any]], group: str, replication_factor: int
) -> list[dict[str, Any]]:
    """Return rows of a document of which each sink puts records that it cannot convert into a topic of its own.

    A sink that says itself what happens to such records keeps what it says.

    Args:
        connectors: rows that `read` has found good.
        group: of the workers; the topics are ``GROUP-dead-letters-NAME``.
        replication_factor: of those topics, which Connect makes when a sink starts.
    """
    return [{**row, "config": {**_dead_letters(row, group, replication_factor), **row["config"]}} for row in connectors]


def _dead_letters(row: Mapping[str, Any], group: str, replication_factor: int) -> dict[str, str]:
    config = row["config"]
    is_sink = "topics" in config or "topics.regex" in config
    if not is_sink or any(key == "errors.tolerance" or key.startswith("errors.deadletterqueue.") for key in config):
        return {}
    return {
        "errors.tolerance": "all",
        "errors.log.enable": "true",
        "errors.deadletterqueue.topic.name": f"{group}-dead-letters-{row['name']}",
        "errors.deadletterqueue.topic.replication.factor": str(replication_factor),
        "errors.deadletterqueue.context.headers.enable": "true",
    }


def shown(setting: str, value: str) -> str:
    """Return *value* as it may be printed: what the name of its setting calls a secret is masked."""
    return MASK if _SECRET.search(setting) and not _PLACEHOLDER.fullmatch(value) else value


def _towards(one: Wanted, found: Found | None) -> Iterator[Change]:
    if found is None:
        created = Difference(connector=one.name, what="connector", found=None, wanted=str(one.state))
        settings = _settings(one.name, {}, one.config)
        yield Change(
            action=Action.CREATE,
            connector=one.name,
            differences=(created, *settings),
            config=one.config,
            state=one.state,
        )
        return
    if changed := tuple(_settings(one.name, found.config, one.config)):
        yield Change(action=Action.CONFIGURE, connector=one.name, differences=changed, config=one.config)
    # A connector that failed was meant to run: whoever watches the workers starts it again.
    state = State.RUNNING if found.state in ("failed", "unassigned", "restarting") else found.state
    if state != one.state:
        moved = Difference(connector=one.name, what="state", found=found.state, wanted=str(one.state))
        yield Change(action=_TOWARDS[one.state], connector=one.name, differences=(moved,), state=one.state)


def _settings(name: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[Difference]:
    for key in sorted(found.keys() | wanted.keys()):
        before, after = found.get(key), wanted.get(key)
        if key != "name" and before != after:
            yield Difference(
                connector=name,
                what=key,
                found=None if before is None else shown(key, before),
                wanted=None if after is None else shown(key, after),
            )


def _faults_of_row(row: object) -> Iterator[str]:
    if not isinstance(row, Mapping):
        yield f"found {row!r}, wanted a mapping with name and config"
        return
    for key in sorted(map(str, row.keys() - _ROW_KEYS)):
        yield f"found the key {key!r}, wanted name, config or state"
    name, config = row.get("name"), row.get("config")
    if not isinstance(name, str) or not name.strip():
        yield f"name: found {name!r}, wanted a name"
    if row.get("state", "running") not in list(State):
        yield f"state: found {row['state']!r}, wanted running, paused or stopped"
    if not isinstance(config, Mapping):
        yield f"config: found {config!r}, wanted a mapping of settings"
        return
    for key, value in config.items():
        if not isinstance(key, str) or not isinstance(value, str | int | float | bool):
            yield f"config {key}: found {type(value).__name__}, wanted a text, a number, true or false"
    if not config.get(CLASS):
        yield f"config: found no {CLASS}, wanted the class of the connector"
    if "name" in config and config["name"] != name:
        yield f"config name: found {config['name']!r}, wanted {name!r} or nothing"


def _label(row: object, number: int) -> str:
    name = row.get("name") if isinstance(row, Mapping) else None
    return name if isinstance(name, str) and name else f"number {number}"


def _text(value: object) -> str:
    """Return a setting as Connect keeps it: YAML's true and 1 are texts there."""
    return str(value).lower() if isinstance(value, bool) else str(value)

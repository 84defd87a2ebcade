"""Topics as code: what somebody wants of a cluster's topics against what there is, and what follows.

Pure: a document and the found topics come in, changes and refusals go out.  ``pylog topic apply`` carries them out.

document => {"topics": [topic], "absent": [name]}          (both keys may be left out)
topic    => {"name": string, "partitions": int, "replication_factor": int, "config": {setting: value | null}}

What a topic does not name is left as it is; a setting that is null goes back to the brokers' value.  Partitions are
only ever added, and a topic is deleted only where `absent` names it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pylog.errors import ConfigError

INTERNAL_PREFIX = "__"
"""Topics that the brokers keep for themselves begin with it; nobody deletes them by a document."""

_KEYS: Mapping[str, type] = {"name": str, "partitions": int, "replication_factor": int, "config": dict}
_COUNTS = ("partitions", "replication_factor")
_WHOLE = re.compile(r"\d{1,9}", re.ASCII)


class Action(StrEnum):
    """What is done to a topic."""

    CREATE = "create"
    GROW = "grow"
    CONFIGURE = "configure"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A topic as the document has it; None and what `config` does not name are left as they are."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A topic as the cluster has it, with the settings that it sets itself."""

    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not as wanted.

    Attributes:
        what: partitions, replication_factor, the name of a setting, or topic for all of it.
        found: what is there; None where nothing is.
        wanted: what should be; None where nothing should, or the brokers' value.
    """

    topic: str
    what: str
    found: str | None
    wanted: str | None

    def __str__(self) -> str:
        return f"{self.topic}: {self.what}: found {self.found or 'none'}, wanted {self.wanted or 'none'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One request to the cluster, and the differences it does away with."""

    action: Action
    topic: str
    differences: tuple[Difference, ...]
    partitions: int | None = None
    replication_factor: int | None = None
    set: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A difference that is not done away with, and the step that would."""

    difference: Difference
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is to be done, in order, and what is refused; with one refusal nothing is done."""

    changes: tuple[Change, ...]
    refusals: tuple[Refusal, ...]


def read(document: object) -> tuple[list[Wanted], list[str]]:
    """Return the wanted topics and the names that must not be there.

    Raises:
        ConfigError: all that is wrong with the document, each with topic, what was found and what is wanted.
    """
    if not isinstance(document, Mapping):
        raise ConfigError(f"the document: found {_kind(document)}, wanted a mapping with topics and absent")
    wrong = [
        f"the document: found the key {key!r}, wanted topics or absent"
        for key in document.keys() - {"topics", "absent"}
    ]
    rows, absent = document.get("topics") or [], document.get("absent") or []
    for name, value in (("topics", rows), ("absent", absent)):
        if not isinstance(value, list):
            raise ConfigError(f"{name}: found {_kind(value)}, wanted a list")
    wrong += [f"absent: found {name!r}, wanted the name of a topic" for name in absent if not isinstance(name, str)]
    for number, row in enumerate(rows):
        wrong += _wrong_topic(number, row)
    if wrong:
        raise ConfigError("; ".join(wrong))
    wanted = [_wanted(row) for row in rows]
    names = [one.name for one in wanted]
    wrong += [
        f"topic {name}: found {names.count(name)} times, wanted once"
        for name in sorted({*names})
        if names.count(name) > 1
    ]
    wrong += [
        f"topic {name}: found in topics and in absent, wanted in one of them" for name in sorted({*names} & {*absent})
    ]
    if wrong:
        raise ConfigError("; ".join(wrong))
    return wanted, absent


def _wrong_topic(number: int, row: object) -> Iterator[str]:
    if not isinstance(row, Mapping):
        yield f"topics[{number}]: found {_kind(row)}, wanted a mapping with a name"
        return
    name = row.get("name")
    where = f"topic {name}" if isinstance(name, str) and name else f"topics[{number}]"
    if not isinstance(name, str) or not name:
        yield f"{where}: name: found {name!r}, wanted the name of a topic"
    for key in row.keys() - _KEYS.keys():
        yield f"{where}: found the key {key!r}, wanted one of {', '.join(_KEYS)}"
    for key in _COUNTS:
        value = row.get(key)
        # Ansible's templates make text of numbers.
        is_number = isinstance(value, int) and not isinstance(value, bool)
        is_text = isinstance(value, str) and _WHOLE.fullmatch(value)
        if value is not None and (not (is_number or is_text) or int(value) < 1):
            yield f"{where}: {key}: found {value!r}, wanted a number from 1"
    config = row.get("config") or {}
    if not isinstance(config, Mapping):
        yield f"{where}: config: found {_kind(config)}, wanted a mapping of settings"
        return
    for setting, value in config.items():
        if isinstance(value, Mapping | list):
            yield f"{where}: {setting}: found {_kind(value)}, wanted one value"


def _wanted(row: Mapping[str, Any]) -> Wanted:
    counts = {key: int(row[key]) for key in _COUNTS if row.get(key) is not None}
    config = {str(name): _text(value) for name, value in (row.get("config") or {}).items()}
    return Wanted(name=row["name"], config=config, **counts)


def _text(value: object) -> str | None:
    """Return a setting as the protocol carries it; YAML's true is Kafka's ``true``."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(value: object) -> str:
    return {dict: "a mapping", list: "a list", str: "text", type(None): "nothing"}.get(type(value), repr(value))


def compare(wanted: Sequence[Wanted], absent: Sequence[str], found: Mapping[str, Found]) -> Verdict:
    """Return what makes the *found* topics the *wanted* ones, and what of it nobody may do without being asked."""
    changes: list[Change] = []
    refusals: list[Refusal] = []
    for topic in wanted:
        if topic.name not in found:
            changes.append(_creation(topic))
            continue
        there = found[topic.name]
        refusals += _refusals(topic, there)
        changes += [*_growth(topic, there), *_configuration(topic, there)]
    for name in absent:
        if name not in found:
            continue
        difference = Difference(topic=name, what="topic", found=f"{found[name].partitions} partitions", wanted=None)
        if name.startswith(INTERNAL_PREFIX):
            remedy = f"take {name} out of absent: the brokers keep it for themselves"
            refusals.append(Refusal(difference=difference, remedy=remedy))
        else:
            changes.append(Change(action=Action.DELETE, topic=name, differences=(difference,)))
    return Verdict(changes=tuple(changes), refusals=tuple(refusals))


def _creation(topic: Wanted) -> Change:
    counts = {key: getattr(topic, key) for key in _COUNTS}
    values = {name: value for name, value in topic.config.items() if value is not None}
    said = {**{key: str(value) if value else "the brokers' default" for key, value in counts.items()}, **values}
    differences = tuple(
        Difference(topic=topic.name, what=what, found=None, wanted=value) for what, value in said.items()
    )
    return Change(action=Action.CREATE, topic=topic.name, differences=differences, set=values, **counts)


def _refusals(topic: Wanted, there: Found) -> Iterator[Refusal]:
    if topic.partitions is not None and topic.partitions < there.partitions:
        yield Refusal(
            difference=_count(topic.name, "partitions", there.partitions, topic.partitions),
            remedy=f"want {there.partitions}, or make a new topic: records never leave their partition",
        )
    if topic.replication_factor is not None and topic.replication_factor != there.replication_factor:
        yield Refusal(
            difference=_count(topic.name, "replication_factor", there.replication_factor, topic.replication_factor),
            remedy=f"pylog partition reassign --topic {topic.name} --replication-factor {topic.replication_factor} "
            "--execute",
        )


def _growth(topic: Wanted, there: Found) -> Iterator[Change]:
    if topic.partitions is not None and topic.partitions > there.partitions:
        difference = _count(topic.name, "partitions", there.partitions, topic.partitions)
        yield Change(action=Action.GROW, topic=topic.name, differences=(difference,), partitions=topic.partitions)


def _configuration(topic: Wanted, there: Found) -> Iterator[Change]:
    different = {name: value for name, value in topic.config.items() if there.config.get(name) != value}
    if different:
        differences = tuple(
            Difference(topic=topic.name, what=name, found=there.config.get(name), wanted=value)
            for name, value in different.items()
        )
        yield Change(
            action=Action.CONFIGURE,
            topic=topic.name,
            differences=differences,
            set={name: value for name, value in different.items() if value is not None},
            unset=tuple(name for name, value in different.items() if value is None),
        )


def _count(topic: str, what: str, found: int, wanted: int) -> Difference:
    return Difference(topic=topic, what=what, found=str(found), wanted=str(wanted))

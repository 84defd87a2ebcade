"""What each request of the registry needs, where its users log in: a row for each route.

Pure.  The operation is asked for the topics of the subjects that a request is about (`pylog.registry.access`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pylog.registry import apicurio, faults
from pylog.registry.records import Mode
from pylog.registry.routes import Ask
from pylog.registry.state import Registry
from pylog.security.acl import Operation

MAX_REFERENCES = 100
"""Subjects that one request may refer to; a schema names few."""

Touched = Callable[[Registry, Ask], Collection[str]]


def _named(registry: Registry, ask: Ask) -> Collection[str]:
    return [ask.path["subject"]]


def _holders(registry: Registry, ask: Ask) -> Collection[str]:
    return {one.subject for one in registry.by_id(ask.schema_id)}


def _all(registry: Registry, ask: Ask) -> Collection[str]:
    return []


@dataclass(frozen=True, slots=True)
class Rule:
    """What one route needs.

    Attributes:
        operation: with one of the subjects that it touches; None for whoever logged in.
        touched: returns those subjects; none stands for all.
        is_list: whether what the person may not see is left out of the answer.
        is_for_all: whether a request touches what all subjects share, so that it needs Write for all of them.
    """

    operation: Operation | None = None
    touched: Touched = _all
    is_list: bool = False
    is_for_all: Callable[[Ask], bool] = lambda ask: False

    def of(self, ask: Ask) -> "Rule":
        """Return the rule that holds for one request."""
        return _ALTER_ALL if self.is_for_all(ask) else self


def _gives_numbers(ask: Ask) -> bool:
    """Return whether the client chooses an id or a version: ids are given to all subjects from one row."""
    return any(isinstance(number := ask.body.get(name), int) and number > 0 for name in ("id", "version"))


def _begins_import(ask: Ask) -> bool:
    return str(ask.body.get("mode")).upper() == Mode.IMPORT


_ANYBODY = Rule()
_SEE = Rule(Operation.DESCRIBE, _named)
_SEE_ID = Rule(Operation.DESCRIBE, _holders)
_LIST = Rule(Operation.DESCRIBE, is_list=True)
_REGISTER = Rule(Operation.WRITE, _named, is_for_all=_gives_numbers)
_REMOVE = Rule(Operation.DELETE, _named)
_ALTER = Rule(Operation.ALTER_CONFIGS, _named)
_SET_MODE = Rule(Operation.ALTER_CONFIGS, _named, is_for_all=_begins_import)
_ALTER_ALL = Rule(Operation.WRITE)

RULES: Mapping[tuple[str, str], Rule] = {
    ("GET", "/"): _ANYBODY,
    ("GET", "/subjects"): _LIST,
    ("POST", "/subjects/{subject}"): _SEE,
    ("GET", "/subjects/{subject}/versions"): _SEE,
    ("GET", "/subjects/{subject}/versions/{version}"): _SEE,
    ("GET", "/subjects/{subject}/versions/{version}/schema"): _SEE,
    ("GET", "/subjects/{subject}/versions/{version}/referencedby"): _SEE,
    ("GET", "/schemas"): _LIST,
    ("GET", "/schemas/types"): _ANYBODY,
    ("GET", "/schemas/ids/{id}"): _SEE_ID,
    ("GET", "/schemas/ids/{id}/schema"): _SEE_ID,
    ("GET", apicurio.GLOBAL_ID): _SEE_ID,
    ("GET", apicurio.REFERENCES): _SEE_ID,
    ("GET", "/schemas/ids/{id}/subjects"): _LIST,
    ("GET", "/schemas/ids/{id}/versions"): _LIST,
    ("POST", "/compatibility/subjects/{subject}/versions"): _SEE,
    ("POST", "/compatibility/subjects/{subject}/versions/{version}"): _SEE,
    ("GET", "/config"): _ANYBODY,
    ("GET", "/config/{subject}"): _SEE,
    ("GET", "/mode"): _ANYBODY,
    ("GET", "/mode/{subject}"): _SEE,
    ("GET", "/contexts"): _ANYBODY,
    ("GET", "/v1/metadata/id"): _ANYBODY,
    ("GET", "/v1/metadata/version"): _ANYBODY,
    ("POST", "/subjects/{subject}/versions"): _REGISTER,
    ("POST", apicurio.ARTIFACTS): _REGISTER,
    ("DELETE", "/subjects/{subject}"): _REMOVE,
    ("DELETE", "/subjects/{subject}/versions/{version}"): _REMOVE,
    ("PUT", "/config"): _ALTER_ALL,
    ("PUT", "/config/{subject}"): _ALTER,
    ("DELETE", "/config"): _ALTER_ALL,
    ("DELETE", "/config/{subject}"): _ALTER,
    ("PUT", "/mode"): _ALTER_ALL,
    ("PUT", "/mode/{subject}"): _SET_MODE,
    ("DELETE", "/mode"): _ALTER_ALL,
    ("DELETE", "/mode/{subject}"): _ALTER,
}


def referred(ask: Ask) -> set[str]:
    """Return the subjects that the schema in a request refers to; what is malformed is left to the route.

    Raises:
        RegistryError: 422, they are too many to judge.
    """
    given: Any = ask.body.get("references")
    if not isinstance(given, list):
        return set()
    names = (one.get("subject") for one in given if isinstance(one, dict))
    found = {name for name in names if isinstance(name, str)}
    if len(found) > MAX_REFERENCES:
        raise faults.invalid_request(f"references name {len(found)} subjects; at most {MAX_REFERENCES} are allowed")
    return found


def seen(answer: Any, allowed: Callable[[set[str]], set[str]]) -> Any:  # noqa: ANN401  JSON
    """Return a list of subjects, or of objects that have one, without those that *allowed* does not return."""
    names = {_subject(one) for one in answer}
    kept = allowed(names) if names else names
    return [one for one in answer if _subject(one) in kept]


def _subject(item: Any) -> str:  # noqa: ANN401  JSON
    return str(item["subject"] if isinstance(item, dict) else item)

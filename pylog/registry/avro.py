"""Avro schemas: are they valid, are two the same, can one read what the other wrote.  Decides; waits for nothing.

Apache's `avro` parses and compares reader with writer by the specification's rules for resolution.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias

import avro.compatibility
import avro.errors
import avro.name
import avro.schema

from pylog.registry.faults import invalid_schema

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_FIRST = ("name", "type", "fields", "symbols", "items", "values", "size", "default")
"""Attributes that come first in a normal form, in this order; the others follow by name."""

MAX_DEPTH = 200
"""Nesting beyond this is refused: parsing recurses."""

MAX_CHARS = 1_000_000
"""Of a schema that somebody sends; those that are stored already count as they are."""

MAX_PARTS = 20_000
"""Objects and lists in such a schema: a field takes one or two, and comparing two schemas takes tens of µs each."""

_KEPT = 64
"""Answers that are kept, so that what was computed before a lock is taken need not be computed under it."""

_COMPARISONS_KEPT = 8_192
"""The same of comparisons: four schemas are judged at a time, each against up to 1,000 versions."""


Source: TypeAlias = tuple[str, tuple[str, ...]]
"""A schema's text, canonical, and those of the schemas that it takes names from."""


class Level(StrEnum):
    """Which earlier schemas a new one must fit, and in which direction."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all earlier versions count, not only the latest."""
        return self.endswith("_TRANSITIVE")

    @property
    def must_read_old(self) -> bool:
        """Whether the new schema must read what the old one wrote."""
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def must_be_read_by_old(self) -> bool:
        """Whether the old schema must read what the new one writes."""
        return self.startswith(("FORWARD", "FULL"))


@lru_cache(maxsize=_KEPT)
def canonical(text: str) -> str:
    """Return the schema without insignificant blanks, as it is stored and compared.

    Raises:
        RegistryError: 42201, it is not JSON.
    """
    return _dump(_load(text))


@lru_cache(maxsize=_KEPT)
def normalised(text: str) -> str:
    """Return the schema's normal form: full names, attributes in one order, nothing about its looks.

    Raises:
        RegistryError: 42201, it is not JSON.
    """
    return _dump(_normal(_load(text), ""))


def check_size(text: str) -> None:
    """Refuse a schema that takes too long to parse and to compare.

    Raises:
        RegistryError: 42201.
    """
    if len(text) > MAX_CHARS:
        raise invalid_schema(f"{len(text)} characters long; at most {MAX_CHARS} are taken")
    level, parts = [_load(text)], 0
    while level:
        parts += len(level)
        if parts > MAX_PARTS:
            raise invalid_schema(f"it has more than {MAX_PARTS} objects and lists")
        level = [child for node in level for child in _children(node) if isinstance(child, dict | list)]


@lru_cache(maxsize=_KEPT)
def check_valid(text: str, dependencies: tuple[str, ...]) -> None:
    """Raise unless the schema is Avro.

    Args:
        text: canonical.
        dependencies: schemas that define the names it refers to, each after those it needs itself.

    Raises:
        RegistryError: 42201 with the parser's reason.
    """
    _parse(text, dependencies)


class _Comparisons:
    """Answers by digests of what was compared: kept by the schemas themselves they might hold gigabytes of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: OrderedDict[tuple[bytes, bytes, Level], tuple[str, ...]] = OrderedDict()

    def get(self, new: Source, old: Source, level: Level) -> tuple[str, ...]:
        key = _digest(new), _digest(old), level
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                return self._answers[key]
        found = _misfits(new, old, level)
        with self._lock:
            self._answers[key] = found
            if len(self._answers) > _COMPARISONS_KEPT:
                self._answers.popitem(last=False)
        return found


def _digest(source: Source) -> bytes:
    text, dependencies = source
    found = blake2b(digest_size=16)
    for part in (text, *dependencies):
        data = part.encode("utf-8", "surrogatepass")
        found.update(b"%d " % len(data))
        found.update(data)
    return found.digest()


_comparisons = _Comparisons()


def misfits(new: Source, old: Source, level: Level) -> tuple[str, ...]:
    """Return why *new* does not fit *old* under *level*, in words; nothing if it does.

    Args:
        new: text and dependencies.
        old: text and dependencies.
        level: the direction counts; which versions are compared is the caller's choice.
    """
    return _comparisons.get(new, old, level)


def _misfits(new: Source, old: Source, level: Level) -> tuple[str, ...]:
    parsed_new, parsed_old = _parse(*new), _parse(*old)
    found: list[str] = []
    if level.must_read_old:
        found += _reasons("new", parsed_new, "old", parsed_old)
    if level.must_be_read_by_old:
        found += _reasons("old", parsed_old, "new", parsed_new)
    return tuple(found)


def _reasons(reader_name: str, reader: avro.schema.Schema, writer_name: str, writer: avro.schema.Schema) -> list[str]:
    checker: Any = avro.compatibility.ReaderWriterCompatibilityChecker  # has no types
    result = checker().get_compatibility(reader, writer)
    if result.compatibility is avro.compatibility.SchemaCompatibilityType.compatible:
        return []
    kinds = ", ".join(dict.fromkeys(kind.value for kind in result.incompatibilities))
    where = ", ".join(sorted(result.locations - {"/"})) or "/"
    return [
        f"the {reader_name} schema cannot read what the {writer_name} one wrote: {kinds} at {where}: "
        f"{'; '.join(sorted(result.messages))}"
    ]


def _parse(text: str, dependencies: Sequence[str]) -> avro.schema.Schema:
    names = avro.name.Names()
    try:
        for dependency in dependencies:
            avro.schema.make_avsc_object(_load(dependency), names)
        return avro.schema.make_avsc_object(_load(text), names)
    # The parser lets its own slips through as what they are: a list where it wants a name, and the like.
    except (avro.errors.AvroException, AttributeError, KeyError, TypeError, ValueError) as error:
        raise invalid_schema(f"{error} ({type(error).__name__})") from error


def _load(text: str) -> Any:  # noqa: ANN401  JSON is anything
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid_schema(f"not JSON: {error}") from error
    _check_depth(loaded)
    return loaded


def _check_depth(schema: object) -> None:
    level = [schema]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise invalid_schema(f"nested deeper than {MAX_DEPTH}")


def _children(node: object) -> Iterable[object]:
    return node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()


def _dump(schema: object) -> str:
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def _normal(schema: Any, namespace: str) -> Any:  # noqa: ANN401
    if isinstance(schema, str):
        return schema if schema in PRIMITIVES else _full(schema, namespace)
    if isinstance(schema, list):
        return [_normal(branch, namespace) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if schema.keys() == {"type"}:
        return _normal(kind, namespace)
    if not isinstance(kind, str) or kind not in _NAMED | {"array", "map"}:
        # A primitive with a logical type, say.
        return _ordered(schema | {"type": _normal(kind, namespace)})
    out = dict(schema)
    if kind in _NAMED and isinstance(schema.get("name"), str):
        out["name"] = _full(schema["name"], str(out.pop("namespace", None) or namespace))
        namespace = out["name"].rpartition(".")[0]
    for part in ("items", "values"):
        if part in out:
            out[part] = _normal(out[part], namespace)
    if isinstance(out.get("fields"), list):
        out["fields"] = [
            _ordered(field | {"type": _normal(field.get("type"), namespace)}) if isinstance(field, dict) else field
            for field in out["fields"]
        ]
    return _ordered(out)


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _ordered(attributes: Mapping[str, Any]) -> dict[str, Any]:
    first = [name for name in _FIRST if name in attributes]
    return {name: attributes[name] for name in [*first, *sorted(attributes.keys() - set(first))]}

"""Avro schemas as a tree of types, with the logical types that Apache Avro's Java would apply.

A logical type that does not fit its type, or lacks what it needs, is ignored: the plain type is what remains.

Source: Avro specification 1.12, "Schema Declaration", "Names" and "Logical Types".
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pylog.client.avro import SchemaError

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

DURATION_BYTES = 12
UUID_BYTES = 16

NO_DEFAULT: Final = object()
"""Default of a field that has none; null is a default."""

_MAX_DEPTH = 100
# Of types inside types as they are written down; people write a handful.

_LOGICAL: Mapping[str, frozenset[str]] = {
    "date": frozenset({"int"}),
    "time-millis": frozenset({"int"}),
    "time-micros": frozenset({"long"}),
    "timestamp-millis": frozenset({"long"}),
    "timestamp-micros": frozenset({"long"}),
    "timestamp-nanos": frozenset({"long"}),
    "local-timestamp-millis": frozenset({"long"}),
    "local-timestamp-micros": frozenset({"long"}),
    "local-timestamp-nanos": frozenset({"long"}),
    "uuid": frozenset({"string", "fixed"}),
    "decimal": frozenset({"bytes", "fixed"}),
    "big-decimal": frozenset({"bytes"}),
    "duration": frozenset({"fixed"}),
}
# Logical type -> the types it may stand on.


@dataclass(slots=True, eq=False)
class Type:
    """One Avro type; types that refer to themselves are the same object.

    Attributes:
        kind: as the specification writes it: ``long``, ``record``, ``union``, ...
        name: full name of a record, enum or fixed.
        aliases: full names it had before.
        logical: what its values mean; None if they mean what they are, or it is ignored.
        precision: of a decimal.
        scale: of a decimal.
        size: of a fixed, in bytes.
        symbols: of an enum.
        symbol_default: of an enum, for a symbol that a reader does not know.
        fields: of a record.
        inner: items of an array, values of a map, or branches of a union.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    symbol_default: str | None = None
    fields: "list[Field]" = field(default_factory=list)
    inner: "list[Type]" = field(default_factory=list)

    @property
    def short_name(self) -> str:
        """The name without its namespace; of a type without a name, its kind."""
        return self.name.rpartition(".")[2] or self.kind

    def __str__(self) -> str:
        """Return what an error calls the type."""
        if self.kind == "union":
            return f"union of {', '.join(map(str, self.inner))}"
        return f"{self.kind} {self.name}" if self.name else self.kind


@dataclass(slots=True, eq=False)
class Field:
    """One field of a record.

    Attributes:
        name: its name.
        type: its type.
        aliases: names it had before.
        default: JSON; `NO_DEFAULT` if there is none.
    """

    name: str
    type: Type
    aliases: tuple[str, ...] = ()
    default: Any = NO_DEFAULT


def parse(texts: Sequence[str]) -> Type:
    """Return the last of *texts* as a type.

    Args:
        texts: schemas in JSON; each may refer to types that are defined in those before it.

    Raises:
        SchemaError: one of them is no Avro schema; the message says why.
    """
    names: dict[str, Type] = {}
    found = None
    for text in texts:
        try:
            found = _Parser(names).type(json.loads(text), "", 0)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise SchemaError(f"no Avro schema: {error!r}") from error
    if found is None:
        raise SchemaError("no Avro schema is given")
    return found


class _Parser:
    def __init__(self, names: dict[str, Type]) -> None:
        self._names = names

    def type(self, body: Any, namespace: str, depth: int) -> Type:  # noqa: ANN401  JSON
        if depth > _MAX_DEPTH:
            raise SchemaError(f"no Avro schema: types are nested more than {_MAX_DEPTH} deep")
        if isinstance(body, str):
            return self._named(body, namespace)
        if isinstance(body, list):
            return Type("union", inner=[self.type(branch, namespace, depth + 1) for branch in body])
        if not isinstance(body, dict) or "type" not in body:
            raise SchemaError(f"no Avro schema: {body!r} has no type")
        kind = body["type"]
        if not isinstance(kind, str):
            return self.type(kind, namespace, depth + 1)
        if kind in ("record", "error", "enum", "fixed"):
            found = self._definition("record" if kind == "error" else kind, body, namespace, depth)
        elif kind == "array":
            found = Type("array", inner=[self.type(body["items"], namespace, depth + 1)])
        elif kind == "map":
            found = Type("map", inner=[self.type(body["values"], namespace, depth + 1)])
        elif kind in PRIMITIVES:
            found = Type(kind)
        else:
            return self._named(kind, namespace)
        _apply_logical(found, body)
        return found

    def _named(self, name: str, namespace: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        for full in (_full(name, namespace), name):
            if full in self._names:
                return self._names[full]
        raise SchemaError(f"no Avro schema: type {name!r} is not defined")

    def _definition(self, kind: str, body: Mapping[str, Any], namespace: str, depth: int) -> Type:
        name: str = body["name"]
        # A dot in the name overrules the namespace beside it.
        full = name.lstrip(".") if "." in name else _full(name, body.get("namespace", namespace))
        own = full.rpartition(".")[0]
        found = Type(kind, name=full, aliases=tuple(_full(alias, own) for alias in body.get("aliases") or ()))
        self._names[full] = found
        if kind == "enum":
            found.symbols, found.symbol_default = tuple(body["symbols"]), body.get("default")
        elif kind == "fixed":
            found.size = int(body["size"])
            if found.size < 0:
                raise SchemaError(f"no Avro schema: fixed {full} has a size of {found.size}")
        else:
            found.fields = [self._field(one, own, depth) for one in body["fields"]]
        return found

    def _field(self, body: Mapping[str, Any], namespace: str, depth: int) -> Field:
        return Field(
            body["name"],
            self.type(body["type"], namespace, depth + 1),
            tuple(body.get("aliases") or ()),
            body.get("default", NO_DEFAULT),
        )


def _full(name: str, namespace: str | None) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _apply_logical(found: Type, body: Mapping[str, Any]) -> None:
    logical = body.get("logicalType")
    if not isinstance(logical, str) or found.kind not in _LOGICAL.get(logical, ()):
        return
    if logical == "uuid" and found.kind == "fixed" and found.size != UUID_BYTES:
        return
    if logical == "duration" and found.size != DURATION_BYTES:
        return
    if logical == "decimal":
        precision, scale = body.get("precision"), body.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision == 0:
            return
        if found.kind == "fixed" and precision > _digits(found.size):
            return
        found.precision, found.scale = precision, scale
    found.logical = logical


def _digits(size: int) -> int:
    """Return how many decimal digits every signed number of *size* bytes can hold."""
    return math.floor(math.log10(2) * (8 * size - 1)) if size else 0


def bytes_of(text: str) -> bytes:
    """Return the bytes that a default writes as text: one character each, as in ISO-8859-1."""
    return text.encode("iso-8859-1", "replace")

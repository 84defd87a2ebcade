"""What a payload in Avro may make of a reader: neither depth nor number of values is bounded by its bytes.

fastavro reads as deep as the payload goes, on the stack of C: 5,000 bytes under a schema that contains itself end the
process.  And it makes as many values as a block counts where they take no bytes: 20 bytes may claim 2^40 nulls.  So
payloads of schemas that allow either are walked before they are read.  Others cost nothing.

Source: Avro specification, "Binary encoding".
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

Parsed: TypeAlias = Any
"""What fastavro makes of a schema: text, a list of branches or a dict."""

MAX_DEPTH = 100
"""Values inside values of one payload."""

MAX_VALUES = 1_000_000
"""Values of one payload, beside one for each of its bytes, where the schema does not bound them by those."""

MAX_EMPTY = 16
"""Values without bytes that a record may bring along, before its payloads are walked."""

_FIXED_BYTES = {"float": 4, "double": 8}
_MAX_VARINT_BITS = 63


class OutOfBounds(ValueError):
    """A payload holds more than a reader takes, or ends too early."""


def is_bounded(schema: Parsed, named: Mapping[str, Parsed]) -> bool:
    """Return whether the bytes of each payload bound how deep it is and how many values it holds.

    Args:
        schema: parsed.
        named: parsed types by full name, those that *schema* defines among them.
    """
    try:
        return _Schema(named).empty(schema, 0) <= MAX_EMPTY
    except _Unbounded:
        return False


def check_payload(payload: bytes, at: int, schema: Parsed, named: Mapping[str, Parsed]) -> None:
    """Walk a payload from *at* on.

    Raises:
        OutOfBounds: it is too deep, holds too many values or ends too early.
    """
    _Walk(payload, at, named).value(schema, 0)


class _Unbounded(Exception):
    """A schema contains itself, or items that take no bytes."""


class _Schema:
    """Looks through a schema once, each named type too."""

    def __init__(self, named: Mapping[str, Parsed]) -> None:
        self._named = named
        self._known: dict[str, int] = {}
        self._open: set[str] = set()

    def empty(self, schema: Parsed, depth: int) -> int:
        """Return how many values that take no bytes one value brings along, itself among them.

        Raises:
            _Unbounded: nothing bounds them, or the depth.
        """
        if depth > MAX_DEPTH:
            raise _Unbounded
        if isinstance(schema, list):
            # The number of the branch takes a byte, which pays for one: a field that may be null is bounded.
            return max(0, max((self.empty(branch, depth + 1) for branch in schema), default=0) - 1)
        if isinstance(schema, str):
            return 1 if schema == "null" else self._of_name(schema, depth)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._of_record(schema, depth)
        if kind in ("array", "map"):
            item = schema["items" if kind == "array" else "values"]
            found = self.empty(item, depth + 1)
            if found > MAX_EMPTY or (kind == "array" and self._takes_none(item)):
                raise _Unbounded
            return 0
        if kind == "fixed":
            return 1 if schema["size"] == 0 else 0
        return 0 if kind == "enum" else self.empty(kind, depth + 1)

    def _of_name(self, name: str, depth: int) -> int:
        if name not in self._named:
            return 0  # a primitive type
        if name in self._open:
            raise _Unbounded
        if name not in self._known:
            self._known[name] = self.empty(self._named[name], depth + 1)
        return self._known[name]

    def _of_record(self, schema: Parsed, depth: int) -> int:
        name = schema["name"]
        self._open.add(name)
        found = sum(self.empty(field["type"], depth + 1) for field in schema["fields"])
        self._open.discard(name)
        self._known[name] = found + (1 if not schema["fields"] else 0)
        if self._known[name] > MAX_EMPTY:
            raise _Unbounded
        return self._known[name]

    def _takes_none(self, schema: Parsed) -> bool:
        """Return whether a value takes no bytes; called only with what was found not to contain itself."""
        if isinstance(schema, str):
            return schema == "null" or (schema in self._named and self._takes_none(self._named[schema]))
        if isinstance(schema, list) or schema["type"] in ("array", "map", "enum"):
            return False
        if schema["type"] in ("record", "error"):
            return all(self._takes_none(field["type"]) for field in schema["fields"])
        return schema["size"] == 0 if schema["type"] == "fixed" else self._takes_none(schema["type"])


class _Walk:
    """Passes over one payload, value by value."""

    def __init__(self, payload: bytes, at: int, named: Mapping[str, Parsed]) -> None:
        self._payload, self._at, self._named = payload, at, named
        self._left = MAX_VALUES + len(payload)

    def value(self, schema: Parsed, depth: int) -> None:
        if isinstance(schema, list):
            branch = self._number()
            if not 0 <= branch < len(schema):
                raise OutOfBounds(f"branch {branch} of a union of {len(schema)}")
            schema = schema[branch]  # never a union again
        if depth > MAX_DEPTH:
            raise OutOfBounds(f"it is deeper than {MAX_DEPTH} values")
        self._left -= 1
        if self._left < 0:
            raise OutOfBounds(f"it holds more than {MAX_VALUES} values beside one for each byte")
        if isinstance(schema, str):
            self._named_or_primitive(schema, depth)
        else:
            self._complex(schema, depth)

    def _named_or_primitive(self, name: str, depth: int) -> None:
        if name in self._named:
            self._complex(self._named[name], depth)
        elif name in ("int", "long"):
            self._number()
        elif name in ("bytes", "string"):
            self._pass(self._number())
        elif name != "null":
            self._pass(_FIXED_BYTES.get(name, 1))

    def _complex(self, schema: Parsed, depth: int) -> None:
        kind = schema["type"]
        if kind in ("record", "error"):
            for field in schema["fields"]:
                self.value(field["type"], depth + 1)
        elif kind in ("array", "map"):
            self._blocks(schema, depth, is_map=kind == "map")
        elif kind == "fixed":
            self._pass(schema["size"])
        elif kind == "enum":
            self._number()
        else:
            self.value(kind, depth + 1)

    def _blocks(self, schema: Parsed, depth: int, *, is_map: bool) -> None:
        item = schema["values" if is_map else "items"]
        while (count := self._number()) != 0:
            if count < 0:
                self._number()  # the block's bytes
            for _ in range(abs(count)):
                if is_map:
                    self._pass(self._number())
                self.value(item, depth + 1)

    def _number(self) -> int:
        found = shift = 0
        while True:
            if self._at >= len(self._payload) or shift > _MAX_VARINT_BITS:
                raise OutOfBounds("it ends too early, or has a number of more than ten bytes")
            byte = self._payload[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return found >> 1 ^ -(found & 1)

    def _pass(self, count: int) -> None:
        if not 0 <= count <= len(self._payload) - self._at:
            raise OutOfBounds("it ends too early")
        self._at += count

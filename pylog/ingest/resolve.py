"""Which column a schema becomes, and how datums of a writer's schema are read as a reader's.

Resolution is what Apache Avro's Java does: the reader's schema says what a value is, its logical type included; a part
that does not resolve is refused in those datums that hold it, and not before.

Source: Avro specification, "Schema Resolution"; Apache Avro's Resolver, Schema.applyAliases and GenericDatumReader.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pylog.client.avro import SchemaError
from pylog.ingest import datums
from pylog.ingest.datums import BadDatum, DatumReader, Node
from pylog.ingest.schemas import NO_DEFAULT, Field, Type, bytes_of

MAX_DECIMAL_DIGITS = 38
"""Digits of Spark's decimal; a decimal of more becomes text."""

MEMBER = "member_"
"""What begins the names of the fields that stand for a union's branches, as in Spark's ``from_avro``."""

DURATION = pa.struct([("months", pa.int64()), ("days", pa.int64()), ("milliseconds", pa.int64())])

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
# Years 1 to 9999, what Spark, Python and Parquet readers agree on.

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_UTC, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.string(),
    "time-micros": pa.string(),
    "timestamp-millis": _UTC,
    "timestamp-micros": _UTC,
    "timestamp-nanos": _UTC,
    "local-timestamp-millis": _LOCAL,
    "local-timestamp-micros": _LOCAL,
    "local-timestamp-nanos": _LOCAL,
    "uuid": pa.string(),
    "big-decimal": pa.string(),
    "duration": DURATION,
}
# Spark's own TIME type cannot be written to Parquet unless a session allows it, so a time of day is text.

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_MERGED = {frozenset({"int", "long"}): pa.int64(), frozenset({"float", "double"}): pa.float64()}
# Unions that need no struct: one column holds either.

_INT32, _INT64 = (-(1 << 31), (1 << 31) - 1), (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class Column:
    """What a schema becomes.

    Attributes:
        kind: the column's type.
        left_out: by the field's path, why the column does not hold it.
    """

    kind: pa.DataType
    left_out: Mapping[str, str] = field(default_factory=dict)


def column_of(schema: Type) -> Column:
    """Return the column that values read under *schema* become.

    Raises:
        SchemaError: no column can hold any of it.
    """
    left_out: dict[str, str] = {}
    try:
        return Column(_kind(schema, (), (), left_out), left_out)
    except _NoColumn as refused:
        raise SchemaError(f"no column can hold the schema: {refused}") from refused


def reader_of(writer: Type, reader: Type, kind: pa.DataType) -> DatumReader:
    """Return what reads datums of *writer* into a column of *kind*, which stands for *reader*."""
    return DatumReader(_Resolver(reader).node(writer, reader, kind))


class _NoColumn(Exception):
    """A type that no column holds; the field it is in is left out."""


def _kind(schema: Type, inside: tuple[Type, ...], path: tuple[str, ...], left_out: dict[str, str]) -> pa.DataType:
    if schema in inside:
        raise _NoColumn(f"{schema.name} contains itself")
    if schema.logical == "decimal":
        is_number = schema.precision <= MAX_DECIMAL_DIGITS
        return pa.decimal128(schema.precision, schema.scale) if is_number else pa.string()
    if schema.logical is not None:
        return _LOGICAL[schema.logical]
    if schema.kind == "record":
        fields = []
        for one in schema.fields:
            where = (*path, one.name)
            try:
                fields.append((one.name, _kind(one.type, (*inside, schema), where, left_out)))
            except _NoColumn as refused:
                left_out[".".join(where)] = str(refused)
        return pa.struct(fields)
    if schema.kind == "array":
        return pa.list_(_kind(schema.inner[0], inside, (*path, "[]"), left_out))
    if schema.kind == "map":
        return pa.map_(pa.string(), _kind(schema.inner[0], inside, (*path, "{}"), left_out))
    if schema.kind == "union":
        return _union_kind(schema, inside, path, left_out)
    return _PRIMITIVES[schema.kind]


def _union_kind(schema: Type, inside: tuple[Type, ...], path: tuple[str, ...], left_out: dict[str, str]) -> pa.DataType:
    branches = _values(schema)
    if not branches:
        return pa.null()
    kinds = [_kind(branch, inside, path, left_out) for branch in branches]
    if len(branches) == 1:
        return kinds[0]
    merged = _merged(branches)
    return pa.struct(list(zip(_members(branches), kinds, strict=True))) if merged is None else merged


def _values(union: Type) -> list[Type]:
    return [branch for branch in union.inner if branch.kind != "null"]


def _merged(branches: Sequence[Type]) -> pa.DataType | None:
    return None if any(one.logical for one in branches) else _MERGED.get(frozenset(one.kind for one in branches))


def _members(branches: Sequence[Type]) -> list[str]:
    """Return the name of each branch's field, which does not change when a branch is added before it."""
    names = [MEMBER + branch.short_name.lower() for branch in branches]
    return [
        name if names.count(name) == 1 else MEMBER + (branch.name or branch.kind).replace(".", "_")
        for name, branch in zip(names, branches, strict=True)
    ]


class _Resolver:
    """Joins writers' types with those of one reader's schema."""

    def __init__(self, reader: Type) -> None:
        self._names: dict[str, str] = {}
        self._field_names: dict[str, dict[str, str]] = {}
        self._collect(reader, set())
        self._over: dict[Type, datums.Within] = {}

    def node(self, writer: Type, reader: Type, kind: pa.DataType) -> Node:
        """Return how a value of *writer* becomes one of *kind*, which stands for *reader*."""
        if writer.kind == "union" and reader.kind == "union" and self._is_equal(writer, reader, set()):
            branches = enumerate(writer.inner)
            return datums.Union([self._into_branch(branch, reader, number, kind) for number, branch in branches])
        if writer.kind == "union":
            return datums.Union([self.node(branch, reader, kind) for branch in writer.inner])
        if reader.kind == "union":
            return self._into_union(writer, reader, kind)
        if writer.kind == reader.kind:
            return self._same(writer, reader, kind)
        if reader.kind in _PROMOTIONS.get(writer.kind, ()):
            return _primitive(writer, reader, kind)
        return datums.Refused(f"the writer's {writer} is read as {reader}, which Avro does not allow", kind)

    def _same(self, writer: Type, reader: Type, kind: pa.DataType) -> Node:
        if writer.kind == "record":
            return self._record(writer, reader, kind)
        if writer.kind in ("enum", "fixed") and self._short_name(writer) != reader.short_name:
            return datums.Refused(f"the writer's {writer} is read as {reader}, which has another name", kind)
        if writer.kind == "fixed" and writer.size != reader.size:
            return datums.Refused(f"the writer's {writer} has {writer.size} bytes, the reader's {reader.size}", kind)
        if writer.kind == "enum":
            symbols = [one if one in reader.symbols else reader.symbol_default for one in writer.symbols]
            return datums.Enum(symbols, writer.symbols)
        if writer.kind in ("array", "map"):
            of = kind.item_type if writer.kind == "map" else kind.value_type
            inner = self.node(writer.inner[0], reader.inner[0], of)
            return datums.Items(kind, self._over_item(writer), _item_size(writer), inner)
        return _primitive(writer, reader, kind)

    def _record(self, writer: Type, reader: Type, kind: pa.DataType) -> Node:
        wanted = {one.name: one for one in reader.fields if kind.get_field_index(one.name) >= 0}
        fields: list[tuple[str, Node, int | None]] = []
        missing = dict(wanted)
        for name, one in self._named_fields(writer):
            other = missing.pop(name, None)
            if other is None:
                fields.append((one.name, self.over(one.type), None))
            else:
                number = kind.get_field_index(name)
                fields.append((one.name, self.node(one.type, other.type, kind.field(number).type), number))
        defaults = {}
        for one in missing.values():
            number = kind.get_field_index(one.name)
            try:
                defaults[number] = self._default(one, kind.field(number).type)
            except BadDatum as refused:
                return datums.Refused(f"the writer's {writer} has no field {one.name}, and {refused}", kind)
        return datums.Record(kind, fields, defaults)

    def _named_fields(self, writer: Type) -> list[tuple[str, Field]]:
        """Return the writer's fields by the names that the reader's aliases give them."""
        aliases = self._field_names.get(self._names.get(writer.name, writer.name), {})
        own = {one.name for one in writer.fields}
        named = []
        for one in writer.fields:
            name = aliases.get(one.name, one.name)
            # Where the writer has both the old name and the new, the new one is meant.
            named.append((one.name if name in own else name, one))
        return named

    def _default(self, one: Field, kind: pa.DataType) -> pa.Array:
        if one.default is NO_DEFAULT:
            raise BadDatum("it has no default")
        datum = _encoded(one.default, one.type)
        return pa.array([DatumReader(self.node(one.type, one.type, kind)).read_one(datum)], kind)

    def _into_union(self, writer: Type, reader: Type, kind: pa.DataType) -> Node:
        number = self._branch(writer, reader)
        if number is None:
            return datums.Refused(f"the writer's {writer} is no branch of the reader's {reader}", kind)
        return self._into_branch(writer, reader, number, kind)

    def _into_branch(self, writer: Type, reader: Type, number: int, kind: pa.DataType) -> Node:
        branch, values = reader.inner[number], _values(reader)
        if branch.kind == "null":
            return datums.Null(kind)
        if len(values) == 1 or _merged(values) is not None:
            return self.node(writer, branch, kind)
        member = kind.get_field_index(_members(values)[values.index(branch)])
        return datums.Member(kind, member, self.node(writer, branch, kind.field(member).type))

    def _branch(self, writer: Type, reader: Type) -> int | None:
        like = None
        for number, branch in enumerate(reader.inner):
            if branch.kind != writer.kind:
                continue
            if writer.kind not in ("record", "enum", "fixed"):
                return number
            if self._names.get(writer.name, writer.name) == branch.name:
                return number
            if writer.kind == "record" and self._fits(writer, branch):
                # A record of another name will do, best one that differs by its namespace alone.
                like = number if like is None or self._short_name(writer) == branch.short_name else like
        if like is not None:
            return like
        allowed = _PROMOTIONS.get(writer.kind, ())
        return next((number for number, branch in enumerate(reader.inner) if branch.kind in allowed), None)

    def _fits(self, writer: Type, reader: Type) -> bool:
        """Return whether a record reads as another, looking no deeper than its fields."""
        written = dict(self._named_fields(writer))
        for one in reader.fields:
            other = written.get(one.name)
            if other is None:
                if one.default is NO_DEFAULT:
                    return False
            elif not self._may_read(other.type, one.type):
                return False
        return True

    def _may_read(self, writer: Type, reader: Type) -> bool:
        if writer.kind == "union":
            return True  # decided branch by branch, when one is met
        if reader.kind == "union":
            return self._branch(writer, reader) is not None
        if writer.kind != reader.kind:
            return reader.kind in _PROMOTIONS.get(writer.kind, ())
        if writer.kind in ("enum", "fixed"):
            return self._short_name(writer) == reader.short_name and writer.size == reader.size
        return writer.kind != "record" or all(
            one.default is not NO_DEFAULT or one.name in dict(self._named_fields(writer)) for one in reader.fields
        )

    def _is_equal(self, writer: Type, reader: Type, seen: set[tuple[Type, Type]]) -> bool:
        """Return whether two unions are the same but for namespaces: then their branches go by number, not by name."""
        if writer.kind != reader.kind or len(writer.inner) != len(reader.inner):
            return False
        if writer.name and self._short_name(writer) != reader.short_name:
            return False
        if (writer.size, writer.symbols) != (reader.size, reader.symbols):
            return False
        if (writer, reader) in seen:
            return True
        seen.add((writer, reader))
        written = self._named_fields(writer)
        if [name for name, _ in written] != [one.name for one in reader.fields]:
            return False
        pairs = [(one.type, other.type) for (_, one), other in zip(written, reader.fields, strict=True)]
        return all(
            self._is_equal(one, other, seen) for one, other in [*pairs, *zip(writer.inner, reader.inner, strict=False)]
        )

    def _short_name(self, writer: Type) -> str:
        return self._names.get(writer.name, writer.name).rpartition(".")[2]

    def _collect(self, reader: Type, seen: set[Type]) -> None:
        if reader in seen:
            return
        seen.add(reader)
        for alias in reader.aliases:
            self._names[alias] = reader.name
        for one in reader.fields:
            for alias in one.aliases:
                self._field_names.setdefault(reader.name, {})[alias] = one.name
            self._collect(one.type, seen)
        for branch in reader.inner:
            self._collect(branch, seen)

    # -- what nobody wants --

    def over(self, writer: Type) -> Node:
        """Return how to read on over a value that nobody wants."""
        match writer.kind:
            case "null":
                return datums.Null(pa.null())
            case "boolean":
                return datums.Raw(1)
            case "float" | "double" | "fixed":
                return datums.Raw(_size(writer))
            case "int" | "long" | "enum":
                return datums.Number(kind=pa.int64(), is_int=False)
            case "string" | "bytes":
                return datums.Raw(None)
            case "union":
                return datums.Union([self.over(branch) for branch in writer.inner])
            case "array" | "map":
                return datums.Items(None, self._over_item(writer), _item_size(writer))
            case _:
                return self._over_record(writer)

    def _over_record(self, writer: Type) -> Node:
        if writer not in self._over:
            within = self._over[writer] = datums.Within(writer.name)
            within.node = datums.PassedOver([self.over(one.type) for one in writer.fields])
        return self._over[writer]

    def _over_item(self, writer: Type) -> Node:
        item = self.over(writer.inner[0])
        return datums.PassedOver([datums.Raw(None), item]) if writer.kind == "map" else item


def _size(writer: Type, inside: tuple[Type, ...] = ()) -> int | None:
    """Return how many bytes each value takes; None if that differs."""
    match writer.kind:
        case "null":
            return 0
        case "boolean":
            return 1
        case "float":
            return 4
        case "double":
            return 8
        case "fixed":
            return writer.size
        case "record" if writer not in inside:
            sizes = [_size(one.type, (*inside, writer)) for one in writer.fields]
            return None if None in sizes else sum(size for size in sizes if size is not None)
        case _:
            return None


def _item_size(writer: Type) -> int | None:
    return _size(writer.inner[0]) if writer.kind == "array" else None


def _primitive(writer: Type, reader: Type, kind: pa.DataType) -> Node:
    """Return how a value becomes another of the same type, or of one it may be promoted to."""
    if reader.kind == "null":
        return datums.Null(kind)
    if reader.kind == "boolean":
        return datums.Boolean()
    if writer.kind in ("int", "long"):
        return _number(writer.kind == "int", reader, kind)
    if writer.kind in ("float", "double"):
        return datums.Real(writer.kind == "double", kind)
    raw = datums.Raw(writer.size if writer.kind == "fixed" else None)
    match reader.logical:
        case "decimal" if pa.types.is_decimal(kind):
            return datums.DecimalNumber(raw, kind)
        case "decimal":
            return datums.DecimalText(raw, reader.scale)
        case "big-decimal":
            return datums.DecimalText(raw, None)
        case "duration":
            return datums.Duration(raw, kind)
        case "uuid" if reader.kind == "fixed":
            return datums.Uuid(raw)
    return datums.Raw(raw.size, is_text=reader.kind == "string")


def _number(is_int: bool, reader: Type, kind: pa.DataType) -> Node:
    number = datums.Number(kind=kind, is_int=is_int)
    if reader.kind == "float" and not pa.types.is_float32(kind):
        number.through = np.float32
    match reader.logical:
        case "date":
            number.bounds, number.means = (-719_162, 2_932_896), "a day"
        case "time-millis":
            return datums.TimeText(_time(pa.time32("ms"), is_int, 86_400_000))
        case "time-micros":
            return datums.TimeText(_time(pa.time64("us"), is_int, 86_400_000_000))
        case "timestamp-millis" | "local-timestamp-millis":
            number.multiply, number.bounds, number.means = 1000, (_FIRST_MS, _LAST_MS), "a time in milliseconds"
        case "timestamp-micros" | "local-timestamp-micros":
            bounds = (_FIRST_MS * 1000, _LAST_MS * 1000 + 999)
            number.bounds, number.means = bounds, "a time in microseconds"
        case "timestamp-nanos" | "local-timestamp-nanos":
            number.divide = 1000
    return number


def _time(kind: pa.DataType, is_int: bool, end: int) -> datums.Number:
    return datums.Number(kind=kind, is_int=is_int, bounds=(0, end - 1), means="a time of day")


# -- defaults ----------------------------------------------------------------------------------------------------------


def _encoded(value: Any, schema: Type) -> bytes:  # noqa: ANN401  JSON
    """Return a default as a datum of its own type, so that it is read as any other.

    Raises:
        BadDatum: it is no value of that type.
    """
    match schema.kind:
        case "null" if value is None:
            return b""
        case "boolean" if isinstance(value, bool):
            return bytes([value])
        case "int" | "long" if _is_whole(value, _INT32 if schema.kind == "int" else _INT64):
            return _varint(value)
        case "float" | "double" if _is_real(value):
            with np.errstate(over="ignore"):
                return np.array(value, np.float64).astype("<f4" if schema.kind == "float" else "<f8").tobytes()
        case "string" if isinstance(value, str):
            return _sized(value.encode())
        case "bytes" if isinstance(value, str):
            return _sized(bytes_of(value))
        case "fixed" if isinstance(value, str):
            return bytes_of(value)[: schema.size].ljust(schema.size, b"\0")
        case "enum" if value in schema.symbols:
            return _varint(schema.symbols.index(value))
        case "array" if isinstance(value, list):
            items = b"".join(_encoded(item, schema.inner[0]) for item in value)
            return (_varint(len(value)) + items if value else b"") + b"\0"
        case "map" if isinstance(value, dict):
            entries = b"".join(_sized(key.encode()) + _encoded(item, schema.inner[0]) for key, item in value.items())
            return (_varint(len(value)) + entries if value else b"") + b"\0"
        case "record" if isinstance(value, dict):
            return b"".join(_encoded(value.get(one.name, one.default), one.type) for one in schema.fields)
        case "union":
            for number, branch in enumerate(schema.inner):
                try:
                    return _varint(number) + _encoded(value, branch)
                except BadDatum:
                    continue
    shown = "nothing" if value is NO_DEFAULT else repr(value)
    raise BadDatum(f"the default {shown} is no {schema}")


def _is_whole(value: object, bounds: tuple[int, int]) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and bounds[0] <= value <= bounds[1]


def _is_real(value: object) -> bool:
    if isinstance(value, str):
        return value in ("NaN", "Infinity", "-Infinity")
    return isinstance(value, int | float) and not isinstance(value, bool)


def _varint(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def _sized(raw: bytes) -> bytes:
    return _varint(len(raw)) + raw

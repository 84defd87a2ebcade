"""Avro datums of one schema -> an Arrow array, field by field of all of them at a time.

A datum's fields follow each other without lengths, so field n begins where field n-1 ended: a different place in each
datum, kept in an array.  Every step reads one field of all datums.  What is not as it should be is marked, read on as
if it were empty, and left to fastavro, which reads one datum after the other and says what is wrong with it.

Records, nullable fields, enums, fixed, numbers, strings, bytes, dates and timestamps are read this way, under a
reader's schema that may lack, add and widen fields.  Arrays, maps, decimals, unions of several types and aliases are
not.

Source: Avro specification, "Binary Encoding" and "Schema Resolution".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylog.ingest.columns import Bools, Bytes, Int64s, gather, varints

Parsed: TypeAlias = Any
"""What fastavro makes of a schema."""

Part: TypeAlias = npt.NDArray[Any]
"""Something about each datum: a number, where a string begins."""

PADDING_BYTES = 16
"""Behind the last datum: a varint or a double that begins at its end must not read beyond the array."""

_NUMBERS = frozenset({"int", "long", "float", "double"})
_TEXTS = frozenset({"string", "bytes"})
_NEVER = frozenset({"array", "map"})
_INT32 = (-(1 << 31), (1 << 31) - 1)
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
# Logical type -> the factor from its number to the column's, and the numbers that stand for years 1 to 9999.
_LOGICAL: Mapping[str, tuple[int, tuple[int, int]]] = {
    "date": (1, (-719_162, 2_932_896)),
    "timestamp-millis": (1000, (_FIRST_MS, _LAST_MS)),
    "timestamp-micros": (1, (_FIRST_MS * 1000, _LAST_MS * 1000 + 999)),
}


class NotByColumn(Exception):
    """Datums of this schema, under this reader's, are read one by one."""


@dataclass(slots=True)
class Datums:
    """Where reading is in each datum.

    Attributes:
        data: the bytes, padded.
        at: the next byte of each.
        end: the first byte after each; *at* never goes beyond it.
        bad: those that are not what the schema says.
    """

    data: Bytes
    at: Int64s
    end: Int64s
    bad: Bools

    def numbers(self) -> Int64s:
        """Read a varint."""
        numbers, at, too_long = varints(self.data, self.at)
        if too_long.size:
            self.bad[too_long] = True
        over = at > self.end
        if over.any():
            self.bad |= over
            at = np.minimum(at, self.end)
        self.at = at
        return numbers

    def skip(self, lengths: Int64s | int) -> tuple[Int64s, Int64s]:
        """Go on by *lengths*; return where what was skipped begins, and how long it is."""
        starts = self.at
        sizes = np.broadcast_to(np.asarray(lengths, np.int64), starts.shape)
        wrong = (sizes < 0) | (sizes > self.end - starts)
        if wrong.any():
            self.bad |= wrong
            sizes = np.where(wrong, 0, sizes)
        self.at = starts + sizes
        return starts, sizes

    def only(self, rows: Int64s) -> "Datums":
        """Return some of them; `put` takes back what became of those."""
        return Datums(self.data, self.at[rows], self.end[rows], self.bad[rows])

    def put(self, rows: Int64s, those: "Datums") -> None:
        """Take over how far *rows* were read."""
        self.at[rows], self.bad[rows] = those.at, those.bad


class Column(Protocol):
    """One field of the schema: how to read it, and what array it becomes."""

    def walk(self, datums: Datums) -> list[Part]:
        """Read the field of every datum; return what `build` needs, an entry for each."""

    def build(self, parts: Iterator[Part], datums: Datums, valid: Bools | None) -> pa.Array:
        """Return the array of what `walk` returned, which comes next in *parts*; null where not *valid*."""


class DatumReader:
    """Reads datums of one writer's schema as a reader's schema has it.

    Args:
        writer: parsed.
        reader: parsed, a record.
        kind: the column's type for the reader's schema.

    Raises:
        NotByColumn: there is something in them that is not read this way.
    """

    def __init__(self, writer: Parsed, reader: Parsed, kind: pa.DataType) -> None:
        self._column = _Resolver(writer, reader).column(writer, reader, kind)

    def read(self, data: Bytes, starts: Int64s, ends: Int64s) -> tuple[pa.Array, Bools]:
        """Return the column, and which of its rows mean nothing because their datum is not of the schema.

        Args:
            data: the bytes, with `PADDING_BYTES` more.
            starts: where each datum begins, in order.
            ends: where each ends.
        """
        datums = Datums(data, starts.copy(), ends, np.zeros(len(starts), np.bool_))
        parts = self._column.walk(datums)
        datums.bad |= datums.at != ends
        return self._column.build(iter(parts), datums, None), datums.bad


@dataclass(slots=True)
class _Nothing:
    """A null."""

    def walk(self, datums: Datums) -> list[Part]:
        return []

    def build(self, parts: Iterator[Part], datums: Datums, valid: Bools | None) -> pa.Array:
        return pa.nulls(len(datums.at))


@dataclass(slots=True)
class _Varint:
    """A number that becomes another: wider, or a day or a point in time."""

    kind: pa.DataType
    factor: int = 1
    bounds: tuple[int, int] | None = None

    def walk(self, datums: Datums) -> list[Part]:
        numbers = datums.numbers()
        if self.bounds is not None:
            wrong = (numbers < self.bounds[0]) | (numbers > self.bounds[1])
            if wrong.any():
                datums.bad |= wrong
                numbers = np.where(wrong, 0, numbers)
        return [numbers if self.factor == 1 else numbers * self.factor]

    def build(self, parts: Iterator[Part], datums: Datums, valid: Bools | None) -> pa.Array:
        numbers = next(parts)
        if pa.types.is_floating(self.kind):
            # As Python does it: to a double first.
            return _numbers(numbers.astype(np.float64), self.kind, valid)
        plain = pa.int32() if self.kind.bit_width == 32 else pa.int64()
        return _numbers(numbers, plain, valid).view(self.kind)


@dataclass(slots=True)
class _Float:
    """Four or eight bytes, as the processor has them."""

    dtype: str
    kind: pa.DataType

    def walk(self, datums: Datums) -> list[Part]:
        starts, _ = datums.skip(np.dtype(self.dtype).itemsize)
        # An array of every number that begins at any byte: numpy reads unaligned ones where it is told to.
        size = len(datums.data) - np.dtype(self.dtype).itemsize + 1
        return [np.ndarray((size,), self.dtype, datums.data, strides=(1,))[starts]]

    def build(self, parts: Iterator[Part], datums: Datums, valid: Bools | None) -> pa.Array:
        return _numbers(next(parts), self.kind, valid)


@dataclass(slots=True)
class _Boolean:
    def walk(self, datums: Datums) -> list[Part]:
        starts, _ = datums.skip(1)
        byte = datums.data[starts]
        datums.bad |= byte > 1
        return [byte.astype(np.bool_)]

    def build(self, parts: Iterator[Part], datums: Datums, valid: Bools | None) -> pa.Array:
        return pa.array(next(parts), mask=_nulls(valid))


@dataclass(slots=True)
class _Text:
    """A string, or bytes: a length, and so many bytes."""

    kind: pa.DataType
    is_text: bool
    """Whether it must be UTF-8, as one side's string."""

    def walk(self, datums: Datums) -> list[Part]:
        return list(datums.skip(datums.numbers()))

    def build(self, parts: Iterator[Part], datums: Datums, valid: Bools | None) -> pa.Array:
        found = _slices(datums, next(parts), next(parts), valid)
        if not self.is_text:
            return found
        try:
            text = found.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_text(value) for value in found.to_pylist()], np.bool_)
            datums.bad |= wrong
            text = pa.array(np.where(wrong, b"", found.to_numpy(zero_copy_only=False)), pa.binary()).cast(pa.string())
        return text if pa.types.is_string(self.kind) else text.cast(pa.binary())


@dataclass(slots=True)
class _Fixed:
    size: int

    def walk(self, datums: Datums) -> list[Part]:
        return list(datums.skip(self.size))

    def build(self, parts: Iterator[Part], datums: Datums, valid: Bools | None) -> pa.Array:
        return _slices(datums, next(parts), next(parts), valid)


@dataclass(slots=True)
class _Enum:
    """The number of a symbol; one that the reader does not know has None."""

    symbols: Sequence[str | None]

    def walk(self, datums: Datums) -> list[Part]:
        numbers = datums.numbers()
        known = np.array([*(symbol is not None for symbol in self.symbols), False])
        wrong = ~known[np.where((numbers < 0) | (numbers >= len(self.symbols)), len(self.symbols), numbers)]
        if wrong.any():
            datums.bad |= wrong
            numbers = np.where(wrong, 0, numbers)
        return [numbers]

    def build(self, parts: Iterator[Part], datums: Datums, valid: Bools | None) -> pa.Array:
        return pa.array(self.symbols, pa.string()).take(pa.array(next(parts), mask=_nulls(valid)))


@dataclass(slots=True)
class _Union:
    """The number of a branch, and a value of that branch.

    Attributes:
        branches: what each is read as; None where the reader has nothing for it.
        kept: the branch whose values are the column's; None if all are passed over, or null.
    """

    branches: Sequence[Column | None]
    kept: int | None

    def walk(self, datums: Datums) -> list[Part]:
        numbers = datums.numbers()
        count = len(numbers)
        if self.kept is not None and count and (numbers == self.kept).all():
            kept = self.branches[self.kept]
            assert kept is not None, "values are kept of a branch that the reader has"
            return [np.ones(count, np.bool_), *kept.walk(datums)]
        found: list[Part] = []
        valid = np.zeros(count, np.bool_)
        known = valid.copy()
        for number, branch in enumerate(self.branches):
            if branch is None:
                continue
            is_this = numbers == number
            known |= is_this
            rows = np.flatnonzero(is_this)
            those = datums.only(rows)
            parts = branch.walk(those)
            datums.put(rows, those)
            if number == self.kept:
                valid = is_this
                found = [_spread(part, rows, count) for part in parts]
        datums.bad |= ~known
        return [] if self.kept is None else [valid, *found]

    def build(self, parts: Iterator[Part], datums: Datums, valid: Bools | None) -> pa.Array:
        if self.kept is None:
            return pa.nulls(len(datums.at))
        kept = self.branches[self.kept]
        assert kept is not None, "values are kept of a branch that the reader has"
        here = next(parts)
        if valid is not None:
            here = here & valid
        return kept.build(parts, datums, None if here.all() else here)


@dataclass(slots=True)
class _Record:
    """Fields in the writer's order; those the reader wants become the column's, in the reader's.

    Attributes:
        kind: the column's type.
        fields: how to read each, and its number in *kind*; None if it is passed over.
        defaults: array of one, by number in *kind*, of the fields that the writer lacks.
    """

    kind: pa.DataType
    fields: Sequence[tuple[Column, int | None]]
    defaults: Mapping[int, pa.Array]

    def walk(self, datums: Datums) -> list[Part]:
        found: list[Part] = []
        for column, number in self.fields:
            parts = column.walk(datums)
            if number is not None:
                found += parts
        return found

    def build(self, parts: Iterator[Part], datums: Datums, valid: Bools | None) -> pa.Array:
        count = len(datums.at)
        nothing = np.zeros(count, np.int64)
        arrays = {number: default.take(pa.array(nothing)) for number, default in self.defaults.items()}
        for column, number in self.fields:
            if number is not None:
                arrays[number] = column.build(parts, datums, valid)
        ordered = [arrays[number] for number in range(self.kind.num_fields)]
        return pa.StructArray.from_arrays(ordered, fields=list(self.kind), mask=_mask(valid))


class _Resolver:
    """Joins a writer's and a reader's schema into columns."""

    def __init__(self, writer: Parsed, reader: Parsed) -> None:
        self._writers: dict[str, Parsed] = {}
        self._readers: dict[str, Parsed] = {}
        _collect(writer, self._writers)
        _collect(reader, self._readers)
        self._inside: tuple[str, ...] = ()

    def column(self, writer: Parsed, reader: Parsed, kind: pa.DataType) -> Column:
        """Return how a value of *writer* becomes one of *kind*, which stands for *reader*."""
        writer, reader = _named(writer, self._writers), _named(reader, self._readers)
        if isinstance(writer, list):
            return self._union(writer, reader, kind)
        if isinstance(reader, list):
            # A column's union has one branch beside null.
            return self.column(writer, next(one for one in reader if one != "null"), kind)
        of, wanted = _type_of(writer), _type_of(reader)
        logical = _logical_of(writer)
        if logical != _logical_of(reader) or (logical is not None and logical not in _LOGICAL):
            raise NotByColumn
        if of in _NUMBERS and wanted in _NUMBERS:
            return _number(of, wanted, kind, logical)
        if of in _TEXTS and wanted in _TEXTS:
            return _Text(kind, "string" in (of, wanted))
        if of != wanted or of in _NEVER:
            raise NotByColumn
        if of == "boolean":
            return _Boolean()
        if of in ("enum", "fixed", "record") and _shape(writer) != _shape(reader):
            raise NotByColumn
        if of == "fixed":
            return _Fixed(int(writer["size"]))
        if of == "enum":
            known = frozenset(reader["symbols"])
            return _Enum([symbol if symbol in known else None for symbol in writer["symbols"]])
        if of == "record":
            return self._record(writer, reader, kind)
        raise NotByColumn

    def _union(self, writer: list[Parsed], reader: Parsed, kind: pa.DataType) -> Column:
        is_nullable = isinstance(reader, list) and "null" in reader
        values = [number for number, one in enumerate(writer) if one != "null"]
        if len(values) != 1:
            raise NotByColumn
        (kept,) = values
        null = _Nothing() if is_nullable else None
        return _Union([self.column(one, reader, kind) if n == kept else null for n, one in enumerate(writer)], kept)

    def _record(self, writer: Parsed, reader: Parsed, kind: pa.DataType) -> Column:
        if writer["name"] in self._inside or any("aliases" in one for one in (reader, *reader["fields"])):
            raise NotByColumn
        outside, self._inside = self._inside, (*self._inside, writer["name"])
        number_of = {field["name"]: number for number, field in enumerate(reader["fields"])}
        fields: list[tuple[Column, int | None]] = []
        for field in writer["fields"]:
            number = number_of.pop(field["name"], None)
            if number is None:
                fields.append((self._passed_over(field["type"]), None))
            else:
                wanted = reader["fields"][number]["type"]
                fields.append((self.column(field["type"], wanted, kind.field(number).type), number))
        defaults = {}
        for number in number_of.values():
            field = reader["fields"][number]
            if "default" not in field or isinstance(field["default"], dict | list):
                raise NotByColumn
            defaults[number] = pa.array([field["default"]], kind.field(number).type)
        self._inside = outside
        return _Record(kind, fields, defaults)

    def _passed_over(self, writer: Parsed) -> Column:
        """Return how to read on over a value that nobody wants."""
        writer = _named(writer, self._writers)
        if isinstance(writer, list):
            return _Union([self._passed_over(one) for one in writer], None)
        of = _type_of(writer)
        if of == "null":
            return _Nothing()
        if of in ("int", "long", "enum"):
            return _Varint(pa.int64())
        if of in ("float", "double"):
            return _number(of, of, pa.float64(), None)
        if of == "boolean":
            return _Boolean()
        if of in _TEXTS:
            return _Text(pa.binary(), is_text=False)
        if of == "fixed":
            return _Fixed(int(writer["size"]))
        if of == "record" and writer["name"] not in self._inside:
            outside, self._inside = self._inside, (*self._inside, writer["name"])
            fields = [(self._passed_over(field["type"]), None) for field in writer["fields"]]
            self._inside = outside
            return _Record(pa.struct([]), fields, {})
        raise NotByColumn


def _number(of: str, wanted: str, kind: pa.DataType, logical: str | None) -> Column:
    if of in ("float", "double"):
        if wanted not in ("float", "double") or (of, wanted) == ("double", "float"):
            raise NotByColumn
        return _Float("<f4" if of == "float" else "<f8", kind)
    if logical is not None:
        factor, bounds = _LOGICAL[logical]
        return _Varint(kind, factor, bounds)
    if (of, wanted) == ("long", "int"):
        raise NotByColumn
    return _Varint(kind, 1, _INT32 if wanted == "int" else None)


def _collect(schema: Parsed, named: dict[str, Parsed]) -> None:
    """Note every type that *schema* gives a name."""
    if isinstance(schema, list):
        for one in schema:
            _collect(one, named)
    elif isinstance(schema, dict):
        if "name" in schema:
            named[schema["name"]] = schema
        for one in (schema.get("items"), schema.get("values"), *(f["type"] for f in schema.get("fields", ()))):
            _collect(one, named)
        if isinstance(schema["type"], dict | list):
            _collect(schema["type"], named)


def _named(schema: Parsed, named: Mapping[str, Parsed]) -> Parsed:
    """Return what a name stands for; a type that has none as it is."""
    return named.get(schema, schema) if isinstance(schema, str) else schema


def _type_of(schema: Parsed) -> str:
    kind = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(kind, str):
        raise NotByColumn
    return "record" if kind == "error" else kind


def _logical_of(schema: Parsed) -> str | None:
    return schema.get("logicalType") if isinstance(schema, dict) else None


def _shape(schema: Parsed) -> tuple[object, ...]:
    return schema["name"], schema.get("size")


def _spread(part: Part, rows: Int64s, count: int) -> Part:
    found = np.zeros(count, part.dtype)
    found[rows] = part
    return found


def _slices(datums: Datums, starts: Int64s, lengths: Int64s, valid: Bools | None) -> pa.Array:
    if valid is not None:
        # Arrow guesses the size of what it gathers from the last place: a null's must not lie before the others.
        starts, lengths = np.maximum.accumulate(starts), np.where(valid, lengths, -1)
    return gather(pa.py_buffer(datums.data), starts, lengths)


def _numbers(numbers: Part, kind: pa.DataType, valid: Bools | None) -> pa.Array:
    return pa.array(numbers.astype(kind.to_pandas_dtype(), copy=False), kind, mask=_nulls(valid))


def _nulls(valid: Bools | None) -> Bools | None:
    return None if valid is None else ~valid


def _mask(valid: Bools | None) -> pa.Array | None:
    return None if valid is None else pa.array(~valid)


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True

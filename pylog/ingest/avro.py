"""Framed Avro in a topic's values -> columns, under the subject's latest schema.

Values written under earlier or later schemas are resolved as Avro says: a field the writer lacked takes its default,
one the reader lacks is left out.  A value that does not decode is null, with the reason beside it; the raw one stays.

columns => decoded: struct of the record's fields, decodeError: string

Source: Avro specification, "Schema Resolution" and "Logical Types".
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from pylog.client.avro import (
    FRAME_BYTES,
    MAGIC,
    AvroDeserializer,
    Parsed,
    RegistryClient,
    RegistryUnreachable,
    SchemaError,
    parse,
)
from pylog.ingest.columns import Int64s
from pylog.ingest.datums import PADDING_BYTES, DatumReader, NotByColumn

DECODED, DECODE_ERROR = "decoded", "decodeError"

_PRIMITIVES = {
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
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
}
_RAW_LOGICAL = frozenset({"uuid", "time-millis", "time-micros", "local-timestamp-millis", "local-timestamp-micros"})
# Logical types that Spark has no column for, or another; they are refused by name rather than shown as something else.

_NO_COLUMN = (pa.ArrowException, OverflowError, TypeError, ValueError)


def latest_schema(registry: RegistryClient, topic: str) -> str:
    """Return the text of the schema that values of *topic* are read under.

    Raises:
        SchemaError: the registry has none for it, or one that is no record.
    """
    text = registry.latest(f"{topic}-value")
    column_type(text)
    return text


def column_type(text: str) -> pa.DataType:
    """Return the type of the decoded column for a schema.

    Raises:
        SchemaError: it is no record, or has a field that no column can hold; the message names the field.
    """
    named: dict[str, Parsed] = {}
    schema = parse(text, named)
    found = _type(schema, named, "value", ())
    if not pa.types.is_struct(found):
        raise SchemaError(f"the schema is of type {schema!r}; a record is wanted, whose fields become columns")
    return found


class AvroColumns:
    """Decodes one topic's values; made in a task, where it meets the schemas it needs.

    All values of a schema at a time where `pylog.ingest.datums` can read it, one after the other where it cannot and
    where a value is not what its schema says.

    Args:
        urls: of the registry's instances.
        reader_schema: text; see `latest_schema`.
    """

    def __init__(self, urls: list[str], reader_schema: str) -> None:
        self._registry = RegistryClient(urls)
        self._decode = AvroDeserializer(self._registry, reader_schema)
        self._type = column_type(reader_schema)
        self._reader = parse(reader_schema, {})
        self._readers: dict[int, DatumReader | None] = {}

    def decode(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the decoded column and the reasons of those that are null in it; null values stay null without one.

        Raises:
            RegistryUnreachable: a schema was not met before and nobody answers; that is no fault of the message.
        """
        framed = _Framed(values)
        pieces: list[pa.Array] = []
        # Of each value, its row among the pieces one behind the other; -1 is nowhere.
        place = np.full(len(values), -1, np.int64)
        length = 0
        for schema_id, rows in framed.by_schema():
            reader = self._reader_of(schema_id)
            if reader is None:
                continue
            column, bad = reader.read(framed.data, framed.starts[rows] + FRAME_BYTES, framed.ends[rows])
            if len(rows) == len(values) and not bad.any():
                return column, pa.nulls(len(values), pa.string())
            place[rows] = np.where(bad, -1, np.arange(length, length + len(rows)))
            length += len(rows)
            pieces.append(column)
        rest = np.flatnonzero((place < 0) & framed.is_there)
        column, reasons = self._one_by_one(values.take(pa.array(rest)))
        place[rest] = np.arange(length, length + len(rest))
        reason_of = np.full(len(values), -1, np.int64)
        reason_of[rest] = np.arange(len(rest))
        return _picked(pa.concat_arrays([*pieces, column]), place), _picked(reasons, reason_of)

    def _reader_of(self, schema_id: int) -> DatumReader | None:
        if schema_id not in self._readers:
            try:
                found = DatumReader(self._registry.schema(schema_id), self._reader, self._type)
            except RegistryUnreachable:
                raise
            except SchemaError:
                return None  # each of its values says why; it may be registered by the next time
            except NotByColumn:
                found = None
            self._readers[schema_id] = found
        return self._readers[schema_id]

    def _one_by_one(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        decoded: list[Any] = []
        reasons: list[str | None] = []
        for value in values.to_pylist():
            found, reason = None, None
            try:
                found = _plain(self._decode(value), self._type)
            except RegistryUnreachable:
                raise
            except SchemaError as refused:
                reason = str(refused)
            decoded.append(found)
            reasons.append(reason)
        try:
            return pa.array(decoded, self._type), pa.array(reasons, pa.string())
        except _NO_COLUMN:
            for number, found in enumerate(decoded):
                try:
                    pa.array([found], self._type)
                except _NO_COLUMN as refused:  # fastavro reads an int of any size
                    decoded[number], reasons[number] = None, f"the column cannot hold a value: {refused}"
            return pa.array(decoded, self._type), pa.array(reasons, pa.string())


class _Framed:
    """Values as bytes, and where each begins and ends.

    Attributes:
        data: the bytes of all, with `PADDING_BYTES` more.
        is_there: which values are not null.
    """

    def __init__(self, values: pa.Array) -> None:
        _, bounds, data = values.buffers()
        offsets = np.frombuffer(bounds, np.int32, len(values) + 1, 4 * values.offset).astype(np.int64)
        body = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        first = offsets[0]
        self.data = np.concatenate([body[first : offsets[-1]], np.zeros(PADDING_BYTES, np.uint8)])
        self.starts, self.ends = offsets[:-1] - first, offsets[1:] - first
        self.is_there = values.is_valid().to_numpy(zero_copy_only=False)

    def by_schema(self) -> Iterator[tuple[int, Int64s]]:
        """Yield each schema's id and the numbers of its values, in order; those without a frame have none."""
        has_frame = self.is_there & (self.ends - self.starts >= FRAME_BYTES) & (self.data[self.starts] == MAGIC)
        rows = np.flatnonzero(has_frame)
        places = self.starts[rows]
        ids = np.zeros(len(rows), np.int64)
        for byte in range(1, FRAME_BYTES):
            ids = ids << 8 | self.data[places + byte]
        order = np.argsort(ids, kind="stable")
        ids, rows = ids[order], rows[order]
        firsts = np.flatnonzero(np.diff(ids, prepend=-1))
        for first, after in pairwise([*firsts, len(ids)]):
            # The id in a frame is signed.
            yield int(ids[first].astype(np.int32)), rows[first:after]


def _picked(rows: pa.Array, places: Int64s) -> pa.Array:
    return rows.take(pa.array(places, mask=places < 0))


def _type(schema: Parsed, named: Mapping[str, Parsed], where: str, inside: tuple[str, ...]) -> pa.DataType:
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            raise SchemaError(f"field {where} is a union of {schema!r}; a column holds one type or null")
        return _type(branches[0], named, where, inside)
    if isinstance(schema, str):
        return _PRIMITIVES[schema] if schema in _PRIMITIVES else _type(named[schema], named, where, inside)
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical in _RAW_LOGICAL:
        raise SchemaError(f"field {where} is a {logical}; no column of Spark's holds that as it is")
    if kind in ("record", "error"):
        if schema["name"] in inside:
            raise SchemaError(f"field {where} holds itself: {schema['name']}; a column cannot")
        deeper = (*inside, schema["name"])
        return pa.struct(
            [(f["name"], _type(f["type"], named, f"{where}.{f['name']}", deeper)) for f in schema["fields"]]
        )
    if kind == "array":
        return pa.list_(_type(schema["items"], named, f"{where}[]", inside))
    if kind == "map":
        return pa.map_(pa.string(), _type(schema["values"], named, f"{where}{{}}", inside))
    return _type(kind, named, where, inside)


def _plain(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401  whatever the schema says
    """Return *value* as pyarrow takes it: a map as pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(key, _plain(one, kind.item_type)) for key, one in value.items()]
    if pa.types.is_list(kind):
        return [_plain(one, kind.value_type) for one in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value.get(field.name), field.type) for field in kind}
    return value

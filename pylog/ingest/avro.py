"""Framed Avro in a topic's values -> columns, under the subject's latest schema.

Values written under earlier or later schemas are resolved as Avro says: a field the writer lacked takes its default,
one the reader lacks is left out.  A value that does not decode is null, with the reason beside it; the raw one stays.

columns => decoded: struct of the record's fields, decodeError: string

Source: Avro specification, "Schema Resolution" and "Logical Types".
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pylog.client.avro import AvroDeserializer, Parsed, RegistryClient, RegistryUnreachable, SchemaError, parse

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

    Args:
        urls: of the registry's instances.
        reader_schema: text; see `latest_schema`.
    """

    def __init__(self, urls: list[str], reader_schema: str) -> None:
        self._decode = AvroDeserializer(RegistryClient(urls), reader_schema)
        self._type = column_type(reader_schema)

    def decode(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the decoded column and the reasons of those that are null in it; null values stay null without one.

        Raises:
            RegistryUnreachable: a schema was not met before and nobody answers; that is no fault of the message.
        """
        decoded: list[Any] = []
        errors: list[str | None] = []
        for value in values.to_pylist():
            found, error = None, None
            if value is not None:
                try:
                    found = _plain(self._decode(value), self._type)
                except RegistryUnreachable:
                    raise
                except SchemaError as refused:
                    error = str(refused)
            decoded.append(found)
            errors.append(error)
        return pa.array(decoded, self._type), pa.array(errors, pa.string())


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

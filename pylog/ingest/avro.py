"""Framed Avro in a topic's values -> columns, under the subject's latest schema.

Values written under earlier or later schemas are resolved as Avro says: a field the writer lacked takes its default,
one the reader lacks is left out.  A value that does not decode is null, with the reason beside it; the raw one stays.

columns => decoded: what `pylog.ingest.resolve.column_of` makes of the schema, decodeError: string
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from pylog.client.avro import FRAME_BYTES, MAGIC, RegistryClient, RegistryUnreachable, SchemaError, schema_id_of
from pylog.client.security import ClientSecurity
from pylog.ingest.columns import Int64s
from pylog.ingest.datums import PADDING_BYTES, BadDatum, DatumReader
from pylog.ingest.resolve import Column, column_of, reader_of
from pylog.ingest.schemas import parse


@lru_cache(maxsize=16)
def registry_of(urls: tuple[str, ...], security: ClientSecurity | None = None) -> RegistryClient:
    """Return this process's client of a registry: what one task learned, the next one need not ask."""
    return RegistryClient(urls, security=security)


def column_for(texts: Sequence[str]) -> Column:
    """Return the decoded column for a schema, whose text comes last, behind those that it refers to.

    Raises:
        SchemaError: it is no schema, or one that no column can hold any of.
    """
    return column_of(parse(texts))


class AvroColumns:
    """Decodes one topic's values; made in a task, where it meets the schemas it needs.

    All values of a schema at a time; one after the other where a value is not what its schema says.

    Args:
        registry: knows the schemas by id; see `registry_of`.
        reader_texts: the reader's schema; see `column_for`.
        subject: that it is the latest of; see `RegistryClient.texts`.
    """

    def __init__(self, registry: RegistryClient, reader_texts: Sequence[str], subject: str | None = None) -> None:
        self._registry, self._subject = registry, subject
        self._reader = parse(reader_texts)
        self._type = column_of(self._reader).kind
        self._readers: dict[int, DatumReader] = {}

    def decode(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the decoded column and the reasons of those that are null in it; null values stay null without one.

        Raises:
            RegistryUnreachable: a schema was not met before and nobody answers, or the user may not see the subject
                that is read under; that is no fault of the message.
        """
        framed = _Framed(values)
        pieces: list[pa.Array] = []
        # Of each value, its row among the pieces one behind the other; -1 is nowhere.
        place = np.full(len(values), -1, np.int64)
        length = 0
        for schema_id, rows in framed.by_schema():
            try:
                reader = self._reader_of(schema_id)
            except RegistryUnreachable:
                raise
            except SchemaError:
                continue  # each of its values says why
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

    def _reader_of(self, schema_id: int) -> DatumReader:
        if schema_id not in self._readers:
            writer = parse(self._registry.texts(schema_id, self._subject))
            self._readers[schema_id] = reader_of(writer, self._reader, self._type)
        return self._readers[schema_id]

    def _one_by_one(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        decoded: list[Any] = []
        reasons: list[str | None] = []
        for payload in values.to_pylist():
            found, reason = None, None
            try:
                schema_id = schema_id_of(payload)
                found = self._reader_of(schema_id).read_one(payload[FRAME_BYTES:])
            except RegistryUnreachable:
                raise
            except SchemaError as refused:
                reason = str(refused)
            except BadDatum as refused:
                reason = f"payload of {len(payload)} bytes does not fit schema {schema_id}: {refused}"
            decoded.append(found)
            reasons.append(reason)
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

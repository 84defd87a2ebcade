"""Record batches -> Arrow columns, without a Python object per record.

One plain loop walks the records' length varints; everything else happens to all records of a chunk at once.  Every
batch's CRC is checked (17 GB/s, so it costs nothing), control batches are skipped, and a batch whose records contradict
their lengths raises instead of yielding rows.

columns => key: binary, value: binary, offset: int64, timestamp: timestamp[us, UTC], timestampType: int32 (0 create
           time, 1 log-append time), headers: list<struct<key: string, value: binary>> on request
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylog.errors import CorruptRecords, ProtocolError
from pylog.ingest.columns import Bools, Bytes, Int64s, gather, varints
from pylog.model import Offset
from pylog.wire import compression, records
from pylog.wire.primitives import MAX_VARINT_BYTES, read_unsigned_varint, read_varint
from pylog.wire.records import BatchHeader

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
FIELDS = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", "UTC")),
    ("timestampType", pa.int32()),
)

CHUNK_BYTES = 4 << 20
"""Unpacked bytes after which a chunk is closed: a fetch of well-packed batches must not unfold in memory at once, and
the arrays of 4 MiB still fit the processor's cache (1 to 8 MiB measured the same, 32 MiB a third slower)."""

_PADDING = bytes(64)
# Zero bytes end every varint, so a record that lies about its lengths reads at most these before it is caught.

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
# Years 1 to 9999, what Spark, Python and Parquet readers agree on.  A producer may send any int64.


def whole_batches(view: memoryview | bytes) -> list[tuple[int, BatchHeader]]:
    """Return (position, header) of every whole batch; the partial tail a fetch may end with is dropped."""
    return list(records.iter_batches(view))


def decode(
    view: memoryview | bytes,
    batches: Sequence[tuple[int, BatchHeader]],
    *,
    start: Offset = 0,
    end: Offset = (1 << 63) - 1,
    with_headers: bool = False,
    header_errors: str = "strict",
    max_batch_bytes: int = compression.MAX_DECOMPRESSED_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of *batches* whose offset is in [start, end), some thousands at a time.

    Args:
        view: the bytes of a fetch.
        batches: what `whole_batches` found in them.
        start: first offset wanted; a fetch begins with the whole batch that holds it.
        end: first offset not wanted.
        with_headers: whether to decode the record headers too.
        header_errors: what becomes of header names that are not UTF-8, as `bytes.decode` has it.
        max_batch_bytes: cap of one batch unpacked.

    Raises:
        CorruptRecords: a batch fails its CRC, does not unpack, or contradicts itself; the message names its offsets.
    """
    memory = memoryview(view)
    chunk = _Chunk()
    for position, header in batches:
        if header.base_offset >= end:
            continue
        try:
            # First of all: what a damaged header says of its offsets and its kind must not make it be passed over.
            records.check_stored_batch(memory, position)
            if header.last_offset < start or header.is_control:
                continue
            body = memory[position + records.HEADER_BYTES : position + header.size_bytes]
            chunk.add(header, compression.decompress(header.compression, body, max_batch_bytes))
        except CorruptRecords as error:
            raise CorruptRecords(f"offsets {header.base_offset} to {header.last_offset}: {error}") from error
        if len(chunk.data) >= CHUNK_BYTES:
            yield from chunk.rows(start, end, header_errors if with_headers else None)
            chunk = _Chunk()
    yield from chunk.rows(start, end, header_errors if with_headers else None)


@dataclass(slots=True)
class _Columns:
    """Where each record's parts lie in the chunk's bytes; all arrays have one entry a record."""

    offset: Int64s
    timestamp_ms: Int64s
    is_timestamp_valid: Bools
    timestamp_type: npt.NDArray[np.int32]
    key: Int64s
    key_length: Int64s
    value: Int64s
    value_length: Int64s
    header_count: Int64s
    headers: Int64s
    end: Int64s

    def select(self, keep: Bools) -> "_Columns":
        return _Columns(*(getattr(self, name)[keep] for name in self.__slots__))


class _Chunk:
    """Unpacked batches, back to back."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._batches: list[BatchHeader] = []
        self._positions: list[int] = []

    def add(self, header: BatchHeader, body: memoryview) -> None:
        """Take one batch in and find its records."""
        at = len(self.data)
        self.data += body
        _walk(self.data, at, header.record_count, self._positions)
        self._batches.append(header)

    def rows(self, start: Offset, end: Offset, header_errors: str | None) -> Iterator[pa.RecordBatch]:
        """Yield the records in [start, end) as one batch of rows, or nothing when there are none."""
        if not self._positions:
            return
        try:
            columns = self._columns()
            keep = (columns.offset >= start) & (columns.offset < end)
            if not keep.all():
                columns = columns.select(keep)
            if len(columns.offset):
                yield self._arrow(columns, header_errors)
        except CorruptRecords as error:
            first, last = self._batches[0].base_offset, self._batches[-1].last_offset
            raise CorruptRecords(f"offsets {first} to {last}: {error}") from error

    def _columns(self) -> _Columns:
        counts = [header.record_count for header in self._batches]
        each = _Repeat(np.repeat(np.arange(len(counts)), counts), self._batches)
        ends = np.array([*self._positions[1:], len(self.data)], dtype=np.int64)
        data = np.frombuffer(self.data + _PADDING, dtype=np.uint8)
        _, at = _varints(data, np.array(self._positions, dtype=np.int64))
        timestamp_delta, at = _varints(data, at + 1)  # one byte of attributes, unused
        offset_delta, at = _varints(data, at)
        key_length, key = _varints(data, at)
        at = _skip(key, key_length, ends, each)
        value_length, value = _varints(data, at)
        at = _skip(value, value_length, ends, each)
        header_count, at = _varints(data, at)
        each.refuse((at > ends) | (header_count < 0) | ((header_count == 0) & (at != ends)), "is off its length")
        each.refuse((offset_delta < 0) | (offset_delta > each("last_offset_delta")), "is outside its batch's offsets")
        appended = (each("attributes") & records.LOG_APPEND_TIME) != 0
        timestamp_ms, valid = _timestamps(each("base_timestamp"), timestamp_delta, each("max_timestamp"), appended)
        return _Columns(
            each("base_offset") + offset_delta, timestamp_ms, valid, appended.astype(np.int32),
            key, key_length, value, value_length, header_count, at, ends,
        )  # fmt: skip

    def _arrow(self, c: _Columns, header_errors: str | None) -> pa.RecordBatch:
        buffer = pa.py_buffer(self.data)
        arrays = [
            gather(buffer, c.key, c.key_length),
            gather(buffer, c.value, c.value_length),
            pa.array(c.offset),
            pa.array(c.timestamp_ms * 1000, mask=~c.is_timestamp_valid).cast(pa.timestamp("us", "UTC")),
            pa.array(c.timestamp_type),
        ]
        names = [name for name, _ in FIELDS]
        if header_errors is not None:
            arrays.append(_headers(self.data, c, header_errors))
            names.append("headers")
        return pa.RecordBatch.from_arrays(arrays, names)


class _Repeat:
    """A batch's header field, once for each of its records."""

    def __init__(self, batch_of_record: Int64s, batches: list[BatchHeader]) -> None:
        self._batch_of_record = batch_of_record
        self._batches = batches

    def __call__(self, field: str) -> Int64s:
        per_batch = np.array([getattr(header, field) for header in self._batches], dtype=np.int64)
        return per_batch[self._batch_of_record]

    def refuse(self, bad: Bools, what: str) -> None:
        """Raise for the first record that is *bad*."""
        if bad.any():
            header = self._batches[self._batch_of_record[int(np.argmax(bad))]]
            raise CorruptRecords(f"a record of the batch at {header.base_offset} {what}")


def _walk(data: bytearray, at: int, count: int, positions: list[int]) -> None:
    """Append the position of each record's length; the last must end where the batch does."""
    # The records chain through their lengths, so this loop cannot be vectorised.  At 200 bytes a record it is a tenth
    # of the whole; a longer chain than the data ends in IndexError after at most len(data) steps.
    end = len(data)
    append = positions.append
    try:
        for _ in range(count):
            append(at)
            first = data[at]
            if first & 1:  # zigzag: odd is negative
                raise CorruptRecords("a record has a negative length")
            if first < 0x80:
                at += 1 + (first >> 1)
                continue
            second = data[at + 1]
            if second < 0x80:
                at += 2 + (((first & 0x7F) | second << 7) >> 1)
            else:
                size, used = read_unsigned_varint(bytes(data[at : at + MAX_VARINT_BYTES]), 0)
                at += used + (size >> 1)
    except (IndexError, ProtocolError) as error:
        raise CorruptRecords(f"the batch ends inside one of its {count} records") from error
    if at != end:
        raise CorruptRecords(f"{count} records end {at - end:+d} bytes off the batch's end")


def _varints(data: Bytes, at: Int64s) -> tuple[Int64s, Int64s]:
    numbers, at, too_long = varints(data, at)
    if too_long.size:
        raise CorruptRecords("a varint is longer than 64 bits need")
    return numbers, at


def _skip(at: Int64s, length: Int64s, ends: Int64s, each: _Repeat) -> Int64s:
    each.refuse(length > ends - at, "claims more bytes than it has")
    return at + np.maximum(length, 0)


def _timestamps(base: Int64s, delta: Int64s, appended_ms: Int64s, appended: Bools) -> tuple[Int64s, Bools]:
    created = base + delta
    wrapped = ((base ^ created) & (delta ^ created)) < 0  # the sum left 64 bits
    timestamp = np.where(appended, appended_ms, created)
    valid = (timestamp >= _FIRST_MS) & (timestamp <= _LAST_MS) & (appended | ~wrapped)
    return np.where(valid, timestamp, 0), valid


def _headers(data: bytearray, c: _Columns, errors: str) -> pa.Array:
    if not c.header_count.any():
        bounds = pa.array(np.zeros(len(c.offset) + 1, np.int32))
        return pa.ListArray.from_arrays(bounds, pa.array([], HEADERS.value_type))
    # Few records carry headers, so these are decoded one by one.
    rows: list[list[dict[str, object]]] = [[]] * len(c.offset)
    view = memoryview(data)
    for row in np.flatnonzero(c.header_count):
        rows[row] = _read_headers(view, int(c.headers[row]), int(c.end[row]), int(c.header_count[row]), errors)
    return pa.array(rows, type=HEADERS)


def _read_headers(view: memoryview, at: int, end: int, count: int, errors: str) -> list[dict[str, object]]:
    if count > end - at:  # each takes at least two bytes
        raise CorruptRecords(f"a record claims {count} headers in {end - at} bytes")
    headers: list[dict[str, object]] = []
    try:
        for _ in range(count):
            key, at = _read_bytes(view, at, end)
            value, at = _read_bytes(view, at, end)
            headers.append({"key": (key or b"").decode(errors=errors), "value": value})
    except (ProtocolError, UnicodeDecodeError) as error:
        raise CorruptRecords(f"a record's headers do not decode: {error}") from error
    if at != end:
        raise CorruptRecords(f"a record's headers end {at - end:+d} bytes off its end")
    return headers


def _read_bytes(view: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(view, at)
    if length > end - at:
        raise ProtocolError(f"claims {length} bytes, {end - at} are left")
    return (None, at) if length < 0 else (bytes(view[at : at + length]), at + length)

"""The column-wise decoder against the record-by-record one of pylog.wire, and against bytes that lie."""

import struct
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.errors import CorruptRecords
from pylog.ingest.decode import HEADERS, decode, whole_batches
from pylog.wire import records as wire
from pylog.wire.compression import CODECS
from pylog.wire.primitives import write_varint
from pylog.wire.records import HEADER_BYTES, Record, encode_batch

NOW_MS = 1_700_000_000_000
SAMPLE = [Record(i, NOW_MS + i, b"key-%d" % i, b"value" * i, []) for i in range(5)]

BYTES = st.none() | st.binary(max_size=300)
TIMES = st.integers(-(1 << 62), 1 << 62) | st.integers(-1, NOW_MS)
HEADER = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5))
ROWS = st.lists(st.tuples(TIMES, BYTES, BYTES, st.lists(HEADER, max_size=3)), min_size=1, max_size=20)
BATCH = st.tuples(ROWS, st.sampled_from(sorted(CODECS)), st.sampled_from([0, wire.LOG_APPEND_TIME, wire.CONTROL]))


def rows_of(view: bytes, **options: object) -> list[dict[str, object]]:
    batches = list(decode(view, whole_batches(view), **options))  # type: ignore[arg-type]
    return [row for batch in batches for row in batch.to_pylist()]


def as_row(record: Record, timestamp_type: int) -> dict[str, object]:
    """The reference decoder's record, as the row it must become."""
    readable = -62_135_596_800_000 <= record.timestamp <= 253_402_300_799_999
    micros = pa.scalar(record.timestamp * 1000, pa.int64()).cast(pa.timestamp("us", "UTC")) if readable else None
    return {
        "key": record.key,
        "value": record.value,
        "offset": record.offset,
        "timestamp": micros.as_py() if micros is not None else None,
        "timestampType": timestamp_type,
        "headers": [{"key": name, "value": value} for name, value in record.headers],
    }


@settings(deadline=None)
@given(st.lists(BATCH, max_size=5), st.integers(0, 60), st.integers(0, 60), st.integers(0, 200))
def test_equals_the_record_by_record_decoder(
    batches: list[tuple[list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], str, int]],
    start: int,
    length: int,
    cut_bytes: int,
) -> None:
    encoded, offset = [], 0
    for rows, codec, attributes in batches:
        batch = [Record(offset + i, *row) for i, row in enumerate(rows)]
        encoded.append(encode_batch(batch, compression_type=codec, base_offset=offset, attributes=attributes))
        offset += len(rows)
    view = b"".join(encoded)
    view = view[: len(view) - cut_bytes]  # a fetch may end inside a batch

    expected = []
    for position, header in wire.iter_batches(view):
        if not header.is_control:
            for record in wire.decode_records(view, header, position):
                expected.append(as_row(record, int(header.is_log_append_time)))  # noqa: PERF401
    expected = [row for row in expected if start <= row["offset"] < start + length]  # type: ignore[operator]
    assert rows_of(view, start=start, end=start + length, with_headers=True) == expected


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_columns_have_the_types_that_spark_wants(codec: str) -> None:
    view = encode_batch(SAMPLE, compression_type=codec)
    (batch,) = decode(view, whole_batches(view), with_headers=True)
    assert batch.schema == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", HEADERS),
        ]
    )
    assert batch["timestamp"][4].as_py() == datetime.fromtimestamp((NOW_MS + 4) / 1000, UTC)


def test_headers_are_left_out_unless_asked_for() -> None:
    view = encode_batch([Record(0, NOW_MS, b"k", b"v", [("a", None)])])
    assert "headers" not in rows_of(view)[0]
    assert rows_of(view, with_headers=True)[0]["headers"] == [{"key": "a", "value": None}]


def test_no_records_are_no_rows() -> None:
    assert rows_of(b"") == []


def test_records_of_every_size_class_are_found() -> None:
    # One, two, three and four bytes of length varint.
    values = [b"", b"x" * 63, b"x" * 64, b"x" * 8191, b"x" * 8192, b"x" * 1_048_576, b""]
    view = encode_batch([Record(i, NOW_MS, None, value) for i, value in enumerate(values)])
    assert [row["value"] for row in rows_of(view)] == values


def test_many_batches_come_in_several_chunks() -> None:
    one = [Record(0, NOW_MS, None, b"x" * 1_000_000)]
    view = b"".join(encode_batch([Record(i, *_tail(one[0]))], base_offset=i) for i in range(12))
    chunks = list(decode(view, whole_batches(view)))
    assert len(chunks) > 1
    assert [offset for chunk in chunks for offset in chunk["offset"].to_pylist()] == list(range(12))


def test_a_batch_thinned_by_compaction_keeps_its_offsets() -> None:
    view = encode_batch([SAMPLE[0], SAMPLE[3]])
    assert [row["offset"] for row in rows_of(view)] == [0, 3]


def test_a_batch_that_unpacks_beyond_the_cap_is_refused() -> None:
    view = encode_batch([Record(0, NOW_MS, None, bytes(200_000))], compression_type="zstd")
    with pytest.raises(CorruptRecords, match="more than 100000"):
        rows_of(view, max_batch_bytes=100_000)


def test_a_flipped_bit_is_caught_and_its_offsets_are_named() -> None:
    view = bytearray(encode_batch([Record(7 + i, NOW_MS, b"k", b"v") for i in range(3)], base_offset=7))
    view[-1] ^= 1
    with pytest.raises(CorruptRecords, match=r"offsets 7 to 9: .*CRC"):
        rows_of(bytes(view))


def test_an_unknown_magic_is_caught() -> None:
    view = bytearray(encode_batch(SAMPLE))
    view[16] = 1
    with pytest.raises(CorruptRecords, match="magic 1"):
        rows_of(bytes(view))


def _tail(record: Record) -> tuple[int, bytes | None, bytes | None]:
    return record.timestamp, record.key, record.value


def _record(
    *,
    offset_delta: int = 0,
    key_length: int = 1,
    value_length: int = 1,
    header_count: int = 0,
    headers: bytes = b"",
    extra_length: int = 0,
) -> bytes:
    body = bytearray(b"\x00\x00")
    write_varint(body, offset_delta)
    write_varint(body, key_length)
    body += b"k"
    write_varint(body, value_length)
    body += b"v"
    write_varint(body, header_count)
    body += headers
    out = bytearray()
    write_varint(out, len(body) + extra_length)
    return bytes(out + body)


def _batch_around(body: bytes, count: int) -> bytes:
    """A batch whose CRC is right, whatever its body says."""
    under_crc = struct.pack(">hiqqqhii", 0, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count) + body
    front = struct.pack(">qiibI", 0, HEADER_BYTES - 12 + len(body), -1, 2, crc32c(under_crc))
    return front + under_crc


LIES = {
    "fewer records than counted": (_record(), 2),
    "more records than counted": (_record() * 2, 1),
    "a record longer than the batch": (_record(extra_length=1), 1),
    "a record shorter than its parts": (_record(extra_length=-1) + b"\x00", 2),
    "an empty record": (b"\x00", 1),
    "a negative record length": (b"\x01" + _record(), 2),
    "a key longer than the record": (_record(key_length=1 << 40), 1),
    "a value longer than the record": (_record(value_length=500), 1),
    "an offset outside the batch": (_record(offset_delta=5), 1),
    "a negative offset delta": (_record(offset_delta=-1), 1),
    "a negative header count": (_record(header_count=-1), 1),
    "bytes after the last header": (_record(headers=b"xx"), 1),
    "a varint without an end": (b"\x16\x00" + b"\xff" * 10, 1),
    "a length varint without an end": (b"\xfe" * 12, 1),
    "more headers than bytes": (_record(header_count=50, headers=b"\x00\x00"), 1),
    "a header longer than the record": (_record(header_count=1, headers=b"\x7e\x00"), 1),
    "a header name that is not text": (_record(header_count=1, headers=b"\x02\xff\x00"), 1),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_batch_that_lies_is_refused(lie: str) -> None:
    body, count = LIES[lie]
    with pytest.raises(CorruptRecords, match="offsets 0 to"):
        rows_of(_batch_around(body, count), with_headers=True)


@settings(deadline=None)
@given(st.binary(max_size=80), st.integers(1, 4))
def test_any_bytes_end_in_rows_or_a_clear_error(body: bytes, count: int) -> None:
    try:
        rows = rows_of(_batch_around(body, count), with_headers=True)
    except CorruptRecords as error:
        assert "offsets 0 to" in str(error)  # noqa: PT017  either outcome is right
    else:
        assert len(rows) == count

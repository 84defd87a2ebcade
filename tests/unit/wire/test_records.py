"""Record batches: round trips, damage, lies and bombs."""

import contextlib
import struct

import cramjam
import lz4.frame
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.errors import ApiError, CorruptRecords, InvalidRecords
from pylog.wire import compression, records
from pylog.wire.records import Record

payloads = st.one_of(st.none(), st.binary(max_size=300))
headers = st.lists(st.tuples(st.text(max_size=10), payloads), max_size=3)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    rows = draw(st.lists(st.tuples(st.integers(0, 2**41), payloads, payloads, headers), min_size=1, max_size=20))
    return [Record(offset, *row) for offset, row in enumerate(rows)]


@given(record_lists(), st.sampled_from(sorted(compression.CODECS)))
def test_records_round_trip(given_records: list[Record], codec: str) -> None:
    batch = memoryview(bytearray(records.encode_batch(given_records, compression_type=codec)))
    header = records.check_batch(batch)
    assert records.decode_records(batch, header) == given_records
    assert header.last_offset == len(given_records) - 1


def test_patch_keeps_the_crc() -> None:
    batch = memoryview(bytearray(records.encode_batch([Record(0, 1, b"k", b"v")])))
    records.patch(batch, 1_000_000, 7)
    header = records.check_batch(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (1_000_000, 7)


@given(st.data())
@settings(max_examples=300)
def test_any_flipped_bit_under_the_crc_is_found(data: st.DataObject) -> None:
    batch = bytearray(records.encode_batch([Record(0, 1, b"key", b"value" * 20)]))
    at = data.draw(st.integers(records.CRC_START - 5, len(batch) - 1))
    batch[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ApiError):
        records.check_batch(memoryview(batch))


def test_a_count_that_contradicts_the_offsets_is_invalid() -> None:
    batch = bytearray(records.encode_batch([Record(0, 1, b"k", b"v")]))
    struct.pack_into(">i", batch, 57, 3)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    with pytest.raises(InvalidRecords):
        records.check_batch(memoryview(batch))


def test_partial_tail_is_dropped() -> None:
    batch = records.encode_batch([Record(0, 1, b"k", b"v")])
    for cut in range(len(batch)):
        assert [position for position, _ in records.iter_batches(batch + batch[:cut])] == [0]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_zip_bomb_is_refused_at_the_cap(codec: str) -> None:
    bomb = compression.compress(compression.CODECS[codec], bytes(8 << 20))
    with pytest.raises(CorruptRecords, match=r"more than|cap"):
        compression.decompress(compression.CODECS[codec], bomb, max_bytes=1 << 20)


def test_raw_snappy_of_librdkafka_is_read() -> None:
    data = b"pylog " * 100
    assert compression.decompress(2, bytes(cramjam.snappy.compress_raw(data))) == data


@given(st.binary(max_size=300), st.integers(1, 900))
@settings(max_examples=60, deadline=None)
def test_lz4_frames_are_read_by_another_implementation_and_back(data: bytes, times: int) -> None:
    data = data * times
    packed = compression.compress(3, data)
    assert packed[:7] == bytes.fromhex("04224d18604082"), "independent blocks, or Java refuses them"
    assert lz4.frame.decompress(packed) == data
    assert compression.decompress(3, packed) == data
    assert compression.decompress(3, lz4.frame.compress(data)) == data


@given(st.binary(max_size=400), st.sampled_from([1, 2, 3, 4]))
def test_noise_never_raises_anything_else(noise: bytes, codec: int) -> None:
    with contextlib.suppress(CorruptRecords):
        compression.decompress(codec, noise, max_bytes=1 << 16)


HEADERS: list[tuple[str, bytes | None]] = [("h", b"1"), ("i", None)]
ROWS = [
    Record(number, 1_000 + 90 * number, b"k" if number % 3 else None, b"v" * 40 * number, HEADERS[: number % 3])
    for number in range(6)
]


@given(st.binary(max_size=4), st.integers(0, 400), st.integers(0, 4))
def test_records_are_refused_by_the_check_exactly_where_reading_them_fails(
    damage: bytes, at: int, removed: int
) -> None:
    batch = memoryview(bytearray(records.encode_batch(ROWS)))
    header, whole = records.parse_header(batch), bytes(batch[records.HEADER_BYTES :])
    body = memoryview(whole[:at] + damage + whole[at + removed :])
    try:
        offsets = [row.offset for row in records.read_records(body, header)]
    except CorruptRecords:
        # Or an offset out of turn is met before, which reading alone does not mind.
        with pytest.raises((CorruptRecords, InvalidRecords)):
            records.check_records(body, header)
    else:
        if offsets == list(range(len(ROWS))):
            records.check_records(body, header)
        else:
            with pytest.raises(InvalidRecords, match="offset delta"):
                records.check_records(body, header)

"""What a topic may ask of a producer's records: a codec, keys, and that they are what the header says."""

import tracemalloc

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import ApiError, CorruptRecords, ErrorCode, InvalidRecords
from pylog.log.config import COMPRESSION_TYPES, LogConfig
from pylog.log.intake import MAX_UNPACKED_RATIO, Allowance, max_unpacked_bytes, take_in
from pylog.wire import records
from pylog.wire.compression import CODECS, compress
from pylog.wire.records import BatchHeader, Record, check_batch, decode_records, encode_batch

CODED = sorted(set(CODECS) - {"none"})


def sent(*rows: Record, compression_type: str = "none", **fields: int) -> tuple[memoryview, BatchHeader]:
    """Return a batch as a producer sends it, and its header."""
    view = memoryview(bytearray(encode_batch(rows, compression_type=compression_type, **fields)))
    return view, check_batch(view)


def rows(count: int, *, key: bytes | None = b"k") -> list[Record]:
    return [Record(number, 1_000 + number, key, b"value" * 10, [("h", b"1")]) for number in range(count)]


def forged(body: bytes, count: int, codec: str) -> tuple[memoryview, BatchHeader]:
    """Return a batch whose header is sound and whose records are *body*."""
    view, _ = sent(*rows(count), compression_type=codec)
    made = bytearray(view[: records.HEADER_BYTES]) + compress(CODECS[codec], body)
    made[8:12] = (len(made) - records.LENGTH_OVERHEAD).to_bytes(4, "big")
    records.patch_crc(memoryview(made), crc32c(memoryview(made)[records.CRC_START :]))
    return memoryview(made), check_batch(memoryview(made))


class TestCompression:
    @given(st.sampled_from(sorted(CODECS)), st.sampled_from(COMPRESSION_TYPES), st.integers(1, 30))
    def test_records_arrive_unchanged_in_the_topic_s_codec(self, given_codec: str, wanted: str, count: int) -> None:
        view, header = sent(
            *rows(count), compression_type=given_codec, producer_id=7, producer_epoch=1, base_sequence=5
        )
        stored, after = take_in(view, header, LogConfig(compression_type=wanted))
        assert check_batch(stored) == after
        assert after.size_bytes == len(stored)
        codec = {"producer": given_codec, "uncompressed": "none"}.get(wanted, wanted)
        assert after.compression == CODECS[codec]
        assert decode_records(stored, after) == rows(count)
        assert (after.producer_id, after.producer_epoch, after.base_sequence) == (7, 1, 5)

    def test_trap_16_under_producer_a_batch_is_passed_on_as_it_is(self) -> None:
        for codec in CODECS:
            view, header = sent(*rows(3), compression_type=codec)
            assert take_in(view, header, LogConfig())[0] is view

    def test_a_batch_in_the_right_codec_is_passed_on_as_it_is(self) -> None:
        view, header = sent(*rows(3), compression_type="lz4")
        assert take_in(view, header, LogConfig(compression_type="lz4"))[0] is view


@pytest.mark.parametrize("codec", CODED)
class TestBombs:
    def test_t32_a_bomb_is_refused_at_the_cap_and_costs_no_more_memory(self, codec: str) -> None:
        config = LogConfig(validate_records=True, max_message_bytes=100_000)
        cap = max_unpacked_bytes(config)
        view, header = forged(bytes(20 * cap), 1, codec)
        tracemalloc.start()
        with pytest.raises(CorruptRecords, match=r"more than|cap"):
            take_in(view, header, config)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 3 * cap, "a buffer, its copy, and no more"

    def test_the_cap_follows_the_topic_s_own_limit(self, codec: str) -> None:
        value = bytes(300_000)
        view, header = sent(Record(0, 1, None, value), compression_type=codec)
        take_in(view, header, LogConfig(validate_records=True, max_message_bytes=10_000))
        small = len(value) // MAX_UNPACKED_RATIO
        with pytest.raises(CorruptRecords):
            take_in(view, header, LogConfig(validate_records=True, max_message_bytes=small))


class TestRecords:
    def test_trap_17_a_compacted_topic_wants_keys(self) -> None:
        view, header = sent(*rows(2), Record(2, 1, None, b"v"))
        with pytest.raises(InvalidRecords, match="record 2 has no key") as caught:
            take_in(view, header, LogConfig(cleanup_policy="compact"))
        assert [one.number for one in caught.value.record_errors] == [2]

    def test_each_record_without_a_key_is_named_up_to_a_limit(self) -> None:
        keyless = [Record(number, 1, None, b"v") for number in range(2, 2_000)]
        view, header = sent(*rows(2), *keyless)
        with pytest.raises(InvalidRecords, match=r"record 2 has no key.* \(and 1997 more records\)") as caught:
            take_in(view, header, LogConfig(cleanup_policy="compact"))
        assert [one.number for one in caught.value.record_errors] == list(range(2, 1_002))

    @pytest.mark.parametrize("codec", sorted(CODECS))
    def test_trap_14_offsets_out_of_turn_are_refused_where_records_are_looked_at(self, codec: str) -> None:
        wrong = encode_batch([Record(0, 1, b"k", b"v"), Record(2, 1, b"k", b"v")], last_offset=1)
        view, header = forged(wrong[records.HEADER_BYTES :], 2, codec)
        with pytest.raises(InvalidRecords, match="offset delta 2"):
            take_in(view, header, LogConfig(validate_records=True))
        assert take_in(view, header, LogConfig())[0] is view

    def test_records_with_too_many_headers_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(records, "MAX_CHECKED", 100)
        rows = [Record(0, 0, b"k", b"v", [("", b"")] * 60), Record(1, 0, b"k", b"v", [("", b"")] * 60)]
        view = memoryview(bytearray(encode_batch(rows)))
        with pytest.raises(InvalidRecords, match="2 records with 120 headers"):
            take_in(view, check_batch(view), LogConfig(cleanup_policy="compact"), Allowance())

    def test_batches_of_one_request_share_what_it_may_have_looked_into(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(records, "MAX_CHECKED", 100)
        view = memoryview(bytearray(encode_batch([Record(number, 0, b"k", b"v") for number in range(40)])))
        allowance = Allowance()
        for _ in range(2):
            take_in(view, check_batch(view), LogConfig(cleanup_policy="compact"), allowance)
        with pytest.raises(ApiError) as refused:
            take_in(view, check_batch(view), LogConfig(cleanup_policy="compact"), allowance)
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT, "which is tried again"

    def test_what_a_false_batch_would_have_unpacked_to_counts_too(self) -> None:
        config = LogConfig(cleanup_policy="compact")
        view, header = forged(bytes(40 << 20), 1, "gzip")
        allowance = Allowance()
        codes = []
        for _ in range(6):
            with pytest.raises(ApiError) as refused:
                take_in(view, header, config, allowance)
            codes.append(refused.value.code)
        assert codes == [ErrorCode.CORRUPT_MESSAGE] * 4 + [ErrorCode.REQUEST_TIMED_OUT] * 2

    @given(st.binary(max_size=120), st.sampled_from(sorted(CODECS)), st.integers(1, 4))
    def test_whatever_the_records_are_they_are_taken_or_refused(self, body: bytes, codec: str, count: int) -> None:
        try:
            view, header = forged(body, count, codec)
            take_in(view, header, LogConfig(validate_records=True, cleanup_policy="compact"))
        except ApiError:
            return
        assert len(decode_records(view, header)) == count

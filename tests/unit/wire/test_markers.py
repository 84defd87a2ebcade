"""Markers of transactions, beside bytes that Apache Kafka 3.9 wrote."""

import pytest

from pylog.errors import CorruptRecords
from pylog.wire.markers import Marker, decode_marker, encode_marker, without_aborted
from pylog.wire.records import CONTROL, TRANSACTIONAL, Record, check_batch, encode_batch, iter_batches

KAFKA_ABORT = bytes.fromhex(
    "0000000000000001000000420000000002d1dd2d83003000000000000001a2093520f0000001a2093520f000000000000000"
    "000000ffffffff000000012000000008000000000c00000000000000"
)
TIME_MS = 0x1A2093520F0


def test_a_marker_is_what_kafka_writes() -> None:
    made = encode_marker(0, 0, Marker(False, 0), TIME_MS, base_offset=1, leader_epoch=0)
    assert made == KAFKA_ABORT


def test_a_marker_of_kafka_is_read() -> None:
    view = memoryview(KAFKA_ABORT)
    header = check_batch(view)
    assert header.is_control
    assert header.is_transactional
    assert decode_marker(view, header) == Marker(is_commit=False, coordinator_epoch=0)


@pytest.mark.parametrize("marker", [Marker(True, 0), Marker(False, 7), Marker(True, 2**31 - 1, decided_ms=TIME_MS)])
def test_what_is_written_is_read(marker: Marker) -> None:
    view = memoryview(encode_marker(5, 3, marker, TIME_MS))
    header = check_batch(view)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 3, -1)
    assert decode_marker(view, header) == marker


def _control(key: bytes | None, value: bytes | None) -> memoryview:
    return memoryview(encode_batch([Record(0, TIME_MS, key, value)], attributes=TRANSACTIONAL | CONTROL, producer_id=5))


def test_other_control_records_end_no_transaction() -> None:
    view = _control(b"\x00\x00\x00\x02", b"\x00\x00\x00\x00\x00\x00")  # leader change of KRaft
    assert decode_marker(view, check_batch(view)) is None


@pytest.mark.parametrize(
    ("key", "value"), [(None, b"\0" * 6), (b"\0\0\0", b"\0" * 6), (b"\0" * 4, None), (b"\0" * 4, b"\0" * 5)]
)
def test_a_control_record_that_contradicts_itself(key: bytes | None, value: bytes | None) -> None:
    view = _control(key, value)
    with pytest.raises(CorruptRecords):
        decode_marker(view, check_batch(view))


def fetched(*batches: bytes | tuple[int, bool]) -> bytes:
    """Return batches one after the other: bytes as they are, (producer, whether transactional) as one record."""
    out = b""
    for offset, one in enumerate(batches):
        if isinstance(one, bytes):
            data = bytearray(one)
        else:
            producer_id, is_transactional = one
            attributes = TRANSACTIONAL if is_transactional else 0
            record = Record(0, TIME_MS, None, b"value")
            data = bytearray(encode_batch([record], attributes=attributes, producer_id=producer_id, producer_epoch=0))
        data[:8] = offset.to_bytes(8, "big")
        out += data
    return out


def kept(view: bytes, aborted: list[tuple[int, int]]) -> list[int]:
    return [header.base_offset for _, header in without_aborted(iter_batches(view), aborted)]


COMMIT, ABORT = (encode_marker(9, 0, Marker(is_commit, 0), TIME_MS) for is_commit in (True, False))


def test_batches_of_an_aborted_transaction_are_left_out_up_to_its_marker() -> None:
    view = fetched((9, True), ABORT, (9, True), COMMIT)
    assert kept(view, [(9, 0)]) == [1, 2, 3]
    assert kept(view, []) == [0, 1, 2, 3]


def test_a_transaction_is_aborted_from_its_first_offset_on() -> None:
    view = fetched((9, True), COMMIT, (9, True), ABORT, (9, True), COMMIT, (9, True), ABORT)
    assert kept(view, [(9, 6), (9, 2)]) == [0, 1, 3, 4, 5, 7]


def test_a_transaction_that_began_before_the_fetch_is_aborted_too() -> None:
    view = fetched((9, True), (8, True), ABORT)
    assert kept(view, [(9, -5)]) == [1, 2]


def test_batches_outside_of_transactions_are_kept_whoever_wrote_them() -> None:
    view = fetched((9, False), (8, True), (-1, False), ABORT)
    assert kept(view, [(9, 0)]) == [0, 1, 2, 3]

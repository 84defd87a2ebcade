import os
from pathlib import Path

import pytest

from pylog.errors import ApiError, ErrorCode
from pylog.log.log import Log
from pylog.log.producers import MAX_PRODUCER_COUNT, SEQUENCE_MASK, Producers
from pylog.wire.records import parse_header

from .batches import SMALL, append, batch, crash, fill, open_log, read_all, segment_files


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path)


def send(log: Log, sequence: int, count: int = 2, *, epoch: int = 0, producer_id: int = 9) -> tuple[int, bool]:
    """Append a batch of an idempotent producer; return its base offset and whether it had been stored before."""
    view = batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    result = append(log, view)
    assert result.last_offset == result.base_offset + count - 1
    return result.base_offset, result.is_duplicate


def refused(log: Log, code: ErrorCode, sequence: int, *, epoch: int = 0) -> None:
    end_offset = log.log_end_offset
    with pytest.raises(ApiError) as found:
        send(log, sequence, epoch=epoch)
    assert found.value.code is code
    assert log.log_end_offset == end_offset


def test_each_of_the_last_five_batches_is_recognised(log: Log) -> None:
    for number in range(7):
        assert send(log, 2 * number) == (2 * number, False)
    stored = read_all(log)
    for number in range(2, 7):
        assert send(log, 2 * number) == (2 * number, True)
    assert read_all(log) == stored
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2)


def test_a_gap_in_the_sequence_is_refused(log: Log) -> None:
    send(log, 0)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 4)
    assert send(log, 2) == (2, False)


def test_a_part_of_a_stored_batch_is_no_duplicate(log: Log) -> None:
    send(log, 0, count=4)
    with pytest.raises(ApiError):
        send(log, 0, count=2)


def test_an_unknown_producer_may_begin_anywhere(log: Log) -> None:
    assert send(log, 77) == (0, False)
    assert send(log, 79) == (2, False)


def test_a_new_epoch_begins_at_sequence_0(log: Log) -> None:
    send(log, 0)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2, epoch=1)
    assert send(log, 0, epoch=1) == (2, False)
    refused(log, ErrorCode.INVALID_PRODUCER_EPOCH, 2, epoch=0)


def test_the_sequence_wraps_to_0(log: Log) -> None:
    assert send(log, SEQUENCE_MASK - 2, count=2) == (0, False)
    assert send(log, SEQUENCE_MASK, count=3) == (2, False)
    assert send(log, 2) == (5, False)
    assert send(log, SEQUENCE_MASK, count=3) == (2, True)


def test_producers_do_not_disturb_each_other(log: Log) -> None:
    for number in range(3):
        for producer_id in (1, 2):
            assert not send(log, 2 * number, producer_id=producer_id)[1]
    assert send(log, 4, producer_id=1) == (8, True)


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_whole_window_survives_a_restart(log: Log, tmp_path: Path, is_clean: bool) -> None:
    for number in range(30):  # over several segments
        send(log, 2 * number)
    (log.close if is_clean else lambda: crash(log))()
    log = open_log(tmp_path, clean=is_clean)
    for number in range(25, 30):
        assert send(log, 2 * number) == (2 * number, True)
    assert send(log, 60) == (60, False)


def test_a_damaged_snapshot_is_replaced_by_the_batches(log: Log, tmp_path: Path) -> None:
    for number in range(30):
        send(log, 2 * number)
    log.close()
    for file in segment_files(tmp_path, ".snapshot"):
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    log = open_log(tmp_path, clean=True)
    assert send(log, 58) == (58, True)


@pytest.mark.parametrize("harm", [b"", b"\0\1", b"\0\1\0\0\0\0\x7f\xff\xff\xff", os.urandom(100)])
def test_a_snapshot_of_any_bytes_is_refused_without_harm(tmp_path: Path, harm: bytes) -> None:
    (tmp_path / "00000000000000000005.snapshot").write_bytes(harm)
    producers = Producers(tmp_path)
    assert producers.load(9) == -1
    assert not producers.snapshot_offsets()


def test_a_snapshot_without_our_extension_is_read(tmp_path: Path) -> None:
    """As Kafka's format ends: version 1, CRC-32C, one entry of a producer, nothing behind it."""
    path = tmp_path / "00000000000000000042.snapshot"
    path.write_bytes(
        bytes.fromhex(
            "0001 fb81fea2 00000001 0000000000000009 0003 00000007 0000000000000029 00000001"
            "0000018bcfe56800 ffffffff ffffffffffffffff"
        )
    )
    producers = Producers(tmp_path)
    assert producers.load(50) == 42
    header = parse_header(batch(2, producer_id=9, producer_epoch=3, base_sequence=6))
    assert producers.check(header) is not None


def test_producers_of_a_truncated_tail_are_forgotten(log: Log) -> None:
    for number in range(20):
        send(log, 2 * number)
    log.truncate_to(20)
    assert send(log, 20) == (20, False)
    assert send(log, 18) == (18, True)


def test_a_silent_producer_expires(log: Log) -> None:
    send(log, 0)
    day_ms = SMALL.producer_id_expiration_ms
    log.delete_expired(day_ms - 1)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 50)
    log.delete_expired(day_ms)
    assert send(log, 50) == (2, False)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_producer_of_old_records_is_not_taken_for_a_silent_one(tmp_path: Path, is_clean: bool) -> None:
    """Found by the simulator: a follower counted a producer's age by its records' times, which may be years old."""
    log = open_log(tmp_path)
    day_ms = SMALL.producer_id_expiration_ms
    log.append_as_follower(batch(2, producer_id=9, producer_epoch=0, base_sequence=0, timestamp=1))
    (log.close if is_clean else lambda: crash(log))()
    log = open_log(tmp_path, clean=is_clean, now_ms=50 * day_ms)
    assert send(log, 0) == (0, True)
    log.delete_expired(51 * day_ms - 1)
    assert send(log, 0) == (0, True)
    log.delete_expired(51 * day_ms)
    assert send(log, 0) == (2, False)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_under_a_clock_that_was_set_ahead_forgets_nobody(tmp_path: Path, is_clean: bool) -> None:
    """Found by the simulator: a leader that came back took a batch again that it had, for its clock was a day ahead."""
    log = open_log(tmp_path)
    send(log, 0)
    log.roll()
    send(log, 2)
    (log.close if is_clean else lambda: crash(log))()
    day_ms = SMALL.producer_id_expiration_ms
    log = open_log(tmp_path, clean=is_clean, now_ms=day_ms)
    assert send(log, 2) == (2, True)
    log.delete_expired(2 * day_ms - 1)
    assert send(log, 2) == (2, True)
    log.delete_expired(2 * day_ms)
    assert send(log, 2) == (4, False)


def test_deleted_segments_take_their_snapshots_along(log: Log, tmp_path: Path) -> None:
    fill(log, 60)
    log.delete_records_before(50)
    offsets = log.producers.snapshot_offsets()
    assert offsets
    assert min(offsets) >= log.segments[0].base_offset


def test_the_number_of_producers_is_bounded(tmp_path: Path) -> None:
    producers = Producers(tmp_path)
    header = parse_header(batch(producer_id=0, producer_epoch=0, base_sequence=0))
    for producer_id in range(MAX_PRODUCER_COUNT + 1):
        header.producer_id = producer_id
        producers.note(header, producer_id, timestamp=producer_id)
    assert len(producers) == MAX_PRODUCER_COUNT // 2 + 1
    assert producers.check(header) is not None, "the newest stay"

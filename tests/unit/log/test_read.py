import os
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.errors import OffsetOutOfRange, StorageError
from pylog.log.log import Log
from pylog.log.segment import RECENT_BATCH_COUNT
from pylog.wire.records import iter_batches, parse_header

from .batches import SMALL, append, batch, content, crash, fill, open_log, read_all, segment_files

ONE_SEGMENT = replace(SMALL, segment_bytes=1 << 20)


@pytest.fixture(params=["fresh", "reopened", "recovered"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    """40 batches of 1 to 4 records over several segments, known from memory, from indexes, and from a scan."""
    log = open_log(tmp_path)
    for number in range(40):
        append(log, count=1 + number % 4, timestamp=1_000 + 10 * number)
    if request.param == "fresh":
        return log
    if request.param == "reopened":
        log.close()
        return open_log(tmp_path, clean=True)
    crash(log)
    return open_log(tmp_path)


def bases(log: Log) -> dict[int, tuple[int, int]]:
    """Return (base offset, batch size) by offset."""
    found = {}
    for _, header in iter_batches(read_all(log)):
        for offset in range(header.base_offset, header.last_offset + 1):
            found[offset] = (header.base_offset, header.size_bytes)
    return found


@pytest.mark.parametrize("max_bytes", [0, 1, 61, 100, 101, 300, 1 << 20])
def test_every_offset_begins_with_its_whole_batch(log: Log, max_bytes: int) -> None:
    places = bases(log)
    assert set(places) == set(range(100))
    for offset, (base_offset, size_bytes) in places.items():
        found = log.read(offset, max_bytes, upper_bound_offset=100, min_one_batch=True)
        assert found is not None
        assert found.size_bytes <= max(max_bytes, size_bytes)
        assert found.position + found.size_bytes <= found.segment.size_bytes
        data = content(found)
        assert parse_header(data).base_offset == base_offset
        assert len(data) >= size_bytes
        other = log.read(offset, max_bytes, upper_bound_offset=100, min_one_batch=False)
        assert (other is None) == (max_bytes < size_bytes)


def test_nothing_at_or_above_the_upper_bound_is_returned(log: Log) -> None:
    places = bases(log)
    for upper_bound in range(101):
        for offset in range(0, 101, 3):
            found = log.read(offset, 1 << 20, upper_bound_offset=upper_bound, min_one_batch=True)
            if found is None:
                wanted = places.get(offset)
                # Bounds are batch boundaries in life; inside a batch it is the batch that does not count.
                assert offset >= upper_bound or wanted is None or wanted[0] + 4 > upper_bound
            else:
                *_, (position, last) = iter_batches(content(found))
                assert last.last_offset < upper_bound
                assert position + last.size_bytes == found.size_bytes


def test_an_offset_outside_the_log_is_out_of_range(log: Log) -> None:
    for offset in (-1, 101):
        with pytest.raises(OffsetOutOfRange, match=r"\[0, 100\]"):
            log.read(offset, 1, upper_bound_offset=100, min_one_batch=True)
    assert log.read(100, 1, upper_bound_offset=100, min_one_batch=True) is None


def test_a_consumer_above_the_high_watermark_gets_nothing_yet(log: Log) -> None:
    assert log.read(50, 1, upper_bound_offset=50, min_one_batch=True) is None
    assert log.read(99, 1, upper_bound_offset=50, min_one_batch=True) is None


def test_more_batches_than_the_ring_keeps_are_found_through_the_index(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    fill(log, 3 * RECENT_BATCH_COUNT)
    segment = log.segments[0]
    assert len(segment.recent_offsets) < RECENT_BATCH_COUNT
    for offset in range(0, log.log_end_offset, 7):
        found = log.read(offset, 1, upper_bound_offset=log.log_end_offset, min_one_batch=True)
        assert found is not None
        assert parse_header(content(found)).base_offset == offset
        upper = log.read(0, 1 << 30, upper_bound_offset=offset + 1, min_one_batch=True)
        assert upper is not None
        assert upper.size_bytes == found.position + found.size_bytes


def test_rule_5_a_slice_keeps_its_file_open_until_the_last_is_released(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 30)
    found = log.read(0, 1 << 20, upper_bound_offset=30, min_one_batch=True)
    assert found is not None
    wanted = content(found)
    found.acquire()
    found.acquire()
    log.delete_records_before(30)
    while log.jobs:
        job = log.jobs.popleft()
        job.run()
        job.finish()
    assert not (tmp_path / "00000000000000000000.log").exists()
    assert not list(tmp_path.glob("*.deleted"))
    assert content(found) == wanted
    assert found.is_current(), "deleted is not changed: the bytes are still those of the offsets"
    found.release()
    assert content(found) == wanted
    found.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(found.fd)


def test_rule_5_a_slice_of_a_truncated_segment_is_no_longer_current(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    fill(log, 10)
    found = log.read(0, 1 << 20, upper_bound_offset=10, min_one_batch=True)
    assert found is not None
    found.acquire()
    assert found.is_current()
    log.truncate_to(5)
    assert not found.is_current()
    found.release()
    again = log.read(0, 1 << 20, upper_bound_offset=5, min_one_batch=True)
    assert again is not None
    assert again.is_current()


def test_rule_5_a_slice_of_a_truncated_away_segment_is_no_longer_current(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 30)
    found = log.read(29, 1 << 20, upper_bound_offset=30, min_one_batch=True)
    assert found is not None
    found.acquire()
    log.truncate_to(1)
    assert not found.is_current()
    found.release()


def test_rule_10_only_the_end_of_the_active_segment_is_surely_cached(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 30)
    old = log.read(0, 1, upper_bound_offset=30, min_one_batch=True)
    new = log.read(29, 1, upper_bound_offset=30, min_one_batch=True)
    assert old is not None
    assert new is not None
    assert not old.is_recent(1 << 20)
    assert new.is_recent(1 << 20)
    assert not new.is_recent(10)


def test_a_segment_that_ends_early_takes_the_partition_offline(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    fill(log, 2 * RECENT_BATCH_COUNT)
    os.truncate(segment_files(tmp_path)[0], 3)
    with pytest.raises(StorageError, match=r"00000000000000000000\.log"):
        log.read(0, 1, upper_bound_offset=5, min_one_batch=True)
    assert log.offline is not None


def test_offsets_by_timestamp(log: Log) -> None:
    stamps: dict[int, int] = {}
    for number in range(40):
        for record in range(1 + number % 4):
            stamps[len(stamps)] = 1_000 + 10 * number + record
    for wanted in range(990, 1_400):
        expected = next(((stamp, offset) for offset, stamp in stamps.items() if stamp >= wanted), None)
        assert log.offset_for_timestamp(wanted) == expected, wanted
    assert log.offset_of_max_timestamp() == (1_393, 99)


def test_offsets_by_timestamp_when_timestamps_go_back_and_forth(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    stamps = [500, 400, 900, 100, 900, 300, 950, 20] * 5
    for stamp in stamps:
        append(log, timestamp=stamp)
    for wanted in range(0, 1_000, 50):
        expected = next(((stamp, offset) for offset, stamp in enumerate(stamps) if stamp >= wanted), None)
        assert log.offset_for_timestamp(wanted) == expected
    assert log.offset_of_max_timestamp() == (950, 6)


def test_offsets_by_timestamp_respect_the_log_start(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    append(log, batch(5, timestamp=100))
    append(log, batch(5, timestamp=50))
    log.delete_records_before(3)
    assert log.offset_for_timestamp(0) == (103, 3)
    log.delete_records_before(7)
    assert log.offset_for_timestamp(0) == (52, 7)


def test_an_empty_log_has_no_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None
    assert log.read(0, 1, upper_bound_offset=0, min_one_batch=True) is None

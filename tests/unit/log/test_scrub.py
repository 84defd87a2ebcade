"""A bit that flips in a closed segment is found without anybody reading it."""

from pathlib import Path

import pytest

from pylog.errors import StorageError
from pylog.log.log import Log
from pylog.log.scrub import ScrubJob, checked_ms, due_segment
from pylog.log.segment import Segment

from .batches import append, fill, open_log

FAST = 1 << 40


def scrub(log: Log, segment: Segment, now_ms: int = 5) -> ScrubJob:
    job = ScrubJob(log, segment, FAST)
    job.run()
    job.finish(now_ms)
    return job


def flip(segment: Segment, at: int) -> None:
    content = bytearray(segment.path.read_bytes())
    content[at] ^= 0x10
    segment.path.write_bytes(content)


def test_t9_a_flipped_bit_in_a_closed_segment_is_found_named_and_not_served(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    stored = fill(log, 30)
    segment = log.segments[1]
    first = len(stored[0])
    flip(segment, first + 40)
    job = scrub(log, segment)
    assert job.error is not None
    assert f"{segment.path}: the batch at {first}" in str(job.error)
    with pytest.raises(StorageError, match="fails its CRC"):
        log.read(0, 100, upper_bound_offset=30, min_one_batch=True)
    with pytest.raises(StorageError):
        append(log)


@pytest.mark.parametrize("at", [0, 8, 16, 17, 30, 60, 90])
def test_damage_anywhere_in_a_batch_takes_the_partition_offline(tmp_path: Path, at: int) -> None:
    log = open_log(tmp_path)
    stored = fill(log, 30)
    flip(log.segments[0], len(stored[0]) * 2 + at)
    job = scrub(log, log.segments[0])
    # Base offset and leader epoch are not under the CRC; followers and readers find those by their order.
    assert (job.error is not None) == (at not in (0,))


def test_a_sound_segment_is_noted_and_not_read_again_before_its_time(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 30)
    count = len(log.segments) - 1
    assert count >= 2
    now_ms = checked_ms(log.segments[0]) + 10_000_000
    assert due_segment(log, now_ms - 10_000_000, 1_000) is None
    for _ in range(count):
        segment = due_segment(log, now_ms, 1_000)
        assert segment is not None
        assert scrub(log, segment, now_ms).error is None
    assert due_segment(log, now_ms, 1_000) is None
    assert due_segment(log, now_ms + 1_000, 1_000) is not None
    assert log.offline is None


def test_the_active_segment_is_left_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log)
    assert due_segment(log, 1 << 62, 0) is None


def test_what_is_cut_meanwhile_says_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 30)
    segment = log.segments[1]
    job = ScrubJob(log, segment, FAST)
    log.truncate_to(segment.base_offset + 1)
    job.run()
    job.finish(5)
    assert log.offline is None


def test_what_is_deleted_meanwhile_says_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 30)
    segment = log.segments[0]
    flip(segment, 90)
    job = ScrubJob(log, segment, FAST)
    log.delete_records_before(log.segments[1].base_offset)
    job.run()
    assert job.error is not None
    job.finish(5)
    assert log.offline is None


def test_a_cancelled_scrub_ends_soon_and_notes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 30)
    job = ScrubJob(log, log.segments[0], bytes_per_second=1)
    job.is_cancelled = True
    job.run()
    job.finish(5)
    assert log.segments[0].scrubbed_ms == 0

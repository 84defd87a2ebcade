import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.errors import OffsetOutOfRange, StorageError
from pylog.log import checkpoint
from pylog.log.config import LogConfig
from pylog.log.log import Log
from pylog.log.retention import DeletedSegment, SegmentFacts, expired_segments
from pylog.log.segment import Segment
from pylog.wire.records import iter_batches

from .batches import SMALL, append, crash, fill, open_log, read_all, segment_files

HOUR = LogConfig(retention_ms=3_600_000)
NOW = 100 * 3_600_000


def segments(*facts: tuple[int, int, int]) -> list[SegmentFacts]:
    """Return segments of 10 records from (size, max timestamp, mtime); the last is active."""
    return [
        SegmentFacts(10 * number, 10 * number + 10, size, newest, modified, number == len(facts) - 1)
        for number, (size, newest, modified) in enumerate(facts)
    ]


def expired(
    facts: list[SegmentFacts], config: LogConfig, *, high_watermark: int = 1_000, log_start_offset: int = 0
) -> list[tuple[int, str]]:
    found = expired_segments(
        facts, config, log_start_offset=log_start_offset, high_watermark=high_watermark, now_ms=NOW
    )
    return [(segment.base_offset, segment.reason) for segment in found]


OLD, NEW = NOW - HOUR.retention_ms - 1, NOW - HOUR.retention_ms


def test_segments_expire_by_their_newest_record() -> None:
    assert expired(segments((1, OLD, NOW), (1, OLD, NOW), (1, NEW, 0)), HOUR) == [(0, "time"), (10, "time")]


def test_an_expired_active_segment_goes_too() -> None:
    assert expired(segments((1, OLD, NOW), (1, OLD, NOW)), HOUR) == [(0, "time"), (10, "time")]
    assert expired(segments((0, -1, 0)), HOUR) == []


def test_nothing_behind_a_segment_that_stays_expires() -> None:
    assert expired(segments((1, NEW, 0), (1, OLD, 0), (1, NEW, 0)), HOUR) == []


def test_a_timestamp_in_the_future_counts_by_mtime() -> None:
    assert expired(segments((1, NOW + 1, OLD), (1, NEW, 0)), HOUR) == [(0, "time")]
    assert expired(segments((1, NOW + 1, NEW), (1, NEW, 0)), HOUR) == []
    assert expired(segments((1, -1, OLD), (1, NEW, 0)), HOUR) == [(0, "time")]


def test_only_what_lies_below_the_high_watermark_expires() -> None:
    facts = segments((1, OLD, 0), (1, OLD, 0), (1, NEW, 0))
    assert expired(facts, HOUR, high_watermark=19) == [(0, "time")]
    assert expired(facts, HOUR, high_watermark=20) == [(0, "time"), (10, "time")]


def test_the_oldest_closed_segments_go_until_the_size_is_met() -> None:
    facts = segments((10, NEW, 0), (10, NEW, 0), (10, NEW, 0), (10, NEW, 0))
    for limit, count in [(40, 0), (31, 0), (30, 1), (20, 2), (5, 3), (0, 3)]:
        assert len(expired(facts, LogConfig(retention_bytes=limit, retention_ms=-1))) == count


def test_compacted_logs_lose_only_what_lies_below_the_log_start() -> None:
    facts = segments((1, OLD, 0), (1, OLD, 0), (1, NEW, 0))
    assert expired(facts, replace(HOUR, cleanup_policy="compact")) == []
    assert expired(facts, replace(HOUR, cleanup_policy="compact"), log_start_offset=10) == [(0, "start")]
    assert len(expired(facts, replace(HOUR, cleanup_policy="compact,delete"))) == 2


def ten_segments(directory: Path) -> Log:
    """Ten closed segments, each an hour younger than the one before, and an active one."""
    log = open_log(directory, replace(SMALL, retention_ms=HOUR.retention_ms))
    for hour in range(10):
        append(log, timestamp=NOW - (10 - hour) * HOUR.retention_ms)
        log.roll()
    append(log, timestamp=NOW)
    return log


def test_expired_segments_are_deleted_and_named(tmp_path: Path) -> None:
    log = ten_segments(tmp_path)
    size_bytes = log.size_bytes
    named = log.delete_expired(NOW, dry_run=True)
    assert [segment.base_offset for segment in named] == list(range(9))
    assert (log.log_start_offset, log.size_bytes, len(segment_files(tmp_path))) == (0, size_bytes, 11)
    assert log.delete_expired(NOW) == named
    assert named[0] == DeletedSegment(0, log.segments[0].size_bytes, "time")
    assert log.log_start_offset == 9
    assert log.size_bytes == size_bytes - sum(segment.size_bytes for segment in named)
    assert [int(file.stem) for file in segment_files(tmp_path)] == [9, 10]
    assert log.delete_expired(NOW) == []
    with pytest.raises(OffsetOutOfRange):
        log.read(8, 1, upper_bound_offset=11, min_one_batch=True)
    assert log.epochs.entries() == [(0, 9)]
    crash(log)
    assert open_log(tmp_path).log_start_offset == 9


def test_deleted_files_are_removed_by_a_job(tmp_path: Path) -> None:
    log = ten_segments(tmp_path)
    log.jobs.clear()
    log.delete_expired(NOW)
    assert len(list(tmp_path.glob("*.log.deleted"))) == 9
    for job in log.jobs:
        job.run()
        job.finish()
    assert not list(tmp_path.glob("*.deleted"))


def test_an_expired_active_segment_is_rolled_first(tmp_path: Path) -> None:
    log = ten_segments(tmp_path)
    assert len(log.delete_expired(NOW + HOUR.retention_ms + 1)) == 11
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (11, 11, 0)
    assert append(log).base_offset == 11


def test_a_future_timestamp_does_not_keep_a_segment_for_ever(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(SMALL, retention_ms=HOUR.retention_ms))
    append(log, timestamp=10 * NOW)
    log.roll()
    os.utime(segment_files(tmp_path)[0], (OLD / 1000, OLD / 1000))
    assert len(log.delete_expired(NOW, dry_run=True)) == 1


def test_records_before_an_offset_are_gone_for_readers_at_once(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 40)
    third = log.segments[2].base_offset
    assert log.delete_records_before(third + 1) == third + 1
    assert log.segments[0].base_offset == third
    assert log.delete_records_before(3) == third + 1, "never back"
    with pytest.raises(OffsetOutOfRange):
        log.read(third, 1, upper_bound_offset=40, min_one_batch=True)
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(41)
    assert log.delete_records_before(-1) == 40


@pytest.mark.parametrize("offset", [0, 1, 17, 39, 40, 79, 80, 99])
@pytest.mark.parametrize("is_reopened", [False, True])
def test_truncation_leaves_exactly_what_is_below(tmp_path: Path, offset: int, is_reopened: bool) -> None:
    log = open_log(tmp_path)
    stored = fill(log, 40, count=2)
    if is_reopened:
        log.close()
        log = open_log(tmp_path, clean=True)
    log.truncate_to(offset)
    kept = min(offset, 80) // 2  # a batch that reaches across goes whole
    assert log.log_end_offset == 2 * kept
    assert read_all(log) == b"".join(stored[:kept])
    assert log.high_watermark <= log.log_end_offset
    assert sum(file.stat().st_size for file in segment_files(tmp_path)) == log.size_bytes
    stored[kept:] = fill(log, 5, count=2, timestamp=7)
    assert read_all(log) == b"".join(stored)
    crash(log)
    assert read_all(open_log(tmp_path)) == b"".join(stored)


def test_truncation_forgets_timestamps_and_epochs(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(20):
        append(log, timestamp=1_000 + number, epoch=number // 5)
    log.truncate_to(12)
    assert log.offset_of_max_timestamp() == (1_011, 11)
    assert log.epochs.entries() == [(0, 0), (1, 5), (2, 10)]
    assert log.offset_for_leader_epoch(2) == (2, 12)
    assert append(log, epoch=3).base_offset == 12
    assert log.epochs.entries()[-1] == (3, 12)


def test_truncation_below_the_log_start_begins_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 40)
    log.delete_records_before(30)
    log.truncate_to(10)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.size_bytes) == (10, 10, 10, 0)


def test_a_full_truncation_begins_at_the_offset_given(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 40)
    log.truncate_fully_and_start_at(5_000)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.size_bytes) == (5_000,) * 3 + (0,)
    assert [int(file.stem) for file in segment_files(tmp_path)] == [5_000]
    assert log.epochs.entries() == []
    append(log)
    assert [header.base_offset for _, header in iter_batches(read_all(log))] == [5_000]


def test_an_emptied_log_knows_its_epoch_after_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        fsync(fd)

    log = open_log(tmp_path, replace(SMALL, retention_ms=1_000))
    for _ in range(3):
        append(log, epoch=5)
    monkeypatch.setattr(os, "fsync", note)
    log.delete_expired(1_000_000)
    end = log.log_end_offset
    assert (log.log_start_offset, log.size_bytes) == (end, 0)
    assert "leader-epoch-checkpoint.tmp" in synced, "no batch says it any more"
    before = (tmp_path / "leader-epoch-checkpoint").stat().st_ino
    for _ in range(2):  # a file that replaced it without a sync could be torn
        crash(log)
        log = open_log(tmp_path, log_start_offset=end)
        assert log.epochs.latest == 5
        synced_again = synced.count("leader-epoch-checkpoint.tmp")
        after = (tmp_path / "leader-epoch-checkpoint").stat().st_ino
        assert after == before or synced_again > 1
        before, synced[:] = after, ["leader-epoch-checkpoint.tmp"]


def _fill_disk(patched: pytest.MonkeyPatch, *names: str) -> None:
    """Let there be no room for another file whose name ends like that."""
    write, create = checkpoint.write_atomically, Segment.create

    def refuse_write(path: Path, content: str | bytes, *, durable: bool = True) -> None:
        if path.name.endswith(names):
            raise StorageError(f"{path}: No space left on device")
        write(path, content, durable=durable)

    def refuse_create(segment: Segment) -> None:
        if ".log" in names:
            raise OSError(errno.ENOSPC, "No space left on device", str(segment.path))
        create(segment)

    patched.setattr(checkpoint, "write_atomically", refuse_write)
    patched.setattr(Segment, "create", refuse_create)


@pytest.mark.parametrize("refused", [".log", checkpoint.LEADER_EPOCHS])
def test_a_full_disk_gets_back_what_is_expired_but_the_last_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    log = open_log(tmp_path, replace(SMALL, retention_ms=1_000))
    while len(log.segments) < 3:
        append(log, epoch=5)
    with monkeypatch.context() as patched:
        _fill_disk(patched, refused)
        log.begin_deletion(1_000_000)
        assert len(log.delete_expired(1_000_000)) == 2
        assert (log.offline, log.epochs.latest) == (None, 5)
        assert log.size_bytes
    assert len(log.delete_expired(1_000_000)) == 1
    assert (log.size_bytes, log.epochs.latest) == (0, 5)


def test_a_full_disk_gets_back_what_is_below_a_deletion_of_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    while len(log.segments) < 3:
        append(log, epoch=5)
    first = log.segments[-1].base_offset
    _fill_disk(monkeypatch, checkpoint.LEADER_EPOCHS)
    assert log.delete_records_before(first) == first
    assert [segment.base_offset for segment in log.segments] == [first]
    assert log.epochs.entries() == [(5, first)]

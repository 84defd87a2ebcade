import errno
import os
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import ApiError, CorruptRecords, ErrorCode, StorageError
from pylog.log.config import LogConfig
from pylog.wire.records import LOG_APPEND_TIME, check_batch, iter_batches, parse_header

from .batches import SMALL, append, batch, content, crash, fill, open_log, read_all, segment_files


def test_batches_are_stored_as_sent_but_for_base_offset_and_leader_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, count=3)
    sent = batch(2)
    before = bytes(sent)
    result = append(log, sent, epoch=7)
    assert (result.base_offset, result.last_offset, result.is_duplicate) == (3, 4, False)
    stored = read_all(log)[-len(before) :]
    header = check_batch(memoryview(stored))  # the CRC still holds
    assert (header.base_offset, header.partition_leader_epoch) == (3, 7)
    assert stored[8:12] + stored[16:] == before[8:12] + before[16:]
    assert log.log_end_offset == 5
    assert log.epochs.entries() == [(0, 0), (7, 3)]


def test_the_active_segment_rolls_before_it_exceeds_its_size(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    stored = fill(log, 40)
    files = segment_files(tmp_path)
    assert len(files) > 2
    assert all(file.stat().st_size <= SMALL.segment_bytes for file in files)
    assert b"".join(file.read_bytes() for file in files) == b"".join(stored)
    assert [int(file.stem) for file in files] == [segment.base_offset for segment in log.segments]
    assert log.size_bytes == sum(map(len, stored))


def test_the_active_segment_rolls_by_age_of_its_first_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_ms=100))
    for timestamp in (1_000, 1_100, 1_101, 1_150):
        append(log, timestamp=timestamp)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_reopened_segment_keeps_its_age(tmp_path: Path) -> None:
    config = LogConfig(segment_ms=100)
    log = open_log(tmp_path, config)
    append(log, timestamp=1_000)
    log.close()
    log = open_log(tmp_path, config, clean=True)
    append(log, timestamp=1_101)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_the_active_segment_rolls_before_its_indexes_are_full(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(index_interval_bytes=0, segment_index_bytes=120))
    fill(log, 60)
    assert len(log.segments) > 2
    assert all(len(segment.index) * 8 <= 120 for segment in log.segments)
    assert all(len(segment.time_index) * 12 <= 120 for segment in log.segments)


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (LogConfig(max_message_bytes=90), ErrorCode.MESSAGE_TOO_LARGE),
        (LogConfig(segment_bytes=1024, max_message_bytes=5_000), ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_a_batch_too_large_is_refused_and_nothing_is_appended(
    tmp_path: Path, config: LogConfig, code: ErrorCode
) -> None:
    log = open_log(tmp_path, config)
    with pytest.raises(ApiError) as refused:
        append(log, value=b"x" * 1_100)
    assert refused.value.code is code
    assert log.log_end_offset == log.size_bytes == 0


@pytest.mark.parametrize("config", [LogConfig(max_message_bytes=90), LogConfig(segment_bytes=1024)])
def test_a_coordinator_writes_a_batch_that_is_larger_than_the_topic_allows(tmp_path: Path, config: LogConfig) -> None:
    log = open_log(tmp_path, config)
    for _ in range(2):
        view = batch(value=b"x" * 1_100)
        log.append_as_leader(view, check_batch(view), 0, 0, allowed_bytes=5_000)
    log.close()
    log = open_log(tmp_path, config)
    assert log.log_end_offset == 2
    log.high_watermark = 2
    assert len(list(iter_batches(read_all(log)))) == 2


def test_log_append_time_is_stamped_under_a_new_crc(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(SMALL, message_timestamp_type="LogAppendTime"))
    result = append(log, count=2, timestamp=5, now_ms=77_000)
    assert result.log_append_time_ms == 77_000
    header = check_batch(memoryview(read_all(log)))
    assert header.is_log_append_time
    assert header.max_timestamp == 77_000
    assert log.offset_for_timestamp(70_000) == (77_000, 0)


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_producer_that_claims_log_append_time_is_refused(tmp_path: Path, kind: str) -> None:
    log = open_log(tmp_path, replace(SMALL, message_timestamp_type=kind))
    with pytest.raises(ApiError) as refused:
        append(log, attributes=LOG_APPEND_TIME)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(("timestamp", "is_allowed"), [(899, False), (900, True), (1_200, True), (1_201, False)])
def test_timestamps_are_bound_to_the_broker_s_clock(tmp_path: Path, timestamp: int, is_allowed: bool) -> None:
    config = LogConfig(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=200)
    log = open_log(tmp_path, config)
    if is_allowed:
        append(log, timestamp=timestamp, now_ms=1_000)
    else:
        with pytest.raises(ApiError) as refused:
            append(log, timestamp=timestamp, now_ms=1_000)
        assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert log.log_end_offset == is_allowed


def test_a_follower_stores_the_leader_s_bytes(tmp_path: Path) -> None:
    leader, follower = open_log(tmp_path / "leader"), open_log(tmp_path / "follower")
    for epoch in (3, 3, 4, 6):
        append(leader, epoch=epoch, count=5)
    sent = read_all(leader)
    cut = len(sent) - 10  # a fetch may end inside a batch
    result = follower.append_as_follower(memoryview(sent)[:cut])
    assert (result.base_offset, result.last_offset, follower.log_end_offset) == (0, 14, 15)
    follower.append_as_follower(memoryview(sent)[-len(batch(5)) :])
    assert read_all(follower) == sent
    assert follower.epochs.entries() == leader.epochs.entries() == [(3, 0), (4, 10), (6, 15)]


def test_a_follower_forgets_an_epoch_in_which_it_led_and_wrote_nothing(tmp_path: Path) -> None:
    """Found by the simulator: the next leader does not know that epoch, and answered every fetch with where to cut."""
    log = open_log(tmp_path)
    append(log, epoch=3, count=5)
    log.begin_leader_epoch(4)
    assert log.epochs.latest == 4
    log.truncate_to(5)
    assert (log.epochs.latest, log.log_end_offset) == (3, 5)
    log.begin_leader_epoch(4)
    assert log.epochs.entries() == [(3, 0), (4, 5)]


def test_a_follower_refuses_damage_and_keeps_what_came_before(tmp_path: Path) -> None:
    leader, follower = open_log(tmp_path / "leader"), open_log(tmp_path / "follower")
    fill(leader, 3)
    sent = bytearray(read_all(leader))
    sent[-1] ^= 1
    with pytest.raises(CorruptRecords):
        follower.append_as_follower(memoryview(sent))
    assert follower.log_end_offset == 2
    with pytest.raises(CorruptRecords, match="2 is next"):
        follower.append_as_follower(memoryview(sent))


def test_a_follower_keeps_the_gaps_that_compaction_left(tmp_path: Path) -> None:
    follower = open_log(tmp_path)
    for base_offset in (0, 10, 5_000):
        follower.append_as_follower(batch(2, base_offset=base_offset))
    follower.high_watermark = follower.log_end_offset
    for offset, found in [(0, 0), (1, 0), (2, 10), (11, 10), (12, 5_000), (4_999, 5_000), (5_001, 5_000)]:
        data = follower.read(offset, 1, upper_bound_offset=5_002, min_one_batch=True)
        assert data is not None
        assert parse_header(content(data)).base_offset == found
    crash(follower)
    assert open_log(tmp_path).log_end_offset == 5_002


def test_an_empty_follower_takes_the_batch_that_holds_its_first_offset(tmp_path: Path) -> None:
    follower = open_log(tmp_path)
    follower.truncate_fully_and_start_at(13)
    follower.append_as_follower(batch(5, base_offset=10))
    assert (follower.log_start_offset, follower.log_end_offset) == (13, 15)
    found = follower.read(13, 1, upper_bound_offset=15, min_one_batch=True)
    assert found is not None
    assert parse_header(content(found)).base_offset == 10


def test_rule_7_a_full_disk_keeps_the_start_of_an_empty_log_below_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = open_log(tmp_path)
    follower.truncate_fully_and_start_at(13)
    with monkeypatch.context() as patch:
        refusing(patch, "pwrite", errno.ENOSPC)
        with pytest.raises(ApiError):
            follower.append_as_follower(batch(5, base_offset=10))
    assert (follower.log_start_offset, follower.high_watermark, follower.log_end_offset) == (10, 10, 10)
    follower.truncate_fully_and_start_at(13)  # as the leader tells, which lacks offset 10
    follower.append_as_follower(batch(5, base_offset=10))
    assert (follower.log_start_offset, follower.high_watermark, follower.log_end_offset) == (13, 13, 15)


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """Let the kernel itself cut writes short beyond *size_bytes*."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_rule_7_a_write_cut_short_leaves_no_trace(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    stored = fill(log, 2)
    with largest_file(log.size_bytes + 40), pytest.raises(ApiError) as refused:
        append(log)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert segment_files(tmp_path)[0].read_bytes() == b"".join(stored)
    assert read_all(log) == b"".join(stored), "reads go on"
    assert append(log).base_offset == 2, "and so do writes once there is room"


def refusing(monkeypatch: pytest.MonkeyPatch, name: str, code: int, after: int = 0) -> None:
    """Let the system call *name* fail with *code* after it was called *after* times."""
    calls, real = iter(range(1 << 30)), getattr(os, name)

    def call(*args: Any) -> Any:
        if next(calls) >= after:
            raise OSError(code, os.strerror(code))
        return real(*args)

    monkeypatch.setattr(os, name, call)


def test_rule_7_a_full_disk_refuses_writes_and_serves_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    stored = fill(log, 3)
    with monkeypatch.context() as patch:
        refusing(patch, "pwrite", errno.ENOSPC)
        with pytest.raises(ApiError) as refused:
            append(log)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline is None
    assert read_all(log) == b"".join(stored)
    assert append(log).base_offset == 3


def test_rule_7_a_full_disk_at_a_roll_keeps_the_active_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    append(log, value=b"x" * 900)
    with monkeypatch.context() as patch:
        refusing(patch, "open", errno.ENOSPC)
        with pytest.raises(ApiError):
            append(log, value=b"x" * 900)
    assert append(log, value=b"x" * 900).base_offset == 1
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_rule_7_an_io_error_takes_the_partition_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    stored = fill(log, 3)
    with monkeypatch.context() as patch:
        refusing(patch, "pwrite", errno.EIO)
        with pytest.raises(StorageError, match="write failed"):
            append(log)
    for refused in (lambda: append(log), lambda: read_all(log), log.close):
        with pytest.raises(StorageError):
            refused()
    assert segment_files(tmp_path)[0].read_bytes() == b"".join(stored)


def test_rule_7_a_write_that_cannot_be_undone_takes_the_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    with monkeypatch.context() as patch:
        refusing(patch, "pwrite", errno.ENOSPC)
        refusing(patch, "ftruncate", errno.EIO)
        with pytest.raises(StorageError, match="cannot cut"):
            append(log)
    assert log.offline is not None


def test_rule_7_nothing_is_written_after_a_failed_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    with monkeypatch.context() as patch:
        refusing(patch, "fdatasync", errno.EIO)
        with pytest.raises(StorageError, match="sync failed"):
            log.flush()
    assert log.recovery_point == 0
    with pytest.raises(StorageError):
        append(log)


def test_a_failed_index_write_costs_only_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    stored = fill(log, 5)
    with monkeypatch.context() as patch:
        refusing(patch, "pwrite", errno.ENOSPC)
        log.close()
    assert not segment_files(tmp_path, ".index")
    log = open_log(tmp_path, clean=True)
    assert read_all(log) == b"".join(stored)
    assert len(log.segments[0].index) > 0


def test_index_entries_follow_kafka_s_rules(tmp_path: Path) -> None:
    """None for the first batch; one after every 200 bytes; last offset of the batch; timestamps only grow."""
    log = open_log(tmp_path, replace(SMALL, segment_bytes=1 << 20))
    for timestamp in (50, 40, 60, 60, 55, 70, 10, 10, 90):
        append(log, timestamp=timestamp, count=2)
    log.close()
    batches = list(iter_batches(segment_files(tmp_path)[0].read_bytes()))
    places = {header.last_offset: position for position, header in batches}
    entries = list(struct.iter_unpack(">ii", segment_files(tmp_path, ".index")[0].read_bytes()))
    assert entries
    assert all(places[offset] == position for offset, position in entries)
    assert entries[0][0] > 1
    size_bytes = batches[1][0]
    assert all(b[1] - a[1] <= 200 + 2 * size_bytes for a, b in pairwise(entries))
    times = list(struct.iter_unpack(">qi", segment_files(tmp_path, ".timeindex")[0].read_bytes()))
    assert times == sorted(times)
    assert times[-1] == (91, 17)
    tops = {header.last_offset: header.max_timestamp for _, header in batches}
    assert all(tops[offset] == timestamp for timestamp, offset in times)

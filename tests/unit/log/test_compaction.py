"""Compaction against a dictionary, in steps that a crash may end, and with readers, producers and tombstones."""

import errno
import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pylog.log import compaction
from pylog.log.compaction import CompactionJob, plan
from pylog.log.config import LogConfig
from pylog.log.log import Log
from pylog.log.segment import Segment
from pylog.log.swap import remove_cleaned
from pylog.wire.records import DELETE_HORIZON, Record, check_batch, decode_records, encode_batch, iter_batches

from .batches import append, content, crash, open_log, read_all, segment_files

COMPACT = LogConfig(segment_bytes=1024, index_interval_bytes=150, cleanup_policy="compact", delete_retention_ms=1_000)
Pair = tuple[bytes, bytes | None]


def put(log: Log, pairs: Sequence[Pair], **fields: object) -> None:
    """Append one batch of keys and values, at the time 1,000."""
    records = [Record(number, 1_000 + number, key, value) for number, (key, value) in enumerate(pairs)]
    append(log, memoryview(bytearray(encode_batch(records, **fields))))  # type: ignore[arg-type]


def put_each(log: Log, pairs: Sequence[Pair]) -> None:
    for pair in pairs:
        put(log, [pair])


def close_segment(log: Log) -> None:
    """Begin a new segment and let everything before it count as synced."""
    log.roll()
    finish_jobs(log)


def finish_jobs(log: Log) -> None:
    while log.jobs:
        job = log.jobs.popleft()
        job.run()
        job.finish()


def compact(log: Log, now_ms: int = 5_000) -> bool:
    """Do one pass; return whether there was anything to do."""
    found = plan(log, now_ms)
    if found is None:
        return False
    job = CompactionJob(log, found, now_ms, breathe=lambda: None)
    job.run()
    job.finish()
    assert job.error is None
    return True


def records(log: Log) -> list[Record]:
    data = read_all(log) if any(segment.size_bytes for segment in log.segments) else b""
    return [record for position, header in iter_batches(data) for record in decode_records(data, header, position)]


def table(found: Sequence[Record]) -> dict[bytes, bytes]:
    """Return what a reader that keeps the last value of each key ends with."""
    held: dict[bytes, bytes] = {}
    for record in found:
        assert record.key is not None
        if record.value is None:
            held.pop(record.key, None)
        else:
            held[record.key] = record.value
    return held


def numbered(count: int, keys: int = 3) -> list[Pair]:
    return [(b"key %d" % (number % keys), b"value %d" % number) for number in range(count)]


def test_the_last_record_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    put_each(log, numbered(40))
    close_segment(log)
    assert compact(log)
    assert [(one.offset, one.key, one.value) for one in records(log)] == [
        (number, b"key %d" % (number % 3), b"value %d" % number) for number in (37, 38, 39)
    ]
    assert (log.log_start_offset, log.log_end_offset, log.compacted_offset) == (0, 40, 40)
    assert not compact(log)


def test_small_neighbours_become_one_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(COMPACT, segment_bytes=4096))
    for _ in range(3):
        put_each(log, numbered(10))
        close_segment(log)
    assert len(log.segments) == 4
    compact(log)
    assert [segment.base_offset for segment in log.segments] == [0, 30]
    finish_jobs(log)
    assert [path.name for path in sorted(tmp_path.glob("*.log*"))] == [f"{0:020d}.log", f"{30:020d}.log"]


def test_the_active_segment_and_what_is_not_everywhere_stay(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    put_each(log, numbered(6))
    assert plan(log, 5_000) is None  # all of it is in the active segment
    close_segment(log)
    log.high_watermark = 5
    assert plan(log, 5_000) is None
    log.high_watermark = 6
    assert plan(log, 5_000) is not None


def test_what_is_not_synced_stays(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    put_each(log, numbered(6))
    log.roll()
    assert plan(log, 5_000) is None
    finish_jobs(log)
    assert plan(log, 5_000) is not None


def test_young_records_stay(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(COMPACT, min_compaction_lag_ms=500))
    put_each(log, numbered(6))
    close_segment(log)
    assert plan(log, 1_499) is None
    assert plan(log, 1_500) is not None


def test_records_older_than_the_longest_lag_are_overdue(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(COMPACT, max_compaction_lag_ms=500))
    put_each(log, numbered(6))
    close_segment(log)
    overdue = [found.is_overdue for at_ms in (1_499, 1_500) if (found := plan(log, at_ms)) is not None]
    assert overdue == [False, True]
    assert compact(log, 1_500)
    put_each(log, numbered(3))
    close_segment(log)
    found = plan(log, 1_499)
    assert found is not None
    assert not found.is_overdue, "what was compacted is not overdue again"


def test_the_active_segment_of_a_compacted_log_rolls_at_the_longest_lag() -> None:
    assert replace(COMPACT, max_compaction_lag_ms=500).roll_ms == 500
    assert replace(COMPACT, cleanup_policy="delete", max_compaction_lag_ms=500).roll_ms == COMPACT.segment_ms


def test_a_tombstone_goes_once_its_time_is_over(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(COMPACT, segment_bytes=4096))
    put_each(log, [(b"gone", b"1"), (b"kept", b"2"), (b"gone", None), (b"other", b"3")])
    close_segment(log)
    compact(log, now_ms=5_000)
    assert [(one.offset, one.value, one.timestamp) for one in records(log)] == [
        (1, b"2", 1_000), (2, None, 1_000), (3, b"3", 1_000)
    ]  # fmt: skip
    headers = [header for _, header in iter_batches(read_all(log))]
    assert [header.base_timestamp for header in headers if header.attributes & DELETE_HORIZON] == [6_000]
    put_each(log, [(b"more", b"4")] * 8)
    close_segment(log)
    compact(log, now_ms=6_000)
    assert 2 in [one.offset for one in records(log)]  # the time is not over, and did not begin again
    put_each(log, [(b"more", b"5")] * 8)
    close_segment(log)
    compact(log, now_ms=6_001)
    assert 2 not in [one.offset for one in records(log)]
    assert table(records(log)) == {b"kept": b"2", b"other": b"3", b"more": b"5"}


def test_the_end_of_the_range_stays_even_empty(tmp_path: Path) -> None:
    """A follower that has everything before a gap at the end would never come to the log end."""
    log = open_log(tmp_path, replace(COMPACT, delete_retention_ms=0))
    put_each(log, [(b"k", b"1"), (b"k", None)])
    close_segment(log)
    compact(log, now_ms=5_000)
    put_each(log, [(b"x", b"1")])
    close_segment(log)
    compact(log, now_ms=9_000)
    put_each(log, [(b"x", None)])
    close_segment(log)
    compact(log, now_ms=10_000)
    *_, (_, last) = iter_batches(read_all(log))
    assert last.last_offset + 1 == log.log_end_offset


def test_a_producer_s_last_batch_stays_empty_and_tells_its_sequence_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    for number in range(3):
        put(log, [(b"k", b"%d" % number)], producer_id=7, producer_epoch=1, base_sequence=number)
    put_each(log, [(b"k", b"last"), (b"end", b"")])
    close_segment(log)
    compact(log)
    assert [one.offset for one in records(log)] == [3, 4]
    assert (2, 0) in [(header.last_offset, header.record_count) for _, header in iter_batches(read_all(log))]
    crash(log)
    for path in segment_files(tmp_path, ".snapshot"):
        path.unlink()
    log = open_log(tmp_path, COMPACT, recovery_point=5)
    sent = [Record(0, 1_000, b"k", b"2")]
    again = encode_batch(sent, producer_id=7, producer_epoch=1, base_sequence=2)
    assert append(log, memoryview(bytearray(again))).is_duplicate


def test_a_segment_emptied_by_compaction_does_not_move_the_log_start_after_a_crash(tmp_path: Path) -> None:
    """A consumer in the gap would be out of range, and go on at the end if it is configured to."""
    log = open_log(tmp_path, COMPACT)
    put_each(log, [(b"k", b"x" * 600), (b"k", b"y" * 600)])
    put_each(log, [(b"k", b"last"), (b"end", b"")])
    close_segment(log)
    for _ in range(2):
        compact(log)
    finish_jobs(log)
    assert next(path.stat().st_size == 0 for path in segment_files(tmp_path)), "the first segment has nothing any more"
    crash(log)
    log = open_log(tmp_path, COMPACT, recovery_point=4)
    log.high_watermark = 4
    log.delete_expired(5_000)
    assert log.log_start_offset == 0
    assert log.read(0, 10_000, upper_bound_offset=4, min_one_batch=True) is not None


def test_a_slice_in_flight_keeps_its_bytes(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    put_each(log, numbered(10))
    close_segment(log)
    found = log.read(0, 10_000, upper_bound_offset=10, min_one_batch=True)
    assert found is not None
    before = content(found)
    found.acquire()
    compact(log)
    finish_jobs(log)
    assert found.is_current()
    assert content(found) == before
    found.release()


def test_a_truncation_meanwhile_drops_the_pass(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    put_each(log, numbered(20))
    close_segment(log)
    found = plan(log, 5_000)
    assert found is not None
    job = CompactionJob(log, found, 5_000, breathe=lambda: None)
    job.run()
    log.truncate_to(5)
    before = read_all(log)
    job.finish()
    assert read_all(log) == before
    assert not list(tmp_path.glob("*.cleaned"))


def test_a_full_disk_leaves_everything_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, COMPACT)
    put_each(log, numbered(20))
    close_segment(log)
    before = read_all(log)
    found = plan(log, 5_000)
    assert found is not None
    job = CompactionJob(log, found, 5_000, breathe=lambda: None)

    def refuse(*args: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        job.run()
    job.finish()
    assert job.error is not None
    assert (read_all(log), log.offline, log.compacted_offset) == (before, None, 0)
    assert not list(tmp_path.glob("*.cleaned"))
    assert compact(log)


def test_memory_for_keys_is_bounded_and_the_rest_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_KEY_COUNT", 10)
    log = open_log(tmp_path, COMPACT)
    put_each(log, numbered(60, keys=15))
    close_segment(log)
    compact(log)
    assert log.compacted_offset == 10
    passes = 1
    while compact(log):
        passes += 1
        assert passes < 20
    assert table(records(log)) == table([Record(0, 0, key, value) for key, value in numbered(60, keys=15)])


def test_a_tombstone_that_no_pass_has_mapped_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removed by a pass that does not know its key yet, it would leave the deleted value behind."""
    monkeypatch.setattr(compaction, "MAX_KEY_COUNT", 10)
    log = open_log(tmp_path, replace(COMPACT, segment_bytes=1 << 20))
    put_each(log, [(b"gone", b"1"), *numbered(22, keys=22), (b"gone", None), (b"last", b"2")])
    close_segment(log)
    held, now_ms, passes = table(records(log)), 5_000, 0
    while compact(log, now_ms):
        assert table(records(log)) == held
        headers = [header for _, header in iter_batches(read_all(log)) if header.base_offset >= log.compacted_offset]
        assert not any(header.attributes & DELETE_HORIZON for header in headers)
        now_ms += COMPACT.delete_retention_ms + 1
        passes += 1
    assert passes > 2
    put_each(log, [(b"last", b"3")])
    close_segment(log)
    compact(log, now_ms)
    assert table(records(log)) == {**held, b"last": b"3"}
    assert b"gone" not in [one.key for one in records(log)]


class Killed(Exception):
    """The process ends here."""


@pytest.mark.parametrize("is_indexed", [True, False], ids=["indexes kept", "indexes lost"])
def test_a_crash_at_any_step_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_indexed: bool) -> None:
    pairs = [*numbered(30), (b"key 1", None), *numbered(5, keys=1), (b"end", b"")]
    expected = table([Record(0, 0, key, value) for key, value in pairs])
    rename = Path.rename
    step = 0
    while True:
        directory = tmp_path / str(step)
        log = open_log(directory, COMPACT)
        put_each(log, pairs)
        close_segment(log)
        left = step

        def die_later(path: Path, target: Path) -> Path:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            return rename(path, target)

        found = plan(log, 5_000)
        assert found is not None
        job = CompactionJob(log, found, 5_000, breathe=lambda: None)
        job.run()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", die_later)
            try:
                job.finish()
                is_done = True
            except Killed:
                is_done = False
        crash(log)
        if not is_indexed:
            for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
                path.unlink()
        log = open_log(directory, COMPACT, recovery_point=len(pairs))
        assert table(records(log)) == expected, f"step {step}"
        assert log.log_end_offset == len(pairs)
        assert not [path for path in directory.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]
        append(log, count=1)
        crash(log)
        if is_done:
            assert step > 5
            return
        step += 1


KEYS = st.sampled_from([b"a", b"b", b"c", b"a key of more than sixteen bytes", b"another of more than sixteen"])
STEPS = st.one_of(
    st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=40))), min_size=1, max_size=5),
    st.sampled_from(["roll", "compact", "later", "restart", "kill"]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, max_size=40), st.sampled_from(["none", "gzip", "zstd"]))
def test_whatever_is_written_the_table_stays(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | list[Pair]], codec: str
) -> None:
    directory = tmp_path_factory.mktemp("log")
    log = open_log(directory, COMPACT)
    written: list[Record] = []
    now_ms = 5_000
    for step in steps:
        if isinstance(step, list):
            put(log, step, compression_type=codec)
            start = len(written)
            written += [Record(start + row, 1_000 + row, key, value) for row, (key, value) in enumerate(step)]
        elif step == "roll":
            close_segment(log)
        elif step == "compact":
            compact(log, now_ms)
            finish_jobs(log)
        elif step == "later":
            now_ms += 1_001
        else:
            recovery_point, compacted_offset = log.recovery_point, log.compacted_offset
            if step == "restart":
                log.close()
            else:
                crash(log)
            log = open_log(directory, COMPACT, clean=step == "restart", recovery_point=recovery_point)
            log.compacted_offset = compacted_offset
        found = records(log)
        assert table(found) == table(written)
        assert all(written[one.offset] == one for one in found)
        assert [one.offset for one in found] == sorted({one.offset for one in found})
        assert log.log_end_offset == len(written)
        # A reader may begin anywhere, also where nothing is left.
        for offset in range(len(written)):
            part = log.read(offset, 1, upper_bound_offset=len(written), min_one_batch=True)
            rest = [one.offset for one in found if one.offset >= offset]
            assert part is not None or not rest
            if part is not None and rest:
                assert next(iter_batches(content(part)))[1].base_offset <= rest[0]
    # What was compacted holds each key once.
    compacted = [one.key for one in records(log) if one.offset < log.compacted_offset]
    assert len(compacted) == len(set(compacted))
    crash(log)
    shutil.rmtree(directory)


ONE_SEGMENT = replace(COMPACT, segment_bytes=1 << 16)


def test_a_cut_in_a_gap_leaves_the_end_behind_the_last_batch_that_is_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    put_each(log, [(b"only", b"here"), *numbered(39)])
    close_segment(log)
    compact(log)
    assert [one.offset for one in records(log)] == [0, 37, 38, 39]
    log.truncate_to(20)
    assert (log.log_end_offset, log.recovery_point, log.compacted_offset) == (1, 0, 1)


def test_what_is_written_above_a_cut_does_not_count_as_compacted_by_whatever_the_checkpoint_says(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    put_each(log, [(b"only", b"here"), *numbered(39)])
    close_segment(log)
    compact(log)
    written: list[tuple[int, int]] = []
    log.write_checkpoints = lambda: written.append((log.recovery_point, log.compacted_offset))
    count = log.lower_recovery_point(20)
    assert (log.recovery_point, log.compacted_offset) == (19, 20)
    assert count is not None
    log.note_checkpoint(count)
    log.compacted_offset = 40  # a pass that was under way has ended, and a checkpoint was written
    log.truncate_to(20)
    assert written == [(0, 1)]
    put_each(log, [(b"deleted", b"again"), *numbered(30)])
    assert log.compacted_offset == 1


def test_tombstones_may_be_kept_for_ever(tmp_path: Path) -> None:
    log = open_log(tmp_path, replace(COMPACT, delete_retention_ms=(1 << 63) - 1))
    put_each(log, [(b"gone", b"1"), (b"kept", b"2"), (b"gone", None)])
    close_segment(log)
    assert compact(log, now_ms=1_700_000_000_000)
    assert [one.offset for one in records(log)] == [1, 2]


def test_a_pass_that_a_bug_ends_half_way_counts_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, COMPACT)
    put_each(log, numbered(60))
    close_segment(log)
    before = read_all(log)
    found = plan(log, 1_000)
    assert found is not None
    job = CompactionJob(log, found, 1_000, breathe=lambda: None)
    rewrite, count = job._rewrite, itertools.count()

    def fail(group: Sequence[Segment]) -> Segment:
        if next(count):
            raise MemoryError("no more")
        return rewrite(group)

    monkeypatch.setattr(job, "_rewrite", fail)
    job.run()
    job.finish()
    assert next(count) == 2, "a part was written"
    assert isinstance(job.error, MemoryError)
    assert (read_all(log), log.compacted_offset) == (before, 0)
    assert not list(tmp_path.glob("*.cleaned"))


def test_a_time_that_no_batch_can_give_is_kept_as_the_last_one(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    last = (1 << 63) - 1
    pair = [Record(0, last - 5, b"kept", b"1"), Record(1, last + 10, b"gone", b"2")]
    view = memoryview(bytearray(encode_batch(pair, base_timestamp=last - 5, max_timestamp=2)))
    log.append_as_leader(view, check_batch(view), 0, 0)
    put_each(log, [(b"gone", b"3")])
    close_segment(log)
    assert [one.timestamp for one in records(log)][1] == last
    assert compact(log)
    assert [one.key for one in records(log)] == [b"kept", b"gone"]


def test_a_pass_over_a_log_that_is_leaving_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    put_each(log, numbered(60))
    close_segment(log)
    before = read_all(log)
    found = plan(log, 1_000)
    assert found is not None
    job = CompactionJob(log, found, 1_000, breathe=lambda: None)
    job.run()
    log.is_leaving = True
    job.finish()
    assert (read_all(log), log.compacted_offset) == (before, 0)


def test_a_failed_pass_without_a_descriptor_to_list_its_files_is_a_failed_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, pattern: str) -> Iterator[Path]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    monkeypatch.setattr(Path, "glob", refuse)
    remove_cleaned(tmp_path)

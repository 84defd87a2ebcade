"""How far tombstones were removed from a log is on disk before they are gone."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from pylog.errors import StorageError
from pylog.log import checkpoint
from pylog.log.compaction import CompactionJob, plan
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.log.tombstones import MAX_REACHES, RemovedTombstones
from pylog.model import TopicPartition

from .batches import open_log
from .test_compaction import COMPACT, Pair, close_segment, compact, put_each, records

GONE: list[Pair] = [(b"gone", b"1"), (b"kept", b"2"), (b"gone", None)]
AT_ONCE = replace(COMPACT, delete_retention_ms=0)


def marked(directory: Path) -> Log:
    """Return a log whose tombstone at offset 2 is due: a pass has met it, and its time is over."""
    log = open_log(directory, AT_ONCE)
    put_each(log, GONE)
    close_segment(log)
    compact(log, now_ms=5_000)
    put_each(log, [(b"more", b"3")] * 3)
    close_segment(log)
    return log


def test_a_log_without_a_tombstone_removed_says_so(tmp_path: Path) -> None:
    log = marked(tmp_path)
    assert log.tombstones.offset == -1
    assert not (tmp_path / checkpoint.REMOVED_TOMBSTONES).exists()


def test_the_highest_tombstone_that_was_removed_is_known_after_a_start(tmp_path: Path) -> None:
    log = marked(tmp_path)
    compact(log, now_ms=6_000)
    assert 2 not in [record.offset for record in records(log)]
    assert log.tombstones.offset == 2
    log.close()
    assert open_log(tmp_path, AT_ONCE, clean=True).tombstones.offset == 2


def test_it_is_written_before_the_tombstone_is_gone(tmp_path: Path) -> None:
    log = marked(tmp_path)
    found = plan(log, 6_000)
    assert found is not None
    job = CompactionJob(log, found, 6_000, breathe=lambda: None)
    job.run()
    assert 2 in [record.offset for record in records(log)]
    again = RemovedTombstones(tmp_path)
    again.load(log.log_end_offset)
    assert again.offset == 2
    job.finish()


def test_a_disk_that_does_not_take_it_keeps_the_tombstone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = marked(tmp_path)
    found = plan(log, 6_000)
    assert found is not None
    job = CompactionJob(log, found, 6_000, breathe=lambda: None)

    def refuse(path: Path, target: Path) -> Path:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refuse)
        job.run()
    job.finish()
    assert job.error is not None
    assert 2 in [record.offset for record in records(log)]
    assert log.tombstones.offset == -1


@pytest.mark.parametrize(("copied_offset", "is_kept"), [(2, True), (3, False), (None, False)])
def test_a_tombstone_stays_that_a_replica_has_yet_to_copy(
    tmp_path: Path, copied_offset: int | None, is_kept: bool
) -> None:
    log = marked(tmp_path)
    found = plan(log, 6_000)
    assert found is not None
    job = CompactionJob(log, found, 6_000, breathe=lambda: None, copied_offset=copied_offset)
    job.run()
    job.finish()
    assert (2 in [record.offset for record in records(log)]) == is_kept
    assert log.tombstones.offset == (-1 if is_kept else 2)


def test_what_was_taken_over_holds_for_one_leader_only(tmp_path: Path) -> None:
    found = RemovedTombstones(tmp_path)
    found.take_over(-1, 4, 0)
    assert not list(tmp_path.iterdir()), "nothing is written where there is nothing to know"
    found.take_over(9, 4, 3)
    again = RemovedTombstones(tmp_path)
    again.load(20)
    assert again.is_copy(4, 3)
    assert not again.is_copy(5, 3), "another leader may lack others below"
    assert not again.is_copy(4, 4), "more are gone there"
    again.note(3, lambda: True)
    again.note(12, lambda: True)
    assert again.is_copy(4, 3), "what it removes itself of what it has copied changes nothing"
    assert again.offset == 12
    again.take_over(7, 6, 1)
    assert again.is_copy(6, 1), "it copies another log now"


def test_a_pass_counts_for_whoever_has_not_come_as_far_as_what_it_removed(tmp_path: Path) -> None:
    found = RemovedTombstones(tmp_path)
    for offset in (200, 60, 90, -1):
        found.note(offset, lambda: True)
    assert found.offset == 200
    assert [found.last_pass(offset) for offset in (0, 60, 90, 91, 200, 201)] == [3, 3, 3, 1, 1, 0]
    again = RemovedTombstones(tmp_path)
    again.load(300)
    assert [again.last_pass(offset) for offset in (200, 201)] == [3, 0]
    again.note(10, lambda: True)
    assert again.last_pass() == 4, "numbers go on"


def test_of_very_many_passes_the_earlier_count_as_later(tmp_path: Path) -> None:
    found = RemovedTombstones(tmp_path)
    for offset in reversed(range(2 * MAX_REACHES)):
        found.note(offset, lambda: True)
    told = [found.last_pass(offset) for offset in range(2 * MAX_REACHES)]
    assert len(set(told)) == MAX_REACHES
    assert all(number >= 2 * MAX_REACHES - offset for offset, number in enumerate(told))


@pytest.mark.parametrize("harm", [b"", b"0\n1\n", b"0\n1\nx y\n", b"0\n1\n5\n", os.urandom(20)])
def test_a_damaged_file_stands_for_all_tombstones_that_there_were(tmp_path: Path, harm: bytes) -> None:
    (tmp_path / checkpoint.REMOVED_TOMBSTONES).write_bytes(harm)
    found = RemovedTombstones(tmp_path)
    found.load(20)
    assert found.offset == 19


def test_nothing_beyond_the_log_end_counts_as_removed(tmp_path: Path) -> None:
    log = marked(tmp_path)
    compact(log, now_ms=6_000)
    assert log.tombstones.offset == 2
    log.truncate_to(2)
    put_each(log, [(b"new", b"1")] * 3)
    assert log.tombstones.offset == log.log_end_offset - 4
    log.close()
    assert open_log(tmp_path, AT_ONCE, clean=True).tombstones.offset == log.tombstones.offset


def test_a_start_does_not_believe_that_something_beyond_the_log_end_was_removed(tmp_path: Path) -> None:
    (tmp_path / checkpoint.REMOVED_TOMBSTONES).write_text("0\n1\n20 1 4 1\n")
    found = RemovedTombstones(tmp_path)
    found.load(20)
    assert (found.offset, found.is_copy(4, 1)) == (19, False)


def test_a_pass_that_ends_after_its_log_was_cut_claims_nothing(tmp_path: Path) -> None:
    log = marked(tmp_path)
    found = plan(log, 6_000)
    assert found is not None

    def cut() -> None:
        if log.log_end_offset > 2:
            log.truncate_to(2)

    job = CompactionJob(log, found, 6_000, breathe=cut)
    job.run()
    job.finish()
    assert (log.tombstones.offset, log.log_end_offset) == (-1, 2)


def test_a_pass_over_a_deleted_log_leaves_the_directory_of_its_successor_alone(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, broker_id=1)
    directory.join("c")
    key, former, present = TopicPartition("table", 0), UUID(int=1), UUID(int=2)
    log = directory.get_or_create(key, former, AT_ONCE, now_ms=0)
    put_each(log, GONE)
    close_segment(log)
    compact(log, now_ms=5_000)
    put_each(log, [(b"more", b"3")] * 3)
    close_segment(log)
    found = plan(log, 6_000)
    assert found is not None

    def make_again() -> None:
        if directory.delete(key, former):
            directory.get_or_create(key, present, AT_ONCE, now_ms=0)

    job = CompactionJob(log, found, 6_000, breathe=make_again)
    job.run()
    job.finish()
    successor = directory.logs[key]
    assert not (successor.directory / checkpoint.REMOVED_TOMBSTONES).exists()
    assert not [path.name for path in successor.directory.iterdir() if "cleaned" in path.name]
    directory.close()


def test_a_file_that_cannot_be_read_now_is_not_taken_for_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> str:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    found = RemovedTombstones(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        with pytest.raises(StorageError, match="Too many open files"):
            found.load(20)
    assert found.offset == -1

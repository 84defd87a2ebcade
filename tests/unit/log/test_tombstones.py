"""How far tombstones were removed from a log is on disk before they are gone."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.log import checkpoint
from pylog.log.compaction import CompactionJob, plan
from pylog.log.log import Log
from pylog.log.tombstones import RemovedTombstones

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
    found.take_over(-1, 4)
    assert not list(tmp_path.iterdir()), "nothing is written where there is nothing to know"
    found.take_over(9, 4)
    again = RemovedTombstones(tmp_path)
    again.load(20)
    assert again.is_copy(9, 4)
    assert not again.is_copy(9, 5), "another leader may lack others below"
    assert not again.is_copy(10, 4)
    again.note(3)
    assert again.is_copy(9, 4), "what it removes itself of what it has copied changes nothing"
    again.note(12)
    assert again.offset == 12
    again.take_over(7, 6)
    assert again.is_copy(7, 6), "it copies another log now"


@pytest.mark.parametrize("harm", [b"", b"0\n1\n", b"0\n1\nx y\n", b"0\n1\n5\n", os.urandom(20)])
def test_a_damaged_file_stands_for_all_tombstones_that_there_were(tmp_path: Path, harm: bytes) -> None:
    (tmp_path / checkpoint.REMOVED_TOMBSTONES).write_bytes(harm)
    found = RemovedTombstones(tmp_path)
    found.load(20)
    assert found.offset == 19

"""Gaps that compaction left: which leader epoch they belong to, and where a log with gaps is cut."""

import os
from pathlib import Path

import pytest

from pylog.broker.data.progress import divergence
from pylog.errors import StorageError
from pylog.log.config import LogConfig
from pylog.log.directory import LogDirectory
from pylog.log.ends import read_ends
from pylog.log.log import Log
from pylog.log.recovery import NOWHERE
from pylog.wire.fetch import FetchPartition

from .batches import append, batch, crash, open_log, segment_files
from .test_compaction import COMPACT, close_segment, compact, put_each, records
from .test_directory import CLICKS, kill, log_of, opened

STORED = ((0, 1, 0), (2, 1, 0), (3, 1, 1), (11, 2, 3), (14, 1, 3), (15, 1, 4), (20, 1, 6))
"""Base offset, record count and leader epoch of the batches that a leader's log has left."""
BEGINNINGS = [(0, 0), (1, 3), (3, 4), (4, 15), (6, 16)]
"""No epoch begins later than it may have begun."""


def copy_into(log: Log, stored: tuple[tuple[int, int, int], ...] = STORED) -> Log:
    """Append batches as a follower does that gets all of them at once."""
    parts = [bytes(batch(count, base_offset=base, leader_epoch=epoch)) for base, count, epoch in stored]
    log.append_as_follower(memoryview(b"".join(parts)))
    log.high_watermark = log.log_end_offset
    return log


@pytest.mark.parametrize("config", [COMPACT, LogConfig()])
def test_an_epoch_begins_where_the_batch_before_the_gap_ends(tmp_path: Path, config: LogConfig) -> None:
    log = copy_into(open_log(tmp_path, config))
    assert log.epochs.entries() == BEGINNINGS
    assert log.offset_for_leader_epoch(1) == log.offset_for_leader_epoch(2) == (1, 4)


def test_it_does_so_when_batches_come_one_by_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for row in STORED:
        copy_into(log, (row,))
    assert log.epochs.entries() == BEGINNINGS


def test_the_first_epoch_of_a_copy_begins_at_its_start(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.truncate_fully_and_start_at(5)
    copy_into(log, ((11, 1, 3),))
    assert log.epochs.entries() == [(3, 5)]
    assert log.offset_for_leader_epoch(1) == (1, 5)


@pytest.mark.parametrize("recovery_point", [0, 4, 12, 16])
@pytest.mark.parametrize("config", [COMPACT, LogConfig()])
def test_a_start_after_a_crash_finds_the_same(tmp_path: Path, config: LogConfig, recovery_point: int) -> None:
    crash(copy_into(open_log(tmp_path, config)))
    assert open_log(tmp_path, config, recovery_point=recovery_point).epochs.entries() == BEGINNINGS


@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_file_of_epochs_is_made_again_with_the_gaps_in_the_later_epochs(tmp_path: Path, clean: bool) -> None:
    log = copy_into(open_log(tmp_path, COMPACT))
    log.close()
    (tmp_path / "leader-epoch-checkpoint").unlink()
    assert open_log(tmp_path, COMPACT, clean=clean).epochs.entries() == BEGINNINGS


def test_a_lost_file_of_recovery_points_makes_no_epoch_begin_late(tmp_path: Path) -> None:
    """The gap is at the end of a segment, and the check of the next one finds a new epoch."""
    log = gap_at_the_end_of_a_segment(tmp_path)
    log.truncate_to(3)
    append(log, batch(leader_epoch=1), epoch=1)
    log.epochs.clear()
    log.epochs.assign(0, 0)
    log.epochs.assign(1, 2)  # as where the first records of the epoch were removed from this log
    crash(log)
    again = open_log(tmp_path, COMPACT, recovery_point=NOWHERE)
    assert (again.log_end_offset, again.epochs.entries()) == (4, [(0, 0), (1, 1)])


@pytest.mark.parametrize("stop", [LogDirectory.close, kill])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_directory_that_nobody_runs_says_the_same(tmp_path: Path, stop: object, is_known: bool) -> None:
    directory = opened(tmp_path)
    copy_into(log_of(directory))
    assert callable(stop)
    stop(directory)
    if not is_known:
        (tmp_path / f"{CLICKS.topic}-{CLICKS.partition}" / "leader-epoch-checkpoint").unlink()
    assert list(read_ends(tmp_path).logs[0].epochs) == BEGINNINGS


@pytest.mark.parametrize(
    ("epoch", "fetch_offset", "answer"),
    [
        (0, 3, None),  # all that it has of an epoch
        (1, 4, None),
        (1, 9, (1, 4)),  # its own records lie where ours were compacted away
        (1, 11, (1, 4)),
        (2, 9, (1, 4)),  # an epoch of which nothing is left, or that never was
        (3, 9, None),  # of an epoch that goes on behind the gap
        (3, 15, None),
        (4, 18, (4, 16)),
    ],
)
def test_a_deposed_leader_is_cut_where_the_gap_begins(
    tmp_path: Path, epoch: int, fetch_offset: int, answer: tuple[int, int] | None
) -> None:
    log = copy_into(open_log(tmp_path))
    assert divergence(log, FetchPartition("t", 0, 7, fetch_offset, epoch, 0, 1 << 20)) == answer


def test_a_consumer_in_the_gap_is_not_told_that_records_were_lost(tmp_path: Path) -> None:
    log = copy_into(open_log(tmp_path))
    assert [log.readable_end_of_epoch(epoch) for epoch in (0, 1, 2, 3, 4, 5, 6)] == [
        (0, 3), (1, 11), (1, 11), (3, 15), (4, 20), (4, 20), (6, 21),
    ]  # fmt: skip
    assert log.readable_end_of_epoch(9) == (-1, -1)
    log.offline = StorageError("gone")
    with pytest.raises(StorageError):
        log.readable_end_of_epoch(1)


def test_a_log_without_gaps_answers_everybody_alike(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for epoch in (0, 0, 2, 2, 3):
        append(log, epoch=epoch)
    for epoch in range(5):
        assert log.readable_end_of_epoch(epoch) == log.offset_for_leader_epoch(epoch)


def test_a_log_cut_where_a_segment_begins_behind_a_gap_opens_after_a_crash(tmp_path: Path) -> None:
    log = gap_at_the_end_of_a_segment(tmp_path)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 5]
    points = checkpoints_of(log)
    log.truncate_to(3)
    crash(log)
    again = open_log(tmp_path, COMPACT, recovery_point=points[-1])
    found = [header.base_offset for segment in again.segments for _, header in segment.batches()]
    assert (again.log_end_offset, found) == (3, [0])


def test_a_log_cut_in_a_gap_opens_after_what_came_next_was_torn(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    put_each(log, [(b"first", b"1"), *[(b"k", b"1")] * 3, (b"second", b"1"), (b"k", b"2")])
    close_segment(log)
    compact(log)
    assert [one.offset for one in records(log)] == [0, 4, 5]
    points = checkpoints_of(log)
    log.truncate_to(3)
    assert log.log_end_offset == 1
    put_each(log, [(b"k", b"3")])
    crash(log)
    file = segment_files(tmp_path)[0]
    os.truncate(file, file.stat().st_size - 1)
    again = open_log(tmp_path, COMPACT, recovery_point=points[-1])
    assert (again.log_end_offset, [one.offset for one in records(again)]) == (1, [0])


def gap_at_the_end_of_a_segment(directory: Path) -> Log:
    """Return a log whose first segment ends at 3, and has a record at 0 only."""
    log = open_log(directory, COMPACT)
    put_each(log, [(b"first", b"1" * 600), (b"k", b"1"), (b"k", b"2")])
    close_segment(log)
    put_each(log, [(b"second", b"1" * 600), (b"k", b"3")])
    close_segment(log)
    put_each(log, [(b"third", b"1")])
    compact(log)
    assert [one.offset for one in records(log)] == [0, 3, 4, 5]
    log.flush()
    return log


def checkpoints_of(log: Log) -> list[int]:
    """Return a list that gets the recovery point of each checkpoint that *log* asks for."""
    points: list[int] = []
    log.write_checkpoints = lambda: points.append(log.recovery_point)
    return points

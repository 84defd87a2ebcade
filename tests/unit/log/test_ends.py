"""How far a stopped broker's logs reach: what its next start would find, without changing a byte."""

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from pylog.errors import StorageError
from pylog.log import checkpoint
from pylog.log.directory import LogDirectory
from pylog.log.ends import LogEnd, read_ends
from pylog.log.log import Log
from pylog.log.producers import MAX_COUNTED_PRODUCER_ID
from pylog.model import TopicPartition

from .batches import append, segment_files
from .test_compaction import COMPACT, close_segment, compact, numbered, put_each
from .test_directory import CLICKS, ID, kill, log_of, opened


def written(path: Path, stop: Callable[[LogDirectory], None]) -> Path:
    """Leave a log of three epochs and several segments."""
    directory = opened(path)
    log = log_of(directory)
    for epoch in (0, 4, 9):
        for number in range(15):
            append(log, epoch=epoch, producer_id=100 + epoch, producer_epoch=0, base_sequence=number)
    stop(directory)
    return path / "clicks-0"


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def ends_of(path: Path) -> LogEnd:
    """Return the one log's end, and see that nothing was changed."""
    before = contents(path)
    [found] = read_ends(path).logs
    assert contents(path) == before
    return found


def check_against_a_start(path: Path, found: LogEnd) -> Log:
    log = log_of(opened(path))
    assert (found.end, found.start) == (log.log_end_offset, log.log_start_offset)
    assert list(found.epochs) == log.epochs.entries()
    return log


def test_after_a_clean_stop(tmp_path: Path) -> None:
    written(tmp_path, LogDirectory.close)
    found = ends_of(tmp_path)
    assert found == LogEnd(CLICKS, ID, ((0, 0), (4, 15), (9, 30)), 0, 45, 109)
    check_against_a_start(tmp_path, found)


@pytest.mark.parametrize("stop", [LogDirectory.close, kill])
def test_an_id_that_a_producer_has_made_up_does_not_count(tmp_path: Path, stop: Callable[[LogDirectory], None]) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    for producer_id in (7, (1 << 63) - 1, MAX_COUNTED_PRODUCER_ID):
        append(log, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    stop(directory)
    assert ends_of(tmp_path).newest_producer_id == 7


def test_what_the_directory_says_of_itself(tmp_path: Path) -> None:
    written(tmp_path, LogDirectory.close)
    told: list[tuple[int, int]] = []
    found = read_ends(tmp_path, lambda *logs: told.append(logs))
    assert told == [(1, 1)]
    assert (found.broker_id, found.cluster_id, found.is_clean) == (1, "cluster-a", True)
    assert found.document()["partitions"][0]["topic_id"] == str(ID)


def test_after_a_kill(tmp_path: Path) -> None:
    written(tmp_path, kill)
    found = ends_of(tmp_path)
    assert (found.end, found.newest_producer_id) == (45, 109)
    check_against_a_start(tmp_path, found)


@pytest.mark.parametrize("cut_bytes", [1, 61, 130, 700])
def test_after_a_power_cut(tmp_path: Path, cut_bytes: int) -> None:
    last = segment_files(written(tmp_path, kill))[-1]
    os.truncate(last, max(0, last.stat().st_size - cut_bytes))
    found = ends_of(tmp_path)
    assert found.end < 45
    check_against_a_start(tmp_path, found)


def test_a_flipped_bit_ends_a_log_that_was_not_synced(tmp_path: Path) -> None:
    first = segment_files(written(tmp_path, kill))[0]
    data = bytearray(first.read_bytes())
    data[data.index(b"vvv", len(data) // 2)] ^= 1
    first.write_bytes(data)
    found = ends_of(tmp_path)
    assert 0 < found.end < 15
    check_against_a_start(tmp_path, found)


@pytest.mark.parametrize("stop", [LogDirectory.close, kill])
def test_without_the_file_of_epochs(tmp_path: Path, stop: Callable[[LogDirectory], None]) -> None:
    (written(tmp_path, stop) / "leader-epoch-checkpoint").unlink()
    found = ends_of(tmp_path)
    assert [epoch for epoch, _ in found.epochs] == [0, 4, 9]
    check_against_a_start(tmp_path, found)


def test_an_empty_log(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log_of(directory)
    directory.close()
    assert ends_of(tmp_path) == LogEnd(CLICKS, ID, (), 0, 0, -1)


def test_a_directory_without_topic_id(tmp_path: Path) -> None:
    directory = written(tmp_path, LogDirectory.close)
    (directory / "partition.metadata").unlink()
    assert ends_of(tmp_path).topic_id is None


def test_a_running_broker_is_not_read(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    with pytest.raises(StorageError, match="another broker has this data directory open"):
        read_ends(tmp_path)
    directory.close()


def test_what_was_set_aside_is_no_log(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log_of(directory)
    log_of(directory, TopicPartition("views", 0), uuid.UUID(int=9))
    directory.close()
    (tmp_path / "views-0").rename(tmp_path / f"views-0.{uuid.UUID(int=9).hex}-stray")
    assert [log.key for log in read_ends(tmp_path).logs] == [CLICKS]


def test_an_emptied_log_is_of_its_last_epoch(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    for epoch in (0, 4):
        append(log, epoch=epoch)
    log.delete_records_before(2)
    directory.close()
    found = ends_of(tmp_path)
    assert (found.epochs, found.start, found.end) == (((4, 2),), 2, 2)
    check_against_a_start(tmp_path, found)


def compacted(path: Path, monkeypatch: pytest.MonkeyPatch, *, is_killed_within: bool) -> None:
    """Leave a compacted log with gaps; if killed within, the new segment has not replaced the old ones yet."""
    directory = opened(path)
    log = directory.get_or_create(CLICKS, ID, COMPACT, now_ms=0)
    put_each(log, numbered(60, keys=7))
    close_segment(log)
    log.high_watermark = log.log_end_offset
    directory.checkpoint()
    if is_killed_within:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", _until_the_swap(Path.rename))
            with pytest.raises(StorageError):
                compact(log)
    else:
        compact(log)
    kill(directory)


def _until_the_swap(rename: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
    def some(path: Path, target: Path) -> Path:
        if path.suffix == ".swap":
            raise OSError(5, "killed")
        return rename(path, target)

    return some


@pytest.mark.parametrize("is_killed_within", [True, False])
@pytest.mark.parametrize("has_points", [True, False])
def test_of_a_compacted_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed_within: bool, has_points: bool
) -> None:
    compacted(tmp_path, monkeypatch, is_killed_within=is_killed_within)
    assert bool(list(tmp_path.rglob("*.log.swap"))) == is_killed_within
    if not has_points:
        (tmp_path / checkpoint.RECOVERY_POINTS).unlink()
    found = ends_of(tmp_path)
    assert found.end == 60
    log = opened(tmp_path).get_or_create(CLICKS, ID, COMPACT, now_ms=0)
    assert (found.end, found.start) == (log.log_end_offset, log.log_start_offset)

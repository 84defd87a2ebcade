"""Retention without the broker: the same decision, from files, under the lock, and never without knowing enough."""

import json
import uuid
from pathlib import Path

import pytest

from pylog.errors import StorageError
from pylog.log import checkpoint, offline
from pylog.log.config import LogConfig
from pylog.log.directory import LogDirectory
from pylog.log.layout import locked
from pylog.model import TopicPartition

from .batches import append

KEY = TopicPartition("clicks", 0)
CONFIG = LogConfig(segment_bytes=1024, index_interval_bytes=100, retention_ms=10_000)
NOW_MS = 1_000_000_000


def stopped(path: Path, config: LogConfig = CONFIG, *, batch_count: int = 30, clean: bool = True) -> None:
    """Leave the directory of a broker that wrote batches a second apart, the newest NOW_MS old."""
    directory = LogDirectory.open(path, broker_id=1)
    log = directory.get_or_create(KEY, uuid.UUID(int=1), config, now_ms=0)
    for number in range(batch_count):
        append(log, timestamp=NOW_MS - (batch_count - 1 - number) * 1000)
    if clean:
        directory.close()
    else:
        directory.run_jobs()
        directory.checkpoint()
        log.abandon()
        directory.logs.clear()
        directory.close()
        (path / checkpoint.CLEAN_SHUTDOWN).unlink()


def base_offsets(path: Path) -> list[int]:
    return sorted(int(file.stem) for file in (path / str(KEY)).glob("*.log"))


def test_what_the_broker_would_delete_goes(tmp_path: Path) -> None:
    stopped(tmp_path)
    before = base_offsets(tmp_path)
    online = LogDirectory.open(tmp_path, broker_id=1)
    online.get_or_create(KEY, uuid.UUID(int=1), CONFIG, now_ms=0)
    wanted = [(one.topic_partition, one.segment) for one in online.delete_expired(NOW_MS, dry_run=True)]
    online.close()
    assert offline.retain(tmp_path, NOW_MS, dry_run=True).deleted == wanted
    assert base_offsets(tmp_path) == before
    done = offline.retain(tmp_path, NOW_MS)
    assert done.deleted == wanted
    assert done.skipped == []
    assert base_offsets(tmp_path) == before[len(wanted) :]
    offline.remove(done.files)
    assert not list((tmp_path / str(KEY)).glob("*.deleted"))


def test_the_broker_starts_over_what_is_left_and_the_stop_stays_clean(tmp_path: Path) -> None:
    stopped(tmp_path)
    offline.remove(offline.retain(tmp_path, NOW_MS).files)
    directory = LogDirectory.open(tmp_path, broker_id=1)
    assert directory.was_clean
    log = directory.get_or_create(KEY, uuid.UUID(int=1), CONFIG, now_ms=0)
    assert (log.log_start_offset, log.log_end_offset) == (base_offsets(tmp_path)[0], 30)
    directory.close()


def test_the_active_segment_stays_however_old(tmp_path: Path) -> None:
    stopped(tmp_path)
    last = base_offsets(tmp_path)[-1]
    offline.retain(tmp_path, NOW_MS * 10)
    assert base_offsets(tmp_path) == [last]


def test_nothing_above_the_high_watermark_goes(tmp_path: Path) -> None:
    stopped(tmp_path)
    checkpoint.write_offsets(tmp_path / checkpoint.HIGH_WATERMARKS, {KEY: 5})
    done = offline.retain(tmp_path, NOW_MS * 10)
    assert all(segment.base_offset < 5 for _, segment in done.deleted)
    assert base_offsets(tmp_path)[0] <= 5


@pytest.mark.parametrize("lost", [checkpoint.RETENTION, checkpoint.HIGH_WATERMARKS])
def test_a_partition_that_lacks_what_is_needed_is_skipped_by_name(tmp_path: Path, lost: str) -> None:
    stopped(tmp_path)
    before = base_offsets(tmp_path)
    (tmp_path / lost).unlink()
    done = offline.retain(tmp_path, NOW_MS * 10)
    assert (done.deleted, done.skipped) == ([], [(KEY, f"{lost} does not name it")])
    assert base_offsets(tmp_path) == before


def test_a_directory_that_a_broker_has_open_is_left_alone(tmp_path: Path) -> None:
    stopped(tmp_path)
    with locked(tmp_path), pytest.raises(StorageError, match="another broker has this data directory open"):
        offline.retain(tmp_path, NOW_MS)


def test_after_an_unclean_stop_the_time_of_the_file_counts(tmp_path: Path) -> None:
    stopped(tmp_path, clean=False)
    # The files are of today, so nothing is older than the ten seconds of the topic, whatever the time index says.
    assert offline.retain(tmp_path, NOW_MS).deleted == []


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "partitions": {"a-0": {}}}'])
def test_a_damaged_file_is_named_and_does_not_keep_a_broker_from_starting(tmp_path: Path, content: str) -> None:
    stopped(tmp_path)
    (tmp_path / checkpoint.RETENTION).write_text(content)
    with pytest.raises(StorageError, match=checkpoint.RETENTION):
        offline.retain(tmp_path, NOW_MS)
    stopped(tmp_path, batch_count=0)
    assert json.loads((tmp_path / checkpoint.RETENTION).read_text())["partitions"][str(KEY)]["retention.ms"] == 10_000


def test_a_partition_that_was_not_opened_keeps_what_was_known(tmp_path: Path) -> None:
    stopped(tmp_path)
    LogDirectory.open(tmp_path, broker_id=1).close()
    assert offline.read_policies(tmp_path)[str(KEY)].retention_ms == 10_000


@pytest.mark.parametrize("harm", ["torn", "missing"])
def test_segments_stay_that_no_snapshot_of_producers_covers(tmp_path: Path, harm: str) -> None:
    stopped(tmp_path)
    before = base_offsets(tmp_path)
    *_, earlier, _, _ = snapshots = sorted((tmp_path / str(KEY)).glob("*.snapshot"))
    for path in snapshots[snapshots.index(earlier) + 1 :]:
        path.unlink() if harm == "missing" else path.write_bytes(b"")
    offline.retain(tmp_path, NOW_MS * 10)
    assert base_offsets(tmp_path) == [offset for offset in before if offset >= int(earlier.stem)]


def test_the_snapshot_that_covers_deleted_segments_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(tmp_path)
    synced: list[Path] = []
    monkeypatch.setattr(checkpoint, "sync_path", synced.append)
    assert offline.retain(tmp_path, NOW_MS).deleted
    assert synced == [max((tmp_path / str(KEY)).glob("*.snapshot")), tmp_path / str(KEY)]

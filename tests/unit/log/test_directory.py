import errno
import os
import subprocess
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from pylog.errors import ConfigError, StorageError
from pylog.log import checkpoint
from pylog.log.config import LogConfig
from pylog.log.directory import MIN_FREE_BYTES, RESERVE, RESERVE_BYTES, LogDirectory, ReserveJob
from pylog.log.log import Log
from pylog.model import TopicPartition

from .batches import SMALL, append, batch, fill, read_all
from .test_compaction import close_segment, compact, put_each, records

CLICKS = TopicPartition("clicks", 0)
ID, OTHER = uuid.UUID(int=7), uuid.UUID(int=8)


def opened(path: Path) -> LogDirectory:
    directory = LogDirectory.open(path, broker_id=1)
    directory.join("cluster-a")
    return directory


def log_of(directory: LogDirectory, key: TopicPartition = CLICKS, topic_id: uuid.UUID = ID) -> Log:
    log = directory.get_or_create(key, topic_id, SMALL, now_ms=0)
    log.high_watermark = log.log_end_offset
    return log


def kill(directory: LogDirectory) -> None:
    """End as a killed process does: its lock and its files are let go."""
    for log in directory.logs.values():
        log.abandon()
    os.close(directory._lock_fd)


def test_a_log_is_named_and_described_as_kafka_does(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory))
    directory.close()
    assert (tmp_path / "clicks-0" / "partition.metadata").read_text() == (
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n"
    )
    assert (tmp_path / "meta.properties").read_text() == "version=0\nbroker.id=1\ncluster.id=cluster-a\n"
    for name in (checkpoint.RECOVERY_POINTS, checkpoint.HIGH_WATERMARKS):
        assert (tmp_path / name).read_text() == "0\n1\nclicks 0 1\n"
    assert (tmp_path / checkpoint.LOG_START_OFFSETS).read_text() == "0\n1\nclicks 0 0\n"
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_f11_recovery_counts_the_segments_that_it_has_checked(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    fill(log, 30)
    segment_count = len(list((tmp_path / "clicks-0").glob("*.log")))
    assert segment_count > 2
    (tmp_path / checkpoint.RECOVERY_POINTS).unlink(missing_ok=True)
    kill(directory)
    again = opened(tmp_path)
    assert again.checked_segment_count == 0
    log_of(again)
    assert again.checked_segment_count == segment_count
    again.close()


def test_a_clean_restart_finds_all_records(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    stored = fill(log_of(directory), 30)
    directory.close()
    directory = opened(tmp_path)
    assert directory.was_clean
    assert (directory.loaded_count, directory.total_count) == (0, 1)
    log = log_of(directory)
    assert directory.loaded_count == 1
    assert read_all(log) == b"".join(stored)
    assert log.recovery_point == 30


def test_rule_3_no_stop_is_clean_before_an_unclean_one_is_settled(tmp_path: Path) -> None:
    kill(opened(tmp_path))
    for is_settled in (False, True):
        directory = opened(tmp_path)
        assert not directory.was_clean
        directory.is_settled = is_settled
        directory.close()
    assert opened(tmp_path).was_clean


def test_rule_3_the_marker_is_gone_before_anything_is_opened(tmp_path: Path) -> None:
    opened(tmp_path).close()
    directory = opened(tmp_path)
    assert directory.was_clean
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    kill(directory)
    assert not opened(tmp_path).was_clean


def test_rule_3_no_marker_while_a_log_is_unchecked(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    fill(log_of(directory), 3)
    kill(directory)
    directory = opened(tmp_path)
    directory.close()  # before clicks-0 was opened
    directory = opened(tmp_path)
    assert not directory.was_clean
    log_of(directory)
    directory.close()
    assert opened(tmp_path).was_clean


def test_a_crash_keeps_the_checkpoints_of_logs_not_opened_since(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    fill(log, 30)
    log.delete_records_before(20)
    directory.checkpoint()
    kill(directory)
    directory = opened(tmp_path)
    directory.checkpoint()
    log = log_of(directory)
    assert (log.log_start_offset, log.log_end_offset) == (20, 30)


def test_two_brokers_on_one_directory_are_refused(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    code = (
        "import sys; from pathlib import Path; from pylog.log.directory import LogDirectory\n"
        "LogDirectory.open(Path(sys.argv[1]), broker_id=1)"
    )
    second = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "another broker has this data directory open" in second.stderr
    directory.close()
    opened(tmp_path).close()


def test_rule_2_another_cluster_or_broker_is_refused_by_name(tmp_path: Path) -> None:
    opened(tmp_path).close()
    directory = LogDirectory.open(tmp_path, broker_id=1)
    assert directory.cluster_id == "cluster-a"
    with pytest.raises(ConfigError, match=r"cluster-a.*cluster-b.*another cluster"):
        directory.join("cluster-b")
    directory.close()
    with pytest.raises(ConfigError, match=r"broker\.id=1"):
        LogDirectory.open(tmp_path, broker_id=2)
    opened(tmp_path).close()


def test_rule_2_another_topic_of_the_same_name_is_set_aside_not_deleted(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    stored = fill(log_of(directory), 3)
    log = log_of(directory, topic_id=uuid.UUID(int=8))
    assert log.log_end_offset == 0
    (stray,) = directory.strays()
    assert (stray / "00000000000000000000.log").read_bytes() == b"".join(stored)
    assert directory.on_disk() == {CLICKS}
    assert directory.topic_id_on_disk(CLICKS) == uuid.UUID(int=8)


def test_rule_2_only_the_named_topic_is_deleted(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    fill(log_of(directory), 3)
    assert not directory.delete(CLICKS, uuid.UUID(int=8))
    assert CLICKS in directory.logs
    assert directory.delete(CLICKS, ID)
    assert (directory.logs, directory.on_disk()) == ({}, set())
    directory.run_jobs()
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_log_that_is_served_no_more_is_synced_when_it_is_set_aside_and_not_before(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    fill(log, 3)
    log.is_leaving = True
    assert (log.begin_sync(), log.recovery_point) == (None, 0)
    directory.set_aside(CLICKS)
    assert log.recovery_point == 3


def test_a_log_that_is_deleted_while_it_is_synced_keeps_its_files_open_until_then(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    fill(log, 3)
    [segment] = log.segments
    job = log.begin_sync()
    assert job is not None
    directory.delete(CLICKS, ID)
    job.run()
    assert segment.fd >= 0
    job.finish()
    assert segment.fd == -1


def test_a_deletion_that_a_crash_interrupted_is_finished(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    fill(log_of(directory), 3)
    directory.delete(CLICKS, ID)
    kill(directory)
    directory = opened(tmp_path)
    assert directory.total_count == 0
    directory.run_jobs()
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_log_without_metadata_is_set_aside_unless_it_is_empty(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    fill(log_of(directory), 3)
    log_of(directory, TopicPartition("empty", 0))
    kill(directory)
    for name in ("clicks-0", "empty-0"):
        (tmp_path / name / "partition.metadata").unlink()
    directory = opened(tmp_path)
    assert log_of(directory).log_end_offset == 0
    log_of(directory, TopicPartition("empty", 0))
    assert [path.name.partition(".")[0] for path in directory.strays()] == ["clicks-0"]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO])
def test_a_log_is_neither_set_aside_nor_deleted_while_it_cannot_be_read_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    directory = opened(tmp_path)
    fill(log_of(directory), 3)
    directory.close()
    directory = opened(tmp_path)
    with monkeypatch.context() as patch:
        _refuse_metadata(patch, code)
        with pytest.raises(StorageError, match=os.strerror(code)):
            log_of(directory)
        with pytest.raises(StorageError, match=os.strerror(code)):
            log_of(directory, topic_id=uuid.UUID(int=8))
        with pytest.raises(StorageError, match=os.strerror(code)):
            directory.delete(CLICKS, ID)
    assert (CLICKS in directory.waiting()) == (code == errno.EMFILE)
    assert log_of(directory).log_end_offset == 3
    assert directory.strays() == []


def _refuse_metadata(patch: pytest.MonkeyPatch, code: int) -> None:
    read = Path.read_text

    def read_text(path: Path, encoding: str | None = None, errors: str | None = None) -> str:
        if path.name == "partition.metadata":
            raise OSError(code, os.strerror(code), str(path))
        return read(path, encoding, errors)

    patch.setattr(Path, "read_text", read_text)


def test_the_longest_topic_name_can_be_set_aside(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    key = TopicPartition("t" * 249, 10)
    log_of(directory, key)
    assert len(directory.set_aside(key).name) == 255
    assert directory.on_disk() == set()


def test_a_damaged_log_leaves_the_others_alone(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    fill(log_of(directory), 10)
    fill(log_of(directory, TopicPartition("other", 1)), 10)
    for log in directory.logs.values():
        log.flush()
    directory.checkpoint()
    kill(directory)
    file = sorted((tmp_path / "clicks-0").glob("*.log"))[-1]
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    directory = opened(tmp_path)
    with pytest.raises(StorageError, match=file.name):
        log_of(directory)
    assert log_of(directory, TopicPartition("other", 1)).log_end_offset == 10
    directory.close()
    assert not opened(tmp_path).was_clean, "the damaged one must still be checked"


def test_rule_7_a_log_whose_cut_was_not_synced_is_not_opened_again_before_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = opened(tmp_path)
    fill(log_of(directory), 3)
    kill(directory)
    [file] = (tmp_path / "clicks-0").glob("*.log")
    with file.open("ab") as torn:
        torn.write(b"half a batch")
    size_bytes = file.stat().st_size

    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    directory = opened(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", refuse)
        with pytest.raises(StorageError):
            log_of(directory)
    assert file.stat().st_size < size_bytes, "the cut stands in the page cache"
    with pytest.raises(StorageError, match="Input/output error"):
        log_of(directory)
    kill(directory)
    assert log_of(opened(tmp_path)).log_end_offset == 3


def test_an_old_checkpoint_does_not_overwrite_a_newer_one(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    fill(log, 10)
    log.flush()
    slow = directory.checkpoint_job()
    log.truncate_to(4)  # writes the lowered recovery point before it cuts
    slow.run()
    slow.finish()
    points = checkpoint.read_offsets(tmp_path / checkpoint.RECOVERY_POINTS)
    assert points == {CLICKS: 3}


def test_retention_names_partition_and_segment(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    append(log, timestamp=1_000)
    log.roll()
    append(log, timestamp=10 * SMALL.retention_ms)
    found = directory.delete_expired(10 * SMALL.retention_ms, dry_run=True)
    assert [(item.topic_partition, item.segment.base_offset) for item in found] == [(CLICKS, 0)]
    assert directory.delete_expired(10 * SMALL.retention_ms) == found
    assert log.log_start_offset == 1


@pytest.mark.parametrize(("code", "is_fatal"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_rule_7_a_full_disk_keeps_the_old_checkpoints_and_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_fatal: bool
) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    directory.checkpoint()
    append(log)
    job = directory.checkpoint_job()

    def refuse(fd: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        job.run()
    if is_fatal:
        with pytest.raises(StorageError):
            job.finish()
    else:
        job.finish()
    assert checkpoint.read_offsets(tmp_path / checkpoint.HIGH_WATERMARKS) == {CLICKS: 0}


def test_t13_a_start_on_a_full_disk_says_what_it_needs_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LogDirectory.open(tmp_path, broker_id=1).close()
    before = sorted(tmp_path.iterdir())
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    full = os.statvfs(tmp_path)
    monkeypatch.setattr("os.statvfs", lambda path: os.statvfs_result((*full[:4], 3, *full[5:])))
    with pytest.raises(StorageError, match=f"{3 * full.f_frsize} bytes are free, a start needs {MIN_FREE_BYTES}"):
        LogDirectory.open(tmp_path, broker_id=1)
    assert sorted(tmp_path.iterdir()) == before
    monkeypatch.undo()
    directory = LogDirectory.open(tmp_path, broker_id=1)
    assert directory.was_clean
    directory.close()


def test_t13_a_start_on_a_full_disk_uses_the_reserve_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    free_bytes = 8 * RESERVE_BYTES

    def statvfs(path: Path) -> SimpleNamespace:
        in_use = RESERVE_BYTES if reserve.exists() else 0
        return SimpleNamespace(f_bavail=free_bytes - in_use, f_frsize=1)

    reserve = tmp_path / RESERVE
    monkeypatch.setattr(os, "statvfs", statvfs)
    ReserveJob(tmp_path).run()
    assert reserve.stat().st_blocks * 512 >= RESERVE_BYTES, "it takes the room that it gives back"
    free_bytes = RESERVE_BYTES  # the rest is taken by somebody else
    LogDirectory.open(tmp_path, broker_id=1).close()
    assert not reserve.exists()
    assert "this start uses the reserve" in caplog.text
    LogDirectory.open(tmp_path, broker_id=1).close()
    free_bytes = MIN_FREE_BYTES - 10
    with pytest.raises(StorageError, match="free 10 on this disk"):
        LogDirectory.open(tmp_path, broker_id=1)
    free_bytes = 8 * RESERVE_BYTES - 1
    ReserveJob(tmp_path).run()
    assert not reserve.exists(), "it must not be what fills the disk"
    free_bytes += 1
    ReserveJob(tmp_path).run()
    assert reserve.exists()


def test_t13_a_running_broker_keeps_its_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = LogDirectory.open(tmp_path, broker_id=1)
    ReserveJob(tmp_path).run()
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=0, f_frsize=1))
    with pytest.raises(StorageError, match="another broker has this data directory open"):
        LogDirectory.open(tmp_path, broker_id=1)
    assert (tmp_path / RESERVE).exists()
    directory.close()


def test_a_lost_file_of_recovery_points_does_not_make_a_loss_of_what_compaction_left(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1024, index_interval_bytes=150, cleanup_policy="compact")
    key, topic_id = TopicPartition("table", 0), uuid.UUID(int=9)
    directory = LogDirectory.open(tmp_path, broker_id=1)
    log = directory.get_or_create(key, topic_id, config, now_ms=0)
    put_each(log, [(b"k%d" % number, b"v" * 30) for number in range(100)])
    put_each(log, [(b"k%d" % number, b"w" * 30) for number in range(100) if number % 3])
    close_segment(log)
    directory.run_jobs()
    directory.checkpoint()
    assert compact(log)
    directory.run_jobs()
    end_offset, before = log.log_end_offset, records(log)
    ends = [max((header.last_offset for _, header in one.batches()), default=-1) + 1 for one in log.segments[:-1]]
    assert any(end < one.base_offset for end, one in zip(ends, log.segments[1:], strict=True)), "the test wants a gap"
    for _ in range(2):
        log.abandon()
        directory.logs.clear()
        directory.close()
        (tmp_path / checkpoint.CLEAN_SHUTDOWN).unlink()
        (tmp_path / checkpoint.RECOVERY_POINTS).unlink(missing_ok=True)
        directory = LogDirectory.open(tmp_path, broker_id=1)
        log = directory.get_or_create(key, topic_id, config, now_ms=0)
        assert (log.log_end_offset, log.recovery_point) == (end_offset, end_offset)
        assert records(log) == before
    directory.close()


def synced_paths(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the list to which every synced file or directory is added from now on."""
    synced: list[Path] = []

    def note(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fdatasync", note)
    return synced


def sync_records(log: Log) -> None:
    job = log.begin_sync(records_only=True)
    assert job is not None
    job.run()
    job.finish()


def test_rule_8_a_sync_of_records_includes_every_name_above_them_that_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = synced_paths(monkeypatch)
    path = tmp_path / "disks" / "a"
    directory = opened(path)
    assert {tmp_path, tmp_path / "disks"} <= set(synced), "the data directory and what is above it are new"
    synced.clear()
    log = log_of(directory)
    append(log)
    sync_records(log)
    partition = path / "clicks-0"
    names = {partition / checkpoint.PARTITION_METADATA, partition, path}
    assert set(synced) == {log.segments[0].path, *names}, "nothing is left to a job that may run later"
    synced.clear()
    append(log)
    sync_records(log)
    assert synced == [log.segments[0].path], "its name was synced before"
    log.roll()
    append(log)
    synced.clear()
    sync_records(log)
    assert {log.segments[1].path, partition} <= set(synced), "a new segment has a new name"
    synced.clear()
    log.truncate_fully_and_start_at(7)
    append(log)
    sync_records(log)
    assert {log.segments[0].path, partition, path} <= set(synced)


def test_a_start_counts_as_lasting_once_its_checkpoint_is_written(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    fill(log, 5)
    log.delete_records_before(3)
    before = directory.checkpoint_job()
    log.delete_records_before(4)
    assert log.lasting_start_offset == 0
    before.run()
    assert log.lasting_start_offset == 3, "the checkpoint was taken before the second deletion"
    directory.checkpoint()
    assert log.lasting_start_offset == 4
    kill(directory)
    assert log_of(opened(tmp_path)).lasting_start_offset == 4


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_log_that_begins_earlier_than_before_hides_nothing_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    log.truncate_fully_and_start_at(20)
    directory.checkpoint()
    with monkeypatch.context() as patch:
        if is_refused:
            patch.setattr(checkpoint, "write_offsets", refuse_to_write)
            with pytest.raises(StorageError):
                log.truncate_fully_and_start_at(5)
            with pytest.raises(StorageError):
                log.append_as_follower(batch(3, base_offset=5))
            assert log.log_end_offset == 5, "nothing is appended that a start would hide"
        else:
            log.truncate_fully_and_start_at(5)
    log.append_as_follower(batch(3, base_offset=5))
    kill(directory)
    again = log_of(opened(tmp_path))
    assert (again.log_start_offset, again.log_end_offset) == (5, 8)


def test_a_checkpoint_under_way_is_void_once_a_log_begins_earlier(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    fill(log, 10)
    log.high_watermark = 10
    log.delete_records_before(8)
    slow = directory.checkpoint_job()
    log.truncate_fully_and_start_at(0)
    log.append_as_follower(batch(5))
    slow.run()
    log.flush()
    kill(directory)
    again = log_of(opened(tmp_path))
    assert (again.log_start_offset, again.log_end_offset) == (0, 5)


def test_a_new_leader_appends_nothing_before_its_earlier_start_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    log.truncate_fully_and_start_at(20)
    directory.checkpoint()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_offsets", refuse_to_write)
        with pytest.raises(StorageError):
            log.truncate_fully_and_start_at(0)
        for _ in range(2):
            with pytest.raises(StorageError):
                append(log)
        assert log.log_end_offset == 0
    append(log, count=5)
    kill(directory)
    again = log_of(opened(tmp_path))
    assert (again.log_start_offset, again.log_end_offset) == (0, 5)


@pytest.mark.parametrize("is_named", [True, False], ids=["named by the files", "named by a checkpoint under way alone"])
def test_rule_18_a_checkpoint_under_way_is_void_once_the_topic_is_made_again(tmp_path: Path, *, is_named: bool) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    if is_named:
        directory.checkpoint()
    fill(log, 10)
    log.high_watermark = 10
    log.delete_records_before(8)
    slow = directory.checkpoint_job()
    assert directory.delete(CLICKS, ID)
    log = log_of(directory, topic_id=OTHER)
    fill(log, 5)
    slow.run()
    log.flush()
    kill(directory)
    again = log_of(opened(tmp_path), topic_id=OTHER)
    assert (again.log_start_offset, again.log_end_offset) == (0, 5)


def test_a_name_is_remembered_although_other_checkpoints_end_meanwhile(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    first = directory.checkpoint_job()
    log = log_of(directory)
    fill(log, 10)
    log.high_watermark = 10
    log.delete_records_before(8)
    second = directory.checkpoint_job()
    assert directory.delete(CLICKS, ID)
    first.run()  # it names nothing, and the second does
    log = log_of(directory, topic_id=OTHER)
    fill(log, 5)
    second.run()
    kill(directory)
    again = log_of(opened(tmp_path), topic_id=OTHER)
    assert (again.log_start_offset, again.log_end_offset) == (0, 5)


def refuse_to_write(path: Path, offsets: object) -> None:
    raise StorageError(f"{path}: No space left on device")


def test_a_killed_process_is_told_from_a_lost_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = opened(tmp_path)
    assert not directory.is_same_boot, "a new directory"
    directory.settle()
    kill(directory)
    directory = opened(tmp_path)
    assert directory.is_same_boot
    kill(directory)
    monkeypatch.setattr(checkpoint, "boot_id", lambda: "another start of the host")
    directory = opened(tmp_path)
    assert not directory.is_same_boot
    kill(directory)
    directory = opened(tmp_path)
    assert not directory.is_same_boot, "killed before anybody had settled what the host lost"
    directory.settle()
    kill(directory)
    assert opened(tmp_path).is_same_boot


def test_after_a_failed_sync_the_page_cache_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = opened(tmp_path)
    directory.settle()
    log = log_of(directory)
    append(log)
    job = log.begin_sync()
    assert job is not None
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        job.run()
    with pytest.raises(StorageError):
        job.finish()
    kill(directory)
    assert not opened(tmp_path).is_same_boot


def fail(fd: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))

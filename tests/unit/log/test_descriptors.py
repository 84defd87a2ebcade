"""Want of descriptors is no fault of the disk: what needs a file waits, and nothing is lost or taken offline."""

import errno
import os
import resource
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.log import checkpoint, jobs
from pylog.log.directory import LogDirectory

from .batches import PARTITION, SMALL, append, batch, content, crash, fill, no_descriptors, open_log, read_all

TOPIC_ID = uuid.UUID(int=7)


@contextmanager
def refused() -> Iterator[None]:
    with pytest.raises(ApiError, match="Too many open files") as found, no_descriptors():
        yield
    assert found.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_roll_is_refused_and_succeeds_later(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    with refused():
        log.roll()
    append(log)
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 4]


def test_a_closed_segment_is_read_when_there_are_descriptors_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    stored = fill(log, 30)
    for segment in log.segments[:-1]:  # as after a compaction: opened when it is first read
        os.close(segment.fd)
        segment.fd = -1
    with refused():
        log.read(0, 10, upper_bound_offset=30, min_one_batch=True)
    with refused():
        log.offset_for_timestamp(0)
    found = log.read(0, 10, upper_bound_offset=30, min_one_batch=True)
    assert found is not None
    assert content(found) == stored[0]


@pytest.mark.parametrize("offset", [5, 25])
def test_a_truncation_is_refused_whole_and_succeeds_later(tmp_path: Path, offset: int) -> None:
    log = open_log(tmp_path, replace(SMALL, segment_bytes=4096))
    stored = fill(log, 120)
    log.close()
    log = open_log(tmp_path, replace(SMALL, segment_bytes=4096), clean=True)
    with refused():
        log.truncate_to(offset)
    assert read_all(log) == b"".join(stored)
    log.truncate_to(offset)
    assert read_all(log) == b"".join(stored[:offset])


def test_rule_7_epochs_that_cannot_be_written_are_written_later(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log)
    log.begin_leader_epoch(5)
    with pytest.raises(StorageError, match="Too many open files"), no_descriptors():
        log.truncate_to(1)
    assert (log.offline, log.epochs.latest, log.epochs.is_saved) == (None, 0, False)
    log.truncate_to(1)
    assert log.epochs.is_saved


def test_rule_7_an_epoch_that_an_empty_log_keeps_is_written_with_the_next_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(StorageError, match="Too many open files"), no_descriptors():
        log.remember_epoch(3)
    assert (log.offline, log.epochs.entries(), log.epochs.is_saved) == (None, [(3, 0)], False)
    view = batch(leader_epoch=3)
    log.append_as_follower(view)
    crash(log)
    assert log.epochs.is_saved
    assert open_log(tmp_path).epochs.entries() == [(3, 0)]


def test_a_log_that_begins_anew_is_there_in_any_case(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    stored = fill(log, 30)
    with refused():
        log.truncate_fully_and_start_at(50)
    assert read_all(log) == b"".join(stored)
    log.truncate_fully_and_start_at(0)
    assert (log.log_end_offset, log.segments[0].path.name) == (0, f"{0:020d}.log")
    append(log)
    log.close()
    assert open_log(tmp_path, clean=True).log_end_offset == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_a_log_that_finds_no_room_to_begin_anew_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    log = open_log(tmp_path)
    stored = fill(log, 30)
    log.flush()
    before = sorted(path.name for path in tmp_path.iterdir())

    def refuse(path: object, *arguments: object) -> int:
        raise OSError(code, os.strerror(code), path)

    with monkeypatch.context() as patched:
        # Once a file cannot be made, and once it can and the directory cannot be listed.
        patched.setattr(os, "open" if code == errno.ENOSPC else "listdir", refuse)
        with pytest.raises(ApiError) as found:
            log.truncate_fully_and_start_at(50)
    assert (found.value.code, log.offline) == (ErrorCode.KAFKA_STORAGE_ERROR, None)
    assert read_all(log) == b"".join(stored)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    log.truncate_fully_and_start_at(50)
    append(log)
    assert log.log_end_offset == 51


def test_a_sync_waits_for_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    job = log.begin_sync()
    assert job is not None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    waits: list[float] = []

    def somebody_closes_a_file(seconds: float) -> None:
        waits.append(seconds)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    monkeypatch.setattr("pylog.log.jobs.time.sleep", somebody_closes_a_file)
    with no_descriptors():
        job.run()
    job.finish()
    assert (waits, log.recovery_point, log.offline) == ([jobs.DESCRIPTOR_WAIT_S], 3, None)


def test_names_are_synced_when_there_are_descriptors_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = LogDirectory.open(tmp_path, broker_id=1)
    directory.get_or_create(PARTITION, TOPIC_ID, SMALL, now_ms=0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr("pylog.log.jobs.time.sleep", lambda _: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))
    with no_descriptors():
        directory.run_jobs()
    directory.close()


def test_checkpoints_are_left_for_the_next_time(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path, broker_id=1)
    log = directory.get_or_create(PARTITION, TOPIC_ID, SMALL, now_ms=0)
    append(log)
    job = directory.checkpoint_job()
    with no_descriptors():
        job.run()
    job.finish()
    assert job.error is not None
    assert not (tmp_path / "recovery-point-offset-checkpoint").exists()
    directory.close()


def test_a_log_that_cannot_be_opened_on_a_full_disk_lets_go_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    append(log, epoch=4)
    crash(log)
    (tmp_path / checkpoint.LEADER_EPOCHS).unlink()

    def refuse(path: Path, content: object, *, durable: bool = True) -> None:
        raise StorageError(f"{path}: full") from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_atomically", refuse)
        for _ in range(3):
            with pytest.raises(StorageError, match="full"):
                open_log(tmp_path)
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before
    assert open_log(tmp_path).log_end_offset == 1

"""One data directory: the logs of one broker on one disk, and the files that speak for all of them.

data_dir => .lock meta.properties retention.json recovery-point-offset-checkpoint replication-offset-checkpoint
            log-start-offset-checkpoint cleaner-offset-checkpoint retention-clock-checkpoint
            [.kafka_cleanshutdown] [.pylog_boot_id] partition*
partition => <topic>-<partition>/  |  <topic>-<partition>.<32 hex digits>-{delete,stray}/

Absence never deletes (rule 2): a directory is removed only by `delete`, and only if its topic id is the one named.

The files that speak for all logs name partitions by topic name and number.  No directory is made while they still name
a former one of that name (rule 18), whether that was of a deleted topic or of this one, moved away and back: after a
crash the new log would be cut by the offsets of the old one.
"""

import base64
import errno
import itertools
import logging
import os
import shutil
import sys
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pylog.errors import ConfigError, StorageError
from pylog.log import checkpoint
from pylog.log.batch_file import DISK_FULL, NO_DESCRIPTORS
from pylog.log.checkpoint import sync_path
from pylog.log.config import LogConfig
from pylog.log.jobs import Job, patiently
from pylog.log.layout import DELETE_SUFFIX, STRAY_SUFFIX, lock, partitions_in, read_topic_id, renamed_in
from pylog.log.log import Log
from pylog.log.offline import encode_policies, read_policies
from pylog.log.recovery import NOWHERE
from pylog.log.retention import DeletedSegment
from pylog.model import Offset, TopicPartition

MIN_FREE_BYTES = 1 << 20
"""Without room for checkpoints, the lock and indexes of what a crash left, a start would fail later and elsewhere."""

RESERVE = ".pylog_reserve"
RESERVE_BYTES = 2 * MIN_FREE_BYTES
"""Kept in the data directory, and given back by a start on a full disk: a broker that was killed while its disk was
full could otherwise not come back to serve what it has, nor to delete any of it."""

_SPARE_FACTOR = 8
"""The reserve is made only where so many times as much is free: it must not be what fills the disk."""

MAX_NAME_BYTES = 255
"""File systems stop there; the topic's part of a renamed directory is cut to fit, as Kafka does."""

_logger = logging.getLogger(__name__)


class ExpiredSegment(NamedTuple):
    """A segment that retention deleted, or would delete, and whose it was."""

    topic_partition: TopicPartition
    segment: DeletedSegment


class LogDirectory:
    """A locked data directory and the logs opened in it.

    Attributes:
        cluster_id: of the cluster whose data this is; None in a directory that has joined none yet.
        logs: every open log.
        jobs: work of all logs that waits for the disk; run each in a thread, then finish it where the logs live.
        was_clean: the last stop was clean, so that logs open without being checked.
        is_same_boot: the host has run on since the process before this one, which met no fault of the disk: the page
            cache has all that it wrote.
        is_settled: nobody waits to hear what an unclean stop has cost; until then no stop is clean.
        loaded_count: partitions found at the start that have been opened or set aside since.
        total_count: partitions found at the start.
        checked_segment_count: segments that recovery has checked so far.
    """

    def __init__(self, path: Path, lock_fd: int, *, was_clean: bool, broker_id: int, cluster_id: str | None) -> None:
        self.path = path
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.was_clean = was_clean
        self.is_same_boot = self._take_boot_id()
        self.is_settled = True
        self.logs: dict[TopicPartition, Log] = {}
        self.jobs: deque[Job] = deque()
        self._lock_fd = lock_fd
        self._unopened = self.on_disk()
        self._failed: dict[TopicPartition, StorageError] = {}
        self._waiting: set[TopicPartition] = set()
        self.total_count = len(self._unopened)
        self.checked_segment_count = 0
        self._recovery_points = checkpoint.read_offsets(path / checkpoint.RECOVERY_POINTS)
        # A log that the file does not name was never compacted here; without the file nobody knows.
        self._default_recovery_point = 0 if (path / checkpoint.RECOVERY_POINTS).exists() else NOWHERE
        self._high_watermarks = checkpoint.read_offsets(path / checkpoint.HIGH_WATERMARKS)
        self._log_start_offsets = checkpoint.read_offsets(path / checkpoint.LOG_START_OFFSETS)
        self._compacted_offsets = checkpoint.read_offsets(path / checkpoint.COMPACTED_OFFSETS)
        self._policies = _known_policies(path)
        self._written_policies: dict[str, LogConfig] = {}
        # Checkpoints are made and written by the loop (before a truncation) and by threads (every minute, or before a
        # directory is made); of two, the one with the higher number has the later offsets.
        self._make_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._written_count = 0
        # Directories that the files name, or may come to name: a checkpoint of an open log may be under way.
        self._named = set(self._policies).union(
            *(
                map(str, offsets)
                for offsets in (
                    self._recovery_points, self._high_watermarks, self._log_start_offsets, self._compacted_offsets
                )
            )
        )  # fmt: skip

    @classmethod
    def open(cls, path: Path, *, broker_id: int) -> "LogDirectory":
        """Lock *path*, which is made if missing, and read what speaks for all its logs; no log is opened yet.

        Args:
            path: the data directory.
            broker_id: this broker's; compared with an old directory's.

        Raises:
            ConfigError: the directory belongs to another broker.
            StorageError: another broker has it open, or the disk fails.
        """
        try:
            _make_lasting(path)
            lock_fd = lock(path)
            try:
                _make_space(path)
                cluster_id = _claimed_by(path, broker_id)
                # Before anything is opened: a crash while opening must not count as clean (apache/kafka#9364).
                was_clean = _take_marker(path / checkpoint.CLEAN_SHUTDOWN)
                directory = cls(path, lock_fd, was_clean=was_clean, broker_id=broker_id, cluster_id=cluster_id)
                directory._remove_deleted()
            except BaseException:
                os.close(lock_fd)
                raise
        except OSError as error:
            raise StorageError(f"{error.filename or path}: {error.strerror}") from error
        return directory

    def join(self, cluster_id: str) -> None:
        """Write into a new directory which cluster it belongs to, or compare.

        Raises:
            ConfigError: the directory belongs to another cluster.
            StorageError: the disk refuses.
        """
        file = self.path / checkpoint.META_PROPERTIES
        if self.cluster_id is None:
            pairs = {"version": "0", "broker.id": str(self.broker_id), "cluster.id": cluster_id}
            checkpoint.write_properties(file, pairs)
            self.cluster_id = cluster_id
        elif self.cluster_id != cluster_id:
            raise ConfigError(
                f"{file}: cluster.id={self.cluster_id}, but the cluster is {cluster_id}: "
                "this data is of another cluster; correct `store` or `data_dir`"
            )

    @property
    def loaded_count(self) -> int:
        """How many of the partitions found at the start are dealt with; recovery shows it."""
        return self.total_count - len(self._unopened)

    def on_disk(self) -> set[TopicPartition]:
        """Return the partitions that have a directory.

        Raises:
            OSError: the disk fails.
        """
        return set(partitions_in(self.path))

    def topic_id_on_disk(self, key: TopicPartition) -> uuid.UUID | None:
        """Return the topic id that the directory of a partition names; None where it names none, or is not there.

        Raises:
            StorageError: it cannot be read.
        """
        return read_topic_id(self.path / str(key))

    def strays(self) -> list[Path]:
        """Return the directories set aside because the cluster did not know them.

        Raises:
            OSError: the disk fails.
        """
        return renamed_in(self.path, STRAY_SUFFIX)

    def get_or_create(self, key: TopicPartition, topic_id: uuid.UUID, config: LogConfig, *, now_ms: int) -> Log:
        """Return the log of a partition: the open one, else the one on disk, else a new one.

        What is on disk under another topic id belongs to a topic of the same name that is no more, and is set aside.
        May wait for the disk, and may run in a thread, but in one at a time.

        Raises:
            StorageError: the partition is offline; after an I/O error it stays so until the next start.
        """
        try:
            log = self._get_or_create(key, topic_id, config, now_ms)
        except StorageError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in DISK_FULL | NO_DESCRIPTORS:
                self._waiting.add(key)
            raise
        self._waiting.discard(key)
        return log

    def waiting(self) -> tuple[TopicPartition, ...]:
        """Return whose log could not be opened for want of room or descriptors, which may pass."""
        return tuple(self._waiting)

    def _get_or_create(self, key: TopicPartition, topic_id: uuid.UUID, config: LogConfig, now_ms: int) -> Log:
        path = self.path / str(key)
        known_id = read_topic_id(path)
        if key in self._failed and known_id in (topic_id, None):
            raise self._failed[key]
        try:
            if path.exists() and known_id != topic_id and not (known_id is None and _is_empty(path)):
                self.set_aside(key)
            log = self.logs.get(key)
            if log is not None:
                log.configure(config)
                return log
            is_new = not path.exists()
            if is_new and str(key) in self._named:
                names = {str(one) for one in (*list(self.logs), *list(self._unopened))}
                self.checkpoint()  # older ones that are still being written are void from now on
                self._named = names
            if is_new:
                self._forget(key)  # what the files say is of another one, also if this one is made at a second try
            path.mkdir(exist_ok=True)
            if is_new or known_id is None:
                self._write_metadata(path, topic_id)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}") from error
        try:
            log = self._open(key, path, config, now_ms, is_new=is_new)
        except StorageError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO:
                # After a failed sync the cut is in the page cache alone: a second look would find a log that is whole,
                # and what is synced behind it later would stand behind a gap after a power cut (rule 7).
                self._failed[key] = error
            raise
        self._named.add(str(key))
        self.logs[key] = log
        self._unopened.discard(key)
        return log

    def name_topic(self, key: TopicPartition, topic_id: uuid.UUID) -> None:
        """Write into the directory of a partition whose topic it is, if it does not say.

        Raises:
            StorageError: the disk refuses.
        """
        path = self.path / str(key)
        if read_topic_id(path) is None:
            self._write_metadata(path, topic_id)

    def _open(self, key: TopicPartition, path: Path, config: LogConfig, now_ms: int, *, is_new: bool) -> Log:
        log = Log.open(
            path,
            key,
            config,
            now_ms=now_ms,
            # Only what lay there at the start was left behind by the last stop.
            clean=is_new or (self.was_clean and key in self._unopened),
            recovery_point=0 if is_new else self._recovery_points.get(key, self._default_recovery_point),
            log_start_offset=0 if is_new else self._log_start_offsets.get(key, 0),
            high_watermark=0 if is_new else self._high_watermarks.get(key, 0),
            jobs=self.jobs,
            write_checkpoints=self.checkpoint,
            on_segment=self._count_segment,
        )
        if not is_new:
            log.compacted_offset = min(self._compacted_offsets.get(key, 0), log.log_end_offset)
            log.was_compacted = log.was_compacted or log.compacted_offset > 0
        return log

    def _count_segment(self) -> None:
        self.checked_segment_count += 1

    def set_aside(self, key: TopicPartition) -> Path:
        """Close a log and rename its directory to `…-stray`, where it stays until somebody purges it.

        Raises:
            StorageError: the disk fails.
        """
        log = self.logs.pop(key, None)
        if log is not None:
            if log.offline is None:
                log.close()
            else:
                log.abandon()
        path = self._rename(key, STRAY_SUFFIX)
        _logger.warning("set aside partition=%s directory=%s", key, path)
        return path

    def delete(self, key: TopicPartition, topic_id: uuid.UUID) -> bool:
        """Delete a partition if it is the named topic's; return whether it was.

        Raises:
            StorageError: the disk fails, or it cannot be read whose the partition is; nothing was deleted.
        """
        path = self.path / str(key)
        if read_topic_id(path) != topic_id:
            return False
        log = self.logs.pop(key, None)
        if log is not None:
            log.abandon()
        self.jobs.append(_RemoveJob(self._rename(key, DELETE_SUFFIX)))
        return True

    def delete_expired(self, now_ms: int, dry_run: bool = False) -> list[ExpiredSegment]:
        """Apply retention to every open log; with *dry_run* only say what would go.  A failing log is passed over."""
        expired: list[ExpiredSegment] = []
        for key, log in list(self.logs.items()):
            if log.is_leaving:
                continue
            try:
                expired += [ExpiredSegment(key, segment) for segment in log.delete_expired(now_ms, dry_run)]
            except StorageError as error:
                _logger.error("retention failed partition=%s reason=%s", key, error)
        return expired

    def checkpoint(self) -> None:
        """Write all offset checkpoints now.

        Raises:
            StorageError: the disk refuses; the old checkpoints are still there, and still true.
        """
        job = self.checkpoint_job()
        job.run()
        if job.error is not None:
            raise job.error

    def checkpoint_job(self) -> "CheckpointJob":
        """Return the job that writes all offset checkpoints as they are now."""
        with self._make_lock:
            number = next(self._numbers)
            logs = list(self.logs.items())
            for _, log in logs:
                log.start_in_checkpoints = max(log.start_in_checkpoints, log.log_start_offset)
            return CheckpointJob(
                self,
                number,
                [(log, log.log_start_offset) for _, log in logs],
                self._retained(),
                {
                    checkpoint.RECOVERY_POINTS: self._merge(
                        self._recovery_points, {key: log.recovery_point for key, log in logs}
                    ),
                    checkpoint.HIGH_WATERMARKS: self._merge(
                        self._high_watermarks, {key: log.high_watermark for key, log in logs}
                    ),
                    checkpoint.LOG_START_OFFSETS: self._merge(
                        self._log_start_offsets, {key: log.log_start_offset for key, log in logs}
                    ),
                    checkpoint.COMPACTED_OFFSETS: self._merge(
                        self._compacted_offsets,
                        {key: log.compacted_offset for key, log in logs if log.compacted_offset},
                    ),
                },
            )

    def _merge(
        self, old: Mapping[TopicPartition, Offset], new: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, Offset]:
        """Keep what is known of partitions that lie on disk and are not open: offline, or not asked for yet."""
        kept = {key: offset for key, offset in list(old.items()) if key not in new and key in self._unopened}
        return kept | dict(new)

    def _retained(self) -> dict[str, LogConfig]:
        """Return what retention goes by, also of what lies on disk and is not open."""
        known = {str(key): self._policies[str(key)] for key in list(self._unopened) if str(key) in self._policies}
        return known | {str(key): log.config for key, log in list(self.logs.items())}

    def write_checkpoints(
        self,
        number: int,
        starts: Iterable[tuple[Log, Offset]],
        policies: Mapping[str, LogConfig],
        files: Mapping[str, Mapping[TopicPartition, Offset]],
    ) -> None:
        """Write checkpoint files, unless newer ones were written meanwhile; in any thread.

        Args:
            number: orders the checkpoints.
            starts: logs with the log start offset that *files* has of them.
            policies: what retention goes by, by directory.
            files: offsets by file name.

        Raises:
            StorageError: the disk refuses.
        """
        with self._write_lock:
            if number > self._written_count:
                if policies != self._written_policies:
                    checkpoint.write_atomically(self.path / checkpoint.RETENTION, encode_policies(policies))
                    self._written_policies = dict(policies)
                for name, offsets in files.items():
                    checkpoint.write_offsets(self.path / name, offsets)
                self._written_count = number
                for log, start in starts:
                    log.start_on_disk = start

    def run_jobs(self) -> None:
        """Run everything that waits for another thread in this one.

        Raises:
            StorageError: a sync failed, and its partition is offline; the other jobs were run.
        """
        failure: StorageError | None = None
        while self.jobs:
            job = self.jobs.popleft()
            job.run()
            try:
                job.finish()
            except StorageError as error:
                failure = error
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Sync and close every log, write the checkpoints, and, if all of it worked, the clean-shutdown marker.

        Raises:
            StorageError: something failed; the next start checks the logs.
        """
        failures: list[StorageError] = []
        try:
            for key, log in list(self.logs.items()):
                try:
                    log.close()
                except StorageError as error:
                    failures.append(error)
                    self._unopened.add(key)  # its checkpoints stay as they were
            self.run_jobs()
            self.checkpoint()
            # A partition that was never opened after an unclean stop must still be checked at the next start.
            if not failures and self.is_settled and (self.was_clean or not self._unopened):
                checkpoint.write_atomically(self.path / checkpoint.CLEAN_SHUTDOWN, "")
        finally:
            with self._write_lock:
                self._written_count = sys.maxsize  # without open logs, a later one would say that all begin at 0
            self.logs.clear()
            os.close(self._lock_fd)
        if failures:
            raise failures[0]

    def _rename(self, key: TopicPartition, suffix: str) -> Path:
        self._unopened.discard(key)
        self._failed.pop(key, None)
        self._waiting.discard(key)
        self._forget(key)
        ending = f"-{key.partition}.{uuid.uuid4().hex}{suffix}"
        old, new = self.path / str(key), self.path / (key.topic[: MAX_NAME_BYTES - len(ending)] + ending)
        try:
            old.rename(new)
        except OSError as error:
            raise StorageError(f"{old}: {error.strerror}") from error
        self.jobs.append(_SyncPathsJob([self.path]))
        return new

    def _forget(self, key: TopicPartition) -> None:
        """Forget what the checkpoints said of a partition when this process began."""
        for offsets in (
            self._recovery_points, self._high_watermarks, self._log_start_offsets, self._compacted_offsets
        ):  # fmt: skip
            offsets.pop(key, None)

    def _take_boot_id(self) -> bool:
        """Return whether the process before this one ran under the same start of the host."""
        file = self.path / checkpoint.BOOT_ID
        try:
            before = file.read_text().strip()
        except (OSError, UnicodeDecodeError):
            before = ""
        is_same_boot = before != "" and before == checkpoint.boot_id()
        if self.was_clean or is_same_boot:
            self._write_boot_id()
        else:
            # Not before it is settled: killed in between, this process would hide what the host has lost.
            file.unlink(missing_ok=True)
        return is_same_boot

    def settle(self) -> None:
        """Take note that a controller has compared the logs: from now on a stop may be clean.

        Raises:
            StorageError: the disk refuses.
        """
        self.is_settled = True
        self._write_boot_id()

    def _write_boot_id(self) -> None:
        checkpoint.write_atomically(self.path / checkpoint.BOOT_ID, checkpoint.boot_id() + "\n", durable=False)

    def _write_metadata(self, path: Path, topic_id: uuid.UUID) -> None:
        encoded = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
        file = path / checkpoint.PARTITION_METADATA
        checkpoint.write_properties(file, {"version": " 0", "topic_id": f" {encoded}"}, ":", durable=False)
        # Synced elsewhere: a topic of a thousand partitions would otherwise wait for a thousand syncs.
        self.jobs.append(_SyncPathsJob([file, path, self.path]))

    def _remove_deleted(self) -> None:
        self.jobs.extend(_RemoveJob(path) for path in renamed_in(self.path, DELETE_SUFFIX))


class CheckpointJob:
    """Write the offset checkpoints.

    Attributes:
        error: why it failed, if it did.
    """

    def __init__(
        self,
        directory: LogDirectory,
        number: int,
        starts: Sequence[tuple[Log, Offset]],
        policies: Mapping[str, LogConfig],
        files: Mapping[str, Mapping[TopicPartition, Offset]],
    ) -> None:
        self._directory = directory
        self._number = number
        self._starts = starts
        self._policies = policies
        self._files = files
        self.error: StorageError | None = None

    def run(self) -> None:
        """Write, unless newer checkpoints were written meanwhile."""
        try:
            self._directory.write_checkpoints(self._number, self._starts, self._policies, self._files)
        except StorageError as error:
            self.error = error

    def finish(self) -> None:
        """Report a failure; the old checkpoints are still there and still true, only further back.

        Raises:
            StorageError: it was for want of neither space nor descriptors.
        """
        if self.error is None:
            return
        cause = self.error.__cause__
        if not (isinstance(cause, OSError) and cause.errno in DISK_FULL | NO_DESCRIPTORS):
            raise self.error
        _logger.warning("checkpoints not written reason=%s", self.error)


class _SyncPathsJob:
    """Make new names survive a power cut; what has gone meanwhile needs no sync."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._error: OSError | None = None

    def run(self) -> None:
        for path in self._paths:
            try:
                patiently(partial(sync_path, path))
            except FileNotFoundError:
                continue
            except OSError as error:
                self._error = error

    def finish(self) -> None:
        if self._error is not None:
            raise StorageError(f"{self._error.filename or self._paths[0]}: {self._error.strerror}")


class _RemoveJob:
    def __init__(self, path: Path) -> None:
        self._path = path

    def run(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)

    def finish(self) -> None:
        if self._path.exists():
            _logger.warning("cannot remove directory=%s", self._path)


def _make_lasting(path: Path) -> None:
    """Make a directory, and all above it that are missing, so that their names survive a power cut."""
    if path.is_dir():
        return
    _make_lasting(path.parent)
    path.mkdir(exist_ok=True)
    sync_path(path.parent)


def _free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _make_space(path: Path) -> None:
    """Give back the reserve on a full disk; refuse a start that would end half way, before anything else is changed."""
    if _free_bytes(path) >= MIN_FREE_BYTES:
        return
    reserve = path / RESERVE
    if reserve.exists():
        reserve.unlink()
        message = "the disk is full, this start uses the reserve file=%s free space on this disk before the next start"
        _logger.error(message, reserve)
    free_bytes = _free_bytes(path)
    if free_bytes < MIN_FREE_BYTES:
        missing_bytes = MIN_FREE_BYTES - free_bytes
        raise StorageError(
            f"{path}: {free_bytes} bytes are free, a start needs {MIN_FREE_BYTES}; free {missing_bytes} on this disk"
        )


class ReserveJob:
    """Keeps room for a start on a full disk, where there is enough now."""

    def __init__(self, path: Path) -> None:
        """Make it for the data directory *path*."""
        self._path = path / RESERVE

    def run(self) -> None:
        """Make the file, which takes its room at once."""
        if self._path.exists() or _free_bytes(self._path.parent) < _SPARE_FACTOR * RESERVE_BYTES:
            return
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
        except OSError as error:
            _logger.warning("no reserve for a start on a full disk file=%s reason=%s", self._path, error.strerror)
            self._path.unlink()
        finally:
            os.close(fd)

    def finish(self) -> None:
        """Nothing depends on it."""


def _known_policies(path: Path) -> dict[str, LogConfig]:
    try:
        return read_policies(path)
    except StorageError as error:
        _logger.warning("what retention went by is not known reason=%s", error)
        return {}


def _claimed_by(path: Path, broker_id: int) -> str | None:
    """Return the cluster that a directory of *broker_id* belongs to, or None for a new directory."""
    file = path / checkpoint.META_PROPERTIES
    found = checkpoint.read_properties(file)
    if found is None:
        return None
    if found.get("version") != "0":
        raise ConfigError(f"{file}: version={found.get('version')}; 0 is known")
    if found.get("broker.id") != str(broker_id):
        raise ConfigError(f"{file}: broker.id={found.get('broker.id')}, but this broker is {broker_id}")
    return found.get("cluster.id")


def _take_marker(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    sync_path(path.parent)
    return True


def _is_empty(path: Path) -> bool:
    return not any(file.stat().st_size for file in path.glob("*.log"))

"""What a broker does by the clock: jobs of the logs, checkpoints, retention, a look at the disk.

Files are waited for in threads; only the decisions are made on the loop.
"""

import asyncio
import contextlib
import logging
import math
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pylog.broker.clock import steady_ms
from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.data.produce import ProduceHandler
from pylog.broker.job_times import note_time, sync_times, time_job
from pylog.broker.retention_clock import RetentionClock
from pylog.broker.tasks import Tasks
from pylog.errors import ApiError, CorruptRecords, StorageError
from pylog.faults import PART_FAILED, code_of
from pylog.log.batch_file import OutOfDescriptors
from pylog.log.checkpoint import RETENTION_CLOCK
from pylog.log.compaction import CompactionJob, plan
from pylog.log.directory import LogDirectory, ReserveJob
from pylog.log.jobs import Job, SyncJob
from pylog.log.log import Log
from pylog.log.replay import ReplayJob
from pylog.log.retention import DeletedSegment
from pylog.log.scrub import ScrubJob, checked_ms, due_segment
from pylog.metrics import Histogram, Metrics

_logger = logging.getLogger(__name__)

INTERVAL_LOOK_S = 5.0
"""How soon a changed interval holds."""

TICK_S = 0.05
"""How soon a job that a log handed out is started."""

DISK_LOOK_S = 2.0
SCRUB_LOOK_S = 5.0
MIN_SCRUB_LOOK_S = 0.5
"""How often the broker looks for a segment to read again, one each time: more often only if they are due more often."""

RETENTION_S = 300.0
"""How often a broker with a store of its own applies retention; in a cluster cron does, see the role `retention`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceConfig:
    """The settings of upkeep; see `pylog.broker.settings`."""

    log_flush_offset_checkpoint_interval_ms: int
    log_scrub_interval_ms: int
    log_disk_alarm_percent: int
    log_disk_high_watermark_percent: int


class Maintenance:
    """Runs until stopped; see the module."""

    def __init__(
        self,
        directory: LogDirectory,
        partitions: Partitions,
        produce: ProduceHandler,
        config: MaintenanceConfig,
        metrics: Metrics,
        *,
        compact_interval_s: Callable[[], float],
        now_ms: Callable[[], int],
        is_retention_ours: bool,
    ) -> None:
        self._directory = directory
        self._partitions = partitions
        self._produce = produce
        self._config = config
        self._compact_interval_s = compact_interval_s
        self._now_ms = now_ms
        self._clock = RetentionClock(directory.path / RETENTION_CLOCK, now_ms)
        self._is_retention_ours = is_retention_ours
        self._uncompactable: set[Log] = set()
        self._uncompacted: set[Log] = set()  # since their last pass failed; some of them are tried again
        self._scrubbing: ScrubJob | None = None
        self._tasks = Tasks()
        self._running: set[asyncio.Future[Any]] = set()
        # One at a time: each computes, and all of them together would leave the loop little of the interpreter.
        self._replays: deque[ReplayJob] = deque()
        self._replaying: ReplayJob | None = None
        self._disk_used = metrics.gauge("pylog_disk_used_ratio", "Share of the data disk in use, 0 to 1.")
        help = "Bytes in use on the data disk, whoever uses them; pylog_topic_log_bytes says what of it are logs."
        self._disk_used_bytes = metrics.gauge("pylog_disk_used_bytes", help)
        self._disk_alarm = metrics.gauge("pylog_disk_alarm", "1 above log.disk.alarm.percent: act before writes stop.")
        help = "1 above log.disk.high.watermark.percent: writes of producers are refused."
        self._disk_full = metrics.gauge("pylog_disk_full", help)
        self._deleted_bytes = metrics.counter("pylog_retention_deleted_bytes_total", "Bytes retention deleted.")
        self._compactions = metrics.counter("pylog_compactions_total", "Passes of compaction over a log.")
        metrics.gauge(
            "pylog_compaction_failed_logs",
            "Hosted logs whose last pass of compaction failed. They grow until a pass ends well; those with damaged "
            "records are not tried again before the broker starts anew.",
            read=lambda: len(self._failed_logs()),
        )
        self._scrubbed_bytes = metrics.counter("pylog_scrubbed_bytes_total", "Bytes of closed segments read again.")
        self._damaged = metrics.counter("pylog_scrub_damaged_total", "Segments in which that found damage.")
        self._failed = metrics.counter("pylog_duties_failed_total", "Turns of upkeep that a bug ended.")
        self._took: dict[type, Histogram] = {
            SyncJob: sync_times(metrics, "upkeep"),
            CompactionJob: metrics.histogram("pylog_compaction_seconds", "How long a compaction of a log takes."),
        }
        # On the thread that makes the page: with thousands of partitions the directory takes milliseconds to read.
        metrics.value(
            "pylog_stray_directories",
            "gauge",
            "Directories set aside because the cluster does not know them; pylog log purge-stray deletes them.",
            self._count_strays,
        )

    def _failed_logs(self) -> set[Log]:
        """Return the logs that wait for a pass that ends well: a replica may have left, or its policy changed."""
        if not self._uncompacted:
            return self._uncompacted
        hosted = {partition.log for partition in self._partitions}
        return {log for log in self._uncompacted if log in hosted and log.is_compacted}

    def _count_strays(self) -> float:
        try:
            return len(self._directory.strays())
        except OSError:
            return math.nan  # a disk that fails must not take the other metrics with it

    def start(self) -> None:
        """Begin."""
        config = self._config
        duties: list[tuple[float, Callable[[], Any]]] = [
            (TICK_S, self._start_jobs),
            (DISK_LOOK_S, self._look_at_disk),
            (config.log_flush_offset_checkpoint_interval_ms / 1000, self._checkpoint),
        ]
        if config.log_scrub_interval_ms >= 0:
            look_s = max(MIN_SCRUB_LOOK_S, min(SCRUB_LOOK_S, config.log_scrub_interval_ms / 1000))
            duties.append((look_s, self._scrub))
        if self._is_retention_ours:
            duties.append((RETENTION_S, self._retain))
        self._look_at_disk()
        self._directory.jobs.append(self._clock.checkpoint_job())
        self._directory.jobs.append(ReserveJob(self._directory.path))
        for interval_s, duty in duties:
            self._tasks.spawn(self._repeat(duty, lambda interval_s=interval_s: interval_s))  # type: ignore[misc]
        self._tasks.spawn(self._repeat(self._compact, self._compact_interval_s))

    async def stop(self) -> None:
        """Stop, and wait for the jobs that run."""
        if self._scrubbing is not None:
            self._scrubbing.is_cancelled = True
        await self._tasks.stop()
        self._start_jobs()
        for replay in self._replays:
            replay.finish()  # not run; the next start reads the batches
        if self._replaying is not None:
            self._replaying.is_cancelled = True
        self._replays.clear()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def retain(self, *, dry_run: bool) -> dict[str, Any]:
        """Delete the expired segments of every partition, or only say which; return what the admin socket answers."""
        deleted: list[dict[str, str | int]] = []
        freed = 0
        now_ms = self._clock.now_ms()
        if self._clock.jumped_ms:
            message = "the clock is ahead by_ms=%d retention does not follow yet: it was set, or this broker was away"
            _logger.warning(message, self._clock.jumped_ms)
        for partition in list(self._partitions):
            log = partition.log
            if log is None or partition.is_offline:
                continue
            start_before = log.log_start_offset
            found: list[DeletedSegment] = []
            try:
                job = None if dry_run else log.begin_deletion(now_ms)
                if job is not None:
                    await asyncio.shield(self._start_job(job))
                if log.is_leaving or partition.log is not log:
                    continue
                found = log.delete_expired(now_ms, dry_run)
            except (ApiError, StorageError) as error:
                # Of this log alone, even for want of descriptors: the others may free the room that is needed.
                _logger.error("retention failed partition=%s reason=%s", partition.key, error)
            if log.log_start_offset > start_before:
                self._partitions.started_later(partition.key)
            freed += sum(segment.size_bytes for segment in found)
            deleted += [
                {
                    "topic": partition.key.topic,
                    "partition": partition.key.partition,
                    "base_offset": segment.base_offset,
                    "size_bytes": segment.size_bytes,
                }
                for segment in found
            ]
            await asyncio.sleep(0)  # a thousand partitions must not hold the loop
        if not dry_run and deleted:
            self._deleted_bytes.value += freed
            _logger.info("retention deleted segments=%d bytes=%d", len(deleted), freed)
            self._partitions.checkpoint_soon()
        return {"dry_run": dry_run, "deleted": deleted, "freed_bytes": freed}

    async def _repeat(self, duty: Callable[[], Any], interval_s: Callable[[], float]) -> None:
        while True:
            waited_s = 0.0
            while (left_s := interval_s() - waited_s) > 0:
                # In steps, because some intervals change while the broker runs.
                waited_s += (step_s := min(left_s, INTERVAL_LOOK_S))
                await asyncio.sleep(step_s)
            try:
                waiting = duty()
                if waiting is not None:
                    await waiting
            except Exception:
                # It begins anew at its next turn, and nobody is promised what it does: a log that compaction cannot
                # digest must not end every broker that holds it.
                self._failed.value += 1
                _logger.exception("duty failed code=%s duty=%s", PART_FAILED.code, getattr(duty, "__name__", duty))

    def _start_jobs(self) -> None:
        jobs = self._directory.jobs
        while jobs:
            job = jobs.popleft()
            if isinstance(job, ReplayJob):
                self._replays.append(job)
            else:
                self._start_job(job)
        if self._replays and self._replaying is None:
            self._replaying = self._replays.popleft()
            self._start_job(self._replaying).add_done_callback(self._replayed)

    def _replayed(self, _: "asyncio.Future[int]") -> None:
        self._replaying = None

    def _start_job(self, job: Job) -> "asyncio.Future[int]":
        """Run *job* in a thread, then finish it; whoever waits shields the future, or his end would be the job's."""
        future = asyncio.get_running_loop().run_in_executor(None, time_job, job)
        self._running.add(future)

        def finish(done: "asyncio.Future[int]") -> None:
            self._running.discard(done)
            note_time(done, self._took.get(type(job)))
            try:
                job.finish()
            except StorageError as error:
                # After a failed sync the kernel has dropped the pages: nothing may be written on top (rule 7).
                _logger.critical("the disk failed, this broker ends itself code=%s reason=%s", code_of(error), error)
                os._exit(1)

        future.add_done_callback(finish)
        return future

    def _look_at_disk(self) -> None:
        found = os.statvfs(self._directory.path)
        # As df counts: blocks that nobody may use are neither used nor free.
        used_blocks = found.f_blocks - found.f_bfree
        used = used_blocks / max(used_blocks + found.f_bavail, 1)
        self._disk_used.value = used
        self._disk_used_bytes.value = used_blocks * found.f_frsize
        alarm = self._config.log_disk_alarm_percent / 100
        if (used >= alarm) != self._disk_alarm.value:
            self._disk_alarm.value = used >= alarm
            _logger.warning("disk alarm=%s used=%.3f from=%.2f", "on" if used >= alarm else "off", used, alarm)
        limit = self._config.log_disk_high_watermark_percent / 100
        is_full = used >= limit
        if is_full != self._produce.is_disk_full:
            _logger.warning("disk used=%.3f limit=%.2f produce=%s", used, limit, "refused" if is_full else "accepted")
            self._produce.is_disk_full = is_full
        self._disk_full.value = is_full

    async def _checkpoint(self) -> None:
        """Sync what was written since the last time, then write down how far that is: a start after a crash reads on.

        One log after the other: a burst of a thousand syncs would hold up those somebody waits for.
        """
        for log in [partition.log for partition in self._partitions]:
            job = None
            if log is not None:
                # No descriptor or no room now, or the disk fails under this log: its point stays where it is.
                with contextlib.suppress(ApiError, StorageError):
                    job = log.begin_sync()
            if job is not None:
                await asyncio.shield(self._start_job(job))
        self._directory.jobs.append(self._directory.checkpoint_job())
        self._directory.jobs.append(ReserveJob(self._directory.path))  # it was used, and there may be room again
        await asyncio.shield(self._start_job(self._clock.checkpoint_job()))

    async def _scrub(self) -> None:
        """Read the closed segment again that was checked longest ago, if it is due."""
        now_ms, interval_ms = self._now_ms(), self._config.log_scrub_interval_ms
        due = [
            (checked_ms(segment), log, segment)
            for partition in self._partitions
            if (log := partition.log) is not None and (segment := due_segment(log, now_ms, interval_ms)) is not None
        ]
        if not due:
            return
        _, log, segment = min(due, key=lambda one: one[0])
        try:
            job = self._scrubbing = ScrubJob(log, segment)
        except OutOfDescriptors:
            return  # the next look finds the same segment
        future = asyncio.get_running_loop().run_in_executor(None, job.run)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        await asyncio.shield(future)
        job.finish(self._now_ms())
        self._scrubbed_bytes.value += segment.size_bytes
        self._damaged.value += job.error is not None

    async def _compact(self) -> None:
        """Compact the logs that ask for it, the dirtiest first and one at a time.

        By the time that retention goes by: a tombstone has its time to be read, and a record to stay as it is, whatever
        somebody sets the clock to.
        """
        now_ms = self._clock.now_ms()
        self._uncompacted = self._failed_logs()
        self._uncompactable &= {partition.log for partition in self._partitions}
        found: list[tuple[float, Log, Partition]] = []
        for partition in self._partitions:
            log = partition.log
            if log is None or not log.is_compacted or partition.is_offline or log in self._uncompactable:
                continue
            work = plan(log, now_ms)
            if work is not None and (work.is_overdue or work.dirty_ratio >= log.config.min_cleanable_dirty_ratio):
                found.append((work.dirty_ratio, log, partition))
        for _, log, partition in sorted(found, key=lambda one: one[0], reverse=True):
            work = plan(log, now_ms)  # again: retention or truncation may have come in between
            if work is None:
                continue
            leading = partition.leading
            copied_offset = None if leading is None else leading.copied_offset(steady_ms())
            job = CompactionJob(log, work, now_ms, copied_offset=copied_offset)
            # After a crash a gap above the recovery point is a loss, one below it is compaction's: so that point is
            # on disk before there are gaps.
            checkpoint = self._directory.checkpoint_job()
            await asyncio.shield(self._start_job(checkpoint))
            if checkpoint.error is not None:
                job.error = checkpoint.error
                job.finish()
                return
            await asyncio.shield(self._start_job(job))
            if job.error is None:
                self._compactions.value += 1
                self._uncompacted.discard(log)
                continue
            self._uncompacted.add(log)
            if isinstance(job.error, CorruptRecords) or not isinstance(job.error, (OSError, StorageError, ApiError)):
                self._uncompactable.add(log)  # it was logged once, and a second try finds the same

    async def _retain(self) -> None:
        await self.retain(dry_run=False)

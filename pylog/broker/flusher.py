"""Syncs of topics with `flush.messages` or `flush.ms`: nobody sees or is told of a record before its sync (rule 8).

One sync of a log runs at a time, in a thread; whatever is appended meanwhile goes with the next one, so a slow disk
makes syncs larger, not more.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from pylog.broker.job_times import note_time, sync_times, time_job
from pylog.errors import ApiError, StorageError
from pylog.faults import code_of
from pylog.log.jobs import SyncJob
from pylog.log.log import Log
from pylog.metrics import Metrics
from pylog.model import TopicPartition

_logger = logging.getLogger(__name__)

MAX_SYNCS = 8
"""Logs synced at once; a disk's queue takes about as many before each only waits for the others."""

MAX_ALARM_MS = 3_600_000
"""Event loops take no longer delays than some days; an alarm that rings too early is set again."""

RETRY_MS = 100
"""When a sync that found no descriptor is tried again."""


class Flusher:
    """Begins syncs when they are due, and tells when one has made records countable."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        synced: Callable[[TopicPartition], None],
        failed: Callable[[str, int], None],
        metrics: Metrics,
    ) -> None:
        """Make it; *synced* is told each partition whose synced end has moved, *failed* each that went offline."""
        self._took = sync_times(metrics, "acknowledgement")
        self._now_ms = now_ms
        self._synced = synced
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(MAX_SYNCS, "sync")
        self._appended: set[Log] = set()
        self._running: dict[Log, asyncio.Future[None]] = {}
        self._alarms: dict[Log, asyncio.TimerHandle] = {}

    def unsynced(self, log: Log) -> None:
        """Sync *log*, which holds unsynced records, when it is due."""
        if not self._appended:
            # After the turn, so that all requests of one wake-up share one sync.
            self._loop.call_soon(self._look)
        self._appended.add(log)

    async def sync(self, logs: Iterable[Log], *, always: bool = False) -> None:
        """Wait until what flushing *logs* hold now is synced, whether it was due or not: for a follower's progress.

        With *always* also what those hold that no `flush.*` asks for.

        Raises:
            ApiError: no room or no descriptor for a file: nothing is known to be synced; try again.
        """
        for log in logs:
            end_offset = log.log_end_offset
            while (always or log.is_flushing) and log.recovery_point < end_offset and log.offline is None:
                if not self._begin(log):
                    break
                # Shielded: others count on this sync, whatever becomes of who waits here.
                await asyncio.shield(self._running[log])

    async def stop(self) -> None:
        """Wait for what runs; closing the logs syncs the rest."""
        for alarm in self._alarms.values():
            alarm.cancel()
        self._appended.clear()
        await asyncio.gather(*self._running.values())
        self._threads.shutdown(wait=False)

    def _look(self) -> None:
        logs, self._appended = self._appended, set()
        for log in logs:
            self._sync_if_due(log)

    def _sync_if_due(self, log: Log) -> None:
        if log in self._running or not log.is_flushing:
            return
        if log.log_end_offset <= log.recovery_point:
            self._synced(log.topic_partition)  # a sync for another reason was faster
        elif log.is_sync_due(self._now_ms()):
            try:
                self._begin(log)
            except ApiError as error:
                _logger.warning("sync put off partition=%s reason=%s", log.topic_partition, error)
                self._look_again(log, RETRY_MS)
            except StorageError as error:  # the partition alone is offline, and others may lead it
                _logger.error("cannot sync partition=%s reason=%s", log.topic_partition, error)
                self._failed(*log.topic_partition)
        else:
            # A millisecond more, or it would ring before the time is up, by rounding.
            self._look_again(log, min(log.config.max_unsynced_ms, MAX_ALARM_MS) + 1)

    def _look_again(self, log: Log, delay_ms: int) -> None:
        if log not in self._alarms:
            self._alarms[log] = self._loop.call_later(delay_ms / 1000, self._rings, log)

    def _rings(self, log: Log) -> None:
        del self._alarms[log]
        self._sync_if_due(log)

    def _begin(self, log: Log) -> bool:
        """Begin a sync unless one runs; return whether one runs now."""
        if log not in self._running:
            job = log.begin_sync(records_only=True)
            if job is None:
                return False
            # A future of its own, done only when the sync is finished, too: who waited for one that is done and not
            # finished would look again and again, and hold up the loop that would finish it.
            finished: asyncio.Future[None] = self._loop.create_future()
            synced = self._loop.run_in_executor(self._threads, time_job, job)
            synced.add_done_callback(lambda done: self._finish(log, job, done, finished))
            self._running[log] = finished
        return True

    def _finish(self, log: Log, job: SyncJob, done: asyncio.Future[int], finished: asyncio.Future[None]) -> None:
        del self._running[log]
        note_time(done, self._took)
        try:
            job.finish()
        except StorageError as error:
            # After a failed sync the kernel has dropped the pages: nothing may be written on top (rule 7).
            _logger.critical("sync failed, this broker ends itself code=%s reason=%s", code_of(error), error)
            os._exit(1)
        finished.set_result(None)
        self._synced(log.topic_partition)

"""Rule 8 with a disk that takes its time: nothing counts before its sync, and waiting appends share the next one."""

import asyncio
import errno
import itertools
import os
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.broker.flusher import Flusher
from pylog.errors import StorageError
from pylog.log.batch_file import OutOfDescriptors
from pylog.log.log import Log
from pylog.log.segments import Segments
from pylog.metrics import Metrics
from pylog.model import TopicPartition
from tests.unit.log.batches import PARTITION, SMALL, append, open_log

EACH = replace(SMALL, flush_messages=1, segment_bytes=1 << 20)


class SlowDisk:
    """`os.fdatasync` that returns when it is let; `count` were begun."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._began, self._may_end = threading.Semaphore(0), threading.Semaphore(0)
        patch.setattr(os, "fdatasync", self._sync)

    def _sync(self, fd: int) -> None:
        self.count += 1
        self._began.release()
        assert self._may_end.acquire(timeout=20)

    async def wait_begun(self) -> None:
        assert await asyncio.to_thread(self._began.acquire, timeout=20)

    def let_one_end(self) -> None:
        self._may_end.release()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    return SlowDisk(monkeypatch)


def run(story: Callable[[Flusher, "asyncio.Queue[TopicPartition]"], Coroutine[None, None, None]], now_ms: int) -> None:
    """Run *story* with a flusher whose clock stands at *now_ms*, and what it told."""

    async def main() -> None:
        told: asyncio.Queue[TopicPartition] = asyncio.Queue()
        flusher = Flusher(
            now_ms=lambda: now_ms,
            synced=told.put_nowait,
            failed=lambda topic, number: told.put_nowait(TopicPartition(topic, number)),
            metrics=Metrics(),
        )
        async with asyncio.timeout(30):
            await story(flusher, told)
            await flusher.stop()

    asyncio.run(main())


def put(log: Log, flusher: Flusher) -> None:
    append(log)
    flusher.unsynced(log)


def test_an_append_counts_once_its_sync_is_done(tmp_path: Path, disk: SlowDisk) -> None:
    log = open_log(tmp_path, EACH)

    async def story(flusher: Flusher, told: "asyncio.Queue[TopicPartition]") -> None:
        put(log, flusher)
        await disk.wait_begun()
        assert (log.countable_end_offset, told.qsize()) == (0, 0)
        disk.let_one_end()
        assert await told.get() == PARTITION
        assert log.countable_end_offset == 1

    run(story, 0)


def test_what_is_appended_during_a_sync_shares_the_next_one(tmp_path: Path, disk: SlowDisk) -> None:
    log = open_log(tmp_path, EACH)

    async def story(flusher: Flusher, told: "asyncio.Queue[TopicPartition]") -> None:
        put(log, flusher)
        await disk.wait_begun()
        for _ in range(10):
            put(log, flusher)
        await asyncio.sleep(0)
        disk.let_one_end()
        await told.get()
        # What the broker does with every word of progress: look whether more waits.
        assert log.countable_end_offset == 1
        flusher.unsynced(log)
        await disk.wait_begun()
        disk.let_one_end()
        await told.get()
        assert (log.countable_end_offset, disk.count) == (11, 2)

    run(story, 0)


def test_a_sync_outlives_who_waits_for_it(tmp_path: Path, disk: SlowDisk) -> None:
    """Found by the simulator: a fetcher that was stopped ended the sync it waited for, which then counted as done."""
    log = open_log(tmp_path, EACH)
    append(log)

    async def story(flusher: Flusher, told: "asyncio.Queue[TopicPartition]") -> None:
        waiting = asyncio.create_task(flusher.sync([log]))
        await disk.wait_begun()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (log.recovery_point, told.qsize()) == (0, 0)
        disk.let_one_end()
        await told.get()
        assert log.recovery_point == 1

    run(story, 0)


def test_a_follower_waits_for_its_sync_whatever_is_due(tmp_path: Path, disk: SlowDisk) -> None:
    log = open_log(tmp_path, replace(EACH, flush_messages=1_000))
    append(log)

    async def story(flusher: Flusher, told: "asyncio.Queue[TopicPartition]") -> None:
        waiting = asyncio.create_task(flusher.sync([log]))
        await disk.wait_begun()
        assert not waiting.done()
        disk.let_one_end()
        await waiting
        assert log.countable_end_offset == 1

    run(story, 0)


def test_a_log_without_flush_settings_is_left_alone(tmp_path: Path, disk: SlowDisk) -> None:
    log = open_log(tmp_path, replace(EACH, flush_messages=2**63 - 1))

    async def story(flusher: Flusher, told: "asyncio.Queue[TopicPartition]") -> None:
        put(log, flusher)
        await flusher.sync([log])
        await asyncio.sleep(0)
        assert (log.countable_end_offset, disk.count, told.qsize()) == (1, 0, 0)

    run(story, 0)


def test_a_sync_of_records_leaves_indexes_alone_once_the_segment_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, EACH)
    synced: list[str] = []
    monkeypatch.setattr("pylog.log.jobs.sync_path", lambda path: synced.append(path.name))
    # Also the file that says whose records they are, since a start sets a log aside that has none, and the directory
    # that names the log's own, which may be as new.
    names = ["partition.metadata", tmp_path.name, tmp_path.parent.name]
    for _ in ("the first", "another one"):
        append(log)
        job = log.begin_sync(records_only=True)
        assert job is not None
        job.run()
        job.finish()
        assert synced == names


def test_who_comes_between_a_sync_and_its_finish_does_not_hold_up_the_loop(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, EACH)
    ended, calls = threading.Event(), itertools.count()
    begin = Flusher._begin

    def counted(flusher: Flusher, log: Log) -> bool:
        assert next(calls) < 100, "it goes round and round"
        return begin(flusher, log)

    monkeypatch.setattr(Flusher, "_begin", counted)

    async def story(flusher: Flusher, told: "asyncio.Queue[TopicPartition]") -> None:
        put(log, flusher)
        await disk.wait_begun()
        waiting = flusher.sync([log])
        loop = asyncio.get_running_loop()
        threads = flusher._threads
        disk.let_one_end()
        threads.submit(ended.set)
        # The loop stands still until the sync has told it; what is called now comes right behind.
        threads.submit(ended.wait).result()
        time.sleep(0.05)
        loop.call_soon(waiting.send, None)
        assert await told.get() == PARTITION
        assert next(calls) < 10

    run(story, 0)


def test_a_follower_does_not_count_what_could_not_be_synced_for_want_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, EACH)

    def refuse(*_: object, **__: object) -> None:
        raise OutOfDescriptors(tmp_path, OSError(errno.EMFILE, os.strerror(errno.EMFILE)))

    async def story(flusher: Flusher, told: "asyncio.Queue[TopicPartition]") -> None:
        append(log)
        with monkeypatch.context() as patch:
            patch.setattr(Segments, "flush_aborted", refuse)
            with pytest.raises(OutOfDescriptors):
                await flusher.sync([log])
            flusher.unsynced(log)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert log.countable_end_offset == 0
        assert await told.get() == PARTITION, "it is tried again"
        assert log.countable_end_offset == 1

    run(story, 0)


def test_a_disk_that_fails_takes_its_partition_offline_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = open_log(tmp_path / "a", EACH), open_log(tmp_path / "b", EACH)
    before = Segments.flush_aborted

    def refuse(segments: Segments, *args: object, **fields: object) -> None:
        if segments is log._segments:
            raise StorageError("the disk fails")
        before(segments, *args, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(Segments, "flush_aborted", refuse)

    async def story(flusher: Flusher, told: "asyncio.Queue[TopicPartition]") -> None:
        put(log, flusher)
        put(other, flusher)
        assert await told.get() == PARTITION, "it is offline: who waits for it is answered"
        assert log.offline is not None
        assert await told.get() == PARTITION
        assert other.countable_end_offset == 1
        assert log.countable_end_offset == 0

    run(story, 0)

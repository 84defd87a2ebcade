"""What a leader looks at when a follower has named its partitions once."""

import asyncio
import errno
import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.feeds import SWEEP_COUNT, SWEEP_MS
from pylog.broker.data.fetch import FetchHandler
from pylog.broker.data.handlers import delete_records
from pylog.broker.data.partitions import Moved, Partition, Partitions
from pylog.broker.data.throttles import Throttles
from pylog.broker.maintenance import Maintenance
from pylog.broker.settings import parse_broker_settings
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.errors import ErrorCode, ProtocolError
from pylog.log.batch_file import OutOfDescriptors
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.metrics import Histogram, Metrics
from pylog.model import NodeAddress
from pylog.wire.api import parse_request_header
from pylog.wire.api.partitions import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pylog.wire.fetch import (
    Feeding,
    FetchPartition,
    FetchRequest,
    FetchResult,
    encode_replica_request,
    parse_replica_response,
)
from pylog.wire.records import check_batch
from tests.unit.broker.data.test_identity import CALLER
from tests.unit.log.batches import batch

LEADER, FOLLOWER, COUNT = 1, 2, 5
ADDRESS = NodeAddress(LEADER, "h1", 9092)


class Wire:
    """One connection of a follower to a leader of five partitions of topic t."""

    def __init__(self, directory: Path, rate: int = 0, count: int = COUNT) -> None:
        self.now_ms = 0
        self.partitions = Partitions(LogDirectory.open(directory, broker_id=LEADER), LEADER, parse_broker_settings({}))
        self.partitions.registered_epoch = lambda: 7
        # With a rate the follower is catching up, and held to so many bytes a second.
        isr = (LEADER,) if rate else (LEADER, FOLLOWER)
        states = {number: PartitionImage(LEADER, 1, isr, (LEADER, FOLLOWER), 1) for number in range(count)}
        lists = {"leader.replication.throttled.replicas": "*"} if rate else {}
        rates = {str(LEADER): {"leader.replication.throttled.rate": str(rate)}} if rate else {}
        brokers = {one: BrokerInfo(one, 7, None, ADDRESS, ADDRESS) for one in (LEADER, FOLLOWER)}
        topic = TopicImage("t", UUID(int=5), states, lists)
        image = ClusterImage(1, 1, "c", LEADER, brokers, {"t": topic}, broker_configs=rates)
        self.partitions.retire(image)
        self.partitions.switch(image, self.partitions.prepare(image))
        throttles = Throttles(LEADER, parse_broker_settings({}), self.partitions, lambda: self.now_ms)
        throttles.image_applied()
        self.handler = FetchHandler(
            self.partitions, Metrics(), max_bytes=1 << 20, now_ms=lambda: self.now_ms,
            throttles=throttles,
        )  # fmt: skip
        self.looked_at: list[int] = []
        self._read_partition = self.handler.reader.read_partition
        self.handler.reader.read_partition = self._seen  # type: ignore[method-assign]
        self.answer: list[Any] | None = None
        self.connection: Any = _Connection(self)

    def _seen(self, request: FetchRequest, part: FetchPartition, *rest: Any, **named: Any) -> Any:
        self.looked_at.append(part.partition)
        return self._read_partition(request, part, *rest, **named)

    def log(self, number: int) -> Any:
        partition = self.partitions.get("t", number)
        assert partition is not None
        return partition.log

    def ask(
        self, feeding: Feeding, offsets: dict[int, int], *, forgotten: tuple[int, ...] = (), broker_epoch: int = 9
    ) -> None:
        named = [FetchPartition("t", number, 1, offset, -1, 0, 1 << 20) for number, offset in offsets.items()]
        request = FetchRequest(FOLLOWER, 500, 1, 1 << 20, 0, 0, -1, named, [("t", one) for one in forgotten],
                               feeding=feeding)  # fmt: skip
        frame = memoryview(encode_replica_request(1, FOLLOWER, broker_epoch, request))[4:]
        self.answer = self.handler.handle(self.connection, parse_request_header(frame), frame, FOLLOWER)

    async def grow(self, number: int) -> None:
        view = batch()
        self.log(number).append_as_leader(view, check_batch(view), 1, 0)
        self.handler.waiting.moved(("t", number), Moved.END)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def told(self) -> list[FetchResult[memoryview]]:
        """Return what was answered, and forget it."""
        assert self.answer is not None, "it waits"
        whole = b"".join(one if isinstance(one, bytes) else bytes(one.size_bytes) for one in self.answer)
        self.answer = None
        results, is_kept = parse_replica_response(memoryview(whole)[4:], 1)
        assert is_kept
        return results

    def looks(self) -> list[int]:
        found = sorted(self.looked_at)
        self.looked_at.clear()
        return found


class _Connection:
    def __init__(self, wire: Wire) -> None:
        self.answered: list[Histogram] = []
        self._wire = wire

    def open_slot(self) -> Any:
        return SimpleNamespace(connection=self, read_ns=0, complete=lambda parts: setattr(self._wire, "answer", parts))


def test_one_record_among_many_partitions_makes_nobody_look_at_the_others(tmp_path: Path) -> None:
    async def story() -> None:
        wire = Wire(tmp_path)
        wire.ask(Feeding.BEGIN, dict.fromkeys(range(COUNT), 0))
        assert wire.answer is None
        assert wire.looks() == list(range(COUNT))
        await wire.grow(3)
        assert [(one.partition, one.records_bytes > 0) for one in wire.told()] == [
            (number, number == 3) for number in range(COUNT)
        ], "the first answer tells the high watermark of each"
        wire.looks()
        wire.ask(Feeding.CHANGE, {3: 1})
        assert wire.answer is None
        assert wire.log(3).high_watermark == 1, "that it asks for what comes next says that it has the record"
        assert wire.looks() == [3]
        await wire.grow(1)
        assert {one.partition: one.records_bytes > 0 for one in wire.told()} == {1: True, 3: False}
        assert set(wire.looks()) == {1, 3}, "what was due: the record, and a high watermark not told yet"
        wire.ask(Feeding.CHANGE, {1: 1})
        await wire.grow(1)
        assert [one.partition for one in wire.told()] == [1]
        assert set(wire.looks()) == {1}

    asyncio.run(story())


def test_one_answer_holds_no_more_than_the_rate_allows_of_all_that_catch_up(tmp_path: Path) -> None:
    async def story() -> None:
        size = len(batch())
        wire = Wire(tmp_path, rate=2 * size)
        for number in range(COUNT):
            for _ in range(3):
                await wire.grow(number)
        offsets = dict.fromkeys(range(COUNT), 0)
        wire.ask(Feeding.BEGIN, offsets)
        sent = {one.partition: one.records_bytes for one in wire.told() if one.records_bytes}
        assert sent == {0: 2 * size}, "a second's worth, though five partitions have more"
        wire.now_ms = 250
        wire.ask(Feeding.CHANGE, {0: 2})
        sent = {one.partition: one.records_bytes for one in wire.told() if one.records_bytes}
        assert sum(sent.values()) == 2 * size, "a second's worth again, and not the little that a moment brings"
        wire.now_ms = 999
        wire.ask(Feeding.CHANGE, {})
        assert wire.answer is None, "what went beyond is waited for"

    asyncio.run(story())


def test_all_are_looked_at_from_time_to_time_and_count_as_fetched(tmp_path: Path) -> None:
    async def story() -> None:
        wire = Wire(tmp_path)
        wire.ask(Feeding.BEGIN, dict.fromkeys(range(COUNT), 0))
        await wire.grow(0)
        wire.told()
        wire.looks()
        wire.now_ms = SWEEP_MS
        wire.ask(Feeding.CHANGE, {0: 1})
        assert set(wire.looks()) == set(range(COUNT))
        for number in range(COUNT):
            partition = wire.partitions.get("t", number)
            assert partition is not None
            assert partition.leading is not None
            assert partition.leading.progress(FOLLOWER).caught_up_ms == SWEEP_MS

    asyncio.run(story())


def test_what_a_follower_did_not_take_it_is_told_again(tmp_path: Path) -> None:
    async def story() -> None:
        wire = Wire(tmp_path)
        wire.ask(Feeding.BEGIN, {0: 0, 1: 0})
        await wire.grow(0)
        wire.told()
        wire.ask(Feeding.CHANGE, {0: 1})
        await wire.grow(1)
        assert {one.partition: one.high_watermark for one in wire.told()} == {0: 1, 1: 0}
        wire.now_ms = SWEEP_MS
        wire.ask(Feeding.CHANGE, {})
        assert [one.partition for one in wire.told() if one.records_bytes] == [1], "records and all high watermarks"
        wire.ask(Feeding.CHANGE, {1: 1})
        wire.handler.waiting.time_is_up()
        assert wire.answer is None
        wire.now_ms += 500
        wire.handler.waiting.time_is_up()
        assert {one.partition: one.high_watermark for one in wire.told()} == {0: 1, 1: 1}

    asyncio.run(story())


def test_what_was_forgotten_is_told_no_more_and_what_does_not_fit_comes_next(tmp_path: Path) -> None:
    async def story() -> None:
        wire = Wire(tmp_path)
        wire.ask(Feeding.BEGIN, {0: 0, 1: 0})
        await wire.grow(0)
        wire.told()
        wire.ask(Feeding.CHANGE, {0: 1}, forgotten=(1,))
        await wire.grow(1)
        assert wire.answer is None
        wire.handler.forget(wire.connection)
        wire.ask(Feeding.BEGIN, {0: 1, 1: 0})
        assert [one.partition for one in wire.told() if one.records_bytes] == [1]
        wire.handler.reader.max_bytes = 1  # the first batch goes whole, and nothing else with it
        await wire.grow(0)
        await wire.grow(1)
        wire.ask(Feeding.CHANGE, {1: 1})
        [first] = [one.partition for one in wire.told() if one.records_bytes]
        wire.ask(Feeding.CHANGE, {first: 2})
        [second] = [one.partition for one in wire.told() if one.records_bytes]
        assert {first, second} == {0, 1}

    asyncio.run(story())


def test_a_change_without_a_beginning_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        wire = Wire(tmp_path)
        wire.ask(Feeding.CHANGE, {0: 0})
        assert wire.answer is not None
        whole = b"".join(wire.answer)
        with pytest.raises(ProtocolError, match=str(int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))):
            parse_replica_response(memoryview(whole)[4:], 1)

    asyncio.run(story())


def test_of_many_partitions_a_few_are_looked_at_and_all_count_as_fetched(tmp_path: Path) -> None:
    async def story() -> None:
        count = 3 * SWEEP_COUNT
        wire = Wire(tmp_path, count=count)
        wire.ask(Feeding.BEGIN, dict.fromkeys(range(count), 0))
        wire.now_ms = 500
        wire.handler.waiting.time_is_up()
        assert len(wire.told()) == count
        wire.looks()
        seen: set[int] = set()
        for turn in range(2, 5):
            wire.ask(Feeding.CHANGE, {})
            wire.now_ms = turn * 500
            wire.handler.waiting.time_is_up()
            assert len(wire.told()) <= 2 * SWEEP_COUNT, "one turn when it came, one when it was answered"
            seen.update(wire.looks())
        assert seen == set(range(count)), "each in its turn"
        for number in range(count):
            partition = wire.partitions.get("t", number)
            assert partition is not None
            assert is_in_touch(partition, wire.now_ms)
        assert partition is not None
        assert not is_in_touch(partition, 60_000)

    asyncio.run(story())


def test_a_follower_counts_as_complete_up_to_its_last_fetch_when_something_comes(tmp_path: Path) -> None:
    async def story() -> None:
        wire = Wire(tmp_path, count=3 * SWEEP_COUNT)
        wire.ask(Feeding.BEGIN, dict.fromkeys(range(3 * SWEEP_COUNT), 0))
        wire.now_ms = 500
        wire.handler.waiting.time_is_up()
        wire.told()
        wire.now_ms = 50_000
        wire.ask(Feeding.CHANGE, {})
        wire.now_ms = 50_400
        await wire.grow(2 * SWEEP_COUNT)
        partition = wire.partitions.get("t", 2 * SWEEP_COUNT)
        assert partition is not None
        assert partition.leading is not None
        assert partition.leading.progress(FOLLOWER).caught_up_ms == 50_000
        assert partition.leading.wanted_change(0, 1, 50_500) is None, "it stays in sync for a whole lag from there"

    asyncio.run(story())


def test_what_a_connection_named_is_no_news_once_it_is_gone(tmp_path: Path) -> None:
    async def story() -> None:
        wire = Wire(tmp_path)
        wire.ask(Feeding.BEGIN, {0: 0, 1: 0})
        wire.now_ms = 1_000
        wire.ask(Feeding.CHANGE, {}, forgotten=(1,))
        wire.now_ms = 4_000
        wire.ask(Feeding.CHANGE, {})
        left, kept = wire.partitions.get("t", 1), wire.partitions.get("t", 0)
        assert left is not None
        assert kept is not None
        assert not is_in_touch(kept, 4_000), "the fetch may have lain in the socket since the one before"
        wire.handler.waiting.time_is_up()
        wire.now_ms = 4_500
        wire.handler.waiting.time_is_up()
        wire.told()
        wire.ask(Feeding.CHANGE, {})
        assert is_in_touch(kept, 6_500), "it came after an answer at 4,500"
        assert not is_in_touch(kept, 6_501)
        assert not is_in_touch(left, 4_500)
        wire.handler.forget(wire.connection)
        assert not is_in_touch(kept, 4_500), "whoever closes a connection may follow somebody else"

    asyncio.run(story())


def is_in_touch(partition: Partition, now_ms: int) -> bool:
    assert partition.leading is not None
    return partition.leading.is_in_touch(now_ms, has_session=True)


def test_a_new_registration_is_learned_of_all_partitions(tmp_path: Path) -> None:
    async def story() -> None:
        wire = Wire(tmp_path, count=3 * SWEEP_COUNT)
        wire.ask(Feeding.BEGIN, dict.fromkeys(range(3 * SWEEP_COUNT), 0))
        wire.ask(Feeding.CHANGE, {}, broker_epoch=11)
        for number in range(3 * SWEEP_COUNT):
            partition = wire.partitions.get("t", number)
            assert partition is not None
            assert partition.leading is not None
            assert partition.leading.progress(FOLLOWER).broker_epoch == 11

    asyncio.run(story())


def test_a_start_moved_by_delete_records_is_told_at_once_among_idle_partitions(tmp_path: Path) -> None:
    async def story() -> None:
        wire = await idle_feed(tmp_path, with_records=150)
        wish = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=150, offset=2)])
        cluster: Any = SimpleNamespace(partitions=wire.partitions, deletions=Acknowledgements(lambda: 0))
        assert wire.answer is None
        answer: Any = delete_records(cluster, DeleteRecordsRequest(topics=[wish]), CALLER)
        asking = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert {one.partition: one.log_start_offset for one in wire.told() if one.log_start_offset} == {150: 2}
        wire.ask(Feeding.CHANGE, {})
        assert wire.answer is None, "a follower that did not take it is not answered over and over"
        assert not asking.done()
        asking.cancel()

    asyncio.run(story())


def test_a_start_moved_by_retention_is_told_at_once_among_idle_partitions(tmp_path: Path) -> None:
    async def story() -> None:
        wire = await idle_feed(tmp_path, with_records=150)
        unused: Any = None
        maintenance = Maintenance(
            wire.partitions._directory, wire.partitions, unused, unused, Metrics(),
            compact_interval_s=lambda: 1.0, now_ms=lambda: 1 << 40, is_retention_ours=False,
        )  # fmt: skip
        await maintenance.retain(dry_run=True)
        assert wire.answer is None
        await maintenance.retain(dry_run=False)
        await asyncio.sleep(0)
        assert {one.partition: one.log_start_offset for one in wire.told() if one.log_start_offset} == {150: 3}

    asyncio.run(story())


def test_retention_syncs_in_threads_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        wire = Wire(tmp_path, count=2)
        for number in range(2):
            view = batch(2, producer_id=9, producer_epoch=0, base_sequence=0)
            wire.log(number).append_as_leader(view, check_batch(view), 1, 0)
            wire.log(number).high_watermark = 2
        unused: Any = None
        maintenance = Maintenance(
            wire.partitions._directory, wire.partitions, unused, unused, Metrics(),
            compact_interval_s=lambda: 1.0, now_ms=lambda: 1 << 40, is_retention_ours=False,
        )  # fmt: skip
        threads: list[bool] = []
        fsync = os.fsync

        def note(fd: int) -> None:
            threads.append(threading.current_thread() is threading.main_thread())
            fsync(fd)

        monkeypatch.setattr(os, "fsync", note)
        found = await maintenance.retain(dry_run=False)
        assert len(found["deleted"]) == 2
        assert threads
        assert not any(threads)

    asyncio.run(story())


def test_a_log_that_is_taken_away_while_another_one_is_synced_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        wire = Wire(tmp_path, count=2)
        for number in range(2):
            await wire.grow(number)
        unused: Any = None
        maintenance = Maintenance(
            wire.partitions._directory, wire.partitions, unused, unused, Metrics(),
            compact_interval_s=lambda: 1.0, now_ms=lambda: 1 << 40, is_retention_ours=False,
        )  # fmt: skip
        before = wire.partitions.image
        deletion = replace(before, version=before.version + 1, topics={})
        synced: list[str] = []
        sync_job = Log._sync_job

        def deleting(log: Log, *rest: Any) -> Any:
            synced.append(log.directory.name)
            wire.partitions.retire(deletion)  # from now on a thread may take the files away
            return sync_job(log, *rest)

        monkeypatch.setattr(Log, "_sync_job", deleting)
        await maintenance._checkpoint()
        assert synced == ["t-0"]
        assert (await maintenance.retain(dry_run=False))["deleted"] == []

        later = replace(before, version=before.version + 2)
        wire.partitions.switch(later, wire.partitions.prepare(later))
        assert [partition.log.is_leaving for partition in wire.partitions if partition.log] == [False, False]

    asyncio.run(story())


def test_retention_goes_on_behind_a_log_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        wire = Wire(tmp_path, count=3)
        for number in range(3):
            await wire.grow(number)
            wire.log(number).high_watermark = 1
        unused: Any = None
        maintenance = Maintenance(
            wire.partitions._directory, wire.partitions, unused, unused, Metrics(),
            compact_interval_s=lambda: 1.0, now_ms=lambda: 1 << 40, is_retention_ours=False,
        )  # fmt: skip
        real = Log.delete_expired

        def refuse(log: Log, *arguments: Any) -> Any:
            if log.topic_partition.partition == 0:
                raise OutOfDescriptors("t-0", OSError(errno.EMFILE, "Too many open files"))
            return real(log, *arguments)

        monkeypatch.setattr(Log, "delete_expired", refuse)
        found = await maintenance.retain(dry_run=True)
        assert [one["partition"] for one in found["deleted"]] == [1, 2]

    asyncio.run(story())


async def idle_feed(directory: Path, *, with_records: int) -> Wire:
    """Return the connection of a follower of 200 partitions that has three records of one of them, and waits."""
    wire = Wire(directory, count=200)
    wire.ask(Feeding.BEGIN, dict.fromkeys(range(200), 0))
    for count in range(3):
        await wire.grow(with_records)
        wire.told()
        wire.ask(Feeding.CHANGE, {with_records: count + 1})
    wire.now_ms = 500
    wire.handler.waiting.time_is_up()
    wire.told()
    assert wire.log(with_records).high_watermark == 3
    wire.ask(Feeding.CHANGE, {})
    return wire

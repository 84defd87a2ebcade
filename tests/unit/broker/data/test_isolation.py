"""What readers get of transactions: by Fetch and ListOffsets, by isolation level, from leaders and followers."""

import asyncio
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.broker.data.fetch import FetchHandler
from pylog.broker.data.handlers import _producers, list_offsets
from pylog.broker.data.partition_counts import PartitionCounts
from pylog.broker.data.partitions import Moved, Partitions
from pylog.broker.data.reading import Reader
from pylog.broker.data.throttles import Throttles
from pylog.broker.handler import Caller
from pylog.broker.settings import parse_broker_settings
from pylog.errors import ErrorCode
from pylog.log.log import Log
from pylog.log.segment import FileSlice
from pylog.metrics import Metrics
from pylog.security.principal import Session
from pylog.wire.api import parse_request_header
from pylog.wire.api.offsets import (
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pylog.wire.fetch import READ_COMMITTED, FetchPartition, FetchRequest, FetchResult, encode_replica_request
from pylog.wire.markers import Marker, encode_marker
from pylog.wire.records import TRANSACTIONAL, BatchHeader, check_stored_batch, iter_batches, parse_header
from tests.unit.broker.data.test_list_offsets import apply, follower, image
from tests.unit.log.batches import batch, content

CONSUMER, FOLLOWER, READ_UNCOMMITTED = -1, 2, 0
KEY = ("t", 0)
LEADER_EPOCH = 1


@pytest.fixture
def partitions(tmp_path: Path) -> Partitions:
    """Those of a leader; the log has one record, at offset 0."""
    found = follower(tmp_path)
    apply(found, image(2, leader=1, leader_epoch=LEADER_EPOCH))
    log_of(found).high_watermark = 1
    return found


def log_of(partitions: Partitions) -> Log:
    partition = partitions.get(*KEY)
    assert partition is not None
    assert partition.log is not None
    return partition.log


def send(log: Log, producer_id: int, sequence: int = 0, *, timestamp: int = 1_000, sent_ms: int = 0) -> int:
    fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    view = batch(timestamp=timestamp, attributes=TRANSACTIONAL, **fields)
    return log.append_as_leader(view, check_stored_batch(view), LEADER_EPOCH, sent_ms).base_offset


def end(log: Log, producer_id: int, *, is_commit: bool) -> int:
    marker = Marker(is_commit, 0)
    view = memoryview(bytearray(encode_marker(producer_id, 0, marker, 1)))
    return log.append_as_leader(view, parse_header(view), LEADER_EPOCH, 0, marker).base_offset


def fetch(
    partitions: Partitions,
    offset: int,
    isolation_level: int = READ_COMMITTED,
    *,
    replica_id: int = CONSUMER,
    max_bytes: int = 1 << 20,
) -> FetchResult[FileSlice]:
    throttles = Throttles(1, parse_broker_settings({}), partitions, lambda: 0)
    reader = Reader(partitions, throttles, max_bytes=1 << 20)
    part = FetchPartition(*KEY, LEADER_EPOCH, offset, -1, 0, max_bytes)
    request = FetchRequest(replica_id, 0, 1, max_bytes, isolation_level, 0, -1, [part])
    [result] = reader.read(request).results
    assert result.error is ErrorCode.NONE
    return result


def offsets(result: FetchResult[FileSlice]) -> list[int]:
    if result.records is None:
        return []
    return [header.base_offset for _, header in iter_batches(content(result.records))]


def latest(partitions: Partitions, isolation_level: int, timestamp: int = LATEST_TIMESTAMP) -> int:
    cluster: Any = SimpleNamespace(partitions=partitions)
    wanted = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    request = ListOffsetsRequest(isolation_level=isolation_level, topics=[wanted])
    answer: Any = list_offsets(cluster, request, Caller("c", Session(client_host="h", listener_name="client"), 7))
    if asyncio.iscoroutine(answer):
        answer = asyncio.run(answer)
    [row] = answer.topics[0].partitions
    assert row.error_code == ErrorCode.NONE
    return int(row.offset)


def test_without_transactions_both_levels_read_the_same(partitions: Partitions) -> None:
    for level in (READ_UNCOMMITTED, READ_COMMITTED):
        result = fetch(partitions, 0, level)
        assert (offsets(result), result.last_stable_offset, result.aborted) == ([0], 1, None)
        assert latest(partitions, level) == 1


def test_readers_of_committed_records_stop_before_an_open_transaction(partitions: Partitions) -> None:
    log = log_of(partitions)
    send(log, 9)
    log.high_watermark = 2
    result = fetch(partitions, 0)
    assert (offsets(result), result.high_watermark, result.last_stable_offset, result.aborted) == ([0], 2, 1, [])
    result = fetch(partitions, 1)
    assert (offsets(result), result.last_stable_offset, result.aborted) == ([], 1, ())
    result = fetch(partitions, 0, READ_UNCOMMITTED)
    assert (offsets(result), result.last_stable_offset, result.aborted) == ([0, 1], 1, None)
    assert latest(partitions, READ_COMMITTED) == 1
    assert latest(partitions, READ_UNCOMMITTED) == 2


def test_a_follower_copies_everything_and_is_told_of_no_aborts(partitions: Partitions) -> None:
    log = log_of(partitions)
    send(log, 9)
    end(log, 9, is_commit=False)
    result = fetch(partitions, 0, READ_COMMITTED, replica_id=FOLLOWER)
    assert (offsets(result), result.aborted) == ([0, 1, 2], None)


def test_a_record_above_the_last_stable_offset_is_not_found_by_time(partitions: Partitions) -> None:
    log = log_of(partitions)
    send(log, 9, timestamp=5_000)
    log.high_watermark = 2
    for timestamp in (4_000, MAX_TIMESTAMP):
        assert latest(partitions, READ_COMMITTED, timestamp) == -1
        assert latest(partitions, READ_UNCOMMITTED, timestamp) == 1


def test_what_was_aborted_is_told_with_the_bytes(partitions: Partitions) -> None:
    log = log_of(partitions)
    send(log, 9)
    send(log, 10)
    log.roll()
    end(log, 9, is_commit=False)
    end(log, 10, is_commit=True)
    log.high_watermark = log.log_end_offset
    assert fetch(partitions, 0).aborted == [(9, 1)], "its marker is in the next segment"
    assert fetch(partitions, 2).aborted == [(9, 1)], "an abort marker is sent to come"
    assert offsets(fetch(partitions, 3)) == [3, 4], "markers are sent along"
    assert fetch(partitions, 4).aborted == []


def test_what_was_aborted_behind_the_bytes_is_not_told(partitions: Partitions) -> None:
    log = log_of(partitions)
    send(log, 9)
    end(log, 9, is_commit=False)
    log.high_watermark = log.log_end_offset
    assert fetch(partitions, 0).aborted == [(9, 1)]
    assert fetch(partitions, 0, max_bytes=1).aborted == [], "the record at offset 0 only"


def test_describe_producers_says_what_is_open(partitions: Partitions) -> None:
    log = log_of(partitions)
    send(log, 9)
    end(log, 9, is_commit=True)
    send(log, 9, 1)
    [state] = _producers(partitions, *KEY).active_producers
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (0, 3)


def test_open_transactions_are_counted(partitions: Partitions) -> None:
    log, metrics = log_of(partitions), Metrics()
    PartitionCounts(partitions, metrics, lambda: False, lambda: 0, lambda: 0)
    assert "pylog_transactions_open 0" in metrics.render()
    send(log, 9)
    send(log, 10)
    end(log, 9, is_commit=True)
    assert "pylog_transactions_open 1" in metrics.render()


def test_the_producer_that_is_silent_for_longest_in_an_open_transaction_is_shown(partitions: Partitions) -> None:
    log, metrics, now_ms = log_of(partitions), Metrics(), [90_000]
    PartitionCounts(partitions, metrics, lambda: False, lambda: now_ms[0], lambda: 0)
    name = "pylog_transaction_silence_seconds"
    send(log, 8, sent_ms=1_000)
    end(log, 8, is_commit=True)
    assert f"{name} 0" in metrics.render(), "nothing is open"
    send(log, 9, sent_ms=30_000)
    send(log, 10, sent_ms=20_000)
    assert f"{name} 70" in metrics.render()
    send(log, 10, 1, sent_ms=80_000)
    assert f"{name} 60" in metrics.render()
    now_ms[0] = 10_000
    assert f"{name} 0" in metrics.render(), "the clock was set back"


def committed(batches: list[BatchHeader], aborted: list[tuple[int, int]]) -> list[int]:
    """Return the batches that a consumer keeps, by the rule of Kafka's own: a set of producers that it leaves out."""
    left_out: set[int] = set()
    queue, kept = sorted(aborted, key=lambda row: row[1]), []
    for header in batches:
        while queue and queue[0][1] <= header.last_offset:
            left_out.add(queue.pop(0)[0])
        if header.is_control:
            left_out.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in left_out):
            kept.append(header.base_offset)
    return kept


@pytest.mark.parametrize("seed", range(8))
def test_a_reader_sees_what_was_committed_wherever_its_fetches_begin_and_end(partitions: Partitions, seed: int) -> None:
    random, log = Random(seed), log_of(partitions)
    sequences = dict.fromkeys(range(4), 0)
    pending: dict[int, list[int]] = {}
    expected = [0]
    for number in range(150):
        producer_id, kind = random.randrange(4), random.choice(["send"] * 4 + ["commit", "abort", "roll"])
        if kind == "send":
            pending.setdefault(producer_id, []).append(send(log, producer_id, sequences[producer_id]))
            sequences[producer_id] += 1
        elif kind == "roll" and not number % 3:
            log.roll()
        elif kind in ("commit", "abort"):
            end(log, producer_id, is_commit=kind == "commit")
            expected += pending.pop(producer_id, []) if kind == "commit" else []
            pending.pop(producer_id, None)
    log.high_watermark = log.log_end_offset
    expected = sorted(offset for offset in expected if offset < log.last_stable_offset)
    read: list[int] = []
    position = 0
    while position < log.last_stable_offset:
        result = fetch(partitions, position, max_bytes=random.randint(1, 700))
        assert result.records is not None
        headers = [header for _, header in iter_batches(content(result.records))]
        assert result.aborted is not None
        read += committed(headers, list(result.aborted))
        position = headers[-1].last_offset + 1
    assert read == expected


def test_the_last_stable_offset_wakes_readers_of_committed_records(partitions: Partitions) -> None:
    log = log_of(partitions)
    send(log, 9)
    log.high_watermark = 2
    answered: list[int] = []

    async def story() -> None:
        handler = FetchHandler(
            partitions, Metrics(), max_bytes=1 << 20, now_ms=lambda: 0,
            throttles=Throttles(1, parse_broker_settings({}), partitions, lambda: 0),
        )  # fmt: skip

        def wait(offset: int, isolation_level: int) -> None:
            slot = SimpleNamespace(read_ns=0, complete=lambda parts: answered.append(isolation_level))
            connection: Any = SimpleNamespace(answered=[], open_slot=lambda: slot)
            part = FetchPartition(*KEY, LEADER_EPOCH, offset, -1, 0, 1 << 20)
            asked = FetchRequest(CONSUMER, 500, 1, 1 << 20, isolation_level, 0, -1, [part])
            frame = memoryview(encode_replica_request(1, CONSUMER, -1, asked))[4:]
            assert handler.handle(connection, parse_request_header(frame), frame) is None, "it waits"

        async def show(high_watermark: int) -> None:
            log.high_watermark = high_watermark
            handler.waiting.moved(KEY, Moved.HIGH_WATERMARK)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        wait(1, READ_COMMITTED)
        wait(2, READ_UNCOMMITTED)
        end(log, 9, is_commit=True)
        await show(2)
        assert answered == []
        send(log, 9, 1)
        await show(3)
        assert sorted(answered) == [READ_UNCOMMITTED, READ_COMMITTED]
        wait(3, READ_COMMITTED)
        await show(4)
        assert len(answered) == 2, "the next transaction is open"

    asyncio.run(story())

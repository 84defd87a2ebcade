"""What a follower was answered before its log or its leader changed is no news any more."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.peers import PeerClient
from pylog.broker.data.replication import Replication, ReplicationConfig, _Fetcher
from pylog.broker.data.throttles import Throttles
from pylog.broker.settings import parse_broker_settings, typed
from pylog.cluster.controller import IsrRequest, IsrResult
from pylog.errors import ErrorCode, StorageError
from pylog.log import checkpoint
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.metrics import Metrics
from pylog.model import Key, NodeAddress, TopicPartition
from pylog.wire.fetch import FetchPartition, FetchResult
from tests.unit.log.batches import PARTITION, SMALL, append, batch, open_log

LEADER_EPOCH = 6


def replication(directory: Path) -> Replication:
    settings = parse_broker_settings({})
    partitions = Partitions(LogDirectory.open(directory, broker_id=1), 1, settings)

    async def ask_isr(wanted: list[IsrRequest]) -> list[IsrResult]:
        raise AssertionError("a follower asks for no ISR")

    async def sync(logs: Iterable[Log]) -> None:
        raise AssertionError("nothing is to be synced")

    return Replication(
        1,
        partitions,
        typed(ReplicationConfig, settings),
        Metrics(),
        now_ms=lambda: 0,
        keys=PeerKeys(b""),
        broker_epoch=lambda: 1,
        ask_isr=ask_isr,
        sync=sync,
        throttles=Throttles(1, settings, partitions, lambda: 0),
    )


def answered(epoch: int, offset: int, **result: object) -> tuple[FetchPartition, FetchResult[memoryview]]:
    asked = FetchPartition(PARTITION.topic, PARTITION.partition, epoch, offset, epoch, 0, 1 << 20)
    return asked, FetchResult(PARTITION.topic, PARTITION.partition, **result)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epoch", "offset"), [(LEADER_EPOCH - 2, 3), (LEADER_EPOCH, 5), (LEADER_EPOCH - 2, 5)],
    ids=["another leader since", "cut since", "cut by another leader since"],
)  # fmt: skip
def test_records_asked_for_before_are_not_appended(tmp_path: Path, epoch: int, offset: int) -> None:
    log = open_log(tmp_path / "log")
    append(log, count=3)
    follower = Partition(PARTITION, log, UUID(int=1), leader=2, leader_epoch=LEADER_EPOCH)
    records = batch(2, base_offset=offset)
    late = answered(
        epoch, offset, high_watermark=offset + 2, log_start_offset=0, records=records, records_bytes=len(records)
    )
    taker = replication(tmp_path / "broker")
    assert taker.take(follower, *late), "it may ask again at once"
    assert log.log_end_offset == 3
    now = answered(
        LEADER_EPOCH, 3, high_watermark=5, log_start_offset=0, records=batch(2, base_offset=3), records_bytes=1
    )
    assert taker.take(follower, *now)
    assert log.log_end_offset == 5


CUT = {"diverging": (1, 3)}
RETAINED = {"error": ErrorCode.OFFSET_OUT_OF_RANGE, "log_start_offset": 0}
WITHOUT_TOMBSTONES = {"removed_tombstone": 4, "log_start_offset": 0}


def answers_of(taker: Replication, **answer: object) -> list[tuple[Partition, FetchPartition, FetchResult[memoryview]]]:
    """Return the same *answer* for five synced logs of two batches of three records."""
    directory = taker._partitions._directory
    answers: list[tuple[Partition, FetchPartition, FetchResult[memoryview]]] = []
    for number in range(5):
        key = TopicPartition("t", number)
        log = directory.get_or_create(key, UUID(int=1), SMALL, now_ms=0)
        append(log, count=3, epoch=1)
        append(log, count=3, epoch=2)
        log.flush()
        asked = FetchPartition(key.topic, key.partition, LEADER_EPOCH, 6, 2, 0, 1 << 20)
        result: FetchResult[memoryview] = FetchResult(key.topic, key.partition, **answer)  # type: ignore[arg-type]
        answers.append((Partition(key, log, UUID(int=1), leader=2, leader_epoch=LEADER_EPOCH), asked, result))
    return answers


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize(
    ("answer", "end", "point"), [(CUT, 3, 2), (RETAINED, 0, 0), (WITHOUT_TOMBSTONES, 0, 0)],
    ids=["cut", "out of range", "a tombstone is gone"],
)  # fmt: skip
def test_many_cuts_of_one_answer_write_one_checkpoint(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, object],
    end: int,
    point: int,
    *,
    is_refused: bool,
) -> None:
    taker = replication(tmp_path)
    directory = taker._partitions._directory
    answers = answers_of(taker, **answer)
    written: list[dict[TopicPartition, int]] = []

    def write(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
        if path.name == checkpoint.RECOVERY_POINTS:
            if is_refused and not written:
                written.append({})
                raise StorageError("the disk is full")
            written.append(dict(offsets))

    monkeypatch.setattr(checkpoint, "write_offsets", write)
    asyncio.run(taker.prepare_cuts(answers, {}))
    assert [log.log_end_offset for log in directory.logs.values()] == [6] * 5, "nothing is cut before"
    for one in answers:
        taker.take(*one)
    assert [log.log_end_offset for log in directory.logs.values()] == [end] * 5
    assert len(written) == (6 if is_refused else 1)
    assert set(written[-1].values()) == {point}, "at the last record that is kept"
    directory.close()


@pytest.mark.parametrize(
    "answer", [CUT, RETAINED, WITHOUT_TOMBSTONES], ids=["cut", "out of range", "a tombstone is gone"]
)
def test_other_work_has_a_turn_between_two_logs_that_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]
) -> None:
    taker = replication(tmp_path)
    answers = answers_of(taker, **answer)
    turn, taken_in = 0, list[int]()
    take = taker.take

    def noting(*args: Any) -> bool:
        taken_in.append(turn)
        return take(*args)

    monkeypatch.setattr(taker, "take", noting)

    async def story() -> None:
        async def count_turns() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count_turns())
        fetcher = _Fetcher(taker, PeerClient(1, PeerKeys(b""), lambda: 1))
        partitions: dict[Key, Partition] = {partition.key: partition for partition, _, _ in answers}
        fetcher.assign(NodeAddress(2, "h2", 9092), partitions)
        fetcher._at_request = fetcher._partitions
        fetcher._feed.request(partitions.keys(), fetcher._question, 0)
        await fetcher._take([result for _, _, result in answers])
        fetcher.stop()
        counting.cancel()

    asyncio.run(story())
    assert len(set(taken_in)) == 5
    taker._partitions._directory.close()


def test_an_order_to_cut_of_a_leader_before_is_not_obeyed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    append(log, count=3)
    follower = Partition(PARTITION, log, UUID(int=1), leader=2, leader_epoch=LEADER_EPOCH)
    taker = replication(tmp_path / "broker")
    taker.take(follower, *answered(LEADER_EPOCH - 1, 3, diverging=(0, 1), log_start_offset=0))
    assert log.log_end_offset == 3
    taker.take(follower, *answered(LEADER_EPOCH, 3, diverging=(0, 1), log_start_offset=0))
    assert log.log_end_offset == 0, "the batch of three goes whole"

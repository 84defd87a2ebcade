"""A follower that cannot append leaves the ISR, so that nobody waits until it counts as lagging (rule 7)."""

import asyncio
import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from pylog.broker.data import replication as replication_module
from pylog.broker.data.partitions import Moved, Partition, Partitions
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.replication import Replication, ReplicationConfig
from pylog.broker.data.throttles import Throttles
from pylog.broker.settings import parse_broker_settings, typed
from pylog.cluster.controller import IsrRequest, IsrResult
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.metrics import Metrics
from pylog.model import NO_LEADER, NodeAddress
from pylog.replica.leader import IsrChange, Leader
from pylog.wire.fetch import FetchPartition, FetchResult
from pylog.wire.records import check_batch
from tests.unit.log.batches import batch

TOPIC_ID = UUID(int=5)
LEADER_EPOCH, PARTITION_EPOCH = 6, 3
OURS = 1


def hosted(directory: Path, isr: tuple[int, ...], min_isr: int = 2, leader: int = 2) -> tuple[Partitions, Partition]:
    """Return the partitions of broker 1, one of three replicas of the only partition, and that one."""
    partitions = Partitions(LogDirectory.open(directory, broker_id=OURS), OURS, parse_broker_settings({}))
    state = PartitionImage(leader, LEADER_EPOCH, isr, (1, 2, 3), PARTITION_EPOCH)
    topic = TopicImage("t", TOPIC_ID, {0: state}, configs={"min.insync.replicas": str(min_isr)})
    address = NodeAddress(1, "h", 9092)
    brokers = {one: BrokerInfo(one, 10 + one, None, address, address) for one in (1, 2, 3)}
    image = ClusterImage(1, 1, "c", 2, brokers, {"t": topic})
    partitions.switch(image, partitions.prepare(image))
    found = partitions.get("t", 0)
    assert found is not None
    return partitions, found


@pytest.mark.parametrize(
    ("isr", "min_isr", "leader", "left"),
    [
        ((1, 2, 3), 2, 2, (2, 3)),
        ((1, 2), 1, 2, (2,)),
        ((1, 2), 2, 2, None),
        ((2, 3), 2, 2, None),
        ((1, 3), 1, NO_LEADER, None),
        ((1, 2, 3), 5, 2, None),
    ],
    ids=["enough are left", "one is enough", "too few would be", "out already", "nobody leads", "never enough"],
)
def test_who_is_left_when_this_broker_goes(
    tmp_path: Path, isr: tuple[int, ...], min_isr: int, leader: int, left: tuple[int, ...] | None
) -> None:
    partitions, follower = hosted(tmp_path, isr, min_isr, leader)
    wanted = None if left is None else IsrChange(tuple((one, -1) for one in left), PARTITION_EPOCH)
    assert partitions.resignation(follower) == wanted


def wishes(
    partitions: Partitions,
    monkeypatch: pytest.MonkeyPatch,
    *answers: FetchResult[memoryview],
    then: Callable[[Replication], None] = lambda taker: None,
) -> list[IsrRequest]:
    """Return what a follower asks the controller for after *answers* of its leader, until an image tells it more."""
    found: list[IsrRequest] = []

    async def ask_isr(wanted: list[IsrRequest]) -> list[IsrResult]:
        found.extend(wanted)
        return [IsrResult(ErrorCode.NONE, (2, 3), PARTITION_EPOCH + 1) for _ in wanted]

    async def sync(logs: Iterable[Log]) -> None:
        raise AssertionError("nothing is to be synced")

    settings = parse_broker_settings({})
    taker = Replication(
        OURS,
        partitions,
        typed(ReplicationConfig, settings),
        Metrics(),
        now_ms=lambda: 1000,
        keys=PeerKeys(b""),
        broker_epoch=lambda: 11,
        ask_isr=ask_isr,
        sync=sync,
        throttles=Throttles(1, settings, partitions, lambda: 0),
    )
    follower = partitions.get("t", 0)
    assert follower is not None
    for answer in answers:
        end = follower.log.log_end_offset if follower.log is not None else 0
        taker.take(follower, FetchPartition("t", 0, LEADER_EPOCH, end, -1, 0, 1 << 20), answer)
    monkeypatch.setattr(replication_module, "ISR_TICK_S", 0)

    async def watch() -> None:
        then(taker)
        taker.start()
        for _ in range(100):
            await asyncio.sleep(0)
        await taker.stop()

    asyncio.run(watch())
    return found


def records(offset: int) -> FetchResult[memoryview]:
    view = batch(2, base_offset=offset)
    return FetchResult("t", 0, high_watermark=0, log_start_offset=0, records=view, records_bytes=len(view))


WISH = IsrRequest(TOPIC_ID, 0, LEADER_EPOCH, PARTITION_EPOCH, ((2, -1), (3, -1)))


def refuse(fd: int, data: object, position: int) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_makes_a_follower_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions, follower = hosted(tmp_path, (1, 2, 3))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        assert wishes(partitions, monkeypatch, records(0)) == [WISH]
    assert follower.log is not None
    assert follower.log.log_end_offset == 0


def test_a_follower_of_a_topic_that_was_created_again_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions, _ = hosted(tmp_path, (1, 2, 3))

    def create_again(taker: Replication) -> None:
        topic = replace(partitions.image.topics["t"], topic_id=UUID(int=6))
        image = replace(partitions.image, version=2, topics={"t": topic})
        gone = partitions.retire(image)
        partitions.switch(image, partitions.prepare(image), gone)
        taker.image_applied()

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        assert not wishes(partitions, monkeypatch, records(0), then=create_again)


def test_an_answer_that_comes_while_a_log_is_taken_away_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions, follower = hosted(tmp_path, (1, 2, 3))
    log = follower.log
    assert log is not None
    partitions.retire(replace(partitions.image, version=2, topics={}))
    partitions._by_key[follower.key] = follower  # a fetcher still has it
    assert not wishes(partitions, monkeypatch, records(0))
    assert log.log_end_offset == 0
    log.is_leaving = False
    wishes(partitions, monkeypatch, records(0))
    assert log.log_end_offset == 2, "only that kept it from being written"


def test_a_log_that_is_offline_makes_a_follower_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions, follower = hosted(tmp_path, (1, 2, 3))
    assert follower.log is not None
    follower.log.offline = StorageError("damaged")
    assert wishes(partitions, monkeypatch) == [WISH]


def test_a_follower_that_could_append_again_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions, follower = hosted(tmp_path, (1, 2, 3))
    real, refusals = os.pwrite, [refuse]

    def once(fd: int, data: bytes, position: int) -> int:
        return (refusals.pop() if refusals else real)(fd, data, position)

    monkeypatch.setattr(os, "pwrite", once)
    assert not wishes(partitions, monkeypatch, records(0), records(0))
    assert follower.log is not None
    assert follower.log.log_end_offset == 2


def test_a_follower_stays_once_the_leader_has_nothing_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions, follower = hosted(tmp_path, (1, 2, 3))
    trimmed = FetchResult[memoryview]("t", 0, ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=2, log_start_offset=2)
    nothing = FetchResult[memoryview]("t", 0, high_watermark=2, log_start_offset=2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        assert not wishes(partitions, monkeypatch, records(0), trimmed, nothing)
    assert follower.log is not None
    assert follower.log.log_start_offset == 2


def test_partitions_to_which_nothing_happens_are_looked_at_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * replication_module.ISR_TURN_COUNT
    settings = parse_broker_settings({})
    partitions = Partitions(LogDirectory.open(tmp_path, broker_id=OURS), OURS, settings)
    partitions.registered_epoch = lambda: 11
    states = {number: PartitionImage(OURS, LEADER_EPOCH, (1, 2), (1, 2), PARTITION_EPOCH) for number in range(count)}
    address = NodeAddress(1, "h", 9092)
    brokers = {one: BrokerInfo(one, 10 + one, None, address, address) for one in (1, 2)}
    image = ClusterImage(1, 1, "c", 2, brokers, {"t": TopicImage("t", TOPIC_ID, states)})

    async def unused(wanted: object) -> list[IsrResult]:
        raise AssertionError("nothing is asked for")

    leader = Replication(
        OURS,
        partitions,
        typed(ReplicationConfig, settings),
        Metrics(),
        now_ms=lambda: 1000,
        keys=PeerKeys(b""),
        broker_epoch=lambda: 11,
        ask_isr=unused,
        sync=unused,  # type: ignore[arg-type]
        throttles=Throttles(1, settings, partitions, lambda: 0),
    )
    partitions.switch(image, partitions.prepare(image))
    assert len(leader._to_look_at()) == count, "nobody has fetched yet"
    for one in partitions:
        assert one.leading is not None
        one.leading.fetched(2, 12, 0, 0, now_ms=0)
    assert len(leader._to_look_at()) == count
    seen = [{one.key for one in leader._to_look_at()} for _ in range(3)]
    assert all(len(keys) == replication_module.ISR_TURN_COUNT for keys in seen)
    assert len(set.union(*seen)) == count, "each in its turn"
    last = partitions.get("t", count - 1)
    assert last is not None
    assert last.log is not None
    view = batch()
    partitions.append(last, last.log, view, check_batch(view), 0, acks=1)
    assert all(last in leader._to_look_at() for _ in range(5)), "until its follower has what was written"


def test_a_disk_that_refuses_makes_waiting_writers_look_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions, _ = hosted(tmp_path, (1, 2, 3), leader=OURS)
    told: list[Moved] = []
    partitions.subscribe(lambda key, what: told.append(what))
    partition = partitions.get("t", 0)
    assert partition is not None
    assert partition.log is not None
    partition.leading = Leader(
        OURS, (1, 2, 3), (1, 2, 3), leader_epoch=1, partition_epoch=1, epoch_start=0, lag_ms=1, min_isr=1, now_ms=0
    )
    view = batch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        with pytest.raises(ApiError):
            partitions.append(partition, partition.log, view, check_batch(view), 0, acks=-1)
    assert partition.leading.cannot_write
    assert told == [Moved.LEADER]
    view = batch()
    _, wait = partitions.append(partition, partition.log, view, check_batch(view), 0, acks=-1)
    assert wait is not None
    assert (wait.last_offset, wait.is_local) == (0, False)
    assert not partition.leading.cannot_write
    assert told == [Moved.LEADER, Moved.END]


def test_leadership_does_not_go_round_among_disks_without_room(tmp_path: Path) -> None:
    partitions, partition = hosted(tmp_path, (1, 2, 3), leader=OURS)
    now_ms = 1_000

    async def unused(wanted: object) -> list[IsrResult]:
        raise AssertionError("what is asked for is looked at, and not sent")

    settings = parse_broker_settings({})
    leader = Replication(
        OURS,
        partitions,
        typed(ReplicationConfig, settings),
        Metrics(),
        now_ms=lambda: now_ms,
        keys=PeerKeys(b""),
        broker_epoch=lambda: 11,
        ask_isr=unused,
        sync=unused,  # type: ignore[arg-type]
        throttles=Throttles(1, settings, partitions, lambda: 0),
    )

    def wishes_after_a_refusal(epoch: int) -> list[tuple[int, ...]]:
        partition.leader_epoch = epoch
        partition.leading = Leader(
            OURS,
            (1, 2, 3),
            (1, 2, 3),
            leader_epoch=epoch,
            partition_epoch=PARTITION_EPOCH,
            epoch_start=0,
            lag_ms=1,
            min_isr=1,
            now_ms=now_ms,
        )
        partition.leading.cannot_write = True
        return [tuple(one for one, _ in request.isr) for _, _, request in leader._wanted_changes()]

    assert wishes_after_a_refusal(6) == [(2, 3)]
    now_ms = 4_000
    assert wishes_after_a_refusal(6) == [(2, 3)], "until it is answered"
    assert not wishes_after_a_refusal(8), "the others had no room either"
    now_ms = 1_000 + replication_module.PASS_ON_REST_MS
    assert wishes_after_a_refusal(8) == [(2, 3)], "somebody may have room by now"
    now_ms += 1
    assert not wishes_after_a_refusal(10)


def test_a_listener_hears_only_of_the_kinds_that_it_subscribed_to(tmp_path: Path) -> None:
    partitions, _ = hosted(tmp_path, (1,), leader=OURS)
    told: dict[str, list[Moved]] = {"all": [], "ends": [], "high watermarks": [], "both": []}
    partitions.subscribe(lambda key, what: told["all"].append(what))
    partitions.subscribe(lambda key, what: told["ends"].append(what), Moved.END)
    partitions.subscribe(lambda key, what: told["high watermarks"].append(what), Moved.HIGH_WATERMARK)
    partitions.subscribe(lambda key, what: told["both"].append(what), Moved.HIGH_WATERMARK, Moved.LEADER)
    partition = partitions.get("t", 0)
    assert partition is not None
    assert partition.log is not None
    partition.leading = Leader(
        OURS, (1,), (1,), leader_epoch=1, partition_epoch=1, epoch_start=0, lag_ms=1, min_isr=1, now_ms=0
    )
    view = batch()
    partitions.append(partition, partition.log, view, check_batch(view), 0, acks=1)
    partitions.failed("t", 0)
    both = [Moved.HIGH_WATERMARK, Moved.LEADER]
    assert told == {"all": both, "ends": [], "high watermarks": both[:1], "both": both}

"""A coordinator that has just been elected, while not every in-sync replica has what it read."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from pylog.broker.acks import Acknowledgements
from pylog.broker.coordinator import GroupCoordinator
from pylog.broker.partitions import Partition, Partitions
from pylog.broker.settings import parse_broker_settings
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.errors import ApiError, ErrorCode
from pylog.group.records import TOPIC, CommittedOffset, OffsetKey, encode_offset
from pylog.log.directory import LogDirectory
from pylog.metrics import Metrics
from pylog.model import NodeAddress
from pylog.wire import records

ADDRESS = NodeAddress(1, "h1", 9092)
EPOCHS = {1: 7, 2: 8, 3: 9}
COMMITTED = ("t", 0)


class Coordinating:
    """Broker 1, which follows the groups' partition, has a commit beyond its high watermark, and then leads."""

    def __init__(self, directory: Path) -> None:
        settings = parse_broker_settings({})
        self.partitions = Partitions(LogDirectory.open(directory, broker_id=1), 1, settings)
        self.partitions.registered_epoch = lambda: EPOCHS[1]
        self.groups = GroupCoordinator(
            self.partitions,
            settings,
            Metrics(),
            now_ms=lambda: 0,
            wall_ms=lambda: 0,
            appended=lambda key: None,
            acknowledgements=Acknowledgements(self.partitions, lambda: 0),
        )
        self.version = 0

    @property
    def partition(self) -> Partition:
        found = self.partitions.get(TOPIC, 0)
        assert found is not None
        return found

    async def apply(self, leader: int, leader_epoch: int, isr: tuple[int, ...], min_isr: int = 2) -> None:
        """Apply an image, and let what follows from it be read."""
        self.version += 1
        state = PartitionImage(leader, leader_epoch, isr, (1, 2, 3), self.version)
        topic = TopicImage(TOPIC, UUID(int=5), {0: state}, {"min.insync.replicas": str(min_isr)})
        brokers = {one: BrokerInfo(one, epoch, None, ADDRESS, ADDRESS) for one, epoch in EPOCHS.items()}
        image = ClusterImage(1, self.version, "c", 2, brokers, {TOPIC: topic})
        gone = self.partitions.retire(image)
        self.groups.image_applied(gone + self.partitions.switch(image, self.partitions.prepare(image)))
        await asyncio.gather(*self.groups._tasks._running)

    async def lead(self, isr: tuple[int, ...], min_isr: int = 2) -> None:
        await self.apply(2, 0, (1, 2))
        row = encode_offset(OffsetKey("g", *COMMITTED), CommittedOffset(5, 0, ""), 1)
        log = self.partition.log
        assert log is not None
        log.append_as_follower(memoryview(bytearray(records.encode_batch([row]))))
        await self.apply(1, 1, isr, min_isr)

    def fetched(self, broker_id: int, offset: int) -> None:
        assert self.partition.leading is not None
        self.partition.leading.fetched(broker_id, EPOCHS[broker_id], offset, 1, now_ms=0)
        self.partitions.advance(self.partition)

    def offset(self) -> int | ErrorCode:
        """Return what the group is told that it committed, or which error it gets."""
        try:
            return self.groups.offsets("g")[COMMITTED].offset
        except ApiError as error:
            return error.code


def test_nobody_is_told_what_a_replica_in_sync_may_lack(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1, 2))
        assert coordinating.offset() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert coordinating.groups.heartbeat("g", "m", None, 1) is ErrorCode.NONE
        with pytest.raises(ApiError) as refused:
            coordinating.groups.groups()
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        coordinating.fetched(2, 0)
        assert coordinating.offset() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        coordinating.fetched(2, 1)
        assert coordinating.offset() == 5
        assert [group.group_id for group in coordinating.groups.groups()] == ["g"]

    asyncio.run(story())


def test_the_sweep_loads_what_nobody_asks_for(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1, 2))
        coordinating.groups.expire(0)
        coordinating.fetched(2, 1)
        assert not coordinating.groups._shards[0].is_loaded
        coordinating.groups.expire(0)
        assert coordinating.groups._shards[0].is_loaded

    asyncio.run(story())


def test_a_last_replica_tells_what_it_has_although_nothing_can_be_written(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1,), min_isr=2)
        assert coordinating.partition.leading is not None
        assert coordinating.partition.leading.is_under_min_isr()
        assert coordinating.offset() == 5

    asyncio.run(story())


def test_a_leader_in_a_later_epoch_waits_for_its_followers_again(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1, 2, 3))
        coordinating.fetched(2, 1)
        assert coordinating.offset() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await coordinating.apply(1, 2, (1, 2))
        assert coordinating.offset() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        coordinating.fetched(2, 1)
        assert coordinating.offset() == 5

    asyncio.run(story())


def test_one_that_is_deposed_before_never_answers(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1, 2))
        await coordinating.apply(2, 2, (1, 2))
        assert coordinating.offset() is ErrorCode.NOT_COORDINATOR

    asyncio.run(story())

"""Images that make a topic again: what is on disk before the new log is used."""

import asyncio
import shutil
from pathlib import Path
from uuid import UUID

import pytest

from pylog.broker.control import images as images_module
from pylog.broker.control.images import Images
from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.settings import parse_broker_settings
from pylog.cluster.image import BrokerInfo, ClusterImage, DeletedTopic, PartitionImage, TopicImage
from pylog.log import checkpoint
from pylog.log.config import LogConfig
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.model import NodeAddress, TopicPartition
from pylog.wire.records import check_batch
from tests.unit.log.batches import batch

ADDRESS = NodeAddress(1, "h1", 9092)
KEY = TopicPartition("t", 0)
FORMER, NEXT = UUID(int=1), UUID(int=2)


class Node:
    """Broker 1, which alone hosts one partition of topic t."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory = LogDirectory.open(path, broker_id=1)
        self.partitions = Partitions(self.directory, 1, parse_broker_settings({}))
        self.partitions.registered_epoch = lambda: 7
        self.images = Images(1, self.partitions, None)
        self.version = 0

    def offer(self, topic_id: UUID | None, deleted: tuple[UUID, ...] = ()) -> int:
        """Offer an image in which t has an id or is not there; return its version."""
        self.version += 1
        state = PartitionImage(1, 0, (1,), (1,), self.version)
        topics = {} if topic_id is None else {"t": TopicImage("t", topic_id, {0: state}, {})}
        orders = {one: DeletedTopic("t", one, (1,)) for one in deleted}
        self.images.offer(
            ClusterImage(1, self.version, "c", 1, {1: BrokerInfo(1, 7, None, ADDRESS, ADDRESS)}, topics, orders)
        )
        return self.version

    async def apply(self, topic_id: UUID | None, deleted: tuple[UUID, ...] = ()) -> None:
        version = self.offer(topic_id, deleted)
        assert await self.images.wait_until(lambda image: image.order == (1, version), 10)

    def log(self) -> Log:
        log = self.directory.logs[KEY]
        assert log is not None
        return log

    def write(self, count: int) -> None:
        for _ in range(count):
            view = batch()
            self.log().append_as_leader(view, check_batch(view), 0, 0)
        self.log().high_watermark = self.log().log_end_offset

    async def have_former_topic(self) -> None:
        """Have a topic whose log begins at 9, and checkpoints that say so; then delete it."""
        await self.apply(FORMER)
        self.write(10)
        self.log().flush()
        self.log().delete_records_before(9)
        self.directory.run_jobs()
        self.directory.checkpoint()
        await self.apply(None, (FORMER,))
        assert self.start_on_disk() == 9, "a deletion alone writes no checkpoint"

    def start_on_disk(self) -> int | None:
        return checkpoint.read_offsets(self.path / checkpoint.LOG_START_OFFSETS).get(KEY)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "data")


def test_a_topic_made_again_keeps_its_records_when_the_broker_is_killed(node: Node, tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    def kill(changed: list[Partition]) -> None:
        if node.images.current.topics and node.images.current.topics["t"].topic_id == NEXT:
            node.write(5)
            shutil.copytree(node.path, killed)  # no job has run since the new log leads

    async def story() -> None:
        node.images.start()
        await node.have_former_topic()
        node.images.on_applied = kill
        await node.apply(NEXT, (FORMER,))
        await node.images.stop()

    asyncio.run(story())
    log = LogDirectory.open(killed, broker_id=1).get_or_create(KEY, NEXT, LogConfig(), now_ms=0)
    assert (log.log_start_offset, log.log_end_offset) == (0, 5)
    assert log.high_watermark == 0


def test_a_new_log_is_not_used_before_the_disk_takes_the_checkpoint(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images_module, "_RETRY_S", 0)
    file = node.path / checkpoint.LOG_START_OFFSETS

    async def story() -> None:
        node.images.start()
        await node.have_former_topic()
        file.unlink()
        file.mkdir()  # nothing can be renamed to it
        version = node.offer(NEXT, (FORMER,))
        while KEY not in node.directory.logs:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert node.partitions.get("t", 0) is None
        file.rmdir()
        assert await node.images.wait_until(lambda image: image.order == (1, version), 10)
        found = node.partitions.get("t", 0)
        assert found is not None
        assert found.is_leader
        assert node.start_on_disk() == 0
        await node.images.stop()

    asyncio.run(story())

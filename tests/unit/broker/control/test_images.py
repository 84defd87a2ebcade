"""Images that make a topic again: what is on disk before the new log is made."""

import asyncio
import errno
import os
import shutil
import threading
from pathlib import Path
from uuid import UUID

import pytest

from pylog.broker.control import images
from pylog.broker.control.formats import check_finalized
from pylog.broker.control.images import Images
from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.settings import parse_broker_settings
from pylog.cluster.formats import NEWEST_LEVEL
from pylog.cluster.image import BrokerInfo, ClusterImage, DeletedTopic, PartitionImage, TopicImage
from pylog.cluster.image_codec import ImageHistory, decode_image
from pylog.errors import ApiError, ErrorCode
from pylog.log import checkpoint
from pylog.log.batch_file import OutOfDescriptors
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

    def offer(self, topic_id: UUID | None, deleted: tuple[UUID, ...] = (), *, partition_count: int = 1) -> int:
        """Offer an image in which t has an id or is not there; return its version."""
        self.version += 1
        state = PartitionImage(1, 0, (1,), (1,), self.version)
        topics = (
            {}
            if topic_id is None
            else {"t": TopicImage("t", topic_id, dict.fromkeys(range(partition_count), state), {})}
        )
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


@pytest.mark.parametrize("topic_id", [NEXT, FORMER], ids=["created again", "moved away and back"])
def test_a_log_takes_nothing_over_from_one_of_its_name_when_the_broker_is_killed_while_it_is_made(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic_id: UUID
) -> None:
    killed = tmp_path / "killed"
    write_metadata = LogDirectory._write_metadata

    def kill(self: LogDirectory, path: Path, named: UUID) -> None:
        write_metadata(self, path, named)
        shutil.copytree(node.path, killed)

    async def story() -> None:
        node.images.start()
        await node.have_former_topic()
        monkeypatch.setattr(LogDirectory, "_write_metadata", kill)
        await node.apply(topic_id)
        await node.images.stop()

    asyncio.run(story())
    log = LogDirectory.open(killed, broker_id=1).get_or_create(KEY, topic_id, LogConfig(), now_ms=0)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point, log.high_watermark) == (0, 0, 0, 0)


def test_a_log_is_not_made_before_the_disk_takes_the_checkpoint(node: Node) -> None:
    file = node.path / checkpoint.LOG_START_OFFSETS

    async def story() -> None:
        node.images.start()
        await node.have_former_topic()
        file.unlink()
        file.mkdir()  # nothing can be renamed to it
        await node.apply(NEXT, (FORMER,))
        found = node.partitions.get("t", 0)
        assert found is not None
        assert found.is_offline
        assert not (node.path / str(KEY)).exists()
        file.rmdir()
        await node.apply(NEXT, (FORMER,))
        found = node.partitions.get("t", 0)
        assert found is not None
        assert found.is_leader
        assert not found.is_offline
        assert node.start_on_disk() is None
        await node.images.stop()

    asyncio.run(story())


def test_a_stop_waits_for_the_thread_that_makes_logs_which_makes_no_more(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_making, may_go_on = threading.Event(), threading.Event()
    write_metadata = LogDirectory._write_metadata

    def wait(self: LogDirectory, path: Path, named: UUID) -> None:
        is_making.set()
        assert may_go_on.wait(30)
        write_metadata(self, path, named)

    async def story() -> None:
        node.images.start()
        monkeypatch.setattr(LogDirectory, "_write_metadata", wait)
        node.offer(NEXT, partition_count=2)
        await asyncio.to_thread(is_making.wait, 30)
        stop = asyncio.create_task(node.images.stop())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not stop.done()
        may_go_on.set()
        await stop

    asyncio.run(story())
    assert list(node.directory.logs) == [KEY]
    assert not node.partitions.image.topics


def test_a_closed_directory_writes_no_more_checkpoints(node: Node) -> None:
    async def story() -> None:
        node.images.start()
        await node.apply(NEXT)
        node.write(5)
        node.log().delete_records_before(3)
        await node.images.stop()

    asyncio.run(story())
    node.directory.close()
    node.directory.checkpoint()
    assert node.start_on_disk() == 3


def test_a_topic_is_not_told_to_be_gone_while_it_cannot_be_read_whose_a_log_is(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Path.read_text

    def read_text(path: Path, encoding: str | None = None, errors: str | None = None) -> str:
        if path.name == checkpoint.PARTITION_METADATA:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return read(path, encoding, errors)

    async def story() -> None:
        node.images.start()
        await node.apply(FORMER)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_text", read_text)
            await node.apply(None, (FORMER,))
            assert node.partitions.cleaned_topics() == set()
            assert (node.path / str(KEY)).exists()
        await node.apply(None, (FORMER,))
        assert node.partitions.cleaned_topics() == {FORMER}
        assert not (node.path / str(KEY)).exists()
        await node.images.stop()

    asyncio.run(story())


def test_the_first_image_that_a_broker_asks_for_has_orders_to_delete_replicas(node: Node) -> None:
    state = PartitionImage(2, 0, (2,), (2,), 1)
    topic = TopicImage("t", NEXT, {0: state}, leaving={0: (1,)})
    history = ImageHistory()
    history.advance(ClusterImage(1, 1, "c", 2, topics={"t": topic}, level=3))
    before = node.partitions.image
    found = decode_image(history.answer(before.order, node.partitions.format_version()), before)
    assert found is not None
    assert found.topics["t"].leaving == {0: (1,)}


def test_a_controller_of_an_older_release_has_not_finalized_ours() -> None:
    check_finalized(NEWEST_LEVEL)
    with pytest.raises(ApiError, match="older release") as refusal:
        check_finalized(NEWEST_LEVEL - 1)
    assert refusal.value.code is ErrorCode.FEATURE_UPDATE_FAILED


def test_an_image_waits_until_there_are_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path)
    prepare, refused = node.partitions.prepare, iter([True, False])

    def starve(image: ClusterImage) -> dict[TopicPartition, Log | str]:
        if next(refused):
            raise OutOfDescriptors(tmp_path, OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        return prepare(image)

    monkeypatch.setattr(node.partitions, "prepare", starve)
    monkeypatch.setattr(images, "_RETRY_S", 0.0)

    async def main() -> None:
        node.images.start()
        await node.apply(FORMER)
        await node.images.stop()

    asyncio.run(main())
    assert KEY in node.directory.logs


def test_a_log_that_finds_no_descriptor_is_opened_without_another_image(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, refusals = node.directory._write_metadata, [1, 2]

    def starve(path: Path, topic_id: UUID) -> None:
        if refusals and refusals.pop():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        write(path, topic_id)

    monkeypatch.setattr(node.directory, "_write_metadata", starve)
    monkeypatch.setattr(images, "REOPEN_S", 0.0)
    applied: list[list[Partition]] = []

    async def story() -> None:
        node.images.on_applied = applied.append
        node.images.start()
        await node.apply(FORMER)
        found = node.partitions.get("t", 0)
        assert found is not None
        assert found.is_offline
        assert await node.images.wait_until(lambda image: not refusals and KEY in node.directory.logs, 10)
        found = node.partitions.get("t", 0)
        assert found is not None
        assert found.is_leader
        assert not found.is_offline
        assert applied[-1] == [found]
        assert not node.partitions.has_waiting
        await node.images.stop()

    asyncio.run(story())

"""DeleteRecords is answered when every live replica begins where it was told to, and has that on disk."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.handlers import delete_records
from pylog.broker.data.partitions import Moved
from pylog.broker.data.progress import FollowerFetches
from pylog.cluster.image import ClusterImage
from pylog.errors import ErrorCode
from pylog.log import checkpoint
from pylog.model import TopicPartition
from pylog.wire.api.partitions import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pylog.wire.fetch import FetchPartition, FetchRequest
from tests.unit.broker.data.test_identity import BROKER_EPOCH, CALLER, EPOCH, FOLLOWER, HERE, LEADER, Leading

WAIT_MS = 60_000


class Trimming(Leading):
    """A leader of three records with one follower, and a client that deletes the first two."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, records=3)
        self.now_ms = 0
        self.directory = directory
        self.deletions = Acknowledgements(lambda: self.now_ms)
        self.partitions.subscribe(self.deletions.moved)
        self.partitions.on_follower_start = lambda key: self.deletions.moved(key, Moved.START)
        self.follow(start=0)

    def follow(self, start: int) -> None:
        """Let the follower fetch at the log end; it says where its own log begins."""
        part = FetchPartition("t", 0, EPOCH, 3, EPOCH, start, 1 << 20, HERE.bytes)
        request = FetchRequest(FOLLOWER, 0, 1, 1 << 20, 0, 0, -1, [part], [], broker_epoch=BROKER_EPOCH)
        FollowerFetches(self.partitions).note(request, 0)

    def without_the_follower(self, version: int) -> ClusterImage:
        """Return the image in which the follower is not in sync, and its broker is not registered."""
        topic = self.image.topics["t"]
        state = replace(topic.partitions[0], isr=(LEADER,), partition_epoch=2)
        topics = {**self.image.topics, "t": replace(topic, partitions={0: state})}
        return replace(self.image, version=version, brokers={LEADER: self.image.brokers[LEADER]}, topics=topics)

    def forget_the_follower(self) -> None:
        """Apply an image from before the follower came back; the leader has taken it into the ISR since."""
        self.apply(replace(self.image, version=2, brokers={LEADER: self.image.brokers[LEADER]}))
        self.deletions.look_at_all()

    async def delete(self, offset: int = 2, timeout_ms: int = WAIT_MS) -> tuple[ErrorCode, int]:
        part = DeleteRecordsPartition(partition_index=0, offset=offset)
        wish = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[part])], timeout_ms=timeout_ms)
        cluster: Any = SimpleNamespace(partitions=self.partitions, deletions=self.deletions)
        answer: Any = await delete_records(cluster, wish, CALLER)
        [row] = answer.topics[0].partitions
        return ErrorCode(row.error_code), row.low_watermark

    async def delete_twice(self, *offsets: int) -> list[tuple[ErrorCode, int]]:
        """Name the partition once for each offset, in one request."""
        parts = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in offsets]
        wish = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=parts)], timeout_ms=WAIT_MS)
        cluster: Any = SimpleNamespace(partitions=self.partitions, deletions=self.deletions)
        answer: Any = await delete_records(cluster, wish, CALLER)
        return [(ErrorCode(row.error_code), row.low_watermark) for row in answer.topics[0].partitions]

    async def begin(self) -> "asyncio.Task[tuple[ErrorCode, int]]":
        """Delete, and return the request once it waits for the follower."""
        asking = asyncio.ensure_future(self.delete())
        while not len(self.deletions):
            assert not asking.done(), asking.result()
            await asyncio.sleep(0)
        return asking


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def test_the_answer_waits_for_the_follower_and_for_our_disk(tmp_path: Path) -> None:
    async def story() -> None:
        one = Trimming(tmp_path)
        asking = await one.begin()
        starts = checkpoint.read_offsets(tmp_path / checkpoint.LOG_START_OFFSETS)
        assert starts[TopicPartition("t", 0)] == 2
        one.follow(start=1)
        assert len(one.deletions) == 1, "it begins at 1 still"
        one.follow(start=2)
        assert await asking == (ErrorCode.NONE, 2)

    run(story)


def test_a_deletion_that_a_follower_does_not_carry_out_in_time_is_timed_out(tmp_path: Path) -> None:
    async def story() -> None:
        one = Trimming(tmp_path)
        asking = await one.begin()
        one.now_ms = WAIT_MS
        one.deletions._time_is_up()
        assert await asking == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert one.log.log_start_offset == 2, "here it is carried out all the same, as in Kafka"

    run(story)


def test_a_follower_that_dies_is_not_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        one = Trimming(tmp_path)
        asking = await one.begin()
        one.forget_the_follower()
        assert not asking.done(), "it is in sync, and may lead next whatever this image says"
        assert len(one.deletions) == 1
        one.apply(one.without_the_follower(version=3))
        assert await asking == (ErrorCode.NONE, 2)

    run(story)


def test_a_deposed_leader_does_not_say_that_records_are_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        one = Trimming(tmp_path)
        asking = await one.begin()
        one.partitions.stop_leading()
        assert await asking == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    run(story)


def test_our_own_disk_is_waited_for_no_longer_than_the_request_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        one = Trimming(tmp_path)

        async def hang() -> bool:
            await asyncio.Event().wait()
            return True

        monkeypatch.setattr(one.partitions, "checkpoint", hang)
        assert await one.delete(timeout_ms=1) == (ErrorCode.REQUEST_TIMED_OUT, -1)

    run(story)


def test_the_time_that_our_own_disk_took_is_not_granted_to_followers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        one = Trimming(tmp_path)
        one.partitions.now_ms = lambda: one.now_ms
        checkpoint = one.partitions.checkpoint

        async def write_slowly() -> bool:
            one.now_ms = WAIT_MS
            return await checkpoint()

        monkeypatch.setattr(one.partitions, "checkpoint", write_slowly)
        asking = await one.begin()
        one.deletions._time_is_up()
        assert await asking == (ErrorCode.REQUEST_TIMED_OUT, -1)

    run(story)


def test_a_deletion_waits_while_another_leader_epoch_is_heard_of_and_not_its_leader(tmp_path: Path) -> None:
    async def story() -> None:
        one = Trimming(tmp_path)
        asking = await one.begin()
        found = one.partitions.get("t", 0)
        assert found is not None
        one.partitions.suspend(found, FOLLOWER, EPOCH + 1)
        one.deletions.look_at_all()
        assert len(one.deletions) == 1
        one.partitions.stop_leading()
        assert await asking == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    run(story)


def test_a_disk_that_takes_no_checkpoint_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        one = Trimming(tmp_path)

        async def refuse() -> bool:
            return False

        monkeypatch.setattr(one.partitions, "checkpoint", refuse)
        assert await one.delete() == (ErrorCode.KAFKA_STORAGE_ERROR, -1)

    run(story)


@pytest.mark.parametrize("offsets", [(1, 2), (2, 1)])
def test_a_partition_that_is_named_twice_waits_for_the_larger_offset(tmp_path: Path, offsets: tuple[int, int]) -> None:
    async def story() -> None:
        one = Trimming(tmp_path)
        asking = asyncio.ensure_future(one.delete_twice(*offsets))
        while not len(one.deletions):
            await asyncio.sleep(0)
        one.follow(start=1)
        assert len(one.deletions) == 1, "it begins at 1 still"
        one.follow(start=2)
        assert await asking == [(ErrorCode.NONE, 2), (ErrorCode.NONE, 2)]

    run(story)


@pytest.mark.parametrize("offsets", [(2, 99), (99, 2)])
def test_a_partition_that_is_named_twice_is_answered_for_each_offset(tmp_path: Path, offsets: tuple[int, int]) -> None:
    async def story() -> None:
        one = Trimming(tmp_path)
        one.follow(start=2)
        answer = await one.delete_twice(*offsets)
        assert dict(zip(offsets, answer, strict=True)) == {
            2: (ErrorCode.NONE, 2),
            99: (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        }

    run(story)


def test_bad_offsets_are_refused_beside_good_ones(tmp_path: Path) -> None:
    async def story() -> None:
        one = Trimming(tmp_path)
        one.follow(start=2)
        assert await one.delete(offset=99) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await one.delete(offset=2) == (ErrorCode.NONE, 2)

    run(story)

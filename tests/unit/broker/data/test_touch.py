"""What could send a client backwards is said only by a leader that nobody can have replaced unnoticed."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pylog.broker.data.handlers import offset_for_leader_epoch
from pylog.errors import ErrorCode
from pylog.replica.leader import TOUCH_MS
from pylog.wire.api.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pylog.wire.fetch import FetchPartition, FetchRequest
from tests.unit.broker.data.test_identity import BROKER_EPOCH, CALLER, EPOCH, FOLLOWER, Leading


class Zombie(Leading):
    """A leader of three records whose follower is heard at 0, twice, and not any more."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, records=3)
        self.now_ms = 0
        self.partitions.now_ms = lambda: self.now_ms
        self.hear()

    def hear(self) -> None:
        found = self.partitions.get("t", 0)
        assert found is not None
        assert found.leading is not None
        for _ in range(2):
            found.leading.fetched(FOLLOWER, BROKER_EPOCH, 3, 3, self.now_ms)
        self.partitions.advance(found)

    def consume(self, offset: int) -> ErrorCode:
        part = FetchPartition("t", 0, -1, offset, -1, -1, 1 << 20)
        request = FetchRequest(-1, 0, 0, 1 << 20, 0, 0, -1, [part], [])
        [result] = self.handler.reader.read(request).results
        return result.error

    def epoch_end(self, epoch: int) -> tuple[ErrorCode, int, int]:
        wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])])
        cluster: Any = SimpleNamespace(partitions=self.partitions)
        answer: Any = offset_for_leader_epoch(cluster, request, CALLER)
        [row] = answer.topics[0].partitions
        return ErrorCode(row.error_code), row.leader_epoch, row.end_offset


def test_an_offset_beyond_the_end_is_out_of_range_only_in_touch(tmp_path: Path) -> None:
    async def story() -> None:
        one = Zombie(tmp_path)
        assert one.consume(4) is ErrorCode.OFFSET_OUT_OF_RANGE
        one.now_ms = TOUCH_MS + 1
        assert one.consume(4) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "a successor may have it"
        assert one.consume(3) is ErrorCode.NONE
        assert one.consume(0) is ErrorCode.NONE, "what was replicated stays readable"
        one.hear()
        assert one.consume(4) is ErrorCode.OFFSET_OUT_OF_RANGE

    asyncio.run(story())


def test_an_epoch_above_ours_has_no_end_only_in_touch(tmp_path: Path) -> None:
    async def story() -> None:
        one = Zombie(tmp_path)
        assert one.epoch_end(EPOCH + 1) == (ErrorCode.NONE, -1, -1)
        one.now_ms = TOUCH_MS + 1
        assert one.epoch_end(EPOCH + 1)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER, "a successor may have led in it"
        assert one.epoch_end(EPOCH) == (ErrorCode.NONE, EPOCH, 3)

    asyncio.run(story())

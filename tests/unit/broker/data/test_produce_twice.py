"""One Produce request that names a partition twice: both batches are taken and answered."""

import asyncio
import struct
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.produce import ProduceHandler
from pylog.errors import ErrorCode
from pylog.metrics import Metrics
from tests.unit.broker.data.test_identity import BROKER_EPOCH, FOLLOWER, Leading
from tests.unit.log.batches import batch

VERSION, TOPIC = 7, b"t"


class Producing(Leading):
    """A leader with one follower, and a producer that names its partition several times in one request."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, records=0)
        acknowledgements = Acknowledgements(lambda: 0)
        self.partitions.subscribe(acknowledgements.moved)
        self.produce = ProduceHandler(self.partitions, Metrics(), now_ms=lambda: 0, acknowledgements=acknowledgements)
        self.replies: list[bytes] = []

    def send(self, *batches: bytes | memoryview) -> None:
        body = struct.pack(">hhiih", -1, -1, 1_000, 1, len(TOPIC)) + TOPIC + struct.pack(">i", len(batches))
        body += b"".join(struct.pack(">ii", 0, len(one)) + bytes(one) for one in batches)
        connection: Any = SimpleNamespace(
            read_ns=0, open_slot=lambda: SimpleNamespace(read_ns=0, complete=self.replies.extend)
        )
        header: Any = SimpleNamespace(api_version=VERSION, correlation_id=1, body_offset=0)
        self.replies += self.produce.handle(connection, header, memoryview(bytearray(body))) or []  # type: ignore[arg-type]

    def follow(self, offset: int) -> None:
        """Let the follower have everything below *offset*."""
        found = self.partitions.get("t", 0)
        assert found is not None
        assert found.leading is not None
        found.leading.fetched(FOLLOWER, BROKER_EPOCH, offset, 1, now_ms=0)
        self.partitions.advance(found)

    def answers(self) -> Sequence[tuple[ErrorCode, int]]:
        """Return error and base offset of each batch of the one reply, none without a reply."""
        if not self.replies:
            return []
        [reply] = self.replies
        at = 4 + 4 + 4 + 2 + len(TOPIC)
        (count,) = struct.unpack_from(">i", reply, at)
        rows = [struct.unpack_from(">ihq", reply, at + 4 + 30 * number) for number in range(count)]
        return [(ErrorCode(error), offset) for _, error, offset in rows]


def test_both_are_acknowledged_once_the_follower_has_the_later_one(tmp_path: Path) -> None:
    async def story() -> None:
        one = Producing(tmp_path)
        one.send(batch(2), batch(3))
        one.follow(2)
        assert one.answers() == []
        one.follow(5)
        assert one.answers() == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 2)]

    asyncio.run(story())


def test_a_duplicate_behind_a_new_batch_does_not_shorten_its_wait(tmp_path: Path) -> None:
    async def story() -> None:
        one = Producing(tmp_path)
        first = bytes(batch(2, producer_id=1, producer_epoch=0, base_sequence=0))
        second = bytes(batch(3, producer_id=1, producer_epoch=0, base_sequence=2))
        one.send(first)
        assert one.log.log_end_offset == 2
        one.send(second, first)
        one.follow(2)
        assert one.answers() == [(ErrorCode.NONE, 0)], "the first request's alone"
        one.replies.clear()
        one.follow(5)
        assert one.answers() == [(ErrorCode.NONE, 2), (ErrorCode.NONE, 0)]

    asyncio.run(story())


def test_a_bad_batch_is_refused_beside_a_good_one(tmp_path: Path) -> None:
    async def story() -> None:
        one = Producing(tmp_path)
        bad = bytearray(batch(2))
        bad[-1] ^= 1
        one.send(batch(2), bytes(bad))
        one.follow(2)
        assert one.answers() == [(ErrorCode.NONE, 0), (ErrorCode.CORRUPT_MESSAGE, -1)]

    asyncio.run(story())

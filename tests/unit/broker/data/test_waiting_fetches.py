"""Which fetches are looked at again when a log grows, and when more of it may be shown."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pylog.broker.data.fetch import FetchHandler
from pylog.broker.data.partitions import Moved
from pylog.broker.data.throttles import Throttles
from pylog.broker.settings import parse_broker_settings
from pylog.metrics import Metrics
from pylog.security.authorizer import Subject
from pylog.wire.api import parse_request_header
from pylog.wire.fetch import FetchPartition, FetchRequest, encode_replica_request
from tests.unit.broker.data.test_list_offsets import apply, follower, image
from tests.unit.log.batches import append

CONSUMER, FOLLOWER = -1, 2
KEY = ("t", 0)
LEADER_EPOCH = 1


def test_an_append_wakes_followers_and_a_high_watermark_wakes_consumers(tmp_path: Path) -> None:
    partitions = follower(tmp_path)
    apply(partitions, image(2, leader=1, leader_epoch=LEADER_EPOCH))
    partition = partitions.get(*KEY)
    assert partition is not None
    log = partition.log
    assert log is not None
    assert (log.high_watermark, log.log_end_offset) == (0, 1)
    read: list[int] = []
    answered: list[int] = []

    async def story() -> None:
        handler = FetchHandler(
            partitions, Metrics(), max_bytes=1 << 20, now_ms=lambda: 0,
            throttles=Throttles(1, parse_broker_settings({}), partitions, lambda: 0),
        )  # fmt: skip
        look = handler.reader.read

        def seen(request: FetchRequest, subject: Subject | None = None, *more: Any) -> Any:
            read.append(request.replica_id)
            return look(request, subject, *more)

        handler.reader.read = seen  # type: ignore[method-assign,assignment]

        async def fetch(replica_id: int, offset: int) -> list[int]:
            """Ask, and return whose fetches were read because of it."""
            slot = SimpleNamespace(read_ns=0, complete=lambda parts: answered.append(replica_id))
            connection: Any = SimpleNamespace(answered=[], open_slot=lambda: slot)
            part = FetchPartition(*KEY, LEADER_EPOCH, offset, -1, 0, 1 << 20)
            asked = FetchRequest(replica_id, 500, 1, 1 << 20, 0, 0, -1, [part])
            frame = memoryview(encode_replica_request(1, replica_id, -1, asked))[4:]
            assert handler.handle(connection, parse_request_header(frame), frame, replica_id) is None, "it waits"
            return await turn()

        async def turn() -> list[int]:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            found = read.copy()
            read.clear()
            return found

        assert await fetch(CONSUMER, 0) == [CONSUMER]
        # That the follower has the record shows it to the consumer; the follower itself has no reason to look again.
        assert await fetch(FOLLOWER, 1) == [FOLLOWER, CONSUMER]
        assert (answered, log.high_watermark) == ([CONSUMER], 1)
        assert await fetch(CONSUMER, 1) == [CONSUMER]
        append(log, epoch=LEADER_EPOCH)
        log.high_watermark = 1
        handler.waiting.moved(KEY, Moved.END)
        assert await turn() == [FOLLOWER]
        assert answered == [CONSUMER, FOLLOWER]
        handler.waiting.moved(KEY, Moved.LEADER)
        assert await turn() == [CONSUMER], "when more than the log has changed everybody who waits looks"

    asyncio.run(story())

"""Batches that come twice, and one Produce request that names a partition twice: all are taken and answered."""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.produce import ProduceHandler
from pylog.broker.latency import Latency
from pylog.errors import ErrorCode
from pylog.metrics import Metrics
from tests.unit.broker.data.test_identity import BROKER_EPOCH, EPOCH, FOLLOWER, Leading
from tests.unit.log.batches import batch

VERSION, TOPIC = 7, b"t"


class Producing(Leading):
    """A leader with one follower, and a producer that names its partition several times in one request."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, records=0)
        self.now_ms = 0
        self.acknowledgements = acknowledgements = Acknowledgements(lambda: self.now_ms)
        self.partitions.subscribe(acknowledgements.moved)
        self.metrics = Metrics()
        self.produce = ProduceHandler(
            self.partitions, self.metrics, now_ms=lambda: 0, acknowledgements=acknowledgements
        )
        self.replies: list[bytes] = []

    def send(self, *batches: bytes | memoryview, acks: int = -1) -> None:
        body = struct.pack(">hhiih", -1, acks, 1_000, 1, len(TOPIC)) + TOPIC + struct.pack(">i", len(batches))
        body += b"".join(struct.pack(">ii", 0, len(one)) + bytes(one) for one in batches)
        connection: Any = SimpleNamespace(
            answered=[], open_slot=lambda: SimpleNamespace(read_ns=0, complete=self.replies.extend)
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

    def depose(self) -> None:
        """Let the other broker lead."""
        topic = self.image.topics["t"]
        state = replace(topic.partitions[0], leader=FOLLOWER, leader_epoch=EPOCH + 1, partition_epoch=2)
        topics = {**self.image.topics, "t": replace(topic, partitions={0: state})}
        self.apply(replace(self.image, version=2, topics=topics))

    def answers(self) -> Sequence[tuple[ErrorCode, int]]:
        """Return error and base offset of each batch of the one reply, none without a reply."""
        if not self.replies:
            return []
        [reply] = self.replies
        return self.rows(reply)

    def error_codes(self) -> list[ErrorCode]:
        """Return the errors of all batches of all replies, in the order of the replies."""
        return [error for reply in self.replies for error, _ in self.rows(reply)]

    def refused(self) -> float:
        """Return how many batches the metric says were refused."""
        return self.metrics.counter("pylog_produce_refused_total", "").value

    @staticmethod
    def rows(reply: bytes) -> list[tuple[ErrorCode, int]]:
        """Return error and base offset of each batch of a reply."""
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


def test_a_batch_that_left_the_window_is_acknowledged_without_an_offset_once_the_follower_has_it(
    tmp_path: Path,
) -> None:
    """Clients take DUPLICATE_SEQUENCE_NUMBER for success, so it must not come before the batch is safe."""

    async def story() -> None:
        one = Producing(tmp_path)
        batches = [bytes(batch(2, producer_id=1, producer_epoch=0, base_sequence=2 * number)) for number in range(8)]
        for data in batches:
            one.send(data)
        one.send(batches[0])
        assert one.log.log_end_offset == 16
        one.follow(4)
        assert len(one.replies) == 2, "the first two batches themselves"
        one.follow(6)
        assert one.error_codes()[3:] == [ErrorCode.DUPLICATE_SEQUENCE_NUMBER], "the window begins there"
        one.replies.clear()
        one.send(batches[2])
        assert one.answers() == [(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)]
        one.replies.clear()
        one.send(batches[7], batches[1])
        assert one.answers() == [], "waits for the other one"
        one.follow(16)
        [*_, last] = one.replies
        one.replies[:] = [last]
        assert one.answers() == [(ErrorCode.NONE, 14), (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)]

    asyncio.run(story())


def test_a_batch_that_left_the_window_is_not_acknowledged_by_a_leader_that_was_deposed(tmp_path: Path) -> None:
    async def story() -> None:
        one = Producing(tmp_path)
        batches = [bytes(batch(2, producer_id=1, producer_epoch=0, base_sequence=2 * number)) for number in range(6)]
        for data in [*batches, batches[0]]:
            one.send(data)
        one.depose()
        assert one.error_codes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 7

    asyncio.run(story())


def test_what_a_deposed_leader_appended_counts_as_refused(tmp_path: Path) -> None:
    async def story() -> None:
        one = Producing(tmp_path)
        one.send(batch(2), batch(3))
        one.send(batch(1), acks=1)
        assert (one.error_codes(), one.refused()) == ([ErrorCode.NONE], 0)
        one.depose()
        assert one.error_codes() == [ErrorCode.NONE, *[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2]
        assert one.refused() == 2

    asyncio.run(story())


def test_what_the_replicas_did_not_acknowledge_in_time_counts_as_refused(tmp_path: Path) -> None:
    async def story() -> None:
        one = Producing(tmp_path)
        bad = bytearray(batch(2))
        bad[-1] ^= 1
        one.send(batch(2), bytes(bad))
        assert one.refused() == 1, "what is refused at once"
        one.now_ms = 1_000
        one.acknowledgements._time_is_up()
        assert [error for error, _ in one.answers()] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.CORRUPT_MESSAGE]
        assert one.refused() == 2, "each of them once"

    asyncio.run(story())


def test_without_acknowledgements_a_batch_that_left_the_window_ends_no_connection(tmp_path: Path) -> None:
    async def story() -> None:
        one = Producing(tmp_path)
        batches = [bytes(batch(2, producer_id=1, producer_epoch=0, base_sequence=2 * number)) for number in range(6)]
        for data in [*batches, batches[0]]:
            one.send(data, acks=0)
        assert (one.replies, one.log.log_end_offset) == ([], 12)

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


def test_the_wait_for_the_follower_is_a_part_of_its_own_of_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = 1_000
    monkeypatch.setattr("pylog.broker.data.produce.now_ns", lambda: now_ns)

    async def story() -> None:
        nonlocal now_ns
        one = Producing(tmp_path)
        latency = Latency(one.metrics)
        one.send(batch(2))
        now_ns = 9_000
        one.follow(1)
        assert (sum(latency.replicas.counts), sum(latency.produce[-1].counts)) == (0, 0), "it waits still"
        one.follow(2)
        assert (latency.replicas.sum_ns, latency.produce[-1].sum_ns) == (8_000, 9_000), "read at 0, appended at 1,000"
        assert (sum(latency.replicas.counts), sum(latency.produce[-1].counts)) == (1, 1)

    asyncio.run(story())

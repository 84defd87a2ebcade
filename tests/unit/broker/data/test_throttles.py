"""What one answer may bring of throttled partitions: a second's worth of all together, and at least a batch."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from pylog.broker.data.fetch import FetchHandler
from pylog.broker.data.partitions import Partitions
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.replication import Replication, ReplicationConfig
from pylog.broker.data.throttles import Throttles
from pylog.broker.settings import parse_broker_settings, typed
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.log.directory import LogDirectory
from pylog.metrics import Metrics
from pylog.model import NodeAddress
from pylog.wire.api import parse_request_header
from pylog.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResult,
    encode_replica_request,
    parse_replica_response,
)
from pylog.wire.records import check_batch
from tests.unit.log.batches import batch

LEADER, FOLLOWER, COUNT, BATCHES = 1, 2, 5, 20
BATCH_BYTES = len(batch())


class Pair:
    """Broker *own* of a leader of five partitions and a follower that has none of them yet, and is throttled."""

    def __init__(self, directory: Path, own: int, rate: int, isr: tuple[int, ...] = (LEADER,)) -> None:
        self.now_ms = 0
        settings = parse_broker_settings({})
        self.partitions = Partitions(LogDirectory.open(directory, broker_id=own), own, settings)
        self.partitions.registered_epoch = lambda: 7
        self.throttles = Throttles(own, settings, self.partitions, lambda: self.now_ms)
        address = NodeAddress(1, "h", 9092)
        brokers = {one: BrokerInfo(one, 7, None, address, address) for one in (LEADER, FOLLOWER)}
        states = {number: PartitionImage(LEADER, 1, isr, (LEADER, FOLLOWER), 1) for number in range(COUNT)}
        sides = ("leader", "follower")
        topic = TopicImage("t", UUID(int=5), states, {f"{side}.replication.throttled.replicas": "*" for side in sides})
        rates = {f"{side}.replication.throttled.rate": str(rate) for side in sides}
        image = ClusterImage(1, 1, "c", LEADER, brokers, {"t": topic}, broker_configs={str(own): rates})
        self.partitions.retire(image)
        self.partitions.switch(image, self.partitions.prepare(image))
        self.throttles.image_applied()

    def fetched(self, offsets: dict[int, int]) -> dict[int, int]:
        """Return partition -> bytes that the leader answers the follower."""
        named = [FetchPartition("t", number, 1, offset, -1, 0, 1 << 20) for number, offset in offsets.items()]
        request = FetchRequest(FOLLOWER, 0, 1, 8 << 20, 0, 0, -1, named)
        frame = memoryview(encode_replica_request(1, FOLLOWER, 7, request))[4:]

        async def answer() -> dict[int, int]:
            handler = FetchHandler(
                self.partitions, Metrics(), max_bytes=8 << 20, now_ms=lambda: self.now_ms,
                throttles=self.throttles,
            )  # fmt: skip
            connection: Any = SimpleNamespace(answered=[], read_ns=0)
            parts = handler.handle(connection, parse_request_header(frame), frame, FOLLOWER)
            assert parts is not None
            whole = b"".join(one if isinstance(one, bytes) else bytes(one.size_bytes) for one in parts)
            results, _ = parse_replica_response(memoryview(whole)[4:], 1)
            return {one.partition: one.records_bytes for one in results if one.records_bytes}

        return asyncio.run(answer())


def leader(directory: Path, rate: int, isr: tuple[int, ...] = (LEADER,)) -> Pair:
    """Return a leader with 20 batches in each partition."""
    pair = Pair(directory, LEADER, rate, isr)
    for number in range(COUNT):
        found = pair.partitions.get("t", number)
        assert found is not None
        assert found.log is not None
        for _ in range(BATCHES):
            view = batch()
            found.log.append_as_leader(view, check_batch(view), 1, 0)
    return pair


@pytest.mark.parametrize(
    ("rate", "wanted"),
    [
        (1, {0: BATCH_BYTES}),
        (BATCH_BYTES - 1, {0: BATCH_BYTES}),
        (3 * BATCH_BYTES, {0: 3 * BATCH_BYTES}),
        (BATCHES * BATCH_BYTES + 1, {0: BATCHES * BATCH_BYTES, 1: BATCH_BYTES}),
        (1 << 30, dict.fromkeys(range(COUNT), BATCHES * BATCH_BYTES)),
    ],
)
def test_an_answer_brings_a_seconds_worth_of_all_partitions_and_at_least_a_batch(
    tmp_path: Path, rate: int, wanted: dict[int, int]
) -> None:
    assert leader(tmp_path, rate).fetched(dict.fromkeys(range(COUNT), 0)) == wanted


def test_a_low_rate_holds_over_a_few_seconds(tmp_path: Path) -> None:
    rate = 3 * BATCH_BYTES + 1
    pair, offsets, sent = leader(tmp_path, rate), dict.fromkeys(range(COUNT), 0), 0
    for pair.now_ms in range(0, 5_000, 100):
        for number, size_bytes in pair.fetched(offsets).items():
            offsets[number] += size_bytes // BATCH_BYTES
            sent += size_bytes
    assert 4 * rate <= sent <= 7 * rate, "what is saved up in a second, and what may be owed for one, come on top"


def test_replicas_in_sync_are_not_held_up(tmp_path: Path) -> None:
    pair = leader(tmp_path, 1, isr=(LEADER, FOLLOWER))
    assert pair.fetched(dict.fromkeys(range(COUNT), 0)) == dict.fromkeys(range(COUNT), BATCHES * BATCH_BYTES)


def test_who_was_asked_to_be_in_sync_is_not_held_up(tmp_path: Path) -> None:
    pair = leader(tmp_path, 1)
    leading = pair.partitions.get("t", 3).leading  # type: ignore[union-attr]
    assert leading is not None
    assert not leading.waits_for(FOLLOWER)
    leading.fetched(FOLLOWER, 7, BATCHES, BATCHES, now_ms=0)
    change = leading.wanted_change(0, BATCHES, now_ms=0)
    assert change is not None
    leading.sent(change)
    assert leading.waits_for(FOLLOWER)
    assert pair.fetched(dict.fromkeys(range(COUNT), 0)) == {0: BATCH_BYTES, 3: BATCHES * BATCH_BYTES}


@pytest.mark.parametrize(("rate", "asked"), [(1, 1), (50_000, 10_000), (1 << 40, 1 << 20)])
def test_a_follower_asks_for_its_share_of_a_second_and_for_nothing_while_it_owes(
    tmp_path: Path, rate: int, asked: int
) -> None:
    pair = Pair(tmp_path, FOLLOWER, rate)
    partition = pair.partitions.get("t", 0)
    assert partition is not None
    assert pair.throttles.most(partition, 1 << 20) == asked
    pair.throttles.fetched(partition, 2 * rate)
    assert pair.throttles.most(partition, 1 << 20) == 0
    pair.now_ms = 1_001
    assert pair.throttles.most(partition, 1 << 20) == asked


def test_a_follower_with_more_than_is_acknowledged_is_not_held_up(tmp_path: Path) -> None:
    pair = Pair(tmp_path, FOLLOWER, 1)
    partition = pair.partitions.get("t", 0)
    assert partition is not None
    assert partition.log is not None
    pair.throttles.fetched(partition, 1_000_000)
    view = batch()
    partition.log.append_as_follower(view)
    assert pair.throttles.most(partition, 1 << 20) == 1 << 20
    partition.log.high_watermark = partition.log.log_end_offset
    assert pair.throttles.most(partition, 1 << 20) == 0, "the leader has more that is acknowledged"


def test_what_a_follower_took_is_charged_by_what_it_had_when_it_asked(tmp_path: Path) -> None:
    pair, rate = Pair(tmp_path, FOLLOWER, 50_000), 50_000
    partition = pair.partitions.get("t", 0)
    assert partition is not None
    unused: Any = None
    taker = Replication(
        FOLLOWER,
        pair.partitions,
        typed(ReplicationConfig, parse_broker_settings({})),
        Metrics(),
        now_ms=lambda: 0,
        keys=PeerKeys(b""),
        broker_epoch=lambda: 7,
        ask_isr=unused,
        sync=unused,
        throttles=pair.throttles,
    )
    asked, view = taker.question(partition), batch(value=b"v" * 2 * rate)
    assert asked is not None
    assert taker.take(
        partition,
        asked,
        FetchResult("t", 0, high_watermark=2, log_start_offset=0, records=view, records_bytes=len(view)),
    )
    assert partition.log is not None
    assert partition.log.log_end_offset == 1
    assert taker.question(partition) is None, "it owes a second"


def test_a_follower_in_sync_asks_for_what_it_wants(tmp_path: Path) -> None:
    pair = Pair(tmp_path, FOLLOWER, 1, isr=(LEADER, FOLLOWER))
    partition = pair.partitions.get("t", 0)
    assert partition is not None
    assert pair.throttles.most(partition, 1 << 20) == 1 << 20


def test_a_second_is_granted_at_once_and_nothing_while_it_is_owed(tmp_path: Path) -> None:
    pair, granted = Pair(tmp_path, LEADER, 1000), []
    for pair.now_ms in range(0, 4000, 100):
        share = pair.throttles.share()
        assert share is not None
        granted.append(share.left)
        pair.throttles.sent(("t", 0), share.left, is_awaited=False)
    assert set(granted) == {0, 1000}, "not the hundred bytes that each tenth of a second brings"
    assert sum(granted) == 5000


def test_limit_and_bytes_of_both_sides_are_shown_while_something_is_throttled(tmp_path: Path) -> None:
    pair = Pair(tmp_path, LEADER, 1000)
    assert pair.throttles.limits() == {("leader",): 1000, ("follower",): 1000}
    pair.throttles.sent(("t", 0), 300, is_awaited=False)
    pair.throttles.sent(("t", 0), 700, is_awaited=True)
    pair.throttles.sent(("other", 0), 700, is_awaited=False)
    assert pair.throttles.moved_bytes == {("leader",): 300, ("follower",): 0}


def test_no_limit_is_shown_where_nothing_is_throttled(tmp_path: Path) -> None:
    settings = parse_broker_settings({})
    partitions = Partitions(LogDirectory.open(tmp_path, broker_id=LEADER), LEADER, settings)
    assert Throttles(LEADER, settings, partitions, lambda: 0).limits() == {}

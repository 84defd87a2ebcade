"""A replica that a move adds syncs what it has copied before its leader may let it in: who leaves deletes then."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from pylog.broker.data.partitions import Partitions
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.replication import Replication, ReplicationConfig
from pylog.broker.data.throttles import Throttles
from pylog.broker.settings import parse_broker_settings, typed
from pylog.cluster.controller import IsrRequest, IsrResult
from pylog.cluster.image import ClusterImage, Move, PartitionImage, TopicImage
from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.metrics import Metrics
from pylog.wire.fetch import FetchPartition, FetchResult
from tests.unit.broker.data.test_full_follower import LEADER_EPOCH, OURS, PARTITION_EPOCH, TOPIC_ID
from tests.unit.log.batches import batch


class Arriving:
    """Broker 1, to which t-0 is moved from broker 2, or where it just follows."""

    def __init__(self, directory: Path, *, is_added: bool = True) -> None:
        settings = parse_broker_settings({})
        partitions = Partitions(LogDirectory.open(directory, broker_id=OURS), OURS, settings)
        state = PartitionImage(2, LEADER_EPOCH, (2,), (OURS, 2), PARTITION_EPOCH)
        moves = {0: Move(adding=(OURS,), removing=(2,))} if is_added else {}
        # No broker is in it, so that nobody is fetched from.
        image = ClusterImage(1, 1, "c", 2, {}, {"t": TopicImage("t", TOPIC_ID, {0: state}, moves=moves)})
        partitions.switch(image, partitions.prepare(image))
        self.syncs = 0
        self.error: Exception | None = None
        self.may_sync = asyncio.Event()
        self.replication = Replication(
            OURS,
            partitions,
            typed(ReplicationConfig, settings),
            Metrics(),
            now_ms=lambda: 1000,
            keys=PeerKeys(b""),
            broker_epoch=lambda: 11,
            ask_isr=_ask_nobody,
            sync=self._sync,
            throttles=Throttles(OURS, settings, partitions, lambda: 0),
        )
        self.replication.image_applied()
        found = partitions.get("t", 0)
        assert found is not None
        assert found.log is not None
        self.partition, self.log = found, found.log

    async def _sync(self, logs: Iterable[Log]) -> None:
        self.syncs += 1
        await self.may_sync.wait()
        if self.error is not None:
            raise self.error
        for log in logs:
            log.flush()

    def take(self, high_watermark: int) -> None:
        """Take two more records from a leader whose high watermark is given."""
        end = self.log.log_end_offset
        view = batch(2, base_offset=end)
        answer = FetchResult("t", 0, records=view, records_bytes=len(view), log_start_offset=0, topic_id=TOPIC_ID.bytes)
        answer.high_watermark = high_watermark
        assert self.replication.take(self.partition, FetchPartition("t", 0, LEADER_EPOCH, end, -1, 0, 1 << 20), answer)

    def asks(self) -> bool:
        """Whether the leader is asked for more, and so told how far we have come."""
        return self.replication.question(self.partition) is not None


async def _ask_nobody(wanted: list[IsrRequest]) -> list[IsrResult]:
    raise AssertionError("nobody leads here")


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_what_was_copied_is_synced_once_before_the_leader_may_let_us_in(tmp_path: Path) -> None:
    async def arrive() -> None:
        one = Arriving(tmp_path)
        assert one.asks(), "an empty log has nothing to sync"
        one.take(high_watermark=100)
        assert one.asks(), "far behind, nobody lets us in"
        one.take(high_watermark=4)
        assert not one.asks()
        assert not one.asks()
        await _turns()
        assert (one.syncs, one.asks()) == (1, False)
        one.may_sync.set()
        await _turns()
        assert one.log.recovery_point == 4
        assert one.asks()
        one.take(high_watermark=6)
        assert one.asks(), "what comes now is as safe as with any other replica"
        assert one.syncs == 1
        await one.replication.stop()

    asyncio.run(arrive())


def test_the_high_watermark_of_an_earlier_leader_says_nothing_of_the_next_one(tmp_path: Path) -> None:
    async def arrive() -> None:
        one = Arriving(tmp_path)
        one.take(high_watermark=100)
        one.partition.leader_epoch += 1
        assert not one.asks()
        one.may_sync.set()
        await _turns()
        assert one.asks(), "what the next one has is learned from its answer"
        one.partition.leader_epoch -= 1
        one.take(high_watermark=4)
        assert not one.asks(), "what came since is synced too"
        await _turns()
        assert (one.syncs, one.asks()) == (2, True)
        await one.replication.stop()

    asyncio.run(arrive())


def test_a_copy_that_begins_anew_is_synced_anew(tmp_path: Path) -> None:
    async def arrive() -> None:
        one = Arriving(tmp_path)
        one.may_sync.set()
        one.take(high_watermark=2)
        assert not one.asks()
        await _turns()
        assert one.asks()
        one.replication._begin_anew(one.partition, one.log, FetchResult("t", 0, log_start_offset=10), None)
        assert one.asks(), "nothing is in it that could be synced"
        one.take(high_watermark=12)
        assert not one.asks()
        await _turns()
        assert (one.syncs, one.asks()) == (2, True)
        await one.replication.stop()

    asyncio.run(arrive())


@pytest.mark.parametrize("error", [ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "full"), StorageError("damaged")])
def test_a_sync_that_fails_is_put_off_and_ends_no_broker(tmp_path: Path, error: Exception) -> None:
    async def arrive() -> None:
        one = Arriving(tmp_path)
        one.error = error
        one.may_sync.set()
        one.take(high_watermark=2)
        assert not one.asks()
        await _turns()
        one.error = None
        assert not one.asks(), "it is tried again"
        await _turns()
        assert (one.syncs, one.asks()) == (2, True)
        await one.replication.stop()

    asyncio.run(arrive())


def test_other_replicas_wait_for_no_sync(tmp_path: Path) -> None:
    async def follow() -> None:
        one = Arriving(tmp_path, is_added=False)
        one.take(high_watermark=2)
        assert one.asks()
        assert one.syncs == 0
        await one.replication.stop()

    asyncio.run(follow())

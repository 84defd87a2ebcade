"""Which replicas a leader asks the controller to take into the ISR."""

from collections.abc import Iterable
from pathlib import Path

from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.progress import FollowerFetches
from pylog.broker.data.replication import Replication, ReplicationConfig
from pylog.broker.data.throttles import Throttles
from pylog.broker.settings import parse_broker_settings, typed
from pylog.cluster.controller import IsrRequest, IsrResult
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.metrics import Metrics
from pylog.model import NodeAddress
from pylog.wire.fetch import FetchPartition, FetchRequest
from pylog.wire.records import check_batch
from tests.unit.broker.data.test_full_follower import LEADER_EPOCH, PARTITION_EPOCH, TOPIC_ID
from tests.unit.log.batches import batch

LEADER, MEMBER, JOINING = 1, 2, 3
END = 5


class Leading:
    """Broker 1, which leads t-0; broker 2 is in sync, and broker 3 follows and is not."""

    def __init__(self, directory: Path) -> None:
        settings = parse_broker_settings({})
        self.partitions = Partitions(LogDirectory.open(directory, broker_id=LEADER), LEADER, settings)
        self.partitions.registered_epoch = lambda: 10 + LEADER
        state = PartitionImage(LEADER, LEADER_EPOCH, (LEADER, MEMBER), (LEADER, MEMBER, JOINING), PARTITION_EPOCH)
        address = NodeAddress(1, "h", 9092)
        brokers = {one: BrokerInfo(one, 10 + one, None, address, address) for one in (LEADER, MEMBER, JOINING)}
        image = ClusterImage(1, 1, "c", MEMBER, brokers, {"t": TopicImage("t", TOPIC_ID, {0: state})})
        self.partitions.switch(image, self.partitions.prepare(image))
        found = self.partitions.get("t", 0)
        assert found is not None
        assert found.log is not None
        self.partition: Partition = found
        self.log: Log = found.log
        for _ in range(END):
            view = batch()
            self.log.append_as_leader(view, check_batch(view), LEADER_EPOCH, 0)
        self.replication = Replication(
            LEADER,
            self.partitions,
            typed(ReplicationConfig, settings),
            Metrics(),
            now_ms=lambda: 0,
            keys=PeerKeys(b""),
            broker_epoch=lambda: 10 + LEADER,
            ask_isr=_ask_nobody,
            sync=_sync_nothing,
            throttles=Throttles(LEADER, settings, self.partitions, lambda: 0),
        )
        self.fetched(MEMBER)

    def fetched(self, follower: int, start: int = 0) -> None:
        """Let a follower fetch at the log end; it says where its own log begins."""
        part = FetchPartition("t", 0, LEADER_EPOCH, END, LEADER_EPOCH, start, 1 << 20, TOPIC_ID.bytes)
        request = FetchRequest(follower, 0, 1, 1 << 20, 0, 0, -1, [part], [], broker_epoch=10 + follower)
        FollowerFetches(self.partitions).note(request, 0)

    def wishes(self) -> list[tuple[int, ...]]:
        """Return the ISRs that the leader asks for now."""
        return [tuple(one for one, _ in request.isr) for _, _, request in self.replication._wanted_changes()]


async def _ask_nobody(wanted: list[IsrRequest]) -> list[IsrResult]:
    raise AssertionError("what is asked for is looked at, and not sent")


async def _sync_nothing(logs: Iterable[Log]) -> None:
    raise AssertionError("nothing is to be synced")


def test_a_replica_joins_once_its_log_begins_where_the_leaders_does(tmp_path: Path) -> None:
    one = Leading(tmp_path)
    one.log.delete_records_before(3)
    one.fetched(JOINING)
    assert one.wishes() == [], "it would show deleted records, should it lead before it hears our answer"
    one.fetched(JOINING, start=3)
    assert one.wishes() == [(LEADER, MEMBER, JOINING)]


def test_without_a_session_nobody_is_asked_to_join_and_others_may_leave(tmp_path: Path) -> None:
    one = Leading(tmp_path)
    one.fetched(JOINING)
    one.partitions.has_session = lambda: False
    assert one.wishes() == []
    leading = one.partition.leading
    assert leading is not None
    assert leading.high_watermark(0, END) == END
    leading.progress(MEMBER).caught_up_ms = leading.progress(MEMBER).log_end_offset = -(10**9)
    assert one.wishes() == [], "this change would take one in as well"
    leading.progress(JOINING).log_end_offset = 0
    assert one.wishes() == [(LEADER,)]


def test_a_join_that_was_asked_for_before_the_session_was_lost_is_asked_for_again(tmp_path: Path) -> None:
    """Nobody knows whether it was written, so the replica counts until there is an answer (rule 4)."""
    one = Leading(tmp_path)
    one.fetched(JOINING)
    assert one.wishes() == [(LEADER, MEMBER, JOINING)]
    one.partitions.has_session = lambda: False
    assert one.wishes() == [(LEADER, MEMBER, JOINING)]

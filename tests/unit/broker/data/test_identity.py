"""A topic is its id between brokers, and a fetch counts only for the log that it was made of."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from pylog.broker.data.fetch import FetchHandler
from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.peers import PeerRequests, _Caller
from pylog.broker.data.throttles import Throttles
from pylog.broker.handler import Caller
from pylog.broker.settings import parse_broker_settings
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.errors import ErrorCode, ProtocolError
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.metrics import Metrics
from pylog.model import NodeAddress
from pylog.security.principal import Session
from pylog.wire import internal
from pylog.wire.api import parse_request_header
from pylog.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResult,
    encode_replica_request,
    parse_replica_response,
)
from pylog.wire.internal import Beginning, InternalKey, Pull, parse_beginning, parse_response
from pylog.wire.records import check_batch
from tests.unit.broker.data.test_stale_answers import replication
from tests.unit.log.batches import PARTITION, append, batch, open_log

LEADER, FOLLOWER, EPOCH = 1, 2, 1
BROKER_EPOCH = 9
CALLER = Caller("c", Session(client_host="h", listener_name="client"), 0)
"""A client that may do everything."""
HERE, ELSEWHERE, UNHEARD = UUID(int=5), UUID(int=6), UUID(int=7)
ADDRESS = NodeAddress(LEADER, "h1", 9092)


class Leading:
    """Broker 1, which leads t-0 with one follower, and what that follower is answered."""

    def __init__(self, directory: Path, records: int, level: int = 2) -> None:
        self.partitions = Partitions(LogDirectory.open(directory, broker_id=LEADER), LEADER, parse_broker_settings({}))
        self.partitions.registered_epoch = lambda: 7
        state = PartitionImage(LEADER, EPOCH, (LEADER, FOLLOWER), (LEADER, FOLLOWER), 1)
        topics = {name: TopicImage(name, one, {0: state}) for name, one in (("t", HERE), ("other", ELSEWHERE))}
        brokers = {
            LEADER: BrokerInfo(LEADER, 7, None, ADDRESS, ADDRESS),
            FOLLOWER: BrokerInfo(FOLLOWER, BROKER_EPOCH, None, ADDRESS, ADDRESS),
        }
        self.image = ClusterImage(1, 1, "c", LEADER, brokers, topics, level=level)
        self.apply(self.image)
        self.handler = FetchHandler(
            self.partitions, Metrics(), max_bytes=1 << 20, now_ms=lambda: 0,
            throttles=Throttles(LEADER, parse_broker_settings({}), self.partitions, lambda: 0),
        )  # fmt: skip
        for _ in range(records):
            view = batch()
            self.log.append_as_leader(view, check_batch(view), EPOCH, 0)

    def apply(self, image: ClusterImage) -> None:
        self.partitions.switch(image, self.partitions.prepare(image))

    def is_leading(self) -> bool:
        found = self.partitions.get("t", 0)
        assert found is not None
        return found.is_leader

    @property
    def log(self) -> Log:
        found = self.partitions.get("t", 0)
        assert found is not None
        assert found.log is not None
        return found.log

    def known_end(self) -> int:
        found = self.partitions.get("t", 0)
        assert found is not None
        assert found.leading is not None
        return found.leading.progress(FOLLOWER).log_end_offset

    def ask(
        self,
        offset: int,
        topic_id: UUID | None = HERE,
        *,
        epoch: int = EPOCH,
        last_epoch: int = EPOCH,
        broker_epoch: int = BROKER_EPOCH,
        start: int = 0,
    ) -> FetchResult[memoryview]:
        raw = b"" if topic_id is None else topic_id.bytes
        part = FetchPartition("t", 0, epoch, offset, last_epoch, start, 1 << 20, raw)
        request = FetchRequest(FOLLOWER, 0, 1, 1 << 20, 0, 0, -1, [part])
        frame = memoryview(encode_replica_request(1, FOLLOWER, broker_epoch, request))[4:]
        connection: Any = SimpleNamespace(answered=[], read_ns=0)
        parts = self.handler.handle(connection, parse_request_header(frame), frame, FOLLOWER)
        assert parts is not None
        whole = b"".join(one if isinstance(one, bytes) else bytes(one.size_bytes) for one in parts)
        [result], _ = parse_replica_response(memoryview(whole)[4:], 1)
        return result


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_a_follower_of_this_topic_is_served_counted_and_told_its_id(tmp_path: Path) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3)
        result = leading.ask(2)
        assert (result.error, result.topic_id, result.records_bytes > 0) == (ErrorCode.NONE, HERE.bytes, True)
        assert leading.known_end() == 2

    run(story())


def test_rule_1_a_later_leader_epoch_ends_leading_until_an_image_says_who_leads(tmp_path: Path) -> None:
    async def story() -> None:
        one = Leading(tmp_path, records=3)
        assert one.ask(3, UNHEARD, epoch=EPOCH + 1).error is ErrorCode.UNKNOWN_TOPIC_ID
        assert one.is_leading(), "of another topic that says nothing"
        assert one.ask(3, epoch=EPOCH + 1).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not one.is_leading()
        one.apply(replace(one.image, version=2))
        assert not one.is_leading(), "this image is from before that epoch"
        topic = one.image.topics["t"]
        state = replace(topic.partitions[0], leader_epoch=EPOCH + 1, partition_epoch=2)
        topics = {**one.image.topics, "t": replace(topic, partitions={0: state})}
        one.apply(replace(one.image, version=3, topics=topics))
        found = one.partitions.get("t", 0)
        assert found is not None
        assert (one.is_leading(), found.leading_since) == (True, EPOCH), "nobody else has led in between"
        assert one.ask(3, epoch=EPOCH + 1).error is ErrorCode.NONE

    run(story())


@pytest.mark.parametrize(
    ("leader", "end"), [(LEADER, ErrorCode.NONE), (FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER)], ids=["we", "another"]
)
def test_a_write_waits_on_until_it_is_known_who_leads_in_the_later_epoch(
    tmp_path: Path, leader: int, end: ErrorCode
) -> None:
    async def story() -> None:
        one = Leading(tmp_path, records=0)
        found = one.partitions.get("t", 0)
        assert found is not None
        view = batch()
        _, wait = one.partitions.append(found, one.log, view, check_batch(view), 0, -1)
        assert wait is not None
        one.partitions.suspend(found, FOLLOWER, EPOCH + 1)
        assert wait.result() is None, "nobody has said yet that it will not last"
        topic = one.image.topics["t"]
        state = replace(topic.partitions[0], leader=leader, leader_epoch=EPOCH + 1, partition_epoch=2)
        one.apply(
            replace(one.image, version=2, topics={**one.image.topics, "t": replace(topic, partitions={0: state})})
        )
        one.ask(1, epoch=EPOCH + 1)
        assert wait.result() is end

    run(story())


def test_a_write_to_a_partition_that_moves_away_waits_no_longer(tmp_path: Path) -> None:
    async def story() -> None:
        one = Leading(tmp_path, records=0)
        found = one.partitions.get("t", 0)
        assert found is not None
        view = batch()
        _, wait = one.partitions.append(found, one.log, view, check_batch(view), 0, -1)
        assert wait is not None
        one.partitions.suspend(found, FOLLOWER, EPOCH + 1)
        one.partitions.retire(replace(one.image, version=2, topics={}))
        assert wait.result() is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(story())


def test_a_follower_of_an_earlier_release_names_no_id_and_is_served_as_ever(tmp_path: Path) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3)
        result = leading.ask(2, None)
        assert (result.error, result.topic_id, result.records_bytes > 0) == (ErrorCode.NONE, b"", True)
        assert leading.known_end() == 2

    run(story())


def test_rule_15_a_follower_that_names_no_id_is_refused_once_the_cluster_is_finalized(tmp_path: Path) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3, level=3)
        result = leading.ask(2, None)
        assert (result.error, result.records_bytes) == (ErrorCode.UNKNOWN_TOPIC_ID, 0)
        assert leading.known_end() == -1
        assert leading.ask(2).error is ErrorCode.NONE
        assert leading.known_end() == 2

    run(story())


@pytest.mark.parametrize(
    ("topic_id", "error"),
    [(UNHEARD, ErrorCode.UNKNOWN_TOPIC_ID), (ELSEWHERE, ErrorCode.INCONSISTENT_TOPIC_ID)],
    ids=["of another incarnation", "of another name"],
)
def test_a_follower_of_another_topic_is_refused_and_not_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, topic_id: UUID, error: ErrorCode
) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                result = leading.ask(3, topic_id)
                assert (result.error, result.records_bytes, result.diverging) == (error, 0, None)
        assert len(caplog.records) == 1, "it asks again and again"
        assert leading.known_end() == -1
        assert leading.log.high_watermark == 0

    run(story())


def test_a_deleted_topic_leaves_no_refused_follower_behind(tmp_path: Path) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3)
        leading.ask(3, UNHEARD)
        leading.handler.reader.image_applied()
        assert len(leading.handler.reader._mistaken) == 1
        image = ClusterImage(1, 2, "c", LEADER)
        gone = leading.partitions.retire(image)
        leading.partitions.switch(image, leading.partitions.prepare(image), gone)
        leading.handler.reader.image_applied()
        assert not leading.handler.reader._mistaken

    run(story())


@pytest.mark.parametrize("offset", [4, 1], ids=["beyond the end", "below the start"])
def test_a_fetch_outside_the_log_is_out_of_range_and_not_counted(tmp_path: Path, offset: int) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3)
        leading.ask(3)
        leading.log.delete_records_before(2)
        assert leading.known_end() == 3
        assert leading.ask(offset, last_epoch=-1).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert leading.known_end() == 3

    run(story())


def test_a_follower_with_records_of_which_the_leader_knows_nothing_any_more_begins_anew(tmp_path: Path) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3)
        leading.log.high_watermark = 3
        leading.log.delete_records_before(3)
        assert leading.ask(3, last_epoch=EPOCH - 1).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert leading.known_end() == -1
        assert leading.ask(3, last_epoch=EPOCH - 1, start=3).error is ErrorCode.NONE, "it has no records"
        assert leading.known_end() == 3

    run(story())


def test_a_follower_that_was_a_copy_keeps_its_records_when_its_leader_forgets_their_epoch(tmp_path: Path) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=0)
        assert leading.ask(0, last_epoch=-1).error is ErrorCode.NONE
        view = batch()
        leading.log.append_as_leader(view, check_batch(view), EPOCH, 0)
        assert leading.ask(1).error is ErrorCode.NONE
        leading.log.delete_records_before(1)
        assert leading.ask(1, last_epoch=EPOCH - 1).error is ErrorCode.NONE
        other = leading.ask(1, last_epoch=EPOCH - 1, broker_epoch=BROKER_EPOCH + 1)
        assert other.error is ErrorCode.OFFSET_OUT_OF_RANGE, "another process has yet to show it"

    run(story())


def test_a_process_that_was_replaced_is_not_counted(tmp_path: Path) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3)
        leading.ask(3, broker_epoch=BROKER_EPOCH - 1)
        assert leading.known_end() == -1

    run(story())


# -- the follower ------------------------------------------------------------------------------------------------------


def following(log: Log) -> Partition:
    return Partition(PARTITION, log, HERE, leader=2, leader_epoch=EPOCH)


def answer(log: Log, **result: Any) -> tuple[FetchPartition, FetchResult[memoryview]]:
    name = PARTITION
    asked = FetchPartition(name.topic, name.partition, EPOCH, log.log_end_offset, log.epochs.latest, 0, 1, HERE.bytes)
    values: Any = {"topic_id": HERE.bytes, "log_start_offset": 0} | result
    return asked, FetchResult(name.topic, name.partition, **values)


def test_records_of_another_incarnation_are_not_written(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    append(log, count=3)
    records = batch(2, base_offset=3)
    taker = replication(tmp_path / "broker")
    theirs = answer(log, topic_id=UNHEARD.bytes, high_watermark=5, records=records, records_bytes=len(records))
    assert not taker.take(following(log), *theirs), "it rests"
    assert log.log_end_offset == 3


@pytest.mark.parametrize(("level", "end"), [(2, 5), (3, 3)])
def test_rule_15_an_answer_without_id_is_dropped_once_the_cluster_is_finalized(
    tmp_path: Path, level: int, end: int
) -> None:
    log = open_log(tmp_path / "log")
    append(log, count=3)
    records = batch(2, base_offset=3)
    taker = replication(tmp_path / "broker")
    taker._partitions.image = replace(taker._partitions.image, level=level)
    nameless = answer(log, topic_id=b"", high_watermark=5, records=records, records_bytes=len(records))
    assert taker.take(following(log), *nameless) == (end == 5)
    assert log.log_end_offset == end


def test_the_high_watermark_is_taken_before_the_start(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    for _ in range(10):
        append(log)
    log.high_watermark = 2
    taker = replication(tmp_path / "broker")
    assert taker.take(following(log), *answer(log, high_watermark=10, log_start_offset=8))
    assert (log.log_start_offset, log.high_watermark) == (8, 10)


def test_an_empty_log_beyond_the_leaders_end_begins_anew_where_the_leaders_begins_and_rests(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", log_start_offset=20)
    taker = replication(tmp_path / "broker")
    ahead = answer(log, error=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=19, log_start_offset=3)
    assert not taker.take(following(log), *ahead, Beginning(3, -1, 1, b""))
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_a_log_of_which_nothing_is_the_leaders_begins_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    for _ in range(4):
        append(log, epoch=0)
    log.delete_records_before(3)
    taker = replication(tmp_path / "broker")
    assert taker.take(following(log), *answer(log, diverging=(0, 2), log_start_offset=1), Beginning(1, -1, 1, b""))
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)


def test_nothing_is_kept_below_the_leaders_start_when_logs_part(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    for epoch in (0, 0, 2, 2, 2):
        append(log, epoch=epoch)
    taker = replication(tmp_path / "broker")
    # The leader's records 2 and 3 were of another epoch, which it no longer knows since its log begins at 4.
    assert taker.take(following(log), *answer(log, diverging=(2, 4), log_start_offset=4), Beginning(4, -1, 1, b""))
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    assert log.epochs.entries() == [(2, 4)]


def test_an_emptied_log_takes_over_the_epoch_that_its_leader_says(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    append(log, epoch=0)
    log.delete_records_before(1)
    log.begin_leader_epoch(4)  # it led, and wrote nothing
    taker = replication(tmp_path / "broker")
    assert taker.take(following(log), *answer(log, diverging=(0, 1)))
    assert log.epochs.entries() == [(0, 1)]


def test_nothing_is_said_of_a_truncation_that_cuts_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path / "log")
    append(log, epoch=0)
    log.begin_leader_epoch(4)
    taker = replication(tmp_path / "broker")
    with caplog.at_level(logging.WARNING):
        assert taker.take(following(log), *answer(log, diverging=(0, 1)))
    assert not caplog.records
    assert taker._truncations.value == 0


# -- replicas that begin anew ------------------------------------------------------------------------------------------


IDEMPOTENT: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}


def is_known(log: Log) -> bool:
    """Whether the first batch of producer 9 is taken for a repetition."""
    view = batch(**IDEMPOTENT)
    return log.append_as_leader(view, check_batch(view), EPOCH, 0).is_duplicate


def test_a_follower_that_begins_anew_takes_over_its_leaders_producers(tmp_path: Path) -> None:
    leaders = open_log(tmp_path / "leader")
    append(leaders, batch(**IDEMPOTENT))
    leaders.delete_records_before(1)
    log = open_log(tmp_path / "log")
    taker = replication(tmp_path / "broker")
    too_low = answer(log, error=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=1, log_start_offset=1)
    assert taker.replica_to_begin(following(log), *too_low) == internal.encode_replica(HERE, PARTITION.partition, EPOCH)
    assert not taker.take(following(log), *too_low), "the leader did not tell: it rests"
    assert log.log_start_offset == 0
    taker.take(following(log), *too_low, Beginning(1, -1, 1, leaders.producers.encode(1)))
    assert log.log_start_offset == 1
    assert is_known(log)


def test_nothing_is_asked_of_a_leader_of_release_0_1_0(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    taker = replication(tmp_path / "broker")
    nameless = answer(log, topic_id=b"", error=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=1, log_start_offset=1)
    assert taker.replica_to_begin(following(log), *nameless) is None
    taker.take(following(log), *nameless)
    assert log.log_start_offset == 1


def test_nothing_is_asked_where_nothing_begins_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    append(log)
    taker = replication(tmp_path / "broker")
    for harmless in ({}, {"error": ErrorCode.FENCED_LEADER_EPOCH}, {"topic_id": UNHEARD.bytes, "removed_tombstone": 3}):
        assert taker.replica_to_begin(following(log), *answer(log, **harmless)) is None


def test_a_follower_that_lacks_a_tombstone_which_is_gone_begins_anew_once(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    append(log, count=3)
    taker = replication(tmp_path / "broker")
    behind = {"high_watermark": 9, "removed_tombstone": 5, "removing_pass": 1}
    assert taker.replica_to_begin(following(log), *answer(log, **behind))
    taker.take(following(log), *answer(log, **behind), Beginning(0, 5, 1, b""))
    assert (log.log_end_offset, log.tombstones.offset) == (0, 5)
    records = batch(2)
    copied = behind | {"records": records, "records_bytes": len(records)}
    assert taker.replica_to_begin(following(log), *answer(log, **copied)) is None
    assert taker.take(following(log), *answer(log, **copied))
    assert log.log_end_offset == 2
    assert taker.replica_to_begin(following(log), *answer(log, **behind | {"removing_pass": 2})), "another is gone"
    next_leader = replace(following(log), leader_epoch=EPOCH + 1)
    asked, result = answer(log, **behind)
    asked.current_leader_epoch = EPOCH + 1
    assert taker.replica_to_begin(next_leader, asked, result), "of another leader's log"


def test_a_follower_is_told_of_tombstones_that_are_gone_only_where_it_has_not_come_so_far(tmp_path: Path) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=5)
        leading.log.tombstones.note(2, lambda: True)
        assert [leading.ask(offset).removed_tombstone for offset in (0, 2, 3, 5)] == [2, 2, -1, -1]
        assert leading.ask(0).records_bytes
        assert leading.ask(0, None).removed_tombstone == -1, "release 0.1.0 does not know what that means"

    run(story())


def beginning_of(
    leading: Leading, topic_id: UUID = HERE, epoch: int = EPOCH, number: int = 0, *, is_proven: bool = True
) -> tuple[ErrorCode, bytes]:
    """Return what a broker is answered that asks how a replica begins anew."""
    unused: Any = None
    requests = PeerRequests(PeerKeys(b""), leading.handler, unused, unused)
    connection: Any = SimpleNamespace(state=_Caller(FOLLOWER, is_proven=is_proven))
    body = internal.encode_replica(topic_id, number, epoch)
    [answered] = requests.on_frame(connection, memoryview(internal.encode_request(InternalKey.BEGIN_ANEW, 1, body))[4:])
    return parse_response(bytes(answered)[4:], 1)  # type: ignore[arg-type]


def test_a_leader_tells_who_begins_anew_where_and_with_which_producers(tmp_path: Path) -> None:
    async def story() -> None:
        leading = Leading(tmp_path / "leader", records=0)
        view = batch(**IDEMPOTENT)
        leading.log.append_as_leader(view, check_batch(view), EPOCH, 0)
        leading.log.high_watermark = 1
        leading.log.delete_records_before(1)
        leading.log.tombstones.note(0, lambda: True)
        error, body = beginning_of(leading)
        assert error is ErrorCode.NONE
        found = parse_beginning(body)
        assert (found.log_start_offset, found.removed_tombstone) == (1, 0)
        log = open_log(tmp_path / "log")
        log.truncate_fully_and_start_at(1, found.producers)
        assert is_known(log)

    run(story())


def test_who_does_not_lead_tells_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=1)
        assert beginning_of(leading, UNHEARD)[0] is ErrorCode.UNKNOWN_TOPIC_ID
        assert beginning_of(leading, number=7)[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert beginning_of(leading, epoch=EPOCH - 1)[0] is ErrorCode.FENCED_LEADER_EPOCH
        assert beginning_of(leading, epoch=EPOCH + 1)[0] is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert beginning_of(leading, is_proven=False) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, b"")
        leading.log.producers._unsure = frozenset({9})
        assert beginning_of(leading)[0] is ErrorCode.LEADER_NOT_AVAILABLE

    run(story())


# -- requests among brokers --------------------------------------------------------------------------------------------


BODIES = {
    InternalKey.PULL_IMAGE: internal.encode_pull(Pull(3, 1, 1, 0), 2),
    InternalKey.ALTER_ISR: internal.encode_isr_wishes(3, 9, []),
    InternalKey.RECOVERED: internal.encode_recovery(3, 9, {}),
    InternalKey.SHUT_DOWN: internal.encode_process(3, 9),
    InternalKey.TAKE_IDS: internal.encode_broker_id(3),
}


def asked_by(broker_id: int, key: InternalKey, body: bytes) -> tuple[ErrorCode, list[InternalKey]]:
    """Return what a proven broker is answered at once, NONE if that comes later, and what was carried out."""
    done: list[InternalKey] = []

    async def carry_out(request: internal.InternalRequest) -> bytes:
        done.append(request.key)
        return b""

    async def story() -> ErrorCode:
        requests = PeerRequests(PeerKeys(b""), Any, carry_out, carry_out)  # type: ignore[arg-type]
        slot = SimpleNamespace(complete=lambda parts: None)
        connection: Any = SimpleNamespace(state=_Caller(broker_id, is_proven=True), open_slot=lambda: slot)
        frame = memoryview(internal.encode_request(key, 1, body))[4:]
        parts = requests.on_frame(connection, frame)
        await asyncio.sleep(0)
        return ErrorCode.NONE if parts is None else parse_response(bytes(parts[0])[4:], 1)[0]  # type: ignore[arg-type]

    return asyncio.run(story()), done


@pytest.mark.parametrize("key", BODIES)
def test_a_broker_speaks_for_itself_alone(key: InternalKey) -> None:
    assert asked_by(3, key, BODIES[key]) == (ErrorCode.NONE, [key])
    assert asked_by(2, key, BODIES[key]) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


def test_a_body_that_is_none_of_its_kind_closes_the_connection() -> None:
    with pytest.raises(ProtocolError):
        asked_by(3, InternalKey.SHUT_DOWN, b"x")


# -- requests that were sent again ----------------------------------------------------------------------------------


class Peers:
    """The brokers' listener, and connections that have proven to be of broker 3 in the order of their making."""

    def __init__(self) -> None:
        self.answered: list[InternalKey] = []
        unused: Any = None
        self.requests = PeerRequests(PeerKeys(b"secret"), unused, self._answer, self._answer)

    async def _answer(self, request: internal.InternalRequest) -> bytes:
        self.answered.append(request.key)
        return b""

    def connection(self) -> Any:
        """Return a connection of broker 3, after its proof."""
        found: Any = SimpleNamespace(
            state=None,
            session=SimpleNamespace(binding=b""),
            admit=lambda: None,
            open_slot=lambda: SimpleNamespace(connection=found, complete=lambda parts: None),
        )
        nonce = bytes(internal.NONCE_BYTES)
        [hello] = self._send(found, InternalKey.HELLO, internal.encode_hello(3, nonce))
        _, body = parse_response(hello[4:], 1)
        proof = internal.caller_proof(b"secret", nonce, body[: internal.NONCE_BYTES])
        self._send(found, InternalKey.PROVE, proof)
        return found

    async def send(self, connection: Any, key: InternalKey) -> None:
        self._send(connection, key, BODIES.get(key, b""))
        await asyncio.sleep(0)

    def _send(self, connection: Any, key: InternalKey, body: bytes) -> Any:
        return self.requests.on_frame(connection, memoryview(internal.encode_request(key, 1, body))[4:])


def test_rule_4_a_request_that_was_sent_again_is_not_carried_out_after_its_repetition() -> None:
    async def story() -> None:
        peers = Peers()
        first, second = peers.connection(), peers.connection()
        await peers.send(first, InternalKey.ALTER_ISR)
        await peers.send(second, InternalKey.ALTER_ISR)
        with pytest.raises(ProtocolError):
            await peers.send(first, InternalKey.ALTER_ISR)
        await peers.send(first, InternalKey.PULL_IMAGE)  # a broker has another connection for these
        await peers.send(second, InternalKey.SHUT_DOWN)
        assert peers.answered == [InternalKey.ALTER_ISR] * 2 + [InternalKey.PULL_IMAGE, InternalKey.SHUT_DOWN]

    run(story())


def test_a_marker_that_was_sent_again_is_not_written_after_its_repetition() -> None:
    async def story() -> None:
        peers = Peers()
        first, second = peers.connection(), peers.connection()
        await peers.send(second, InternalKey.ALTER_ISR)
        await peers.send(first, InternalKey.WRITE_MARKERS)  # a broker has another connection for these
        await peers.send(second, InternalKey.WRITE_MARKERS)
        await peers.send(first, InternalKey.VERIFY_TRANSACTION)  # changes nothing
        with pytest.raises(ProtocolError):
            await peers.send(first, InternalKey.WRITE_MARKERS)
        peers.requests.expire_connections()  # concerns the controller
        await peers.send(second, InternalKey.WRITE_MARKERS)
        assert peers.answered.count(InternalKey.WRITE_MARKERS) == 3

    run(story())


def test_rule_4_what_was_sent_to_a_controller_is_not_carried_out_in_its_next_term() -> None:
    async def story() -> None:
        peers = Peers()
        before = peers.connection()
        peers.requests.expire_connections()
        with pytest.raises(ProtocolError):
            await peers.send(before, InternalKey.ALTER_ISR)
        await peers.send(peers.connection(), InternalKey.ALTER_ISR)

    run(story())

"""Where the log ends, asked of a leader that has just become one."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from pylog.broker.data import handlers
from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.handlers import list_offsets
from pylog.broker.data.partitions import Appended, Moved, Partitions
from pylog.broker.data.reading import check_leader_epoch
from pylog.broker.handler import Caller
from pylog.broker.places import SEARCHES_AT_ONCE, Places
from pylog.broker.settings import parse_broker_settings
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.errors import ApiError, ErrorCode
from pylog.log.directory import LogDirectory
from pylog.log.search import Allowance, first_not_older
from pylog.log.segment import FileSlice
from pylog.model import NodeAddress
from pylog.security.principal import ANONYMOUS, USER, Principal, Session
from pylog.wire import records
from pylog.wire.api.offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pylog.wire.records import Record

ADDRESS = NodeAddress(1, "h1", 9092)
EPOCH = 7


def image(version: int, leader: int, leader_epoch: int, broker_epoch: int = EPOCH) -> ClusterImage:
    state = PartitionImage(leader, leader_epoch, (1, 2), (1, 2), version)
    topic = TopicImage("t", UUID(int=5), {0: state})
    brokers = {1: BrokerInfo(1, broker_epoch, None, ADDRESS, ADDRESS), 2: BrokerInfo(2, 8, None, ADDRESS, ADDRESS)}
    return ClusterImage(1, version, "c", 2, brokers, {"t": topic})


def apply(partitions: Partitions, new: ClusterImage) -> None:
    partitions.retire(new)
    partitions.switch(new, partitions.prepare(new))


def follower(directory: Path) -> Partitions:
    """Return the partitions of broker 1, which follows and has one record beyond its high watermark."""
    partitions = Partitions(LogDirectory.open(directory, broker_id=1), 1, parse_broker_settings({}))
    partitions.registered_epoch = lambda: EPOCH
    apply(partitions, image(1, leader=2, leader_epoch=0))
    found = partitions.get("t", 0)
    assert found is not None
    assert found.log is not None
    found.log.append_as_follower(memoryview(bytearray(records.encode_batch([Record(0, 1, None, b"x", [])]))))
    return partitions


def ask(partitions: Partitions, timestamp: int, version: int = 7) -> tuple[int, int]:
    cluster: Any = SimpleNamespace(partitions=partitions)
    wanted = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    answer: Any = list_offsets(
        cluster,
        ListOffsetsRequest(topics=[wanted]),
        Caller("c", Session(client_host="h", listener_name="client"), version),
    )
    if asyncio.iscoroutine(answer):
        answer = asyncio.run(answer)
    [row] = answer.topics[0].partitions
    return row.error_code, row.offset


def test_places_in_tiered_storage_are_known_from_their_versions_on(tmp_path: Path) -> None:
    partitions = follower(tmp_path)
    apply(partitions, image(2, leader=1, leader_epoch=1))
    assert ask(partitions, EARLIEST_LOCAL_TIMESTAMP, version=8) == (ErrorCode.NONE, 0)
    assert ask(partitions, LATEST_TIERED_TIMESTAMP, version=9) == (ErrorCode.NONE, -1)
    for timestamp, version in (
        (EARLIEST_LOCAL_TIMESTAMP, 7),
        (LATEST_TIERED_TIMESTAMP, 8),
        (MAX_TIMESTAMP, 6),
        (-6, 9),
    ):
        assert ask(partitions, timestamp, version)[0] == ErrorCode.UNSUPPORTED_VERSION


def test_trap_36_a_new_leader_does_not_say_where_the_log_ends_before_it_knows(tmp_path: Path) -> None:
    partitions = follower(tmp_path)
    apply(partitions, image(2, leader=1, leader_epoch=1))
    assert ask(partitions, LATEST_TIMESTAMP)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(partitions, 0)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(partitions, EARLIEST_TIMESTAMP) == (ErrorCode.NONE, 0)
    found = partitions.get("t", 0)
    assert found is not None
    assert found.leading is not None
    found.leading.fetched(2, 8, 1, 1, now_ms=0)
    partitions.advance(found)
    assert ask(partitions, LATEST_TIMESTAMP) == (ErrorCode.NONE, 1)


def test_trap_11_older_clients_are_told_an_error_that_they_know(tmp_path: Path) -> None:
    partitions = follower(tmp_path)
    apply(partitions, image(2, leader=1, leader_epoch=1))
    assert ask(partitions, LATEST_TIMESTAMP, version=5)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(partitions, LATEST_TIMESTAMP, version=4)[0] == ErrorCode.LEADER_NOT_AVAILABLE


def test_a_search_in_a_damaged_log_is_answered(tmp_path: Path) -> None:
    partitions = caught_up(tmp_path)
    [segment] = (tmp_path / "t-0").glob("*.log")
    segment.write_bytes(b"x" * segment.stat().st_size)
    assert ask(partitions, 0)[0] == ErrorCode.KAFKA_STORAGE_ERROR


def test_trap_32_a_client_behind_or_ahead_of_the_leader_epoch_is_told() -> None:
    check_leader_epoch(-1, 5)
    check_leader_epoch(5, 5)
    with pytest.raises(ApiError) as behind:
        check_leader_epoch(4, 5)
    with pytest.raises(ApiError) as ahead:
        check_leader_epoch(6, 5)
    assert behind.value.code is ErrorCode.FENCED_LEADER_EPOCH
    assert ahead.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


async def _acknowledged(partitions: Partitions, isr: tuple[int, ...]) -> list[ErrorCode]:
    """Return how an append ends that waits for two replicas when the ISR becomes *isr*."""
    acknowledgements = Acknowledgements(lambda: 0)
    found = partitions.get("t", 0)
    assert found is not None
    assert found.leading is not None
    found.leading.want_isr(2)
    ends: list[ErrorCode] = []
    acknowledgements.wait({("t", 0): Appended(found, 0, 1)}, 60_000, lambda errors: ends.extend(errors.values()))
    assert ends == []
    found.leading.learned(isr, 3)
    acknowledgements.moved(("t", 0), Moved.LEADER)
    return ends


def test_an_append_of_a_deleted_topic_is_not_acknowledged_by_the_topic_that_follows(tmp_path: Path) -> None:
    async def story() -> list[ErrorCode]:
        partitions = follower(tmp_path)
        apply(partitions, image(2, leader=1, leader_epoch=1))
        acknowledgements = Acknowledgements(lambda: 0)
        before = partitions.get("t", 0)
        assert before is not None
        ends: list[ErrorCode] = []
        acknowledgements.wait({("t", 0): Appended(before, 0, 1)}, 60_000, lambda errors: ends.extend(errors.values()))
        remade = image(3, leader=1, leader_epoch=1)
        topics = {"t": replace(remade.topics["t"], topic_id=UUID(int=6))}
        apply(partitions, replace(remade, topics=topics))
        now = partitions.get("t", 0)
        assert now is not None
        assert now.log is not None
        now.log.append_as_follower(memoryview(bytearray(records.encode_batch([Record(0, 1, None, b"y", [])]))))
        now.log.high_watermark = 1
        acknowledgements.moved(("t", 0), Moved.LEADER)
        return ends

    assert asyncio.run(story()) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_trap_18_too_few_replicas_after_the_append_end_the_wait_and_the_data_stays(tmp_path: Path) -> None:
    partitions = follower(tmp_path)
    apply(partitions, image(2, leader=1, leader_epoch=1))
    assert asyncio.run(_acknowledged(partitions, (1,))) == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    found = partitions.get("t", 0)
    assert found is not None
    assert found.log is not None
    assert found.log.log_end_offset == 1


async def _acknowledged_later(partitions: Partitions, leader_epoch: int) -> list[ErrorCode]:
    """Return how an append of epoch 1 ends when this broker leads in another one, and has its follower in sync."""
    acknowledgements = Acknowledgements(lambda: 0)
    found = partitions.get("t", 0)
    assert found is not None
    ends: list[ErrorCode] = []
    acknowledgements.wait({("t", 0): Appended(found, 0, 1)}, 60_000, lambda errors: ends.extend(errors.values()))
    apply(partitions, image(leader_epoch + 1, leader=1, leader_epoch=leader_epoch))
    assert found.leading is not None
    acknowledgements.moved(("t", 0), Moved.LEADER)
    found.leading.fetched(2, 8, 1, 1, now_ms=0)
    partitions.advance(found)
    assert found.log is not None
    assert found.log.high_watermark == 1
    acknowledgements.moved(("t", 0), Moved.LEADER)
    return ends


@pytest.mark.parametrize(
    ("leader_epoch", "end"), [(2, ErrorCode.NONE), (3, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
    ids=["led without a break", "another may have led"],
)  # fmt: skip
def test_a_new_epoch_of_the_same_leader_refuses_nothing_that_waits(
    tmp_path: Path, leader_epoch: int, end: ErrorCode
) -> None:
    partitions = follower(tmp_path)
    apply(partitions, image(2, leader=1, leader_epoch=1))
    assert asyncio.run(_acknowledged_later(partitions, leader_epoch)) == [end]


def test_rule_1_an_image_from_before_the_registration_gives_no_leadership(tmp_path: Path) -> None:
    partitions = follower(tmp_path)
    apply(partitions, image(2, leader=1, leader_epoch=1, broker_epoch=EPOCH - 1))
    assert ask(partitions, EARLIEST_TIMESTAMP)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    apply(partitions, image(3, leader=1, leader_epoch=1))
    assert ask(partitions, EARLIEST_TIMESTAMP) == (ErrorCode.NONE, 0)


def test_rule_1_a_lost_session_ends_leading_until_an_image_knows_the_next_one(tmp_path: Path) -> None:
    partitions = follower(tmp_path)
    apply(partitions, image(2, leader=1, leader_epoch=1))
    assert len(partitions.stop_leading()) == 1
    partitions.registered_epoch = lambda: EPOCH + 1
    apply(partitions, image(3, leader=1, leader_epoch=1))
    assert ask(partitions, EARLIEST_TIMESTAMP)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    apply(partitions, image(4, leader=1, leader_epoch=1, broker_epoch=EPOCH + 1))
    assert ask(partitions, EARLIEST_TIMESTAMP) == (ErrorCode.NONE, 0)


def caught_up(directory: Path) -> Partitions:
    """Return the partitions of a leader whose only record, of time 1, is everywhere."""
    partitions = follower(directory)
    apply(partitions, image(2, leader=1, leader_epoch=1))
    found = partitions.get("t", 0)
    assert found is not None
    assert found.leading is not None
    found.leading.fetched(2, 8, 1, 1, now_ms=0)
    partitions.advance(found)
    return partitions


def test_records_are_searched_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def noting(*args: Any) -> Any:
        threads.append(threading.get_ident())
        return first_not_older(*args)

    monkeypatch.setattr(handlers, "first_not_older", noting)
    partitions = caught_up(tmp_path)
    assert ask(partitions, 1) == (ErrorCode.NONE, 0)
    assert ask(partitions, MAX_TIMESTAMP) == (ErrorCode.NONE, 0)
    assert ask(partitions, 2) == (ErrorCode.NONE, -1), "the indexes know that without a search"
    assert len(threads) == 2
    assert threading.get_ident() not in threads


def test_a_partition_is_searched_once_in_a_request(tmp_path: Path) -> None:
    cluster: Any = SimpleNamespace(partitions=caught_up(tmp_path))
    wanted = [ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in (0, 1, EARLIEST_TIMESTAMP)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=wanted)])
    caller = Caller("c", Session(client_host="h", listener_name="client"), 7)
    answer: Any = list_offsets(cluster, request, caller)
    rows = asyncio.run(answer).topics[0].partitions
    assert [(row.error_code, row.offset) for row in rows] == [
        (ErrorCode.NONE, 0), (ErrorCode.INVALID_REQUEST, -1), (ErrorCode.NONE, 0),
    ]  # fmt: skip


def test_a_search_in_a_log_that_is_cut_meanwhile_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = caught_up(tmp_path)
    found = partitions.get("t", 0)
    assert found is not None
    log = found.log
    assert log is not None

    def cutting(part: FileSlice, *args: Any) -> Any:
        part.segment.generation += 1  # as a truncation does
        return first_not_older(part, *args)

    monkeypatch.setattr(handlers, "first_not_older", cutting)
    assert ask(partitions, 1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert log.offline is None


@pytest.mark.parametrize(
    ("allowance", "code"),
    [
        (Allowance(), ErrorCode.NONE),
        (Allowance(record_count=12), ErrorCode.NONE),
        (Allowance(record_count=11), ErrorCode.REQUEST_TIMED_OUT),
        (Allowance(record_count=3), ErrorCode.REQUEST_TIMED_OUT),
        (Allowance(unpacked_bytes=1), ErrorCode.REQUEST_TIMED_OUT),
    ],
    ids=["unspent", "just enough", "one record too many", "within a batch", "bytes"],
)
def test_a_search_through_batches_that_name_later_times_than_they_have_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowance: Allowance, code: ErrorCode
) -> None:
    partitions = caught_up(tmp_path)
    found = partitions.get("t", 0)
    assert found is not None
    log = found.log
    assert log is not None
    for _ in range(2):
        lie = [Record(number, 1, None, b"x", []) for number in range(6)]
        encoded = records.encode_batch(lie, compression_type="zstd", max_timestamp=500)
        batch = memoryview(bytearray(encoded))
        log.append_as_leader(batch, records.check_batch(batch), 1, 500)
    log.high_watermark = log.log_end_offset
    monkeypatch.setattr(handlers, "Allowance", lambda: allowance)
    assert ask(partitions, 400) == (code, -1)
    assert log.offline is None


def test_a_client_searches_at_one_place_and_leaves_the_other_to_others() -> None:
    def session(host: str, principal: Principal = ANONYMOUS) -> Session:
        return Session(principal=principal, client_host=host, listener_name="client")

    ann = Principal(USER, "ann")

    async def story() -> None:
        places, held, leave = Places(SEARCHES_AT_ONCE), list[str](), asyncio.Event()

        async def search(who: str, by: Session) -> None:
            async with places.hold(by):
                held.append(who)
                await leave.wait()

        clients = [
            ("ann", session("h1", ann)), ("ann again", session("h2", ann)),
            ("h3", session("h3")), ("h3 again", session("h3")), ("h4", session("h4")),
        ]  # fmt: skip
        searches = [asyncio.ensure_future(search(*one)) for one in clients]
        for _ in range(3):
            await asyncio.sleep(0)
        assert held == ["ann", "h3"]
        assert len(held) == SEARCHES_AT_ONCE
        leave.set()
        await asyncio.gather(*searches)
        assert sorted(held) == sorted(name for name, _ in clients)
        assert not places._turns, "nobody is remembered"

    asyncio.run(story())

"""Transactions at one broker that coordinates them and leads their partitions."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pylog.broker.data import held_back
from pylog.broker.groups.handlers import offset_fetch
from pylog.broker.handler import Caller
from pylog.broker.large import PART_ELEMENTS, Steps
from pylog.broker.transactions import markers, shard
from pylog.broker.transactions.ends import MARKER_TIMEOUT_MS
from pylog.broker.transactions.handlers import TRANSACTION_APIS
from pylog.broker.transactions.markers import TIMEOUT_S
from pylog.cluster.restore import EPOCH_MARGIN
from pylog.errors import ApiError, ErrorCode
from pylog.group.records import TOPIC as OFFSETS_TOPIC
from pylog.model import NO_LEADER
from pylog.replica.leader import TOUCH_MS
from pylog.security.principal import Session
from pylog.transaction.records import TOPIC as STATE_TOPIC
from pylog.transaction.state import TransactionState
from pylog.wire.api import ApiKey
from pylog.wire.api.group_offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from pylog.wire.api.message import Request
from pylog.wire.api.producers import InitProducerIdRequest
from pylog.wire.api.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TransactionTopic,
    TxnOffset,
    TxnOffsetCommitRequest,
    TxnOffsetTopic,
)
from pylog.wire.internal import MarkerWish
from tests.unit.broker.transactions.node import Node

Producer = tuple[int, int]
T0, T1 = ("t", 0), ("t", 1)


async def init(node: Node, name: str = "a", timeout_ms: int = 60_000) -> Producer:
    answer = await node.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms), 4)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer.producer_id, answer.producer_epoch


async def init_until_done(node: Node, name: str = "a") -> Producer:
    """Become the producer of an id whose open transaction has to end first."""
    while True:
        answer = await node.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
        await node.settle()
        if answer.error_code == ErrorCode.NONE:
            return answer.producer_id, answer.producer_epoch
        assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS


async def add(node: Node, producer: Producer, *partitions: int, name: str = "a", topic: str = "t") -> ErrorCode:
    answer = await node.ask(
        AddPartitionsToTxnRequest(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[TransactionTopic(name=topic, partitions=list(partitions))],
        )
    )
    await node.settle()
    return ErrorCode(answer.results_by_topic[0].results_by_partition[0].partition_error_code)


async def ended(node: Node, name: str = "a") -> None:
    """Wait until what is decided is in all partitions, of which some are searched in a thread first."""
    async with asyncio.timeout(60):
        while (known := node.transactions.describe(name)) is None or known.state.is_ending:
            await asyncio.sleep(0.01)
    await node.settle()


async def settled(node: Node, is_so: Callable[[], bool]) -> None:
    """Wait for what happens in threads, or is tried again."""
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.01)
    await node.settle()


async def end(node: Node, producer: Producer, *, is_commit: bool = True, name: str = "a") -> ErrorCode:
    answer = await node.ask(
        EndTxnRequest(transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=is_commit)
    )
    await node.settle()
    return ErrorCode(answer.error_code)


async def commit_offset(
    node: Node, producer: Producer, offset: int, *, generation: int = -1, member: str = "", name: str = "a"
) -> ErrorCode:
    added = await node.ask(
        AddOffsetsToTxnRequest(transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id="g")
    )
    assert added.error_code == ErrorCode.NONE
    return await commit_pending(node, producer, offset, generation=generation, member=member, name=name)


async def commit_pending(
    node: Node, producer: Producer, offset: int, *, generation: int = -1, member: str = "", name: str = "a"
) -> ErrorCode:
    answer = await node.ask(
        TxnOffsetCommitRequest(
            transactional_id=name,
            group_id="g",
            producer_id=producer[0],
            producer_epoch=producer[1],
            generation_id=generation,
            member_id=member,
            topics=[TxnOffsetTopic(name="t", partitions=[TxnOffset(partition_index=0, committed_offset=offset)])],
        )
    )
    await node.settle()
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def stable_offset(node: Node) -> int | ErrorCode:
    """Return what a reader of committed records is told about the group's offset."""
    wanted = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
    request = OffsetFetchRequest(groups=[wanted], require_stable=True)
    answer = offset_fetch(node.cluster, request, Caller("c", Session(client_host="h", listener_name="client"), 8))
    row = answer.groups[0].topics[0].partitions[0]  # type: ignore[union-attr]
    return ErrorCode(row.error_code) if row.error_code else row.committed_offset


def run(story: Callable[[Node], Awaitable[None]], directory: Path, level: int = 4) -> None:
    async def main() -> None:
        node = Node(directory, level)
        await node.apply()
        try:
            await story(node)
        finally:
            await node.stop()

    asyncio.run(main())


@pytest.mark.parametrize("is_commit", [True, False])
def test_each_partition_of_a_transaction_gets_its_end(tmp_path: Path, is_commit: bool) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        assert await add(node, producer, 0, 1) is ErrorCode.NONE
        assert await node.send("a", producer) is ErrorCode.NONE
        assert await node.send("a", producer, partition=1) is ErrorCode.NONE
        assert node.log(T0).last_stable_offset == 0
        assert await end(node, producer, is_commit=is_commit) is ErrorCode.NONE
        told = "commit" if is_commit else "abort"
        assert node.history(T0) == node.history(T1) == ["data", told]
        assert node.log(T0).last_stable_offset == 2
        found = node.transactions.describe("a")
        assert found is not None
        assert found.state is (TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT)
        assert await end(node, producer, is_commit=is_commit) is ErrorCode.NONE, "an answer was lost"
        assert node.history(T0) == ["data", told]

    run(story, tmp_path)


def test_below_the_level_of_transactions_every_id_is_refused_by_name(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        answer = await node.ask(InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=1), 4)
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await add(node, (1, 0), 0) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await end(node, (1, 0)) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await commit_pending(node, (1, 0), 5) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await node.send("a", (1, 0)) is ErrorCode.INVALID_TXN_STATE
        assert node.history(T0) == []

    run(story, tmp_path, level=3)


def test_a_batch_that_comes_after_the_end_of_its_transaction_is_not_taken(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        assert await node.send("a", producer) is ErrorCode.INVALID_TXN_STATE, "no transaction was begun"
        await add(node, producer, 0)
        await node.send("a", producer)
        await end(node, producer, is_commit=False)
        assert await node.send("a", producer, 1) is ErrorCode.INVALID_TXN_STATE
        await add(node, producer, 1)
        assert await node.send("a", producer, 1) is ErrorCode.INVALID_TXN_STATE, "the next one has another partition"
        assert node.history(T0) == ["data", "abort"]
        assert node.log(T0).last_stable_offset == 2, "nobody waits for a transaction that never ends"

    run(story, tmp_path)


def test_no_batch_overtakes_one_that_its_coordinator_could_not_be_asked_about(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        node.leaders[STATE_TOPIC] = (NO_LEADER, 2)
        await node.apply()
        assert await node.send("a", producer, 1) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert await node.send("a", producer, 0) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert await node.send("a", producer, 2) is ErrorCode.NOT_ENOUGH_REPLICAS
        node.leaders[STATE_TOPIC] = (1, 3)
        await node.apply()
        for sequence in (1, 2):
            assert await node.send("a", producer, sequence) is ErrorCode.NOT_ENOUGH_REPLICAS, "0 has to come first"
        for sequence in (0, 1, 2):
            assert await node.send("a", producer, sequence) is ErrorCode.NONE
        assert len(node.produce._held_back.first) == 0
        assert await end(node, producer) is ErrorCode.NONE
        assert node.history(T0) == ["data", "data", "data", "commit"]

    run(story, tmp_path)


def test_a_batch_that_another_leader_may_have_taken_holds_nothing_back(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        node.leaders[STATE_TOPIC] = (NO_LEADER, 2)
        await node.apply()
        assert await node.send("a", producer, 0) is ErrorCode.NOT_ENOUGH_REPLICAS
        node.leaders[STATE_TOPIC] = (1, 3)
        await node.apply()
        assert await node.send("a", producer, 5) is ErrorCode.NOT_ENOUGH_REPLICAS
        await node.lead_again("t")
        assert await node.send("a", producer, 5) is ErrorCode.NONE

    run(story, tmp_path)


def test_after_a_marker_the_log_knows_what_comes_first(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        node.leaders[STATE_TOPIC] = (NO_LEADER, 2)
        await node.apply()
        assert await node.send("a", producer, 0) is ErrorCode.NOT_ENOUGH_REPLICAS
        node.leaders[STATE_TOPIC] = (1, 3)
        await node.apply()
        assert await node.send("a", producer, 5) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert await end(node, producer, is_commit=False) is ErrorCode.NONE
        await add(node, producer, 0)
        assert await node.send("a", producer, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await node.send("a", producer, 0) is ErrorCode.NONE

    run(story, tmp_path)


def test_a_batch_that_was_refused_for_good_holds_nothing_back(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        node.leaders[STATE_TOPIC] = (NO_LEADER, 2)
        await node.apply()
        assert await node.send("a", producer, 0) is ErrorCode.NOT_ENOUGH_REPLICAS
        node.leaders[STATE_TOPIC] = (1, 3)
        await node.apply()
        assert await node.send("a", producer, 0) is ErrorCode.INVALID_TXN_STATE
        await add(node, producer, 0)
        assert await node.send("a", producer, 5) is ErrorCode.NONE

    run(story, tmp_path)


def test_batches_held_back_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_back, "MAX_COUNT", 3)

    async def story(node: Node) -> None:
        node.leaders[STATE_TOPIC] = (NO_LEADER, 2)
        await node.apply()
        for producer_id in range(5):
            assert await node.send("a", (producer_id, 0), 0) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert len(node.produce._held_back.first) == 3

    run(story, tmp_path)


def test_what_belongs_to_no_transaction_is_refused(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        assert await node.send(None, producer) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await node.send("a", producer, acks=1) is ErrorCode.INVALID_REQUIRED_ACKS
        assert await node.send("b", producer) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await node.send("a", (producer[0], producer[1] + 1)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert node.history(T0) == []

    run(story, tmp_path)


def test_a_second_producer_of_an_id_ends_what_the_first_one_left(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        first = await init(node)
        await add(node, first, 0)
        await node.send("a", first)
        again = InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=60_000)
        assert (await node.ask(again, 4)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        await node.settle()
        assert node.history(T0) == ["data", "abort"]
        second = await init(node)
        assert second == (first[0], first[1] + 2)
        assert await node.send("a", first, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await end(node, first) is ErrorCode.PRODUCER_FENCED
        await add(node, second, 0)
        assert await node.send("a", second) is ErrorCode.NONE
        assert await end(node, second) is ErrorCode.NONE
        assert node.history(T0) == ["data", "abort", "data", "commit"]

    run(story, tmp_path)


@pytest.mark.parametrize("when", ["before", "in between", "after"])
@pytest.mark.parametrize("epoch", [0, 5, 32_767])
def test_a_batch_with_a_guessed_producer_id_stops_no_transaction(tmp_path: Path, when: str, epoch: int) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)

        async def guess(moment: str) -> ErrorCode | None:
            if moment != when:
                return None
            return await node.send(None, (producer[0], epoch), attributes=0)

        assert await guess("before") in (None, ErrorCode.NONE)
        assert await add(node, producer, 0) is ErrorCode.NONE
        assert await guess("in between") in (None, ErrorCode.NONE)
        assert await node.send("a", producer) is ErrorCode.NONE
        assert await guess("after") in (None, ErrorCode.INVALID_TXN_STATE)
        assert await end(node, producer) is ErrorCode.NONE
        assert node.transactions.describe("a").state is TransactionState.COMPLETE_COMMIT  # type: ignore[union-attr]
        assert node.history(T0)[-2:] == ["data", "commit"]
        assert await add(node, producer, 0) is ErrorCode.NONE
        assert await node.send("a", producer, 1) is ErrorCode.NONE

    run(story, tmp_path)


def test_a_partition_that_got_no_batch_of_a_transaction_and_a_guessed_one_holds_up_no_end(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        assert await add(node, producer, 0, 1) is ErrorCode.NONE
        assert await node.send("a", producer) is ErrorCode.NONE
        assert await node.send(None, (producer[0], 32_767), partition=1, attributes=0) is ErrorCode.NONE
        assert await end(node, producer) is ErrorCode.NONE
        assert node.transactions.describe("a").state is TransactionState.COMPLETE_COMMIT  # type: ignore[union-attr]
        assert (node.history(T0), node.history(T1)) == (["data", "commit"], ["data", "commit"])

    run(story, tmp_path)


def test_where_nothing_is_left_to_end_the_answer_waits_for_what_is_there(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        assert await add(node, producer, 1) is ErrorCode.NONE
        node.isr = (1, 2)
        await node.apply()
        sent = asyncio.create_task(node.send(None, (producer[0], 32_767), partition=1, attributes=0, acks=1))
        assert await sent is ErrorCode.NONE
        ending = asyncio.create_task(end(node, producer))
        for number in (0, 1):
            await node.settle()
            node.fetched((STATE_TOPIC, number))
        assert await ending is ErrorCode.NONE
        assert node.transactions.describe("a").state is TransactionState.PREPARE_COMMIT  # type: ignore[union-attr]
        node.fetched(T1)
        await node.settle()
        for number in (0, 1):
            node.fetched((STATE_TOPIC, number))
        await node.settle()
        assert node.transactions.describe("a").state is TransactionState.COMPLETE_COMMIT  # type: ignore[union-attr]

    run(story, tmp_path)


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node, timeout_ms=1_000)
        await add(node, producer, 0)
        await node.send("a", producer)
        node.now_ms += 1_000
        node.transactions.expire(node.now_ms)
        await node.settle()
        assert node.history(T0) == ["data"]
        node.now_ms += 1
        node.transactions.expire(node.now_ms)
        await node.settle()
        assert node.history(T0) == ["data", "abort"]
        assert await end(node, producer) is ErrorCode.PRODUCER_FENCED

    run(story, tmp_path)


@pytest.mark.parametrize("leads_on", [False, True])
def test_what_began_under_a_clock_that_was_ahead_is_ended(tmp_path: Path, leads_on: bool) -> None:
    async def story(node: Node) -> None:
        node.now_ms += 24 * 3_600_000
        producer = await init(node, timeout_ms=1_000)
        await add(node, producer, 0)
        await node.send("a", producer)
        node.transactions.expire(node.now_ms)
        node.now_ms -= 24 * 3_600_000
        if leads_on:
            node.transactions.expire(node.now_ms)
        else:
            await node.lead_again(STATE_TOPIC)
        for waited_ms, history in ((1_000, ["data"]), (1, ["data", "abort"])):
            node.now_ms += waited_ms
            node.transactions.expire(node.now_ms)
            await node.settle()
            assert node.history(T0) == history

    run(story, tmp_path)


def test_what_was_being_written_when_the_clock_was_set_back_is_ended(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node, timeout_ms=1_000)
        node.isr = (1, 2)
        await node.apply()
        node.now_ms += 24 * 3_600_000
        adding = asyncio.ensure_future(add(node, producer, 0))
        await node.settle()
        node.transactions.expire(node.now_ms)
        node.now_ms -= 24 * 3_600_000
        node.transactions.expire(node.now_ms)
        assert not adding.done()
        node.isr = (1,)
        await node.apply()
        assert await adding is ErrorCode.NONE
        await node.send("a", producer)
        node.now_ms += 1_001
        node.transactions.expire(node.now_ms)
        await node.settle()
        assert node.history(T0) == ["data", "abort"]

    run(story, tmp_path)


@pytest.mark.parametrize("is_being_written", [False, True])
def test_a_clock_that_is_set_ahead_ends_nothing_early_and_nothing_late(tmp_path: Path, is_being_written: bool) -> None:
    async def story(node: Node) -> None:
        await init(node, "idle")
        producer = await init(node, timeout_ms=10_000)
        assert await add(node, producer, 1) is ErrorCode.NONE
        if is_being_written:
            node.isr = (1, 2)
            await node.apply()
        adding = asyncio.ensure_future(add(node, producer, 0))
        await node.settle()
        if is_being_written:
            assert not adding.done()
        else:
            await adding
        node.now_ms += 2_000
        node.set_ahead_ms = 8 * 24 * 3_600_000
        node.transactions.expire(node.now_ms + node.set_ahead_ms)
        if is_being_written:
            node.isr = (1,)
            await node.apply()
        assert await adding is ErrorCode.NONE
        await node.send("a", producer)
        for waited_ms, history in ((8_000, ["data"]), (1, ["data", "abort"])):
            node.now_ms += waited_ms
            node.transactions.expire(node.now_ms + node.set_ahead_ms)
            await node.settle()
            assert node.history(T0) == history
        assert node.transactions.describe("idle") is not None

    run(story, tmp_path)


def test_a_coordinator_writes_whatever_size_its_topic_allows(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        open_one, late = await init(node, "open"), await init(node, "late", timeout_ms=1_000)
        for name, producer in (("open", open_one), ("late", late)):
            assert await add(node, producer, 0, name=name) is ErrorCode.NONE
            assert await node.send(name, producer) is ErrorCode.NONE
        node.most_bytes = 1
        await node.apply()
        assert await commit_offset(node, open_one, 5, name="open") is ErrorCode.NONE
        assert await end(node, open_one, name="open") is ErrorCode.NONE
        node.now_ms += 1_001
        node.transactions.expire(node.now_ms)
        await node.settle()
        assert node.history(T0) == ["data", "data", "commit", "abort"]
        assert node.committed("g") == {T0: 5}

    run(story, tmp_path)


def test_an_id_that_nobody_uses_is_forgotten_also_by_the_log(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        node.now_ms += 3_600_000
        node.transactions.expire(node.now_ms)
        await node.settle()
        assert node.transactions.known_ids() == []
        assert await add(node, producer, 0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        await node.lead_again(STATE_TOPIC)
        assert node.transactions.known_ids() == []
        assert (await init(node))[0] != producer[0]

    run(story, tmp_path)


def test_ids_of_a_partition_that_is_not_loaded_yet_are_not_left_out_of_the_list(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        await init(node)
        node.leaders[STATE_TOPIC] = (2, 2)
        await node.apply()
        assert node.transactions.known_ids() == []
        node.leaders[STATE_TOPIC] = (1, 3)
        node.version += 1
        image = node.image()
        changed = node.partitions.switch(image, node.partitions.prepare(image))
        with pytest.raises(ApiError) as caught:
            node.transactions.known_ids()
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        node.transactions.image_applied(changed)
        await asyncio.gather(*node.transactions._tasks._running)
        assert [one.transactional_id for one in node.transactions.known_ids()] == ["a"]

    run(story, tmp_path)


def test_the_next_coordinator_goes_on_with_open_transactions_and_ends_decided_ones(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        open_one, decided = await init(node, "open"), await init(node, "decided")
        await add(node, open_one, 0, name="open")
        await node.send("open", open_one)
        await add(node, decided, 1, name="decided")
        await node.send("decided", decided, partition=1)
        node.leaders["t"] = (2, 2)
        await node.apply()
        assert await end(node, decided, name="decided") is ErrorCode.NONE, "decided, while nobody takes the marker"
        await node.lead_again(STATE_TOPIC)
        await node.lead_again("t")
        for _ in range(3):
            await asyncio.sleep(0.1)  # markers are sent again
        await node.settle()
        assert node.history(T1) == ["data", "commit"]
        assert await node.send("open", open_one, 1) is ErrorCode.NONE
        assert await end(node, open_one, name="open") is ErrorCode.NONE
        assert node.history(T0) == ["data", "data", "commit"]

    run(story, tmp_path)


def restored(node: Node) -> None:
    """Raise the leader epoch of the topic of ids as a restoration of the metadata does."""
    leader, epoch = node.leaders[STATE_TOPIC]
    node.leaders[STATE_TOPIC] = (leader, epoch + EPOCH_MARGIN)


def test_restored_metadata_fences_the_producers_of_before_and_keeps_what_is_decided(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producers = {}
        for name, partition in (("idle", 0), ("open", 0), ("decided", 1)):
            producers[name] = await init(node, name)
            assert await add(node, producers[name], partition, name=name) is ErrorCode.NONE
            assert await node.send(name, producers[name], partition=partition) is ErrorCode.NONE
        assert await end(node, producers["idle"], name="idle") is ErrorCode.NONE
        node.leaders["t"] = (NO_LEADER, 2)
        await node.apply()
        assert await end(node, producers["decided"], name="decided") is ErrorCode.NONE
        node.leaders["t"] = (1, 3)
        restored(node)
        await node.lead_again(STATE_TOPIC)
        await settled(node, lambda: node.history(T1) == ["data", "commit"])  # found in a thread
        assert node.history(T0) == ["data", "data", "commit", "abort"]
        for name, before in producers.items():
            assert await add(node, before, 0, name=name) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            assert await node.send(name, before, 1, partition=1) is not ErrorCode.NONE
            producer_id, epoch = await init(node, name)
            assert producer_id not in {one for one, _ in producers.values()}
            assert await add(node, (producer_id, epoch), 1, name=name) is ErrorCode.NONE
        # What was replaced once stays: another coordinator of the same cluster changes nothing.
        known = {name: node.transactions.describe(name) for name in producers}
        await node.lead_again(STATE_TOPIC)
        assert {name: node.transactions.describe(name) for name in producers} == known

    run(story, tmp_path)


def test_an_open_transaction_of_an_epoch_that_a_restoration_lost_ends_too(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        first = await init(node)
        assert await add(node, first, 0) is ErrorCode.NONE
        known = node.log((STATE_TOPIC, node.transactions.topic.partition_of("a")))
        end_offset = known.log_end_offset
        assert await node.send("a", first) is ErrorCode.NONE
        assert await init_until_done(node) == (first[0], 2)
        assert await add(node, (first[0], 2), 0) is ErrorCode.NONE
        assert await node.send("a", (first[0], 2)) is ErrorCode.NONE
        known.truncate_to(end_offset)
        known.high_watermark = end_offset
        restored(node)
        await node.lead_again(STATE_TOPIC)
        assert node.history(T0) == ["data", "abort", "data", "abort"]

    run(story, tmp_path)


async def decide_without_marker(node: Node, producer: Producer) -> None:
    """Commit while nobody takes the marker of topic `t`."""
    leader, epoch = node.leaders["t"]
    node.leaders["t"] = (NO_LEADER, epoch + 1)
    await node.apply()
    assert await end(node, producer) is ErrorCode.NONE
    node.leaders["t"] = (leader, epoch + 2)


@pytest.mark.parametrize("has_later_epoch", [False, True], ids=["same_epoch", "later_epoch"])
def test_what_began_after_the_last_decision_that_a_restoration_kept_is_aborted(
    tmp_path: Path, has_later_epoch: bool
) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        known = node.log((STATE_TOPIC, node.transactions.topic.partition_of("a")))
        assert await add(node, producer, 0) is ErrorCode.NONE
        assert await node.send("a", producer) is ErrorCode.NONE
        assert await end(node, producer) is ErrorCode.NONE
        assert await add(node, producer, 0) is ErrorCode.NONE
        assert await node.send("a", producer, 1) is ErrorCode.NONE
        assert await commit_offset(node, producer, 5) is ErrorCode.NONE
        await decide_without_marker(node, producer)
        decided_offset = known.log_end_offset
        await node.apply()
        await asyncio.sleep(0.2)  # the marker is sent again
        await node.settle()
        assert node.history(T0) == ["data", "commit"] * 2
        if has_later_epoch:
            producer = await init(node)
        assert await add(node, producer, 0) is ErrorCode.NONE
        assert await node.send("a", producer, 0 if has_later_epoch else 2) is ErrorCode.NONE
        assert await commit_offset(node, producer, 9) is ErrorCode.NONE
        known.truncate_to(decided_offset)
        known.high_watermark = decided_offset
        restored(node)
        await node.lead_again(STATE_TOPIC)
        await ended(node)
        assert node.history(T0) == ["data", "commit", "data", "commit", "data", "abort"]
        assert node.committed("g") == {T0: 5}
        assert await stable_offset(node) == 5
        assert await add(node, producer, 0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await add(node, await init_until_done(node), 0) is ErrorCode.NONE

    run(story, tmp_path)


def test_what_is_decided_and_has_no_marker_yet_is_committed_after_a_restoration(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        for sequence in range(2):  # of one epoch: only the time of the decision tells their markers apart
            assert await add(node, producer, 0) is ErrorCode.NONE
            assert await node.send("a", producer, sequence) is ErrorCode.NONE
            if sequence == 0:
                assert await end(node, producer) is ErrorCode.NONE
        await decide_without_marker(node, producer)
        restored(node)
        await node.lead_again(STATE_TOPIC)
        await ended(node)
        assert node.history(T0) == ["data", "commit", "data", "commit"]

    run(story, tmp_path)


def test_ids_of_before_a_restoration_are_being_loaded_until_they_have_another_producer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "FILL_RETRY_S", 0.0)

    async def story(node: Node) -> None:
        before = await init(node)
        node.has_ids = False
        restored(node)
        node.leaders[STATE_TOPIC] = (2, node.leaders[STATE_TOPIC][1])
        await node.apply()
        node.leaders[STATE_TOPIC] = (1, node.leaders[STATE_TOPIC][1] + 1)
        applying = asyncio.create_task(node.apply())
        await node.settle()
        assert await add(node, before, 0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with pytest.raises(ApiError):
            node.transactions.known_ids()
        await applying
        await node.settle()
        assert await add(node, before, 0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        node.has_ids = True
        async with asyncio.timeout(60):
            while (code := await add(node, before, 0)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                await asyncio.sleep(0.001)
        assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    run(story, tmp_path)


@pytest.mark.parametrize(
    ("leader_epochs", "first"),
    [
        ((3,), -1),
        ((0, 3, 3 + 5_000), -1),  # elections without a write
        ((3, 3 + EPOCH_MARGIN), 3 + EPOCH_MARGIN),
        ((3, 2 * EPOCH_MARGIN, 2 * EPOCH_MARGIN + 1, 5 * EPOCH_MARGIN, 5 * EPOCH_MARGIN + 1), 5 * EPOCH_MARGIN),
        ((3, 2 * EPOCH_MARGIN, 2 * EPOCH_MARGIN + 1), 2 * EPOCH_MARGIN),
    ],
)
def test_a_gap_of_leader_epochs_tells_of_a_restoration(leader_epochs: Sequence[int], first: int) -> None:
    assert shard.restored_epoch(leader_epochs) == first


def test_a_coordinator_that_may_be_deposed_answers_nothing_from_memory(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        ended, begun = await init(node, "ended"), await init(node, "begun")
        await add(node, ended, 0, name="ended")
        assert await end(node, ended, name="ended") is ErrorCode.NONE
        await add(node, begun, 0, name="begun")

        async def ask() -> set[ErrorCode]:
            return {
                await end(node, ended, name="ended"),
                await add(node, begun, 0, name="begun"),
                await end(node, (begun[0], begun[1] - 1), name="begun"),
                await end(node, ended, name="unknown"),
            }

        told = {ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        assert await ask() == told
        node.isr = (1, 2)
        await node.apply()
        assert await ask() == {ErrorCode.NOT_COORDINATOR}, "broker 2 is silent, and may have been elected"
        for _ in range(2):
            for number in (0, 1):
                node.fetched((STATE_TOPIC, number))
        assert await ask() == told
        node.now_ms += TOUCH_MS + 1
        assert await ask() == {ErrorCode.NOT_COORDINATOR}

    run(story, tmp_path)


def test_a_marker_that_was_sent_under_another_leader_epoch_is_refused(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        await node.send("a", producer)
        late = MarkerWish(node.topic_ids["t"], 0, 1, *producer, 1, True)
        await node.lead_again("t")
        assert await node.ends.write([late]) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert node.history(T0) == ["data"]

    run(story, tmp_path)


def test_markers_of_stuck_partitions_hold_up_no_answer_beyond_its_time(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.isr = (1, 2)
        await node.apply()
        wishes = [MarkerWish(node.topic_ids["t"], one, 1, 4_000 + one, 0, 1, True) for one in (0, 0, 1)]
        answer = asyncio.ensure_future(node.ends.write(wishes))
        await node.settle()
        node.fetched(T1)
        await node.settle()
        assert not answer.done()
        node.now_ms += MARKER_TIMEOUT_MS
        node.acknowledgements._time_is_up()
        await node.settle()
        assert answer.done(), "all wait at the same time"
        assert answer.result() == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
        assert MARKER_TIMEOUT_MS < TIMEOUT_S * 1_000

    run(story, tmp_path)


class SomeStuck:
    """In place of `TransactionEnds`: the partition t-0 is stuck."""

    def __init__(self) -> None:
        self.rounds: list[list[MarkerWish]] = []
        self.may_answer = asyncio.Event()

    async def write(self, wishes: Sequence[MarkerWish]) -> list[ErrorCode]:
        await self.may_answer.wait()
        self.may_answer.clear()
        self.rounds.append(list(wishes))
        return [ErrorCode.REQUEST_TIMED_OUT if one.partition == 0 else ErrorCode.NONE for one in wishes]


def test_markers_that_fail_take_turns_and_leave_room_for_fresh_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "MAX_MARKERS", 3)
    monkeypatch.setattr(markers, "MAX_AGAIN", 1)
    monkeypatch.setattr(markers, "RETRY_S", 0)

    async def story(node: Node) -> None:
        ends = SomeStuck()
        monkeypatch.setattr(node.markers, "_ends", ends)

        async def decide(partition: int, *names: str) -> list[int]:
            producers = []
            for name in names:
                producer = await init(node, name)
                await add(node, producer, partition, name=name)
                assert await end(node, producer, name=name) is ErrorCode.NONE
                producers.append(producer[0])
            return producers

        async def next_round() -> list[int]:
            count = len(ends.rounds)
            ends.may_answer.set()
            while len(ends.rounds) == count:
                await node.settle()
            await node.settle()
            return [one.producer_id for one in ends.rounds[-1]]

        a, b, c, d = await decide(0, "a", "b", "c", "d")
        assert await next_round() == [a]
        assert await next_round() == [b, c, a], "it was the only one that was known when this began"
        x, y, z = await decide(1, "x", "y", "z")
        assert await next_round() == [d, b, c]
        assert await next_round() == [x, y, a]
        assert await next_round() == [z, d, b]
        assert await next_round() == [c, a, d]
        assert {one.metadata.state for one in node.transactions.known_ids() if one.transactional_id in "xyz"} == {
            TransactionState.COMPLETE_COMMIT
        }

    run(story, tmp_path)


def test_the_end_of_a_transaction_does_not_wait_for_a_topic_that_is_gone(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        await node.send("a", producer)
        del node.topic_ids["t"]
        await node.apply()
        assert await end(node, producer) is ErrorCode.NONE
        found = node.transactions.describe("a")
        assert found is not None
        assert found.state is TransactionState.COMPLETE_COMMIT

    run(story, tmp_path)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("is_loaded_again", [False, True])
def test_offsets_count_once_their_transaction_is_committed(
    tmp_path: Path, is_commit: bool, is_loaded_again: bool
) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        assert await commit_offset(node, producer, 5) is ErrorCode.NONE
        assert await commit_pending(node, producer, 6) is ErrorCode.NONE, "no repetition"
        if is_loaded_again:
            await node.lead_again(OFFSETS_TOPIC)
        assert node.committed("g") == {}
        assert await stable_offset(node) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await end(node, producer, is_commit=is_commit) is ErrorCode.NONE
        assert node.committed("g") == ({T0: 6} if is_commit else {})
        assert await stable_offset(node) == (6 if is_commit else -1)
        await node.lead_again(OFFSETS_TOPIC)
        assert node.committed("g") == ({T0: 6} if is_commit else {}), "the log says the same"

    run(story, tmp_path)


def test_of_two_offsets_the_one_whose_record_is_later_counts_whenever_its_transaction_ends(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        first, second = await init(node, "a"), await init(node, "b")
        assert await commit_offset(node, first, 5, name="a") is ErrorCode.NONE
        assert await commit_offset(node, second, 9, name="b") is ErrorCode.NONE
        assert await end(node, second, name="b") is ErrorCode.NONE
        assert await stable_offset(node) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await end(node, first, name="a") is ErrorCode.NONE
        assert node.committed("g") == {T0: 9}
        await node.lead_again(OFFSETS_TOPIC)
        assert node.committed("g") == {T0: 9}

    run(story, tmp_path)


def test_a_member_of_another_generation_commits_nothing_in_its_transaction(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        code = await commit_offset(node, producer, 5, generation=3, member="m")
        assert code is ErrorCode.ILLEGAL_GENERATION
        assert await end(node, producer) is ErrorCode.NONE
        assert node.committed("g") == {}

    run(story, tmp_path)


def test_offsets_of_a_transaction_that_does_not_have_their_group_are_refused(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        assert await commit_pending(node, producer, 5) is ErrorCode.INVALID_TXN_STATE
        assert await end(node, producer) is ErrorCode.NONE
        assert await commit_pending(node, producer, 5) is ErrorCode.INVALID_TXN_STATE
        assert node.committed("g") == {}
        assert node.history((OFFSETS_TOPIC, node.groups.topic.partition_of("g"))) == []

    run(story, tmp_path)


@pytest.mark.parametrize("api", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT])
def test_thousands_of_partitions_are_looked_at_with_turns_for_others(tmp_path: Path, api: ApiKey) -> None:
    numbers = list(range(2 * PART_ELEMENTS))

    async def story(node: Node) -> None:
        producer_id, epoch = await init(node)
        producer: dict[str, Any] = {"transactional_id": "a", "producer_id": producer_id, "producer_epoch": epoch}
        request: Request = AddPartitionsToTxnRequest(
            topics=[TransactionTopic(name="t", partitions=numbers)], **producer
        )
        if api is ApiKey.TXN_OFFSET_COMMIT:
            offsets = [TxnOffset(partition_index=one, committed_offset=7) for one in numbers]
            topics = [TxnOffsetTopic(name="t", partitions=offsets)]
            request = TxnOffsetCommitRequest(group_id="g", topics=topics, **producer)
        _, handler = TRANSACTION_APIS[api]
        steps = handler(node.cluster, request, Caller("c", Session(client_host="h", listener_name="client"), 3))
        assert isinstance(steps, Steps)
        answer: Any = await steps
        if api is ApiKey.TXN_OFFSET_COMMIT:
            found = {one.partition_index: one.error_code for one in answer.topics[0].partitions}
        else:
            rows = answer.results_by_topic[0].results_by_partition
            found = {one.partition_index: one.partition_error_code for one in rows}
        assert list(found) == numbers
        assert found[0] not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "it goes with the others"
        assert {found[one] for one in numbers[2:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run(story, tmp_path)

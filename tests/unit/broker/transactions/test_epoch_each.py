"""Transactions that have an epoch each, at one broker that coordinates them and leads their partitions."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from pylog.errors import ErrorCode
from pylog.group.records import TOPIC as OFFSETS_TOPIC
from pylog.transaction.state import MAX_EPOCH, Transaction
from pylog.wire.api.producers import InitProducerIdRequest
from pylog.wire.api.transactions import EndTxnRequest, TxnOffset, TxnOffsetCommitRequest, TxnOffsetTopic
from pylog.wire.internal import MarkerWish, Verification
from tests.unit.broker.transactions.node import EPOCH_EACH_VERSION, IDS, Node

Producer = tuple[int, int]
T0, T1 = ("t", 0), ("t", 1)
ID = "a"


async def init(node: Node) -> Producer:
    answer = await node.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 4)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer.producer_id, answer.producer_epoch


async def send(node: Node, producer: Producer, sequence: int = 0, partition: int = 0) -> ErrorCode:
    return await node.send(ID, producer, sequence, partition=partition, version=EPOCH_EACH_VERSION)


async def end(node: Node, producer: Producer, *, is_commit: bool = True, version: int = 5) -> Producer | ErrorCode:
    """Return id and epoch of the next transaction, or the error."""
    request = EndTxnRequest(
        transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], committed=is_commit
    )
    answer = await node.ask(request, version)
    return ErrorCode(answer.error_code) if answer.error_code else (answer.producer_id, answer.producer_epoch)


async def commit_offset(node: Node, producer: Producer, offset: int) -> ErrorCode:
    answer = await node.ask(
        TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id="g",
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[TxnOffsetTopic(name="t", partitions=[TxnOffset(partition_index=0, committed_offset=offset)])],
        ),
        5,
    )
    await node.settle()
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def transaction(node: Node) -> Transaction:
    [found] = [shard.ids[ID] for shard in node.transactions._shards.values() if ID in shard.ids]
    return found


async def ended(node: Node) -> None:
    """Wait for the end of what is decided."""
    async with asyncio.timeout(60):
        while transaction(node).pending is not None or transaction(node).unmarked:
            await asyncio.sleep(0.001)


def run(story: Callable[[Node], Awaitable[None]], directory: Path) -> None:
    async def main() -> None:
        node = Node(directory)
        await node.apply()
        try:
            await story(node)
        finally:
            await node.stop()

    asyncio.run(main())


def test_a_batch_begins_a_transaction_and_its_end_gives_the_next_epoch(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer_id, epoch = producer = await init(node)
        assert await send(node, producer) is ErrorCode.NONE
        assert await send(node, producer, 1) is ErrorCode.NONE
        assert await send(node, producer, partition=1) is ErrorCode.NONE
        following = await end(node, producer)
        assert following == (producer_id, epoch + 1)
        assert await end(node, producer) in (following, ErrorCode.CONCURRENT_TRANSACTIONS), "a retry"
        await ended(node)
        assert await end(node, producer) == following, "a retry"
        assert await send(node, following) is ErrorCode.NONE
        assert await end(node, following, is_commit=False) == (producer_id, epoch + 2)
        await ended(node)
        assert node.history(T0) == ["data", "data", "commit", "data", "abort"]
        assert node.history(T1) == ["data", "commit"]

    run(story, tmp_path)


def test_what_comes_right_behind_the_end_waits_until_the_transaction_before_is_complete(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.isr = (1, 2)
        await node.apply()
        keys = [(topic, number) for topic in IDS for number in (0, 1)]

        async def follow() -> None:
            while True:
                for key in keys:
                    node.fetched(key)
                await asyncio.sleep(0.002)

        following = asyncio.create_task(follow())
        producer = await init(node)
        for number in range(5):
            assert await send(node, producer) is ErrorCode.NONE
            told = await end(node, producer, is_commit=number != 3)
            assert isinstance(told, tuple)
            producer = told
        await ended(node)
        following.cancel()
        assert node.history(T0) == ["data", "commit"] * 3 + ["data", "abort", "data", "commit"]

    run(story, tmp_path)


def test_a_late_end_or_batch_does_nothing_to_the_next_transaction(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        former = await init(node)
        await send(node, former)
        following = await end(node, former)
        assert isinstance(following, tuple)
        assert await send(node, following) is ErrorCode.NONE
        assert await end(node, former, is_commit=False) is ErrorCode.PRODUCER_FENCED
        assert await send(node, former, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await send(node, former, partition=1) is ErrorCode.INVALID_PRODUCER_EPOCH, "of a partition that has none"
        assert await send(node, following, 1) is ErrorCode.NONE
        await end(node, following)
        await ended(node)
        assert node.history(T0) == ["data", "commit", "data", "data", "commit"]
        assert node.history(T1) == []

    run(story, tmp_path)


@pytest.mark.parametrize("is_known", [True, False], ids=["a partition that was added", "a topic that was made"])
def test_a_partition_of_which_the_coordinator_has_not_heard_is_not_added(tmp_path: Path, is_known: bool) -> None:
    """Its marker would be struck off as that of a deleted topic, and the records would wait for the next end."""

    async def story(node: Node) -> None:
        producer = await init(node)
        topic = node.partitions.image.topics["t"]
        unheard = (topic.name, 1_000, topic.topic_id) if is_known else ("later", 0, UUID(int=77))
        asked = Verification(ID, *producer, [unheard])
        assert await node.transactions.add_for_leader(asked) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        metadata = transaction(node).metadata
        assert metadata is not None
        assert metadata.partitions == frozenset()

    run(story, tmp_path)


def test_a_marker_that_comes_again_does_not_end_the_next_transaction(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        former = await init(node)
        await send(node, former)
        following = await end(node, former)
        assert isinstance(following, tuple)
        await ended(node)
        again = MarkerWish(node.topic_ids["t"], 0, 1, *following, 1, True, has_own_epoch=True)
        assert await node.ends.write([again]) == [ErrorCode.NONE], "as after another coordinator was elected"
        await send(node, following)
        assert await node.ends.write([again]) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert node.history(T0) == ["data", "commit", "commit", "data"]

    run(story, tmp_path)


def test_a_new_epoch_begins_with_the_first_sequence(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        assert await send(node, producer, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send(node, producer) is ErrorCode.NONE
        assert await send(node, producer, 1) is ErrorCode.NONE

    run(story, tmp_path)


def test_a_client_may_abort_without_knowing_what_was_added(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer_id, epoch = producer = await init(node)
        following = await end(node, producer, is_commit=False)
        assert following == (producer_id, epoch + 1)
        await ended(node)
        assert await end(node, (producer_id, epoch + 1)) is ErrorCode.INVALID_TXN_STATE, "nothing to commit"
        assert await send(node, (producer_id, epoch + 1)) is ErrorCode.NONE

    run(story, tmp_path)


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_begin_a_transaction_and_count_with_it(tmp_path: Path, is_commit: bool) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        for number in range(3):
            assert await commit_offset(node, producer, number) is ErrorCode.NONE
            told = await end(node, producer, is_commit=is_commit)
            assert isinstance(told, tuple)
            producer = told
        await ended(node)
        assert node.committed("g") == ({T0: 2} if is_commit else {})
        assert node.history((OFFSETS_TOPIC, node.groups.topic.partition_of("g"))) == [
            *("data", "commit" if is_commit else "abort") * 3
        ]

    run(story, tmp_path)


def test_after_the_last_epoch_the_next_transaction_has_another_producer_id(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer_id, _ = await init(node)
        metadata = transaction(node).metadata
        assert metadata is not None
        transaction(node).metadata = replace(metadata, producer_epoch=MAX_EPOCH - 1)
        last = producer_id, MAX_EPOCH - 1
        assert await send(node, last) is ErrorCode.NONE
        following = await end(node, last)
        assert isinstance(following, tuple)
        assert following[0] != producer_id
        assert following[1] == 0
        assert await send(node, following) is ErrorCode.NONE
        assert await end(node, following) == (following[0], 1)
        await ended(node)
        assert node.history(T0) == ["data", "commit", "data", "commit"]

    run(story, tmp_path)


def test_a_transaction_that_is_open_for_too_long_ends_under_an_epoch_of_the_coordinator(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        await send(node, producer)
        node.now_ms += 60_001
        node.transactions.expire(node.now_ms)
        await ended(node)
        assert await end(node, producer) is not None
        assert await send(node, producer, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        producer_id, epoch = heir = await init(node)
        assert (producer_id, epoch) == (producer[0], producer[1] + 2)
        assert await send(node, heir) is ErrorCode.NONE
        assert await end(node, heir) == (producer_id, epoch + 1)
        await ended(node)
        assert node.history(T0) == ["data", "abort", "data", "commit"]

    run(story, tmp_path)


def test_a_client_that_goes_back_to_the_classic_protocol_ends_what_leaders_added(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        await send(node, producer)
        assert await end(node, producer, version=4) == producer, "no epoch is used up"
        await ended(node)
        assert node.history(T0) == ["data", "commit"]

    run(story, tmp_path)


def test_the_next_coordinator_knows_the_epoch_of_the_next_transaction(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        producer = await init(node)
        await send(node, producer)
        following = await end(node, producer)
        assert isinstance(following, tuple)
        await ended(node)
        await node.lead_again(*IDS)
        assert await end(node, producer) == following, "a retry"
        assert await send(node, following) is ErrorCode.NONE
        await node.lead_again(*IDS)
        assert await end(node, following) == (following[0], following[1] + 1)
        await ended(node)
        assert node.history(T0) == ["data", "commit", "data", "commit"]

    run(story, tmp_path)

"""Committed offsets change in the order of the log, whatever the order in which requests that wait are answered."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pylog.broker.data.partitions import Moved
from pylog.broker.groups.offsets import FORGET_REST_MS
from pylog.broker.groups.shard import Shard
from pylog.errors import ErrorCode
from pylog.group.records import CommittedOffset, OffsetKey
from pylog.wire.markers import Marker, encode_marker
from pylog.wire.records import parse_header
from tests.unit.broker.groups.test_loading_groups import COMMITTED, Coordinating, records_of

TIME_IS_UP = 6_000


class Waiting(Coordinating):
    """A coordinator whose follower replicates nothing, so that what is written waits for it."""

    async def begin(self) -> None:
        await self.lead(isr=(1, 2), min_isr=1)
        self.fetched(2, 1)
        assert self.offset() == 5

    async def wait(self, written: Any) -> "asyncio.Task[ErrorCode]":
        """Let a write wait for the follower."""
        assert not isinstance(written, ErrorCode)
        waiting: asyncio.Task[ErrorCode] = asyncio.ensure_future(written)
        await asyncio.sleep(0)
        assert not waiting.done()
        return waiting

    async def time_is_up(self, written: Any) -> ErrorCode:
        """Let a write wait for the follower longer than it may, and return what it ends with."""
        waiting = await self.wait(written)
        self.acknowledgements._now_ms = lambda: TIME_IS_UP
        self.acknowledgements._time_is_up()
        return await waiting

    async def lead_again(self) -> None:
        """Lead the partition once more, after another broker: groups are loaded from the log."""
        await self.apply(2, 2, (1, 2), 1)
        await self.apply(1, 3, (1,), 1)

    def commit(self, offset: int) -> Any:
        return self.groups.commit("g", {COMMITTED: CommittedOffset(offset)})

    def shrink(self) -> None:
        """Let the follower leave the ISR: everything is on all replicas in sync, and who waited is woken up."""
        self.version += 1
        self.switch(self.image(1, 1, (1,), 1))
        self.partitions.advance(self.partition)
        self.acknowledgements.moved(self.partition.key, Moved.HIGH_WATERMARK)


def run(story: Callable[[Waiting], Awaitable[None]], directory: Path) -> None:
    async def main() -> None:
        waiting = Waiting(directory)
        await waiting.begin()
        await story(waiting)

    asyncio.run(main())


def test_a_commit_that_waited_does_not_undo_a_later_one_that_need_not_wait(tmp_path: Path) -> None:
    async def story(one: Waiting) -> None:
        first = await one.wait(one.commit(10))
        one.shrink()
        assert not first.done(), "its coroutine has its turn after this one"
        assert one.commit(20) is ErrorCode.NONE
        assert one.offset() == 20
        assert await first is ErrorCode.NONE
        assert one.offset() == 20

    run(story, tmp_path)


def test_a_commit_that_waited_does_not_undo_a_later_deletion(tmp_path: Path) -> None:
    async def story(one: Waiting) -> None:
        first = await one.wait(one.commit(10))
        one.shrink()
        assert await one.groups.delete_offsets("g", [COMMITTED]) is ErrorCode.NONE
        assert await first is ErrorCode.NONE
        assert one.offset() == -1
        assert records_of(one)[-1] == (OffsetKey("g", *COMMITTED), True)

    run(story, tmp_path)


def test_a_deletion_that_waited_does_not_undo_a_later_commit(tmp_path: Path) -> None:
    async def story(one: Waiting) -> None:
        first = await one.wait(one.groups.delete_offsets("g", [COMMITTED]))
        one.shrink()
        assert one.commit(20) is ErrorCode.NONE
        assert await first is ErrorCode.NONE
        assert one.offset() == 20

    run(story, tmp_path)


def test_a_group_that_commits_while_it_is_deleted_keeps_that_commit(tmp_path: Path) -> None:
    async def story(one: Waiting) -> None:
        before = await one.wait(one.commit(10))
        first = await one.wait(one.groups.delete("g"))
        one.shrink()
        assert one.commit(20) is ErrorCode.NONE
        assert await first is await before is ErrorCode.NONE
        assert one.offset() == 20
        assert one.groups.group("g") is not None
        await one.lead_again()
        assert one.offset() == 20, "the log says the same"

    run(story, tmp_path)


def test_a_deleted_group_takes_with_it_what_it_committed_just_before(tmp_path: Path) -> None:
    async def story(one: Waiting) -> None:
        before = await one.wait(one.commit(10))
        first = await one.wait(one.groups.delete("g"))
        one.shrink()
        assert await first is await before is ErrorCode.NONE
        assert one.offset() == -1
        assert one.groups.group("g") is None

    run(story, tmp_path)


def test_a_commit_whose_time_is_up_counts_once_a_later_write_is_everywhere(tmp_path: Path) -> None:
    async def story(one: Waiting) -> None:
        assert await one.time_is_up(one.commit(10)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert one.offset() == 5, "nobody knows whether it lasts"
        one.shrink()
        assert one.groups.commit("g", {("t", 1): CommittedOffset(7)}) is ErrorCode.NONE
        assert one.offset() == 10, "the log has it before the commit of the other partition"
        await one.lead_again()
        assert one.offset() == 10, "and tells the next coordinator the same"

    run(story, tmp_path)


def test_a_group_deletion_whose_time_is_up_counts_once_a_later_write_is_everywhere(tmp_path: Path) -> None:
    async def story(one: Waiting) -> None:
        assert await one.time_is_up(one.groups.delete("g")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert one.offset() == 5, "nobody knows whether it lasts"
        one.shrink()
        assert one.groups.commit("g", {("t", 1): CommittedOffset(7)}) is ErrorCode.NONE
        assert one.offset() == -1
        await one.lead_again()
        assert one.offset() == -1
        assert one.groups.offsets("g")["t", 1].offset == 7

    run(story, tmp_path)


def test_a_topic_made_again_does_not_take_along_the_commit_that_waits_for_it(tmp_path: Path) -> None:
    async def story(one: Waiting) -> None:
        one.read_id = UUID(int=7)
        one.version += 1
        image = one.image(1, 1, (1, 2), 1)
        gone = one.partitions.retire(image)
        changed = one.partitions.switch(image, one.partitions.prepare(image))
        first = await one.wait(one.commit(20))  # of the new topic, before the groups were told of it
        one.groups.image_applied(gone + changed)
        assert one.offset() == -1, "5 was committed for the former topic"
        one.shrink()
        assert await first is ErrorCode.NONE
        one.groups.expire(10 * FORGET_REST_MS)
        assert one.offset() == 20
        assert records_of(one)[-1] == (OffsetKey("g", *COMMITTED), False)

    run(story, tmp_path)


def append_marker(one: Coordinating, producer_id: int, *, is_commit: bool) -> None:
    """End a transaction where nobody has to be waited for."""
    marker = Marker(is_commit, coordinator_epoch=0)
    batch = memoryview(bytearray(encode_marker(producer_id, 0, marker, 0)))
    log = one.partition.log
    assert log is not None
    _, wait = one.partitions.append(one.partition, log, batch, parse_header(batch), 0, -1, marker)
    assert wait is None
    one.groups.end_transaction(0, producer_id, is_commit=is_commit, wait=None)


class InTransactions(Coordinating):
    """A coordinator alone in sync, to which producers commit offsets within transactions."""

    def pend(self, offset: int, producer_id: int) -> None:
        committed = {COMMITTED: CommittedOffset(offset, 0, "")}
        assert self.groups.commit_pending("g", committed, producer_id, 0) is ErrorCode.NONE

    def end(self, producer_id: int, *, is_commit: bool = True) -> None:
        append_marker(self, producer_id, is_commit=is_commit)

    async def make_topic_again(self, number: int = 7) -> None:
        self.read_id = UUID(int=number)
        await self.apply(1, 1, (1,), 1)

    async def lead_again(self, epoch: int = 3) -> None:
        await self.apply(2, epoch - 1, (1, 2), 1)
        await self.apply(1, epoch, (1,), 1)


@pytest.mark.parametrize("is_commit", [True, False], ids=["committed", "aborted"])
def test_the_deletion_of_a_former_topic_s_offset_waits_for_the_transaction_that_has_committed_there(
    tmp_path: Path, is_commit: bool
) -> None:
    """The topic's nodes are gone at first, so that its offset stays in the log; then it is made again."""

    async def main() -> None:
        one = InTransactions(tmp_path)
        await one.apply(2, 0, (1, 2), 1)
        one.copy_commit(topic_id=UUID(int=6))
        one.read_id = None
        await one.apply(1, 1, (1,), 1)
        await one.make_topic_again()
        one.pend(20, 1)
        await one.lead_again()
        one.groups.expire(FORGET_REST_MS)
        assert [is_deletion for _, is_deletion in records_of(one)] == [False, False]
        one.end(1, is_commit=is_commit)
        one.groups.expire(2 * FORGET_REST_MS)
        assert one.offset() == (20 if is_commit else -1)
        await one.lead_again(5)
        assert one.offset() == (20 if is_commit else -1), "the log tells the next coordinator the same"
        assert sum(is_deletion for _, is_deletion in records_of(one)) == (0 if is_commit else 1)

    asyncio.run(main())


def test_an_orphaned_commit_of_one_transaction_deletes_no_pending_one_of_another(tmp_path: Path) -> None:
    async def main() -> None:
        one = InTransactions(tmp_path)
        await one.lead(isr=(1,), min_isr=1)
        one.pend(10, 1)
        await one.make_topic_again()
        one.pend(20, 2)
        one.end(1)
        one.groups.expire(FORGET_REST_MS)
        one.end(2)
        one.groups.expire(2 * FORGET_REST_MS)
        assert one.offset() == 20
        await one.lead_again()
        assert one.offset() == 20

    asyncio.run(main())


def test_a_commit_that_is_replicated_late_deletes_no_pending_one_for_the_topic_made_again(tmp_path: Path) -> None:
    async def story(one: Waiting) -> None:
        late = await one.wait(one.commit(10))
        one.read_id = UUID(int=7)
        one.version += 1
        one.switch(one.image(1, 1, (1, 2), 1))
        pending = await one.wait(
            one.groups.commit_pending("g", {COMMITTED: CommittedOffset(20, 0, "")}, producer_id=1, producer_epoch=0)
        )
        one.shrink()
        assert await late is await pending is ErrorCode.NONE
        one.groups.expire(10 * FORGET_REST_MS)
        append_marker(one, 1, is_commit=True)
        assert one.offset() == 20
        await one.lead_again()
        assert one.offset() == 20

    run(story, tmp_path)


def test_offsets_of_former_topics_are_deleted_in_batches_that_the_log_takes(tmp_path: Path) -> None:
    async def main() -> None:
        one = Coordinating(tmp_path)
        await one.lead(isr=(1,), min_isr=1)
        names = [f"{number:04d}{'n' * 240}" for number in range(4_500)]
        offsets = one.groups._shard_of("g").offsets
        offsets.by_group["g" * 1_000] = {(name, 0): CommittedOffset(1, topic_id=UUID(int=8)) for name in names}
        one.deleted_id = UUID(int=8)
        one.version += 1
        one.switch(one.image(1, 1, (1,), 1))
        offsets.drop_orphans()
        for turn in range(1, 100):
            one.groups.expire(turn * FORGET_REST_MS)
        assert sum(is_deletion for _, is_deletion in records_of(one)) == len(names)

    asyncio.run(main())


MANY = 9_000
"""Offsets whose deletion, like their commit, does not fit into one batch."""


class Full(Coordinating):
    """A coordinator alone in sync, one of whose groups has committed more than one batch can delete."""

    async def begin(self) -> None:
        await self.lead(isr=(1,), min_isr=1)
        for first in range(0, MANY, 1_000):
            keys = [(f"{'t' * 100}-{number}", 0) for number in range(first, first + 1_000)]
            self.shard.offsets.by_group.setdefault("g", {}).update(dict.fromkeys(keys, CommittedOffset(1)))

    @property
    def shard(self) -> Shard:
        return self.groups._shard_of("g")


def test_a_group_with_more_offsets_than_a_batch_takes_is_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        one = Full(tmp_path)
        await one.begin()
        assert await one.groups.delete("g") is ErrorCode.NONE
        assert one.groups.group("g") is None
        assert not one.groups.offsets("g")

    asyncio.run(main())


def test_a_commit_that_no_batch_takes_is_refused_for_good(tmp_path: Path) -> None:
    async def main() -> None:
        one = Full(tmp_path)
        await one.begin()
        offsets = {(f"{'t' * 100}-{number}", 0): CommittedOffset(1) for number in range(MANY)}
        assert one.groups.commit("g", offsets) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE

    asyncio.run(main())

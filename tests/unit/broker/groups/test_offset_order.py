"""Committed offsets change in the order of the log, whatever the order in which requests that wait are answered."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from pylog.broker.data.partitions import Moved
from pylog.broker.groups.offsets import FORGET_REST_MS
from pylog.broker.groups.shard import Shard
from pylog.errors import ErrorCode
from pylog.group.records import CommittedOffset, OffsetKey
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

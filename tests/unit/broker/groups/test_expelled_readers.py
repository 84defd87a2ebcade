"""Members of a group that go on while a topic that they read is deleted and made again under the same name."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pylog.errors import ErrorCode
from pylog.group.records import CommittedOffset
from pylog.group.state import State
from tests.kafka_client import Membership, subscription
from tests.unit.broker.groups.test_loading_groups import COMMITTED, Coordinating

DELAY_MS = 3_000
SESSION_MS = 60_000
FORMER, NEXT = UUID(int=6), UUID(int=7)


async def reading(
    directory: Path,
    metadata: bytes,
    protocol_type: str = "consumer",
    instance_id: str | None = None,
    topic_id: UUID | None = FORMER,
    level: int = 3,
) -> tuple[Coordinating, Membership]:
    """Return a coordinator, and the only member of a group that it keeps, in a stable generation."""
    coordinating = Coordinating(directory)
    coordinating.read_id, coordinating.level = topic_id, level
    await coordinating.apply(1, 1, (1,), min_isr=1)
    membership = Membership("g", "range", SESSION_MS, SESSION_MS, protocol_type, instance_id=instance_id)
    joining = asyncio.ensure_future(coordinating.groups.join(membership.join(metadata), "client", "host", 0))
    await asyncio.sleep(0)
    coordinating.now_ms += DELAY_MS
    coordinating.groups.end_late(coordinating.now_ms)
    joined: Any = await joining
    membership.member_id, membership.generation = joined.member_id, joined.generation_id
    synced: Any = await coordinating.groups.sync(
        membership.sync(joined.generation_id, {membership.member_id: b"partition 0"})
    )
    assert synced.error_code is ErrorCode.NONE
    return coordinating, membership


async def remake(coordinating: Coordinating, topic_id: UUID | None = NEXT) -> None:
    coordinating.read_id = topic_id
    await coordinating.apply(1, 1, (1,), min_isr=1)


def fault(coordinating: Coordinating, membership: Membership) -> ErrorCode:
    """Return why the member may not commit, or NONE."""
    return coordinating.groups.commit_fault("g", membership.member_id, membership.instance_id, membership.generation)


@pytest.mark.parametrize("topic_id", [None, NEXT], ids=["deleted", "made again"])
@pytest.mark.parametrize("instance_id", [None, "one"], ids=["dynamic", "static"])
def test_a_position_in_the_former_topic_is_not_committed(
    tmp_path: Path, topic_id: UUID | None, instance_id: str | None
) -> None:
    async def story() -> None:
        coordinating, membership = await reading(tmp_path, subscription("t"), instance_id=instance_id)
        assert fault(coordinating, membership) is ErrorCode.NONE
        await remake(coordinating, topic_id)
        assert fault(coordinating, membership) is ErrorCode.UNKNOWN_MEMBER_ID
        heartbeat = coordinating.groups.heartbeat("g", membership.member_id, instance_id, membership.generation)
        assert heartbeat is ErrorCode.UNKNOWN_MEMBER_ID, "the member hears of it"
        group = coordinating.groups.group("g")
        assert group is not None
        assert group.state is State.EMPTY

    asyncio.run(story())


def test_a_member_that_waits_for_its_assignment_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating, membership = await reading(tmp_path, subscription("t"))
        joining = asyncio.ensure_future(
            coordinating.groups.join(membership.join(subscription("t", "more")), "client", "host", 0)
        )
        await asyncio.sleep(0)
        joined: Any = await joining
        other = Membership("g", "range", SESSION_MS, SESSION_MS)
        waiting = asyncio.ensure_future(coordinating.groups.join(other.join(subscription("other")), "c", "h", 0))
        await asyncio.sleep(0)
        membership.generation = joined.generation_id
        rejoining = asyncio.ensure_future(coordinating.groups.join(membership.join(subscription("t")), "c", "h", 0))
        await asyncio.sleep(0)
        both: Any = await asyncio.gather(waiting, rejoining)
        follower = next(one for one in both if one.leader != one.member_id)
        membership.member_id, membership.generation = follower.member_id, follower.generation_id
        syncing = asyncio.ensure_future(coordinating.groups.sync(membership.sync(follower.generation_id, {})))
        await asyncio.sleep(0)
        is_reader = follower.member_id == both[1].member_id
        await remake(coordinating)
        answer: Any = await syncing
        assert answer.error_code is (ErrorCode.UNKNOWN_MEMBER_ID if is_reader else ErrorCode.REBALANCE_IN_PROGRESS)

    asyncio.run(story())


def test_members_that_read_other_topics_stay(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating, membership = await reading(tmp_path, subscription("other"))
        await remake(coordinating)
        assert fault(coordinating, membership) is ErrorCode.NONE

    asyncio.run(story())


@pytest.mark.parametrize("has_offsets", [True, False])
def test_a_group_whose_subscriptions_cannot_be_read_is_judged_by_its_offsets(tmp_path: Path, has_offsets: bool) -> None:
    async def story() -> None:
        coordinating, membership = await reading(tmp_path, b"\xff", "connect")
        if has_offsets:
            assert coordinating.groups.commit("g", {COMMITTED: CommittedOffset(5, 0, "")}) is ErrorCode.NONE
        await remake(coordinating)
        expected = ErrorCode.UNKNOWN_MEMBER_ID if has_offsets else ErrorCode.NONE
        assert fault(coordinating, membership) is expected

    asyncio.run(story())


@pytest.mark.parametrize(
    ("topic_id", "created_ms", "expected"),
    [
        (FORMER, 0, ErrorCode.NONE),
        (None, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        (NEXT, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        (NEXT, -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
    ids=["still there", "deleted", "made again", "made again by a host whose clock is behind"],
)
def test_the_next_coordinator_expels_whom_the_former_one_did_not(
    tmp_path: Path, topic_id: UUID | None, created_ms: int, expected: ErrorCode
) -> None:
    async def story() -> None:
        coordinating, membership = await reading(tmp_path, subscription("t"))
        await coordinating.apply(2, 2, (1, 2))  # another leads, and this broker hears of nothing it does
        coordinating.read_id, coordinating.read_created_ms = topic_id, created_ms
        await coordinating.apply(1, 3, (1,), min_isr=1)
        assert fault(coordinating, membership) is expected

    asyncio.run(story())


@pytest.mark.parametrize(
    ("created_ms", "expected"), [(1, ErrorCode.UNKNOWN_MEMBER_ID), (-1, ErrorCode.NONE)],
    ids=["made again after it", "clocks say before it"],
)  # fmt: skip
def test_a_group_that_was_written_before_the_cluster_was_finalized_is_judged_by_time(
    tmp_path: Path, created_ms: int, expected: ErrorCode
) -> None:
    async def story() -> None:
        coordinating, membership = await reading(tmp_path, subscription("t"), level=2)
        await coordinating.apply(2, 2, (1, 2))
        coordinating.read_id, coordinating.read_created_ms, coordinating.level = NEXT, created_ms, 3
        await coordinating.apply(1, 3, (1,), min_isr=1)
        assert fault(coordinating, membership) is expected

    asyncio.run(story())


def test_readers_of_a_topic_that_the_former_coordinator_did_not_know_are_expelled(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating, membership = await reading(tmp_path, subscription("t"), topic_id=None)
        await coordinating.apply(2, 2, (1, 2))
        coordinating.read_id = NEXT  # perhaps not the first that was made of this name
        await coordinating.apply(1, 3, (1,), min_isr=1)
        assert fault(coordinating, membership) is ErrorCode.UNKNOWN_MEMBER_ID

    asyncio.run(story())

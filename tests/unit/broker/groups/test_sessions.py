"""Sessions of members end when they are over, not when all groups are looked at next."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pylog.broker.groups.coordinator import SWEEP_MS
from pylog.errors import ErrorCode
from pylog.wire.api.groups import JoinGroupRequest, JoinGroupRequestProtocol
from tests.unit.broker.groups.test_loading_groups import Coordinating

SESSION_MS = 6_050
DELAY_MS = 3_000
"""What a new group waits for more members."""


async def with_member(directory: Path, group_id: str) -> Coordinating:
    """Return a coordinator of a group whose only member joined at DELAY_MS and then fell silent."""
    coordinating = Coordinating(directory)
    await coordinating.apply(1, 1, (1,), min_isr=1)
    groups = coordinating.groups
    assert groups.end_late(0) == SWEEP_MS
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joining = asyncio.ensure_future(groups.join(request, "client", "host", 0))
    await asyncio.sleep(0)
    coordinating.now_ms = DELAY_MS
    groups.end_late(DELAY_MS)
    await asyncio.gather(*groups._tasks._running)
    answer: Any = await joining
    assert answer.error_code == ErrorCode.NONE
    return coordinating


def turns(coordinating: Coordinating, until_ms: int) -> list[int]:
    """Let the clock go from one look to the next; return when there were any."""
    found = []
    while coordinating.now_ms < until_ms:
        coordinating.now_ms = coordinating.groups.end_late(coordinating.now_ms)
        found.append(coordinating.now_ms)
    return found


def test_a_session_ends_when_it_is_over(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = await with_member(tmp_path, "g")
        end_ms = DELAY_MS + SESSION_MS
        seen = turns(coordinating, end_ms)
        assert seen[-1] == end_ms, "between two sweeps"
        assert end_ms % SWEEP_MS
        group = coordinating.groups.group("g")
        assert group is not None
        assert len(group.members) == 1
        coordinating.groups.end_late(end_ms)
        assert not group.members
        after = turns(coordinating, end_ms + 1_000)
        assert len(after) <= 1_000 // SWEEP_MS + 1, "nothing is due any more"

    asyncio.run(story())


def test_a_group_that_moved_away_is_not_looked_at(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        coordinating = await with_member(tmp_path, "g")
        turns(coordinating, DELAY_MS + SESSION_MS - 1)
        assert coordinating.groups._soon
        await coordinating.apply(2, 2, (1, 2))
        assert not coordinating.groups._soon
        assert coordinating.groups.end_late(coordinating.now_ms) > coordinating.now_ms

    asyncio.run(story())

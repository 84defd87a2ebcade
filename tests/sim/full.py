"""Stories of disks that are completely full: no file grows, none is made, and checkpoints stay as they were."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from typing import Any

from tests.sim.clients import Unanswered
from tests.sim.stage import CONTROLLER, FOLLOWER, LEADER, Stage
from tests.sim.world import CURRENT

FULL_S = 8.0
"""Longer than a session, and than checkpoints are apart."""


async def fill_all_disks(stage: Stage) -> None:
    """All disks are full while records are deleted, brokers die one by one, and at last all at once."""
    await stage.write(20)
    await stage.until(stage.checks.is_settled, "all know what was written")
    full = stage.cluster.disks.full
    full.update(host.name for host in stage.cluster.hosts.values())
    with contextlib.suppress(Unanswered):
        await stage.try_to_delete_records(10, timeout_ms=2_000)
    writing = asyncio.create_task(stage.write(5, "later", seconds=300.0))
    for broker_id in (FOLLOWER, LEADER, CONTROLLER):
        await asyncio.sleep(FULL_S)
        stage.kill(broker_id)
        stage.start(broker_id)
    await asyncio.sleep(FULL_S)
    for broker_id in (FOLLOWER, LEADER, CONTROLLER):
        stage.kill(broker_id)
    for broker_id in (CONTROLLER, FOLLOWER, LEADER):
        stage.start(broker_id)
    await asyncio.sleep(FULL_S)
    full.clear()
    await stage.settle()  # as systemd does, it starts those again that refused to start
    await writing
    await stage.settle()


async def remake_a_topic_where_nothing_can_be_renamed(stage: Stage) -> None:
    """A topic is deleted and made again on full disks, where directories take no other names either."""

    def refused(real: Callable[..., None]) -> Callable[..., None]:
        def rename(source: Any, target: Any, **more: Any) -> None:
            process = CURRENT.get()
            if process is not None and process.host in full:
                raise OSError(errno.ENOSPC, "No space left on device", str(source))
            real(source, target, **more)

        return rename

    full = stage.cluster.disks.full
    os.rename, os.replace = refused(os.rename), refused(os.replace)
    await stage.write(20, "before")
    await stage.until(stage.checks.is_settled, "all know what was written")
    full.update(host.name for host in stage.cluster.hosts.values())
    await stage.delete()
    await stage.create()
    await asyncio.sleep(FULL_S)
    for broker_id in (FOLLOWER, LEADER, CONTROLLER):
        stage.kill(broker_id)
    for broker_id in (CONTROLLER, FOLLOWER, LEADER):
        stage.start(broker_id)
    await asyncio.sleep(FULL_S)
    full.clear()
    await stage.settle()
    await stage.write(5, "after")
    await stage.settle()

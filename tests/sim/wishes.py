"""Stories about changes of in-sync replicas that are asked for, refused and asked for again."""

import asyncio
from collections.abc import Awaitable, Callable

from pylog.errors import ErrorCode
from pylog.wire.records import Record, encode_batch
from tests.sim.stage import CONTROLLER, FOLLOWER, KEY, LEADER, Stage
from tests.sim.world import Violation

ANSWER_S = 3.0
"""How long answers hang; a leader asks again before that, on another connection."""

HANG_S = 6.0
"""Longer than a wish is waited for, asked for again, refused, and not wished any more."""


async def hear_a_wish_after_its_repetition_was_refused(stage: Stage) -> None:
    """A wish hangs; its repetition is refused; then the reason for that passes, and the first one comes."""
    await stage.write(3)
    await stage.until(stage.checks.is_settled, "all know what was written")
    stage.kill(FOLLOWER)
    await stage.until(lambda: FOLLOWER not in stage.checks.states[KEY].isr, "the follower is out")
    network = stage.cluster.network
    hung_s = stage.world.now_s
    network.hang(stage.host(LEADER).name, stage.host(CONTROLLER).name, HANG_S)
    may_report = hold_report(stage, FOLLOWER)
    stage.start(FOLLOWER)
    await stage.until(lambda: _has_wished(stage), "the leader wishes to take the follower in")
    await stage.until(lambda: not _has_wished(stage), "the repeated wish is refused")
    with stage.cutting(LEADER, FOLLOWER):
        await asyncio.sleep(max(hung_s + HANG_S - 0.5 - stage.world.now_s, 0))
        may_report.set()
        await asyncio.sleep(1.0)
        await stage.write(3, "later", seconds=2.0)
        stage.kill(LEADER)
        stage.kill(CONTROLLER)
        await asyncio.sleep(1.0)
    await stage.settle()


async def write_while_a_wish_is_granted_and_not_answered(stage: Stage) -> None:
    """A leader that is alone in sync takes a follower in, hears no answer, and writes what the follower lacks."""
    await stage.set_config(KEY.topic, "min.insync.replicas", "1")
    await stage.write(3)
    await stage.until(stage.checks.is_settled, "all know what was written")
    log = stage.log(CONTROLLER)
    assert log is not None
    log.go_offline("a sector that cannot be read")
    with stage.cutting(LEADER, FOLLOWER):
        await stage.write(1, "without")
        await stage.until(lambda: stage.checks.states[KEY].isr == (LEADER,), "the leader is alone in sync")
        await asyncio.sleep(0.1)  # it has heard of it
        stage.cluster.network.hang(stage.host(CONTROLLER).name, stage.host(LEADER).name, ANSWER_S)
    await stage.until(lambda: FOLLOWER in stage.checks.states[KEY].isr, "the follower is in sync")
    with stage.cutting(LEADER, FOLLOWER):
        await stage.write(1, "later")
    stage.kill(CONTROLLER)  # as an operator does who got the disk replaced
    await stage.settle()


async def hear_a_wish_after_a_follower_has_left(stage: Stage) -> None:
    """A wish hangs; a follower whose log fails leaves meanwhile, and the leader writes alone; then the wish comes.

    The controller's news end the wish for the leader, so nothing comes on a newer connection.
    """
    await stage.set_config(KEY.topic, "min.insync.replicas", "1")
    await stage.write(3)
    await stage.until(stage.checks.is_settled, "all know what was written")
    network = stage.cluster.network
    with stage.cutting(LEADER, FOLLOWER):
        await stage.write(1, "without")
        await stage.until(lambda: FOLLOWER not in stage.checks.states[KEY].isr, "the follower is out")
        await asyncio.sleep(0.1)  # all have heard of it, and ask for the next image
        hung_s = stage.world.now_s
        network.hang(stage.host(LEADER).name, stage.host(CONTROLLER).name, HANG_S)
    await stage.until(lambda: _has_wished(stage), "the leader wishes to take the follower in")
    with stage.cutting(LEADER, FOLLOWER):
        log = stage.log(CONTROLLER)
        assert log is not None
        log.go_offline("a sector that cannot be read")
        await stage.until(lambda: stage.checks.states[KEY].isr == (LEADER,), "the leader is alone in sync")
        await stage.until(lambda: not _has_wished(stage), "the leader has heard of it")
        await stage.write(3, "alone", seconds=2.0)
        await asyncio.sleep(max(hung_s + HANG_S + 0.5 - stage.world.now_s, 0))
        if stage.checks.states[KEY].isr != (LEADER,):
            raise Violation("a refused wish is not granted", f"nobody wished for {stage.checks.states[KEY]}")
    stage.kill(CONTROLLER)  # as an operator does who got the disk replaced
    await stage.settle()


async def take_in_nobody_whose_disk_is_full(stage: Stage) -> None:
    """Both followers' disks are full: the leader is alone in sync, and its high watermark stands still."""
    await stage.write(3)
    await stage.until(stage.checks.is_settled, "all know what was written")
    full = {stage.host(one).name for one in (FOLLOWER, CONTROLLER)}
    stage.cluster.disks.full |= full
    record = Record(0, stage.world.wall_ns() // 1_000_000, None, f"alone:{KEY}:0".encode())
    error, _ = await stage.client.produce(LEADER, KEY, encode_batch([record]), 1)
    if error is not ErrorCode.NONE:
        raise Violation("progress", f"a record with acks=1 is refused: {error.name}")
    await stage.until(lambda: stage.checks.states[KEY].isr == (LEADER,), "the leader is alone in sync")
    await asyncio.sleep(5.0)
    stage.cluster.disks.full -= full
    await stage.write(1, "later")
    await stage.settle()


def _has_wished(stage: Stage) -> bool:
    partition = stage.partition(LEADER)
    return partition is not None and partition.leading is not None and partition.leading.pending is not None


def hold_report(stage: Stage, broker_id: int) -> asyncio.Event:
    """Have the next process of a broker report its unclean stop only once the returned event is set."""
    host, may_report = stage.host(broker_id), asyncio.Event()

    def hold() -> None:
        if host.broker is None:
            return
        stage.world.watches.remove(hold)
        membership = host.broker.membership
        recover: Callable[[], Awaitable[None]] = membership._recover

        async def report_later() -> None:
            await may_report.wait()
            await recover()

        membership._recover = report_later  # type: ignore[method-assign]

    stage.world.watches.append(hold)
    return may_report

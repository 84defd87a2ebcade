"""Stories about what the end of a log has that nobody else has: it goes before the log counts as a copy."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from pylog.errors import ErrorCode
from pylog.log.checkpoint import LEADER_EPOCHS
from pylog.log.log import Log
from pylog.wire.records import Record, encode_batch
from tests.sim import clients
from tests.sim.stage import CONTROLLER, FOLLOWER, KEY, LEADER, PATIENCE_S, Stage
from tests.sim.world import CURRENT, Violation

SEGMENT_ROOM_BYTES = 3_900
"""So large a record has no room behind three small ones (`log.segment.bytes`), and begins a segment."""


async def return_with_a_tail_below_the_leaders_start(stage: Stage) -> None:
    """A deposed leader has one record of its own, which ends where its successor's trimmed log begins."""
    await stage.write(3)
    await stage.until(stage.checks.is_settled, "all know what was written")
    await _write_alone(stage)
    await stage.write(1, "instead")
    await stage.delete_records(-1)
    stage.start(LEADER)
    await stage.until(lambda: LEADER in stage.checks.states[KEY].isr, "the deposed leader is in sync")
    await stage.write(1, "later")
    await stage.settle()


async def lose_power_where_a_cut_ended_a_segment(stage: Stage) -> None:
    """A log is cut, its next segment begins there and is synced, and the power goes: the cut must not be undone."""
    await stage.set_config(KEY.topic, "flush.messages", "1")
    await stage.until(lambda: all(_is_flushing(stage, one) for one in stage.cluster.hosts), "all flush")
    await stage.write(3)
    await stage.until(stage.checks.is_settled, "all know what was written")
    await _write_alone(stage)
    await stage.write(1, "instead" + "." * SEGMENT_ROOM_BYTES)
    stage.start(LEADER)
    await stage.until(stage.checks.is_settled, "the deposed leader has a copy")
    log = stage.log(LEADER)
    assert log is not None
    if [segment.base_offset for segment in log.segments] != [0, 3]:
        raise Violation("progress", f"segments begin at {[segment.base_offset for segment in log.segments]}")
    stage.cluster.cut_power(stage.host(LEADER))
    await stage.settle()


def _is_flushing(stage: Stage, broker_id: int) -> bool:
    log = stage.log(broker_id)
    return log is not None and log.is_flushing


async def _write_alone(stage: Stage) -> None:
    """Have the leader of three records write a fourth that nobody copies, and die; return when another leads."""
    others = [broker_id for broker_id in stage.cluster.hosts if broker_id != LEADER]
    with stage.cutting(LEADER, others[0]), stage.cutting(LEADER, others[1]):
        record = Record(0, stage.world.wall_ns() // 1_000_000, None, b"alone")
        error, offset = await stage.client.produce(LEADER, KEY, encode_batch([record]), 1)
        if (error, offset) != (ErrorCode.NONE, 3):
            raise Violation("progress", f"a record with acks=1 is answered {error.name} {offset}")
        stage.kill(LEADER)
        # Behind the cut until then: what a killed process had sent may still arrive.
        await stage.until(lambda: stage.leader() != LEADER, "another leads")


async def cut_power_before_a_follower_has_synced(stage: Stage) -> None:
    """Records count once they are synced; a follower's host loses power before, when it alone is left in sync.

    Its process stands still before, so that nothing else syncs its log: no checkpoint, and no leader.
    """
    await stage.set_config(KEY.topic, "flush.messages", "1")
    await stage.until(lambda: all(_is_flushing(stage, one) for one in stage.cluster.hosts), "all flush")
    await stage.write(3)
    await stage.until(stage.checks.is_settled, "all know what was written")
    stage.cluster.disks.full.add(stage.host(CONTROLLER).name)
    await stage.write(1, "more than the controller's disk takes")
    await stage.until(lambda: CONTROLLER not in stage.checks.states[KEY].isr, "two are in sync")
    host = stage.host(FOLLOWER)
    assert host.broker is not None
    assert host.process is not None

    async def hang(logs: Iterable[Log]) -> None:
        await asyncio.sleep(PATIENCE_S)

    host.broker._data.replication._sync = hang
    writing = asyncio.create_task(stage.write(4, "later", batch_size=3))
    await asyncio.wait([writing], timeout=0.5)
    stage.kill(LEADER)
    await asyncio.sleep(0.7)  # its session ends after the leader's
    stage.world.pause(host.process)
    await stage.until(lambda: stage.checks.states[KEY].isr == (FOLLOWER,), "the follower leads alone")
    stage.cluster.cut_power(host, to_the_last_sync=True)
    stage.cluster.disks.full.discard(stage.host(CONTROLLER).name)
    stage.start(FOLLOWER)
    await stage.until(lambda: stage.log(FOLLOWER) is not None, "the follower has opened its log")
    await asyncio.sleep(1.0)
    stage.start(LEADER)
    await writing
    await stage.settle()


async def lose_power_after_a_move(stage: Stage) -> None:
    """A partition is moved from one broker to another, and when the first has deleted it, the other loses power."""
    stage.checks.expect_any_replica_count()
    await clients.move_once(stage.client, CONTROLLER, KEY, [LEADER])
    await stage.until(lambda: stage.checks.states[KEY].isr == (LEADER,), "one broker has it")
    await stage.until(lambda: stage.partition(FOLLOWER) is None, "the other has deleted it")
    await stage.write(20)
    await clients.move_once(stage.client, CONTROLLER, KEY, [FOLLOWER])
    await stage.until(lambda: stage.checks.states[KEY].isr == (FOLLOWER,), "it has moved")
    await stage.until(lambda: stage.log(LEADER) is None, "the first has deleted it")
    stage.cluster.cut_power(stage.host(FOLLOWER), to_the_last_sync=True)
    stage.start(FOLLOWER)
    await stage.until(lambda: stage.log(FOLLOWER) is not None and stage.leader() == FOLLOWER, "the other leads again")
    log = stage.log(FOLLOWER)
    assert log is not None
    if log.log_end_offset != 20:
        raise Violation("acknowledged records survive", f"a move left {log.log_end_offset} records of 20")
    await stage.write(3, "later")
    await stage.settle()


async def lose_power_after_retention_emptied_a_log(stage: Stage) -> None:
    """Retention empties the leader's log before it looks at the others, and all hosts lose power.

    The emptied log is the longest one, but has no batch that says under which epoch it was written.
    """
    stage.checks.expiring.add(KEY.topic)
    await stage.write(20)
    await stage.until(stage.checks.is_settled, "all know what was written")
    log = stage.log(LEADER)
    assert log is not None
    log.configure(replace(log.config, retention_ms=100))
    await asyncio.sleep(0.3)
    with stage.cutting(LEADER, FOLLOWER), stage.cutting(LEADER, CONTROLLER):
        broker = stage.host(LEADER).broker
        assert broker is not None
        token = CURRENT.set(stage.host(LEADER).process)
        log.delete_expired(stage.world.wall_ns() // 1_000_000)
        broker.partitions.checkpoint_soon()
        CURRENT.reset(token)
        await asyncio.sleep(0.15)
        for host in list(stage.cluster.hosts.values()):
            host.damaged.add(KEY)
            stage.cluster.cut_power(host, torn=LEADER_EPOCHS if host.broker_id == LEADER else "")
    stage.checks.forget_promises(KEY)
    stage.start(LEADER)
    await stage.until(lambda: stage.log(LEADER) is not None, "the emptied log is opened")
    log = stage.log(LEADER)
    assert log is not None
    if (log.log_start_offset, log.log_end_offset) == (20, 20) and log.epochs.latest < 0:
        raise Violation("an emptied log loses no election", "it does not know under which epoch it was written")
    for broker_id in (CONTROLLER, FOLLOWER):
        stage.start(broker_id)
    await stage.until(stage.checks.is_settled, "all agree again")
    await stage.settle()

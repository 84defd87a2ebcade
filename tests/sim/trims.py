"""Stories about DeleteRecords: what was answered as deleted stays deleted."""

import asyncio

from pylog.errors import ErrorCode
from pylog.log import checkpoint
from pylog.wire.api.partitions import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.sim.stage import CONTROLLER, FOLLOWER, KEY, LEADER, TOPIC, Stage
from tests.sim.world import Violation


async def trim_and_kill_the_leader(stage: Stage) -> None:
    """The leader dies in the moment in which a deletion is answered: its successor must know of it."""
    await stage.write(20)
    await stage.until(stage.checks.is_settled, "all know what was written")
    with stage.cutting(LEADER, FOLLOWER), stage.cutting(LEADER, CONTROLLER):
        asking = asyncio.create_task(stage.delete_records(-1))
        await asyncio.wait([asking], timeout=0.5)
        if asking.done():
            stage.kill(LEADER)
    await asking
    stage.kill(LEADER)
    await stage.until(lambda: stage.leader() != LEADER, "another leads")
    _check_start(stage, stage.leader(), 20)
    await stage.write(3, "after")
    await stage.settle()


async def trim_and_lose_power_everywhere(stage: Stage) -> None:
    """All hosts lose power in the moment in which a deletion is answered."""
    await stage.write(20)
    await stage.until(stage.checks.is_settled, "all know what was written")
    brokers = [host.broker for host in stage.cluster.hosts.values()]
    for broker in brokers:
        assert broker is not None
        broker.partitions.checkpoint_soon = lambda: None  # type: ignore[method-assign]  # a slow disk
    asking = asyncio.create_task(stage.delete_records(-1))
    await asyncio.wait([asking], timeout=0.5)
    if not asking.done():
        for broker in brokers:
            assert broker is not None
            del broker.partitions.checkpoint_soon
            broker.partitions.checkpoint_soon()
        await asking
    for host in stage.cluster.hosts.values():
        host.damaged.add(KEY)
        stage.cluster.cut_power(host)
    for host in stage.cluster.hosts.values():
        start = checkpoint.read_offsets(host.data_dir / checkpoint.LOG_START_OFFSETS).get(KEY, 0)
        if start != 20:
            raise Violation("deleted records stay deleted", f"{host.name} begins at {start} after the power cut")
    stage.checks.forget_promises(KEY)
    for broker_id in (CONTROLLER, LEADER, FOLLOWER):
        stage.start(broker_id)
    await stage.until(stage.checks.is_settled, "all replicas agree")
    for broker_id in stage.cluster.hosts:
        _check_start(stage, broker_id, 20)
    await stage.settle()


async def trim_beside_a_follower_that_hears_nothing(stage: Stage) -> None:
    """A deletion waits for a live follower until its time is up, and not at all for one whose session ended."""
    await stage.write(20)
    await stage.until(stage.checks.is_settled, "all know what was written")
    with stage.cutting(LEADER, FOLLOWER):
        error = await _trim(stage, 10, timeout_ms=1_000)
        if error is not ErrorCode.REQUEST_TIMED_OUT:
            raise Violation("deletions wait for replicas", f"{error.name} while a follower has not heard of it")
        stage.kill(FOLLOWER)
        error = await _trim(stage, 20, timeout_ms=10_000)
        if error is not ErrorCode.NONE:
            raise Violation("deletions wait for live replicas only", error.name)
    await stage.settle()


async def _trim(stage: Stage, before: int, *, timeout_ms: int) -> ErrorCode:
    part = DeleteRecordsPartition(partition_index=KEY.partition, offset=before)
    wish = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=[part])], timeout_ms=timeout_ms)
    stage.checks.may_trim(KEY, before)
    answer = await stage.client.call(stage.leader(), wish, DeleteRecordsResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def _check_start(stage: Stage, broker_id: int, wanted: int) -> None:
    log = stage.log(broker_id)
    start = -1 if log is None else log.log_start_offset
    if start < wanted:
        detail = f"broker {broker_id} begins at {start}, a deletion of all before {wanted} was answered"
        raise Violation("deleted records stay deleted", detail)

"""Stories about DeleteRecords: what was answered as deleted stays deleted."""

import asyncio

from pylog.errors import ErrorCode
from pylog.log import checkpoint
from pylog.replica.leader import Leader
from tests.sim.clients import Unanswered
from tests.sim.stage import CONTROLLER, FOLLOWER, KEY, LEADER, PATIENCE_S, Stage
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
        error = await stage.try_to_delete_records(10, timeout_ms=1_000)
        if error is not ErrorCode.REQUEST_TIMED_OUT:
            raise Violation("deletions wait for replicas", f"{error.name} while a follower has not heard of it")
        stage.kill(FOLLOWER)
        error = await stage.try_to_delete_records(20, timeout_ms=10_000)
        if error is not ErrorCode.NONE:
            raise Violation("deletions wait for live replicas only", error.name)
    await stage.settle()


async def come_back_to_a_trimmed_log_and_lead(stage: Stage) -> None:
    """A replica that was away during a deletion catches up, hears no answer, and its leader dies."""
    await _trim_without_the_first_replica(stage)

    def cut() -> None:
        leading = _leading(stage, FOLLOWER)
        if leading is not None and leading.progress(LEADER).log_end_offset == 20:
            stage.cluster.network.cut("broker-2", "broker-1")

    stage.world.watches.append(cut)
    stage.start(LEADER)
    await stage.until(lambda: stage.cluster.network.is_cut("broker-2", "broker-1"), "it has fetched")
    stage.world.watches.remove(cut)
    await asyncio.sleep(1.0)
    stage.kill(FOLLOWER)
    await stage.until(lambda: stage.leader() not in (FOLLOWER, -1), "another leads")
    stage.cluster.network.heal()
    await _check_what_is_served(stage, 10)
    await stage.settle()


async def come_back_to_a_trimmed_log_and_lose_power(stage: Stage) -> None:
    """A replica that was away during a deletion has heard of it and not written it down when all hosts lose power."""
    await _trim_without_the_first_replica(stage)
    first = stage.host(LEADER)

    def slow_down() -> None:
        if first.broker is not None:
            first.broker.partitions.checkpoint_soon = lambda: None  # type: ignore[method-assign]  # a slow disk
            stage.world.watches.remove(slow_down)

    stage.world.watches.append(slow_down)
    stage.start(LEADER)
    await stage.until(lambda: _begins_at(stage, LEADER, 10), "it has heard where the log begins")
    await stage.write(3, "later")
    await asyncio.sleep(1.0)
    for host in stage.cluster.hosts.values():
        log = stage.log(host.broker_id)
        assert log is not None
        log.flush()
        host.damaged.add(KEY)
        stage.cluster.cut_power(host)
    stage.checks.forget_promises(KEY)
    await asyncio.sleep(15.0)  # hosts boot slowly, and their sessions end
    await stage.settle()
    await _check_what_is_served(stage, 10)


async def trim_beside_a_member_that_the_image_lacks(stage: Stage) -> None:
    """A leader that applies no image takes a replica into the ISR again, and is asked to delete records."""
    await stage.write(20)
    await stage.until(stage.checks.is_settled, "all know what was written")
    stage.kill(FOLLOWER)
    await stage.until(lambda: FOLLOWER not in stage.checks.states[KEY].isr, "it is out")
    broker = stage.host(LEADER).broker
    assert broker is not None
    await stage.until(lambda: FOLLOWER not in broker.partitions.image.brokers, "the leader knows")
    broker.membership.images.offer = lambda image: None  # type: ignore[method-assign]  # as in a pull that hangs
    stage.start(FOLLOWER)
    leading = _leading(stage, LEADER)
    assert leading is not None
    await stage.until(lambda: FOLLOWER in leading.isr, "it is in sync again, and the leader knows")
    with stage.cutting(LEADER, FOLLOWER):
        await stage.try_to_delete_records(20, timeout_ms=1_000)
        stage.kill(LEADER)
        await stage.until(lambda: stage.leader() not in (LEADER, -1), "another leads")
    await stage.settle()


async def trim_on_a_disk_that_hangs(stage: Stage) -> None:
    """The leader's own disk takes no checkpoint: whoever asked for a deletion is answered when the time is up."""
    await stage.write(20)
    await stage.until(stage.checks.is_settled, "all know what was written")
    broker = stage.host(LEADER).broker
    assert broker is not None

    async def hang() -> bool:
        await asyncio.sleep(PATIENCE_S)
        return False

    broker.partitions.checkpoint = hang  # type: ignore[method-assign]
    begun_s = stage.world.now_s
    error = await stage.try_to_delete_records(20, timeout_ms=1_000)
    if error is not ErrorCode.REQUEST_TIMED_OUT or stage.world.now_s - begun_s > 2.0:
        raise Violation("deletions are answered in time", f"{error.name} after {stage.world.now_s - begun_s:.1f} s")
    await stage.settle()


async def _trim_without_the_first_replica(stage: Stage) -> None:
    """Have the first replica die with 20 records on its disk, and the other two delete ten of them."""
    await stage.write(20)
    await stage.until(stage.checks.is_settled, "all know what was written")
    log = stage.log(LEADER)
    assert log is not None
    log.flush()
    stage.kill(LEADER)
    await stage.until(lambda: stage.leader() == FOLLOWER and LEADER not in stage.checks.states[KEY].isr, "2 leads")
    await stage.until(lambda: _leading(stage, FOLLOWER) is not None, "it knows")
    await stage.delete_records(10)  # not all: the first replica would have to begin anew


async def _check_what_is_served(stage: Stage, start: int) -> None:
    """Have a consumer ask the leader for the first record, which is deleted."""
    await stage.until(lambda: _leading(stage, stage.leader()) is not None, "the leader knows")
    error = None
    while error is None:
        try:
            error, *_ = await stage.client.fetch(stage.leader(), KEY, 0)
        except Unanswered:
            await stage.client.pause()
    if error is ErrorCode.NONE:
        raise Violation("deleted records stay deleted", f"a consumer is served offset 0, all before {start} is deleted")


def _leading(stage: Stage, broker_id: int) -> Leader | None:
    partition = stage.partition(broker_id)
    return partition.leading if partition is not None else None


def _begins_at(stage: Stage, broker_id: int, offset: int) -> bool:
    log = stage.log(broker_id)
    return log is not None and log.log_start_offset == offset


def _check_start(stage: Stage, broker_id: int, wanted: int) -> None:
    log = stage.log(broker_id)
    start = -1 if log is None else log.log_start_offset
    if start < wanted:
        detail = f"broker {broker_id} begins at {start}, a deletion of all before {wanted} was answered"
        raise Violation("deleted records stay deleted", detail)


async def begin_inside_a_batch_on_a_full_disk(stage: Stage) -> None:
    """A replica begins anew where a deletion cut into a batch, and has no room for that batch; it is killed then."""
    await stage.write(1, batch_size=10)
    await stage.until(stage.checks.is_settled, "all know what was written")
    stage.kill(FOLLOWER)
    await stage.write(1, "more", batch_size=10)
    await stage.delete_records(15)
    disks, name = stage.cluster.disks, stage.host(FOLLOWER).name

    def fill() -> None:
        log = stage.log(FOLLOWER)
        if log is not None and log.log_start_offset == log.log_end_offset == 15:
            disks.full.add(name)

    stage.world.watches.append(fill)
    stage.start(FOLLOWER)
    await stage.until(lambda: name in disks.full, "the replica has begun anew")
    stage.world.watches.remove(fill)
    await asyncio.sleep(3.0)
    stage.kill(FOLLOWER)
    stage.start(FOLLOWER)
    await asyncio.sleep(3.0)
    disks.full.discard(name)
    await stage.write(3, "after")
    await stage.settle()

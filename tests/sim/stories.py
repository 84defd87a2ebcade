"""Stories: production brokers told a script, for what the world of the seeds does not have yet.

A story has no chance in it but the network's delays.  It brings one situation about step by step, and then the same
checks hold as in every other run: nothing acknowledged is missing, no record of a deleted topic comes back, no group is
told an offset of another incarnation, and all replicas come to agree.
"""

import asyncio
import contextlib
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from pylog.broker.control.images import PULL_TIMEOUT_S
from pylog.cluster.topics import UNCLEAN_ELECTION
from pylog.errors import ErrorCode
from pylog.log import checkpoint
from pylog.replica.leader import Leader
from pylog.wire.records import Record, encode_batch, iter_batches
from tests.sim import beginnings, deaf, full, groups, members, moves, orders, tails, touch, transactions, trims, wishes
from tests.sim.checks import MEMBERS_S
from tests.sim.clients import Client, Unanswered
from tests.sim.cluster import Host
from tests.sim.run import Result
from tests.sim.stage import CONTROLLER, FOLLOWER, KEY, LEADER, LIMIT_S, PATIENCE_S, Stage
from tests.sim.world import Process, Violation

GROUP = "readers"

MAX_IDLE_EVENTS = 4_000
"""Of a cluster in two virtual seconds in which nobody asks for anything."""


# -- a topic that is deleted and made again --------------------------------------------------------------------------


async def remake_beside_a_deaf_follower(stage: Stage) -> None:
    """A follower that has not heard of a new incarnation fetches by name; then the leader dies."""
    await stage.write(3, "before")
    with stage.cutting(FOLLOWER, CONTROLLER):
        await stage.delete()
        await stage.create()
        await stage.until(lambda: stage.has_incarnation(LEADER, CONTROLLER), "two brokers know the new topic")
        # In batches that end where the old log does: what follows the old topic must not count for the new one.
        writing = asyncio.create_task(stage.write(7, "after", batch_size=3))
        await asyncio.wait([writing], timeout=1.0)
        is_promised = writing.done()
        if is_promised:
            # Counted with what it wrote into the old topic's directory, the follower is in sync, and first in order.
            stage.kill(LEADER)
    if is_promised:
        await stage.until(lambda: stage.leader() == FOLLOWER, "the follower leads")
    await writing
    await stage.settle()


async def remake_beside_a_deaf_leader(stage: Stage) -> None:
    """Followers that know a new incarnation fetch from a leader that has not heard of it; then that leader dies."""
    await stage.write(3, "secret")
    with stage.cutting(LEADER, CONTROLLER):
        await stage.delete()
        await stage.create()
        await stage.until(lambda: stage.has_incarnation(FOLLOWER, CONTROLLER), "two brokers know the new topic")
        await asyncio.sleep(0.5)
    stage.kill(LEADER)
    await stage.until(lambda: stage.leader() != LEADER, "another leads")
    await stage.write(3, "after")
    await stage.settle()


async def remake_while_a_producer_waits(stage: Stage) -> None:
    """A write waits for followers while its topic is made again: the new topic's progress must not acknowledge it."""
    await stage.write(3, "before")
    value = b"waiting:0"
    with stage.cutting(LEADER, FOLLOWER):
        batch = encode_batch([Record(0, stage.world.wall_ns() // 1_000_000, None, value)])
        asking = asyncio.create_task(stage.client.produce(LEADER, KEY, batch, -1))
        await asyncio.sleep(0.05)
        broker = stage.host(LEADER).broker
        assert broker is not None
        with stage.cutting(LEADER, CONTROLLER):
            await stage.delete()
            await stage.create()
            await asyncio.sleep(0.1)
    other = Client(stage.world, "other", stage.client._brokers)
    waiting, stage.client = stage.client, other
    await stage.until(lambda: stage.has_incarnation(1, 2, 3), "all know the new topic")
    await stage.write(8, "after")
    stage.client = waiting
    error, offset = await asking
    if error is ErrorCode.NONE:
        raise Violation("acknowledged records survive", f"{value!r} of the deleted topic was acknowledged at {offset}")
    await stage.settle()


async def remake_beside_a_deaf_coordinator(stage: Stage) -> None:
    """A group's coordinator hears of a deletion and a creation at once."""
    coordinator = await _commit_everything(stage)
    with stage.cutting(await coordinator.find(), CONTROLLER):
        await stage.delete()
        await stage.create()
        # Longer than a pull lasts, so that the next one brings what came of both.
        await asyncio.sleep(PULL_TIMEOUT_S + 1)
    await stage.until(lambda: stage.has_incarnation(1, 2, 3), "all know the new topic")
    await _begin_anew(stage, coordinator)


async def remake_beside_a_coordinator_that_dies(stage: Stage) -> None:
    """A group's coordinator dies before it hears of a deletion and a creation, and another one loads its offsets."""
    coordinator = await _commit_everything(stage)
    victim = await coordinator.find()
    with stage.cutting(victim, CONTROLLER):
        await stage.delete()
        await stage.create()
        others = {LEADER, FOLLOWER, CONTROLLER} - {victim}
        await stage.until(lambda: stage.has_incarnation(*others), "two brokers know the new topic")
        stage.kill(victim)
    coordinator.forget()
    stage.start(victim)
    await stage.until(lambda: stage.has_incarnation(1, 2, 3), "all know the new topic")
    await _begin_anew(stage, coordinator)


async def _commit_everything(stage: Stage) -> groups.Coordinator:
    """Have a group commit the end of a log of ten records, and return its coordinator, which is not the controller."""
    client = Client(stage.world, "group", stage.client._brokers)
    coordinator = groups.Coordinator(client, GROUP)
    await stage.write(10, "before")
    deadline_s = stage.world.now_s + PATIENCE_S
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    while error is not ErrorCode.NONE:
        if stage.world.now_s > deadline_s:
            raise Violation("progress", f"the group cannot commit: {error.name}")
        try:
            error = await groups.commit_one(client, stage.checks, GROUP, KEY, 10, await coordinator.find())
        except Unanswered:
            coordinator.forget()
        await client.pause()
    await stage.until(stage.checks.is_settled, "the offset is everywhere")
    if await coordinator.find() == CONTROLLER:
        raise Violation("progress", "the controller coordinates the group itself")
    return coordinator


async def _begin_anew(stage: Stage, coordinator: groups.Coordinator) -> None:
    """Write to the new incarnation; the group must be told that it has committed nothing there."""
    client = Client(stage.world, "reader", stage.client._brokers)
    await stage.write(15, "after")
    await stage.until(stage.checks.is_settled, "all replicas agree")
    found = None
    while found is None:
        try:
            found = await groups.fetch_one(client, stage.checks, GROUP, KEY, await coordinator.find())
        except Unanswered:
            found = None
        if found is None:
            coordinator.forget()
        await client.pause()
    if found >= 0:
        raise Violation("committed offsets", f"the group is told {found}, committed for a topic that was deleted")
    await stage.settle()


async def remake_after_a_trim_and_kill_all(stage: Stage) -> None:
    """A topic whose log began late is made again, and all brokers are killed when the first writes are acknowledged."""
    await stage.write(20)
    await stage.until(stage.checks.is_settled, "all know what was written")
    await stage.delete_records(-1)
    hosts = list(stage.cluster.hosts.values())
    await stage.until(lambda: all(_start_on_disk(host) == 20 for host in hosts), "every start is on disk", 100.0)
    await stage.delete()
    await stage.until(lambda: all(stage.partition(one) is None for one in (1, 2, 3)), "all know of the deletion")
    for host in hosts:
        assert host.broker is not None
        host.broker.partitions.checkpoint_soon = lambda: None  # type: ignore[method-assign]  # queued, and too late
    await stage.create()
    await stage.write(1, "after")
    for broker_id in (LEADER, FOLLOWER, CONTROLLER):
        stage.kill(broker_id)
    await stage.settle()
    await stage.write(3, "later")
    await stage.settle()


# -- logs that begin late --------------------------------------------------------------------------------------------


async def trim_before_the_followers_know(stage: Stage) -> None:
    """Records are deleted up to a high watermark that followers have not been told yet."""
    await stage.write(10)
    await stage.delete_records(-1)
    await stage.write(5)
    await stage.settle()


async def trim_beside_a_killed_follower(stage: Stage) -> None:
    """Records are deleted above the high watermark that a follower wrote down before it was killed."""
    await stage.write(20)
    stage.kill(FOLLOWER)
    await stage.delete_records(10)
    stage.start(FOLLOWER)
    await stage.settle()


async def lose_power_after_a_trim(stage: Stage) -> None:
    """All hosts lose power after everything was deleted; one wrote down where its log begins, the others have less."""
    await stage.write(20)
    await stage.until(stage.checks.is_settled, "all know what was written")
    await stage.delete_records(-1)
    epoch = stage.checks.states[KEY].leader_epoch
    await stage.until(lambda: _start_on_disk(stage.host(LEADER)) == 20, "the leader's start is on disk")
    for host in stage.cluster.hosts.values():
        host.damaged.add(KEY)
        stage.cluster.network.set_up(host.name, False)
        stage.cluster.kill(host)
    _cut_log(stage.host(LEADER), 0)
    for broker_id in (FOLLOWER, CONTROLLER):
        _forget_start(stage.host(broker_id))
        _cut_log(stage.host(broker_id), 19)
    stage.checks.forget_promises(KEY)
    stage.checks.forget_deletions(KEY)
    for broker_id in (CONTROLLER, LEADER):
        stage.start(broker_id)
    await stage.until(lambda: stage.log(LEADER) is not None, "the emptied log is opened")
    log = stage.log(LEADER)
    assert log is not None
    if log.epochs.latest < 0:
        raise Violation("an emptied log keeps its epoch", "it does not know under which epoch it was written")
    stage.start(FOLLOWER)
    await stage.until(lambda: stage.leader() > 0 and stage.checks.states[KEY].leader_epoch > epoch, "somebody leads")
    if stage.leader() != LEADER:
        raise Violation("the longest log leads", f"broker {stage.leader()} leads, broker {LEADER} has more")
    await stage.write(1, "after-power")
    await stage.until(stage.checks.is_settled, "all replicas agree")
    await _lead_with(stage, LEADER)
    await stage.settle()


async def elect_before_all_that_are_back_have_reported(stage: Stage) -> None:
    """Of a topic that may lose records one replica lost its end, and reports first; the others are back too."""
    await stage.set_config(KEY.topic, UNCLEAN_ELECTION, "true")
    stage.checks.unclean.add(KEY.topic)
    await stage.write(20)
    await stage.until(stage.checks.is_settled, "all know what was written")
    epoch = stage.checks.states[KEY].leader_epoch
    stage.host(LEADER).damaged.add(KEY)
    stage.cluster.cut_power(stage.host(LEADER))
    _cut_log(stage.host(LEADER), 5)
    stage.kill(FOLLOWER)
    stage.kill(CONTROLLER)
    reports = {one: wishes.hold_report(stage, one) for one in stage.cluster.hosts}
    for broker_id in (CONTROLLER, FOLLOWER, LEADER):
        stage.start(broker_id)
    await stage.until(lambda: all(stage.is_registered(one) for one in stage.cluster.hosts), "all are registered")
    await asyncio.sleep(MEMBERS_S)
    for broker_id in (LEADER, FOLLOWER, CONTROLLER):
        reports[broker_id].set()
        await asyncio.sleep(0.5)
    await stage.until(lambda: stage.leader() > 0 and stage.checks.states[KEY].leader_epoch > epoch, "somebody leads")
    await stage.write(1, "after-power")
    await stage.settle()


async def meet_an_empty_log_beyond_the_end(stage: Stage) -> None:
    """A leader has less than a follower whose log is empty: the follower must neither spin nor join in the middle."""
    await _lose_power_unevenly(stage)
    events = stage.world.events
    await asyncio.sleep(2.0)
    if stage.world.events - events > MAX_IDLE_EVENTS:
        raise Violation("progress", f"{stage.world.events - events} events in two idle seconds: somebody spins")
    await stage.write(10, "after-power")
    await stage.until(stage.checks.is_settled, "all replicas agree")
    await _lead_with(stage, FOLLOWER)
    await stage.settle()


async def die_beside_an_empty_log_beyond_the_end(stage: Stage) -> None:
    """A follower whose log is empty asks for what lies beyond the leader's end, and is heard of no more."""
    await _lose_power_unevenly(stage)

    def is_counted() -> bool:
        leading = stage.partition(LEADER)
        return leading is not None and leading.leading is not None and _known_end(leading.leading) >= 20

    def cut() -> None:
        if is_counted():
            for pair in (("broker-1", "broker-2"), ("broker-2", "broker-1")):
                stage.cluster.network.cut(*pair)

    stage.world.watches.append(cut)
    with contextlib.suppress(Violation):
        await stage.until(lambda: FOLLOWER in stage.checks.states[KEY].isr, "it is in sync", 3.0)
    stage.world.watches.remove(cut)
    await stage.write(2, "after-power")
    await stage.until(lambda: FOLLOWER in stage.checks.states[KEY].isr, "it is in sync")
    await _lead_with(stage, FOLLOWER)
    stage.cluster.network.heal()
    await stage.settle()


def _known_end(leading: Leader) -> int:
    return leading.progress(FOLLOWER).log_end_offset


async def _lose_power_unevenly(stage: Stage) -> None:
    """Have all lose power, so that the leader has 15 records and the follower none, but begins at 20."""
    # Whoever hears of the follower's log elects it: it begins where committed records reached.  So it is not heard.
    await stage.set_config(KEY.topic, UNCLEAN_ELECTION, "true")
    stage.checks.unclean.add(KEY.topic)
    await stage.write(20)
    await stage.until(stage.checks.is_settled, "all know what was written")
    for host in stage.cluster.hosts.values():
        host.damaged.add(KEY)
        stage.cluster.network.set_up(host.name, False)
        stage.cluster.kill(host)
    # As an earlier release leaves it: empty at 20, and nothing says of which epoch the last record was.
    _empty_at(stage.host(FOLLOWER), 20)
    _cut_log(stage.host(LEADER), 15)
    _cut_log(stage.host(CONTROLLER), 15)
    stage.checks.forget_promises(KEY)

    def is_led() -> bool:
        log = stage.log(LEADER)
        return stage.leader() == LEADER and log is not None and log.high_watermark == 15

    with stage.cutting(LEADER, FOLLOWER):
        for broker_id in (CONTROLLER, LEADER):
            stage.start(broker_id)
        await stage.until(is_led, "the fullest log of two leads, and the other has what it has")
        stage.start(FOLLOWER)


async def _lead_with(stage: Stage, broker_id: int) -> None:
    """Kill the leader so that another one leads, unless that one leads already."""
    if stage.leader() == broker_id:
        return
    stage.kill(stage.leader())
    await stage.until(lambda: stage.leader() == broker_id, f"broker {broker_id} leads")


def _directory(host: Host) -> Path:
    return host.data_dir / str(KEY)


def _start_on_disk(host: Host) -> int:
    return checkpoint.read_offsets(host.data_dir / checkpoint.LOG_START_OFFSETS).get(KEY, 0)


def _forget_start(host: Host) -> None:
    path = host.data_dir / checkpoint.LOG_START_OFFSETS
    starts = {key: value for key, value in checkpoint.read_offsets(path).items() if key != KEY}
    checkpoint.write_offsets(path, starts)


def _cut_log(host: Host, end: int) -> None:
    """Lose what a host's log has from *end* on, as a power cut may."""
    path = host.data_dir / checkpoint.RECOVERY_POINTS
    points = {key: min(value, end) if key == KEY else value for key, value in checkpoint.read_offsets(path).items()}
    checkpoint.write_offsets(path, points)
    for segment in _directory(host).glob("*.log"):
        data = segment.read_bytes()
        whole = 0
        for position, header in iter_batches(data):
            if header.last_offset < end:
                whole = position + header.size_bytes
        segment.write_bytes(data[:whole])


def _empty_at(host: Host, offset: int) -> None:
    for path in _directory(host).iterdir():
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            path.unlink()
    (_directory(host) / f"{offset:020d}.log").touch()
    (_directory(host) / checkpoint.LEADER_EPOCHS).write_text("0\n0\n")
    for name in (checkpoint.RECOVERY_POINTS, checkpoint.LOG_START_OFFSETS, checkpoint.HIGH_WATERMARKS):
        found = checkpoint.read_offsets(host.data_dir / name)
        checkpoint.write_offsets(host.data_dir / name, {**found, KEY: offset})


STORIES: Mapping[str, Callable[[Stage], Awaitable[None]]] = {
    story.__name__.replace("_", "-"): story
    for story in (
        remake_beside_a_deaf_follower,
        remake_beside_a_deaf_leader,
        remake_while_a_producer_waits,
        remake_beside_a_deaf_coordinator,
        remake_beside_a_coordinator_that_dies,
        remake_after_a_trim_and_kill_all,
        trim_before_the_followers_know,
        trim_beside_a_killed_follower,
        lose_power_after_a_trim,
        elect_before_all_that_are_back_have_reported,
        meet_an_empty_log_beyond_the_end,
        die_beside_an_empty_log_beyond_the_end,
        trims.trim_and_kill_the_leader,
        trims.trim_and_lose_power_everywhere,
        trims.trim_beside_a_follower_that_hears_nothing,
        trims.come_back_to_a_trimmed_log_and_lead,
        trims.come_back_to_a_trimmed_log_and_lose_power,
        trims.trim_beside_a_member_that_the_image_lacks,
        trims.trim_on_a_disk_that_hangs,
        trims.begin_inside_a_batch_on_a_full_disk,
        touch.wake_as_a_deposed_leader,
        touch.wake_as_a_deposed_coordinator,
        touch.do_without_zookeeper_for_long,
        touch.come_and_go_without_zookeeper,
        touch.lose_the_way_to_the_controller,
        touch.lead_groups_that_cannot_be_read,
        wishes.hear_a_wish_after_its_repetition_was_refused,
        wishes.write_while_a_wish_is_granted_and_not_answered,
        wishes.hear_a_wish_after_a_follower_has_left,
        wishes.take_in_nobody_whose_disk_is_full,
        tails.return_with_a_tail_below_the_leaders_start,
        members.commit_late_into_a_topic_made_again,
        members.commit_late_to_the_coordinator_that_comes_next,
        members.rebalance_at_a_coordinator_that_has_not_heard,
        tails.lose_power_where_a_cut_ended_a_segment,
        tails.cut_power_before_a_follower_has_synced,
        tails.lose_power_after_a_move,
        tails.lose_power_after_retention_emptied_a_log,
        beginnings.repeat_a_trimmed_batch_at_a_replica_that_began_anew,
        beginnings.repeat_a_trimmed_batch_after_a_move,
        beginnings.repeat_a_trimmed_batch_after_a_power_cut,
        beginnings.repeat_a_trimmed_batch_after_a_kill_on_a_disk_that_was_full,
        beginnings.come_back_before_hearing_of_having_left,
        beginnings.return_after_a_tombstone_is_gone,
        beginnings.return_after_a_groups_tombstones_are_gone,
        beginnings.return_without_the_records_that_a_compaction_went_by,
        beginnings.return_with_a_tail_where_the_copy_has_a_gap,
        beginnings.come_up_with_the_clock_ahead,
        beginnings.compact_with_the_clock_set_ahead,
        beginnings.create_where_nothing_opens,
        moves.elect_uncleanly_beside_a_copy_that_has_just_begun,
        moves.elect_uncleanly_the_only_copy_that_has_just_begun,
        orders.commit_while_a_commit_waits,
        orders.remake_while_a_checkpoint_is_written,
        orders.send_a_batch_again_behind_a_new_one,
        orders.send_batches_again_behind_those_that_the_next_leader_took,
        orders.send_a_batch_again_that_only_the_leader_has,
        orders.ask_a_coordinator_whose_follower_lacks_a_generation,
        orders.read_beside_a_follower_that_is_to_cut_its_log,
        transactions.commit_while_coordinators_die,
        transactions.remake_a_topic_under_two_transactions,
        transactions.end_late_beside_a_classic_successor,
        transactions.commit_where_clocks_were_set_ahead,
        full.fill_all_disks,
        full.remake_a_topic_where_nothing_can_be_renamed,
        deaf.lose_the_answers_of_a_coordinator,
        deaf.go_on_beside_a_deaf_coordinator,
        deaf.go_on_beside_a_coordinator_that_lost_its_session,
    )
}


def tell(name: str, directory: Path, *, trace: bool = False) -> Result:
    """Run one story to its end; never raises for what the story is about."""
    stage = Stage(directory, trace=trace)
    world, result = stage.world, Result(stage.world.seed, name)
    world.after_step = stage.checks.look

    async def main() -> None:
        await stage.begin()
        await STORIES[name](stage)
        world.is_over = True

    stage.cluster.spawn(Process("story"), main)
    try:
        world.run(until_s=LIMIT_S)
        stage.checks.check_end()
    except Violation as violation:
        result.invariant, result.detail = violation.invariant, str(violation)
    except BaseException as error:
        result.invariant = "no exception"
        result.detail = f"{result.invariant}: {''.join(traceback.format_exception(error))}"
    result.fingerprint, result.virtual_s, result.events = world.fingerprint, world.now_s, world.events
    result.counts, result.trace = dict(stage.checks.counts), list(world.trace)
    return result

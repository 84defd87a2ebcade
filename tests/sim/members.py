"""Stories of a member of a group that goes on while its topic is deleted and made again under the same name."""

from pylog.errors import ErrorCode
from tests.sim import groups
from tests.sim.clients import Client, Unanswered
from tests.sim.stage import CONTROLLER, FOLLOWER, KEY, LEADER, Stage
from tests.sim.world import Violation

POSITION = 10
"""How far the member has read in the former topic."""


async def commit_late_into_a_topic_made_again(stage: Stage) -> None:
    """A member commits where it is in the former topic after its coordinator has heard of the new one."""
    member = await _read_everything(stage)
    await stage.delete()
    await stage.create()
    await stage.until(lambda: stage.has_incarnation(1, 2, 3), "all brokers know the new topic")
    await _commit_late(stage, member)


async def commit_late_to_the_coordinator_that_comes_next(stage: Stage) -> None:
    """A member's coordinator dies before it hears of the new topic, and the next one reads the group from the log."""
    member = await _read_everything(stage)
    victim = await member.coordinator.find()
    if victim == CONTROLLER:
        raise Violation("progress", "the controller coordinates the group itself")
    with stage.cutting(victim, CONTROLLER):
        await stage.delete()
        await stage.create()
        others = {LEADER, FOLLOWER, CONTROLLER} - {victim}
        await stage.until(lambda: stage.has_incarnation(*others), "two brokers know the new topic")
        stage.kill(victim)
    stage.start(victim)
    await stage.until(lambda: stage.has_incarnation(1, 2, 3), "all brokers know the new topic")
    await _commit_late(stage, member)


async def rebalance_at_a_coordinator_that_has_not_heard(stage: Stage) -> None:
    """As before, but the group rebalances before its coordinator dies: its record is younger than the new topic."""
    member = await _read_everything(stage)
    victim = await member.coordinator.find()
    broker = stage.host(victim).broker
    assert broker is not None
    broker.membership.images.offer = lambda image: None  # type: ignore[method-assign]  # as in a pull that hangs
    await stage.delete()
    await stage.create()
    others = {LEADER, FOLLOWER, CONTROLLER} - {victim}
    await stage.until(lambda: stage.has_incarnation(*others), "two brokers know the new topic")
    before = member.membership.generation
    while member.membership.generation in (-1, before):
        try:
            await member.join()
        except Unanswered:
            member.coordinator.forget()
        await member.client.pause()
    stage.kill(victim)
    stage.start(victim)
    await stage.until(lambda: stage.has_incarnation(1, 2, 3), "all brokers know the new topic")
    await _commit_late(stage, member)


async def _read_everything(stage: Stage) -> groups.Member:
    """Return the only member of a group, which has read a log of ten records and committed nothing."""
    await stage.write(POSITION, "before")
    client = Client(stage.world, "member", stage.client._brokers)
    # Its session outlasts the story: nothing but the deletion of the topic may end it.
    membership = groups.new_membership()
    membership.session_timeout_ms = membership.rebalance_timeout_ms = 60_000
    member = groups.Member(client, stage.checks, [KEY], membership)
    while member.membership.generation < 0:
        try:
            await member.join()
        except Unanswered:
            member.coordinator.forget()
        await client.pause()
    await stage.until(stage.checks.is_settled, "the generation is everywhere")
    return member


async def _commit_late(stage: Stage, member: groups.Member) -> None:
    """Commit the position of before, which must be refused, and read where the group begins in the new topic."""
    await stage.write(15, "after")
    await stage.until(stage.checks.is_settled, "all replicas agree")
    client, place = member.client, member.membership
    error = None
    while error is None:
        try:
            broker_id = await member.coordinator.find()
            error = await groups.commit_one(
                client, stage.checks, groups.WORKERS, KEY, POSITION, broker_id, place.member_id, place.generation
            )
        except Unanswered:
            error = None
        if error in (None, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            error = None
            member.coordinator.forget()
        await client.pause()
    if error is not ErrorCode.UNKNOWN_MEMBER_ID:
        raise Violation("committed offsets", f"a commit of the former topic got {error.name}")
    offset = None
    while offset is None:
        try:
            broker_id = await member.coordinator.find()
            offset = await groups.fetch_one(client, stage.checks, groups.WORKERS, KEY, broker_id)
        except Unanswered:
            member.coordinator.forget()
        await client.pause()
    if offset >= 0:
        raise Violation("committed offsets", f"the group is told {offset}, committed for a topic that was deleted")
    await stage.settle()

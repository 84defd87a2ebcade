"""Stories of partitions that move while a leader is elected that may lack records."""

from pylog.cluster.topics import UNCLEAN_ELECTION
from tests.sim import clients
from tests.sim.stage import CONTROLLER, FOLLOWER, KEY, LEADER, Stage
from tests.sim.world import Violation

COUNT = 20


async def elect_uncleanly_beside_a_copy_that_has_just_begun(stage: Stage) -> None:
    """The only replica in sync dies, and one that had everything lives beside one that has nothing yet."""
    await _begin_to_move(stage)
    stage.start(FOLLOWER)
    await stage.until(lambda: stage.is_registered(FOLLOWER), "a full replica is back")
    stage.kill(LEADER)
    await stage.until(lambda: stage.leader() not in (LEADER, -1), "another leads")
    await _see_that_all_is_there(stage)


async def elect_uncleanly_the_only_copy_that_has_just_begun(stage: Stage) -> None:
    """It leads with nothing, and the records come back with the disks of the others, which were not told to delete."""
    await _begin_to_move(stage)
    stage.kill(LEADER)
    await stage.until(lambda: stage.leader() == CONTROLLER, "the empty copy leads")
    # What an operator does who wants the records back: the copy goes, and one that had everything comes and leads.
    stage.kill(CONTROLLER)
    stage.start(FOLLOWER)
    await stage.until(lambda: stage.leader() == FOLLOWER, "a full replica leads", 60)
    await _see_that_all_is_there(stage)


async def _begin_to_move(stage: Stage) -> None:
    """Have `LEADER` alone in sync, `FOLLOWER` down with all that was written, and `CONTROLLER` about to copy it."""
    stage.checks.expect_any_replica_count()
    stage.checks.unclean.add(KEY.topic)
    for name, value in ((UNCLEAN_ELECTION, "true"), ("min.insync.replicas", "1")):
        await stage.set_config(KEY.topic, name, value)
    await clients.move_once(stage.client, CONTROLLER, KEY, [LEADER, FOLLOWER])
    await stage.until(lambda: stage.partition(CONTROLLER) is None, "one replica is gone")
    await stage.write(COUNT)
    await stage.until(stage.checks.is_settled, "both know what was written")
    stage.kill(FOLLOWER)
    await stage.until(lambda: stage.checks.states[KEY].isr == (LEADER,), "one is in sync")
    leader = stage.host(LEADER).name
    for other in (stage.host(FOLLOWER).name, stage.host(CONTROLLER).name):
        stage.cluster.network.cut(leader, other)
        stage.cluster.network.cut(other, leader)
    await clients.move_once(stage.client, CONTROLLER, KEY, [CONTROLLER])
    await stage.until(lambda: stage.partition(CONTROLLER) is not None, "a copy has begun")


async def _see_that_all_is_there(stage: Stage) -> None:
    await stage.until(lambda: stage.log(stage.leader()) is not None, "its log is open")
    _see(stage, stage.leader(), COUNT)
    stage.cluster.network.heal()
    await stage.write(3, "after")
    await stage.settle()
    gone = (LEADER, FOLLOWER)
    await stage.until(lambda: all(stage.partition(one) is None for one in gone), "the others have deleted theirs")
    _see(stage, CONTROLLER, COUNT + 3)


def _see(stage: Stage, broker_id: int, count: int) -> None:
    log = stage.log(broker_id)
    assert log is not None
    if log.log_end_offset < count:
        raise Violation(
            "a copy does not lead before a full replica", f"{broker_id} has {log.log_end_offset} of {count}"
        )

"""Stories about what the end of a log has that nobody else has: it goes before the log counts as a copy."""

from pylog.errors import ErrorCode
from pylog.wire.records import Record, encode_batch
from tests.sim.stage import KEY, LEADER, Stage
from tests.sim.world import Violation


async def return_with_a_tail_below_the_leaders_start(stage: Stage) -> None:
    """A deposed leader has one record of its own, which ends where its successor's trimmed log begins."""
    await stage.write(3)
    await stage.until(stage.checks.is_settled, "all know what was written")
    others = [broker_id for broker_id in stage.cluster.hosts if broker_id != LEADER]
    with stage.cutting(LEADER, others[0]), stage.cutting(LEADER, others[1]):
        record = Record(0, stage.world.wall_ns() // 1_000_000, None, b"alone")
        error, offset = await stage.client.produce(LEADER, KEY, encode_batch([record]), 1)
        if (error, offset) != (ErrorCode.NONE, 3):
            raise Violation("progress", f"a record with acks=1 is answered {error.name} {offset}")
        stage.kill(LEADER)
        # Behind the cut until then: what a killed process had sent may still arrive.
        await stage.until(lambda: stage.leader() != LEADER, "another leads")
    await stage.write(1, "instead")
    await stage.delete_records(-1)
    stage.start(LEADER)
    await stage.until(lambda: LEADER in stage.checks.states[KEY].isr, "the deposed leader is in sync")
    await stage.write(1, "later")
    await stage.settle()

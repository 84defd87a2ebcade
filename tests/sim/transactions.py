"""Stories of transactions: a producer that commits and aborts, with its group's offsets, while brokers die."""

import asyncio

from pylog.broker.groups.offsets import FORGET_REST_MS
from pylog.broker.transactions.coordinator import SWEEP_S
from pylog.errors import ErrorCode
from pylog.group.records import TOPIC as OFFSETS_TOPIC
from pylog.group.records import partition_for
from pylog.model import TopicPartition
from pylog.transaction.records import TOPIC as STATE_TOPIC
from pylog.wire.api.coordinator import GROUP
from tests.sim.beginnings import until_answered
from tests.sim.copier import Copier, read_committed
from tests.sim.faults import DAY_MS
from tests.sim.stage import KEY, TOPIC, Stage
from tests.sim.world import Violation

ID, GROUP_ID = "copier", "copied"
TRANSACTIONS = 12


async def commit_while_coordinators_die(stage: Stage) -> None:
    """The coordinator of a transactional id, that of its group, and its partition's leader die, one at each step."""
    copier = Copier(stage.client, ID, KEY, GROUP_ID)
    await copier.begin()
    victims: list[int] = []

    def leader_of(topic: str, name: str) -> int:
        if topic == TOPIC:
            return stage.leader()
        for key, state in stage.checks.states.items():
            if key.topic == topic and key.partition == _partition_of(stage, topic, name):
                return state.leader
        return -1

    async def end_of_life(step: int, number: int) -> None:
        if step != number % 5 or number in (0, TRANSACTIONS - 1):
            return
        for victim in victims:
            if not stage.is_registered(victim):
                stage.start(victim)
                await stage.until(lambda victim=victim: stage.is_registered(victim), "the last victim is back")
        await stage.until(stage.checks.is_settled, "all are in sync again")
        kind = number % 3
        topic, name = ((STATE_TOPIC, ID), (OFFSETS_TOPIC, GROUP_ID), (TOPIC, ""))[kind]
        victim = leader_of(topic, name)
        if victim > 0:
            stage.kill(victim)
            victims[:] = [victim]

    for number in range(TRANSACTIONS):
        await copier.run(
            number, is_commit=number % 4 != 3, between=lambda step, number=number: end_of_life(step, number)
        )
    for victim in victims:
        if not stage.is_registered(victim):
            stage.start(victim)
    await stage.until(stage.checks.is_settled, "all are in sync again")
    await stage.until(lambda: _read_committed(stage) is not None, "the last transaction is decided")
    if _read_committed(stage) != copier.committed:
        raise Violation("readers get what was committed", f"{_read_committed(stage)} for {copier.committed}")
    await _check_offset(stage, copier)


async def remake_a_topic_under_two_transactions(stage: Stage) -> None:
    """A group's offsets are pending for a topic and for the next of its name; the former ones are committed first."""
    former, present = (Copier(stage.client, f"{ID}-{name}", KEY, GROUP_ID) for name in ("former", "present"))
    await former.begin()
    await present.begin()
    may_end = asyncio.Event()

    async def wait_to_end(step: int) -> None:
        if step == 4:
            is_pending.set()
            await may_end.wait()

    is_pending = asyncio.Event()
    ending = asyncio.create_task(former.run(5, is_commit=True, between=wait_to_end))
    await is_pending.wait()
    await stage.delete()
    await stage.create()
    await stage.until(lambda: stage.has_incarnation(1, 2, 3), "all brokers know the new topic")

    async def end_the_former(step: int) -> None:
        if step == 4:
            may_end.set()
            await ending
            # The coordinator deletes offsets of topics that are gone from its log when it has nothing else to do.
            await asyncio.sleep(3 * FORGET_REST_MS / 1000)

    await present.run(7, is_commit=True, between=end_the_former)
    await stage.until(stage.checks.is_settled, "all replicas agree")
    await _check_offset(stage, present)
    victim = await present.coordinator(GROUP_ID, GROUP)
    stage.kill(victim)
    stage.start(victim)
    await stage.until(stage.checks.is_settled, "all are in sync again")
    await _check_offset(stage, present)


async def end_late_beside_a_classic_successor(stage: Stage) -> None:
    """The end of a transaction that has an epoch of its own arrives again, once a classic producer has the id."""
    former = Copier(stage.client, ID, KEY, GROUP_ID, has_epoch_each=True)
    await former.begin()
    await former.run(0, is_commit=True, between=_nothing)
    heir = Copier(stage.client, ID, KEY, GROUP_ID)
    await heir.begin()

    async def end_again(step: int) -> None:
        for is_commit in (True, False):
            code = ErrorCode.CONCURRENT_TRANSACTIONS
            while code is ErrorCode.CONCURRENT_TRANSACTIONS:  # the successor's own last end is being written
                code = await until_answered(stage, lambda is_commit=is_commit: former.end_once(is_commit=is_commit))
            if code is not ErrorCode.PRODUCER_FENCED:
                raise Violation("a late end counts for nobody else", f"before step {step}: {code.name}")

    for number in (1, 2):
        await heir.run(number, is_commit=number == 2, between=end_again)
    await stage.until(lambda: _read_committed(stage) is not None, "the last transaction is decided")
    if _read_committed(stage) != former.committed + heir.committed:
        raise Violation("readers get what was committed", f"{_read_committed(stage)}")


async def commit_where_clocks_were_set_ahead(stage: Stage) -> None:
    """All clocks are set a day ahead under open transactions, which may be open for two minutes."""
    copiers = [
        Copier(stage.client, ID, KEY, GROUP_ID),
        Copier(stage.client, f"{ID}-of-each-epoch", KEY, GROUP_ID, has_epoch_each=True),
    ]

    async def set_clocks(step: int) -> None:
        if step != 2:
            return
        for host in stage.cluster.hosts.values():
            assert host.process is not None
            host.skew_ms = host.process.skew_ms = host.skew_ms + DAY_MS
        await asyncio.sleep(5 * SWEEP_S)

    for number, copier in enumerate(copiers):
        await copier.begin()
        await copier.run(number, is_commit=True, between=set_clocks)
    await stage.until(lambda: _read_committed(stage) is not None, "the last transaction is decided")
    if _read_committed(stage) != [value for copier in copiers for value in copier.committed]:
        raise Violation("readers get what was committed", f"{_read_committed(stage)}")


async def _nothing(_step: int) -> None:
    """Do nothing between two steps."""


def _partition_of(stage: Stage, topic: str, name: str) -> int:
    return partition_for(name, len([key for key in stage.checks.states if key.topic == topic]))


def _read_committed(stage: Stage) -> list[bytes] | None:
    """Return what the log of the leader has that was committed; None while it is not all decided."""
    log = stage.log(stage.leader())
    return None if log is None else read_committed(log)


async def _check_offset(stage: Stage, copier: Copier) -> None:
    broker_id = await until_answered(stage, lambda: copier.coordinator(GROUP_ID, GROUP))
    broker = stage.host(broker_id).broker
    assert broker is not None
    await stage.until(lambda: broker.groups.is_loaded(_partition_of(stage, OFFSETS_TOPIC, GROUP_ID)), "it is loaded")
    held = broker.groups.offsets(GROUP_ID).get(TopicPartition(*KEY))
    if held is None or held.offset != copier.offset:
        raise Violation("offsets count with their transaction", f"{held} for {copier.offset}")

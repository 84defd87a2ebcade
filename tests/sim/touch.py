"""Stories about brokers that are out of touch: deposed while they slept, or without ZooKeeper for long."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pylog.errors import ErrorCode
from pylog.group.records import TOPIC as GROUPS_TOPIC
from pylog.model import NO_LEADER, TopicPartition
from pylog.wire.api.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.sim import groups
from tests.sim.clients import Client, Unanswered
from tests.sim.stage import CONTROLLER, FOLLOWER, KEY, LEADER, PATIENCE_S, Stage
from tests.sim.world import Violation
from tests.sim.zookeeper import HOST as ZOOKEEPER

GROUP = "readers"
GROUPS_KEY = TopicPartition(GROUPS_TOPIC, 0)
AWAY_S = 60.0
"""Thirty session time-outs: to the brokers as good as an hour."""


async def wake_as_a_deposed_leader(stage: Stage) -> None:
    """A leader sleeps until another one leads, and wakes where only clients reach it."""
    await stage.write(5)
    await stage.until(stage.checks.is_settled, "all know what was written")
    with _asleep(stage, LEADER):
        await stage.until(lambda: stage.leader() not in (LEADER, -1), "another leads")
        await stage.write(5, "later")
    error, *_ = await stage.client.fetch(LEADER, KEY, 9)
    if error in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
        raise Violation("nobody is sent back", f"a deposed leader answers {error.name} to a fetch of what it lacks")
    part = OffsetForLeaderPartition(partition=KEY.partition, current_leader_epoch=-1, leader_epoch=_epoch(stage))
    question = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=KEY.topic, partitions=[part])])
    answer = await stage.client.call(LEADER, question, OffsetForLeaderEpochResponse)
    row = answer.topics[0].partitions[0]
    if row.error_code == ErrorCode.NONE:
        raise Violation("nobody is sent back", f"a deposed leader says where a later epoch ends: {row}")
    stage.cluster.network.heal()
    await stage.settle()


async def wake_as_a_deposed_coordinator(stage: Stage) -> None:
    """A group's coordinator sleeps until another one took a later commit, and wakes where only clients reach it."""
    await stage.write(5)
    client = Client(stage.world, "group", stage.client._brokers)
    await commit(stage, client, 1)
    await stage.until(stage.checks.is_settled, "the commit is everywhere")
    coordinator = stage.checks.states[GROUPS_KEY].leader
    with _asleep(stage, coordinator):
        await stage.until(lambda: stage.checks.states[GROUPS_KEY].leader not in (coordinator, -1), "another leads")
        await commit(stage, client, 4)
    found = await groups.fetch_one(client, stage.checks, GROUP, KEY, coordinator)
    if found is not None:
        raise Violation("committed offsets", f"4 was committed, a deposed coordinator tells {found}")
    stage.cluster.network.heal()
    await stage.settle()


async def do_without_zookeeper_for_long(stage: Stage) -> None:
    """ZooKeeper is away for thirty session time-outs: groups commit, read what they committed, and begin."""
    await stage.write(5)
    client = Client(stage.world, "group", stage.client._brokers)
    await commit(stage, client, 1)
    await stage.until(stage.checks.is_settled, "the commit is everywhere")
    ensemble = stage.cluster.ensemble
    ensemble.is_up = False
    await asyncio.sleep(AWAY_S)
    await commit(stage, client, 2)
    found = await groups.fetch_one(client, stage.checks, GROUP, KEY, stage.checks.states[GROUPS_KEY].leader)
    if found != 2:
        raise Violation("groups do without ZooKeeper", f"2 was committed, {found} is told")
    is_over = False
    joining = asyncio.create_task(
        groups.take_part(Client(stage.world, "member", client._brokers), stage.checks, [KEY], lambda: not is_over)
    )
    await stage.until(lambda: stage.checks.newest_generation(groups.WORKERS) >= 0, "a group of one has begun")
    is_over = True
    ensemble.is_up = True
    await joining
    await stage.settle()


async def come_and_go_without_zookeeper(stage: Stage) -> None:
    """ZooKeeper is away, and a replica that is not in sync comes and falls silent: the two others go on without it."""
    await stage.write(5)
    client = Client(stage.world, "group", stage.client._brokers)
    await commit(stage, client, 1)
    await stage.until(stage.checks.is_settled, "the commit is everywhere")
    leader = stage.checks.states[GROUPS_KEY].leader
    out = FOLLOWER if leader != FOLLOWER else LEADER
    broker = stage.host(leader).broker
    assert broker is not None
    partition = broker.partitions.get(*GROUPS_KEY)
    assert partition is not None
    leading = partition.leading
    assert leading is not None
    with stage.cutting(leader, out):
        await commit(stage, client, 2)
        await stage.write(3, "more")
        await stage.until(lambda: out not in stage.checks.states[GROUPS_KEY].isr, "it is out")
        stage.cluster.ensemble.is_up = False
        await asyncio.sleep(5.0)
    await stage.until(lambda: leading.progress(out).log_end_offset >= leading.epoch_start, "it has come back")
    await asyncio.sleep(1.0)
    with stage.cutting(leader, out):
        await asyncio.sleep(1.0)
        await commit(stage, client, 3)
        await stage.write(3, "later", seconds=2.0)
        found = await groups.fetch_one(client, stage.checks, GROUP, KEY, leader)
    if found != 3:
        raise Violation("groups do without ZooKeeper", f"3 was committed, {found} is told")
    stage.cluster.ensemble.is_up = True
    await stage.settle()


async def lead_groups_that_cannot_be_read(stage: Stage) -> None:
    """The next coordinator cannot read the groups' records from its disk: another replica has to lead."""
    await stage.write(5)
    client = Client(stage.world, "group", stage.client._brokers)
    await commit(stage, client, 1)
    await stage.until(stage.checks.is_settled, "the commit is everywhere")
    leader, disks = stage.checks.states[GROUPS_KEY].leader, stage.cluster.disks
    heirs: list[int] = []

    def fail_the_next_read() -> None:
        heir = stage.checks.states[GROUPS_KEY].leader
        if heir not in (leader, NO_LEADER) and not heirs:
            heirs.append(heir)
            disks.unreadable[stage.host(heir).name] = 1

    stage.world.watches.append(fail_the_next_read)
    stage.kill(leader)
    await stage.until(lambda: bool(heirs), "another leads")
    (heir,) = heirs
    await stage.until(lambda: not disks.unreadable[stage.host(heir).name], "it has read its log")
    stage.start(leader)
    await commit(stage, client, 2)
    coordinator = groups.Coordinator(client, GROUP)
    found = await groups.fetch_one(client, stage.checks, GROUP, KEY, await coordinator.find())
    if found != 2:
        raise Violation("committed offsets", f"2 was committed, {found} is told")
    stage.kill(heir)  # as an operator does who got the disk replaced
    await stage.settle()


@contextmanager
def _asleep(stage: Stage, broker_id: int) -> Iterator[None]:
    """Pause a broker; it goes on without a way to ZooKeeper or to another broker."""
    host, network = stage.host(broker_id), stage.cluster.network
    assert host.process is not None
    stage.world.pause(host.process)
    yield
    for other in (ZOOKEEPER, *(one.name for one in stage.cluster.hosts.values() if one is not host)):
        network.cut(host.name, other)
        network.cut(other, host.name)
    stage.world.resume(host.process)


def _epoch(stage: Stage) -> int:
    return stage.checks.states[KEY].leader_epoch


async def commit(stage: Stage, client: Client, offset: int) -> None:
    """Commit an offset of the group, asking until it is done."""
    coordinator = groups.Coordinator(client, GROUP)
    deadline_s = stage.world.now_s + PATIENCE_S
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    while error is not ErrorCode.NONE:
        if stage.world.now_s > deadline_s:
            raise Violation("progress", f"the group cannot commit: {error.name}")
        try:
            error = await groups.commit_one(client, stage.checks, GROUP, KEY, offset, await coordinator.find())
        except Unanswered:
            coordinator.forget()
        if error is not ErrorCode.NONE:
            coordinator.forget()
            await client.pause()


async def lose_the_way_to_the_controller(stage: Stage) -> None:
    """The controller has its session, and no other broker reaches it: another one has to become controller."""
    await stage.write(3)
    await stage.until(stage.checks.is_settled, "all know what was written")
    with stage.cutting(CONTROLLER, LEADER), stage.cutting(CONTROLLER, FOLLOWER):
        # It is in sync, and only a controller can change that.
        await stage.write(3, "later")
    await stage.settle()

"""Stories about an unlucky order: what began first ends last."""

import asyncio
import contextlib
import struct
from dataclasses import dataclass, field
from typing import Any

from pylog.errors import ErrorCode
from pylog.group.records import CommittedOffset
from pylog.model import TopicPartition
from pylog.replica.leader import Leader
from pylog.wire.api import ApiKey
from pylog.wire.api.groups import JoinGroupResponse, SyncGroupResponse
from pylog.wire.api.partitions import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from pylog.wire.records import Record, encode_batch
from tests.sim import clients, groups
from tests.sim.clients import Client, Unanswered
from tests.sim.stage import CONTROLLER, FOLLOWER, KEY, LEADER, PATIENCE_S, Stage
from tests.sim.touch import GROUP, GROUPS_KEY, commit
from tests.sim.world import CURRENT, Violation

PRODUCE_VERSION = 7
PRODUCE_TIMEOUT_MS = 5_000


async def commit_while_a_commit_waits(stage: Stage) -> None:
    """A commit waits for followers until they leave the ISR; the next one comes before the first is answered."""
    await stage.write(5)
    client = Client(stage.world, "group", stage.client._brokers)
    await commit(stage, client, 1)
    await stage.set_config(GROUPS_KEY.topic, "min.insync.replicas", "1")
    await stage.until(stage.checks.is_settled, "the commit is everywhere")
    leader = stage.checks.states[GROUPS_KEY].leader
    broker, process = stage.host(leader).broker, stage.host(leader).process
    partition = broker.partitions.get(*GROUPS_KEY) if broker is not None else None
    assert broker is not None
    assert partition is not None
    assert partition.log is not None
    end = partition.log.log_end_offset
    log = partition.log
    answers: list[object] = []

    def commit_at_once() -> None:
        """Have the next commit read in the turn of the loop in which the high watermark passes the first."""
        if log.high_watermark > end and not answers:
            token = CURRENT.set(process)
            stage.checks.in_doubt(GROUP, KEY, 3)
            answers.append(broker.groups.commit(GROUP, {(KEY.topic, KEY.partition): CommittedOffset(3)}))
            CURRENT.reset(token)

    stage.world.watches.append(commit_at_once)
    for broker_id in {LEADER, FOLLOWER, CONTROLLER} - {leader}:
        stage.kill(broker_id)
    asking = asyncio.create_task(groups.commit_one(client, stage.checks, GROUP, KEY, 2, leader))
    await stage.until(lambda: bool(answers), "the high watermark passes the first commit")
    stage.world.watches.remove(commit_at_once)
    if answers != [ErrorCode.NONE] or await asking is not ErrorCode.NONE:
        raise Violation("progress", f"the commits are answered with {answers} and {asking}")
    found = await groups.fetch_one(client, stage.checks, GROUP, KEY, leader)
    if found != 3:
        raise Violation("committed offsets", f"3 was committed last, {found} is told")
    await stage.settle()


async def remake_while_a_checkpoint_is_written(stage: Stage) -> None:
    """A checkpoint of a log that began late is written when that topic was made again, and all brokers are killed."""
    await stage.delete()
    await stage.until(lambda: all(stage.partition(one) is None for one in (1, 2, 3)), "all know of the deletion")
    for host in stage.cluster.hosts.values():
        assert host.broker is not None
        token = CURRENT.set(host.process)
        host.broker.partitions._directory.checkpoint()  # it names no log of the topic
        CURRENT.reset(token)
    await stage.create()
    await stage.until(lambda: stage.has_incarnation(1, 2, 3), "all know the topic")
    await stage.write(20)
    await stage.until(stage.checks.is_settled, "all know what was written")
    threads = _be_busy(stage, LEADER)
    deleting = asyncio.create_task(_delete_records(stage, 20))
    await stage.until(lambda: bool(threads.waiting), "the leader has decided what to write")
    number = threads.waiting[-1]
    stage.checks.trimmed(KEY, 20, 20, None)
    await stage.delete()
    await stage.create()
    await stage.until(lambda: stage.has_incarnation(1, 2, 3), "all know the new topic")
    await stage.write(5, "after")
    threads.written = number
    await asyncio.sleep(0.02)
    for broker_id in (LEADER, FOLLOWER, CONTROLLER):
        stage.kill(broker_id)
    await asyncio.wait([deleting])
    await stage.settle()
    await stage.write(3, "later")
    await stage.settle()


async def send_a_batch_again_behind_a_new_one(stage: Stage) -> None:
    """One request has a new batch and, again, one that waits for followers, who then get no further than that one."""
    await stage.write(3)
    await stage.until(stage.checks.is_settled, "all know what was written")
    network, followers = stage.cluster.network, (FOLLOWER, CONTROLLER)
    batches, values = await _make_batches(stage, 2)
    for one in followers:
        network.cut(stage.host(one).name, stage.host(LEADER).name)
    first = asyncio.create_task(_produce(stage, "first", batches[:1]))
    await stage.until(lambda: all(_end(stage, one) == 4 for one in followers), "the followers have the first")
    for one in followers:
        network.cut(stage.host(LEADER).name, stage.host(one).name)
    both = asyncio.create_task(_produce(stage, "both", [batches[1], batches[0]]))
    await stage.until(lambda: _end(stage, LEADER) == 5, "the leader has both")
    for one in followers:
        network.uncut(stage.host(one).name, stage.host(LEADER).name)
    await asyncio.wait([first, both], timeout=1.0)
    stage.checks.acknowledged(KEY, LEADER, 3, values[:1], is_first=False)
    if both.done() and await both == [ErrorCode.NONE, ErrorCode.NONE]:
        stage.checks.acknowledged(KEY, LEADER, 4, values[1:], is_first=False)
    stage.kill(LEADER)
    network.heal()
    await asyncio.wait([first, both])
    await stage.until(lambda: stage.leader() not in (LEADER, -1), "another leads")
    await stage.write(3, "after")
    await stage.settle()


async def send_batches_again_behind_those_that_the_next_leader_took(stage: Stage) -> None:
    """A leader dies before it answers five batches; the next one takes five more, and then the first come again.

    Kafka's own producer does that: it counts what is in flight on each connection, not in each partition.
    """
    await stage.write(3)
    await stage.until(stage.checks.is_settled, "all know what was written")
    network, followers = stage.cluster.network, (FOLLOWER, CONTROLLER)
    batches, values = await _make_batches(stage, 10)
    for one in followers:
        network.cut(stage.host(one).name, stage.host(LEADER).name)
    first = asyncio.create_task(_produce(stage, "first", batches[:5]))
    await stage.until(lambda: all(_end(stage, one) == 8 for one in followers), "the followers have the first five")
    stage.kill(LEADER)
    network.heal()
    await asyncio.wait([first])
    await stage.until(lambda: stage.leader() not in (LEADER, -1), "another leads")
    for number in (*range(5, 10), *range(5)):
        wanted = (ErrorCode.NONE, 3 + number) if number >= 5 else (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
        deadline_s, answer = stage.world.now_s + PATIENCE_S, None
        while answer != wanted:
            if stage.world.now_s > deadline_s:
                raise Violation("progress", f"batch {number} is answered with {answer}")
            try:
                leader = await stage.client.find_leader(KEY)
                answer = await stage.client.produce(leader, KEY, batches[number], -1)
            except Unanswered:
                answer = None
            if answer != wanted:
                stage.client.leaders.clear()
                await stage.client.pause()
        stage.checks.acknowledged(KEY, leader, 3 + number, [values[number]], is_first=False)
    await stage.settle()


async def send_a_batch_again_that_only_the_leader_has(stage: Stage) -> None:
    """A leader alone has eight batches, and knows no more where the first is, which comes again; then it dies."""
    await stage.write(3)
    await stage.until(stage.checks.is_settled, "all know what was written")
    batches, values = await _make_batches(stage, 8)
    with stage.cutting(LEADER, FOLLOWER), stage.cutting(LEADER, CONTROLLER):
        first = asyncio.create_task(_produce(stage, "first", batches))
        await stage.until(lambda: _end(stage, LEADER) == 11, "the leader has them all")
        again = asyncio.create_task(_produce(stage, "again", batches[:1]))
        await asyncio.wait([again], timeout=1.0)
        if again.done() and await again == [ErrorCode.DUPLICATE_SEQUENCE_NUMBER]:
            stage.checks.acknowledged(KEY, LEADER, 3, values[:1], is_first=False)
        stage.kill(LEADER)
    await asyncio.wait([first, again])
    await stage.until(lambda: stage.leader() not in (LEADER, -1), "another leads")
    await stage.write(3, "after")
    await stage.settle()


async def ask_a_coordinator_whose_follower_lacks_a_generation(stage: Stage) -> None:
    """A coordinator dies; its heir is asked for a generation that a silent member of the ISR lacks, and dies, too."""
    for broker_id in (LEADER, CONTROLLER):
        stage.kill(broker_id)
    await stage.until(lambda: _controller(stage, FOLLOWER) == FOLLOWER, "broker 2 is controller")
    for broker_id in (LEADER, CONTROLLER):
        stage.start(broker_id)
    await stage.until(stage.checks.is_settled, "all replicas agree")
    client = Client(stage.world, "member", stage.client._brokers)
    first = groups.Member(client, stage.checks, [KEY], groups.new_membership())
    await _join(stage, first)
    await stage.set_config(GROUPS_KEY.topic, "min.insync.replicas", "1")
    await stage.until(stage.checks.is_settled, "the generation is everywhere")
    state = stage.checks.states[GROUPS_KEY]
    heir = FOLLOWER
    (last,) = {LEADER, CONTROLLER} - {state.leader}
    end = _end(stage, heir, GROUPS_KEY)
    with stage.cutting(last, state.leader), stage.cutting(last, heir):
        joined = await first.client.call(state.leader, first.membership.join(), JoinGroupResponse)
        sync = first.membership.sync(joined.generation_id, {first.membership.member_id: b"\0\0"})
        syncing = asyncio.create_task(first.client.call(state.leader, sync, SyncGroupResponse))
        await stage.until(lambda: _end(stage, heir, GROUPS_KEY) > end, "the heir has the second generation")
        stage.kill(state.leader)
        with contextlib.suppress(Unanswered):
            await syncing
        answer = None
        while (answer is None or answer.error_code) and last in stage.checks.states[GROUPS_KEY].isr:
            await asyncio.sleep(0.02)
            with contextlib.suppress(Unanswered):
                answer = await first.client.call(heir, sync, SyncGroupResponse)
        is_early = answer is not None and not answer.error_code and last in stage.checks.states[GROUPS_KEY].isr
        if is_early:
            stage.checks.assigned(groups.WORKERS, joined.generation_id, first.membership.member_id, [KEY])
            stage.kill(heir)
            await stage.until(lambda: stage.checks.states[GROUPS_KEY].leader == last, "the last one coordinates")
    await _commit_late(stage, first, last if is_early else heir)
    await stage.settle()


async def _commit_late(stage: Stage, member: groups.Member, broker_id: int) -> None:
    """Commit in the generation of the member's first assignment, until a coordinator takes or refuses it."""
    membership, error = member.membership, ErrorCode.NOT_COORDINATOR
    retriable = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    while error in retriable:
        await asyncio.sleep(0.02)
        with contextlib.suppress(Unanswered):
            error = await groups.commit_one(
                member.client, stage.checks, groups.WORKERS, KEY, 1, broker_id, membership.member_id, 1
            )


def _controller(stage: Stage, broker_id: int) -> int:
    broker = stage.host(broker_id).broker
    return broker.partitions.image.controller_id if broker is not None else -1


async def _join(stage: Stage, member: groups.Member) -> None:
    deadline_s = stage.world.now_s + PATIENCE_S
    while member.membership.generation < 0:
        try:
            await member.join()
        except Unanswered as error:
            if stage.world.now_s > deadline_s:
                raise Violation("progress", f"{member.client.name} cannot join: {error}") from error
            member.coordinator.forget()
            await asyncio.sleep(0.1)


async def read_beside_a_follower_that_is_to_cut_its_log(stage: Stage) -> None:
    """A deposed leader returns with records of its own, and hears nothing of where its log has to be cut."""
    await stage.write(5)
    await stage.until(stage.checks.is_settled, "all know what was written")
    with stage.cutting(LEADER, FOLLOWER), stage.cutting(LEADER, CONTROLLER):
        await _write_to(stage, LEADER, "own")
        stage.kill(LEADER)
    stage.cluster.disks.full.add(stage.host(CONTROLLER).name)
    await stage.until(lambda: stage.leader() == FOLLOWER, "another leads")
    await stage.until(lambda: _leading(stage, FOLLOWER) is not None, "it knows")
    log = stage.log(FOLLOWER)
    assert log is not None
    # As far as the former leader's, of which a record may have been on its way when the link was cut.
    end = 8
    await _write_to(stage, FOLLOWER, "later", end - log.log_end_offset)
    await stage.until(lambda: stage.checks.states[KEY].isr == (FOLLOWER,), "it is alone in sync")
    names = stage.host(FOLLOWER).name, stage.host(LEADER).name

    def cut() -> None:
        leading = _leading(stage, FOLLOWER)
        if leading is not None and leading.progress(LEADER).log_end_offset >= end:
            stage.cluster.network.cut(*names)

    stage.world.watches.append(cut)
    stage.start(LEADER)
    await stage.until(lambda: LEADER in stage.checks.states[KEY].isr, "the former leader is in sync")
    stage.world.watches.remove(cut)
    await stage.until(lambda: log.high_watermark == end, "all is replicated")
    _, high_watermark, records, _ = await stage.client.fetch(FOLLOWER, KEY, 5)
    stage.checks.served(KEY, FOLLOWER, high_watermark, records)
    stage.kill(FOLLOWER)
    stage.cluster.network.heal()
    stage.cluster.disks.full.clear()
    await stage.until(lambda: stage.leader() == LEADER, "the former leader leads")
    await stage.write(3, "after")
    await stage.settle()


async def _write_to(stage: Stage, broker_id: int, word: str, count: int = 3) -> None:
    """Write *count* records with acks=1 to a leader."""
    for number in range(count):
        value = f"{word}:{number}".encode()
        batch = encode_batch([Record(0, stage.world.wall_ns() // 1_000_000, None, value)])
        error, _ = await stage.client.produce(broker_id, KEY, batch, 1)
        if error is not ErrorCode.NONE:
            raise Violation("progress", f"{value!r}: {error.name}")


def _leading(stage: Stage, broker_id: int) -> Leader | None:
    partition = stage.partition(broker_id)
    return partition.leading if partition is not None else None


async def _make_batches(stage: Stage, count: int) -> tuple[list[bytes], list[bytes]]:
    """Return batches of one record of a new idempotent producer, and their values."""
    producer_id, epoch = await clients.init_producer(stage.client)
    batches, values = [], []
    for number in range(count):
        value = f"once:{KEY}:{number}".encode()
        rows = [Record(0, stage.world.wall_ns() // 1_000_000, None, value)]
        batches.append(encode_batch(rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=number))
        values.append(value)
    return batches, values


async def _produce(stage: Stage, name: str, batches: list[bytes]) -> list[ErrorCode]:
    """Send several batches for one partition in one request; return what each was answered, if anything was."""
    topic = KEY.topic.encode()
    body = struct.pack(">hhiih", -1, -1, PRODUCE_TIMEOUT_MS, 1, len(topic)) + topic + struct.pack(">i", len(batches))
    body += b"".join(struct.pack(">ii", KEY.partition, len(batch)) + batch for batch in batches)
    client = Client(stage.world, name, stage.client._brokers)
    try:
        answer = await client.ask(LEADER, ApiKey.PRODUCE, PRODUCE_VERSION, body)
    except Unanswered:
        return []
    at = 4 + 2 + len(topic) + 4
    rows = [struct.unpack_from(">ihqqq", answer, at + 30 * number) for number in range(len(batches))]
    return [ErrorCode(row[1]) for row in rows]


def _end(stage: Stage, broker_id: int, key: TopicPartition = KEY) -> int:
    broker = stage.host(broker_id).broker
    partition = broker.partitions.get(*key) if broker is not None else None
    return partition.log.log_end_offset if partition is not None and partition.log is not None else -1


async def _delete_records(stage: Stage, before: int) -> None:
    """Ask the leader to begin at an offset, whatever comes of it."""
    part = DeleteRecordsPartition(partition_index=KEY.partition, offset=before)
    wish = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=KEY.topic, partitions=[part])], timeout_ms=1_000)
    stage.checks.may_trim(KEY, before)
    with contextlib.suppress(Unanswered):
        await Client(stage.world, "trimmer", stage.client._brokers).call(LEADER, wish, DeleteRecordsResponse)


@dataclass(slots=True)
class _BusyThreads:
    """Checkpoints that wait for a thread; what each is to write was decided before.

    Attributes:
        waiting: their numbers.
        written: those up to this number have their thread.
    """

    waiting: list[int] = field(default_factory=list)
    written: int = 0


def _be_busy(stage: Stage, broker_id: int) -> _BusyThreads:
    """Let the checkpoints of a broker wait from now on, but those that its loop or an opening log writes at once."""
    broker = stage.host(broker_id).broker
    assert broker is not None
    directory, threads = broker.partitions._directory, _BusyThreads()
    write, checkpoint = directory.write_checkpoints, directory.checkpoint
    is_at_once = False

    def write_late(number: int, *rest: Any) -> None:
        running = stage.cluster.turns.running
        if running is not None and not is_at_once:
            threads.waiting.append(number)
            while number > threads.written:
                running.park(0.005)
        write(number, *rest)

    def checkpoint_at_once() -> None:
        nonlocal is_at_once
        is_at_once = True
        checkpoint()
        is_at_once = False

    directory.write_checkpoints = write_late  # type: ignore[method-assign,assignment]
    directory.checkpoint = checkpoint_at_once  # type: ignore[method-assign]
    return threads

"""Stories about replicas that come back to a log that has lost something since: they take over what it knew."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pylog.broker.control.images import PULL_TIMEOUT_S
from pylog.errors import ErrorCode
from pylog.log.compaction import CompactionJob, plan
from pylog.log.log import Log
from pylog.model import TopicPartition
from pylog.wire.records import Record, decode_records, encode_batch, iter_batches
from tests.sim import clients, groups, touch
from tests.sim.clients import Client, Unanswered
from tests.sim.faults import DAY_MS
from tests.sim.stage import CONTROLLER, FOLLOWER, KEY, LEADER, PATIENCE_S, TOPIC, Stage
from tests.sim.world import Violation

_Answer = TypeVar("_Answer")

HANG_S = 2.0
"""How long images hang: a leader asks for a change of its in-sync set, and gets it, in a tenth of that."""


async def repeat_a_trimmed_batch_at_a_replica_that_began_anew(stage: Stage) -> None:
    """A producer's batch is deleted while a replica is away; it leads next, and the batch is sent again."""
    await stage.write(3)
    await stage.until(stage.checks.is_settled, "all know what was written")
    producer = await _Producer.begin(stage)
    await producer.send_once(LEADER, 0, wanted=3)
    stage.kill(FOLLOWER)
    await stage.until(lambda: FOLLOWER not in _isr(stage), "the follower is out")
    await producer.send_once(LEADER, 1, wanted=4)
    await stage.delete_records(-1)
    stage.start(FOLLOWER)
    await stage.until(lambda: FOLLOWER in _isr(stage), "the follower is in sync again")
    # Once from what it took over, and once from what it wrote down of that.
    stage.kill(LEADER)
    await stage.until(lambda: stage.leader() == FOLLOWER, "the follower leads")
    await producer.send(1, wanted=4)
    stage.start(LEADER)
    await stage.until(lambda: LEADER in _isr(stage), "the first leader is in sync again")
    stage.kill(FOLLOWER)
    await stage.until(lambda: FOLLOWER not in _isr(stage), "the follower is out")
    stage.start(FOLLOWER)
    await stage.until(lambda: FOLLOWER in _isr(stage), "the follower is in sync once more")
    stage.kill(stage.leader())
    await stage.until(lambda: stage.leader() == FOLLOWER, "the follower leads again")
    await producer.send(1, wanted=4)
    await stage.settle()


async def repeat_a_trimmed_batch_after_a_move(stage: Stage) -> None:
    """A partition all of whose records are deleted is moved to other brokers, and a batch is sent again."""
    stage.checks.expect_any_replica_count()
    await stage.write(3)
    await clients.move_once(stage.client, CONTROLLER, KEY, [LEADER])
    await stage.until(lambda: _isr(stage) == (LEADER,) and stage.partition(FOLLOWER) is None, "one broker has it")
    producer = await _Producer.begin(stage)
    await producer.send_once(LEADER, 0, wanted=3)
    await producer.send_once(LEADER, 1, wanted=4)
    await stage.delete_records(-1)
    await clients.move_once(stage.client, CONTROLLER, KEY, [FOLLOWER, CONTROLLER])
    await stage.until(lambda: set(_isr(stage)) == {FOLLOWER, CONTROLLER}, "others have it")
    await stage.until(lambda: stage.leader() == FOLLOWER, "one of them leads")
    await producer.send(1, wanted=4)
    await producer.send(0, wanted=3)
    await clients.move_once(stage.client, CONTROLLER, KEY, [FOLLOWER, CONTROLLER, LEADER])
    await stage.until(lambda: len(_isr(stage)) == len(stage.cluster.hosts), "all have it")
    await stage.settle()


async def repeat_a_trimmed_batch_after_a_power_cut(stage: Stage) -> None:
    """A producer's batch is deleted with its segment, all hosts lose power, and the batch is sent again.

    All was synced before the segment ended, as `flush.messages` has it: what was written down of producers when it
    ended must survive too.
    """
    await stage.set_config(TOPIC, "flush.messages", "1")
    await asyncio.sleep(1)
    producer = await _Producer.begin(stage)
    await producer.send_once(LEADER, 0, wanted=0)
    await _fill(stage, 7)
    await _trim_a_segment(stage)
    for host in list(stage.cluster.hosts.values()):
        snapshots = sorted(host.data_dir.glob(f"{KEY}/*.snapshot"))
        stage.cluster.cut_power(host, torn=snapshots[-1].name)
    for broker_id in (CONTROLLER, LEADER, FOLLOWER):
        stage.start(broker_id)
    await stage.until(stage.checks.is_settled, "all agree again")
    await producer.send(0, wanted=0)
    await stage.settle()


async def repeat_a_trimmed_batch_after_a_kill_on_a_disk_that_was_full(stage: Stage) -> None:
    """A disk has no room for what is written down of producers when a segment ends, and has room again.

    Then the producer's batch is deleted with the segment, all brokers are killed, and the batch is sent again.
    """
    producer = await _Producer.begin(stage)
    await producer.send_once(LEADER, 0, wanted=0)
    logs = _logs(stage)
    await _fill(stage, 7)
    await stage.until(lambda: all(len(log.segments) > 1 for log in logs), "all have rolled")
    for log in logs:
        log.producers.delete_snapshots()  # as if the disk had refused them
    await _trim_a_segment(stage)
    for host in list(stage.cluster.hosts.values()):
        stage.kill(host.broker_id)
    for broker_id in (CONTROLLER, LEADER, FOLLOWER):
        stage.start(broker_id)
    await stage.until(stage.checks.is_settled, "all agree again")
    await producer.send(0, wanted=0)
    await stage.settle()


def _logs(stage: Stage) -> list[Log]:
    """Return the replicas' logs, the leader's first."""
    found = [stage.log(broker_id) for broker_id in (LEADER, FOLLOWER, CONTROLLER)]
    logs = [log for log in found if log is not None]
    assert len(logs) == len(found)
    return logs


async def _fill(stage: Stage, count: int) -> None:
    """Write *count* batches of which five fill a segment."""
    for number in range(count):
        value = f"{'filler'.ljust(880, '.')}:{KEY}:{number}".encode()
        batch = encode_batch([Record(0, stage.world.wall_ns() // 1_000_000, None, value)])
        error, offset = await stage.client.produce(LEADER, KEY, batch, -1)
        if error is not ErrorCode.NONE:
            raise Violation("progress", f"the answer is {error.name}")
        stage.checks.acknowledged(KEY, LEADER, offset, [value], is_first=False)


async def _trim_a_segment(stage: Stage) -> None:
    """Delete the records of all closed segments, once everything is synced."""
    logs = _logs(stage)
    await stage.until(stage.checks.is_settled, "all have all")
    await stage.until(lambda: all(len(log.segments) > 1 for log in logs), "all have rolled")
    await stage.until(lambda: all(log.recovery_point == log.log_end_offset for log in logs), "all is synced", 120)
    await stage.delete_records(logs[0].segments[-1].base_offset)
    await stage.until(lambda: all(len(log.segments) == 1 for log in logs), "the segment is gone everywhere")
    await asyncio.sleep(5)


async def come_back_before_hearing_of_having_left(stage: Stage) -> None:
    """A replica is taken away and given back while its images hang: it goes on fetching, and then deletes its log."""
    stage.checks.expect_any_replica_count()
    await stage.write(5)
    await stage.until(stage.checks.is_settled, "all know what was written")
    stage.cluster.network.hang(stage.host(CONTROLLER).name, stage.host(FOLLOWER).name, HANG_S)
    await clients.move_once(stage.client, CONTROLLER, KEY, [LEADER, CONTROLLER])

    def is_forgotten() -> bool:
        partition = stage.partition(LEADER)
        return partition is not None and partition.leading is not None and not partition.leading.is_replica(FOLLOWER)

    await stage.until(is_forgotten, "the leader has heard that it left")
    await clients.move_once(stage.client, CONTROLLER, KEY, [LEADER, CONTROLLER, FOLLOWER])
    await asyncio.sleep(HANG_S + 1)
    await stage.write(3, "after")
    await stage.settle()


async def return_after_a_tombstone_is_gone(stage: Stage) -> None:
    """A key is deleted while a replica is away, and its tombstone is removed; the replica comes back and leads."""
    stage.checks.compacted.add(TOPIC)
    for name, value in (("cleanup.policy", "compact"), ("delete.retention.ms", "0")):
        await stage.set_config(TOPIC, name, value)
    await _put(stage, b"kept", b"1")
    await _put(stage, b"deleted", b"1")
    await stage.until(stage.checks.is_settled, "all know what was written")
    stage.kill(FOLLOWER)
    await stage.until(lambda: FOLLOWER not in _isr(stage), "the follower is out")
    await _put(stage, b"deleted", None)
    await _compact_away(stage, LEADER, KEY, lambda number: _put(stage, b"later %d" % number, b"1"))
    stage.start(FOLLOWER)
    await stage.until(lambda: FOLLOWER in _isr(stage), "the follower is in sync again")
    stage.kill(LEADER)
    await stage.until(lambda: stage.leader() == FOLLOWER, "the follower leads")
    found = await _table(stage, FOLLOWER)
    if b"deleted" in found or b"kept" not in found:
        raise Violation("deleted keys stay deleted", f"a replica that was away leads with {sorted(found)}")
    await stage.settle()


async def return_without_the_records_that_a_compaction_went_by(stage: Stage) -> None:
    """A replica that was behind leads after an unclean election; one that had compacted beyond it follows, and leads.

    That compaction removed records for the sake of later ones, which the new leader does not have.
    """
    stage.checks.expect_any_replica_count()
    stage.checks.compacted.add(TOPIC)
    stage.checks.unclean.add(TOPIC)
    for name, value in (
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0"),
        ("min.insync.replicas", "1"),
        ("unclean.leader.election.enable", "true"),
    ):
        await stage.set_config(TOPIC, name, value)
    await _put(stage, b"kept", b"1")
    await _put(stage, b"other", b"1")
    await stage.until(stage.checks.is_settled, "all know what was written")
    stage.kill(FOLLOWER)
    await stage.until(lambda: FOLLOWER not in _isr(stage), "the follower is out")
    await _put(stage, b"kept", b"2")
    log = stage.log(LEADER)
    assert log is not None
    await stage.until(lambda: log.high_watermark == log.log_end_offset, "two have it")
    log.roll()
    log.flush()
    await stage.until(lambda: log.compacted_offset == log.log_end_offset, "the leader has compacted", 120)
    stage.kill(LEADER)
    stage.kill(CONTROLLER)
    stage.start(FOLLOWER)
    await stage.until(lambda: stage.leader() == FOLLOWER, "who was behind leads", 120)
    await _put(stage, b"later", b"3")
    stage.start(LEADER)
    stage.start(CONTROLLER)
    await stage.until(lambda: LEADER in _isr(stage), "who had compacted is in sync")
    stage.kill(FOLLOWER)
    await stage.until(lambda: stage.leader() in (LEADER, CONTROLLER), "one of the others leads")
    if stage.leader() != LEADER:
        stage.kill(CONTROLLER)
        await stage.until(lambda: stage.leader() == LEADER, "who had compacted leads")
    found = await _table(stage, LEADER)
    if found != {b"kept": b"1", b"other": b"1", b"later": b"3"}:
        raise Violation("every key has its last value", f"a replica that was cut leads with {found}")
    stage.start(FOLLOWER)
    stage.start(CONTROLLER)
    await stage.settle()


async def return_with_a_tail_where_the_copy_has_a_gap(stage: Stage) -> None:
    """A deposed leader has records of its own where its successor's were compacted away, and a copy of those leads."""
    stage.checks.expect_any_replica_count()
    stage.checks.compacted.add(TOPIC)
    for name, value in (("cleanup.policy", "compact"), ("delete.retention.ms", "0"), ("min.insync.replicas", "1")):
        await stage.set_config(TOPIC, name, value)
    await _put(stage, b"kept", b"1")
    await _put(stage, b"deleted", b"1")
    await stage.until(stage.checks.is_settled, "all know what was written")
    await clients.move_once(stage.client, CONTROLLER, KEY, [LEADER, CONTROLLER])
    await stage.until(lambda: set(_isr(stage)) == {LEADER, CONTROLLER} and stage.partition(FOLLOWER) is None, "two")
    with stage.cutting(LEADER, CONTROLLER):
        for number in range(5):
            record = Record(0, stage.world.wall_ns() // 1_000_000, b"tail %d" % number, b"of the leader alone")
            answer = await stage.client.produce(LEADER, KEY, encode_batch([record]), 1)
            if answer != (ErrorCode.NONE, 2 + number):
                raise Violation("progress", f"a record with acks=1 is answered {answer}")
        stage.kill(LEADER)
        # Behind the cut until then: what a killed process had sent may still arrive.
        await stage.until(lambda: stage.leader() == CONTROLLER, "another leads")
    await _put(stage, b"deleted", None)
    for number in range(8):
        await _put(stage, b"churn", b"%d" % number)
    await _compact_away(stage, CONTROLLER, KEY, lambda number: _put(stage, b"churn", b"later %d" % number))
    await clients.move_once(stage.client, CONTROLLER, KEY, [CONTROLLER, FOLLOWER, LEADER])
    await stage.until(lambda: FOLLOWER in _isr(stage), "the copy is in sync")
    stage.kill(CONTROLLER)
    await stage.until(lambda: stage.leader() == FOLLOWER, "the copy leads")
    stage.start(LEADER)
    await stage.until(lambda: LEADER in _isr(stage), "the deposed leader is in sync")
    stage.kill(FOLLOWER)
    await stage.until(lambda: stage.leader() == LEADER, "the deposed leader leads again")
    found = await _table(stage, LEADER)
    if set(found) != {b"kept", b"churn"}:
        raise Violation("deleted keys stay deleted", f"a replica that was deposed leads with {sorted(found)}")
    await stage.settle()


async def come_up_with_the_clock_ahead(stage: Stage) -> None:
    """A follower's host comes up with its clock a day ahead, and the topic keeps records for an hour."""
    await stage.set_config(TOPIC, "retention.ms", "3600000")
    await stage.write(10)
    await stage.until(stage.checks.is_settled, "all know what was written")
    stage.kill(FOLLOWER)
    stage.host(FOLLOWER).skew_ms = DAY_MS
    stage.start(FOLLOWER)
    await stage.until(lambda: FOLLOWER in _isr(stage), "the follower is in sync again")
    await asyncio.sleep(10)
    log = stage.log(FOLLOWER)
    if log is None or log.log_start_offset > 0:
        raise Violation("retention deletes what its settings allow", f"the follower's clock emptied its log: {log}")
    await stage.settle()


async def create_where_nothing_opens(stage: Stage) -> None:
    """A broker has no descriptor left when it gets a replica; later it has some, and no image comes any more."""
    await stage.write(3)
    await stage.delete()
    await stage.until(lambda: stage.partition(FOLLOWER) is None, "the follower has deleted its log")
    starved, name = stage.cluster.disks.starved, stage.host(FOLLOWER).name
    starved.add(name)
    await stage.create()
    await stage.until(lambda: stage.has_incarnation(1, 2, 3), "all know the new topic")
    await stage.until(lambda: FOLLOWER not in _isr(stage), "it is out of sync")
    await stage.write(3, "after")
    await asyncio.sleep(PULL_TIMEOUT_S)  # the image with the ISR is everywhere
    if stage.log(FOLLOWER) is not None:
        raise Violation("story", "a log was opened without a descriptor")
    starved.discard(name)
    await stage.settle()


async def compact_with_the_clock_set_ahead(stage: Stage) -> None:
    """A leader's clock is set a day ahead before it compacts a topic whose tombstones are to stay for an hour."""
    stage.checks.compacted.add(TOPIC)
    for name, value in (
        ("cleanup.policy", "compact"),
        ("delete.retention.ms", "3600000"),
        ("min.cleanable.dirty.ratio", "0"),
    ):
        await stage.set_config(TOPIC, name, value)
    await _put(stage, b"deleted", b"1")
    await _put(stage, b"deleted", None)
    log = stage.log(LEADER)
    process = stage.host(LEADER).process
    assert log is not None
    assert process is not None
    for number in range(3):
        await _put(stage, b"later", b"%d" % number)
        await stage.until(stage.checks.is_settled, "all know what was written")
        log.roll()
        log.flush()
        if number == 1:
            stage.host(LEADER).skew_ms = process.skew_ms = DAY_MS
        await stage.until(lambda: log.compacted_offset == log.log_end_offset, "the leader has compacted", 120)
    if log.tombstones.offset >= 0:
        raise Violation("tombstones stay for their time", "a clock that was set ahead removed one after seconds")
    await stage.settle()


async def return_after_a_groups_tombstones_are_gone(stage: Stage) -> None:
    """A group is deleted while a replica of its offsets is away, and the tombstones are removed; the replica leads."""
    client = Client(stage.world, "group", stage.client._brokers)
    await stage.write(5)
    await touch.commit(stage, client, 2)
    await stage.set_config(touch.GROUPS_KEY.topic, "delete.retention.ms", "0")
    await stage.until(stage.checks.is_settled, "the commit is everywhere")
    leader = stage.checks.states[touch.GROUPS_KEY].leader
    absent = next(one for one in (FOLLOWER, LEADER, CONTROLLER) if one != leader)
    stage.kill(absent)
    await stage.until(lambda: absent not in _isr(stage, touch.GROUPS_KEY), "a replica is out")
    await until_answered(stage, lambda: groups.delete_group(client, stage.checks, touch.GROUP))

    async def commit_another(number: int) -> None:
        group = f"other-{number}"

        async def commit() -> ErrorCode:
            coordinator = await groups.Coordinator(client, group).find()
            return await groups.commit_one(client, stage.checks, group, KEY, 1, coordinator)

        await until_answered(stage, commit)

    await _compact_away(stage, leader, touch.GROUPS_KEY, commit_another)
    stage.start(absent)
    everybody = len(stage.cluster.hosts)
    await stage.until(lambda: len(_isr(stage, touch.GROUPS_KEY)) == everybody, "it is in sync again")
    for other in stage.cluster.hosts:
        if other != absent and stage.checks.states[touch.GROUPS_KEY].leader != absent:
            stage.kill(other)
            await stage.until(
                lambda gone=other: stage.checks.states[touch.GROUPS_KEY].leader not in (gone, -1), "moved"
            )
            if stage.checks.states[touch.GROUPS_KEY].leader != absent:
                stage.start(other)
                await stage.until(lambda: len(_isr(stage, touch.GROUPS_KEY)) == everybody, "all are in sync")
    if stage.checks.states[touch.GROUPS_KEY].leader != absent:
        raise Violation("progress", "the replica that was away does not lead")
    found = None
    while found is None:
        found = await until_answered(stage, lambda: groups.fetch_one(client, stage.checks, touch.GROUP, KEY, absent))
    if found != -1:
        raise Violation("deleted groups stay deleted", f"offset {found} of a deleted group is told")
    await stage.settle()


async def until_answered(stage: Stage, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
    """Ask until somebody answers."""
    deadline_s = stage.world.now_s + PATIENCE_S
    while stage.world.now_s < deadline_s:
        try:
            return await ask()
        except Unanswered:
            await stage.client.pause()
    raise Violation("progress", "nobody answers")


class _Producer:
    """An idempotent producer of batches with one record, numbered by their sequence."""

    def __init__(self, stage: Stage, producer_id: int, epoch: int) -> None:
        self._stage = stage
        self._id, self._epoch = producer_id, epoch

    @classmethod
    async def begin(cls, stage: Stage) -> "_Producer":
        return cls(stage, *await clients.init_producer(stage.client))

    async def send_once(self, leader: int, number: int, *, wanted: int) -> None:
        """Send a batch that is new, and is stored at the offset *wanted*."""
        batch = encode_batch(
            [Record(0, self._stage.world.wall_ns() // 1_000_000, None, f"once:{KEY}:{number}".encode())],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=number,
        )
        answer = await self._stage.client.produce(leader, KEY, batch, -1)
        if answer != (ErrorCode.NONE, wanted):
            raise Violation("batches of idempotent producers are stored once", f"{number} at {wanted}, answer {answer}")

    async def send(self, number: int, *, wanted: int) -> None:
        """Send a batch to the leader until it answers; it was stored at *wanted*, and is not again."""
        deadline_s = self._stage.world.now_s + PATIENCE_S
        while self._stage.world.now_s < deadline_s:
            partition = self._stage.partition(self._stage.leader())
            if partition is not None and partition.leading is not None:
                try:
                    await self.send_once(self._stage.leader(), number, wanted=wanted)
                    return
                except Unanswered:
                    pass
            await self._stage.client.pause()
        raise Violation("progress", f"batch {number} is not answered")


async def _put(stage: Stage, key: bytes, value: bytes | None) -> None:
    """Write a record with acks=all."""
    deadline_s = stage.world.now_s + PATIENCE_S
    while stage.world.now_s < deadline_s:
        batch = encode_batch([Record(0, stage.world.wall_ns() // 1_000_000, key, value)])
        try:
            error, _ = await stage.client.produce(await stage.client.find_leader(KEY), KEY, batch, -1)
            if error is ErrorCode.NONE:
                return
        except Unanswered:
            pass
        stage.client.leaders.clear()
        await stage.client.pause()
    raise Violation("progress", f"{key!r} is not acknowledged")


async def _compact_away(
    stage: Stage, broker_id: int, key: TopicPartition, write: Callable[[int], Awaitable[None]]
) -> None:
    """Have a broker's log compacted twice, so that tombstones are removed; *write* adds records between."""
    for number in range(2):
        await write(number)
        await asyncio.sleep(1.0)
        _compact(stage, broker_id, key)
        await asyncio.sleep(1.0)


def _compact(stage: Stage, broker_id: int, key: TopicPartition) -> None:
    broker = stage.host(broker_id).broker
    assert broker is not None
    partition = broker.partitions.get(*key)
    assert partition is not None
    log = partition.log
    assert log is not None
    log.roll()
    log.flush()
    now_ms = stage.world.wall_ns() // 1_000_000
    found = plan(log, now_ms)
    assert found is not None
    job = CompactionJob(log, found, now_ms, breathe=lambda: None)
    job.run()
    job.finish()
    if job.error is not None:
        raise job.error


async def _table(stage: Stage, broker_id: int) -> dict[bytes, bytes]:
    """Return what a reader that keeps the last value of each key ends with."""
    held: dict[bytes, bytes] = {}
    offset, deadline_s = 0, stage.world.now_s + PATIENCE_S
    while stage.world.now_s < deadline_s:
        try:
            error, high_watermark, data, _ = await stage.client.fetch(broker_id, KEY, offset)
        except Unanswered:
            error = ErrorCode.NETWORK_EXCEPTION
        if error is not ErrorCode.NONE:
            await stage.client.pause()
            continue
        for position, header in iter_batches(data):
            offset = header.last_offset + 1
            for record in decode_records(memoryview(data), header, position):
                assert record.key is not None
                if record.value is None:
                    held.pop(record.key, None)
                else:
                    held[record.key] = record.value
        if offset >= high_watermark:
            return held
    raise Violation("progress", f"broker {broker_id} does not serve {KEY}")


def _isr(stage: Stage, key: TopicPartition = KEY) -> tuple[int, ...]:
    return tuple(stage.checks.states[key].isr)

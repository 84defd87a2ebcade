"""A coordinator that has just been elected, while not every in-sync replica has what it read."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.partitions import Moved, Partition, Partitions
from pylog.broker.groups.coordinator import CoordinatorConfig, GroupCoordinator
from pylog.broker.groups.offsets import FORGET_REST_MS
from pylog.broker.settings import parse_broker_settings, typed
from pylog.broker.shards import loading
from pylog.cluster.image import BrokerInfo, ClusterImage, DeletedTopic, PartitionImage, TopicImage
from pylog.errors import ApiError, ErrorCode
from pylog.group.records import TOPIC, TOPIC_ID_HEADER, CommittedOffset, OffsetKey, decode_key, encode_offset
from pylog.log.batch_file import OutOfDescriptors
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.metrics import Metrics
from pylog.model import NodeAddress
from pylog.replica.leader import TOUCH_MS
from pylog.wire import records

ADDRESS = NodeAddress(1, "h1", 9092)
EPOCHS = {1: 7, 2: 8, 3: 9}
COMMITTED = ("t", 0)
OFFSET_KEY = encode_offset(OffsetKey("g", *COMMITTED), None, 0).key


class Coordinating:
    """Broker 1, which follows the groups' partition, has a commit beyond its high watermark, and then leads."""

    def __init__(self, directory: Path) -> None:
        settings = parse_broker_settings({})
        self.now_ms = 0
        self.partitions = Partitions(LogDirectory.open(directory, broker_id=1), 1, settings)
        self.partitions.registered_epoch = lambda: EPOCHS[1]
        self.now_ms = 0
        self.partitions.now_ms = lambda: self.now_ms
        self.acknowledgements = Acknowledgements(lambda: 0)
        self.groups = GroupCoordinator(
            self.partitions,
            typed(CoordinatorConfig, settings),
            Metrics(),
            now_ms=lambda: self.now_ms,
            wall_ms=lambda: 0,
            acknowledgements=self.acknowledgements,
        )
        self.version = 0
        self.read_id: UUID | None = UUID(int=6)
        self.read_created_ms = 0
        self.deleted_id: UUID | None = None
        self.level = 3

    @property
    def partition(self) -> Partition:
        found = self.partitions.get(TOPIC, 0)
        assert found is not None
        return found

    async def apply(self, leader: int, leader_epoch: int, isr: tuple[int, ...], min_isr: int = 2) -> None:
        """Apply an image, and let what follows from it be read."""
        self.version += 1
        self.switch(self.image(leader, leader_epoch, isr, min_isr))
        await asyncio.gather(*self.groups._tasks._running)

    def image(self, leader: int, leader_epoch: int, isr: tuple[int, ...], min_isr: int) -> ClusterImage:
        """Return the newest image, in which the topic that was read may be there."""
        state = PartitionImage(leader, leader_epoch, isr, (1, 2, 3), self.version)
        topic = TopicImage(TOPIC, UUID(int=5), {0: state}, {"min.insync.replicas": str(min_isr)})
        brokers = {one: BrokerInfo(one, epoch, None, ADDRESS, ADDRESS) for one, epoch in EPOCHS.items()}
        topics = {TOPIC: topic}
        if self.read_id is not None:
            # Broker 2 holds it alone: what matters here is that it exists.
            topics[COMMITTED[0]] = TopicImage(
                COMMITTED[0],
                self.read_id,
                {0: PartitionImage(2, 0, (2,), (2,), self.version)},
                created_ms=self.read_created_ms,
            )
        deleted = (
            {} if self.deleted_id is None else {self.deleted_id: DeletedTopic(COMMITTED[0], self.deleted_id, (2,))}
        )
        return ClusterImage(1, self.version, "c", 2, brokers, topics, deleted_topics=deleted, level=self.level)

    def switch(self, image: ClusterImage) -> None:
        """Let an image hold."""
        gone = self.partitions.retire(image)
        self.groups.image_applied(gone + self.partitions.switch(image, self.partitions.prepare(image)))

    async def lead(self, isr: tuple[int, ...], min_isr: int = 2) -> None:
        await self.apply(2, 0, (1, 2))
        self.copy_commit()
        await self.apply(1, 1, isr, min_isr)

    def copy_commit(self, leader_epoch: int = 0, topic_id: UUID | None = None) -> None:
        """Copy a batch in which the group commits 5 at 1,000 ms from the leader, as release 0.1.0 unless with an id."""
        committed = CommittedOffset(5, 0, "", 1_000, topic_id)
        row = encode_offset(OffsetKey("g", *COMMITTED), committed, 1, with_topic_id=True)
        log = self.partition.log
        assert log is not None
        batch = memoryview(bytearray(records.encode_batch([row])))
        records.patch(batch, log.log_end_offset, leader_epoch)
        log.append_as_follower(batch)

    def fetched(self, broker_id: int, offset: int) -> None:
        assert self.partition.leading is not None
        for _ in range(2):  # only the second shows that the first had not lain in the socket for long
            self.partition.leading.fetched(broker_id, EPOCHS[broker_id], offset, 1, now_ms=self.now_ms)
        self.partitions.advance(self.partition)

    def offset(self) -> int | ErrorCode:
        """Return what the group is told that it committed, -1 for nothing, or which error it gets."""
        try:
            found = self.groups.offsets("g").get(COMMITTED)
            return -1 if found is None else found.offset
        except ApiError as error:
            return error.code


def test_nobody_is_told_what_a_replica_in_sync_may_lack(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1, 2))
        assert coordinating.offset() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert coordinating.groups.heartbeat("g", "m", None, 1) is ErrorCode.NONE
        with pytest.raises(ApiError) as refused:
            coordinating.groups.groups()
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        coordinating.fetched(2, 0)
        assert coordinating.offset() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        coordinating.fetched(2, 1)
        assert coordinating.offset() == 5
        assert [group.group_id for group in coordinating.groups.groups()] == ["g"]

    asyncio.run(story())


def test_the_sweep_loads_what_nobody_asks_for(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1, 2))
        coordinating.groups.expire(0)
        coordinating.fetched(2, 1)
        assert not coordinating.groups._shards[0].is_loaded
        coordinating.groups.expire(0)
        assert coordinating.groups._shards[0].is_loaded

    asyncio.run(story())


def test_a_last_replica_tells_what_it_has_although_nothing_can_be_written(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1,), min_isr=2)
        assert coordinating.partition.leading is not None
        assert coordinating.partition.leading.is_under_min_isr()
        assert coordinating.offset() == 5

    asyncio.run(story())


def test_a_leader_in_a_later_epoch_waits_for_its_followers_again(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1, 2, 3))
        coordinating.fetched(2, 1)
        assert coordinating.offset() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await coordinating.apply(1, 2, (1, 2))
        assert coordinating.offset() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        coordinating.fetched(2, 1)
        assert coordinating.offset() == 5

    asyncio.run(story())


def test_rule_7_a_coordinator_that_cannot_read_gives_its_groups_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    told: list[tuple[object, Moved]] = []

    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        coordinating.partitions.subscribe(lambda key, what: told.append((key, what)))
        monkeypatch.setattr(loading.LoadedShard, "_read_slice", fail)
        await coordinating.lead(isr=(1, 2))
        assert coordinating.offset() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert coordinating.partition.is_offline, "so the leader resigns in favour of a replica that is in sync"
        assert told[-1] == ((TOPIC, 0), Moved.LEADER)

    asyncio.run(story())


def test_rule_7_a_coordinator_whose_log_is_damaged_gives_its_groups_to_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[object, Moved]] = []

    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        coordinating.partitions.subscribe(lambda key, what: told.append((key, what)))
        await coordinating.apply(2, 0, (1, 2))
        coordinating.copy_commit()
        log = coordinating.partition.log
        assert log is not None
        [segment] = log.segments
        last = segment.size_bytes - 1
        os.pwrite(segment.fd, bytes([os.pread(segment.fd, 1, last)[0] ^ 1]), last)
        await coordinating.apply(1, 1, (1, 2))
        assert coordinating.offset() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert coordinating.partition.is_offline, "so the leader resigns in favour of a replica that is in sync"
        assert told[-1] == ((TOPIC, 0), Moved.LEADER)
        assert "not loaded code=PYLOG-0302 partition=__consumer_offsets-0 reason=" in caplog.text

    asyncio.run(story())


def test_groups_whose_log_is_whole_and_does_not_decode_are_not_available(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.apply(2, 0, (1, 2))
        coordinating.copy_commit()
        log = coordinating.partition.log
        assert log is not None
        batch = memoryview(bytearray(records.encode_batch([records.Record(0, 0, OFFSET_KEY, b"\x7f\xff")])))
        records.patch(batch, 1, 0)
        log.append_as_follower(batch)
        await coordinating.apply(1, 1, (1, 2))
        coordinating.fetched(2, 2)
        assert coordinating.offset() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not coordinating.partition.is_offline, "no other replica could read it"
        assert "the batch at offset 1 is whole and does not decode" in caplog.text
        assert "code=PYLOG-0302" in caplog.text

    asyncio.run(story())


def test_groups_are_loaded_once_there_are_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, refusals = Log.read, [1, 2]

    def starve(log: Log, *arguments: Any, **named: Any) -> object:
        if refusals and refusals.pop():
            raise OutOfDescriptors(tmp_path, OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        return read(log, *arguments, **named)

    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        monkeypatch.setattr(loading, "RELOAD_S", 0.0)
        monkeypatch.setattr(Log, "read", starve)
        await coordinating.lead(isr=(1, 2))
        assert not refusals
        coordinating.fetched(2, 1)
        assert coordinating.offset() == 5

    asyncio.run(story())


def test_one_that_is_deposed_before_never_answers(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1, 2))
        await coordinating.apply(2, 2, (1, 2))
        assert coordinating.offset() is ErrorCode.NOT_COORDINATOR

    asyncio.run(story())


def rows_of(coordinating: Coordinating) -> list[records.Record]:
    """Return the records of the groups' log, without the ends of transactions."""
    log = coordinating.partition.log
    assert log is not None
    data = memoryview((log.segments[0].path).read_bytes())
    return [
        row
        for position, header in records.iter_batches(data)
        if not header.is_control
        for row in records.decode_records(data, header, position)
    ]


def records_of(coordinating: Coordinating) -> list[tuple[object, bool]]:
    """Return what the groups' log has: keys, and whether each was written to be forgotten."""
    return [(decode_key(row.key or b""), row.value is None) for row in rows_of(coordinating)]


def test_offsets_of_a_topic_made_again_between_two_images_are_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1,), min_isr=1)
        assert coordinating.offset() == 5
        coordinating.read_id = UUID(int=7)
        await coordinating.apply(1, 1, (1,), 1)
        assert coordinating.offset() == -1
        assert records_of(coordinating)[-1] == (OffsetKey("g", *COMMITTED), True)

    asyncio.run(story())


@pytest.mark.parametrize("read_id", [None, UUID(int=7)], ids=["deleted", "made again"])
def test_offsets_of_a_topic_that_goes_while_they_are_loaded_are_forgotten(tmp_path: Path, read_id: UUID | None) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1, 2), min_isr=1)
        assert coordinating.offset() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        coordinating.read_id = read_id
        await coordinating.apply(1, 1, (1,), 1)
        assert coordinating.offset() == -1

    asyncio.run(story())


def test_offsets_of_a_topic_that_is_being_deleted_are_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.apply(2, 0, (1, 2))
        coordinating.copy_commit(topic_id=UUID(int=6))
        coordinating.read_id, coordinating.deleted_id = None, UUID(int=6)
        await coordinating.apply(1, 1, (1,), 1)
        assert coordinating.offset() == -1
        assert records_of(coordinating)[-1] == (OffsetKey("g", *COMMITTED), True)

    asyncio.run(story())


def test_offsets_of_a_topic_whose_nodes_are_gone_stay_in_the_log(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        coordinating.read_id = None
        await coordinating.lead(isr=(1,), min_isr=1)
        assert coordinating.offset() == -1, "nobody is told of them"
        assert records_of(coordinating) == [(OffsetKey("g", *COMMITTED), False)], "but nobody had the topic deleted"
        await coordinating.apply(2, 2, (1, 2))
        coordinating.read_id = UUID(int=6)
        await coordinating.apply(1, 3, (1,), 1)
        assert coordinating.offset() == 5, "with the nodes the offset is back"

    asyncio.run(story())


def test_a_deleted_group_takes_offsets_along_that_were_kept_for_a_topic_that_is_gone(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        coordinating.read_id = None
        await coordinating.lead(isr=(1,), min_isr=1)
        assert await coordinating.groups.delete("g") is ErrorCode.NONE
        assert (OffsetKey("g", *COMMITTED), True) in records_of(coordinating)

    asyncio.run(story())


def test_a_commit_for_a_topic_made_again_outlives_the_former_coordinator(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        # The former coordinator, broker 2, took it for the topic's next incarnation, of which we have not heard.
        await coordinating.apply(2, 0, (1, 2), 1)
        coordinating.copy_commit()
        coordinating.read_id = UUID(int=7)
        await coordinating.apply(1, 1, (1,), 1)
        assert coordinating.offset() == 5
        assert records_of(coordinating) == [(OffsetKey("g", *COMMITTED), False)]

    asyncio.run(story())


def test_a_coordinator_that_leads_again_deletes_no_commit_of_the_one_between(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1,), min_isr=1)
        assert coordinating.offset() == 5
        # Broker 2 coordinated in epoch 2 and took a commit for the next incarnation; one image brings all of it.
        coordinating.copy_commit(2)
        coordinating.read_id = UUID(int=7)
        await coordinating.apply(1, 3, (1,), 1)
        assert coordinating.offset() == 5
        assert [is_deleted for _, is_deleted in records_of(coordinating)] == [False, False]

    asyncio.run(story())


@pytest.mark.parametrize(("commit_id", "offset"), [(UUID(int=6), -1), (UUID(int=7), 5)], ids=["former", "next"])
def test_an_offset_is_compared_by_its_topic_id_when_it_is_loaded(tmp_path: Path, commit_id: UUID, offset: int) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        # One image brings both the topic's next incarnation and the office, as after a pause.
        await coordinating.apply(2, 0, (1, 2), 1)
        coordinating.copy_commit(topic_id=commit_id)
        coordinating.read_id = UUID(int=7)
        await coordinating.apply(1, 1, (1,), 1)
        assert coordinating.offset() == offset
        is_deleted = [(OffsetKey("g", *COMMITTED), True)] if offset < 0 else []
        assert records_of(coordinating)[1:] == is_deleted

    asyncio.run(story())


@pytest.mark.parametrize(("created_ms", "offset"), [(0, 5), (1_000, 5), (1_001, -1)])
def test_an_offset_without_topic_id_is_kept_if_it_was_committed_after_the_topic_was_created(
    tmp_path: Path, created_ms: int, offset: int
) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        coordinating.read_created_ms = created_ms
        await coordinating.lead(isr=(1,), min_isr=1)
        assert coordinating.offset() == offset
        assert len(records_of(coordinating)) == (1 if offset == 5 else 2)

    asyncio.run(story())


@pytest.mark.parametrize(("next_id", "next_ms", "offset"), [(6, 86_400_000, 9), (7, 86_400_001, -1)])
def test_an_offset_without_topic_id_is_kept_if_its_coordinator_s_clock_was_set_back(
    tmp_path: Path, next_id: int, next_ms: int, offset: int
) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        coordinating.level = 2
        coordinating.read_created_ms = 86_400_000  # a day later than the time that the coordinator has
        await coordinating.apply(1, 0, (1,), 1)
        assert coordinating.groups.commit("g", {COMMITTED: CommittedOffset(9)}) is ErrorCode.NONE
        await coordinating.apply(2, 1, (1, 2))
        coordinating.read_id, coordinating.read_created_ms = UUID(int=next_id), next_ms
        await coordinating.apply(1, 2, (1,), 1)
        assert coordinating.offset() == offset

    asyncio.run(story())


def test_a_dropped_offset_is_dropped_by_the_next_coordinator_too_if_its_deletion_was_refused(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.apply(2, 0, (1, 2))
        coordinating.copy_commit(topic_id=UUID(int=6))
        coordinating.read_id = UUID(int=7)
        await coordinating.apply(1, 1, (1,), 2)
        assert coordinating.offset() == -1
        assert len(records_of(coordinating)) == 1, "below min.insync.replicas nothing is written"
        await coordinating.apply(2, 2, (1, 2))
        await coordinating.apply(1, 3, (1,), 1)
        assert coordinating.offset() == -1
        assert records_of(coordinating)[1:] == [(OffsetKey("g", *COMMITTED), True)]

    asyncio.run(story())


@pytest.mark.parametrize(("level", "found"), [(2, []), (3, [UUID(int=6).bytes])])
def test_rule_15_a_commit_names_its_topic_once_the_cluster_is_finalized(
    tmp_path: Path, level: int, found: list[bytes]
) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        coordinating.level = level
        await coordinating.lead(isr=(1,), min_isr=1)
        assert coordinating.offset() == 5
        assert coordinating.groups.commit("g", {COMMITTED: CommittedOffset(9)}) is ErrorCode.NONE
        [_, last] = rows_of(coordinating)
        assert [value for name, value in last.headers if name == TOPIC_ID_HEADER] == found
        assert coordinating.offset() == 9
        coordinating.read_id = UUID(int=7)
        await coordinating.apply(1, 1, (1,), 1)
        assert coordinating.offset() == -1, "the coordinator that took it knows its topic at any level"

    asyncio.run(story())


def test_a_refused_deletion_of_offsets_is_tried_again(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1,), min_isr=2)
        assert coordinating.offset() == 5
        coordinating.read_id = UUID(int=7)
        await coordinating.apply(1, 1, (1,), 2)
        assert coordinating.offset() == -1, "nobody is told, whatever the log says"
        assert len(records_of(coordinating)) == 1
        await coordinating.apply(1, 1, (1,), 1)
        coordinating.groups.expire(FORGET_REST_MS - 1)
        assert len(records_of(coordinating)) == 1
        coordinating.groups.expire(FORGET_REST_MS)
        assert records_of(coordinating)[1:] == [(OffsetKey("g", *COMMITTED), True)]
        coordinating.groups.expire(10 * FORGET_REST_MS)
        assert len(records_of(coordinating)) == 2, "once it is done it is done"

    asyncio.run(story())


def test_a_commit_for_the_next_incarnation_is_not_forgotten_with_the_last_one(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1,), min_isr=2)
        coordinating.offset()
        coordinating.read_id = UUID(int=7)
        await coordinating.apply(1, 1, (1,), 2)
        await coordinating.apply(1, 1, (1,), 1)
        assert coordinating.groups.commit("g", {COMMITTED: CommittedOffset(3, 0, "")}) is ErrorCode.NONE
        coordinating.groups.expire(FORGET_REST_MS)
        assert coordinating.offset() == 3
        assert records_of(coordinating)[-1] == (OffsetKey("g", *COMMITTED), False)

    asyncio.run(story())


def test_a_commit_that_replicas_still_lack_when_its_topic_is_made_again_is_not_shown(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1, 2), min_isr=1)
        coordinating.fetched(2, 1)
        assert coordinating.offset() == 5
        written = coordinating.groups.commit("g", {COMMITTED: CommittedOffset(9, 0, "")})
        assert not isinstance(written, ErrorCode)
        waiting = asyncio.create_task(written)
        await asyncio.sleep(0)
        coordinating.read_id = UUID(int=7)
        coordinating.version += 1
        coordinating.switch(coordinating.image(1, 1, (1, 2), 1))
        partition = coordinating.partition
        assert partition.leading is not None
        assert partition.log is not None
        partition.leading.fetched(2, EPOCHS[2], partition.log.log_end_offset, partition.log.log_end_offset, now_ms=0)
        coordinating.partitions.advance(partition)
        coordinating.acknowledgements.moved(partition.key, Moved.LEADER)
        assert await waiting is ErrorCode.NONE
        assert coordinating.offset() == -1
        coordinating.groups.expire(FORGET_REST_MS)
        assert records_of(coordinating)[-1] == (OffsetKey("g", *COMMITTED), True)

    asyncio.run(story())


def test_a_coordinator_whose_followers_are_silent_does_not_say_what_is_committed(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1, 2))
        coordinating.fetched(2, 1)
        assert coordinating.offset() == 5
        coordinating.now_ms = TOUCH_MS + 1
        assert coordinating.offset() is ErrorCode.NOT_COORDINATOR, "2 may lead by now, and know of later commits"
        coordinating.fetched(2, 1)
        assert coordinating.offset() == 5

    asyncio.run(story())


def test_a_coordinator_alone_in_sync_needs_its_session(tmp_path: Path) -> None:
    async def story() -> None:
        coordinating = Coordinating(tmp_path)
        await coordinating.lead(isr=(1,), min_isr=1)
        assert coordinating.offset() == 5
        coordinating.partitions.has_session = lambda: False
        assert coordinating.offset() is ErrorCode.NOT_COORDINATOR
        assert coordinating.groups.commit("g", {COMMITTED: CommittedOffset(9, 0, "")}) is ErrorCode.NOT_COORDINATOR
        coordinating.partitions.has_session = lambda: True
        assert coordinating.offset() == 5
        assert coordinating.groups.commit("g", {COMMITTED: CommittedOffset(9, 0, "")}) is ErrorCode.NONE

    asyncio.run(story())

"""The group coordinator: the groups whose partition of `__consumer_offsets` this broker leads.

Groups decide for themselves (`pylog.group.state`); here is what waits: the clock, the log they are written to, the
members that want an answer.  A group is answered only after its partition was read from start to end, and every in-sync
replica has what was read.
"""

import asyncio
import logging
import os
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from pylog.broker.data.acks import Acknowledgements, Appended
from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.settings import Value
from pylog.broker.tasks import Tasks
from pylog.errors import ApiError, ErrorCode, ProtocolError, StorageError
from pylog.group import records as group_records
from pylog.group.records import CommittedOffset, OffsetKey, partition_for
from pylog.group.state import Action, Answer, Group, GroupConfig, Joiner, Persist, State
from pylog.log.log import Log
from pylog.log.segment import FileSlice
from pylog.metrics import Metrics
from pylog.model import NO_LEADER, NodeAddress, Offset
from pylog.wire import records
from pylog.wire.api.groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pylog.wire.api.message import Message, Request
from pylog.wire.api.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pylog.wire.records import Record

_logger = logging.getLogger(__name__)

SWEEP_S = 0.1
"""How soon a session that is over is noticed; sessions last seconds."""

CREATE_TIMEOUT_MS = 10_000
"""How long the controller may take to make the topic."""

COMMIT_TIMEOUT_MS = 5_000
"""How long the in-sync replicas may take to get what a group wrote; Kafka's `offsets.commit.timeout.ms`."""

MAX_NAME_CHARACTERS = 255
"""Of an instance, an assignor, or a protocol type; clients' own limit is 249."""

MAX_GROUP_ID_CHARACTERS = 8191
"""Four bytes each still fit into the length of a string in the topic's records."""

FORGET_REST_MS = 5_000
"""How long the deletion of offsets that was refused rests before it is tried again."""

MAX_FORGOTTEN_AT_ONCE = 1_000
"""Offsets deleted by one batch of records."""

LOAD_BYTES = 1 << 20
"""Read at a time when a partition is loaded."""

OFFSETS_TOPIC_CONFIGS = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(100 << 20)}

MessageT = TypeVar("MessageT", bound=Message)

_Place: TypeAlias = tuple[str, tuple[str, int]]
"""Where an offset is kept: group, and topic and partition."""


@dataclass(slots=True)
class _Shard:
    """The groups of one partition of the topic, loaded or loading.

    Attributes:
        end_offset: what was read ends there.
        read: groups by name, from when they were read until they may be asked.
        remade: topics that were deleted, or deleted and made again, while it was loading.
        newest: log offset of the newest commit that replicas still lack.
        void: offsets of topics that are gone, which nobody is told any more and the log still has; each with a number
            that tells it from a later one of that place.
        forget_ms: when to try again to delete these from the log.
    """

    number: int
    leading_since: int
    is_loaded: bool = False
    end_offset: Offset = 0
    read: dict[str, Group] | None = None
    groups: dict[str, Group] = field(default_factory=dict)
    offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = field(default_factory=dict)
    remade: set[str] = field(default_factory=set)
    newest: dict[_Place, Offset] = field(default_factory=dict)
    void: dict[_Place, int] = field(default_factory=dict)
    void_count: int = 0
    forget_ms: int = 0
    is_forgetting: bool = False


class GroupCoordinator:
    """See the module."""

    def __init__(
        self,
        partitions: Partitions,
        settings: Mapping[str, Value],
        metrics: Metrics,
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        appended: Callable[[tuple[str, int]], None],
        acknowledgements: Acknowledgements,
        is_used_elsewhere: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        """Make it; *appended* is told every partition that grew, *now_ms* is steady, *wall_ms* goes into records.

        *is_used_elsewhere* says whether a group id has consumers that coordinate without a broker.
        """
        self._is_used_elsewhere = is_used_elsewhere
        self._partitions = partitions
        self._acknowledgements = acknowledgements
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._appended = appended
        self._config = GroupConfig(
            min_session_timeout_ms=int(settings["group.min.session.timeout.ms"]),
            max_session_timeout_ms=int(settings["group.max.session.timeout.ms"]),
            max_size=int(settings["group.max.size"]),
            initial_rebalance_delay_ms=int(settings["group.initial.rebalance.delay.ms"]),
        )
        factor, configs = int(settings["offsets.topic.replication.factor"]), dict(OFFSETS_TOPIC_CONFIGS)
        if factor > 2:
            # A commit that only one replica has is lost with it, whatever other topics ask for.
            configs["min.insync.replicas"] = "2"
        self._topic = CreatableTopic(
            name=group_records.TOPIC,
            num_partitions=int(settings["offsets.topic.num.partitions"]),
            replication_factor=factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        self._is_creating_topic = False
        self._max_metadata_bytes = int(settings["offset.metadata.max.bytes"])
        self._shards: dict[int, _Shard] = {}
        self._known_topics: Mapping[str, uuid.UUID] = {}
        self._tasks = Tasks()
        self._commits = metrics.counter("pylog_offset_commits_total", "Offsets committed by groups.")
        metrics.gauge(
            "pylog_groups",
            "Consumer groups coordinated here.",
            read=lambda: sum(len(shard.groups) for shard in self._shards.values()),
        )

    def start(self) -> None:
        """Begin to watch the clock."""
        self._tasks.spawn(self._sweep())

    async def stop(self) -> None:
        """Stop; members learn from their closed connections."""
        await self._tasks.stop()

    def image_applied(self, changed: Iterable[Partition]) -> None:
        """Load what this broker leads from now on, let go what it does not, forget offsets of deleted topics."""
        for partition in changed:
            if partition.key.topic == group_records.TOPIC:
                self._leadership_changed(partition)
        topics = {name: topic.topic_id for name, topic in self._partitions.image.topics.items()}
        # By id: only the newest of several images is applied, so a topic may be another one and was never missing.
        gone = {name for name, topic_id in self._known_topics.items() if topics.get(name) != topic_id}
        self._known_topics = topics
        for shard in self._shards.values() if gone else ():
            if shard.is_loaded:
                self._void_topics(shard, lambda name: name in gone)
            else:
                shard.remade |= gone

    # -- where a group is ------------------------------------------------------------------------------------------

    def find(self, group_id: str) -> NodeAddress:
        """Return the broker that coordinates *group_id*.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE while the topic or its leader is missing.
        """
        image = self._partitions.image
        state = image.partition(group_records.TOPIC, self._partition_of(group_id))
        broker = image.brokers.get(state.leader) if state and state.leader != NO_LEADER else None
        if broker is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no leader for the partition of group {group_id}")
        return broker.client

    def create_topic(self, ask_controller: Callable[[Request], Coroutine[None, None, Message]]) -> None:
        """Have `__consumer_offsets` made unless that is under way; clients ask again until there is a coordinator."""
        brokers, wanted = len(self._partitions.image.brokers), self._topic.replication_factor
        if brokers < wanted:
            _logger.warning("no group coordinator yet brokers=%d wanted=%d", brokers, wanted)
        elif not self._is_creating_topic:
            self._is_creating_topic = True
            self._tasks.spawn(self._create_topic(ask_controller))

    async def _create_topic(self, ask_controller: Callable[[Request], Coroutine[None, None, Message]]) -> None:
        try:
            answer = await ask_controller(CreateTopicsRequest(topics=[self._topic], timeout_ms=CREATE_TIMEOUT_MS))
            assert isinstance(answer, CreateTopicsResponse), answer
            for row in answer.topics:
                if row.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    _logger.warning("offsets topic not created reason=%s", row.error_message)
        except ApiError as error:
            _logger.warning("offsets topic not created reason=%s", error)
        finally:
            self._is_creating_topic = False

    def _partition_of(self, group_id: str) -> int:
        topic = self._partitions.image.topics.get(group_records.TOPIC)
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{group_records.TOPIC} does not exist yet")
        return partition_for(group_id, len(topic.partitions))

    def _shard_of(self, group_id: str) -> _Shard:
        if len(group_id) > MAX_GROUP_ID_CHARACTERS:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, f"a group's name of {len(group_id)} characters")
        number = self._partition_of(group_id)
        shard = self._shards.get(number)
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"group {group_id} is coordinated elsewhere")
        if not self._may_answer(shard):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"group {group_id} is being loaded")
        return shard

    # -- membership ------------------------------------------------------------------------------------------------

    async def join(self, request: JoinGroupRequest, client_id: str, client_host: str, version: int) -> Message:
        """Return the generation the member belongs to, once it has begun."""
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group has a name")
        names = (request.group_instance_id or "", request.protocol_type, *(one.name for one in request.protocols))
        if max(map(len, names)) > MAX_NAME_CHARACTERS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a name of more than {MAX_NAME_CHARACTERS} characters")
        await self._refuse_if_used_elsewhere(request.group_id)
        shard = self._shard_of(request.group_id)
        group = shard.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {request.group_id} has no members")
            group = shard.groups[request.group_id] = Group(request.group_id, self._config)
        client_id = client_id[:MAX_NAME_CHARACTERS]
        new_member_id = f"{request.group_instance_id or client_id}-{uuid.uuid4()}"
        joiner = Joiner(client_id, client_host, version, new_member_id)
        waiting: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
        self._carry_out(shard, group, group.join(request, joiner, waiting, self._now_ms()))
        self._forget_unused(shard, group)
        return await waiting

    async def _refuse_if_used_elsewhere(self, group_id: str) -> None:
        group = self._shard_of(group_id).groups.get(group_id)
        if self._is_used_elsewhere is None or (group is not None and group.state is not State.EMPTY):
            return
        if await self._is_used_elsewhere(group_id):
            # Not retriable: the two kinds would both read everything, and overwrite each other's offsets.
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group_id} has consumers that coordinate in ZooKeeper"
            )

    async def sync(self, request: SyncGroupRequest) -> Message:
        """Return the member's assignment, once its leader has brought it."""
        try:
            shard, group = self._member_group(request.group_id)
        except ApiError as error:
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            # Old clients do not know the error; what was being agreed on is lost anyway, so they join again.
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, str(error)) from error
        waiting: asyncio.Future[SyncGroupResponse] = asyncio.get_running_loop().create_future()
        self._carry_out(shard, group, group.sync(request, waiting, self._now_ms()))
        return await waiting

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Prolong a session."""
        try:
            _, group = self._member_group(group_id)
        except ApiError as error:
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return ErrorCode.NONE  # sessions begin anew when the group is loaded, so the member is in time
        return group.heartbeat(member_id, instance_id, generation, self._now_ms())

    def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Let members go."""
        shard, group = self._member_group(request.group_id)
        rows = []
        for member in request.members:
            error, actions = group.leave(member.member_id, member.group_instance_id, self._now_ms())
            self._carry_out(shard, group, actions)
            rows.append(
                MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error)
            )
        self._forget_unused(shard, group)
        return LeaveGroupResponse(members=rows)

    def _member_group(self, group_id: str) -> tuple[_Shard, Group]:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group has a name")
        shard = self._shard_of(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id} has no members")
        return shard, group

    @staticmethod
    def _forget_unused(shard: _Shard, group: Group) -> None:
        """Drop a group that somebody asked for and nobody joined, so that made-up names cost no memory."""
        if group.is_forgettable and not shard.offsets.get(group.group_id):
            shard.groups.pop(group.group_id, None)

    # -- offsets ---------------------------------------------------------------------------------------------------

    def commit_fault(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return why this may not commit, or NONE."""
        group = self._shard_of(group_id).groups.get(group_id)
        if group is None:
            return ErrorCode.ILLEGAL_GENERATION if generation >= 0 else ErrorCode.NONE
        return group.commit_fault(member_id, instance_id, generation, self._now_ms())

    def commit(
        self, group_id: str, offsets: Mapping[tuple[str, int], CommittedOffset]
    ) -> ErrorCode | Coroutine[None, None, ErrorCode]:
        """Write offsets down, and show them once every in-sync replica has them.

        Returns:
            NONE or why not; or, while replicas still lack them, what to await for that.
        """
        if not offsets:
            return ErrorCode.NONE
        shard = self._shard_of(group_id)
        now_ms = self._wall_ms()
        rows = []
        for (topic, partition), committed in offsets.items():
            committed.commit_timestamp = now_ms
            rows.append(group_records.encode_offset(OffsetKey(group_id, topic, partition), committed, now_ms))
        written = self._append(shard, rows)
        if isinstance(written, Appended) or written is ErrorCode.NONE:
            for key in offsets:
                shard.void.pop((group_id, key), None)  # the log has a newer one behind it
        if isinstance(written, Appended):
            for key in offsets:
                shard.newest[group_id, key] = written.last_offset
            ids = {topic: self._known_topics.get(topic) for topic, _ in offsets}
            return self._commit_later(shard, group_id, offsets, written, ids)
        return self._committed(shard, group_id, offsets, written)

    async def _commit_later(
        self,
        shard: _Shard,
        group_id: str,
        offsets: Mapping[tuple[str, int], CommittedOffset],
        written: Appended,
        ids: Mapping[str, uuid.UUID | None],
    ) -> ErrorCode:
        error = await self._settled(shard, written)
        lasting = dict(offsets)
        for key in offsets:
            is_newest = shard.newest.get((group_id, key)) == written.last_offset
            if is_newest:
                del shard.newest[group_id, key]
            if self._known_topics.get(key[0]) != ids[key[0]]:
                # Its topic was deleted meanwhile, and perhaps made again.
                del lasting[key]
                if is_newest:
                    self._void(shard, group_id, key)
        return self._committed(shard, group_id, lasting, error)

    def _committed(
        self, shard: _Shard, group_id: str, offsets: Mapping[tuple[str, int], CommittedOffset], error: ErrorCode
    ) -> ErrorCode:
        if error is ErrorCode.NONE and offsets:
            if group_id not in shard.groups:
                shard.groups[group_id] = Group(group_id, self._config)
            shard.offsets.setdefault(group_id, {}).update(offsets)
            self._commits.value += len(offsets)
        return error

    def is_metadata_too_large(self, metadata: str | None) -> bool:
        """Whether a commit's note is longer than `offset.metadata.max.bytes`."""
        return metadata is not None and len(metadata.encode()) > self._max_metadata_bytes

    def offsets(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """Return everything *group_id* has committed, by topic and partition."""
        return self._shard_of(group_id).offsets.get(group_id, {})

    async def delete_offsets(self, group_id: str, wanted: Iterable[tuple[str, int]]) -> ErrorCode:
        """Forget committed offsets."""
        shard = self._shard_of(group_id)
        known = shard.offsets.get(group_id, {})
        gone = [key for key in wanted if key in known]
        now_ms = self._wall_ms()
        error = await self._write(
            shard, [group_records.encode_offset(OffsetKey(group_id, *key), None, now_ms) for key in gone]
        )
        if error is ErrorCode.NONE:
            for key in gone:
                known.pop(key, None)
        return error

    # -- whole groups ----------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """Return a group coordinated here, or None if nobody ever joined or committed in it."""
        return self._shard_of(group_id).groups.get(group_id)

    def groups(self) -> list[Group]:
        """Return every group coordinated here.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS while some are not known yet.
        """
        if not all(self._may_answer(shard) for shard in self._shards.values()):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are being loaded")
        return [group for shard in self._shards.values() for group in shard.groups.values()]

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and its offsets."""
        shard = self._shard_of(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        now_ms = self._wall_ms()
        rows = [
            group_records.encode_offset(OffsetKey(group_id, *key), None, now_ms)
            for key in shard.offsets.get(group_id, {})
        ]
        error = await self._write(shard, [*rows, group_records.encode_group_end(group_id, now_ms)])
        if error is ErrorCode.NONE:
            shard.offsets.pop(group_id, None)
            # Somebody may have joined while this was written; its next generation writes the group down anew.
            if group.state is State.EMPTY and shard.groups.get(group_id) is group:
                group.kill()
                del shard.groups[group_id]
        return error

    # -- what waits ------------------------------------------------------------------------------------------------

    def _carry_out(self, shard: _Shard, group: Group, actions: list[Action]) -> None:
        """Do what a group decided; what follows from that is done too."""
        todo = list(actions)
        while todo:
            action = todo.pop(0)
            if isinstance(action, Answer):
                if not action.token.done():
                    action.token.set_result(action.response)
            else:
                assert isinstance(action, Persist)
                written = self._append(shard, [group_records.encode_group(group, self._wall_ms())])
                if isinstance(written, Appended):
                    self._tasks.spawn(self._persist(shard, group, action, written))
                else:
                    todo += group.persisted(action, written, self._now_ms())

    async def _persist(self, shard: _Shard, group: Group, action: Persist, written: Appended) -> None:
        """Go on with *group* once every in-sync replica has it."""
        error = await self._settled(shard, written)
        self._carry_out(shard, group, group.persisted(action, error, self._now_ms()))

    async def _write(self, shard: _Shard, rows: list[Record]) -> ErrorCode:
        """Append *rows* and return NONE once every in-sync replica has them."""
        written = self._append(shard, rows)
        return await self._settled(shard, written) if isinstance(written, Appended) else written

    async def _settled(self, shard: _Shard, written: Appended) -> ErrorCode:
        key = (group_records.TOPIC, shard.number)
        error = await self._acknowledgements.wait_for(key, written, COMMIT_TIMEOUT_MS)
        if error is ErrorCode.NONE:
            return error
        # It may stand in the log or not; the group's members do it again, which comes to the same.
        _logger.warning("group not acknowledged partition=%d error=%s", shard.number, error.name)
        is_moved = error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NOT_COORDINATOR if is_moved else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _append(self, shard: _Shard, rows: list[Record]) -> Appended | ErrorCode:
        """Append *rows* to a partition of the topic, in one batch.

        Returns:
            NONE when every in-sync replica has them already, what to wait for when not, or why they are not written.
        """
        if not rows:
            return ErrorCode.NONE
        for offset, row in enumerate(rows):
            row.offset = offset
        batch = memoryview(bytearray(records.encode_batch(rows)))
        try:
            partition, log = self._partitions.leader(group_records.TOPIC, shard.number)
            if partition.leading is not None and partition.leading.is_under_min_isr():
                raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "fewer replicas in sync than min.insync.replicas")
            result = log.append_as_leader(batch, records.parse_header(batch), partition.leader_epoch, self._wall_ms())
        except (ApiError, StorageError) as error:
            _logger.error("group not written partition=%d reason=%s", shard.number, error)
            if isinstance(error, StorageError) or error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._partitions.let_another_lead(group_records.TOPIC, shard.number)
            is_moved = isinstance(error, ApiError) and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.NOT_COORDINATOR if is_moved else ErrorCode.COORDINATOR_NOT_AVAILABLE
        if partition.leading is not None:
            partition.leading.cannot_write = False
        self._partitions.advance(partition)
        self._appended((group_records.TOPIC, shard.number))
        if log.high_watermark > result.last_offset:
            return ErrorCode.NONE
        return Appended(partition, result.last_offset, partition.leader_epoch)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.expire(self._now_ms())

    def expire(self, now_ms: int) -> None:
        """End what has waited too long at *now_ms*, in every group."""
        for shard in list(self._shards.values()):
            if self._may_answer(shard):
                # Most groups have nothing due: 0.05 us each, however many members they have.
                for group in [one for one in shard.groups.values() if one.wake_ms <= now_ms]:
                    self._carry_out(shard, group, group.expire(now_ms))
                    self._forget_unused(shard, group)
                if shard.void and shard.forget_ms <= now_ms:
                    self._forget_void(shard)

    # -- leadership ------------------------------------------------------------------------------------------------

    def _leadership_changed(self, partition: Partition) -> None:
        number = partition.key.partition
        old = self._shards.get(number)
        if old is not None and (not partition.is_leader or old.leading_since != partition.leading_since):
            del self._shards[number]
            for group in old.groups.values():
                for action in group.kill():
                    if isinstance(action, Answer) and not action.token.done():
                        action.token.set_result(action.response)
        if partition.is_leader and partition.log is not None and number not in self._shards:
            shard = self._shards[number] = _Shard(number, partition.leading_since)
            self._tasks.spawn(self._load(shard, partition.log))

    async def _load(self, shard: _Shard, log: Log) -> None:
        """Read what members may have been told, which may be all of the log."""
        offset, end = log.log_start_offset, log.log_end_offset
        shard.end_offset = end
        raw_groups: dict[str, bytes] = {}
        try:
            while offset < end:
                found = log.read(offset, LOAD_BYTES, upper_bound_offset=end, min_one_batch=True)
                if found is None:
                    break
                found.acquire()
                try:
                    offset = await asyncio.to_thread(_read_slice, found, offset, raw_groups, shard.offsets)
                finally:
                    found.release()
            shard.read = {
                group_id: group_records.decode_group(group_id, raw, self._config)
                for group_id, raw in raw_groups.items()
            }
        except (ApiError, StorageError, ProtocolError, OSError) as error:
            # Half of a group's offsets would send its members back; none is answered until it can be read.
            _logger.error("groups not loaded partition=%d reason=%s", shard.number, error)
            return
        if self._shards.get(shard.number) is shard:
            self._may_answer(shard)

    def _may_answer(self, shard: _Shard) -> bool:
        """Return whether *shard* is loaded, which it is as soon as every in-sync replica has what was read.

        Until then a successor may lack it: what somebody was told from it would be gone, and a generation that has
        begun would begin again.  Nobody has to be told of the moment: whoever asks looks, and so does the sweep.
        """
        if not shard.is_loaded and shard.read is not None and self._is_everywhere(shard):
            self._take_in(shard, shard.read)
            shard.is_loaded, shard.read = True, None
        return shard.is_loaded

    def _is_everywhere(self, shard: _Shard) -> bool:
        partition = self._partitions.get(group_records.TOPIC, shard.number)
        if partition is None or partition.log is None or partition.leading is None:
            return False
        log = partition.log
        # Not the high watermark alone: under min.insync.replicas it stands still, and what can be written no more
        # shall be readable.  Whoever comes back in sync has at least what was there when this leader began.
        in_sync = partition.leading.common_end_offset(log.countable_end_offset)
        return max(in_sync, log.high_watermark) >= shard.end_offset

    def _take_in(self, shard: _Shard, read: Mapping[str, Group]) -> None:
        now_ms = self._now_ms()
        for group_id in shard.offsets.keys() - read.keys():
            shard.groups[group_id] = Group(group_id, self._config)
        for group_id, group in read.items():
            group.restore(now_ms)
            shard.groups[group_id] = group
        if shard.groups:
            _logger.info("groups loaded partition=%d groups=%d", shard.number, len(shard.groups))
        # Whoever wrote these did so under an earlier image than the one by which this broker leads the partition.
        self._void_topics(shard, lambda name: name in shard.remade or name not in self._known_topics)
        shard.remade.clear()

    # -- offsets of topics that are gone ---------------------------------------------------------------------------

    def _void_topics(self, shard: _Shard, is_gone: Callable[[str], bool]) -> None:
        """Tell nobody any more what was committed for topics that are gone, and delete it from the log."""
        for group_id, offsets in shard.offsets.items():
            for key in [key for key in offsets if is_gone(key[0])]:
                del offsets[key]
                self._void(shard, group_id, key)
        if shard.void:
            self._forget_void(shard)

    @staticmethod
    def _void(shard: _Shard, group_id: str, key: tuple[str, int]) -> None:
        shard.void_count += 1
        shard.void[group_id, key] = shard.void_count

    def _forget_void(self, shard: _Shard) -> None:
        """Delete from the log what nobody is told any more; what is refused is tried again by the sweep.

        The records are appended here and now: a commit for the topic's next incarnation comes behind them.
        """
        if shard.is_forgetting:
            return
        shard.forget_ms = self._now_ms() + FORGET_REST_MS
        chosen = dict(list(shard.void.items())[:MAX_FORGOTTEN_AT_ONCE])
        now_ms = self._wall_ms()
        rows = [group_records.encode_offset(OffsetKey(group_id, *key), None, now_ms) for group_id, key in chosen]
        written = self._append(shard, rows)
        if isinstance(written, Appended):
            shard.is_forgetting = True
            self._tasks.spawn(self._forgotten_later(shard, chosen, written))
        else:
            self._forgotten(shard, chosen, written)

    async def _forgotten_later(self, shard: _Shard, chosen: Mapping[_Place, int], written: Appended) -> None:
        error = await self._settled(shard, written)
        shard.is_forgetting = False
        self._forgotten(shard, chosen, error)

    @staticmethod
    def _forgotten(shard: _Shard, chosen: Mapping[_Place, int], error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            message = "offsets of deleted topics not deleted yet partition=%d offsets=%d error=%s"
            _logger.warning(message, shard.number, len(chosen), error.name)
            return
        for place, number in chosen.items():
            if shard.void.get(place) == number:
                del shard.void[place]
        shard.forget_ms = 0
        _logger.info("offsets of deleted topics deleted partition=%d offsets=%d", shard.number, len(chosen))


def _read_slice(
    found: FileSlice,
    offset: int,
    raw_groups: dict[str, bytes],
    offsets: dict[str, dict[tuple[str, int], CommittedOffset]],
) -> int:
    """Take in the records of *found* and return the offset after its last whole batch; for a thread."""
    data = memoryview(os.pread(found.fd, found.size_bytes, found.position))
    for position, header in records.iter_batches(data):
        for row in records.decode_records(data, header, position):
            key = group_records.decode_key(row.key or b"")
            if isinstance(key, OffsetKey):
                mine = offsets.setdefault(key.group_id, {})
                if row.value is None:
                    mine.pop((key.topic, key.partition), None)
                else:
                    mine[key.topic, key.partition] = group_records.decode_offset(row.value)
            elif key is not None:
                if row.value is None:
                    raw_groups.pop(key, None)
                    offsets.pop(key, None)
                else:
                    raw_groups[key] = row.value
        offset = header.last_offset + 1
    return offset

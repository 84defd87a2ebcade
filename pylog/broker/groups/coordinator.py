"""The group coordinator: the groups whose partition of `__consumer_offsets` this broker leads.

Groups decide for themselves (`pylog.group.state`).  What waits is here and in `shard`: the clock, the log that they are
written to, the members that want an answer.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.partitions import Appended, Partition, Partitions
from pylog.broker.groups.rebalances import Rebalances
from pylog.broker.groups.shard import GroupContext, Shard
from pylog.broker.groups.topic import OffsetsTopic
from pylog.broker.tasks import Tasks
from pylog.errors import ApiError, ErrorCode
from pylog.group import records as group_records
from pylog.group.records import CommittedOffset
from pylog.group.state import Group, GroupConfig, Joiner, State
from pylog.log.log import Log
from pylog.metrics import Metrics
from pylog.model import Key
from pylog.wire.api.groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pylog.wire.api.message import Message

SWEEP_MS = 100
"""How often all groups are looked at.  What is over before the next time is ended when it is over."""

_NONE = ErrorCode.NONE

MAX_NAME_CHARACTERS = 255
"""Of an instance, an assignor, or a protocol type; clients' own limit is 249."""

MAX_GROUP_ID_CHARACTERS = 8191
"""Four bytes each still fit into the length of a string in the topic's records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """The settings of groups; see `pylog.broker.settings`."""

    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_initial_rebalance_delay_ms: int
    offset_metadata_max_bytes: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int


class GroupCoordinator:
    """See the module.

    Attributes:
        topic: the topic that keeps groups.
    """

    def __init__(
        self,
        partitions: Partitions,
        config: CoordinatorConfig,
        metrics: Metrics,
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        acknowledgements: Acknowledgements,
        is_used_elsewhere: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        """Make it.

        Args:
            partitions: hosted here.
            config: bounds of groups, and of the topic that keeps them.
            metrics: where groups and commits are counted.
            now_ms: the steady clock.
            wall_ms: the clock for records.
            acknowledgements: wait for in-sync replicas.
            is_used_elsewhere: says whether a group id has consumers that coordinate without a broker.
        """
        self._is_used_elsewhere = is_used_elsewhere
        self._partitions = partitions
        self._now_ms = now_ms
        self._tasks = Tasks()
        self.topic = OffsetsTopic(
            partitions,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            self._tasks,
        )
        self._group_config = GroupConfig(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            max_size=config.group_max_size,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        )
        self._max_metadata_bytes = config.offset_metadata_max_bytes
        commits = metrics.counter("pylog_offset_commits_total", "Offsets committed by groups.")
        self._context = GroupContext(
            partitions, acknowledgements, now_ms, wall_ms, self._group_config, self._tasks, commits, Rebalances(metrics)
        )
        self._shards: dict[int, Shard] = {}
        self._sweep_ms = 0
        self._soon: list[tuple[Shard, Group]] = []
        self._known_topics: Mapping[str, uuid.UUID] = {}
        metrics.gauge(
            "pylog_groups",
            "Consumer groups coordinated here.",
            read=lambda: sum(len(shard.groups) for shard in self._shards.values()),
        )

    def start(self) -> None:
        """Begin to watch the clock."""
        self._tasks.spawn(self._watch_clock())

    async def stop(self) -> None:
        """Stop; members learn from their closed connections."""
        await self._tasks.stop()

    async def _watch_clock(self) -> None:
        while True:
            next_ms = self.end_late(self._now_ms())
            await asyncio.sleep(max(next_ms - self._now_ms(), 0) / 1000)

    def end_late(self, now_ms: int) -> int:
        """End what is over at *now_ms*; return when to look again, which is later.

        To look at every group whenever one of them has something due would cost 10,000 groups a tenth of a core: only
        those of which a sweep saw that they have are looked at before the next sweep.
        """
        if now_ms >= self._sweep_ms:
            self.expire(now_ms)
            self._sweep_ms = now_ms + SWEEP_MS
            self._soon = [
                (shard, group)
                for shard in self._shards.values()
                for group in shard.groups.values()
                if group.wake_ms < self._sweep_ms
            ]
        else:
            for shard, group in self._soon:
                if group.wake_ms <= now_ms:
                    shard.end_late(group, now_ms)
        # What was ended now and is still due waits for others, not for the clock.
        self._soon = [(shard, group) for shard, group in self._soon if group.wake_ms > now_ms]
        return min([self._sweep_ms, *(group.wake_ms for _, group in self._soon)])

    def expire(self, now_ms: int) -> None:
        """End what has waited too long at *now_ms*, in every group."""
        for shard in list(self._shards.values()):
            shard.expire(now_ms)

    # -- images ----------------------------------------------------------------------------------------------------

    def image_applied(self, changed: Iterable[Partition]) -> None:
        """Load what this broker leads from now on, drop what it does not lead, forget offsets of deleted topics."""
        shards_changed = [one for one in changed if one.key.topic == group_records.TOPIC]
        for partition in shards_changed:
            self._drop_shard(partition)
        topics = {name: topic.topic_id for name, topic in self._partitions.image.topics.items()}
        # By id: only the newest of several images is applied, so a topic may be another one and was never missing.
        gone = {name for name, topic_id in self._known_topics.items() if topics.get(name) != topic_id}
        self._known_topics = topics
        for shard in self._shards.values() if gone else ():
            shard.topics_gone(gone)
        for partition in shards_changed:
            self._load_shard(partition)

    def _drop_shard(self, partition: Partition) -> None:
        number = partition.key.partition
        old = self._shards.get(number)
        if old is not None and (not partition.is_leader or old.leading_since != partition.leading_since):
            del self._shards[number]
            self._soon = [(shard, group) for shard, group in self._soon if shard is not old]
            old.kill()

    def _load_shard(self, partition: Partition) -> None:
        number = partition.key.partition
        if partition.is_leader and partition.log is not None and number not in self._shards:
            shard = self._shards[number] = Shard(number, partition.leading_since, self._context)
            self._tasks.spawn(self._load(number, shard, partition.log))

    async def _load(self, number: int, shard: Shard, log: Log) -> None:
        await shard.load(log)
        if self._shards.get(number) is shard:
            shard.finish_loading()

    def _shard_of(self, group_id: str) -> Shard:
        if len(group_id) > MAX_GROUP_ID_CHARACTERS:
            message = f"group id has {len(group_id)} characters; at most {MAX_GROUP_ID_CHARACTERS} are allowed"
            raise ApiError(ErrorCode.INVALID_GROUP_ID, message)
        shard = self._shards.get(self.topic.partition_of(group_id))
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"group {group_id} is coordinated by another broker")
        if not shard.finish_loading():
            if shard.is_unreadable:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the log of group {group_id} does not decode")
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"group {group_id} is being loaded")
        return shard

    # -- membership ------------------------------------------------------------------------------------------------

    async def join(self, request: JoinGroupRequest, client_id: str, client_host: str, version: int) -> Message:
        """Return the generation the member belongs to, once it has begun."""
        check_group_id(request.group_id)
        names = (request.group_instance_id or "", request.protocol_type, *(one.name for one in request.protocols))
        if max(map(len, names)) > MAX_NAME_CHARACTERS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a name has more than {MAX_NAME_CHARACTERS} characters")
        await self._refuse_if_used_elsewhere(request.group_id)
        shard = self._shard_of(request.group_id)
        group = shard.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {request.group_id} has no members")
            group = shard.groups[request.group_id] = Group(request.group_id, self._group_config)
        client_id = client_id[:MAX_NAME_CHARACTERS]
        new_member_id = f"{request.group_instance_id or client_id}-{uuid.uuid4()}"
        joiner = Joiner(client_id, client_host, version, new_member_id)
        waiting: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
        shard.carry_out(group, group.join(request, joiner, waiting, self._now_ms()))
        shard.drop_unused(group)
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
        shard.carry_out(group, group.sync(request, waiting, self._now_ms()))
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
        """Remove members."""
        shard, group = self._member_group(request.group_id)
        rows = []
        for member in request.members:
            error, actions = group.leave(member.member_id, member.group_instance_id, self._now_ms())
            shard.carry_out(group, actions)
            rows.append(
                MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error)
            )
        shard.drop_unused(group)
        return LeaveGroupResponse(members=rows)

    def _member_group(self, group_id: str) -> tuple[Shard, Group]:
        check_group_id(group_id)
        shard = self._shard_of(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id} has no members")
        return shard, group

    # -- offsets ---------------------------------------------------------------------------------------------------

    def commit_fault(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return why this member may not commit, or NONE."""
        group = self._shard_of(group_id).groups.get(group_id)
        if group is None:
            return ErrorCode.ILLEGAL_GENERATION if generation >= 0 else ErrorCode.NONE
        return group.commit_fault(member_id, instance_id, generation, self._now_ms())

    def commit(
        self, group_id: str, offsets: Mapping[Key, CommittedOffset]
    ) -> ErrorCode | Coroutine[None, None, ErrorCode]:
        """Commit offsets; see `ShardOffsets.commit`."""
        return self._shard_of(group_id).offsets.commit(group_id, offsets) if offsets else ErrorCode.NONE

    def transaction_fault(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return why a transaction may not commit offsets in the name of this member, or NONE."""
        group = self._shard_of(group_id).groups.get(group_id)
        if group is None:
            return ErrorCode.ILLEGAL_GENERATION if generation >= 0 else ErrorCode.NONE
        return group.transaction_fault(member_id, instance_id, generation)

    def commit_pending(
        self, group_id: str, offsets: Mapping[Key, CommittedOffset], producer_id: int, producer_epoch: int
    ) -> ErrorCode | Coroutine[None, None, ErrorCode]:
        """Commit offsets within a transaction; see `ShardOffsets.commit_pending`."""
        shard = self._shard_of(group_id)
        return shard.offsets.commit_pending(group_id, offsets, producer_id, producer_epoch) if offsets else _NONE

    def partition_of(self, group_id: str) -> Partition:
        """Return the partition that keeps *group_id*, which this broker leads.

        Raises:
            ApiError: it does not, or the group is not loaded.
        """
        self._shard_of(group_id)
        return self._partitions.leader(group_records.TOPIC, self.topic.partition_of(group_id))[0]

    def is_loaded(self, number: int) -> bool:
        """Whether the groups of a partition that this broker leads are loaded."""
        shard = self._shards.get(number)
        return shard is not None and shard.finish_loading()

    def end_transaction(self, number: int, producer_id: int, *, is_commit: bool, wait: Appended | None) -> None:
        """Take note that the end of a transaction was appended to a partition that `is_loaded`.

        Unless *wait* is None, `marker_replicated` follows.
        """
        self._shards[number].offsets.end_transaction(producer_id, wait, is_commit=is_commit)

    def marker_replicated(self, number: int, wait: Appended) -> None:
        """Every in-sync replica has the end of a transaction: its offsets count, or are dropped."""
        shard = self._shards.get(number)
        if shard is not None and shard.leading_since <= wait.leader_epoch:
            shard.offsets.replicated(wait)

    def is_unstable(self, group_id: str, key: Key) -> bool:
        """Whether an open transaction has committed an offset of a group, which may soon be another one."""
        return self._shard_of(group_id).offsets.is_unstable(group_id, key)

    def is_metadata_too_large(self, metadata: str | None) -> bool:
        """Whether a commit's metadata is longer than `offset.metadata.max.bytes`."""
        return metadata is not None and len(metadata.encode()) > self._max_metadata_bytes

    def offsets(self, group_id: str) -> Mapping[Key, CommittedOffset]:
        """Return everything *group_id* has committed, by topic and partition.

        Raises:
            ApiError: NOT_COORDINATOR, also where another broker may be it by now and know of later commits.
        """
        shard = self._shard_of(group_id)
        partition = self._partitions.get(group_records.TOPIC, self.topic.partition_of(group_id))
        if partition is None or not self._partitions.is_in_touch(partition):
            message = f"group {group_id} may have another coordinator, since the replicas in sync are silent"
            raise ApiError(ErrorCode.NOT_COORDINATOR, message)
        return shard.offsets.of(group_id)

    async def delete_offsets(self, group_id: str, keys: Iterable[Key]) -> ErrorCode:
        """Delete committed offsets."""
        return await self._shard_of(group_id).offsets.delete(group_id, keys)

    # -- whole groups ----------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """Return a group coordinated here, or None if no member ever joined or committed in it."""
        return self._shard_of(group_id).groups.get(group_id)

    def groups(self) -> list[Group]:
        """Return every group coordinated here.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS while some are not known yet.
        """
        if not all(shard.finish_loading() for shard in self._shards.values()):
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are being loaded")
        return [group for shard in self._shards.values() for group in shard.groups.values()]

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and its offsets."""
        return await self._shard_of(group_id).delete_group(group_id)


def check_group_id(group_id: str) -> None:
    """Refuse an empty group id.

    Raises:
        ApiError: INVALID_GROUP_ID.
    """
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "group id must not be empty")

"""One shard: the groups of one partition of `__consumer_offsets`, loaded from its log and written to it.

A group is answered only after its partition was read from start to end, and every in-sync replica has what was read.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.partitions import Appended, Partitions
from pylog.broker.groups.offsets import ShardOffsets
from pylog.broker.groups.rebalances import Rebalances
from pylog.broker.shards.loading import LoadedShard
from pylog.broker.shards.log import ShardLog
from pylog.broker.tasks import Tasks
from pylog.cluster.formats import TOPIC_ID_LEVEL
from pylog.cluster.image import TopicImage
from pylog.errors import ErrorCode
from pylog.group import records as group_records
from pylog.group.records import OffsetKey
from pylog.group.state import Action, Answer, Group, GroupConfig, Persist, State
from pylog.group.subscription import subscribed_topics
from pylog.log.config import LogConfig
from pylog.metrics import Counter
from pylog.wire import records
from pylog.wire.markers import decode_marker
from pylog.wire.records import BatchHeader, Record

_logger = logging.getLogger(__name__)

NO_PRODUCER_ID = -1
"""Of a record outside of transactions."""

ALLOWED_BYTES = LogConfig().max_message_bytes
"""What is written of a group: its clients' requests grow it, so it has a bound, which a lower one for records of others
does not touch."""


@dataclass(frozen=True, slots=True)
class GroupContext:
    """What all shards share.

    Attributes:
        partitions: where the shards' logs are, and the image in force.
        acknowledgements: wait for in-sync replicas.
        now_ms: the steady clock.
        wall_ms: the clock for records.
        config: bounds of groups.
        tasks: run what waits.
        commits: counts committed offsets.
        rebalances: counts rebalances.
    """

    partitions: Partitions
    acknowledgements: Acknowledgements
    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    config: GroupConfig
    tasks: Tasks
    commits: Counter
    rebalances: Rebalances


class Shard(LoadedShard):
    """See the module.

    Attributes:
        leading_since: since when this broker leads the partition, see `Partition.leading_since`.
        groups: by group id; complete once the shard is loaded.
        log: where they are written.
        offsets: what they have committed.
    """

    def __init__(self, number: int, leading_since: int, context: GroupContext) -> None:
        """Begin with the groups of partition *number* not loaded."""
        super().__init__(group_records.TOPIC, number, context.partitions)
        self.leading_since = leading_since
        self.groups: dict[str, Group] = {}
        self.log = ShardLog(
            group_records.TOPIC,
            number,
            context.partitions,
            context.acknowledgements,
            context.wall_ms,
            ALLOWED_BYTES,
        )
        self.offsets = ShardOffsets(
            number,
            self.log,
            context.tasks,
            now_ms=context.now_ms,
            wall_ms=context.wall_ms,
            image=lambda: context.partitions.image,
            on_commit=self._committed,
        )
        self._context = context
        # What was read, until every in-sync replica has it.
        self._rows: dict[str, Record] = {}
        self._read: dict[str, Group] = {}
        # Of the image that made this broker the leader; until the shard is loaded.
        self._topics: Mapping[str, TopicImage] = context.partitions.image.topics

    # -- loading ---------------------------------------------------------------------------------------------------

    def _forget_read(self) -> None:
        self.offsets.forget_read()
        self._rows = {}

    def _take_in(self, data: memoryview, position: int, header: BatchHeader) -> None:
        if header.is_control:
            marker = decode_marker(data, header, position)
            if marker is not None:
                self.offsets.read_end(header.producer_id, is_commit=marker.is_commit)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for row in records.decode_records(data, header, position):
            key = group_records.decode_key(row.key or b"")
            if isinstance(key, OffsetKey):
                committed = None
                if row.value is not None:
                    committed = group_records.decode_offset(row.value, row.headers)
                    committed.record_offset = row.offset
                self.offsets.read(key.group_id, (key.topic, key.partition), committed, producer_id)
            elif key is not None:
                if row.value is None:
                    self._rows.pop(key, None)
                    self.offsets.read_group_end(key)
                else:
                    self._rows[key] = row

    def _decode_read(self) -> None:
        config = self._context.config
        self._read = {
            group_id: group_records.decode_group(group_id, row.value or b"", config, row.headers)
            for group_id, row in self._rows.items()
        }
        self._rows = {}

    def _take_over(self) -> None:
        read, self._read = self._read, {}
        now_ms = self._context.now_ms()
        for group_id in self.offsets.by_group.keys() - read.keys():
            self.groups[group_id] = Group(group_id, self._context.config)
        for group_id, group in read.items():
            group.restore(now_ms)
            self.groups[group_id] = group
        if self.groups:
            _logger.info("groups loaded partition=%d groups=%d", self._number, len(self.groups))
        orphaned = self.offsets.loaded(self._topics)
        self._topics = {}
        self._expel_late(orphaned)

    # -- groups ----------------------------------------------------------------------------------------------------

    def carry_out(self, group: Group, actions: list[Action]) -> None:
        """Do what a group decided, and what follows from that."""
        context, todo = self._context, list(actions)
        context.rebalances.note(group)
        while todo:
            action = todo.pop(0)
            if isinstance(action, Answer):
                if not action.token.done():
                    action.token.set_result(action.response)
            else:
                assert isinstance(action, Persist)
                appended = self.log.append(
                    [group_records.encode_group(group, context.wall_ms(), self._topic_ids(group))]
                )
                if isinstance(appended, Appended):
                    context.tasks.spawn(self._persist(group, action, appended))
                else:
                    if appended is ErrorCode.MESSAGE_TOO_LARGE:  # members do not know it, and trying again is no use
                        appended = ErrorCode.UNKNOWN_SERVER_ERROR
                    todo += group.persisted(action, appended, context.now_ms())
                    context.rebalances.note(group)

    def _topic_ids(self, group: Group) -> dict[str, UUID] | None:
        """Return the ids of the topics that the members of *group* read, as the image in force has them (rule 15)."""
        image = self._context.partitions.image
        if image.level < TOPIC_ID_LEVEL:
            return None
        names: set[str] = set()
        for metadata in {member.metadata(group.protocol) for member in group.members.values()}:
            names |= subscribed_topics(metadata) or frozenset()
        return {name: image.topics[name].topic_id for name in names if name in image.topics}

    async def _persist(self, group: Group, action: Persist, appended: Appended) -> None:
        """Go on with *group* once every in-sync replica has it."""
        error = await self.log.wait_replicated(appended)
        self.carry_out(group, group.persisted(action, error, self._context.now_ms()))

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and its offsets."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        error = await self.offsets.delete_group(group_id)
        # Somebody may have committed meanwhile, or a member joined: the next generation writes the group again.
        is_unused = group.state is State.EMPTY and not self.offsets.of(group_id)
        if error is ErrorCode.NONE and is_unused and self.groups.get(group_id) is group:
            group.kill()
            del self.groups[group_id]
        return error

    def drop_unused(self, group: Group) -> None:
        """Drop a group that a request named and no member joined, so that made-up names cost no memory."""
        if group.is_forgettable and not self.offsets.of(group.group_id):
            self.groups.pop(group.group_id, None)

    def expire(self, now_ms: int) -> None:
        """End what has waited too long at *now_ms*, in every group."""
        if not self.finish_loading():
            return
        # Most groups have nothing due: 0.05 us each, however many members they have.
        for group in [group for group in self.groups.values() if group.wake_ms <= now_ms]:
            self.end_late(group, now_ms)
        self.offsets.retry(now_ms)

    def end_late(self, group: Group, now_ms: int) -> None:
        """End what has waited too long at *now_ms* in one group, if it still exists."""
        if self.groups.get(group.group_id) is group:
            self.carry_out(group, group.expire(now_ms))
            self.drop_unused(group)

    def kill(self) -> None:
        """Answer all that waits: this broker does not coordinate these groups any more."""
        self._is_killed = True
        for group in self.groups.values():
            for action in group.kill():
                if isinstance(action, Answer) and not action.token.done():
                    action.token.set_result(action.response)

    def topics_gone(self, names: set[str]) -> None:
        """Drop offsets of topics that were deleted, or deleted and created again, and expel the members that read them.

        Loading compares all of them.
        """
        if self.is_loaded:
            orphaned = self.offsets.drop_orphans(names)
            for group in list(self.groups.values()):
                if group.members:
                    self._expel_readers(group, names, orphaned.get(group.group_id, set()))

    def _expel_late(self, orphaned: Mapping[str, set[str]]) -> None:
        """Expel members that were read from the log and may be readers of a topic that has gone since."""
        topics = self._context.partitions.image.topics
        for group in list(self.groups.values()):
            names = set()
            for member in group.members.values():
                for name in subscribed_topics(member.metadata(group.protocol)) or ():
                    if _is_another(topics.get(name), name, group):
                        names.add(name)
            if group.members:
                self._expel_readers(group, names, orphaned.get(group.group_id, set()))

    def _expel_readers(self, group: Group, gone: set[str], orphaned: set[str]) -> None:
        """Expel members that may be about to commit what they have read of a topic that is *gone*, by its name.

        Committed for the next topic of that name, the group would begin there and skip what lies below.  Members whose
        subscription cannot be read are expelled if the group had committed offsets of such a topic (*orphaned*).
        """
        gone = gone | orphaned
        readers = []
        for member in group.members.values():
            wanted = [subscribed_topics(metadata) for _, metadata in member.protocols]
            is_reader = any(not gone.isdisjoint(topics) if topics is not None else bool(orphaned) for topics in wanted)
            if is_reader:
                readers.append(member)
        if readers:
            message = "members expelled group=%s members=%d reason=a topic that they read was deleted"
            _logger.info(message, group.group_id, len(readers))
            self.carry_out(group, group.expel(readers, self._context.now_ms()))

    def _committed(self, group_id: str, count: int) -> None:
        if group_id not in self.groups:
            self.groups[group_id] = Group(group_id, self._context.config)
        self._context.commits.value += count


def _is_another(topic: TopicImage | None, name: str, group: Group) -> bool:
    """Whether *topic* may not be the one that members of *group*, as it was read from the log, read by *name*.

    The coordinator that wrote the group down may have heard of no deletion, and of no creation either.
    """
    if topic is None:
        return True
    if group.topic_ids is not None:
        return group.topic_ids.get(name) != topic.topic_id
    return topic.created_ms > group.written_ms >= 0

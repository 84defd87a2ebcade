"""The offsets that the groups of one shard have committed."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import TypeAlias
from uuid import UUID

from pylog.broker.data.partitions import Appended
from pylog.broker.shards.log import ShardLog
from pylog.broker.tasks import Tasks
from pylog.cluster.formats import TOPIC_ID_LEVEL
from pylog.cluster.image import ClusterImage, TopicImage
from pylog.errors import ErrorCode
from pylog.group import records as group_records
from pylog.group.records import CommittedOffset, OffsetKey
from pylog.model import Key
from pylog.wire.records import Record

_logger = logging.getLogger(__name__)

FORGET_REST_MS = 5_000
"""How long a refused deletion of orphaned offsets rests before it is tried again."""

MAX_FORGOTTEN_AT_ONCE = 1_000
"""Offsets deleted by one batch of records."""

MAX_LOGGED_TOPICS = 10
"""Topics that one log line about orphaned offsets names."""

_Place: TypeAlias = tuple[str, Key]
"""Where an offset is kept: group, and topic and partition."""


class ShardOffsets:
    """The committed offsets of one shard.

    An offset is orphaned when the image has no topic with the id that it was committed for: that topic was deleted,
    and perhaps created again.  Orphaned offsets are no longer returned, and are deleted from the log, unless nothing
    shows that anybody asked for the deletion: when nodes that the store lost are back, so are their offsets.

    A write changes what readers get once every in-sync replica has it, and in the order of the log: whatever the log
    has before it is applied first, although the requests that wait for replicas may be answered in another order.

    Attributes:
        by_group: committed offsets by group id, topic and partition.
            Invariant: no write that the log has before an applied one is applied after it.
    """

    def __init__(
        self,
        number: int,
        log: ShardLog,
        tasks: Tasks,
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        image: Callable[[], ClusterImage],
        on_commit: Callable[[str, int], None],
    ) -> None:
        """Begin with none.

        Args:
            number: of the shard's partition.
            log: where offsets are written.
            tasks: run what waits for replicas.
            now_ms: the steady clock.
            wall_ms: the clock for records.
            image: returns the image in force.
            on_commit: called with a group id and the number of offsets that it committed.
        """
        self.by_group: dict[str, dict[Key, CommittedOffset]] = {}
        self._number = number
        self._log = log
        self._tasks = tasks
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._image = image
        self._on_commit = on_commit
        # Writes that in-sync replicas may lack, by number, which is the order of the log: a group and what it commits,
        # None for an offset that is deleted.
        self._unapplied: OrderedDict[int, tuple[str, Mapping[Key, CommittedOffset | None]]] = OrderedDict()
        self._write_count = 0
        # Number of the newest of them.
        self._newest: dict[_Place, int] = {}
        # Orphaned offsets that the log still has; the number tells one from a later one of the same place.
        self._orphans: dict[_Place, int] = {}
        self._orphan_count = 0
        # Those that stay in the log, by group, since nothing shows that their topics were deleted.
        self._kept: dict[str, set[Key]] = {}
        self._retry_ms = 0
        self._is_forgetting = False

    def of(self, group_id: str) -> Mapping[Key, CommittedOffset]:
        """Return everything *group_id* has committed, by topic and partition."""
        return self.by_group.get(group_id, {})

    # -- commits ---------------------------------------------------------------------------------------------------

    def commit(
        self, group_id: str, offsets: Mapping[Key, CommittedOffset]
    ) -> ErrorCode | Coroutine[None, None, ErrorCode]:
        """Write offsets to the log, and return them to readers once every in-sync replica has them.

        Returns:
            NONE or why not; or, while replicas still lack them, what to await for that.
        """
        image, now_ms = self._image(), self._wall_ms()
        has_ids = image.level >= TOPIC_ID_LEVEL
        rows = []
        for key, committed in offsets.items():
            topic = image.topics.get(key[0])
            committed.topic_id = None if topic is None else topic.topic_id
            # Without an id an offset counts for a topic that is not younger. The topic that we know is not, also where
            # its creation was timed by another clock, or by ours before it was set back.
            created_ms = 0 if has_ids or topic is None else topic.created_ms
            committed.commit_timestamp = max(now_ms, created_ms)
            rows.append(
                group_records.encode_offset(OffsetKey(group_id, *key), committed, now_ms, with_topic_id=has_ids)
            )
        return self._write(group_id, offsets, rows)

    async def delete(self, group_id: str, keys: Iterable[Key]) -> ErrorCode:
        """Delete committed offsets."""
        known = self.of(group_id)
        deleted = [key for key in keys if key in known or (group_id, key) in self._newest]
        return await self._delete(group_id, deleted, [])

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Delete everything that *group_id* has committed, and the group itself, in one batch of the log."""
        unapplied = (key for name, key in self._newest if name == group_id)
        deleted = dict.fromkeys((*self.of(group_id), *unapplied, *self._kept.get(group_id, ())))
        error = await self._delete(group_id, deleted, [group_records.encode_group_end(group_id, self._wall_ms())])
        if error is ErrorCode.NONE:
            self._kept.pop(group_id, None)
        if not self.of(group_id):
            self.by_group.pop(group_id, None)
        return error

    async def _delete(self, group_id: str, keys: Iterable[Key], more: list[Record]) -> ErrorCode:
        now_ms = self._wall_ms()
        rows = [group_records.encode_offset(OffsetKey(group_id, *key), None, now_ms) for key in keys]
        written = self._write(group_id, dict.fromkeys(keys), [*rows, *more])
        return written if isinstance(written, ErrorCode) else await written

    def _write(
        self, group_id: str, offsets: Mapping[Key, CommittedOffset | None], rows: list[Record]
    ) -> ErrorCode | Coroutine[None, None, ErrorCode]:
        """Write *rows* to the log, and apply *offsets*, which they say, once every in-sync replica has them."""
        if not rows:
            return ErrorCode.NONE
        appended = self._log.append(rows)
        if isinstance(appended, ErrorCode) and appended is not ErrorCode.NONE:
            return appended
        self._write_count += 1
        number = self._write_count
        for key in offsets:
            self._orphans.pop((group_id, key), None)  # the log has a newer one behind it
            self._newest[group_id, key] = number
        self._unapplied[number] = group_id, offsets
        if isinstance(appended, Appended):
            return self._apply_later(number, appended)
        self._apply(number)
        return ErrorCode.NONE

    async def _apply_later(self, number: int, appended: Appended) -> ErrorCode:
        """Wait until every in-sync replica has a write, and apply it.

        One that they still lack when the wait ends stays: the log has it before those that follow, and whoever loads
        the log finds it there.  The next write that is applied brings it with it.
        """
        error = await self._log.wait_replicated(appended)
        if error is ErrorCode.NONE:
            self._apply(number)
        return error

    def _apply(self, number: int) -> None:
        """Apply the writes up to *number*, which every in-sync replica has: they have what the log has before it."""
        while self._unapplied and next(iter(self._unapplied)) <= number:
            first, (group_id, offsets) = self._unapplied.popitem(last=False)
            self._settle(first, group_id, offsets)

    def _settle(self, number: int, group_id: str, offsets: Mapping[Key, CommittedOffset | None]) -> None:
        """Take note that every in-sync replica has a write."""
        held = self.by_group.get(group_id, {})
        committed_count = 0
        for key, committed in offsets.items():
            is_newest = self._newest.get((group_id, key)) == number
            if is_newest:
                del self._newest[group_id, key]
            if committed is not None and self._is_orphan(key, committed):
                # Its topic was deleted meanwhile, and perhaps created again.
                if is_newest:
                    self._orphan(group_id, key, committed)
            elif committed is None:
                held.pop(key, None)
            else:
                held[key] = committed
                committed_count += 1
        if committed_count:
            self.by_group[group_id] = held
            self._on_commit(group_id, committed_count)

    # -- offsets of topics that are gone ---------------------------------------------------------------------------

    def loaded(self, topics: Mapping[str, TopicImage]) -> dict[str, set[str]]:
        """Drop orphaned offsets from what was read from the log.

        An id that the image lacks is of a deleted topic, never of one that this broker has not heard of: whoever wrote
        it led this shard under an earlier image than the one that made this broker its leader.

        Args:
            topics: of the image that made this broker the leader, by name.  An offset without topic id is taken for one
                of these, unless that topic was created after the commit.

        Returns:
            As `drop_orphans`.
        """
        for offsets in self.by_group.values():
            for (name, _), committed in offsets.items():
                if committed.topic_id is None:
                    committed.topic_id = _probable_id(topics.get(name), committed)
        return self.drop_orphans()

    def drop_orphans(self, names: Collection[str] | None = None) -> dict[str, set[str]]:
        """Return no orphaned offsets any more, and delete them from the log.

        Args:
            names: topics to look at; None for all.

        Returns:
            The topics of the offsets that were dropped, by group id.
        """
        dropped: dict[str, int] = {}
        by_group: dict[str, set[str]] = {}
        for group_id, offsets in self.by_group.items():
            orphans = [
                key
                for key, committed in offsets.items()
                if (names is None or key[0] in names) and self._is_orphan(key, committed)
            ]
            for key in orphans:
                committed = offsets.pop(key)
                dropped[key[0]] = dropped.get(key[0], 0) + 1
                by_group.setdefault(group_id, set()).add(key[0])
                if (group_id, key) not in self._newest:  # then the log has a newer one, perhaps of the new topic
                    self._orphan(group_id, key, committed)
        if dropped:
            topics = ",".join(sorted(dropped)[:MAX_LOGGED_TOPICS])
            message = "offsets of deleted topics dropped partition=%d offsets=%d topics=%s"
            _logger.warning(message, self._number, sum(dropped.values()), topics)
        if self._orphans:
            self._forget_orphans()
        return by_group

    def _is_orphan(self, key: Key, committed: CommittedOffset) -> bool:
        return committed.topic_id is None or committed.topic_id != self._topic_id(key[0])

    def _is_deleted(self, name: str, topic_id: UUID | None) -> bool:
        """Whether somebody had a topic deleted: brokers still have to, or another one has its name."""
        image = self._image()
        return name in image.topics or topic_id in image.deleted_topics

    def _topic_id(self, name: str) -> UUID | None:
        topic = self._image().topics.get(name)
        return None if topic is None else topic.topic_id

    def retry(self, now_ms: int) -> None:
        """Delete orphaned offsets whose deletion was refused, if they have rested long enough."""
        if self._orphans and self._retry_ms <= now_ms:
            self._forget_orphans()

    def _orphan(self, group_id: str, key: Key, committed: CommittedOffset) -> None:
        if not self._is_deleted(key[0], committed.topic_id):
            self._kept.setdefault(group_id, set()).add(key)
            return
        self._orphan_count += 1
        self._orphans[group_id, key] = self._orphan_count

    def _forget_orphans(self) -> None:
        """Delete orphaned offsets from the log; `retry` tries again what is refused.

        The records are appended here and now: a commit for the topic's next incarnation comes behind them.
        """
        if self._is_forgetting:
            return
        self._retry_ms = self._now_ms() + FORGET_REST_MS
        chosen = dict(list(self._orphans.items())[:MAX_FORGOTTEN_AT_ONCE])
        now_ms = self._wall_ms()
        rows = [group_records.encode_offset(OffsetKey(group_id, *key), None, now_ms) for group_id, key in chosen]
        appended = self._log.append(rows)
        if isinstance(appended, Appended):
            self._is_forgetting = True
            self._tasks.spawn(self._forgotten_later(chosen, appended))
        else:
            self._forgotten(chosen, appended)

    async def _forgotten_later(self, chosen: Mapping[_Place, int], appended: Appended) -> None:
        error = await self._log.wait_replicated(appended)
        self._is_forgetting = False
        self._forgotten(chosen, error)

    def _forgotten(self, chosen: Mapping[_Place, int], error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            message = "offsets of deleted topics not deleted yet partition=%d offsets=%d error=%s"
            _logger.warning(message, self._number, len(chosen), error.name)
            return
        for place, number in chosen.items():
            if self._orphans.get(place) == number:
                del self._orphans[place]
        self._retry_ms = 0
        _logger.info("offsets of deleted topics deleted partition=%d offsets=%d", self._number, len(chosen))


def _probable_id(topic: TopicImage | None, committed: CommittedOffset) -> UUID | None:
    """Return the id of the topic that an offset without id was committed for; None if that topic is gone.

    A topic whose creation time is not known counts as older than the commit.
    """
    if topic is None or (topic.created_ms and topic.created_ms > committed.commit_timestamp):
        return None
    return topic.topic_id

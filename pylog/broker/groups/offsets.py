"""The offsets that the groups of one shard have committed."""

import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import TypeAlias
from uuid import UUID

from pylog.broker.data.partitions import Appended
from pylog.broker.groups.shard_log import ShardLog
from pylog.broker.tasks import Tasks
from pylog.cluster.formats import TOPIC_ID_LEVEL
from pylog.cluster.image import ClusterImage, TopicImage
from pylog.errors import ErrorCode
from pylog.group import records as group_records
from pylog.group.records import CommittedOffset, OffsetKey
from pylog.model import Key, Offset

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
    and perhaps created again.  Orphaned offsets are no longer returned, and are deleted from the log.

    Attributes:
        by_group: committed offsets by group id, topic and partition.
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
        # Log offset of the newest commit that in-sync replicas still lack.
        self._newest: dict[_Place, Offset] = {}
        # Orphaned offsets that the log still has; the number tells one from a later one of the same place.
        self._orphans: dict[_Place, int] = {}
        self._orphan_count = 0
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
        now_ms, has_ids = self._wall_ms(), self._image().level >= TOPIC_ID_LEVEL
        rows = []
        for key, committed in offsets.items():
            committed.commit_timestamp, committed.topic_id = now_ms, self._topic_id(key[0])
            rows.append(
                group_records.encode_offset(OffsetKey(group_id, *key), committed, now_ms, with_topic_id=has_ids)
            )
        appended = self._log.append(rows)
        if isinstance(appended, Appended) or appended is ErrorCode.NONE:
            for key in offsets:
                self._orphans.pop((group_id, key), None)  # the log has a newer one behind it
        if isinstance(appended, Appended):
            for key in offsets:
                self._newest[group_id, key] = appended.last_offset
            return self._commit_later(group_id, offsets, appended)
        return self._committed(group_id, offsets, appended)

    async def _commit_later(
        self, group_id: str, offsets: Mapping[Key, CommittedOffset], appended: Appended
    ) -> ErrorCode:
        error = await self._log.wait_replicated(appended)
        lasting = dict(offsets)
        for key, committed in offsets.items():
            is_newest = self._newest.get((group_id, key)) == appended.last_offset
            if is_newest:
                del self._newest[group_id, key]
            if self._is_orphan(key, committed):
                # Its topic was deleted meanwhile, and perhaps created again.
                del lasting[key]
                if is_newest:
                    self._orphan(group_id, key)
        return self._committed(group_id, lasting, error)

    def _committed(self, group_id: str, offsets: Mapping[Key, CommittedOffset], error: ErrorCode) -> ErrorCode:
        if error is ErrorCode.NONE and offsets:
            self.by_group.setdefault(group_id, {}).update(offsets)
            self._on_commit(group_id, len(offsets))
        return error

    async def delete(self, group_id: str, keys: Iterable[Key]) -> ErrorCode:
        """Delete committed offsets."""
        committed = self.by_group.get(group_id, {})
        deleted = [key for key in keys if key in committed]
        now_ms = self._wall_ms()
        rows = [group_records.encode_offset(OffsetKey(group_id, *key), None, now_ms) for key in deleted]
        error = await self._log.write(rows)
        if error is ErrorCode.NONE:
            for key in deleted:
                committed.pop(key, None)
        return error

    # -- offsets of topics that are gone ---------------------------------------------------------------------------

    def loaded(self, topics: Mapping[str, TopicImage]) -> None:
        """Drop orphaned offsets from what was read from the log.

        An id that the image lacks is of a deleted topic, never of one that this broker has not heard of: whoever wrote
        it led this shard under an earlier image than the one that made this broker its leader.

        Args:
            topics: of the image that made this broker the leader, by name.  An offset without topic id is taken for one
                of these, unless that topic was created after the commit.
        """
        for offsets in self.by_group.values():
            for (name, _), committed in offsets.items():
                if committed.topic_id is None:
                    committed.topic_id = _probable_id(topics.get(name), committed)
        self.drop_orphans()

    def drop_orphans(self, names: Collection[str] | None = None) -> None:
        """Return no orphaned offsets any more, and delete them from the log.

        Args:
            names: topics to look at; None for all.
        """
        dropped: dict[str, int] = {}
        for group_id, offsets in self.by_group.items():
            orphans = [
                key
                for key, committed in offsets.items()
                if (names is None or key[0] in names) and self._is_orphan(key, committed)
            ]
            for key in orphans:
                del offsets[key]
                dropped[key[0]] = dropped.get(key[0], 0) + 1
                self._orphan(group_id, key)
        if dropped:
            topics = ",".join(sorted(dropped)[:MAX_LOGGED_TOPICS])
            message = "offsets of deleted topics dropped partition=%d offsets=%d topics=%s"
            _logger.warning(message, self._number, sum(dropped.values()), topics)
        if self._orphans:
            self._forget_orphans()

    def _is_orphan(self, key: Key, committed: CommittedOffset) -> bool:
        return committed.topic_id is None or committed.topic_id != self._topic_id(key[0])

    def _topic_id(self, name: str) -> UUID | None:
        topic = self._image().topics.get(name)
        return None if topic is None else topic.topic_id

    def retry(self, now_ms: int) -> None:
        """Delete orphaned offsets whose deletion was refused, if they have rested long enough."""
        if self._orphans and self._retry_ms <= now_ms:
            self._forget_orphans()

    def _orphan(self, group_id: str, key: Key) -> None:
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

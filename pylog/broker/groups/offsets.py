"""The offsets that the groups of one shard have committed."""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

from pylog.broker.data.partitions import Appended
from pylog.broker.shards.log import ShardLog
from pylog.broker.tasks import Tasks
from pylog.cluster.formats import TOPIC_ID_LEVEL
from pylog.cluster.image import ClusterImage, TopicImage
from pylog.errors import ErrorCode
from pylog.group import records as group_records
from pylog.group.records import CommittedOffset, OffsetKey
from pylog.model import Key, Offset
from pylog.wire.records import Record

_logger = logging.getLogger(__name__)

FORGET_REST_MS = 5_000
"""How long a refused deletion of orphaned offsets rests before it is tried again."""

MAX_FORGOTTEN_AT_ONCE = 1_000
"""Offsets deleted by one batch of records."""

DELETION_BYTES = 128 * 1024
"""Keys of deleted offsets in one batch: so many fit into any batch that the topic takes."""

MAX_LOGGED_TOPICS = 10
"""Topics that one log line about orphaned offsets names."""

_Place: TypeAlias = tuple[str, Key]
"""Where an offset is kept: group, and topic and partition."""

_NO_PRODUCER = -1


class _Write(NamedTuple):
    """What a batch of the log says.

    Attributes:
        group_id: whose offsets; "" for the end of a transaction.
        offsets: what it commits, None for an offset that is deleted.
        producer_id: to whose transaction it belongs; it counts once that is committed.
        is_commit: how the transaction of *producer_id* ends; None for what is no end.
    """

    group_id: str
    offsets: Mapping[Key, CommittedOffset | None]
    producer_id: int = _NO_PRODUCER
    is_commit: bool | None = None


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
        # Writes that in-sync replicas may lack, by number, which is the order of the log.
        self._unapplied: OrderedDict[int, _Write] = OrderedDict()
        self._write_count = 0
        self._ends: dict[Offset, int] = {}  # of transactions among them, by where they are in the log
        # Number of the newest of them.
        self._newest: dict[_Place, int] = {}
        # What open transactions have committed, by producer; and whose, from the moment when it is appended.
        self._pending: dict[int, dict[_Place, CommittedOffset]] = {}
        self._unstable: dict[_Place, set[int]] = {}
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

    def is_unstable(self, group_id: str, key: Key) -> bool:
        """Whether a transaction has committed an offset here and has not ended: it may soon be another one."""
        return (group_id, key) in self._unstable

    def has_pending(self, group_id: str) -> bool:
        """Whether a transaction that has not ended has committed offsets of a group."""
        return any(place[0] == group_id for place in self._unstable)

    # -- what was read from the log --------------------------------------------------------------------------------

    def forget_read(self) -> None:
        """Forget everything: the log will be read again."""
        self.by_group.clear()
        self._pending.clear()
        self._unstable.clear()

    def read(self, group_id: str, key: Key, committed: CommittedOffset | None, producer_id: int) -> None:
        """Take in a record of the log; *producer_id* is -1 outside of transactions."""
        if committed is None:
            self._remove(group_id, key)
        elif producer_id != _NO_PRODUCER:
            self._add_pending(producer_id, (group_id, key), committed)
        else:
            self.by_group.setdefault(group_id, {})[key] = committed

    def read_end(self, producer_id: int, *, is_commit: bool) -> None:
        """Take in the end of a transaction."""
        for (group_id, key), committed in self._end_pending(producer_id).items():
            if is_commit and _is_later(committed, self.of(group_id).get(key)):
                self.by_group.setdefault(group_id, {})[key] = committed

    def read_group_end(self, group_id: str) -> None:
        """Take in the deletion of a group."""
        self.by_group.pop(group_id, None)

    # -- commits ---------------------------------------------------------------------------------------------------

    def commit(
        self, group_id: str, offsets: Mapping[Key, CommittedOffset]
    ) -> ErrorCode | Coroutine[None, None, ErrorCode]:
        """Write offsets to the log, and return them to readers once every in-sync replica has them.

        Returns:
            NONE or why not; or, while replicas still lack them, what to await for that.
        """
        return _told(self._write(group_id, offsets, self._encode(group_id, offsets)))

    def commit_pending(
        self, group_id: str, offsets: Mapping[Key, CommittedOffset], producer_id: int, producer_epoch: int
    ) -> ErrorCode | Coroutine[None, None, ErrorCode]:
        """Write offsets that count once the transaction of a producer is committed; see `commit`."""
        producer = (producer_id, producer_epoch)
        return _told(self._write(group_id, offsets, self._encode(group_id, offsets), producer))

    def _encode(self, group_id: str, offsets: Mapping[Key, CommittedOffset]) -> list[Record]:
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
        return rows

    def end_transaction(self, producer_id: int, wait: Appended | None, *, is_commit: bool) -> None:
        """Take note that the end of a transaction was appended; *wait* is None if every in-sync replica has it.

        Else `replicated` is to be called once they have it.
        """
        self._write_count += 1
        self._unapplied[self._write_count] = _Write("", {}, producer_id, is_commit)
        if wait is None:
            self._apply(self._write_count)
        else:
            self._ends[wait.last_offset] = self._write_count

    def replicated(self, wait: Appended) -> None:
        """Every in-sync replica has the end of a transaction: what it commits counts."""
        number = self._ends.pop(wait.last_offset, None)
        if number is not None:
            self._ends = {offset: later for offset, later in self._ends.items() if later > number}
            self._apply(number)

    async def delete(self, group_id: str, keys: Iterable[Key]) -> ErrorCode:
        """Delete committed offsets."""
        known = self.of(group_id)
        deleted = [
            key for key in keys if key in known or (group_id, key) in self._newest or (group_id, key) in self._unstable
        ]
        return await self._delete(group_id, deleted, [])

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Delete everything that *group_id* has committed, and the group itself.

        In one batch of the log if it takes no more; else in several, with nothing of others between them.
        """
        unapplied = (key for name, key in (*self._newest, *self._unstable) if name == group_id)
        deleted = dict.fromkeys((*self.of(group_id), *unapplied, *self._kept.get(group_id, ())))
        error = await self._delete(group_id, deleted, [group_records.encode_group_end(group_id, self._wall_ms())])
        if error is ErrorCode.NONE:
            self._kept.pop(group_id, None)
        if not self.of(group_id):
            self.by_group.pop(group_id, None)
        return error

    async def _delete(self, group_id: str, keys: Iterable[Key], more: list[Record]) -> ErrorCode:
        """Delete offsets in as many batches as they take, and write *more* in the last of them.

        All are appended here and now: a commit that comes between two of them would be deleted with them.
        """
        now_ms = self._wall_ms()
        left = deque(keys)
        waiting: list[Coroutine[None, None, ErrorCode]] = []
        error = ErrorCode.NONE
        is_last = False
        while not is_last and error is ErrorCode.NONE:
            rows: list[Record] = []
            chosen: list[Key] = []
            size_bytes = 0
            while left and size_bytes < DELETION_BYTES:
                chosen.append(left.popleft())
                rows.append(group_records.encode_offset(OffsetKey(group_id, *chosen[-1]), None, now_ms))
                size_bytes += len(rows[-1].key or b"")
            is_last = not left
            written = self._write(group_id, dict.fromkeys(chosen), [*rows, *more] if is_last else rows)
            if isinstance(written, ErrorCode):
                error = written
            else:
                waiting.append(written)
        for one in waiting:
            ended = await one
            error = ended if error is ErrorCode.NONE else error
        return error

    def _write(
        self,
        group_id: str,
        offsets: Mapping[Key, CommittedOffset | None],
        rows: list[Record],
        producer: tuple[int, int] | None = None,
    ) -> ErrorCode | Coroutine[None, None, ErrorCode]:
        """Write *rows* to the log, and apply *offsets*, which they say, once every in-sync replica has them.

        The first rows say *offsets*, in their order.  With *producer*, id and epoch, they belong to its transaction.
        """
        if not rows:
            return ErrorCode.NONE
        appended = self._log.append(rows, producer)
        if isinstance(appended, ErrorCode) and appended is not ErrorCode.NONE:
            return appended
        self._write_count += 1
        number = self._write_count
        for record_offset, (key, committed) in enumerate(offsets.items(), self._log.end_offset - len(rows)):
            place = group_id, key
            self._orphans.pop(place, None)  # the log has a newer one behind it
            if committed is not None:
                committed.record_offset = record_offset
            if producer is None:
                self._newest[place] = number
            else:
                self._unstable.setdefault(place, set()).add(producer[0])
        self._unapplied[number] = _Write(group_id, offsets, _NO_PRODUCER if producer is None else producer[0])
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
            first, write = self._unapplied.popitem(last=False)
            if write.is_commit is not None:
                self._settle_end(write.producer_id, is_commit=write.is_commit)
            elif write.producer_id == _NO_PRODUCER:
                self._settle(first, write.group_id, write.offsets)
            else:
                for key, committed in write.offsets.items():
                    assert committed is not None, "a transaction deletes no offsets"
                    self._add_pending(write.producer_id, (write.group_id, key), committed)

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
                self._remove(group_id, key)
            else:
                held[key] = committed
                committed_count += 1
        if committed_count:
            self.by_group[group_id] = held
            self._on_commit(group_id, committed_count)

    def _settle_end(self, producer_id: int, *, is_commit: bool) -> None:
        """Take note that every in-sync replica has the end of a transaction."""
        counts: dict[str, int] = {}
        for (group_id, key), committed in self._end_pending(producer_id).items():
            held = self.by_group.get(group_id, {})
            if not is_commit or not _is_later(committed, held.get(key)):
                continue
            if self._is_orphan(key, committed):
                if (group_id, key) not in self._newest:
                    self._orphan(group_id, key, committed)
                continue
            held[key] = committed
            self.by_group[group_id] = held
            counts[group_id] = counts.get(group_id, 0) + 1
            self._orphans.pop((group_id, key), None)  # this is the newest one that the log has
        for group_id, count in counts.items():
            self._on_commit(group_id, count)

    def _add_pending(self, producer_id: int, place: _Place, committed: CommittedOffset) -> None:
        self._pending.setdefault(producer_id, {})[place] = committed
        self._unstable.setdefault(place, set()).add(producer_id)

    def _end_pending(self, producer_id: int) -> dict[_Place, CommittedOffset]:
        """Return what the transaction of a producer has committed, which is not pending any more."""
        pending = self._pending.pop(producer_id, {})
        for place in pending:
            self._stabilize(place, producer_id)
        return pending

    def _stabilize(self, place: _Place, producer_id: int) -> None:
        producers = self._unstable.get(place, set())
        producers.discard(producer_id)
        if not producers:
            self._unstable.pop(place, None)

    def _remove(self, group_id: str, key: Key) -> None:
        """Delete an offset, and with it what open transactions have committed there before."""
        self.by_group.get(group_id, {}).pop(key, None)
        place = group_id, key
        for producer_id in list(self._unstable.get(place, ())):
            pending = self._pending.get(producer_id, {})
            if pending.pop(place, None) is not None:
                self._stabilize(place, producer_id)

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
        for pending in self._pending.values():
            for (_, (name, _)), committed in pending.items():
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

        The records are appended here and now: a commit for the topic's next incarnation comes behind them.  Where the
        log has such a commit of a transaction that has not ended, the deletion waits for the end: whoever loads the log
        takes it for a deletion of both.
        """
        if self._is_forgetting:
            return
        self._retry_ms = self._now_ms() + FORGET_REST_MS
        now_ms = self._wall_ms()
        chosen: dict[_Place, int] = {}
        rows: list[Record] = []
        size_bytes = 0
        for place, number in self._orphans.items():
            if len(rows) >= MAX_FORGOTTEN_AT_ONCE or size_bytes >= DELETION_BYTES:
                break
            if place not in self._unstable:
                chosen[place] = number
                rows.append(group_records.encode_offset(OffsetKey(place[0], *place[1]), None, now_ms))
                size_bytes += len(rows[-1].key or b"")
        if not rows:
            return
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


def _is_later(committed: CommittedOffset, held: CommittedOffset | None) -> bool:
    """Whether an offset stands behind the one that is held, in the log of the coordinator."""
    return held is None or committed.record_offset > held.record_offset


def _probable_id(topic: TopicImage | None, committed: CommittedOffset) -> UUID | None:
    """Return the id of the topic that an offset without id was committed for; None if that topic is gone.

    A topic whose creation time is not known counts as older than the commit.
    """
    if topic is None or (topic.created_ms and topic.created_ms > committed.commit_timestamp):
        return None
    return topic.topic_id


def _told(
    written: ErrorCode | Coroutine[None, None, ErrorCode],
) -> ErrorCode | Coroutine[None, None, ErrorCode]:
    """Return how a commit ended, or will, in the words that clients know."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if written is ErrorCode.MESSAGE_TOO_LARGE else written

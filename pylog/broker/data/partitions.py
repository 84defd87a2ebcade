"""The partitions this broker hosts, and how a new cluster image changes them.

An image is applied in three steps, so that nothing on the event loop waits for the disk: `retire` stops serving what
the image no longer has, `prepare` moves directories and opens logs in a thread, `switch` lets the image hold.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple, TypeAlias
from uuid import UUID

from pylog.broker.clock import steady_ms, wall_ms
from pylog.broker.places import SEARCHES_AT_ONCE, Places
from pylog.broker.settings import Effective, Value, broker_settings, log_config, topic_setting, typed
from pylog.cluster.formats import OLDEST_LEVEL, TOPIC_ID_LEVEL
from pylog.cluster.image import ClusterImage, PartitionImage, TopicImage
from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.log.config import LogConfig
from pylog.log.directory import LogDirectory
from pylog.log.log import AppendResult, Log
from pylog.model import NO_LEADER, Key, Offset, TopicPartition
from pylog.replica.leader import UNKNOWN, IsrChange, Leader
from pylog.wire.internal import FORMATS
from pylog.wire.markers import Marker
from pylog.wire.records import BatchHeader

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Partition:
    """One hosted replica.

    Attributes:
        log: None while the replica is offline.
        topic_id: tells this topic from one of the same name before or after it.
        leader: broker that leads; `is_leader` when that is us.
        leader_epoch: under which it leads; written into every batch.
        leading: what we know of the followers while we lead.
        suspended: what we knew of the followers when a broker showed us a later leader epoch than ours; until an image
            says who leads in that, we do not.
        leading_since: leader epoch since which we have led without a break; what was appended from it on is there.
        state: as the newest image has it.
        fault: why the replica is offline, or "".
    """

    key: TopicPartition
    log: Log | None
    topic_id: UUID
    leader: int = NO_LEADER
    leader_epoch: int = -1
    leading: Leader | None = None
    suspended: Leader | None = None
    leading_since: int = -1
    state: PartitionImage | None = None
    fault: str = ""

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads."""
        return self.leading is not None

    @property
    def is_offline(self) -> bool:
        """Whether the log cannot be used."""
        return self.log is None or self.log.offline is not None


class Moved(Enum):
    """What happened to a partition that a request may wait for."""

    END = 1
    """Records were appended."""
    HIGH_WATERMARK = 2
    """It moved, or the synced end did that counts for it; records may have been appended too."""
    LEADER = 3
    """Its leader, its in-sync replicas, or whether it is here at all."""
    START = 4
    """Its log begins later than before."""


# Looked up for every batch: a member of an enum costs twice the name of a module.
_END, _HIGH_WATERMARK = Moved.END, Moved.HIGH_WATERMARK
_NONE = ErrorCode.NONE

Listener: TypeAlias = Callable[[Key, Moved], None]


class Appended(NamedTuple):
    """What a writer waits for: everything up to *last_offset*, written under *leader_epoch*.

    Attributes:
        partition: where it was written; another incarnation of the topic has another one.
        is_local: it waits for this broker's own sync only (acks=1 under `flush.messages` or `flush.ms`).
    """

    partition: Partition
    last_offset: Offset
    leader_epoch: int
    is_local: bool = False

    def result(self) -> ErrorCode | None:
        """Return how the wait ends, None while it goes on."""
        partition = self.partition
        if partition.suspended is not None:
            return None
        if partition.leading is None or partition.leading_since > self.leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # also where the topic was deleted, or this replica moved away
        if partition.log is None or partition.log.offline is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        reached = partition.log.countable_end_offset if self.is_local else partition.log.high_watermark
        if reached > self.last_offset:
            return _NONE
        if not self.is_local and partition.leading.is_under_min_isr():
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return None


class Trimmed(NamedTuple):
    """What a deletion of records waits for: every live replica begins at *offset* or later.

    Attributes:
        partition: led here when the records were deleted.
        offset: where the log is to begin.
        live: returns the brokers that are registered.
    """

    partition: Partition
    offset: Offset
    live: Callable[[], Container[int]]

    def low_watermark(self) -> Offset:
        """Return where the replica begins, also after a power cut, that begins first; -1 if that is not known."""
        leading, log = self.partition.leading, self.partition.log
        if leading is None or log is None:
            return UNKNOWN
        return leading.low_watermark(log.lasting_start_offset, self.live())

    def result(self) -> ErrorCode | None:
        """Return how the wait ends, None while it goes on."""
        if self.partition.suspended is not None:
            return None
        if self.partition.leading is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.partition.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return _NONE if self.low_watermark() >= self.offset else None


Awaited: TypeAlias = Appended | Trimmed
"""What a request waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsConfig:
    """The settings of leaders; see `pylog.broker.settings`."""

    replica_lag_time_max_ms: int


class Partitions:
    """All partitions of one broker, by topic and number.

    Whoever waits for what happens to them subscribes; nobody else has to tell.

    Attributes:
        image: in force.
        on_unsynced: told the logs whose high watermark waits for a sync.
        on_follower_start: told the partitions led here of which a follower's log begins elsewhere than before.
    """

    def __init__(self, directory: LogDirectory, broker_id: int, settings: Mapping[str, Value]) -> None:
        self._directory = directory
        self._broker_id = broker_id
        self._settings = settings
        self._config = typed(PartitionsConfig, settings)
        self._by_key: dict[Key, Partition] = {}
        self._cleaned: set[UUID] = set()
        self._removed: set[tuple[UUID, int]] = set()
        self.searching = Places(SEARCHES_AT_ONCE)
        """Held by whoever searches records in a thread."""
        self._is_stopping = False
        self._is_clean = False  # what lies on disk has not been compared with an image yet
        self.registered_epoch: Callable[[], int] = lambda: -1
        """Epoch of this broker's registration, -1 without one; an image made before it says nothing of who leads."""
        self.has_session: Callable[[], bool] = lambda: True
        """Whether this broker's session with the store has surely not ended."""
        self.now_ms: Callable[[], int] = steady_ms
        # Every release in the cluster reads the oldest formats that this one does.
        self.image = ClusterImage(-1, 0, "", NO_LEADER, level=OLDEST_LEVEL)
        self._inherited = self._inherit(self.image)
        self.on_unsynced: Callable[[Log], None] = lambda log: None
        self.on_follower_start: Callable[[Key], None] = lambda key: None
        self._listeners: Mapping[Moved, list[Listener]] = {what: [] for what in Moved}
        # Every append looks here, and the hash of a member of an enum costs as much as a call.
        self._end_listeners = self._listeners[Moved.END]
        self._high_watermark_listeners = self._listeners[Moved.HIGH_WATERMARK]

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def subscribe(self, listener: Listener, *kinds: Moved) -> None:
        """Call *listener* with every partition to which something of *kinds* happened, and what; without, of any."""
        for what in kinds or Moved:
            self._listeners[what].append(listener)

    def _tell(self, key: Key, what: Moved) -> None:
        for listener in self._listeners[what]:
            listener(key, what)

    def get(self, topic: str, partition: int) -> Partition | None:
        """Return the hosted partition or None."""
        return self._by_key.get((topic, partition))

    def leader(self, topic: str, partition: int) -> tuple[Partition, Log]:
        """Return the partition and its log, if this broker leads it.

        Raises:
            ApiError: unknown, led by another broker, or offline.
        """
        found = self._by_key.get((topic, partition))
        if found is None or found.leading is None:
            raise self._refusal(topic, partition, found)
        if found.log is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} is offline: {found.fault}")
        return found, found.log

    def _refusal(self, topic: str, partition: int, found: Partition | None) -> ApiError:
        if found is not None:
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{partition} is led by broker {found.leader}")
        if self.image.partition(topic, partition) is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition} does not exist")
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{partition} is not on this broker")

    def is_in_touch(self, partition: Partition) -> bool:
        """Whether this broker leads *partition* and nobody else can lead it without its noticing."""
        leading = partition.leading
        return leading is not None and leading.is_in_touch(self.now_ms(), has_session=self.has_session())

    def check_in_touch(self, partition: Partition, reason: str) -> None:
        """Refuse to say what could send a client backwards, while another broker may lead and know better.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER; the client looks for the leader and asks again.
        """
        if not self.is_in_touch(partition):
            message = f"{partition.key} may have another leader, since the replicas in sync are silent: {reason}"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)

    def replica(self, topic: str, partition: int) -> tuple[Partition, Log]:
        """Return the partition and its log, whether this broker leads it or follows.

        Raises:
            ApiError: unknown, not here, without leader, or offline.
        """
        found = self._by_key.get((topic, partition))
        if found is None or found.leader == NO_LEADER or (found.leader == self._broker_id and not found.is_leader):
            return self.leader(topic, partition)
        if found.log is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} is offline: {found.fault}")
        return found, found.log

    @property
    def broker_id(self) -> int:
        """Of this broker."""
        return self._broker_id

    @property
    def path(self) -> Path:
        """The data directory."""
        return self._directory.path

    async def checkpoint(self) -> bool:
        """Write the offset checkpoints as they are now, in a thread; return whether the disk took them."""
        job = self._directory.checkpoint_job()
        await asyncio.to_thread(job.run)
        return job.error is None

    def checkpoint_soon(self) -> None:
        """Write the offset checkpoints as they are now, in a thread."""
        self._directory.jobs.append(self._directory.checkpoint_job())

    def format_version(self) -> int:
        """Return the newest format of brokers' messages that may be written now (rule 15)."""
        return min(self.image.level, FORMATS[-1])

    @property
    def needs_topic_ids(self) -> bool:
        """Whether every follower and every leader names a topic by its id: release 0.1.0 sends none (rule 18)."""
        return self.image.level >= TOPIC_ID_LEVEL

    def stop_leading(self) -> list[Partition]:
        """Lead nothing until an image names this broker's next registration (rule 1); return what was led."""
        led = [one for one in self._by_key.values() if one.leading is not None or one.suspended is not None]
        for partition in led:
            partition.leading = partition.suspended = None
        for partition in led:
            self._tell(partition.key, Moved.LEADER)
        return led

    def suspend(self, partition: Partition, follower: int, leader_epoch: int) -> None:
        """Stop leading *partition*, since a follower has heard of a later leader epoch; the next image says who leads.

        Writes and deletions that wait for replicas wait on: it may be this broker again.
        """
        message = "leading suspended partition=%s epoch=%d follower=%d epoch_there=%d"
        _logger.info(message, partition.key, partition.leader_epoch, follower, leader_epoch)
        partition.suspended, partition.leading = partition.leading, None

    def ends_in_doubt(self) -> dict[tuple[UUID, int], tuple[int, int]]:
        """Return (last leader epoch, log end) of partitions without leader whose ISR has this broker."""
        return {
            (one.topic_id, one.key.partition): (one.log.epochs.latest, one.log.log_end_offset)
            for one in self._by_key.values()
            if one.log is not None
            and one.log.offline is None
            and one.state is not None
            and one.state.leader == NO_LEADER
            and self._broker_id in one.state.isr
        }

    def knows_us(self, image: ClusterImage) -> bool:
        """Whether *image* was made after this broker's present registration."""
        found = image.brokers.get(self._broker_id)
        return found is not None and found.epoch == self.registered_epoch()

    def retire(self, image: ClusterImage) -> list[Partition]:
        """Stop serving partitions that *image* does not give this broker; return them.  Runs on the loop."""
        gone = [one for one in self._by_key.values() if not self._is_hosted(image, one)]
        for partition in gone:
            partition.leading = partition.suspended = None
            if partition.log is not None:
                partition.log.is_leaving = True
            del self._by_key[partition.key]
        orders = (image.deleted_topics.keys(), self._left_by_us(image))
        if gone or orders != (self.image.deleted_topics.keys(), self._left_by_us(self.image)):
            self._is_clean = False
        return gone

    def stop_preparing(self) -> None:
        """Have a `prepare` that runs in a thread end with the log that it is at; nothing is prepared from now on."""
        self._is_stopping = True

    def prepare(self, image: ClusterImage) -> dict[TopicPartition, Log | str]:
        """Move what *image* does not have out of the way, then open or make the logs it adds.  Runs in a thread.

        Only an order that names topic and id deletes; everything else that the image lacks is set aside (rule 2).

        Returns:
            The log by partition, or why it is offline.
        """
        if not (self._is_clean or self._is_stopping):
            self._clean_up(image)
        opened: dict[TopicPartition, Log | str] = {}
        inherited: dict[str, Effective] | None = None  # by most images, nothing is opened
        now_ms = wall_ms()
        configs: dict[str, LogConfig] = {}
        for topic, number, _ in self._hosted(image):
            if self._is_stopping:
                break
            key = TopicPartition(topic.name, number)
            if key in self._by_key and self._directory.logs.get(key) is not None:
                continue
            config = configs.get(topic.name)
            if config is None:
                inherited = inherited or self._inherit(image)
                config = configs[topic.name] = log_config(inherited, topic.configs)
            try:
                opened[key] = self._directory.get_or_create(key, topic.topic_id, config, now_ms=now_ms)
            except StorageError as error:
                known = self._by_key.get(key)
                if known is None or known.fault != str(error):
                    _logger.error("partition offline partition=%s reason=%s", key, error)
                opened[key] = str(error)
        return opened

    @property
    def has_waiting(self) -> bool:
        """Whether a log could not be opened for want of what may be there later: room or descriptors."""
        hosted = map(self._by_key.get, self._directory.waiting())
        return any(one is not None and one.log is None for one in hosted)

    def cleaned_topics(self) -> set[UUID]:
        """Return the topics ordered to be deleted here whose data is gone."""
        return set(self._cleaned)

    def removed_replicas(self) -> set[tuple[UUID, int]]:
        """Return the partitions, by topic id, that were moved away from here and whose data is gone."""
        return set(self._removed)

    def _left_by_us(self, image: ClusterImage) -> set[tuple[UUID, int]]:
        return {
            (topic.topic_id, number)
            for topic in image.topics.values()
            if topic.leaving
            for number, brokers in topic.leaving.items()
            if self._broker_id in brokers
        }

    def _clean_up(self, image: ClusterImage) -> None:
        hosted = {(topic.name, number): topic.topic_id for topic, number, _ in self._hosted(image)}
        ordered = {deleted.topic_id for deleted in image.deleted_topics.values() if self._broker_id in deleted.replicas}
        removed = self._left_by_us(image)
        orders = len(ordered) + len(removed)
        cleaned = set(ordered)
        for key in self._directory.on_disk():
            may_be_of: set[UUID | None] | None = None
            try:
                topic_id = self._directory.topic_id_on_disk(key)
                if hosted.get(key) == topic_id or (topic_id is None and key in hosted):
                    continue
                may_be_of = {topic_id}
                if topic_id is not None and (topic_id in ordered or (topic_id, key.partition) in removed):
                    self._directory.delete(key, topic_id)
                    _logger.info("deleted partition=%s topic_id=%s", key, topic_id)
                else:
                    self._directory.set_aside(key)
            except StorageError as error:
                _logger.error("clean-up failed partition=%s reason=%s", key, error)
                if may_be_of is None:
                    may_be_of = {one.topic_id for one in image.deleted_topics.values() if one.name == key.topic}
                    may_be_of |= {one.topic_id for one in image.topics.values() if one.name == key.topic}
                cleaned -= may_be_of
                removed = {one for one in removed if one[0] not in may_be_of or one[1] != key.partition}
        self._is_clean = len(cleaned) + len(removed) == orders
        self._removed = removed
        self._cleaned = cleaned

    def _is_hosted(self, image: ClusterImage, partition: Partition) -> bool:
        topic = image.topics.get(partition.key.topic)
        if topic is None or topic.topic_id != partition.topic_id:
            return False
        state = topic.partitions.get(partition.key.partition)
        return state is not None and self._broker_id in state.replicas

    def switch(
        self, image: ClusterImage, opened: Mapping[TopicPartition, Log | str], gone: Iterable[Partition] = ()
    ) -> list[Partition]:
        """Let *image* hold from now on; return the partitions whose leader or ISR changed.  Runs on the loop.

        Args:
            image: newer than the one in force, or that one once more, when logs could be opened at last.
            opened: what `prepare` returned for it.
            gone: what `retire` returned for it: who waits for these is told now, under the new image.
        """
        assert image.order > self.image.order or image is self.image, f"{image.order} after {self.image.order}"
        changed: list[Partition] = []
        may_lead = self.knows_us(image)
        is_news = bool(opened)
        has_other_defaults = image.broker_configs != self.image.broker_configs
        if has_other_defaults:
            self._inherited = self._inherit(image)
        kept: dict[Key, Partition] = {}
        for topic, number, state in self._hosted(image):
            key = TopicPartition(topic.name, number)
            found = self._by_key.get(key)
            if key in opened:
                log = opened[key]
                if isinstance(log, str):
                    found = Partition(key, None, topic.topic_id, fault=log)
                else:
                    log.is_leaving = False
                    found = Partition(key, log, topic.topic_id)
            if found is None:
                continue  # prepared under an older image; the next one brings it
            is_idle = found.leading is None and found.suspended is None
            is_due = may_lead and state.leader == self._broker_id and is_idle
            if is_due or (found.leader, found.leader_epoch) != (state.leader, state.leader_epoch):
                self._assign(found, topic, state, may_lead=may_lead)
                changed.append(found)
            elif found.leading is not None and (found.state != state or found.leading.factor != topic.factor(number)):
                # Fewer in-sync replicas may be enough for what waits, or too few for it.
                now_ms = steady_ms()
                found.leading.follow(state.replicas, topic.factor(number), now_ms)
                found.leading.learned(state.isr, state.partition_epoch)
                self.advance(found)
                changed.append(found)
            before = self.image.topics.get(topic.name)
            if has_other_defaults or (before is not None and before.configs != topic.configs):
                self._configure(found, topic)
                is_news = True
            found.state = state
            kept[key] = found
        self._by_key = kept
        self.image = image
        if is_news:
            # Retention goes by what is written down, should this process end in the next moment.
            self.checkpoint_soon()
        changed = [*gone, *changed]
        for partition in changed:
            self._tell(partition.key, Moved.LEADER)
        return changed

    def _inherit(self, image: ClusterImage) -> dict[str, Effective]:
        """Return what topics here inherit where they have no setting of their own."""
        return broker_settings(self._settings, image.broker_configs, self._broker_id)

    def _configure(self, partition: Partition, topic: TopicImage) -> None:
        """Let a topic's changed settings hold from now on."""
        if partition.log is not None:
            partition.log.configure(log_config(self._inherited, topic.configs))
        if partition.leading is not None:
            partition.leading.want_isr(self._min_isr(topic))
            self.advance(partition)

    def append(
        self,
        partition: Partition,
        log: Log,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        acks: int,
        marker: Marker | None = None,
        *,
        is_coordinators: bool = False,
        allowed_bytes: int = 0,
    ) -> tuple[AppendResult, Appended | None]:
        """Append one checked batch to a partition that `leader` returned, patching its offset into *batch*.

        Args:
            partition: led here.
            log: its log.
            batch: writable view of exactly the batch.
            header: what `check_batch` returned for it.
            now_ms: the time on the wall.
            acks: -1 if every in-sync replica shall have it, 0 or 1 if this broker is enough.
            marker: what the batch says, if it ends a transaction.
            is_coordinators: see `Log.append_as_leader`.
            allowed_bytes: see `Log.append_as_leader`.

        Returns:
            Where it went, and what its writer waits for, None if for nothing more.

        Raises:
            ApiError: it is refused, or the disk is full, and then another replica is to lead; nothing was appended.
            StorageError: the partition is offline.
        """
        leading = partition.leading
        assert leading is not None
        if acks == -1 and leading.is_under_min_isr():
            # What is in the log already is not refused as if it were not: its producer would take it for not written.
            stored = None if marker is not None or is_coordinators else log.find_stored(header)
            if stored is None:
                message = f"{partition.key} has {len(leading.isr)} in-sync replicas"
                raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, message)
            if log.high_watermark > stored.last_offset:
                return stored, None
            return stored, Appended(partition, stored.last_offset, partition.leader_epoch)
        try:
            result = log.append_as_leader(
                batch,
                header,
                partition.leader_epoch,
                now_ms,
                marker,
                is_coordinators=is_coordinators,
                allowed_bytes=allowed_bytes,
            )
        except (ApiError, StorageError) as error:
            if isinstance(error, StorageError) or error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                leading.cannot_write = True  # who has room is to lead (rule 7)
                self._tell(partition.key, Moved.LEADER)
            raise
        if not result.is_duplicate:
            leading.cannot_write = False
            if not leading.has_followers and not log.is_flushing:
                # The only replica is the whole in-sync set: what it has written, everyone in sync has.
                log.high_watermark = log.log_end_offset
                has_advanced = True
            else:
                has_advanced = self._advance(log, leading)
            what = _HIGH_WATERMARK if has_advanced else _END
            for listener in self._high_watermark_listeners if has_advanced else self._end_listeners:
                listener(partition.key, what)
        if acks == -1 and log.high_watermark <= result.last_offset:
            return result, Appended(partition, result.last_offset, partition.leader_epoch)
        if acks == 1 and log.is_flushing and log.countable_end_offset <= result.last_offset:
            return result, Appended(partition, result.last_offset, partition.leader_epoch, is_local=True)
        return result, None

    def advance(self, partition: Partition) -> None:
        """Move the high watermark of a partition led here as far as its in-sync replicas allow."""
        log, leading = partition.log, partition.leading
        if log is not None and leading is not None and self._advance(log, leading):
            self._tell(partition.key, Moved.HIGH_WATERMARK)

    def _advance(self, log: Log, leading: Leader) -> bool:
        """Move a high watermark; return whether it moved."""
        if log.is_flushing and log.recovery_point < log.log_end_offset:
            self.on_unsynced(log)
        high_watermark = leading.high_watermark(log.high_watermark, log.countable_end_offset)
        if high_watermark == log.high_watermark:
            return False
        log.high_watermark = high_watermark
        return True

    def follow(self, partition: Partition, high_watermark: Offset) -> None:
        """Take over a leader's high watermark, as far as our log reaches."""
        log = partition.log
        assert log is not None
        high_watermark = min(high_watermark, log.log_end_offset)
        if high_watermark > log.high_watermark:
            log.high_watermark = high_watermark
            self._tell(partition.key, Moved.HIGH_WATERMARK)

    def synced(self, key: TopicPartition) -> None:
        """Count what a sync has made safe."""
        partition = self._by_key.get(key)
        if partition is not None and partition.leading is not None and partition.log is not None:
            self._advance(partition.log, partition.leading)
            self._tell(key, Moved.HIGH_WATERMARK)

    def failed(self, topic: str, partition: int) -> None:
        """Tell that the disk has failed under a partition."""
        self._tell((topic, partition), Moved.LEADER)

    def started_later(self, key: Key) -> None:
        """Tell that a log begins later: followers and waiting consumers learn of it at once."""
        self._tell(key, Moved.START)

    def isr_answered(self, partition: Partition) -> None:
        """Go by what a controller has answered to a leader's wish."""
        self.advance(partition)
        self._tell(partition.key, Moved.LEADER)

    def resignation(self, partition: Partition) -> IsrChange | None:
        """Return the change that leaves a follower, this broker, out, because its log cannot take what the leader has.

        None where it is not in sync, or where too few others would be: then nobody writes with acks=all any sooner.
        """
        key, state = partition.key, partition.state
        topic = self.image.topics.get(key.topic)
        if topic is None or state is None or self._broker_id not in state.isr:
            return None
        others = tuple((member, -1) for member in state.isr if member != self._broker_id)
        is_enough = state.leader != NO_LEADER and len(others) >= min(self._min_isr(topic), topic.factor(key.partition))
        return IsrChange(others, state.partition_epoch) if is_enough else None

    def _assign(self, partition: Partition, topic: TopicImage, state: PartitionImage, *, may_lead: bool) -> None:
        # Nobody else can have led in between: each change of leader has an epoch of its own.
        was_leading = partition.leading is not None or partition.suspended is not None
        goes_on = was_leading and state.leader_epoch == partition.leader_epoch + 1
        partition.suspended = None
        partition.leader = state.leader
        partition.leader_epoch = state.leader_epoch
        partition.leading = None
        if state.leader != self._broker_id or not may_lead:
            return
        if not goes_on:
            partition.leading_since = state.leader_epoch
        log = partition.log
        if log is not None and log.offline is None:
            log.begin_leader_epoch(state.leader_epoch)
        partition.leading = Leader(
            self._broker_id,
            state.replicas,
            state.isr,
            factor=topic.factor(partition.key.partition),
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            epoch_start=log.log_end_offset if log is not None else 0,
            lag_ms=self._config.replica_lag_time_max_ms,
            min_isr=self._min_isr(topic),
            now_ms=steady_ms(),
        )
        self.advance(partition)

    def _min_isr(self, topic: TopicImage) -> int:
        return int(topic_setting(self._inherited, topic.configs, "min.insync.replicas"))

    def _hosted(self, image: ClusterImage) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        for topic in image.topics.values():
            for number, state in topic.partitions.items():
                if self._broker_id in state.replicas:
                    yield topic, number, state

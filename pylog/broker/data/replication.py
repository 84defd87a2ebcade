"""Followers fetch, leaders ask for ISR changes: what replication waits for.

One fetcher per leader broker asks for everything this broker follows there.  Bytes are appended as they came, after
their CRC was checked; where the logs differ, the follower cuts its own by leader epoch and asks again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from pylog.broker.clock import wall_ms
from pylog.broker.data.partitions import Moved, Partition, Partitions
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.peers import PeerClient
from pylog.broker.data.throttles import Throttles
from pylog.broker.tasks import Tasks
from pylog.cluster.controller import IsrRequest, IsrResult
from pylog.cluster.image import ClusterImage
from pylog.errors import ApiError, ErrorCode, ProtocolError, StorageError
from pylog.log.log import Log
from pylog.metrics import Metrics
from pylog.model import Key, NodeAddress, Offset
from pylog.replica.divergence import truncation_offset
from pylog.replica.follower_feed import FollowerFeed
from pylog.replica.leader import IsrChange, Leader
from pylog.wire.fetch import FetchPartition, FetchRequest, FetchResult
from pylog.wire.internal import Beginning, InternalKey, encode_replica, parse_beginning

_logger = logging.getLogger(__name__)

_NONE = ErrorCode.NONE

MAX_BYTES = 8 << 20
BACKOFF_S = 0.2
FIRST_REST_S = 0.01
"""How long a partition rests after its first error, twice as long after each next one up to `BACKOFF_S`.  Mostly the
leader has not heard yet that it leads, and all who write with acks=all wait for us."""
START_WAIT_MS = 50
"""How long a fetch waits while the checkpoint with a new log start offset is written: the next fetch tells the leader,
and whoever deleted the records waits for that."""
START_HURRY_MS = 1_000
"""How long fetches wait so briefly; a disk that takes longer is in trouble."""
MAX_BEGINNINGS = 64
"""Partitions that begin anew after one fetch; each takes a round trip, and all others wait for it."""
ISR_TICK_S = 0.1
ISR_TIMEOUT_S = 5.0
ISR_TURN_COUNT = 32
"""Partitions looked at in each tick although nothing happened to them."""
ISR_REST_MS = 1_000
"""How long a partition whose change was refused is left alone."""
PASS_ON_REST_MS = 10_000
"""How long a leader without room keeps what it passed on and got back: where no disk has room, leadership would go
round several times a second."""

AskIsr = Callable[[list[IsrRequest]], Awaitable[list[IsrResult]]]
_Wish = tuple[Partition, Leader | None, IsrRequest]
"""For other in-sync replicas; without `Leader` it is a follower's, to be none of them."""
_Place = tuple[UUID, int]
"""Topic id and partition number: what happened to a deleted topic says nothing of the next one of its name."""
_Answered = tuple[Partition, FetchPartition, FetchResult[memoryview]]


@dataclass(slots=True)
class _Arrival:
    """A replica that a move adds here, until it is in sync: those that leave then delete what they have.

    Attributes:
        leader_epoch: of the leader that told *high_watermark*.
        high_watermark: of the leader, who lets nobody into the ISR that has less.
        is_syncing: what was copied is being synced.
        is_lasting: that has happened.
    """

    leader_epoch: int = -1
    high_watermark: Offset = 0
    is_syncing: bool = False
    is_lasting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """The settings of followers' fetches; see `pylog.broker.settings`."""

    replica_fetch_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_socket_timeout_ms: int


class Replication:
    """Both sides of replication for one broker."""

    def __init__(
        self,
        broker_id: int,
        partitions: Partitions,
        config: ReplicationConfig,
        metrics: Metrics,
        *,
        now_ms: Callable[[], int],
        keys: PeerKeys,
        broker_epoch: Callable[[], int],
        ask_isr: AskIsr,
        sync: Callable[[Iterable[Log]], Awaitable[None]],
        throttles: Throttles,
    ) -> None:
        """Make it.

        Args:
            broker_id: ours.
            partitions: hosted here.
            config: sizes and times of fetches.
            metrics: where to count.
            now_ms: a steady clock.
            keys: by which brokers know each other.
            broker_epoch: epoch of our registration; -1 without one.
            ask_isr: brings changes to the controller and returns its answers, in order.
            sync: waits until what logs hold now is synced.
            throttles: what may be fetched of partitions that catch up.
        """
        self._broker_id = broker_id
        self._partitions = partitions
        self._config = config
        self._now_ms = now_ms
        self._keys = keys
        self._broker_epoch = broker_epoch
        self._ask_isr = ask_isr
        self._sync = sync
        self._throttles = throttles
        self._fetchers: dict[int, _Fetcher] = {}
        self._isr_rests_ms: dict[_Place, int] = {}
        self._passed_on: dict[_Place, tuple[int, int]] = {}  # for want of room: leader epoch, and when
        self._refused: set[_Place] = set()  # followed, and the disk has not taken what came last
        self._arrivals: dict[_Place, _Arrival] = {}
        self._arriving: frozenset[Key] = frozenset()
        self._watched: dict[Key, None] = {}
        self._turns: Iterator[Key] = iter(())
        partitions.subscribe(self._watch)
        self._tasks = Tasks()
        self._bytes = metrics.counter("pylog_replica_bytes_total", "Bytes of record batches fetched from leaders.")
        self._truncations = metrics.counter("pylog_replica_truncations_total", "Times a follower cut its log.")
        self._isr_changes = metrics.counter(
            "pylog_isr_changes_total",
            "Changes of in-sync replicas that this leader asked for; the death of a broker is none.",
        )

    def start(self) -> None:
        """Begin to watch the in-sync replicas."""
        self._tasks.spawn(self._watch_isr())

    async def stop(self) -> None:
        """Stop fetching and watching."""
        for fetcher in self._fetchers.values():
            fetcher.stop()
        await self._tasks.stop()

    def image_applied(self) -> None:
        """Fetch from the leaders that the image in force names."""
        image = self._partitions.image
        if self._isr_rests_ms or self._passed_on:
            hosted = {_place(partition) for partition in self._partitions}
            self._isr_rests_ms = {place: until for place, until in self._isr_rests_ms.items() if place in hosted}
            self._passed_on = {place: when for place, when in self._passed_on.items() if place in hosted}
        wanted: dict[int, dict[Key, Partition]] = {}
        for partition in self._partitions:
            is_followed = partition.leading is None and partition.leader in image.brokers and not partition.is_offline
            if is_followed and partition.leader != self._broker_id:
                wanted.setdefault(partition.leader, {})[partition.key] = partition
        self._arriving = arriving_keys(image, self._broker_id)
        if self._arriving or self._arrivals:
            places = (_place(one) for one in self._partitions if one.key in self._arriving)
            self._arrivals = {place: self._arrivals.get(place) or _Arrival() for place in places}
        if self._refused:
            self._refused &= {_place(one) for partitions in wanted.values() for one in partitions.values()}
        for broker_id in self._fetchers.keys() - wanted.keys():
            self._fetchers.pop(broker_id).stop()
        for broker_id, partitions in wanted.items():
            fetcher = self._fetchers.get(broker_id)
            if fetcher is None:
                fetcher = self._fetchers[broker_id] = _Fetcher(
                    self, PeerClient(self._broker_id, self._keys, self._partitions.format_version)
                )
                self._tasks.spawn(fetcher.run())
            fetcher.assign(image.brokers[broker_id].internal, partitions)

    # -- followers ---------------------------------------------------------------------------------------------------

    async def synced(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Wait until what `flush.*` wants synced is: the next fetch tells the leader that we have it (rule 8).

        Args:
            partitions: that have got something since it was waited for last.

        Returns:
            Those that could not be synced, as for want of room or of a descriptor, and must not be asked for.
        """
        failed: list[Partition] = []
        for one in partitions:
            if one.log is not None and one.log.is_flushing:
                try:
                    await self._sync([one.log])
                except (ApiError, StorageError) as error:
                    _logger.warning("sync put off partition=%s reason=%s", one.key, error)
                    failed.append(one)
        return failed

    def question(self, partition: Partition) -> FetchPartition | None:
        """Return what to ask the leader of *partition*: everything from its log end on; None for nothing now."""
        log = partition.log
        if log is None or log.offline is not None or log.is_leaving:
            return None
        if self._arriving and partition.key in self._arriving and not self._may_arrive(partition, log):
            return None
        max_bytes = self._throttles.most(partition, self._config.replica_fetch_max_bytes)
        if not max_bytes:
            return None
        return FetchPartition(
            partition.key.topic,
            partition.key.partition,
            partition.leader_epoch,
            log.log_end_offset,
            log.epochs.latest,
            log.lasting_start_offset,
            max_bytes,
            partition.topic_id.bytes,
        )

    def _may_arrive(self, partition: Partition, log: Log) -> bool:
        """Whether the leader may hear how far a replica has come that a move adds, since that is on the disk.

        With the fetch that brings it into the ISR the move may be over, and who leaves deletes at once.  So all that
        was copied is synced before; what comes after that is as safe as with any other replica.  The fetches of other
        partitions do not wait for it.
        """
        arrival = self._arrivals.get(_place(partition))
        if arrival is None or arrival.is_lasting or _synced_end(log) >= log.log_end_offset:
            return True
        is_behind = log.log_end_offset < arrival.high_watermark and arrival.leader_epoch == partition.leader_epoch
        if not is_behind and not arrival.is_syncing:
            arrival.is_syncing = True
            self._tasks.spawn(self._sync_copy(arrival, partition, log))
        return is_behind

    async def _sync_copy(self, arrival: _Arrival, partition: Partition, log: Log) -> None:
        end_offset = log.log_end_offset
        try:
            await self._sync([log])
            # What is not known to reach the high watermark of this leader epoch is a part of the copy: more is coming.
            is_whole = arrival.leader_epoch == partition.leader_epoch and end_offset >= arrival.high_watermark
            arrival.is_lasting = is_whole and _synced_end(log) >= end_offset
        except (ApiError, StorageError) as error:
            _logger.warning("sync put off partition=%s reason=%s", log.topic_partition, error)
        finally:
            arrival.is_syncing = False

    def unsettled(self, keys: Iterable[Key]) -> Iterable[Key]:
        """Return those of *keys* of which more or less may be fetched at any moment."""
        followed = self._throttles.followed | self._arriving if self._arriving else self._throttles.followed
        return followed.intersection(keys) if followed else ()

    def write_starts(self) -> None:
        """Write down soon where logs begin."""
        self._partitions.checkpoint_soon()

    def now_ms(self) -> int:
        """Return the time of a steady clock."""
        return self._now_ms()

    @property
    def wait_ms(self) -> int:
        """How long a fetch waits for data; also how late we hear of a high watermark when nothing is written."""
        return self._config.replica_fetch_wait_max_ms

    @property
    def timeout_s(self) -> float:
        """How long a leader may take to answer."""
        return self._config.replica_socket_timeout_ms / 1000

    @property
    def broker_id(self) -> int:
        """Ours."""
        return self._broker_id

    @property
    def broker_epoch(self) -> int:
        """Epoch of our registration."""
        return self._broker_epoch()

    async def prepare_cuts(self, answers: Iterable[_Answered], beginnings: Mapping[Key, Beginning]) -> None:
        """Have one checkpoint say that the logs are about to be cut, before `take` cuts them one by one.

        If the disk refuses it, each truncation writes its own, or fails.

        Args:
            answers: of the leader.
            beginnings: what it answered to what `replica_to_begin` returned.
        """
        lowered: list[tuple[Log, int]] = []
        for partition, asked, result in answers:
            log = self._log_of(partition, asked)
            if log is None or self._is_of_another_topic(partition, result):
                continue
            offset = _cut_offset(partition, log, result, beginnings.get(partition.key))
            count = None if offset is None else log.lower_recovery_point(offset)
            if count is not None:
                lowered.append((log, count))
        if lowered and await self._partitions.checkpoint():
            for log, count in lowered:
                log.note_checkpoint(count)

    @staticmethod
    def _log_of(partition: Partition, asked: FetchPartition) -> Log | None:
        """Return the log that an answer is about; None if the image or the log changed since it was asked for."""
        log = partition.log
        is_ours = partition.leading is None and partition.leader_epoch == asked.current_leader_epoch
        if log is None or log.offline is not None or log.is_leaving:
            return None
        return log if is_ours and log.log_end_offset == asked.fetch_offset else None

    def replica_to_begin(
        self, partition: Partition, asked: FetchPartition, result: FetchResult[memoryview]
    ) -> bytes | None:
        """Return the body of BEGIN_ANEW if that must be asked before `take`, else None.

        A leader of release 0.1.0 names no topic id and does not know that request: what is below the start of its log
        is not known to the follower then.
        """
        log = self._log_of(partition, asked)
        if log is None or not result.topic_id or self._is_of_another_topic(partition, result):
            return None
        if not _begins_anew(partition, log, result):
            return None
        return encode_replica(partition.topic_id, partition.key.partition, partition.leader_epoch)

    def take(
        self,
        partition: Partition,
        asked: FetchPartition,
        result: FetchResult[memoryview],
        beginning: Beginning | None = None,
    ) -> bool:
        """Take in a leader's answer for one partition; return whether it may be asked again at once.

        Args:
            partition: followed here.
            asked: what was asked of the leader.
            result: what it answered.
            beginning: what it answered to what `replica_to_begin` returned.
        """
        log = self._log_of(partition, asked)
        if log is None:
            return True  # what is asked next says how it is now
        if self._is_of_another_topic(partition, result):
            _logger.warning("answer of another topic dropped partition=%s", partition.key)
            return False
        try:
            if _begins_anew(partition, log, result):
                if beginning is None and result.topic_id:
                    return False  # the leader did not tell; asked again after a rest
                self._begin_anew(partition, log, result, beginning)
                return result.diverging is not None  # else after a rest, so that two who disagree for ever do not spin
            if result.diverging is not None:
                self._arrive_anew(partition)
                self._cut(log, *result.diverging)
            elif result.error is _NONE:
                self._append(partition, log, result)
            else:
                _logger.debug("fetch answered partition=%s error=%s", partition.key, result.error.name)
                return False
        except (StorageError, ApiError) as error:
            _logger.error("follower stopped partition=%s reason=%s", partition.key, error)
            if isinstance(error, ApiError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._refused.add(_place(partition))
            self._watch(partition.key)
            return False
        if result.diverging is None:
            # Appended, or the leader has nothing more: what was refused may lie below the start of its log by now.
            self._refused.discard(_place(partition))
        return True

    def _is_of_another_topic(self, partition: Partition, result: FetchResult[memoryview]) -> bool:
        """Whether an answer is about another topic of this name, or does not say which one it is about."""
        if result.topic_id:
            return result.topic_id != partition.topic_id.bytes
        # Errors of which nothing follows have no id.
        is_taken = result.error is _NONE or result.error is ErrorCode.OFFSET_OUT_OF_RANGE
        return is_taken and self._partitions.needs_topic_ids

    def _append(self, partition: Partition, log: Log, result: FetchResult[memoryview]) -> None:
        if result.records_bytes and result.records is not None:
            self._throttles.fetched(partition, result.records_bytes)  # by what we had when we asked
            log.append_as_follower(result.records, wall_ms())
            self._bytes.value += result.records_bytes
        arrival = self._arrivals.get(_place(partition)) if self._arrivals else None
        if arrival is not None:
            arrival.leader_epoch, arrival.high_watermark = partition.leader_epoch, result.high_watermark
        self._partitions.follow(partition, result.high_watermark)
        # Only then: the leader's log may begin above the high watermark that we knew, though never above its own.
        if result.log_start_offset > log.log_start_offset:
            log.delete_records_before(min(result.log_start_offset, log.high_watermark))

    def _arrive_anew(self, partition: Partition) -> None:
        """Have what is copied from now on synced again, where a move adds this replica."""
        if _place(partition) in self._arrivals:
            self._arrivals[_place(partition)] = _Arrival()

    def _cut(self, log: Log, leaders_epoch: int, leaders_end: int) -> None:
        offset = _meeting_offset(log, leaders_epoch, leaders_end)
        if offset < log.log_end_offset:
            self._truncations.value += 1
            message = "truncating partition=%s from=%d to=%d leaders_epoch=%d"
            _logger.warning(message, log.topic_partition, log.log_end_offset, offset, leaders_epoch)
        log.truncate_to(offset)
        if leaders_end >= log.log_end_offset:
            log.remember_epoch(leaders_epoch)

    def _begin_anew(
        self, partition: Partition, log: Log, result: FetchResult[memoryview], beginning: Beginning | None
    ) -> None:
        """Drop everything and begin where the leader's log begins; see `_begins_anew`.

        Never at the leader's end: whoever leads next would make all others delete what lies before.
        """
        found = beginning or Beginning(result.log_start_offset, -1, 0, b"")
        _logger.warning(
            "starting over partition=%s end=%d leader_starts=%d",
            log.topic_partition,
            log.log_end_offset,
            found.log_start_offset,
        )
        self._truncations.value += 1
        self._arrive_anew(partition)
        log.truncate_fully_and_start_at(found.log_start_offset, found.producers)
        # After the log is empty: killed before, it begins anew once more.
        log.tombstones.take_over(found.removed_tombstone, partition.leader_epoch, found.removing_pass)
        if result.diverging is not None and result.diverging[1] == log.log_end_offset:
            log.remember_epoch(result.diverging[0])

    # -- leaders -----------------------------------------------------------------------------------------------------

    async def _watch_isr(self) -> None:
        while True:
            await asyncio.sleep(ISR_TICK_S)
            wanted = self._wanted_changes()
            if wanted:
                await self._change_isr(wanted)

    def _watch(self, key: Key, what: Moved = Moved.LEADER) -> None:
        self._watched[key] = None

    def _to_look_at(self) -> list[Partition]:
        """Return the partitions whose in-sync replicas may be others soon.

        Those to which something happened, until their followers are in sync and have everything; and a few more, each
        in its turn, since not everything that takes a log offline tells of itself.
        """
        few = list(islice(self._turns, ISR_TURN_COUNT))
        if len(few) < ISR_TURN_COUNT:
            self._turns = iter([one.key for one in self._partitions])
            few += islice(self._turns, ISR_TURN_COUNT - len(few))
        found = (self._partitions.get(*key) for key in {**self._watched, **dict.fromkeys(few)})
        partitions = [one for one in found if one is not None]
        self._watched = {one.key: None for one in partitions if self._may_change(one)}
        return partitions

    def _may_change(self, partition: Partition) -> bool:
        leading, log = partition.leading, partition.log
        if leading is None:
            return self._cannot_follow(partition)
        if log is None or log.offline is not None or leading.cannot_write:
            return True
        return not leading.is_settled(log.log_end_offset)

    def _wanted_changes(self) -> list[_Wish]:
        now_ms, epoch = self._now_ms(), self._broker_epoch()
        has_session = self._partitions.has_session()
        wanted: list[_Wish] = []
        for partition in self._to_look_at():
            leading, log = partition.leading, partition.log
            if leading is None:
                # Whoever writes with acks=all would wait for us until the leader gives us up.
                resignation = self._partitions.resignation(partition) if self._cannot_follow(partition) else None
                if resignation is not None and self._isr_rests_ms.get(_place(partition), 0) <= now_ms:
                    wanted.append((partition, None, self._isr_request(partition, resignation, epoch)))
                continue
            if leading.is_alone:
                continue
            is_unusable = log is None or log.offline is not None
            is_leaving = is_unusable or (leading.cannot_write and self._may_pass_on(partition, now_ms))
            resignation = leading.resignation() if is_leaving else None
            if resignation is not None:
                wanted.append((partition, leading, self._isr_request(partition, resignation, epoch)))
                continue
            if log is None or log.offline is not None:
                continue
            # Also while it wants to leave and nobody else is in sync: who has caught up is let in, and may lead then.
            change = leading.pending
            if change is None and self._isr_rests_ms.get(_place(partition), 0) > now_ms:
                continue
            if change is None:
                change = leading.wanted_change(
                    log.high_watermark, log.log_end_offset, now_ms, log_start_offset=log.log_start_offset
                )
                if change is None or not (has_session or leading.isr.issuperset(dict(change.isr))):
                    # Without ZooKeeper nobody can let a replica in.  One that was asked for counts until the answer,
                    # and would hold up writers and groups for as long if it fell silent again.
                    continue
                leading.sent(change)
            # A change whose outcome is unknown is asked for again, with the same partition epoch (rule 4).
            wanted.append((partition, leading, self._isr_request(partition, change, epoch)))
        return wanted

    def _may_pass_on(self, partition: Partition, now_ms: int) -> bool:
        """Whether a leader without room may ask for another one, as long as it leads; the first time counts."""
        place, epoch = _place(partition), partition.leader_epoch
        last_epoch, last_ms = self._passed_on.get(place, (epoch, now_ms))
        if last_epoch != epoch and now_ms < last_ms + PASS_ON_REST_MS:
            return False
        self._passed_on[place] = epoch, last_ms if last_epoch == epoch else now_ms
        return True

    def _cannot_follow(self, partition: Partition) -> bool:
        return partition.is_offline or _place(partition) in self._refused

    def _isr_request(self, partition: Partition, change: IsrChange, epoch: int) -> IsrRequest:
        members = tuple((one, epoch if one == self._broker_id else known) for one, known in change.isr)
        return IsrRequest(
            partition.topic_id, partition.key.partition, partition.leader_epoch, change.partition_epoch, members
        )

    async def _change_isr(self, wanted: list[_Wish]) -> None:
        try:
            async with asyncio.timeout(ISR_TIMEOUT_S):
                results = await self._ask_isr([request for _, _, request in wanted])
        except (ApiError, ProtocolError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            _logger.warning("isr change unanswered partitions=%d reason=%s", len(wanted), reason)
            await asyncio.sleep(BACKOFF_S)
            return
        for (partition, leading, request), result in zip(wanted, results, strict=True):
            self._isr_answered(partition, leading, request, result)

    def _isr_answered(
        self, partition: Partition, leading: Leader | None, request: IsrRequest, result: IsrResult
    ) -> None:
        if leading is None:
            # The next image shows what came of it; until then it is not asked for again.
            self._isr_rests_ms[_place(partition)] = self._now_ms() + ISR_REST_MS
            _logger.warning("leaving isr partition=%s answer=%s", partition.key, result.error.name)
            return
        if partition.leading is not leading or leading.pending is None:
            return  # an image was faster, or brings what comes of a resignation
        if result.error is ErrorCode.NONE:
            self._isr_changes.value += 1
            leading.answered(result.isr, result.partition_epoch)
            _logger.info("isr partition=%s isr=%s", partition.key, ",".join(map(str, sorted(result.isr))))
        elif result.partition_epoch >= 0:
            leading.answered(result.isr, result.partition_epoch)
        else:
            leading.refused()
        if result.error is not ErrorCode.NONE:
            # Mostly a member that is being restarted: the next image says more than asking again would.
            self._isr_rests_ms[_place(partition)] = self._now_ms() + ISR_REST_MS
            _logger.info("isr change refused partition=%s error=%s", partition.key, result.error.name)
        else:
            self._isr_rests_ms.pop(_place(partition), None)
        self._partitions.isr_answered(partition)


class _Fetcher:
    """Fetches from one leader broker until stopped."""

    def __init__(self, owner: Replication, client: PeerClient) -> None:
        self._owner = owner
        self._client = client
        self._address: NodeAddress | None = None
        self._partitions: dict[Key, Partition] = {}
        self._at_request = self._partitions
        self._resting: dict[Key, float] = {}
        self._rests_s: dict[Key, float] = {}
        self._feed = FollowerFeed()
        self._unsynced: dict[Key, Partition] = {}  # what has got something that may have to be synced
        self._unwritten: dict[Key, Partition] = {}  # whose log start offset is not on disk
        self._hurries_until_ms = 0
        self._broker_epoch = -1
        self._fetch: asyncio.Task[tuple[list[FetchResult[memoryview]], bool] | None] | None = None
        self._wake = asyncio.Event()
        self._is_stopped = False

    def assign(self, address: NodeAddress, partitions: dict[Key, Partition]) -> None:
        """Fetch *partitions* from *address* from now on; a fetch that waits for others is given up for a new one."""
        self._address = address
        before, self._partitions = self._partitions, partitions
        # By partition, not by name: a topic that was created again has made no error yet.
        same = {key for key, one in partitions.items() if before.get(key) is one}
        self._resting = {key: until for key, until in self._resting.items() if key in same}
        self._rests_s = {key: rest for key, rest in self._rests_s.items() if key in same}
        self._feed.doubt_all()
        self._unsynced = dict(partitions)
        self._wake.set()
        is_new = any(key not in self._feed for key in partitions.keys() - self._resting.keys())
        if self._fetch is not None and is_new:
            self._fetch.cancel()

    def stop(self) -> None:
        """Ask for nothing more."""
        self._is_stopped = True
        self._partitions = {}
        self._wake.set()
        self._client.close()

    async def run(self) -> None:
        """Fetch; a leader that cannot be reached is tried again after a pause."""
        try:
            await self._fetch_until_stopped()
        finally:
            self._client.close()  # `stop` closes no connection that is still being opened

    async def _fetch_until_stopped(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_stopped:
            self._wake.clear()
            now_s = loop.time()
            rested = [key for key, until in self._resting.items() if until <= now_s]
            for key in rested:
                del self._resting[key]
            self._feed.doubt(rested)
            # None of those that rest waits longer because the others have no news.
            rest_s = min((until - now_s for until in self._resting.values()), default=BACKOFF_S)
            address = self._address
            fetched = None
            if self._partitions and address is not None and self._owner.broker_epoch >= 0:
                try:
                    fetched = await self._ask(address, rest_s)
                except ApiError as error:
                    if not self._is_stopped:
                        _logger.warning("fetch failed leader=%d reason=%s", address.node_id, error)
                        await asyncio.sleep(BACKOFF_S)
                    continue
                if fetched is None and self._wake.is_set():
                    continue  # we were given others to ask for meanwhile
            if fetched is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), min(rest_s, BACKOFF_S) if self._partitions else None)
                continue
            await self._take(fetched)
            await asyncio.sleep(0)

    async def _ask(self, address: NodeAddress, rest_s: float) -> list[FetchResult[memoryview]] | None:
        """Return the leader's answer, or None if there is nothing to ask for or, woken, something else."""
        self._fetch = asyncio.get_running_loop().create_task(self._exchange(address, rest_s))
        try:
            # Not awaited itself: whether it or we were cancelled could not be told apart then.
            await asyncio.wait([self._fetch])
            if self._fetch.cancelled():
                self._feed.forget()
                return None
            found = self._fetch.result()
        except ApiError:
            self._feed.forget()
            raise
        finally:
            self._fetch.cancel()
            self._fetch = None
        if found is None:
            return None
        results, is_kept = found
        self._feed.answered(is_kept=is_kept)
        return results

    async def _exchange(self, address: NodeAddress, rest_s: float) -> tuple[list[FetchResult[memoryview]], bool] | None:
        owner = self._owner
        if await self._client.reach(address, owner.timeout_s):
            self._feed.forget()
        unsynced = self._unsynced
        resting = {key: one for key, one in unsynced.items() if key in self._resting}
        failed = await owner.synced([one for key, one in unsynced.items() if key not in resting])
        if self._unsynced is unsynced:
            self._unsynced = resting | {one.key: one for one in failed}
        for one in failed:
            if self._partitions.get(one.key) is one:
                self._rest(one.key)
        if owner.broker_epoch != self._broker_epoch:
            self._broker_epoch = owner.broker_epoch
            self._feed.forget()  # the leader has to hear for each partition that this is another registration
        self._feed.doubt(owner.unsettled(self._partitions))
        self._feed.doubt(self._unwritten)
        self._unwritten = {key: one for key, one in self._unwritten.items() if _begins_unwritten(one)}
        self._at_request = self._partitions
        keys = self._partitions.keys() - self._resting.keys() if self._resting else self._partitions.keys()
        feeding, named, forgotten = self._feed.request(keys, self._question, owner.now_ms())
        if not self._feed:
            return None
        max_wait_ms = min(owner.wait_ms, int(rest_s * 1000)) if self._resting else owner.wait_ms
        if self._unwritten and owner.now_ms() < self._hurries_until_ms:
            max_wait_ms = min(max_wait_ms, START_WAIT_MS)
        request = FetchRequest(owner.broker_id, max_wait_ms, 1, MAX_BYTES, 0, 0, -1, named, forgotten, feeding=feeding)
        return await self._client.fetch(address, owner.broker_epoch, request, owner.timeout_s)

    def _question(self, key: Key) -> FetchPartition | None:
        return self._owner.question(self._partitions[key])

    def _rest(self, key: Key) -> None:
        """Ask for a partition again only after a while, a longer one each time."""
        rest_s = self._rests_s.get(key, FIRST_REST_S)
        self._resting[key] = asyncio.get_running_loop().time() + rest_s
        self._rests_s[key] = min(2 * rest_s, BACKOFF_S)

    async def _ask_beginnings(self, answers: Iterable[_Answered]) -> dict[Key, Beginning]:
        """Ask the leader what those partitions take over that must begin anew; some come later if they are many."""
        bodies: dict[Key, bytes] = {}
        for partition, asked, result in answers:
            if len(bodies) < MAX_BEGINNINGS:
                body = self._owner.replica_to_begin(partition, asked, result)
                if body is not None:
                    bodies[partition.key] = body
        found: dict[Key, Beginning] = {}
        address = self._address
        assert address is not None, "it has answered"
        for key, body in bodies.items():
            try:
                if await self._client.reach(address, self._owner.timeout_s):
                    self._feed.forget()  # of another connection
                answer = await self._client.call(address, InternalKey.BEGIN_ANEW, body, self._owner.timeout_s)
                found[key] = parse_beginning(answer)
            except (ApiError, ProtocolError) as error:
                _logger.warning("cannot start over partition=%s-%d reason=%s", *key, error)
                if isinstance(error, ProtocolError) or error.code is ErrorCode.NETWORK_EXCEPTION:
                    break
        return found

    async def _take(self, results: list[FetchResult[memoryview]]) -> None:
        drastic: list[_Answered] = []
        for result in results:
            if _may_cut(result):
                key = (result.topic, result.partition)
                partition, asked = self._at_request.get(key), self._feed.get(key)
                if partition is not None and asked is not None:
                    drastic.append((partition, asked, result))
        beginnings: dict[Key, Beginning] = {}
        if drastic:
            beginnings = await self._ask_beginnings(drastic)
            await self._owner.prepare_cuts(drastic, beginnings)
        unwritten: dict[Key, Partition] = {}
        for result in results:
            key = (result.topic, result.partition)
            partition, asked = self._partitions.get(key), self._feed.get(key)
            # A topic may have been deleted and made again meanwhile: that has other records under the same offsets.
            if partition is None or asked is None or self._at_request.get(key) is not partition:
                self._feed.repeat(key)
                continue
            is_taken = self._owner.take(partition, asked, result, beginnings.get(key))
            if result.records_bytes:
                self._unsynced[key] = partition
            if result.records_bytes or result.diverging is not None or result.error is not _NONE:
                self._feed.repeat(key)
            else:
                self._feed.doubt((key,))
            if _begins_unwritten(partition) and key not in self._unwritten:
                unwritten[key] = partition
            if is_taken:
                self._rests_s.pop(key, None)
            else:
                self._rest(key)
            if _may_cut(result):
                # A broker that comes back may have a tail to cut in every partition, or to begin each of them anew,
                # which syncs files; the loop has other work between.
                await asyncio.sleep(0)
        if unwritten:
            self._unwritten |= unwritten
            self._hurries_until_ms = self._owner.now_ms() + START_HURRY_MS
            self._owner.write_starts()


def _meeting_offset(log: Log, leaders_epoch: int, leaders_end: int) -> Offset:
    """Return up to where *log* has what its leader has."""
    own_epoch, own_end = log.offset_for_leader_epoch(leaders_epoch)
    if own_epoch < 0:
        own_end = log.log_start_offset
    return truncation_offset(leaders_epoch, leaders_end, own_epoch, own_end, log.log_end_offset)


def _may_cut(result: FetchResult[memoryview]) -> bool:
    """Whether a follower may have to cut its log after a leader's answer."""
    return result.diverging is not None or result.error is not _NONE or result.removed_tombstone >= 0


def _cut_offset(
    partition: Partition, log: Log, result: FetchResult[memoryview], beginning: Beginning | None
) -> Offset | None:
    """Return where `Replication.take` is about to cut the log, or begins it anew; None if it does neither."""
    if _begins_anew(partition, log, result):
        if beginning is None:
            return None if result.topic_id else result.log_start_offset
        return beginning.log_start_offset
    return None if result.diverging is None else _meeting_offset(log, *result.diverging)


def _begins_anew(partition: Partition, log: Log, result: FetchResult[memoryview]) -> bool:
    """Whether a follower drops its log after a leader's answer, and copies the leader's from its start."""
    if result.diverging is not None:
        offset = _meeting_offset(log, *result.diverging)
        # Nothing is the leader's; or it knows no epochs below its start, so nothing says that what we have there is.
        if offset < log.log_start_offset or log.log_start_offset < offset <= result.log_start_offset:
            return True
        # As only after an unclean election.  Below the high watermark a compaction may have removed records for the
        # sake of later ones that are to be cut off now; the leader has them.
        return log.was_compacted and offset < log.high_watermark
    if result.error is _NONE:
        # Of a tombstone that the leader lacks we may have the record that it deleted.
        is_told = result.removed_tombstone >= 0
        return is_told and not log.tombstones.is_copy(partition.leader_epoch, result.removing_pass)
    return result.error is ErrorCode.OFFSET_OUT_OF_RANGE  # retention took what we lack, or we are ahead of the leader


def _begins_unwritten(partition: Partition) -> bool:
    """Whether a start after a power cut may show records that were deleted."""
    log = partition.log
    return log is not None and log.start_on_disk < log.log_start_offset


def _synced_end(log: Log) -> Offset:
    """Return up to where *log* is on the disk; one that began above what was synced has nothing below its start."""
    return max(log.recovery_point, log.log_start_offset)


def arriving_keys(image: ClusterImage, broker_id: int) -> frozenset[Key]:
    """Return the partitions that are being moved and are to be on *broker_id*, where it is not in sync yet.

    Also where it had one before: it may be copying all of it anew, onto an empty disk.
    """
    return frozenset(
        (name, number)
        for name, topic in image.topics.items()
        if topic.moves
        for number, move in topic.moves.items()
        if broker_id not in move.removing
        and broker_id in topic.partitions[number].replicas
        and broker_id not in topic.partitions[number].isr
    )


def _place(partition: Partition) -> _Place:
    return partition.topic_id, partition.key.partition

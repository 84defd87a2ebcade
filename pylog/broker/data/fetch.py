"""Fetch, from frame to frame: the read half of the hot path.

A reply is a head and file slices.  A fetch that finds too little waits under its partitions until enough was appended,
something changed under it, or its time is up; then it is read again from the start.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from pylog.broker.data.feeds import SWEEP_MS, Feed, Feeds
from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.data.sessions import FINAL_EPOCH, FetchSession, FetchSessions
from pylog.broker.data.throttles import Share, Throttles
from pylog.broker.quotas import Meter
from pylog.broker.timer import Alarm
from pylog.cluster.image import topic_id_text
from pylog.delayed import DelayedRequests
from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.log.log import Log
from pylog.log.segment import FileSlice
from pylog.metrics import Metrics
from pylog.model import Key, Offset
from pylog.net.connection import Connection, Part, Slot
from pylog.replica.follower import diverging_epoch
from pylog.replica.leader import Leader
from pylog.replica.selector import Candidate, nearer_replica
from pylog.wire.api import RequestHeader
from pylog.wire.fetch import Feeding, FetchPartition, FetchRequest, FetchResult, encode_response, parse_request

_logger = logging.getLogger(__name__)


MAX_SESSION_ID = 2**31 - 1

_CONSUMER = -1
_DEBUGGING_CONSUMER = -2


@dataclass(slots=True, eq=False)
class DelayedFetch:
    """A fetch that waits for its slot to be filled.

    Attributes:
        offsets: from which it reads, by partition; a feed knows its own.
    """

    slot: Slot
    version: int
    correlation_id: int
    request: FetchRequest
    session: FetchSession | None
    meter: Meter | None
    offsets: Mapping[Key, Offset]


class FetchHandler:
    """Answers consumers, now or when there is something to say."""

    def __init__(
        self,
        partitions: Partitions,
        metrics: Metrics,
        *,
        max_bytes: int,
        now_ms: Callable[[], int],
        advanced: Callable[[Key], None],
        throttles: Throttles,
        near: "NearReplicas | None" = None,
    ) -> None:
        """Make it.

        Args:
            partitions: hosted here.
            metrics: where to count.
            max_bytes: most bytes of one reply.
            now_ms: the clock.
            advanced: told each partition whose high watermark a follower's fetch moved.
            throttles: what followers that catch up may be sent.
            near: where consumers are sent to; None keeps them at the leader.
        """
        self._throttles = throttles
        self._near = near
        self._partitions = partitions
        self._advanced = advanced
        self._max_bytes = max_bytes
        self._now_ms = now_ms
        self._delayed: DelayedRequests[Key, DelayedFetch] = DelayedRequests()
        self._sessions = FetchSessions(lambda: 1 + secrets.randbelow(MAX_SESSION_ID))
        self._feeds = Feeds()
        # Topic ids that followers asked for in vain, by follower and partition: each is logged once.
        self._mistaken: dict[tuple[int, Key], bytes] = {}
        self._changed: set[Key] = set()
        self._grown: set[Key] = set()
        self._fed: dict[Feed, DelayedFetch] = {}
        self._waiting_feeds: dict[Feed, DelayedFetch] = {}
        self._alarm = Alarm(self._time_is_up, now_ms)
        self._loop = asyncio.get_running_loop()
        self._bytes = metrics.counter("pylog_fetch_bytes_total", "Bytes of record batches sent to consumers.")
        self._fetches = metrics.counter("pylog_fetch_requests_total", "Fetch requests answered.")
        metrics.gauge("pylog_fetch_sessions", "Incremental fetch sessions.", read=lambda: len(self._sessions))
        metrics.gauge("pylog_fetch_delayed", "Fetches waiting for data.", read=lambda: len(self._delayed))

    def handle(
        self,
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
        follower: int = _CONSUMER,
        meter: Meter | None = None,
    ) -> list[Part] | None:
        """Answer at once, or promise to.

        Args:
            connection: where the request came in.
            header: its header.
            frame: the request.
            follower: the broker at the other end, if one has proven to be.
            meter: counts what a consumer gets, if a quota governs it.
        """
        version = header.api_version
        request = parse_request(frame, version, header.body_offset)
        if request.replica_id not in (follower, _CONSUMER, _DEBUGGING_CONSUMER):
            refused = [
                FetchResult[FileSlice](part.topic, part.partition, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                for part in request.partitions
            ]
            return encode_response(version, header.correlation_id, refused)
        if request.feeding is not Feeding.NO:
            return self._feed(connection, version, header.correlation_id, request)
        if request.replica_id >= 0:
            self._note_progress(request)
        session = None
        if request.session_id or request.session_epoch != FINAL_EPOCH:
            try:
                session = self._sessions.apply(request, self._now_ms())
            except ApiError as error:
                return encode_response(version, header.correlation_id, [], error=error.code)
        if meter is not None:
            request.max_bytes = int(min(request.max_bytes, meter.fetch_max_bytes))
        results, found_bytes, is_final = self._read(request)
        if found_bytes >= request.min_bytes or request.max_wait_ms <= 0 or is_final:
            return self._reply(version, header.correlation_id, request, results, session, meter)
        offsets = {(part.topic, part.partition): part.fetch_offset for part in request.partitions}
        delayed = DelayedFetch(connection.open_slot(), version, header.correlation_id, request, session, meter, offsets)
        deadline_ms = self._now_ms() + request.max_wait_ms
        self._delayed.watch(delayed, offsets, deadline_ms)
        self._alarm.ask(deadline_ms)
        return None

    def _feed(
        self, connection: Connection, version: int, correlation_id: int, request: FetchRequest
    ) -> list[Part] | None:
        """Answer a follower whose list of partitions we keep; see `pylog.broker.data.feeds`."""
        now_ms = self._now_ms()
        try:
            feed = self._feeds.apply(connection, request, now_ms)
        except ApiError as error:
            return encode_response(version, correlation_id, [], error=error.code)
        if now_ms - feed.swept_ms >= SWEEP_MS:
            feed.swept_ms = now_ms
            feed.sweep()
            request.partitions = list(feed.partitions.values())
        self._note_progress(request)
        parts = self._answer_feed(version, correlation_id, request, feed, is_late=request.max_wait_ms <= 0)
        if parts is not None:
            return parts
        delayed = DelayedFetch(connection.open_slot(), version, correlation_id, request, feed, None, {})
        self._waiting_feeds[feed] = delayed
        deadline_ms = now_ms + request.max_wait_ms
        self._delayed.watch(delayed, (), deadline_ms)
        self._alarm.ask(deadline_ms)
        return None

    def _answer_feed(
        self, version: int, correlation_id: int, request: FetchRequest, feed: Feed, *, is_late: bool
    ) -> list[Part] | None:
        """Return the answer, or None if there is none yet."""
        request.partitions = feed.wanted()
        results, found_bytes, is_final = self._read(request)
        # Nothing is due: that is no reason to answer, as a request about nothing would be.
        is_final = is_final and bool(results)
        if found_bytes < request.min_bytes and not is_final and not is_late:
            return None
        parts = self._reply(version, correlation_id, request, results, feed, None)
        feed.done(
            (result.topic, result.partition)
            for part, result in zip(request.partitions, results, strict=True)
            # What did not fit comes next; what was told comes again when the follower names it.
            if result.records_bytes or result.error is not ErrorCode.NONE or not self._has_more(part)
        )
        return parts

    def _has_more(self, part: FetchPartition) -> bool:
        partition = self._partitions.get(part.topic, part.partition)
        return partition is not None and partition.log is not None and partition.log.log_end_offset > part.fetch_offset

    def _look_at_feeds(self, key: Key, *, has_only_grown: bool) -> None:
        for feed in self._feeds.under(key):
            feed.due[key] = None
            delayed = self._waiting_feeds.get(feed)
            if delayed is not None and (not has_only_grown or self._has_more(feed.partitions[key])):
                self._look_soon()
                self._fed[feed] = delayed

    def changed(self, key: Key) -> None:
        """Look again at the fetches waiting for *key*, once this turn of the loop is over."""
        self._look_at_feeds(key, has_only_grown=False)
        if self._delayed.is_awaited(key):
            self._look_soon()
            self._changed.add(key)

    def grew(self, key: Key) -> None:
        """As `changed`, where nothing but the end of the log or its high watermark moved.

        Followers gain nothing from the one and consumers nothing from the other, and with acks=all each comes with
        every batch: whoever gains nothing is not looked at.
        """
        self._look_at_feeds(key, has_only_grown=True)
        if self._delayed.is_awaited(key):
            self._look_soon()
            self._grown.add(key)

    def _look_soon(self) -> None:
        if not self._changed and not self._grown and not self._fed:
            # After the turn, so that a hundred batches appended in one wake-up cause one look.
            self._loop.call_soon(self._look_again)

    def forget(self, connection: Connection) -> None:
        """Drop what a closed connection waited for."""
        self._feeds.drop(connection)
        for delayed in self._delayed.waiting():
            if delayed.slot.connection is connection:
                self._finish(delayed)

    def _look_again(self) -> None:
        changed, self._changed = self._changed, set()
        grown, self._grown = self._grown, set()
        fed, self._fed = self._fed, {}
        for feed, delayed in fed.items():
            if self._waiting_feeds.get(feed) is delayed:
                self._look_at(delayed, is_late=False)
        due = dict.fromkeys(delayed for key in changed for delayed in self._delayed.under(key))
        for key in grown:
            due.update(dict.fromkeys(self._gaining(key)))
        for delayed in due:
            self._look_at(delayed, is_late=False)

    def _gaining(self, key: Key) -> list[DelayedFetch]:
        """Return the fetches waiting for *key* that find more there than when they were read last."""
        waiting = self._delayed.under(key)
        partition = self._partitions.get(*key)
        if partition is None or partition.log is None:
            return waiting
        end, shown = partition.log.log_end_offset, partition.log.high_watermark
        return [one for one in waiting if one.offsets[key] < (end if one.request.replica_id >= 0 else shown)]

    def _look_at(self, delayed: DelayedFetch, *, is_late: bool) -> None:
        """Answer a fetch that waited, if it finds enough now or its time is up."""
        request, session = delayed.request, delayed.session
        try:
            parts: list[Part] | None
            if isinstance(session, Feed):
                if is_late:
                    session.sweep()
                parts = self._answer_feed(delayed.version, delayed.correlation_id, request, session, is_late=is_late)
            else:
                results, found_bytes, is_final = self._read(request)
                if found_bytes < request.min_bytes and not is_final and not is_late:
                    return
                parts = self._reply(delayed.version, delayed.correlation_id, request, results, session, delayed.meter)
            if parts is not None:
                self._finish(delayed)
                delayed.slot.complete(parts)
        except Exception:
            # As where requests come in: a bug of ours must cost one client its connection, not everybody the broker.
            _logger.exception("bug in a fetch that waited peer=%s", delayed.slot.connection.peer)
            delayed.slot.connection.close("fetch failed here")

    def _finish(self, delayed: DelayedFetch) -> None:
        self._delayed.finish(delayed)
        if isinstance(delayed.session, Feed):
            self._waiting_feeds.pop(delayed.session, None)

    def _time_is_up(self) -> None:
        for delayed in self._delayed.expire(self._now_ms()):
            self._look_at(delayed, is_late=True)
        next_ms = self._delayed.next_deadline_ms()
        if next_ms is not None:
            self._alarm.ask(next_ms)

    def _note_progress(self, request: FetchRequest) -> None:
        """Take in how far a follower is; what it fetches from is what it has."""
        now_ms = self._now_ms()
        registered = self._partitions.image.brokers.get(request.replica_id)
        if registered is not None and 0 <= request.broker_epoch < registered.epoch:
            return  # of a process that another one has replaced
        for part in request.partitions:
            partition = self._partitions.get(part.topic, part.partition)
            if partition is None or partition.leading is None or partition.log is None:
                continue
            log = partition.log
            if part.topic_id and part.topic_id != partition.topic_id.bytes:
                continue  # it follows another topic of that name
            if part.current_leader_epoch != partition.leader_epoch or self._diverging(log, part):
                continue  # its log end says nothing about this epoch's log yet
            if not log.log_start_offset <= part.fetch_offset <= log.log_end_offset:
                continue  # nor does one that this log does not have; the follower will begin anew
            if not partition.leading.is_replica(request.replica_id):
                continue
            partition.leading.fetched(
                request.replica_id, request.broker_epoch, part.fetch_offset, log.log_end_offset, now_ms
            )
            if self._partitions.advance(partition):
                if self._near is None:
                    self.grew(partition.key)
                else:
                    self.changed(partition.key)  # followers are told, for consumers that wait there
                self._advanced(partition.key)

    @staticmethod
    def _diverging(log: Log, part: FetchPartition) -> tuple[int, int] | None:
        if part.last_fetched_epoch < 0:
            return None
        return diverging_epoch(
            part.last_fetched_epoch, part.fetch_offset, *log.offset_for_leader_epoch(part.last_fetched_epoch)
        )

    def _reply(
        self,
        version: int,
        correlation_id: int,
        request: FetchRequest,
        results: list[FetchResult[FileSlice]],
        session: FetchSession | None,
        meter: Meter | None,
    ) -> list[Part]:
        self._fetches.value += 1
        if request.replica_id >= 0:
            self._told(request.replica_id, results)
        session_id = throttle_ms = 0
        if session is not None:
            results, session_id = session.news(results), session.session_id
        for result in results:
            self._bytes.value += result.records_bytes
        if meter is not None:
            throttle_ms = meter.fetched(sum(result.records_bytes for result in results))
        return encode_response(version, correlation_id, results, session_id=session_id, throttle_time_ms=throttle_ms)

    def _read(self, request: FetchRequest) -> tuple[list[FetchResult[FileSlice]], int, bool]:
        """Return the answer as of now, its bytes, and whether waiting cannot change it."""
        budget = min(request.max_bytes, self._max_bytes)
        share = self._throttles.share() if request.replica_id >= 0 else None
        results: list[FetchResult[FileSlice]] = []
        found_bytes = 0
        is_final = not request.partitions
        for part in request.partitions:
            result = self._read_partition(request, part, budget - found_bytes, share, is_first=not found_bytes)
            results.append(result)
            found_bytes += result.records_bytes
            is_final = (
                is_final
                or result.error is not ErrorCode.NONE
                or result.diverging is not None
                or result.preferred_read_replica >= 0
            )
        if not is_final and request.replica_id >= 0 and self._near is not None:
            is_final = self._is_news(request.replica_id, results)
        return results, found_bytes, is_final

    def _is_news(self, replica_id: int, results: list[FetchResult[FileSlice]]) -> bool:
        """Whether a follower does not know a high watermark yet, for which consumers wait there."""
        for result in results:
            leading = self._leading(result, replica_id)
            if leading is not None and leading.progress(replica_id).high_watermark_told < result.high_watermark:
                return True
        return False

    def _told(self, replica_id: int, results: list[FetchResult[FileSlice]]) -> None:
        for result in results:
            leading = self._leading(result, replica_id)
            if leading is None:
                continue
            if self._near is not None:
                leading.progress(replica_id).high_watermark_told = result.high_watermark
            if result.records_bytes:
                key = (result.topic, result.partition)
                self._throttles.sent(key, result.records_bytes, is_awaited=leading.waits_for(replica_id))

    def _leading(self, result: FetchResult[FileSlice], replica_id: int) -> Leader | None:
        partition = self._partitions.get(result.topic, result.partition)
        leading = None if partition is None else partition.leading
        return leading if leading is not None and leading.is_replica(replica_id) else None

    def _read_partition(
        self, request: FetchRequest, part: FetchPartition, budget: int, share: Share | None, *, is_first: bool
    ) -> FetchResult[FileSlice]:
        result: FetchResult[FileSlice] = FetchResult(part.topic, part.partition)
        try:
            find = self._partitions.replica if request.may_read_followers else self._partitions.leader
            partition, log = find(part.topic, part.partition)
            if part.topic_id:
                self._check_topic_id(request.replica_id, part, partition)
                result.topic_id = part.topic_id
            check_leader_epoch(part.current_leader_epoch, partition.leader_epoch)
            if not request.knows_zstd and log.config.compression_type == "zstd":
                # Asked of the topic, not of its batches, as Apache Kafka does: nothing of the segment is read for it.
                raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{part.topic} is kept in zstd; fetch by v10")
            result.high_watermark = result.last_stable_offset = log.high_watermark
            result.log_start_offset = log.log_start_offset
            is_follower = request.replica_id >= 0
            if is_follower:
                result.diverging = self._diverging(log, part)
                if share is not None and not _is_out_of(share, request.replica_id, partition):
                    share = None
                if result.diverging is not None or (share is not None and share.left <= 0):
                    return result
            elif partition.leading is None:
                check_known_offset(part.fetch_offset, log)
            elif self._near is not None and request.rack_id:
                result.preferred_read_replica = self._near.replica_for(request.rack_id, partition, part.fetch_offset)
                if result.preferred_read_replica >= 0:
                    return result
            upper_bound = log.log_end_offset if is_follower else log.high_watermark
            limit = min(part.max_bytes, budget)
            # The first batch of the first partition that has one goes whole, whatever the limits, so that no
            # consumer is stuck before a batch larger than its buffer (trap 26).
            is_whole = is_first
            if share is not None:
                limit = min(limit, share.left)
                is_whole |= limit > 0  # nor a follower before one larger than its share
            found = (
                log.read(part.fetch_offset, limit, upper_bound_offset=upper_bound, min_one_batch=is_whole)
                if is_whole or limit > 0
                else None
            )
            if found is not None:
                if share is not None:
                    share.left -= found.size_bytes
                result.records = found
                result.records_bytes = found.size_bytes
        except ApiError as error:
            result.error = error.code
        except StorageError as error:
            _logger.error("read failed partition=%s-%d reason=%s", part.topic, part.partition, error)
            result.error = ErrorCode.KAFKA_STORAGE_ERROR
        return result

    def _check_topic_id(self, replica_id: int, part: FetchPartition, partition: Partition) -> None:
        """Refuse a follower that means another topic of this name.

        Raises:
            ApiError: INCONSISTENT_TOPIC_ID if the topic that it means has another name, else UNKNOWN_TOPIC_ID: one of
                us has not heard yet that the topic was deleted and made again.
        """
        place = (replica_id, partition.key)
        if part.topic_id == partition.topic_id.bytes:
            if self._mistaken:
                self._mistaken.pop(place, None)
            return
        meant = UUID(bytes=part.topic_id)
        message = f"{partition.key} has topic id {topic_id_text(partition.topic_id)}, not {topic_id_text(meant)}"
        if self._mistaken.get(place) != part.topic_id:
            self._mistaken[place] = part.topic_id  # it asks again and again until one of us has heard
            _logger.warning("fetch refused follower=%d reason=%s", replica_id, message)
        named = self._partitions.image.topic_by_id(meant)
        is_elsewhere = named is not None and named.name != part.topic
        raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_ID, message)


def _is_out_of(share: Share, replica_id: int, partition: Partition) -> bool:
    leading = partition.leading
    return leading is not None and share.covers(partition.key, is_awaited=leading.waits_for(replica_id))


class NearReplicas:
    """Which follower is nearer to a consumer than we, its partition's leader, are."""

    def __init__(self, broker_id: int, partitions: Partitions) -> None:
        self._broker_id = broker_id
        self._partitions = partitions

    def replica_for(self, rack: str, partition: Partition, fetch_offset: int) -> int:
        """Return the broker to read from, -1 for us."""
        leading, brokers = partition.leading, self._partitions.image.brokers
        if leading is None or self._broker_id not in brokers:
            return -1
        followers = (
            Candidate(one, brokers[one].rack, leading.progress(one).log_end_offset)
            for one in leading.isr
            if one in brokers and leading.is_replica(one)
        )
        found = nearer_replica(rack, brokers[self._broker_id].rack, followers, fetch_offset)
        return -1 if found is None else found


def check_known_offset(offset: int, log: Log) -> None:
    """Refuse an offset that a follower's log may just not have yet; the consumer then asks the leader (trap 34).

    Raises:
        ApiError: OFFSET_NOT_AVAILABLE.
    """
    if offset > log.log_end_offset:
        message = f"offset {offset} is beyond {log.log_end_offset}, where this follower's log ends for now"
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, message)


def check_leader_epoch(claimed: int, actual: int) -> None:
    """Compare the leader epoch a client has in mind with ours; -1 means that it does not care (trap 32).

    Raises:
        ApiError: it is behind, or ahead of us.
    """
    if claimed == -1 or claimed == actual:
        return
    if claimed < actual:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {claimed} is over, now {actual}")
    raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {claimed} is not known here yet, now {actual}")

"""Fetch, from frame to frame: the read half of the hot path.

A reply is a head and file slices.  A request is parsed and its session found here; what it gets is read in `reading`,
and where that is too little it waits in `waiting`, to be read again from the start.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import NamedTuple

from pylog.broker.data.feeds import SWEEP_MS, Feed
from pylog.broker.data.partitions import Partitions
from pylog.broker.data.progress import FollowerFetches
from pylog.broker.data.reading import NearReplicas, Reader, Reading
from pylog.broker.data.sessions import FINAL_EPOCH, FetchSession, FetchSessions
from pylog.broker.data.throttles import Throttles
from pylog.broker.data.topic_bytes import TopicBytes
from pylog.broker.data.waiting import WaitingFetch, WaitingFetches
from pylog.broker.error_counts import ErrorCounts
from pylog.broker.large import PART_ELEMENTS, RESULT_BYTES, Workshop
from pylog.broker.latency import Latency, now_ns
from pylog.broker.quotas import Meter
from pylog.broker.tasks import Tasks
from pylog.errors import ApiError, ErrorCode, TooManyElements
from pylog.log.segment import FileSlice
from pylog.metrics import Metrics
from pylog.net.connection import Connection, Part
from pylog.security.authorizer import Subject
from pylog.wire.api import ApiKey, RequestHeader
from pylog.wire.fetch import Feeding, FetchRequest, FetchResult, encode_response, parse_request
from pylog.wire.primitives import MAX_ELEMENTS

_logger = logging.getLogger(__name__)

MAX_SESSION_ID = 2**31 - 1
IMPOSTORS_REST_MS = 60_000
"""How long the log is silent about further clients that say they are a broker."""

_CONSUMER = -1
_DEBUGGING_CONSUMER = -2
_FETCH = int(ApiKey.FETCH)
# Looked up for every request: a member of an enum costs several times a name of the module.
_NOT_FED, _NONE = Feeding.NO, ErrorCode.NONE


class FetchHandler:
    """Answers consumers and followers, now or when there is something to say.

    Attributes:
        workshop: where fetches of many partitions are worked on; None handles them whole.
    """

    def __init__(
        self,
        partitions: Partitions,
        metrics: Metrics,
        *,
        max_bytes: int,
        now_ms: Callable[[], int],
        throttles: Throttles,
        near: NearReplicas | None = None,
    ) -> None:
        """Make it.

        Args:
            partitions: hosted here.
            metrics: where to count.
            max_bytes: most bytes of one reply.
            now_ms: the clock.
            throttles: what followers that catch up may be sent.
            near: where consumers are sent to; None keeps them at the leader.
        """
        self.reader = Reader(partitions, throttles, max_bytes=max_bytes, near=near)
        self.waiting = WaitingFetches(partitions, now_ms, self._look, tells_high_watermarks=near is not None)
        self._progress = FollowerFetches(partitions)
        self._now_ms = now_ms
        self._impostors_rest_ms = 0
        self._latency = Latency(metrics)
        self._errors = ErrorCounts(metrics)
        self._sessions = FetchSessions(lambda: 1 + secrets.randbelow(MAX_SESSION_ID))
        self._bytes = metrics.counter("pylog_fetch_bytes_total", "Bytes of record batches sent to consumers.")
        help = "Bytes of record batches sent to consumers, by topic."
        self._topic_bytes = TopicBytes("pylog_topic_fetch_bytes_total", help, partitions, metrics).counts
        self.workshop: Workshop | None = None
        self._tasks = Tasks()
        self._fetches = metrics.counter("pylog_fetch_requests_total", "Fetch requests answered.")
        metrics.gauge("pylog_fetch_sessions", "Incremental fetch sessions.", read=lambda: len(self._sessions))
        metrics.gauge("pylog_fetch_delayed", "Fetches waiting for data.", read=lambda: len(self.waiting))

    def handle(
        self,
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
        follower: int = _CONSUMER,
        meter: Meter | None = None,
        proven_ms: int | None = None,
        subject: Subject | None = None,
    ) -> list[Part] | None:
        """Answer at once, or promise to.

        Args:
            connection: where the request came in.
            header: its header.
            frame: the request.
            follower: the broker at the other end, if one has proven to be.
            meter: counts what a consumer gets, if a quota governs it.
            proven_ms: when that broker was told that its proof is right, now if None.
            subject: decides what a client may read; None for a broker, and where everybody may read everything.
        """
        version = header.api_version
        try:
            most = PART_ELEMENTS if follower == _CONSUMER else MAX_ELEMENTS
            request = parse_request(frame, version, header.body_offset, most)
        except TooManyElements:
            if self.workshop is None or follower != _CONSUMER:
                raise
            work = self._handle_many(self.workshop, connection, header, connection.hold(frame), meter, subject)
            self._tasks.spawn(work)
            return None
        if request.replica_id not in (follower, _CONSUMER, _DEBUGGING_CONSUMER):
            return encode_response(version, header.correlation_id, self._refused(request, connection))
        if request.feeding is not _NOT_FED:
            return self._feed(connection, version, header.correlation_id, request, proven_ms)
        if request.replica_id >= 0:
            self._progress.note(request, self._now_ms())
        session = None
        if request.session_id or request.session_epoch != FINAL_EPOCH:
            try:
                session = self._sessions.apply(request, self._now_ms(), connection.session.principal)
            except ApiError as error:
                return encode_response(version, header.correlation_id, [], error=error.code)
        if meter is not None:
            request.max_bytes = int(min(request.max_bytes, meter.fetch_max_bytes))
        if len(request.partitions) > PART_ELEMENTS and self.workshop is not None and follower == _CONSUMER:
            connection.hold(frame)  # a session has many, however few the request names
            fetch = self._begin_many(connection, header, request, session, meter, subject)
            self._tasks.spawn(self._look_and_release(self.workshop, fetch))
            return None
        reading = self.reader.read(request, subject)
        if reading.found_bytes >= request.min_bytes or request.max_wait_ms <= 0 or reading.is_final:
            parts = self._reply(version, header.correlation_id, request, reading.results, session, meter)
            connection.answered.append(self._latency.fetch)
            return parts
        offsets = {(part.topic, part.partition): part.fetch_offset for part in request.partitions}
        slot = connection.open_slot()
        fetch = WaitingFetch(slot, version, header.correlation_id, request, session, meter, offsets, subject)
        self.waiting.wait(fetch, request.max_wait_ms)
        return None

    def forget(self, connection: Connection) -> None:
        """Drop what a closed connection waited for."""
        self.waiting.forget(connection)

    def _look(self, fetch: WaitingFetch, is_late: bool) -> list[Part] | None:
        """Read a fetch that waited again; see `pylog.broker.data.waiting`."""
        request, session = fetch.request, fetch.session
        if len(request.partitions) > PART_ELEMENTS and self.workshop is not None and request.replica_id < 0:
            fetch.has_changed = True
            fetch.is_late |= is_late
            if not fetch.is_looked_at:
                fetch.is_looked_at = True
                self._tasks.spawn(self._look_again(self.workshop, fetch))
            return None
        if isinstance(session, Feed):
            if is_late:
                session.sweep()
            parts = self._answer_feed(fetch.version, fetch.correlation_id, request, session, is_late=is_late)
            if parts is not None:
                self._latency.follower_fetch.observe_ns(_beyond_wait_ns(fetch))
            return parts
        reading = self.reader.read(request, fetch.subject)  # asked again: an ACL may have changed meanwhile
        if reading.found_bytes < request.min_bytes and not reading.is_final and not is_late:
            return None
        parts = self._reply(fetch.version, fetch.correlation_id, request, reading.results, session, fetch.meter)
        self._latency.fetch.observe_ns(_beyond_wait_ns(fetch))
        return parts

    # -- thousands of partitions -------------------------------------------------------------------------------------

    def _refused(self, request: FetchRequest, connection: Connection) -> list[FetchResult[FileSlice]]:
        """Return the answer to a client that says it is a broker, which the log tells of once a minute."""
        if self._now_ms() >= self._impostors_rest_ms:
            self._impostors_rest_ms = self._now_ms() + IMPOSTORS_REST_MS
            message = "fetch refused peer=%s reason=it calls itself broker %d, and did not prove it"
            _logger.warning(message, connection.peer, request.replica_id)
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return [FetchResult(part.topic, part.partition, code, topic_id=part.topic_id) for part in request.partitions]

    async def _handle_many(
        self,
        workshop: Workshop,
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
        meter: Meter | None,
        subject: Subject | None,
    ) -> None:
        """Answer a consumer as `handle` does, some partitions in a turn; *connection* is held meanwhile."""
        version, reader = header.api_version, connection.session
        async with workshop.working(connection, len(frame), "fetch"):
            request = await workshop.in_thread(reader, parse_request, frame, version, header.body_offset)
            session: FetchSession | None = None
            refusal: list[FetchResult[FileSlice]] = []
            error = _NONE
            if request.replica_id not in (_CONSUMER, _DEBUGGING_CONSUMER):
                refusal = self._refused(request, connection)
            elif request.session_id or request.session_epoch != FINAL_EPOCH:
                try:
                    session = self._sessions.apply(request, self._now_ms(), reader.principal)
                except ApiError as fault:
                    error = fault.code
            if refusal or error is not _NONE:
                connection.open_slot().complete(encode_response(version, header.correlation_id, refusal, error=error))
                return
            if meter is not None:
                request.max_bytes = int(min(request.max_bytes, meter.fetch_max_bytes))
            fetch = self._begin_many(connection, header, request, session, meter, subject)
            await self._look_in_turns(workshop, fetch)

    def _begin_many(
        self,
        connection: Connection,
        header: RequestHeader,
        request: FetchRequest,
        session: FetchSession | None,
        meter: Meter | None,
        subject: Subject | None,
    ) -> WaitingFetch:
        """Let a fetch wait before it is read for the first time, so that nothing is missed between two turns."""
        offsets = {(part.topic, part.partition): part.fetch_offset for part in request.partitions}
        slot, version = connection.open_slot(), header.api_version
        fetch = WaitingFetch(slot, version, header.correlation_id, request, session, meter, offsets, subject)
        fetch.is_looked_at = True
        fetch.is_late = request.max_wait_ms <= 0
        if not fetch.is_late:
            self.waiting.wait(fetch, request.max_wait_ms)
        return fetch

    async def _look_and_release(self, workshop: Workshop, fetch: WaitingFetch) -> None:
        size_bytes = len(fetch.request.partitions) * RESULT_BYTES
        async with workshop.working(fetch.slot.connection, size_bytes, "fetch"):
            await self._look_in_turns(workshop, fetch)

    async def _look_again(self, workshop: Workshop, fetch: WaitingFetch) -> None:
        async with workshop.room.hold(fetch.slot.connection.session, len(fetch.request.partitions) * RESULT_BYTES):
            await self._look_in_turns(workshop, fetch)

    async def _look_in_turns(self, workshop: Workshop, fetch: WaitingFetch) -> None:
        """Read a fetch until it can be answered, or nothing happened to its partitions while they were read."""
        connection, request = fetch.slot.connection, fetch.request
        held: list[FileSlice] = []
        try:
            while not connection.is_closed:
                fetch.has_changed = False
                reading = await self._read_in_turns(workshop, fetch, held)
                if reading.found_bytes >= request.min_bytes or reading.is_final or fetch.is_late:
                    head = self._account(request, reading.results, fetch.session, fetch.meter)
                    parts = await workshop.in_thread(
                        connection.session, _encode, fetch.version, fetch.correlation_id, head
                    )
                    self.waiting.answer(fetch, parts)
                    self._latency.fetch.observe_ns(_beyond_wait_ns(fetch))
                    return
                _release(held)
                if not fetch.has_changed and not fetch.is_late:
                    return
        except Exception:  # as above
            _logger.exception("bug in a fetch of many partitions peer=%s", connection.peer)
            connection.close("fetch failed here")
        finally:
            fetch.is_looked_at = False
            _release(held)

    async def _read_in_turns(self, workshop: Workshop, fetch: WaitingFetch, held: list[FileSlice]) -> Reading:
        """Read all partitions, some in a turn; add what is found to *held*, which keeps its files open."""
        request, session = fetch.request, fetch.slot.connection.session
        results: list[FetchResult[FileSlice]] = []
        found_bytes, is_final, busy_ns = 0, not request.partitions, 0
        for at in range(0, len(request.partitions), PART_ELEMENTS):
            async with workshop.places.hold(session):
                began_ns = now_ns()
                partitions = request.partitions[at : at + PART_ELEMENTS]
                found = self.reader.read(request, fetch.subject, partitions, found_bytes)
                for result in found.results:
                    if result.records is not None:
                        result.records.acquire()
                        held.append(result.records)
                busy_ns += now_ns() - began_ns
            results += found.results
            found_bytes, is_final = found.found_bytes, is_final or found.is_final
            await asyncio.sleep(0)
        if fetch.meter is not None:
            fetch.meter.worked_on(busy_ns / 1e9)
        return Reading(results, found_bytes, is_final)

    async def close(self) -> None:
        """End what is still being read."""
        await self._tasks.stop()

    # -- followers ---------------------------------------------------------------------------------------------------

    def _feed(
        self, connection: Connection, version: int, correlation_id: int, request: FetchRequest, proven_ms: int | None
    ) -> list[Part] | None:
        """Answer a follower whose list of partitions we keep; see `pylog.broker.data.feeds`."""
        now_ms = self._now_ms()
        try:
            feed = self.waiting.feeds.apply(connection, request, now_ms, now_ms if proven_ms is None else proven_ms)
        except ApiError as error:
            return encode_response(version, correlation_id, [], error=error.code)
        if request.broker_epoch != feed.broker_epoch:
            feed.broker_epoch = request.broker_epoch  # it registered anew, and each partition has to know
            request.partitions = list(feed.partitions.values())
        elif now_ms - feed.swept_ms >= SWEEP_MS:
            feed.swept_ms = now_ms
            request.partitions += feed.sweep()
        self._progress.note(request, now_ms, feed.alive)
        parts = self._answer_feed(version, correlation_id, request, feed, is_late=request.max_wait_ms <= 0)
        if parts is None:
            fetch = WaitingFetch(connection.open_slot(), version, correlation_id, request, feed, None, {})
            self.waiting.wait(fetch, request.max_wait_ms)
        else:
            connection.answered.append(self._latency.follower_fetch)
        return parts

    def _answer_feed(
        self, version: int, correlation_id: int, request: FetchRequest, feed: Feed, *, is_late: bool
    ) -> list[Part] | None:
        """Return the answer, or None if there is none yet."""
        request.partitions = feed.wanted()
        reading = self.reader.read(request)
        results = reading.results
        # Nothing is due: that is no reason to answer, as a request about nothing would be.
        is_final = reading.is_final and bool(results)
        done = []
        for part, result in zip(request.partitions, results, strict=True):
            key, has_more = (part.topic, part.partition), self.reader.has_more(part)
            is_fault = result.error is not _NONE
            is_final |= feed.starts_later(part, result.log_start_offset)
            if not has_more and not is_fault and result.diverging is None:
                feed.idle.add(key)
            if result.records_bytes or is_fault or not has_more:
                # What did not fit comes next; what was told comes again when the follower names it.
                done.append(key)
        if reading.found_bytes < request.min_bytes and not is_final and not is_late:
            return None
        parts = self._reply(version, correlation_id, request, results, feed, None)
        feed.done(done)
        return parts

    def _reply(
        self,
        version: int,
        correlation_id: int,
        request: FetchRequest,
        results: list[FetchResult[FileSlice]],
        session: FetchSession | None,
        meter: Meter | None,
    ) -> list[Part]:
        return _encode(version, correlation_id, self._account(request, results, session, meter))

    def _account(
        self,
        request: FetchRequest,
        results: list[FetchResult[FileSlice]],
        session: FetchSession | None,
        meter: Meter | None,
    ) -> "_Reply":
        """Return what is told of *results*, now that they are sent."""
        self._fetches.value += 1
        if request.replica_id >= 0:
            self.reader.told(request.replica_id, results)
        session_id = throttle_ms = 0
        if isinstance(session, Feed):
            session.alive.answered_ms = self._now_ms()
        if session is not None:
            results, session_id = session.news(results), session.session_id
        is_consumer = request.replica_id < 0
        for result in results:
            if is_consumer and result.records_bytes:
                self._bytes.value += result.records_bytes
                self._topic_bytes[result.topic] += result.records_bytes
            if result.error is not _NONE:
                self._errors.note(_FETCH, result.error)
        if meter is not None:
            throttle_ms = meter.fetched(sum(result.records_bytes for result in results))
        return _Reply(results, session_id, throttle_ms)


class _Reply(NamedTuple):
    results: list[FetchResult[FileSlice]]
    session_id: int
    throttle_ms: int


def _encode(version: int, correlation_id: int, reply: _Reply) -> list[Part]:
    results, session_id, throttle_ms = reply
    return encode_response(version, correlation_id, results, session_id=session_id, throttle_time_ms=throttle_ms)


def _release(held: list[FileSlice]) -> None:
    while held:
        held.pop().release()


def _beyond_wait_ns(fetch: WaitingFetch) -> int:
    return now_ns() - fetch.slot.read_ns - fetch.request.max_wait_ms * 1_000_000

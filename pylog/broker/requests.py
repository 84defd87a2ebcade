"""From a frame to its handler: every request of every client passes here.

Produce and Fetch go straight to their own handlers.  The rest is decoded into a message, handed to the function named
for its API in `apis.py`, and answered when that function is done, which may be later.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pylog.broker import large
from pylog.broker.apis import APIS, Cluster
from pylog.broker.data.fetch import FetchHandler
from pylog.broker.data.produce import ProduceHandler
from pylog.broker.error_counts import ErrorCounts
from pylog.broker.handler import Caller
from pylog.broker.latency import Latency, now_ns
from pylog.broker.places import RoomHolder
from pylog.broker.quotas import Meter, Quotas
from pylog.broker.tasks import Tasks
from pylog.cluster.formats import features_of
from pylog.errors import ApiError, ProtocolError
from pylog.metrics import Counter, Metrics
from pylog.net.connection import Connection, Part, Slot
from pylog.security.authorizer import Subject
from pylog.wire import produce
from pylog.wire.api import SERVED, ApiKey, Message, RequestHeader, encode_response, is_served, parse_request_header
from pylog.wire.api.message import Request
from pylog.wire.api.versions import answer_api_versions, client_software

_logger = logging.getLogger(__name__)

_PRODUCE = int(ApiKey.PRODUCE)
_FETCH = int(ApiKey.FETCH)
_PRODUCE_ROW = SERVED[ApiKey.PRODUCE]
_FETCH_ROW = SERVED[ApiKey.FETCH]
_WITHOUT_THROTTLE = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.WRITE_TXN_MARKERS})
# As plain numbers: every request is compared with them.
_PRODUCE_FROM, _PRODUCE_TO = _PRODUCE_ROW.min_served, _PRODUCE_ROW.max_advertised
_FETCH_FROM, _FETCH_TO = _FETCH_ROW.min_served, _FETCH_ROW.max_advertised


class Requests:
    """The broker's `FrameHandler` on the client listener."""

    def __init__(
        self, cluster: Cluster, produce: ProduceHandler, fetch: FetchHandler, quotas: Quotas, metrics: Metrics
    ) -> None:
        self._cluster = cluster
        self._authorizer = cluster.authorizer
        self._quotas = quotas
        self._produce = produce
        self._fetch = fetch
        self._counters: Mapping[int, Counter] = {
            int(key): metrics.counter("pylog_requests_total", "Requests by API.", api=key.name.lower())
            for key in SERVED
        }
        self._produced, self._fetched = self._counters[_PRODUCE], self._counters[_FETCH]
        self._names: Mapping[int, str] = {int(key): key.name.lower() for key in SERVED}
        self._latency = Latency(metrics)
        self._errors = ErrorCounts(metrics)
        self._workshop = produce.workshop = fetch.workshop = large.Workshop()
        self._tasks = Tasks()

    def on_frame(self, connection: Connection, frame: memoryview) -> list[Part] | None:
        """Handle one request; see `FrameHandler`."""
        header = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        meter = self._quotas.meter(connection, header.client_id or "") if self._quotas.is_any else None
        subject = None
        if self._authorizer is not None:
            rights = connection.rights
            if rights is None or rights[0] is not connection.session:  # a login replaces it
                rights = connection.rights = connection.session, self._authorizer.subject(connection.session)
            subject = rights[1]
        try:
            if key == _PRODUCE and _PRODUCE_FROM <= version <= _PRODUCE_TO:
                self._produced.value += 1
                return self._produce.handle(connection, header, frame, meter, subject)
            if key == _FETCH and _FETCH_FROM <= version <= _FETCH_TO:
                self._fetched.value += 1
                return self._fetch.handle(connection, header, frame, meter=meter, subject=subject)
            return self._control(connection, header, frame, meter, subject)
        except ProtocolError:
            raise
        except Exception as error:
            # A bug of ours must cost one client its connection, not everybody the broker.
            _logger.exception("bug api_key=%d version=%d peer=%s", key, version, connection.peer)
            raise ProtocolError(f"request {key} version {version} failed here: {error!r}") from error
        finally:
            if meter is not None:
                meter.worked()

    def on_closed(self, connection: Connection) -> None:
        """Forget what the connection waited for."""
        self._fetch.forget(connection)

    async def close(self) -> None:
        """End the requests that are still being answered."""
        await self._tasks.stop()
        self._workshop.close()

    def _control(
        self,
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
        meter: Meter | None,
        subject: Subject | None,
    ) -> list[Part] | None:
        key, version = header.api_key, header.api_version
        body = frame[header.body_offset :]
        if key == ApiKey.API_VERSIONS:
            self._counters[key].value += 1
            features = features_of(self._cluster.partitions.image.level)
            reply = _framed(answer_api_versions(header, body, features))
            connection.software = client_software(header, body)
            return reply
        if not is_served(key, version):
            return self._refuse_version(header, body)
        self._counters[key].value += 1
        if len(body) >= large.LARGE_BYTES:
            body = connection.hold(body)
            work = _Work(connection, connection.open_slot(), header, meter)
            self._tasks.spawn(self._answer_large(work, len(body), partial(self._handle_large, work, body, subject)))
            return None
        request_class, handler = APIS[key]  # type: ignore[index]  # as above: an IntEnum key equals its number
        request = request_class.decode(version, body)
        try:
            answer = handler(self._cluster, request, self._caller(connection, header, meter, subject))
        except ApiError as error:
            answer = request.error_response(error.code, str(error))
        if isinstance(answer, Message):
            return self._answer(answer, header, connection.read_ns, meter)
        if isinstance(answer, large.Steps):
            # Many names in few bytes, or many things for each.  What came behind it must not overtake it either.
            connection.hold(body)
            work = _Work(connection, connection.open_slot(), header, meter)
            handling = partial(self._finish_steps, work, request, answer)
            self._tasks.spawn(self._answer_large(work, large.LARGE_BYTES, handling))
            return None
        self._tasks.spawn(self._answer_later(connection, connection.open_slot(), header, request, answer, meter))
        return None

    def _caller(
        self, connection: Connection, header: RequestHeader, meter: Meter | None, subject: Subject | None
    ) -> Caller:
        name = self._names[header.api_key] if subject is not None else ""
        return Caller(header.client_id or "", connection.session, header.api_version, meter, subject, name)

    async def _answer_large(
        self, work: "_Work", size_bytes: int, handle: Callable[[RoomHolder], Awaitable[Message]]
    ) -> None:
        """Handle a large request, and encode its answer, with turns for others in between."""
        connection, header = work.connection, work.header
        async with self._workshop.working(connection, size_bytes, self._names[header.api_key]) as holder:
            response = await handle(holder)
            if work.meter is not None:
                self._throttle(response, work.meter.worked_on(work.busy_ns / 1e9))
            counts, reply = await self._workshop.in_thread(
                connection.session, large.encode, response, header.correlation_id, header.api_version
            )
            for code, count in counts.items():
                self._errors.note(header.api_key, code, count)
            self._latency.by_api[header.api_key].observe_ns(now_ns() - work.slot.read_ns)
            work.slot.complete(_framed(reply))

    async def _handle_large(
        self, work: "_Work", body: memoryview, subject: Subject | None, holder: RoomHolder
    ) -> Message:
        """Decode a large request and handle it, in parts where it can be cut."""
        connection, header = work.connection, work.header
        request_class, handler = APIS[header.api_key]  # type: ignore[index]  # as above
        request = await self._workshop.in_thread(connection.session, request_class.decode, header.api_version, body)
        whole: Message | None = None
        left = large.parts(request)
        part = next(left)
        while True:
            following: large.Part | None = None
            try:
                async with self._workshop.places.hold(connection.session):
                    began_ns = now_ns()
                    try:
                        caller = self._caller(connection, header, work.meter, subject)
                        answer = handler(self._cluster, part.request, caller)
                    finally:
                        following = next(left, None)
                        work.busy_ns += now_ns() - began_ns
                if isinstance(answer, large.Steps):
                    answer = await self._take_steps(work, answer)
                if not isinstance(answer, Message):
                    # What is cut waits for no other request; what is whole may.
                    async with holder.outside(is_bounded=header.api_key in large.CUTS):
                        answer = await answer
            except ApiError as error:
                answer = part.request.error_response(error.code, str(error))
            if whole is None:
                whole = answer
            else:
                large.join(whole, answer, goes_on=part.goes_on)
            if following is None or connection.is_closed:
                return whole
            part = following
            await asyncio.sleep(0)

    async def _finish_steps(self, work: "_Work", request: Request, steps: large.Steps, holder: RoomHolder) -> Message:
        try:
            answer = await self._take_steps(work, steps)
            if isinstance(answer, Message):
                return answer
            async with holder.outside(is_bounded=False):
                return await answer
        except ApiError as error:
            return request.error_response(error.code, str(error))

    async def _take_steps(self, work: "_Work", steps: large.Steps) -> Message | Awaitable[Message]:
        """Take all *steps*, some in a turn; also if the client goes away, as with other requests."""
        while True:
            async with self._workshop.places.hold(work.connection.session):
                began_ns = now_ns()
                try:
                    answer = steps.take_some()
                finally:
                    work.busy_ns += now_ns() - began_ns
            if answer is not None:
                return answer
            await asyncio.sleep(0)

    async def _answer_later(
        self,
        connection: Connection,
        slot: Slot,
        header: RequestHeader,
        request: Request,
        answer: Awaitable[Message],
        meter: Meter | None,
    ) -> None:
        try:
            try:
                response = await answer
            except ApiError as error:
                response = request.error_response(error.code, str(error))
            slot.complete(self._answer(response, header, slot.read_ns, meter))
        except Exception:  # as above: one client's connection
            _logger.exception("bug api_key=%d version=%d", header.api_key, header.api_version)
            connection.close("request failed here")

    def _answer(self, response: Message, header: RequestHeader, read_ns: int, meter: Meter | None) -> list[Part]:
        if meter is not None:
            self._throttle(response, meter.worked())
        self._errors.note_all(header.api_key, response)
        parts = _framed(encode_response(response, header.correlation_id, header.api_version))
        self._latency.by_api[header.api_key].observe_ns(now_ns() - read_ns)
        return parts

    @staticmethod
    def _throttle(response: Message, throttle_ms: int) -> None:
        if response.api_key not in _WITHOUT_THROTTLE:
            response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]

    @staticmethod
    def _refuse_version(header: RequestHeader, body: memoryview) -> list[Part]:
        key, version = header.api_key, header.api_version
        if key == _PRODUCE and 0 <= version < _PRODUCE_ROW.min_served:
            # Advertised for old librdkafka's sake, so a client may send it and is owed an answer.
            refusal = produce.refuse_old_version(body, version)
            if refusal is not None:
                return _framed(header.correlation_id.to_bytes(4, "big", signed=True) + refusal)
        served = SERVED.get(key)  # type: ignore[call-overload]  # an IntEnum key equals its number
        known = f"versions {served.min_served} to {served.max_advertised} are" if served else "no such API is"
        raise ProtocolError(f"request {key} version {version} is not served; {known}")


@dataclass(slots=True)
class _Work:
    """A large request while it is worked on; *busy_ns* is the time of the loop that it took so far."""

    connection: Connection
    slot: Slot
    header: RequestHeader
    meter: Meter | None
    busy_ns: int = 0


def _framed(reply: bytes) -> list[Part]:
    return [len(reply).to_bytes(4, "big") + reply]

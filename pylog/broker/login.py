"""Login by SASL: what a listener with SASL lets through before and after the client has proved who it is.

A connection goes through these stages, each named after what it waits for.  Anything else ends the connection.

    VERSIONS   ApiVersions (once, unless it was refused, and refused a few times at most), or a handshake
    HANDSHAKE  a handshake, which chooses the mechanism
    TOKENS     SaslAuthenticate, until the exchange is over
    RAW        the same after a handshake of version 0: messages without header
    DONE       requests; a handshake begins the next login, if the session has an end, at which the connection ends
    FAILED     nothing: the answer is held back for a while, then the connection is closed

Before the login a frame is small, and a client that fails is answered late.  Neither costs the loop more than a timer.

Source: KIP-43, KIP-152, KIP-368; `SaslServerAuthenticator` of Apache Kafka 3.9 for the order.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from pylog.broker.apis import APIS
from pylog.broker.latency import now_ns
from pylog.broker.tasks import Tasks
from pylog.errors import ErrorCode, ProtocolError
from pylog.metrics import Counter, Metrics
from pylog.net.connection import Connection, FrameHandler, Part, Slot
from pylog.security.exchange import Exchange, LoginFailed, Step
from pylog.security.principal import NEVER_NS, USER, Principal
from pylog.wire.api import ApiKey, Message, RequestHeader, encode_response, is_served, parse_request_header
from pylog.wire.api.message import Request
from pylog.wire.api.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from pylog.wire.api.table import SERVED
from pylog.wire.api.versions import Features, answer_api_versions, client_software

_RequestT = TypeVar("_RequestT", bound=Request)

_logger = logging.getLogger(__name__)

MIN_RENEWAL_NS = 1_000_000_000
"""A client that logs in again earlier than this is refused, as with Kafka: it could do nothing else for ever."""

MAX_VERSIONS_REFUSALS = 5
"""Of one connection before its login.  A client whose version is not served asks once more, with the version that the
answer names; one that repeats what was refused could go on until the login times out."""

SLOW_STEPS_AT_ONCE = 2
"""Threads for steps that compute for milliseconds; they are not those that read cold bytes of logs."""

LOGINS = ("pylog_logins_total", "counter", "Logins by listener, mechanism and result.")
"""Name, kind and help of what counts them."""

_HANDSHAKE_KEY = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")
_AUTHENTICATE_KEY = int(ApiKey.SASL_AUTHENTICATE).to_bytes(2, "big")


class Stage(Enum):
    """See the module."""

    VERSIONS = "versions"
    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    RAW = "raw"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class _Login:
    """How far one connection is.

    Attributes:
        mechanism: that was chosen last.
        exchange: under way, or None.
        is_busy: a step runs in a thread.
        before: the principal that logs in again, or None at the first login.
        versions_refusals: how many ApiVersions requests were refused.
    """

    stage: Stage = Stage.VERSIONS
    mechanism: str = ""
    exchange: Exchange | None = None
    is_busy: bool = False
    before: Principal | None = None
    versions_refusals: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLimits:
    """Limits of logins on one listener.

    Attributes:
        failure_delay_ms: how long a failed login waits for its answer and its end.
        max_reauth_ms: longest session, 0 for no limit but that of the credential.
    """

    failure_delay_ms: int
    max_reauth_ms: int


class Logins:
    """The `FrameHandler` of a listener with SASL; hands requests on to another one after the login."""

    def __init__(
        self,
        listener_name: str,
        requests: FrameHandler,
        mechanisms: Mapping[str, Callable[[], Exchange]],
        limits: LoginLimits,
        metrics: Metrics,
        *,
        features: Callable[[], Features] = Features,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """Make it.

        Args:
            listener_name: for log lines and metrics.
            requests: handles frames of clients that have logged in.
            mechanisms: by their SASL names, what begins an exchange.
            limits: see there.
            metrics: where logins are counted.
            features: what clients are told to be in force.
            wall_s: the time that expiries of credentials are compared with.
        """
        self._listener_name = listener_name
        self._requests = requests
        self._mechanisms = mechanisms
        self._limits = limits
        self._features = features
        self._wall_s = wall_s
        self._tasks = Tasks()
        self._threads = ThreadPoolExecutor(SLOW_STEPS_AT_ONCE, f"login-{listener_name}")
        self._succeeded = {name: _counter(metrics, listener_name, name, "succeeded") for name in mechanisms}
        self._failed = {name: _counter(metrics, listener_name, name, "failed") for name in (*mechanisms, "")}

    def on_frame(self, connection: Connection, frame: memoryview) -> list[Part] | None:
        """Handle one frame; see `FrameHandler`."""
        login = connection.state
        if login is None:
            login = connection.state = _Login()
        assert isinstance(login, _Login)
        if login.stage is Stage.DONE:
            key = frame[:2]
            if key == _HANDSHAKE_KEY:
                return self._renew(connection, login, frame)
            if key != _AUTHENTICATE_KEY:
                return self._requests.on_frame(connection, frame)
        return self._on_login_frame(connection, login, frame)

    def on_closed(self, connection: Connection) -> None:
        """Forget what the connection waited for."""
        self._requests.on_closed(connection)

    async def close(self) -> None:
        """End the logins that are under way."""
        await self._tasks.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- one frame of a login ------------------------------------------------------------------------------------

    def _on_login_frame(self, connection: Connection, login: _Login, frame: memoryview) -> list[Part] | None:
        if login.stage is Stage.FAILED:
            return None  # it came with the message that failed, in one read
        if login.is_busy:
            raise ProtocolError("message of a login before the answer to the one before it")
        if login.stage is Stage.RAW:
            return self._step(connection, login, None, bytes(frame))
        header = parse_request_header(frame)
        body = frame[header.body_offset :]
        if login.stage is Stage.TOKENS:
            return self._authenticate(connection, login, header, body)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(connection, login, header, body)
        if header.api_key == ApiKey.SASL_AUTHENTICATE and login.stage is Stage.DONE:
            return self._refuse_in_place(header, body, SaslAuthenticateRequest)
        if header.api_key != ApiKey.API_VERSIONS or login.stage is not Stage.VERSIONS:
            raise ProtocolError(f"request {header.api_key} before the login")
        if login.versions_refusals >= MAX_VERSIONS_REFUSALS:
            raise ProtocolError(f"ApiVersions was refused {MAX_VERSIONS_REFUSALS} times before the login")
        reply = answer_api_versions(header, body, self._features())
        connection.software = client_software(header, body)
        if _is_answered_well(header, connection.software):
            login.stage = Stage.HANDSHAKE
        else:
            login.versions_refusals += 1
        return _framed(reply)

    def _handshake(
        self, connection: Connection, login: _Login, header: RequestHeader, body: memoryview
    ) -> list[Part] | None:
        request = _decoded(header, body, SaslHandshakeRequest)
        allowed = list(self._mechanisms) if login.before is None else [login.mechanism]
        if request.mechanism not in allowed:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            if login.before is not None:
                code = ErrorCode.SASL_AUTHENTICATION_FAILED
            reply = _encoded(SaslHandshakeResponse(error_code=code, mechanisms=allowed), header)
            reason = f"mechanism {request.mechanism[:64]!r}, wanted {' or '.join(allowed)}"
            self._fail(connection, login, connection.open_slot(), reply, reason)
            return None
        login.mechanism = request.mechanism
        login.exchange = self._mechanisms[request.mechanism]()
        login.stage = Stage.TOKENS if header.api_version else Stage.RAW
        return _encoded(SaslHandshakeResponse(mechanisms=list(self._mechanisms)), header)

    def _authenticate(
        self, connection: Connection, login: _Login, header: RequestHeader, body: memoryview
    ) -> list[Part] | None:
        if header.api_key == ApiKey.SASL_AUTHENTICATE:
            return self._step(connection, login, header, _decoded(header, body, SaslAuthenticateRequest).auth_bytes)
        row = APIS.get(header.api_key)  # type: ignore[call-overload]  # an IntEnum key equals its number
        if row is None or not is_served(header.api_key, header.api_version):
            raise ProtocolError(f"request {header.api_key} during the login")
        refusal = row[0].decode(header.api_version, body).error_response(ErrorCode.ILLEGAL_SASL_STATE)
        reason = f"request {header.api_key} during the login"
        self._fail(connection, login, connection.open_slot(), _encoded(refusal, header), reason)
        return None

    def _renew(self, connection: Connection, login: _Login, frame: memoryview) -> list[Part] | None:
        header = parse_request_header(frame)
        body = frame[header.body_offset :]
        session = connection.session
        age_ns = connection.read_ns - session.authenticated_at_ns
        if session.expires_at_ns == NEVER_NS or age_ns < MIN_RENEWAL_NS:
            return self._refuse_in_place(header, body, SaslHandshakeRequest)
        login.before = session.principal
        return self._handshake(connection, login, header, body)

    @staticmethod
    def _refuse_in_place(
        header: RequestHeader, body: memoryview, kind: type[SaslHandshakeRequest] | type[SaslAuthenticateRequest]
    ) -> list[Part]:
        """Refuse a login that is not due; the session goes on."""
        return _encoded(_decoded(header, body, kind).error_response(ErrorCode.ILLEGAL_SASL_STATE), header)

    # -- one step of an exchange -----------------------------------------------------------------------------------

    def _step(
        self, connection: Connection, login: _Login, header: RequestHeader | None, message: bytes
    ) -> list[Part] | None:
        exchange = login.exchange
        assert exchange is not None, "a handshake comes first"
        slot = connection.open_slot()
        if exchange.is_slow:
            login.is_busy = True
            self._tasks.spawn(self._step_in_thread(slot, login, header, message, exchange))
            return None
        try:
            self._stepped(slot, login, header, exchange.step(message))
        except LoginFailed as error:
            self._step_failed(slot, login, header, error)
        return None

    async def _step_in_thread(
        self, slot: Slot, login: _Login, header: RequestHeader | None, message: bytes, exchange: Exchange
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            step = await loop.run_in_executor(self._threads, exchange.step, message)
            login.is_busy = False
            if not slot.connection.is_closed:
                self._stepped(slot, login, header, step)
        except LoginFailed as error:
            login.is_busy = False
            if not slot.connection.is_closed:
                self._step_failed(slot, login, header, error)
        except Exception:  # costs one client its connection
            _logger.exception("bug in a login peer=%s", slot.connection.peer)
            slot.connection.close("login failed here")

    def _stepped(self, slot: Slot, login: _Login, header: RequestHeader | None, step: Step) -> None:
        lifetime_ms = 0
        if step.user is not None:
            lifetime_ms = self._enter(slot.connection, login, step.user, step.expires_at_s)
        if header is not None:
            response = SaslAuthenticateResponse(auth_bytes=step.reply, session_lifetime_ms=lifetime_ms)
            slot.complete(_encoded(response, header))
        else:
            slot.complete(_framed(step.reply) if step.reply else [])

    def _enter(self, connection: Connection, login: _Login, user: str, expires_at_s: float | None) -> int:
        """Give the connection its principal; return for how many ms, 0 without a limit.

        Raises:
            LoginFailed: the credential has expired, or another user logged in before.
        """
        principal = Principal(USER, user)
        if login.before not in (None, principal):
            raise LoginFailed(f"{login.before} logs in again as {principal}")
        limits_ms = [self._limits.max_reauth_ms] if self._limits.max_reauth_ms else []
        if expires_at_s is not None:
            limits_ms.append(math.floor((expires_at_s - self._wall_s()) * 1000))
        lifetime_ms = min(limits_ms, default=0)
        if limits_ms and lifetime_ms <= 0:
            raise LoginFailed(f"credential of user {user!r} has expired")
        at_ns = now_ns()
        session = replace(
            connection.session,
            principal=principal,
            authenticated_at_ns=at_ns,
            expires_at_ns=at_ns + lifetime_ms * 1_000_000 if lifetime_ms else NEVER_NS,
        )
        connection.begin_session(session)
        connection.admit()
        login.stage, login.exchange = Stage.DONE, None
        self._succeeded[login.mechanism].value += 1
        return lifetime_ms

    def _step_failed(self, slot: Slot, login: _Login, header: RequestHeader | None, error: LoginFailed) -> None:
        reply: list[Part] = []
        if header is not None:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            reply = _encoded(SaslAuthenticateResponse(error_code=code, error_message=error.public), header)
        self._fail(slot.connection, login, slot, reply, str(error))

    def _fail(self, connection: Connection, login: _Login, slot: Slot, reply: list[Part], reason: str) -> None:
        """Hold the answer back, then send it and close; what the client sends meanwhile is not read."""
        login.stage, login.exchange = Stage.FAILED, None
        self._failed[login.mechanism].value += 1
        _logger.info(
            "login failed listener=%s peer=%s mechanism=%s reason=%s",
            self._listener_name,
            connection.peer,
            login.mechanism or "none",
            reason,
        )
        delay_ms = self._limits.failure_delay_ms
        connection.mute(delay_ms + 1)
        asyncio.get_running_loop().call_later(delay_ms / 1000, _end, slot, reply)


def _end(slot: Slot, reply: list[Part]) -> None:
    slot.complete(reply)
    slot.connection.close()


def _counter(metrics: Metrics, listener: str, mechanism: str, result: str) -> Counter:
    name, _, help = LOGINS
    return metrics.counter(name, help, listener=listener, mechanism=mechanism, result=result)


def _is_answered_well(header: RequestHeader, software: tuple[str, str]) -> bool:
    row = SERVED[ApiKey.API_VERSIONS]
    if header.api_version >= row.flexible_from:
        return software != ("", "")
    return header.api_version >= row.min_served


def _decoded(header: RequestHeader, body: memoryview, kind: type[_RequestT]) -> _RequestT:
    if not is_served(header.api_key, header.api_version):
        raise ProtocolError(f"request {header.api_key} version {header.api_version} is not served")
    return kind.decode(header.api_version, body)


def _encoded(response: Message, header: RequestHeader) -> list[Part]:
    return _framed(encode_response(response, header.correlation_id, header.api_version))


def _framed(reply: bytes) -> list[Part]:
    return [len(reply).to_bytes(4, "big") + reply]

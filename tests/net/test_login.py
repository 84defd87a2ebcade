"""Each stage of a login on a real socket: what is let through, what is answered, and what ends the connection."""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from pylog.broker.login import MAX_VERSIONS_REFUSALS, LoginLimits, Logins
from pylog.errors import ErrorCode
from pylog.metrics import Metrics
from pylog.net.connection import MAX_REQUESTS_IN_FLIGHT, Connection, Part
from pylog.net.listener import Listener, ListenerSecurity
from pylog.security.exchange import INVALID_CREDENTIALS, LoginFailed, Step
from pylog.security.plain import PlainServer
from pylog.security.principal import ANONYMOUS, NEVER_NS, Principal, SecurityProtocol
from pylog.security.scram import CredentialSource, ScramClient, ScramCredential, ScramMechanism, ScramServer
from pylog.wire.api.message import Message, Request
from pylog.wire.api.metadata import MetadataRequest
from pylog.wire.api.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from pylog.wire.api.table import is_flexible
from pylog.wire.api.versions import ApiVersionsRequest, ApiVersionsResponse

SHA_256 = ScramMechanism.SHA_256
USERS = {
    ("alice", SHA_256): ScramCredential.from_password(SHA_256, "secret"),
    ("bob", SHA_256): ScramCredential.from_password(SHA_256, "b"),
}
SOURCE = CredentialSource(lambda user, mechanism: USERS.get((user, mechanism)), b"s")
LOGIN_FRAME = 2000
REQUEST_FRAME = 100_000
NOW_S = 1_800_000_000.0


class Expiring:
    """A mechanism whose only message is the user, and how long the credential still lasts."""

    is_slow: ClassVar[bool] = True

    def step(self, message: bytes) -> Step:
        user, _, lifetime_s = message.decode().partition(" ")
        if not user:
            raise LoginFailed("no user")
        return Step(b"", user, NOW_S + float(lifetime_s))


class Echo:
    """Handles requests of clients that have logged in: answers each with the client's principal."""

    def on_frame(self, connection: Connection, frame: memoryview) -> list[Part] | None:
        answer = str(connection.session.principal).encode()
        return [len(answer).to_bytes(4, "big") + answer]

    def on_closed(self, connection: Connection) -> None:
        pass


@dataclass
class Client:
    """The other end, which sends requests and reads frames."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    listener: Listener
    events: list[str] = field(default_factory=list)

    async def send(self, frame: bytes) -> None:
        self.writer.write(struct.pack(">i", len(frame)) + frame)
        await self.writer.drain()

    async def receive(self) -> bytes | None:
        """Return the next frame, None at the end."""
        try:
            size = struct.unpack(">i", await self.reader.readexactly(4))[0]
            return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None

    async def ask(self, request: Request, version: int) -> Any:
        await self.send(request_frame(request, version))
        frame = await self.receive()
        if frame is None:
            return None
        head = 5 if is_flexible(request.api_key, version) and request.api_key != 18 else 4
        return RESPONSES[type(request)].decode(version, memoryview(frame)[head:])

    async def echo(self) -> bytes | None:
        await self.send(request_frame(MetadataRequest(topics=[]), 1))
        return await self.receive()

    async def handshake(self, mechanism: str = "SCRAM-SHA-256", version: int = 1) -> Any:
        return await self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    async def authenticate(self, message: bytes, version: int = 2) -> Any:
        return await self.ask(SaslAuthenticateRequest(auth_bytes=message), version)

    async def login(self, user: str = "alice", password: str = "secret", version: int = 2) -> Any:
        scram = ScramClient(SHA_256, user, password)
        assert (await self.handshake()).error_code == ErrorCode.NONE
        first = await self.authenticate(scram.first(), version)
        last = await self.authenticate(scram.final(first.auth_bytes), version)
        if last.error_code == ErrorCode.NONE:
            scram.finish(last.auth_bytes)
        return last

    @property
    def connection(self) -> Connection:
        [one] = self.listener.connections
        return one


RESPONSES: Mapping[type[Request], type[Message]] = {
    SaslHandshakeRequest: SaslHandshakeResponse,
    SaslAuthenticateRequest: SaslAuthenticateResponse,
    ApiVersionsRequest: ApiVersionsResponse,
}


def request_frame(request: Request, version: int) -> bytes:
    head = struct.pack(">hhih", request.api_key, version, 7, -1)
    return request.encode(version, head + (b"\0" if is_flexible(request.api_key, version) else b""))


LIMITS = LoginLimits(failure_delay_ms=0, max_reauth_ms=0)


def run(
    test: Callable[[Client], Awaitable[None]],
    limits: LoginLimits = LIMITS,
    *,
    login_timeout_s: float = 20.0,
    max_connections: int = 10,
) -> Metrics:
    """Run *test* with a client that has connected to a listener with SASL_PLAINTEXT; return what was counted."""
    metrics = Metrics()

    async def body() -> None:
        events: list[str] = []
        logins = Logins(
            "client",
            Echo(),
            {
                "SCRAM-SHA-256": lambda: ScramServer(SHA_256, SOURCE),
                "PLAIN": lambda: PlainServer(SOURCE),
                "EXPIRING": Expiring,
            },
            limits,
            metrics,
            wall_s=lambda: NOW_S,
        )

        def no_certificates(certificate: bytes) -> str:
            raise AssertionError(certificate)

        listener = Listener(
            "client",
            logins,
            max_frame_bytes=REQUEST_FRAME,
            max_connections=max_connections,
            on_event=lambda event, peer, reason: events.append(reason),
            security=ListenerSecurity(
                protocol=SecurityProtocol.SASL_PLAINTEXT,
                user_of=no_certificates,
                login_timeout_s=login_timeout_s,
                max_login_frame_bytes=LOGIN_FRAME,
            ),
        )
        port = listener.open("127.0.0.1", 0)
        listener.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.wait_for(test(Client(reader, writer, listener, events)), 20)
            writer.close()
        finally:
            listener.close()
            await logins.close()

    asyncio.run(body())
    return metrics


def logins(metrics: Metrics, mechanism: str = "SCRAM-SHA-256") -> dict[str, float]:
    """Return how many logins by *mechanism* were counted, by their result."""
    labels = {"listener": "client", "mechanism": mechanism}
    return {
        result: metrics.counter("pylog_logins_total", "", result=result, **labels).value
        for result in ("succeeded", "failed")
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_after_the_login_requests_have_the_user_as_principal(version: int) -> None:
    async def test(client: Client) -> None:
        last = await client.login(version=version)
        assert (last.error_code, last.session_lifetime_ms) == (ErrorCode.NONE, 0)
        assert await client.echo() == b"User:alice"
        session = client.connection.session
        assert session.security_protocol is SecurityProtocol.SASL_PLAINTEXT
        assert (session.listener_name, session.client_host) == ("client", "127.0.0.1")
        assert (session.authenticated_at_ns > 0, session.expires_at_ns) == (True, NEVER_NS)

    assert logins(run(test)) == {"succeeded": 1, "failed": 0}


@pytest.mark.parametrize(
    "first",
    [
        request_frame(MetadataRequest(topics=[]), 1),
        request_frame(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), 1),
        struct.pack(">hhih", 0, 9, 1, -1),
        struct.pack(">hhih", 999, 0, 1, -1),
        b"\x60\x82",
        b"",
    ],
)
def test_anything_else_before_the_login_ends_the_connection_without_an_answer(first: bytes) -> None:
    async def test(client: Client) -> None:
        await client.send(first)
        assert await client.receive() is None
        assert client.events

    run(test)


def test_api_versions_comes_once_and_then_a_handshake() -> None:
    async def test(client: Client) -> None:
        assert (await client.ask(ApiVersionsRequest(), 0)).error_code == ErrorCode.NONE
        assert (await client.login()).error_code == ErrorCode.NONE
        # Java's clients ask once more as soon as they have logged in; now the broker's own handler gets it.
        await client.send(request_frame(ApiVersionsRequest(), 0))
        assert await client.receive() == b"User:alice"

    run(test)


def test_a_second_api_versions_ends_the_connection() -> None:
    async def test(client: Client) -> None:
        await client.ask(ApiVersionsRequest(), 0)
        assert await client.ask(ApiVersionsRequest(), 0) is None

    run(test)


def test_api_versions_that_was_refused_may_be_repeated() -> None:
    async def test(client: Client) -> None:
        await client.send(struct.pack(">hhih", 18, 99, 7, -1) + b"\0")
        assert await client.receive() is not None
        bad_name = ApiVersionsRequest(client_software_name="-", client_software_version="1")
        assert (await client.ask(bad_name, 3)).error_code == ErrorCode.INVALID_REQUEST
        assert (await client.ask(ApiVersionsRequest(), 0)).error_code == ErrorCode.NONE
        assert (await client.login()).error_code == ErrorCode.NONE

    run(test)


@pytest.mark.parametrize(
    "refused",
    [
        request_frame(ApiVersionsRequest(client_software_name="", client_software_version=""), 3),
        struct.pack(">hhih", 18, 99, 7, -1) + b"\0",
    ],
    ids=["empty-name", "unknown-version"],
)
def test_api_versions_is_refused_a_few_times_and_then_ends_the_connection(refused: bytes) -> None:
    async def test(client: Client) -> None:
        for _ in range(MAX_VERSIONS_REFUSALS):
            await client.send(refused)
            assert await client.receive() is not None
        await client.send(refused)
        assert await client.receive() is None

    run(test)


def test_an_unknown_mechanism_is_told_the_known_ones_and_closed() -> None:
    async def test(client: Client) -> None:
        answer = await client.handshake("GSSAPI")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["SCRAM-SHA-256", "PLAIN", "EXPIRING"]
        assert await client.receive() is None

    run(test)


def test_another_request_during_the_login_is_refused_in_its_own_form_and_closed() -> None:
    async def test(client: Client) -> None:
        await client.handshake()
        answer = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.receive() is None

    run(test)


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret"), ("alice", "")])
def test_a_wrong_login_is_told_one_sentence_and_closed(
    user: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def test(client: Client) -> None:
        last = await client.login(user, password)
        assert (last.error_code, last.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, INVALID_CREDENTIALS)
        assert await client.receive() is None

    assert logins(run(test)) == {"succeeded": 0, "failed": 1}
    [record] = [one for one in caplog.records if "login failed" in one.message]
    assert "127.0.0.1" in record.message
    assert "secret" not in record.message


def test_a_failure_is_answered_late_while_others_log_in() -> None:
    async def test(client: Client) -> None:
        await client.handshake()
        await client.send(request_frame(SaslAuthenticateRequest(auth_bytes=b"noise"), 1))
        # What the client sends meanwhile is not even looked at.
        await client.send(b"\xff" * 50)
        late = asyncio.create_task(client.receive())
        port = client.writer.get_extra_info("peername")[1]
        other = Client(*await asyncio.open_connection("127.0.0.1", port), client.listener)
        assert (await other.login()).error_code == ErrorCode.NONE
        assert not late.done()
        other.writer.close()
        late.cancel()

    run(test, replace(LIMITS, failure_delay_ms=9_000))


def test_plain_logs_in_by_the_keys_of_scram() -> None:
    async def test(client: Client) -> None:
        await client.handshake("PLAIN")
        assert (await client.authenticate(b"\0alice\0secret")).error_code == ErrorCode.NONE
        assert await client.echo() == b"User:alice"

    run(test)


def test_a_message_before_the_answer_to_the_last_one_ends_the_connection() -> None:
    async def test(client: Client) -> None:
        await client.handshake("PLAIN")
        frame = request_frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 1)
        client.writer.write((struct.pack(">i", len(frame)) + frame) * 2)
        assert await client.receive() is None

    run(test)


def test_the_oldest_clients_send_bare_messages() -> None:
    async def test(client: Client) -> None:
        scram = ScramClient(SHA_256, "alice", "secret")
        assert (await client.handshake(version=0)).error_code == ErrorCode.NONE
        await client.send(scram.first())
        first = await client.receive()
        assert first is not None
        await client.send(scram.final(first))
        last = await client.receive()
        assert last is not None
        scram.finish(last)
        assert await client.echo() == b"User:alice"

    run(test)


def test_a_bare_message_that_fails_ends_the_connection_without_an_answer() -> None:
    async def test(client: Client) -> None:
        await client.handshake("PLAIN", version=0)
        await client.send(b"\0alice\0wrong")
        assert await client.receive() is None

    run(test)


def test_an_empty_answer_to_a_bare_message_is_not_sent() -> None:
    async def test(client: Client) -> None:
        await client.handshake("PLAIN", version=0)
        await client.send(b"\0alice\0secret")
        while client.connection.session.principal == ANONYMOUS:
            await asyncio.sleep(0)
        assert await client.echo() == b"User:alice"

    run(test)


def test_frames_are_small_before_the_login_and_large_after_it() -> None:
    async def large(client: Client) -> None:
        assert (await client.login()).error_code == ErrorCode.NONE
        await client.send(b"\0\3" + b"x" * (REQUEST_FRAME - 2))
        assert await client.receive() == b"User:alice"

    async def too_large(client: Client) -> None:
        client.writer.write(struct.pack(">i", LOGIN_FRAME + 1))
        assert await client.receive() is None
        assert f"1 to {LOGIN_FRAME} are allowed" in client.events[0]

    run(large)
    run(too_large)


def test_a_login_that_takes_too_long_ends_even_if_it_is_muted() -> None:
    async def idle(client: Client) -> None:
        assert await client.receive() is None
        assert client.events == ["login took too long"]
        assert not client.listener.connections

    async def half(client: Client) -> None:
        await client.handshake()
        client.connection.mute(60_000)
        assert await client.receive() is None

    run(idle, login_timeout_s=0.01)
    run(half, login_timeout_s=0.2)


async def connect(client: Client, host: str) -> Client:
    """Connect to the same listener from another address of loopback."""
    port = client.writer.get_extra_info("peername")[1]
    return Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)), client.listener)


def test_half_of_the_connections_are_kept_for_those_who_have_logged_in() -> None:
    async def test(client: Client) -> None:
        others = [await connect(client, f"127.0.0.{number}") for number in (1, 2, 2, 3)]
        assert await others[-1].receive() is None  # the fifth of at most eight, four of which may wait
        assert "4 connections have not logged in yet" in client.events
        assert (await client.login()).error_code == ErrorCode.NONE
        late = await connect(client, "127.0.0.3")
        assert (await late.login()).error_code == ErrorCode.NONE
        for one in (*others, late):
            one.writer.close()

    run(test, max_connections=8)


def test_one_address_cannot_take_all_places_of_those_who_have_not_logged_in() -> None:
    async def test(client: Client) -> None:
        others = [await connect(client, "127.0.0.1") for _ in range(2)]
        assert await others[-1].receive() is None
        assert client.events == ["2 connections of this address have not logged in yet"]
        elsewhere = await connect(client, "127.0.0.2")
        assert (await elsewhere.login()).error_code == ErrorCode.NONE
        others[0].writer.close()
        while len(client.listener.connections) > 2:
            await asyncio.sleep(0)
        again = await connect(client, "127.0.0.1")
        assert (await again.login()).error_code == ErrorCode.NONE
        for one in (elsewhere, again):
            one.writer.close()

    run(test, max_connections=8)


def aged(client: Client, seconds: float) -> None:
    """Let the session have begun earlier."""
    session, age_ns = client.connection.session, int(seconds * 1e9)
    began = replace(
        session,
        authenticated_at_ns=session.authenticated_at_ns - age_ns,
        expires_at_ns=session.expires_at_ns - age_ns,
    )
    client.connection.begin_session(began)


REAUTH = replace(LIMITS, max_reauth_ms=60_000)


def test_a_session_with_an_end_says_so_and_is_renewed() -> None:
    async def test(client: Client) -> None:
        assert (await client.login()).session_lifetime_ms == 60_000
        aged(client, 59)
        assert (await client.login()).session_lifetime_ms == 60_000
        aged(client, 59)
        assert await client.echo() == b"User:alice"

    run(test, REAUTH)


def test_a_connection_that_sends_nothing_is_closed_when_its_session_expires() -> None:
    async def test(client: Client) -> None:
        await client.login()
        aged(client, 61)
        assert await client.receive() is None
        assert client.events == ["session expired"]

    run(test, REAUTH)


def test_a_fetch_that_waits_gets_no_answer_after_the_end_of_the_session() -> None:
    async def test(client: Client) -> None:
        await client.login()
        slot = client.connection.open_slot()
        aged(client, 61)
        asyncio.get_running_loop().call_later(0, lambda: slot.complete([b"\0\0\0\3abc"]))
        assert await client.receive() is None

    run(test, REAUTH)


def test_frames_that_came_before_the_end_of_the_session_are_not_handled_after_it() -> None:
    async def test(client: Client) -> None:
        await client.login()
        connection = client.connection
        slots = [connection.open_slot() for _ in range(MAX_REQUESTS_IN_FLIGHT + 1)]
        frame = request_frame(MetadataRequest(topics=[]), 1)
        client.writer.write((struct.pack(">i", len(frame)) + frame) * 100)
        handled = connection.requests
        while connection.requests == handled:
            await asyncio.sleep(0)
        aged(client, 61)
        for slot in slots:
            asyncio.get_running_loop().call_later(0, slot.complete, [])
        assert await client.receive() is None
        assert connection.requests == handled + 1, "the others waited for the answers in flight"

    run(test, REAUTH)


def test_the_end_of_the_former_session_closes_nothing_after_a_renewal() -> None:
    async def test(client: Client) -> None:
        await client.login()
        aged(client, 61)
        aged(client, -61)  # before the loop came to the former end
        assert await client.echo() == b"User:alice"

    run(test, REAUTH)


def test_another_user_or_mechanism_cannot_take_the_session_over() -> None:
    async def user(client: Client) -> None:
        await client.login()
        aged(client, 2)
        last = await client.login("bob", "b")
        assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.receive() is None

    async def mechanism(client: Client) -> None:
        await client.login()
        aged(client, 2)
        assert (await client.handshake("PLAIN")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.receive() is None

    run(user, REAUTH)
    run(mechanism, REAUTH)


def test_a_login_that_is_not_due_is_refused_and_the_session_goes_on() -> None:
    async def test(client: Client) -> None:
        await client.login()
        assert (await client.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await client.authenticate(b"n,,n=bob,r=x")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.echo() == b"User:alice"

    run(test)  # no session limit
    run(test, REAUTH)  # within a second


@pytest.mark.parametrize(("lifetime_s", "expected_ms"), [(10, 10_000), (100, 60_000)])
def test_a_session_ends_with_its_credential(lifetime_s: float, expected_ms: int) -> None:
    async def test(client: Client) -> None:
        await client.handshake("EXPIRING")
        last = await client.authenticate(f"carol {lifetime_s}".encode())
        assert (last.error_code, last.session_lifetime_ms) == (ErrorCode.NONE, expected_ms)
        session = client.connection.session
        assert session.principal == Principal("User", "carol")
        assert session.expires_at_ns - session.authenticated_at_ns == expected_ms * 1_000_000

    run(test, REAUTH)


def test_a_credential_that_has_expired_does_not_log_in() -> None:
    async def test(client: Client) -> None:
        await client.handshake("EXPIRING")
        assert (await client.authenticate(b"carol -1")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    run(test)


def test_an_answer_that_waits_keeps_its_place_before_a_renewal() -> None:
    async def test(client: Client) -> None:
        await client.login()
        aged(client, 2)
        slot = client.connection.open_slot()  # a fetch that waits
        await client.send(request_frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1))
        slot.complete([b"\0\0\0\3abc"])
        assert await client.receive() == b"abc"

    run(test, REAUTH)

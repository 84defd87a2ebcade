"""TLS on real sockets: bytes arrive whole however they are cut, and only those come in who may."""

import asyncio
import contextlib
import datetime
import os
import shutil
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from cryptography.x509.oid import NameOID

from pylog.client.security import client_context
from pylog.errors import ConfigError
from pylog.log.segment import FileSlice, Segment
from pylog.net.connection import Connection, Part
from pylog.net.listener import Listener, ListenerSecurity
from pylog.security.certificates import parse_rules, user_of
from pylog.security.principal import SecurityProtocol
from pylog.security.server_tls import ServerTls, TlsConfig
from tests.servers.certificates import DAY, HOUR, Authority

ALICE = ((NameOID.ORGANIZATION_NAME, "Org"), (NameOID.COMMON_NAME, "alice"))
RULES = parse_rules("RULE:CN=(.*),O=Org/$1/")


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Handler:
    """Answers each frame as it is told, at first with the frame itself."""

    def __init__(self) -> None:
        self.answer: Callable[[Connection, bytes], list[Part]] = lambda connection, frame: [framed(frame)]

    def on_frame(self, connection: Connection, frame: memoryview) -> list[Part] | None:
        return self.answer(connection, bytes(frame))

    def on_closed(self, connection: Connection) -> None:
        pass


class Server:
    """A listener with SSL on loopback."""

    def __init__(self, tls: ServerTls, *, login_timeout_s: float = 20.0, max_session_ms: int = 0) -> None:
        self.tls = tls
        self.handler = Handler()
        self.events: list[str] = []
        self.listener = Listener(
            "secure",
            self.handler,
            max_frame_bytes=4 << 20,
            max_connections=10,
            on_event=lambda event, peer, reason: self.events.append(reason),
            security=ListenerSecurity(
                protocol=SecurityProtocol.SSL,
                tls=tls,
                user_of=partial(user_of, rules=RULES),
                login_timeout_s=login_timeout_s,
                max_session_ms=max_session_ms,
            ),
        )
        self.port = self.listener.open("127.0.0.1", 0)
        self.listener.start()

    async def connect(self, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, limit=1 << 16)

    async def ask(self, context: ssl.SSLContext, payload: bytes = b"hello") -> bytes:
        """Return what answers one frame on a connection of its own."""
        reader, writer = await self.connect(context)
        try:
            writer.write(framed(payload))
            return await receive(reader)
        finally:
            writer.close()

    async def event(self) -> str:
        """Return the first reason why a connection ended."""
        while not self.events:
            await asyncio.sleep(0.001)
        return self.events[0]


async def receive(reader: asyncio.StreamReader) -> bytes:
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(size)


def run(
    tls: ServerTls,
    test: Callable[[Server], Awaitable[None]],
    *,
    login_timeout_s: float = 20.0,
    max_session_ms: int = 0,
) -> None:
    """Run *test* with a listener that uses *tls*."""

    async def body() -> None:
        server = Server(tls, login_timeout_s=login_timeout_s, max_session_ms=max_session_ms)
        try:
            await asyncio.wait_for(test(server), 30)
        finally:
            server.listener.close()

    asyncio.run(body())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def tls(authority: Authority) -> ServerTls:
    return ServerTls(TlsConfig(key_store=authority.server()))


def with_clients(authority: Authority, client_auth: str) -> ServerTls:
    return ServerTls(TlsConfig(key_store=authority.server(), trust_store=authority.trusted, client_auth=client_auth))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_frames_arrive_whole_however_they_are_cut(
    authority: Authority, tls: ServerTls, version: ssl.TLSVersion
) -> None:
    payloads = [bytes([number % 251]) * (number * 977 % 70_000 + 1) for number in range(60)] + [b"z" * (3 << 20)]
    stream = b"".join(map(framed, payloads))
    context = client_context(authority.trusted)
    context.maximum_version = version

    async def test(server: Server) -> None:
        reader, writer = await server.connect(context)

        async def write() -> None:
            position, step = 0, 1
            while position < len(stream):
                writer.write(stream[position : position + step])
                await writer.drain()
                position, step = position + step, step * 7 % 50_021 + 1
            await writer.drain()

        writing = asyncio.create_task(write())
        for payload in payloads:
            assert await receive(reader) == payload
        await writing
        writer.close()

    run(tls, test)


def test_a_write_larger_than_the_buffer_leaves_no_bytes_waiting(authority: Authority, tls: ServerTls) -> None:
    # More than the listener's buffer: a part of the last record waits inside OpenSSL, where no poll sees it.
    async def test(server: Server) -> None:
        reader, writer = await server.connect(client_context(authority.trusted))
        for size in (256 * 1024 - 8, 256 * 1024, 300 * 1024, 100):
            writer.write(framed(b"q" * size))
            assert len(await receive(reader)) == size
        writer.close()

    run(tls, test)


def test_bytes_that_were_decrypted_before_a_pause_are_read_after_it(authority: Authority, tls: ServerTls) -> None:
    async def test(server: Server) -> None:
        def mute(connection: Connection, frame: bytes) -> list[Part]:
            connection.mute(20)
            return [framed(frame)]

        server.handler.answer = mute
        reader, writer = await server.connect(client_context(authority.trusted))
        payloads = [bytes([number]) * 90_000 for number in range(12)]
        writer.write(b"".join(map(framed, payloads)))
        for payload in payloads:
            assert await receive(reader) == payload
        writer.close()

    run(tls, test)


def test_a_reader_that_stops_gets_every_byte_later(authority: Authority, tls: ServerTls) -> None:
    size = 12 << 20

    async def test(server: Server) -> None:
        blob = bytes(range(256)) * (size // 256)
        server.handler.answer = lambda connection, frame: [struct.pack(">i", size), blob]
        reader, writer = await server.connect(client_context(authority.trusted))
        writer.write(framed(b"x"))
        while not any(one._is_writing for one in server.listener.connections):
            await asyncio.sleep(0.001)  # until the socket is full, and a write is blocked
        assert await receive(reader) == blob
        writer.close()

    run(tls, test)


@pytest.mark.parametrize("is_active", [True, False], ids=["hot", "cold"])
def test_slices_of_a_file_arrive_intact(authority: Authority, tls: ServerTls, tmp_path: Path, is_active: bool) -> None:
    content = bytes(range(256)) * 4096
    segment = Segment(tmp_path, 0)
    segment.create()
    os.write(segment.fd, content)
    segment.size_bytes = len(content)
    segment.is_active = is_active

    async def test(server: Server) -> None:
        server.handler.answer = lambda connection, frame: [
            struct.pack(">i", len(content) + 8),
            b"head",
            FileSlice(segment.fd, 0, len(content), segment, segment.generation),
            b"tail",
        ]
        assert await server.ask(client_context(authority.trusted)) == b"head" + content + b"tail"

    run(tls, test)


def test_a_plain_client_gets_no_byte_and_is_named(tls: ServerTls) -> None:
    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(framed(b"\0\x12\0\0\0\0\0\1\xff\xff"))
        with contextlib.suppress(ConnectionResetError):  # what it sent was not read
            assert await reader.read() == b""  # an alert is the size of a huge frame to Java's clients
        assert "plain client on a TLS listener" in await server.event()
        writer.close()

    run(tls, test)


def test_a_health_check_is_no_failure(authority: Authority, tls: ServerTls) -> None:
    async def test(server: Server) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.close()
        assert await server.ask(client_context(authority.trusted)) == b"hello"
        assert server.events == []

    run(tls, test)


def test_a_handshake_that_takes_too_long_ends(tls: ServerTls) -> None:
    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"\x16\x03\x01")
        assert await reader.read() == b""
        assert await server.event() == "TLS handshake took too long"
        writer.close()

    run(tls, test, login_timeout_s=0.2)


def principal_of(connection: Connection, frame: bytes) -> list[Part]:
    return [framed(str(connection.session.principal).encode())]


@pytest.mark.parametrize(("client_auth", "has_one"), [("required", True), ("requested", True), ("requested", False)])
def test_the_principal_is_the_certificate_s(authority: Authority, client_auth: str, has_one: bool) -> None:
    key_store = authority.issue("alice.pem", *ALICE) if has_one else None

    async def test(server: Server) -> None:
        server.handler.answer = principal_of
        answer = await server.ask(client_context(authority.trusted, key_store))
        assert answer == (b"User:alice" if has_one else b"User:ANONYMOUS")
        assert [one.session.security_protocol for one in server.listener.connections] == ["SSL"]

    run(with_clients(authority, client_auth), test)


@pytest.mark.parametrize("case", ["none", "foreign", "expired", "not yet", "unmapped"])
def test_a_wrong_certificate_does_not_come_in(authority: Authority, tmp_path: Path, case: str) -> None:
    made: dict[str, Path | None] = {
        "none": None,
        "foreign": Authority(tmp_path / "foreign").issue("alice.pem", *ALICE),
        "expired": authority.issue("expired.pem", *ALICE, valid_from=-2 * DAY, valid_to=-DAY),
        "not yet": authority.issue("later.pem", *ALICE, valid_from=HOUR),
        "unmapped": authority.issue("other.pem", (NameOID.COMMON_NAME, "alice")),
    }
    key_store = made[case]
    reason = {
        "none": "peer did not return a certificate",
        "foreign": "client certificate: ",
        "expired": "client certificate: certificate has expired",
        "not yet": "client certificate: certificate is not yet valid",
        "unmapped": "no rule",
    }[case]

    async def test(server: Server) -> None:
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await server.ask(client_context(authority.trusted, key_store))
        assert reason in await server.event()

    run(with_clients(authority, "required"), test)


def test_a_session_of_a_certificate_ends_on_a_connection_that_sends_nothing(authority: Authority) -> None:
    context = client_context(authority.trusted, authority.issue("alice.pem", *ALICE))

    async def test(server: Server) -> None:
        reader, writer = await server.connect(context)
        assert await reader.read() == b""
        assert await server.event() == "session expired"
        writer.close()

    run(with_clients(authority, "required"), test, max_session_ms=100)


def test_a_server_of_another_authority_is_refused_by_our_client(tls: ServerTls, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)

    async def test(server: Server) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            await server.ask(client_context(stranger.trusted))

    run(tls, test)


def test_no_ticket_lets_a_client_in_without_a_look_at_its_certificate(authority: Authority) -> None:
    tls = with_clients(authority, "required")
    context = client_context(authority.trusted, authority.issue("alice.pem", *ALICE))
    assert tls.context.num_tickets == 0
    assert tls.context.options & ssl.OP_NO_TICKET
    assert tls.context.options & ssl.OP_NO_RENEGOTIATION
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2

    async def test(server: Server) -> None:
        reader, writer = await server.connect(context)
        writer.write(framed(b"x"))
        await receive(reader)
        found = writer.get_extra_info("ssl_object").session
        assert found is None or not found.has_ticket
        writer.close()

    run(tls, test)


def test_no_session_of_tls_1_2_is_resumed_after_the_end_of_its_certificate(authority: Authority) -> None:
    now_s = [time.time()]
    config = TlsConfig(key_store=authority.server(), trust_store=authority.trusted, client_auth="required")
    tls = ServerTls(config, now_s=lambda: now_s[0])
    context = client_context(authority.trusted, authority.issue("alice.pem", *ALICE, valid_to=HOUR))
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def ask(port: int, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool, bytes]:
        with (
            socket.create_connection(("127.0.0.1", port), 20) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as sock,
        ):
            sock.sendall(framed(b"hello"))
            with contextlib.suppress(ConnectionError):
                return sock.session, bool(sock.session_reused), sock.recv(9)
            return None, False, b""

    async def test(server: Server) -> None:
        session, _, answer = await asyncio.to_thread(ask, server.port, None)
        assert answer == framed(b"hello")
        _, is_resumed, answer = await asyncio.to_thread(ask, server.port, session)
        assert (is_resumed, answer) == (True, framed(b"hello"))
        now_s[0] += 2 * 3600
        _, _, answer = await asyncio.to_thread(ask, server.port, session)
        assert answer == b""
        assert await server.event() == "client certificate: it or the revocation list has expired"

    run(tls, test)


def test_changed_files_are_used_for_the_next_connection_and_wrong_ones_never(
    authority: Authority, tmp_path: Path
) -> None:
    key_store = tmp_path / "server.pem"
    shutil.copy(authority.server(), key_store)
    tls = ServerTls(TlsConfig(key_store=key_store))
    context = client_context(authority.trusted)

    async def serial(server: Server) -> str:
        _, writer = await server.connect(context)
        number = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
        return str(number)

    async def test(server: Server) -> None:
        first = await serial(server)
        assert not tls.reload()
        shutil.copy(authority.server("next.pem"), key_store)
        assert tls.reload()
        second = await serial(server)
        assert second != first
        for wrong in (
            b"noise",
            authority.server("a.pem").read_bytes().partition(b"-----BEGIN CERT")[0]
            + b"-----BEGIN CERT"
            + authority.server("b.pem").read_bytes().partition(b"-----BEGIN CERT")[2],
            authority.issue("old.pem", *ALICE, valid_from=-2 * DAY, valid_to=-DAY).read_bytes(),
            authority.issue("soon.pem", *ALICE, valid_from=HOUR).read_bytes(),
        ):
            key_store.write_bytes(wrong)
            with pytest.raises(ConfigError, match=r"ssl\.keystore\.location"):
                tls.reload()
            assert await serial(server) == second
        key_store.unlink()
        with pytest.raises(ConfigError):
            tls.reload()
        assert await serial(server) == second

    run(tls, test)


def test_the_end_of_a_certificate_is_known(authority: Authority, tls: ServerTls) -> None:
    left_s = tls.expires_s - datetime.datetime.now(datetime.UTC).timestamp()
    assert 23 * 3600 < left_s <= 24 * 3600


@pytest.mark.parametrize("content", [None, b"", b"noise"])
def test_a_listener_without_its_files_does_not_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "server.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"server\.pem"):
        ServerTls(TlsConfig(key_store=path))


def test_a_revoked_certificate_is_refused_from_the_reload_on(authority: Authority) -> None:
    mallory, alice = (authority.issue(f"{name}.pem", (NameOID.COMMON_NAME, name)) for name in ("mallory", "alice"))
    crl = authority.revoke()
    tls = ServerTls(
        TlsConfig(key_store=authority.server(), trust_store=authority.trusted, client_auth="required", crl=crl)
    )

    async def test(server: Server) -> None:
        for file in (mallory, alice):
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # no rule is for these names
                await server.ask(client_context(authority.trusted, file))
        assert "revoked" not in " ".join(server.events)
        authority.revoke(mallory)
        assert tls.reload()
        server.events.clear()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await server.ask(client_context(authority.trusted, mallory))
        assert "certificate revoked" in await server.event()

    run(tls, test)


def test_an_expired_revocation_list_is_refused_at_the_start(authority: Authority) -> None:
    crl = authority.revoke(valid_to=-HOUR, file="late.pem")
    with pytest.raises(ConfigError, match="has expired"):
        ServerTls(TlsConfig(key_store=authority.server(), trust_store=authority.trusted, crl=crl))
    with pytest.raises(ConfigError, match="wanted revocation lists in PEM"):
        ServerTls(TlsConfig(key_store=authority.server(), trust_store=authority.trusted, crl=authority.trusted))

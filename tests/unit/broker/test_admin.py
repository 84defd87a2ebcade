"""The broker's admin server: its bounds, and what it says when it cannot listen."""

import asyncio
import contextlib
import http.client
import logging
import os
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pylog.broker.admin import MAX_CONNECTIONS, AdminServer, Reply
from pylog.broker.logs import DECISIONS
from pylog.security.server_tls import ServerTls, TlsConfig
from tests.servers.certificates import Authority


async def metrics(body: Mapping[str, Any]) -> Reply:
    return Reply(200, "up 1\n")


@pytest.fixture
def server() -> Iterator[AdminServer]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    running = AdminServer({("GET", "/metrics"): metrics, ("POST", "/finalize"): metrics}, loop)
    yield running
    running.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def scrape(port: int) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        return answer.status, answer.read()


def keep_open(port: int, source: str = "127.0.0.1") -> socket.socket:
    """Return a connection from *source* that was answered once and holds its thread."""
    connection = socket.create_connection(("127.0.0.1", port), 20, source_address=(source, 0))
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = b""
    while not answer.endswith(b"up 1\n"):
        answer += connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 200")
    return connection


def test_who_asks_for_a_change_is_written_down(
    server: AdminServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, DECISIONS)
    server.open_unix(tmp_path / "admin.sock")
    for request in (b"GET /metrics", b"POST /finalize", b"POST /nothing"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(str(tmp_path / "admin.sock"))
            connection.sendall(request + b' HTTP/1.1\r\nConnection: close\r\nContent-Length: 9\r\n\r\n{"to": 2}')
            with connection.makefile("rb") as answer:
                answer.read()
    [line] = [record.getMessage() for record in caplog.records if record.name == DECISIONS]
    who = f"uid={os.getuid()} gid={os.getgid()} pid={os.getpid()}"
    assert line == f'admin request=POST /finalize {who} body={{"to": 2}}'


def test_one_connection_too_many_closes_the_oldest_of_the_address_that_has_most(server: AdminServer) -> None:
    port = server.open_metrics("127.0.0.1", 0)
    with contextlib.ExitStack() as stack:
        scraper = stack.enter_context(keep_open(port, "127.0.0.2"))
        many = [stack.enter_context(keep_open(port)) for _ in range(MAX_CONNECTIONS + 3)]
        for oldest in many[:4]:
            with contextlib.suppress(ConnectionResetError):
                while oldest.recv(1000):  # until it is closed for one more
                    pass
        for other in (scraper, *many[4:]):
            other.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert other.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"GET /metr", b"\x16\x03\x01"])
def test_silent_connections_do_not_keep_a_scraper_away(server: AdminServer, sent: bytes) -> None:
    port = server.open_metrics("127.0.0.1", 0)
    threads = threading.active_count()
    with contextlib.ExitStack() as stack:
        silent = []
        for _ in range(2 * MAX_CONNECTIONS):
            silent.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), 20)))
            silent[-1].sendall(sent)
            if len(silent) % 16 == 0:
                assert scrape(port) == (200, b"up 1\n")
        for oldest in silent[:MAX_CONNECTIONS]:
            with contextlib.suppress(ConnectionResetError):
                while oldest.recv(1000):
                    pass
        assert threading.active_count() - threads <= 2 * MAX_CONNECTIONS


def test_the_unix_socket_refuses_one_connection_too_many_and_ends_none(server: AdminServer, tmp_path: Path) -> None:
    server.open_unix(tmp_path / "s")

    def asked(peer: socket.socket) -> bytes:
        peer.settimeout(20)
        peer.connect(str(tmp_path / "s"))
        with contextlib.suppress(BrokenPipeError):  # answered before it was asked
            peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        return peer.recv(1000)

    with contextlib.ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS):
            assert asked(stack.enter_context(socket.socket(socket.AF_UNIX))).startswith(b"HTTP/1.1 200")
        assert asked(stack.enter_context(socket.socket(socket.AF_UNIX))).startswith(b"HTTP/1.1 503")


def test_the_metrics_address_does_not_lock_out_the_unix_socket(server: AdminServer, tmp_path: Path) -> None:
    port = server.open_metrics("127.0.0.1", 0)
    server.open_unix(tmp_path / "s")
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS):
            stack.enter_context(keep_open(port))
        peer = stack.enter_context(socket.socket(socket.AF_UNIX))
        peer.settimeout(20)
        peer.connect(str(tmp_path / "s"))
        peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert peer.recv(1000).startswith(b"HTTP/1.1 200")


def test_an_address_that_is_taken_is_named(server: AdminServer, tmp_path: Path) -> None:
    port = server.open_metrics("127.0.0.1", 0)
    with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port} \(metrics\): Address already in use"):
        server.open_metrics("127.0.0.1", port)
    with pytest.raises(OSError, match=r"cannot listen on .*/none/s \(admin_socket\): No such file"):
        server.open_unix(tmp_path / "none" / "s")


def test_a_client_that_goes_away_before_its_answer_is_no_error_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asked, gone = threading.Event(), threading.Event()

    async def large(body: Mapping[str, Any]) -> Reply:
        asked.set()
        await asyncio.to_thread(gone.wait, 20)
        return Reply(200, "x" * (64 << 20))  # more than the kernel takes from the server in one go

    caplog.set_level("DEBUG", "pylog.broker.admin")
    running = AdminServer({("GET", "/metrics"): large}, loop)
    try:
        port = running.open_metrics("127.0.0.1", 0)
        client = socket.create_connection(("127.0.0.1", port), 20)
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked.wait(20)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        gone.set()
        while not any("admin connection ended" in record.message for record in caplog.records):
            assert not [record for record in caplog.records if record.levelname == "ERROR"]
    finally:
        running.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_the_page_of_metrics_is_for_those_with_a_certificate_of_the_authority(
    server: AdminServer, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    tls = ServerTls(TlsConfig(key_store=authority.server(), trust_store=authority.trusted, client_auth="required"))
    port = server.open_metrics("127.0.0.1", 0, tls)
    mine = ssl.create_default_context(cafile=str(authority.trusted))
    mine.load_cert_chain(authority.issue("me.pem"))

    def encrypted(context: ssl.SSLContext) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            return answer.status, answer.read()

    with socket.create_connection(("127.0.0.1", port), 20):  # says nothing, and holds up nobody
        assert encrypted(mine) == (200, b"up 1\n")
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS + 1):  # no handshake ever comes
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
        assert encrypted(mine) == (200, b"up 1\n")
    kept = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=mine)
    with contextlib.closing(kept), contextlib.ExitStack() as stack:
        for _ in range(2):
            kept.request("GET", "/metrics")
            assert kept.getresponse().read() == b"up 1\n"
            first = kept.sock
            for _ in range(MAX_CONNECTIONS + 1):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
        assert kept.sock is first, "one with a certificate keeps its place"
    with pytest.raises(OSError):
        encrypted(ssl.create_default_context(cafile=str(authority.trusted)))
    with pytest.raises((http.client.HTTPException, OSError)):
        scrape(port)
    assert encrypted(mine) == (200, b"up 1\n")

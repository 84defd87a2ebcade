"""HTTP of the pipeline's programs: limits, keep-alive, HEAD, a stop that waits."""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pylog.daemon import web
from pylog.daemon.web import MAX_BODY_BYTES, WebServer, metrics_app, read_body
from pylog.errors import ConfigError
from pylog.metrics import Metrics
from pylog.security.server_tls import TlsConfig
from tests.servers.certificates import DAY, HOUR, Authority


async def echo(request: Request) -> Response:
    return PlainTextResponse(await read_body(request))


ECHO = Starlette(routes=[Route("/", echo, methods=["GET", "POST"])])


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer("127.0.0.1", 0, ECHO) as running:
        yield running


def connect(server: WebServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), 10)


def test_requests_follow_each_other_on_one_connection(server: WebServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for body in (b"one", b"two"):
        connection.request("POST", "/", body)
        kept = connection.sock
        assert connection.getresponse().read() == body
        assert connection.sock is kept is not None
    connection.close()


def test_a_head_has_no_body(server: WebServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for _ in range(2):  # a body would be taken for the next answer
        connection.request("HEAD", "/")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    connection.close()


def test_a_long_body_is_refused_before_it_is_read(server: WebServer) -> None:
    with connect(server) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))
        answer = b"".join(iter(lambda: connection.recv(4096), b""))  # to its end: the connection is closed
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"request body must be at most 4194304 bytes, got 4194305 or more" in answer


def test_a_long_body_of_unknown_length_is_refused_too(server: WebServer) -> None:
    with connect(server) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
        connection.sendall(chunk * (MAX_BODY_BYTES // (1 << 16) + 1))
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab"])
def test_a_request_that_does_not_come_ends_the_connection(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(web, "IDLE_S", 0.05)
    with WebServer("127.0.0.1", 0, ECHO) as server, connect(server) as connection:
        connection.sendall(sent)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408") if b"\r\n\r\n" in sent else answer == b""


def test_one_connection_too_many_ends_the_oldest_silent_one_of_the_address_that_has_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "MAX_CONNECTIONS", 3)
    with WebServer("127.0.0.1", 0, ECHO) as server, ExitStack() as stack:

        def opened(source: str) -> socket.socket:
            place = ("127.0.0.1", server.port)
            return stack.enter_context(socket.create_connection(place, 10, source_address=(source, 0)))

        def is_answered(connection: socket.socket) -> bool:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            return connection.recv(4096).startswith(b"HTTP/1.1 200")

        scraper = opened("127.0.0.2")
        assert is_answered(scraper)
        silent = [opened("127.0.0.3") for _ in range(20)]
        for one in silent[:-2]:
            with suppress(ConnectionResetError):
                assert one.recv(100) == b""
        assert is_answered(scraper), "its address has one"
        assert is_answered(silent[-1])


def test_one_connection_too_many_is_closed_where_all_others_are_being_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "MAX_CONNECTIONS", 1)
    with WebServer("127.0.0.1", 0, ECHO) as server, connect(server) as first:
        first.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert first.recv(100).startswith(b"HTTP/1.1 100"), "the application reads the body"
        with connect(server) as second, suppress(ConnectionResetError):
            assert second.recv(100) == b""
        first.sendall(b"ab")
        assert first.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_stop_waits_for_the_answer_that_is_under_way() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(_: Request) -> Response:
        begun.set()
        may_end.wait(10)
        return PlainTextResponse("whole")

    def end_once_stopping(server: WebServer) -> None:
        with suppress(OSError):
            while True:
                connect(server).close()
        may_end.set()

    with WebServer("127.0.0.1", 0, Starlette(routes=[Route("/", slow)])) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", "/")
        begun.wait(10)
        threading.Thread(target=end_once_stopping, args=(server,), daemon=True).start()
    assert connection.getresponse().read() == b"whole"
    with pytest.raises(ConnectionRefusedError):
        connect(server)


def test_metrics_are_scraped() -> None:
    metrics = Metrics()
    metrics.counter("things_total", "Things.").add(3)
    with WebServer("127.0.0.1", 0, metrics_app(metrics)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert b"things_total 3" in answer.read()
        assert answer.headers["content-type"] == "text/plain; version=0.0.4"
        for method, path, status in (("POST", "/metrics", 405), ("GET", "/other", 404)):
            connection.request(method, path)
            refused = connection.getresponse()
            refused.read()
            assert refused.status == status
        connection.close()


def test_a_taken_address_is_named(server: WebServer) -> None:
    with pytest.raises(ConfigError, match=str(server.port)):
        WebServer("127.0.0.1", server.port, ECHO)


async def who(request: Request) -> Response:
    return PlainTextResponse(request.client.host if request.client else "")


@pytest.mark.parametrize(("has_proxy", "address"), [(False, "127.0.0.1"), (True, "192.0.2.7")])
def test_who_the_client_is_nobody_says_but_a_proxy_that_is_declared(has_proxy: bool, address: str) -> None:
    with WebServer("127.0.0.1", 0, Starlette(routes=[Route("/", who)]), has_proxy=has_proxy) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", "/", headers={"X-Forwarded-For": "192.0.2.7"})
        assert connection.getresponse().read().decode() == address
        connection.close()


def test_https_is_served_to_who_verifies_the_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem = authority.server()
    trusting = ssl.create_default_context(cafile=str(authority.trusted))
    with WebServer("127.0.0.1", 0, ECHO, tls=TlsConfig(key_store=pem)) as server:
        # A client that says nothing holds up nobody.
        with connect(server):
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=trusting)
            connection.request("POST", "/", b"secret")
            assert connection.getresponse().read() == b"secret"
            connection.close()
        with pytest.raises(ssl.SSLCertVerificationError), connect(server) as plain:
            ssl.create_default_context().wrap_socket(plain, server_hostname="127.0.0.1")


@pytest.mark.parametrize("content", [None, "no certificate", "-----BEGIN CERTIFICATE-----\nx\n"])
def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "console.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"console\.pem"):
        WebServer("127.0.0.1", 0, ECHO, tls=TlsConfig(key_store=path))


def asked(server: WebServer, context: ssl.SSLContext, name: str = "127.0.0.1") -> bytes:
    """Return the certificate that the server shows, after a request that it answers."""
    with connect(server) as plain, context.wrap_socket(plain, server_hostname=name) as encrypted:
        encrypted.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        if not (answer := encrypted.recv(1000)):
            raise ConnectionResetError("the server closed without an answer")
        assert answer.startswith(b"HTTP/1.1 200")
        return encrypted.getpeercert(binary_form=True) or b""


def client(authority: Authority, keys: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.trusted))
    if keys is not None:
        context.load_cert_chain(keys)
    return context


def test_a_page_is_for_those_with_a_certificate_of_the_authority(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    tls = TlsConfig(key_store=authority.server(), trust_store=authority.trusted, client_auth="required")
    mine, theirs = authority.issue("me.pem"), stranger.issue("me.pem")
    late = authority.issue("late.pem", valid_from=-2 * DAY, valid_to=-HOUR)
    with WebServer("127.0.0.1", 0, metrics_app(Metrics()), tls=tls) as server:
        asked(server, client(authority, mine))
        for keys in (None, theirs, late):
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                asked(server, client(authority, keys))
        with connect(server) as plain:
            plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert not plain.recv(1000).startswith(b"HTTP")
        asked(server, client(authority, mine))


def test_certificates_and_authorities_are_read_again_and_a_wrong_file_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = Authority(tmp_path / "before", "before"), Authority(tmp_path / "after", "after")
    keys, trusted = tmp_path / "server.pem", tmp_path / "ca.pem"
    keys.write_bytes(before.server().read_bytes())
    trusted.write_bytes(before.trusted.read_bytes())
    tls = TlsConfig(key_store=keys, trust_store=trusted, client_auth="required")
    with WebServer("127.0.0.1", 0, metrics_app(Metrics()), tls=tls) as server:
        shown = asked(server, client(before, before.issue("me.pem")))
        keys.write_text("half a file")
        server.reload()
        assert "certificate_not_reloaded" in capsys.readouterr().err
        assert asked(server, client(before, before.issue("me.pem"))) == shown
        keys.write_bytes(after.server().read_bytes())
        trusted.write_bytes(after.trusted.read_bytes())
        server.reload()
        # Also for a client that names no server.
        for name in ("127.0.0.1", "localhost"):
            assert asked(server, client(after, after.issue("me.pem")), name) != shown
        former = client(after, before.issue("me.pem"))
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            asked(server, former)

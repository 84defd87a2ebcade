"""The small HTTP server: limits, keep-alive, paths."""

import http.client
import socket
from collections.abc import Iterator

import pytest

from pylog.daemon.web import MAX_BODY_BYTES, WebAnswer, WebRequest, WebServer, metrics_answerer, split_address
from pylog.errors import ConfigError
from pylog.metrics import Metrics


def echo(request: WebRequest) -> WebAnswer:
    text = f"{request.method} {request.parts} {dict(request.query)} {request.body!r}"
    return WebAnswer(200, text.encode(), "text/plain")


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer("127.0.0.1", 0, echo) as running:
        yield running


def test_paths_are_unquoted_after_they_are_split(server: WebServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for _ in range(2):  # on one connection
        connection.request("POST", "/a%2Fb/c?x=1&x=2&y=", b"body")
        assert connection.getresponse().read() == b"POST ('a/b', 'c') {'x': '2', 'y': ''} b'body'"
    connection.close()


def test_a_long_body_is_refused_before_it_is_read(server: WebServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_metrics_are_scraped() -> None:
    metrics = Metrics()
    metrics.counter("things_total", "Things.").add(3)
    answer = metrics_answerer(metrics)
    assert b"things_total 3" in answer(WebRequest("GET", ("metrics",), {}, {}, b"", "/metrics")).body
    assert answer(WebRequest("POST", ("metrics",), {}, {}, b"", "/metrics")).status == 404


def test_a_taken_address_is_named(server: WebServer) -> None:
    with pytest.raises(ConfigError, match=str(server.port)):
        WebServer("127.0.0.1", server.port, echo)


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:70000"])
def test_an_address_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        split_address(text)

"""A small HTTP/1.1 server: one function answers, threads wait.

For metrics and the registry's API, a few requests a second; a request is read whole, within limits, before it is
answered.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from pylog.errors import ConfigError
from pylog.metrics import Metrics

MAX_BODY_BYTES = 4 << 20
"""A longer body is refused before it is read."""

MAX_CONNECTIONS = 256
"""Connections at once; one more waits in the kernel's queue."""

IDLE_S = 60.0
"""A connection on which nothing comes for so long is closed."""

_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class WebRequest:
    """One request.

    Attributes:
        method: GET, POST, PUT or DELETE; HEAD comes as GET.
        parts: the path's parts, unquoted: ``/a/b%2Fc`` is ("a", "b/c").
        query: the last value of each name.
        headers: names in lower case.
        target: path and query as they came.
    """

    method: str
    parts: tuple[str, ...]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    target: str


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """What goes back."""

    status: int
    body: bytes
    content_type: str = _JSON
    headers: Mapping[str, str] = field(default_factory=dict)


Answerer: TypeAlias = Callable[[WebRequest], WebAnswer]
"""Called on many threads at once."""


def json_answer(status: int, body: object, content_type: str = _JSON) -> WebAnswer:
    """Return *body* as JSON."""
    return WebAnswer(status, json.dumps(body, ensure_ascii=False).encode(), content_type)


def metrics_answerer(metrics: Metrics) -> Answerer:
    """Return what answers ``GET /metrics``."""

    def answer(request: WebRequest) -> WebAnswer:
        if request.parts != ("metrics",) or request.method != "GET":
            return json_answer(404, {"error": "wanted GET /metrics"})
        return WebAnswer(200, metrics.render().encode(), "text/plain; version=0.0.4")

    return answer


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``.

    Raises:
        ConfigError: it is none.
    """
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"{text!r}: wanted HOST:PORT")
    return host.strip("[]"), int(port)


class WebServer:
    """Listens while its context is entered.

    Args:
        host: address to listen on.
        port: 0 takes a free one.
        answer: answers every request.

    Raises:
        ConfigError: the address cannot be listened on.
    """

    def __init__(self, host: str, port: int, answer: Answerer) -> None:
        try:
            self._server = _Server((host, port), _handler(answer))
        except OSError as error:
            raise ConfigError(f"{host}:{port} cannot be listened on: {error.strerror}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="web", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: object, client_address: object) -> None:
        self._free.acquire()
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away; an answerer answers its own errors."""


def _handler(answer: Answerer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "pylog"
        sys_version = ""
        timeout = IDLE_S
        # Answers are small and follow each other on one connection: waiting for more to send only delays them.
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _serve(self) -> None:
            length = self.headers.get("Content-Length", "0")
            if self.headers.get("Transfer-Encoding") or not length.isdecimal() or int(length) > MAX_BODY_BYTES:
                self.close_connection = True
                self._send(
                    json_answer(
                        413,
                        {
                            "error_code": 413,
                            "message": f"a body of {length} bytes is refused; "
                            f"at most {MAX_BODY_BYTES} with Content-Length are wanted",
                        },
                    )
                )
                return
            split = urlsplit(self.path)
            self._send(
                answer(
                    WebRequest(
                        "GET" if self.command == "HEAD" else self.command,
                        tuple(unquote(part) for part in split.path.split("/") if part),
                        {name: values[-1] for name, values in parse_qs(split.query, keep_blank_values=True).items()},
                        {name.lower(): value for name, value in self.headers.items()},
                        self.rfile.read(int(length)),
                        self.path,
                    )
                )
            )

        def _send(self, found: WebAnswer) -> None:
            self.send_response(found.status)
            self.send_header("Content-Type", found.content_type)
            self.send_header("Content-Length", str(len(found.body)))
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(found.body)

    for method in _METHODS:
        setattr(Handler, f"do_{method}", Handler._serve)
    return Handler

"""The admin socket: HTTP/1.1 with JSON, for the operator's own tools on the broker's host.

GET /status      what this process is and what it hosts
GET /ready       200 when every hosted partition is in sync, else 503 with the reason
GET /rights      what ACLs deny or would deny, and when each principal last sent a request
POST /retention  {"dry_run": bool} -> deleted segments
GET /metrics     Prometheus text; also on TCP where configured

Threads of the standard library's server wait here; every answer is computed on the event loop.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import socket
import socketserver
import struct
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pylog.broker.logs import DECISIONS

if TYPE_CHECKING:
    from pylog.security.server_tls import ServerTls

_logger = logging.getLogger(__name__)
_decisions = logging.getLogger(DECISIONS)
_MAX_AUDITED_CHARS = 250
_PEER = struct.Struct("iII")  # struct ucred: pid, uid, gid

MAX_BODY_BYTES = 64 * 1024
ANSWER_TIMEOUT_S = 60.0
CLIENT_TIMEOUT_S = 30.0
HANDSHAKE_TIMEOUT_S = 10.0

MAX_CONNECTIONS = 32
"""Connections at once on each socket, a thread each.  Scrapers and the operator's tools use one each, and whoever
floods the metrics address must not lock out the Unix socket.  One more is answered 503 on the Unix socket; on the
metrics address another one is closed for it (`_TcpServer`)."""

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Reply(NamedTuple):
    """What a route answers: JSON, or text when *body* is one."""

    status: int
    body: Mapping[str, Any] | str


Route = Callable[[Mapping[str, Any]], Awaitable[Reply]]
Routes = Mapping[tuple[str, str], Route]


class AdminServer:
    """Serves routes over a Unix socket, and the read-only ones over TCP if asked to."""

    def __init__(self, routes: Routes, loop: asyncio.AbstractEventLoop) -> None:
        self._routes = routes
        self._loop = loop
        self._servers: list[socketserver.BaseServer] = []

    def open_unix(self, path: Path) -> None:
        """Listen on the Unix socket at *path*, for owner and group; a stale file is replaced.

        Raises:
            OSError: the directory is missing or not ours; the message names the path.
        """
        try:
            path.unlink(missing_ok=True)
            server = _UnixServer(str(path), _handler(self._routes, self._loop))
            path.chmod(0o660)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {path} (admin_socket): {error.strerror}") from error
        self._start(server, f"admin-{path.name}")

    def open_metrics(self, host: str, port: int, tls: "ServerTls | None" = None) -> int:
        """Serve GET /metrics over TCP; return the port.

        Args:
            host: address to listen on.
            port: 0 takes a free one.
            tls: contexts of its connections; None for plain HTTP.

        Raises:
            OSError: the address is taken or not ours; the message names it.
        """
        routes = {key: route for key, route in self._routes.items() if key == ("GET", "/metrics")}
        try:
            server = _TcpServer((host, port), _handler(routes, self._loop))
            server.tls = tls
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {host}:{port} (metrics): {error.strerror}") from error
        self._start(server, "admin-metrics")
        return int(server.server_address[1])

    def close(self) -> None:
        """Stop listening.  Called from a thread: a request in progress may need the loop to end."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers.clear()

    def _start(self, server: socketserver.BaseServer, name: str) -> None:
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.1,), name=name, daemon=True).start()


class _Bounded(socketserver.ThreadingMixIn):
    """A thread for each connection, at most `MAX_CONNECTIONS`."""

    daemon_threads = True

    def __init__(self, address: Any, handler: type[BaseHTTPRequestHandler]) -> None:  # noqa: ANN401  # as socketserver
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, handler)  # type: ignore[call-arg]  # of the server class

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as socketserver
        # Never waits: `shutdown` would wait too.
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            request.send(_BUSY, socket.MSG_DONTWAIT)
        self.shutdown_request(request)  # type: ignore[attr-defined]  # of the server class

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as socketserver
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as socketserver
        """Log what ended a connection: its client went away, since routes answer their own errors."""
        _logger.debug("admin connection ended reason=%r", sys.exception())


@dataclass(slots=True, eq=False)
class _Place:
    """One connection to the metrics address.

    Attributes:
        address: of the client.
        connection: what to close; None between two of the same descriptor.
        is_trusted: whether the client has shown a certificate.
        is_taken: whether another connection has its place.
    """

    address: str
    connection: socket.socket | None
    is_trusted: bool = False
    is_taken: bool = False


class _TcpServer(_Bounded, HTTPServer):
    """Where metrics are scraped.

    All places taken, a new connection gets one from another: from one without a certificate before one with, from the
    address that has most, and there the oldest.  So whoever opens connections, silent or slow, cannot keep a scraper
    away that needs its place for a moment.
    """

    tls: "ServerTls | None" = None

    def __init__(self, address: Any, handler: type[BaseHTTPRequestHandler]) -> None:  # noqa: ANN401  # as socketserver
        self._lock = threading.Lock()
        self._places: dict[int, _Place] = {}  # by the thread's number, in the order of their beginning
        self._numbers = itertools.count()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as socketserver
        place = _Place(str(client_address[0]), request)
        with self._lock:
            if len(self._places) >= MAX_CONNECTIONS:
                self._take_place()
            number = next(self._numbers)
            self._places[number] = place
        thread = threading.Thread(
            target=self._serve, args=(request, client_address, number, place), name="admin-metrics", daemon=True
        )
        thread.start()

    def _take_place(self) -> None:
        """Close one connection for another."""
        counts = Counter(one.address for one in self._places.values())
        # Of equal ones `min` returns the first, which is the oldest.
        number = min(self._places, key=lambda one: (self._places[one].is_trusted, -counts[self._places[one].address]))
        place = self._places.pop(number)
        place.is_taken = True
        if place.connection is not None:
            with contextlib.suppress(OSError):
                place.connection.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it

    def _serve(self, request: socket.socket, client_address: Any, number: int, place: _Place) -> None:  # noqa: ANN401
        try:
            if self.tls is None:
                self.finish_request(request, client_address)
            else:
                self._serve_encrypted(request, client_address, place, self.tls)
        except Exception:  # noqa: BLE001  # top of a thread, as in socketserver
            self.handle_error(request, client_address)
        finally:
            with self._lock:
                self._places.pop(number, None)
                place.connection = None
            self.shutdown_request(request)

    def _serve_encrypted(
        self,
        request: socket.socket,
        client_address: Any,  # noqa: ANN401  # as socketserver
        place: _Place,
        tls: "ServerTls",
    ) -> None:
        # In the connection's own thread: who takes long for a handshake holds up nobody.
        request.settimeout(HANDSHAKE_TIMEOUT_S)
        with self._lock:
            if place.is_taken:
                return
            encrypted = tls.context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            place.connection = encrypted
        with encrypted:
            encrypted.do_handshake()
            place.is_trusted = bool(encrypted.getpeercert())
            try:
                self.finish_request(encrypted, client_address)
            finally:
                with self._lock:
                    place.connection = None  # closed from here on, and its number may be another's


class _UnixServer(_Bounded, socketserver.UnixStreamServer):
    def get_request(self) -> tuple[Any, Any]:
        # A Unix peer has no address, but the HTTP handler wants one for its log lines.
        request, _ = super().get_request()
        return request, ("unix", 0)


def _handler(routes: Routes, loop: asyncio.AbstractEventLoop) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = CLIENT_TIMEOUT_S

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            size = self.headers.get("Content-Length", "0")
            if not size.isdigit() or int(size) > MAX_BODY_BYTES:
                self._send(Reply(413, {"error": f"body of {size} bytes; at most {MAX_BODY_BYTES} are read"}))
                return
            try:
                body = json.loads(self.rfile.read(int(size)) or b"{}")
                if not isinstance(body, dict):
                    raise ValueError("wanted an object")
            except ValueError as error:
                self._send(Reply(400, {"error": f"not JSON: {error}"}))
                return
            self._answer(body)

        def log_message(self, format: str, *args: object) -> None:
            _logger.debug("admin " + format, *args)

        def _answer(self, body: Mapping[str, Any]) -> None:
            path = self.path.partition("?")[0]
            route = routes.get((self.command, path))
            if route is None:
                known = ", ".join(f"{method} {known}" for method, known in sorted(routes))
                self._send(Reply(404, {"error": f"{self.command} {path} is not served", "served": known}))
                return
            if self.command != "GET":
                _audit(self.connection, self.command, path, body)
            try:
                reply = asyncio.run_coroutine_threadsafe(_call(route, body), loop).result(ANSWER_TIMEOUT_S)
            except Exception as error:
                _logger.exception("admin request failed path=%s", path)
                reply = Reply(500, {"error": repr(error)})
            self._send(reply)  # a client that went away meanwhile is no fault of the route

        def _send(self, reply: Reply) -> None:
            is_text = isinstance(reply.body, str)
            raw = (str(reply.body) if is_text else json.dumps(reply.body) + "\n").encode()
            self.send_response(reply.status)
            kind = "text/plain; version=0.0.4; charset=utf-8" if is_text else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    return Handler


def _audit(connection: socket.socket, method: str, path: str, body: Mapping[str, Any]) -> None:
    """Write down who asked for a change: on a Unix socket the kernel knows the process at the other end."""
    pid, uid, gid = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    said = json.dumps(body)[:_MAX_AUDITED_CHARS]
    _decisions.info("admin request=%s %s uid=%d gid=%d pid=%d body=%s", method, path, uid, gid, pid, said)


async def _call(route: Route, body: Mapping[str, Any]) -> Reply:
    return await route(body)

"""HTTP of the pipeline's programs: one ASGI application on uvicorn, on a thread of its own and within limits.

The registry's REST API and every ``/metrics`` page are served here.  A broker's admin socket has its own small server,
because a broker imports nothing of the pipeline.
"""

import asyncio
import itertools
import socket
import ssl
import threading
import time
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Self

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from pylog.daemon.notices import Notices
from pylog.errors import ConfigError
from pylog.metrics import Metrics

if TYPE_CHECKING:
    from pylog.security.server_tls import TlsConfig

MAX_BODY_BYTES = 4 << 20
"""A longer body is refused; if Content-Length says its size, before it is read."""

MAX_CONNECTIONS = 256
"""Connections at once; for one more another is closed that waits for a request, or else the new one."""

IDLE_S = 60.0
"""How long a client may take to send a request, and how long an unused connection stays open."""

RELOAD_S = 60.0
"""How often files of certificates are compared."""

DRAIN_S = 5.0
"""How long a stop waits for the requests that are being answered."""

METRICS_TYPE = "text/plain; version=0.0.4"


def metrics_app(metrics: Metrics) -> Starlette:
    """Return an application that answers ``GET /metrics``."""
    return Starlette(routes=[metrics_route(metrics)])


def metrics_route(metrics: Metrics) -> Route:
    """Return the route ``GET /metrics``."""

    def answer(_: Request) -> Response:  # not async: a gauge may wait for a lock
        return Response(metrics.render(), headers={"content-type": METRICS_TYPE})

    return Route("/metrics", answer)


async def read_body(request: Request) -> bytes:
    """Return a request's body.

    Raises:
        HTTPException: 413, it is longer than `MAX_BODY_BYTES`; 408, it did not arrive within `IDLE_S`.
    """
    size = request.headers.get("content-length", "0")
    parts: list[bytes] = []
    size_bytes = int(size) if size.isdecimal() else 0
    try:
        async with asyncio.timeout(IDLE_S):
            if size_bytes <= MAX_BODY_BYTES:
                size_bytes = 0
                async for part in request.stream():
                    parts.append(part)
                    size_bytes += len(part)
                    if size_bytes > MAX_BODY_BYTES:
                        break
    except TimeoutError as error:
        raise HTTPException(408, headers={"connection": "close"}) from error
    if size_bytes > MAX_BODY_BYTES:
        message = f"request body must be at most {MAX_BODY_BYTES} bytes, got {size_bytes} or more"
        raise HTTPException(413, message, headers={"connection": "close"})
    return b"".join(parts)


_CERTIFICATE = "pylog.has_certificate"


def has_certificate(request: Request) -> bool:
    """Return whether the client has shown a certificate of an authority that the server trusts."""
    return bool(request.scope.get(_CERTIFICATE))


class _Renewed:
    """A context for a server that takes one for ever: each connection gets the one of the files as they are now."""

    def __init__(self, config: "TlsConfig") -> None:
        from pylog.security.server_tls import ServerTls  # takes 50 ms that plain HTTP need not spend

        self._tls = ServerTls(config)
        # OpenSSL asks for the name at the beginning of every handshake, also of a client that names none.
        self.context = self._tls.context
        self.context.sni_callback = self._choose
        self._stop = threading.Event()
        self._notices = Notices()
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)

    def start(self) -> None:
        """Begin to look at the files."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join()

    def look(self) -> None:
        """Read the files again if they changed; what is wrong in them is told, and changes nothing."""
        try:
            if self._tls.reload():
                self._notices.tell(time.monotonic(), "info", "certificate_reloaded", file=self._tls.config.key_store)
        except ConfigError as error:
            self._notices.tell(time.monotonic(), "error", "certificate_not_reloaded", reason=error)

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._tls.context

    def _run(self) -> None:
        while not self._stop.wait(RELOAD_S):
            self.look()


class WebServer:
    """Listens from the start, answers while its context is entered.

    Args:
        host: address to listen on.
        port: 0 takes a free one.
        app: answers every request.
        tls: files and rules of encryption, which are read again when they change; None for plain HTTP.
        has_proxy: whether a proxy on this host says in X-Forwarded-For who the client is.

    Raises:
        ConfigError: the address cannot be listened on, or the certificate cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int,
        app: ASGIApp,
        *,
        tls: "TlsConfig | None" = None,
        has_proxy: bool = False,
    ) -> None:
        self._renewed = None if tls is None else _Renewed(tls)
        try:
            self._socket = socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=MAX_CONNECTIONS
            )
        except OSError as error:
            raise ConfigError(f"{host}:{port} cannot be listened on: {error.strerror}") from error
        # Connections inherit it.  asyncio sets it only for sockets that name their protocol; without it each answer,
        # whose head and body are written apart, waits 40 ms for the client's acknowledgement.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=_Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",  # a client's bad request is answered, not logged
                access_log=False,
                server_header=False,
                # uvicorn's own default believes every program of this host.
                proxy_headers=has_proxy,
                backlog=MAX_CONNECTIONS,
                timeout_keep_alive=int(IDLE_S),
                timeout_graceful_shutdown=int(DRAIN_S),
            )
        )
        self._server.config.load()
        self._server.config.ssl = None if self._renewed is None else self._renewed.context
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="web", daemon=True)
        self.port = int(self._socket.getsockname()[1])
        """Where it listens."""

    def __enter__(self) -> Self:
        self._thread.start()
        if self._renewed is not None:
            self._renewed.start()
        return self

    def reload(self) -> None:
        """Read the files of certificates again, if they changed."""
        if self._renewed is not None:
            self._renewed.look()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._renewed is not None:
            self._renewed.stop()
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


_numbers = itertools.count()


def _with_certificate(app: ASGIApp) -> ASGIApp:
    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, _CERTIFICATE: True}, receive, send)

    return marked


class _Connection(H11Protocol):
    """A connection with the bounds that uvicorn lacks: their number, a head that never comes, a stalled reader.

    uvicorn starts its clock after the first answer: a client that connects and sends nothing would stay for ever.
    """

    _stalled: asyncio.TimerHandle | None = None
    number = 0
    """In the order of their beginning."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.number = next(_numbers)
        if len(self.connections) > MAX_CONNECTIONS:
            spare = self._spare()
            spare.transport.abort()
            if spare is self:
                return
        self.timeout_keep_alive_task = self.loop.call_later(IDLE_S, self.timeout_keep_alive_handler)
        encrypted = transport.get_extra_info("ssl_object")
        # Empty unless it was verified: the context asks for one only where it knows authorities.
        if encrypted is not None and encrypted.getpeercert():
            self.app = _with_certificate(self.app)

    def _spare(self) -> "_Connection":
        """Return the connection that ends for this one, so that silent clients cannot keep others away.

        Of those that wait for a request the oldest one of the address that has most; this one where none waits.
        """
        others = [one for one in self.connections if isinstance(one, _Connection) and one is not self]
        addresses = Counter(one.client[0] for one in others if one.client)
        waiting = [one for one in others if one.is_waiting and not one.transport.is_closing()]
        return min(waiting, key=lambda one: (-addresses[one.client[0]] if one.client else 0, one.number), default=self)

    @property
    def is_waiting(self) -> bool:
        """Whether no request of it is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        waiting = self.timeout_keep_alive_task
        super().data_received(data)
        is_head_complete = self.cycle is not None and not self.cycle.response_complete
        if waiting is not None and not is_head_complete and not self.transport.is_closing():
            # The same deadline as before: a head that comes byte by byte must not move it.
            self.timeout_keep_alive_task = self.loop.call_at(waiting.when(), self.timeout_keep_alive_handler)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(IDLE_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

"""A listening socket and the connections it accepted."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from pylog.net.connection import Connection, FrameHandler
from pylog.security.principal import Session, normal_host

RECEIVE_BUFFER_BYTES = 256 * 1024
"""One per listener.  Kept, not made per read: above 128 KiB malloc maps and unmaps each one, measured at three times
the cost of the whole request."""

_BACKLOG = 1024
MAX_HELD = 1_000
"""Connections over their address's rate that wait for their end; further ones end at once."""

_ACCEPTS_PER_WAKE_UP = 64  # so that a storm of connections leaves room for the ones already here


class Listener:
    """Accepts connections on one address and gives their frames to one handler.

    Attributes:
        name: see `__init__`.
        connections: open ones.
        on_closed: called with each connection that has ended, if set.
    """

    def __init__(
        self,
        name: str,
        handler: FrameHandler,
        *,
        max_frame_bytes: int,
        max_connections: int,
        on_event: Callable[[str, str, str], None],
        delay_ms: Callable[[str], int] = lambda host: 0,
    ) -> None:
        """Make it; `open` binds.

        Args:
            name: written into each connection, so that a handler knows which door was used.
            handler: gets the frames.
            max_frame_bytes: `socket.request.max.bytes`.
            max_connections: further ones are closed as they come.
            on_event: called with (event, peer, reason) when a connection is refused or closed for a fault.
            delay_ms: asked with the address of each new one: 0 to serve it, or for how long it waits to be closed.
        """
        self.name = name
        self.connections: set[Connection] = set()
        self.on_closed: Callable[[Connection], None] | None = None
        self._handler = handler
        self._max_frame_bytes = max_frame_bytes
        self._max_connections = max_connections
        self._on_event = on_event
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._sock: socket.socket | None = None
        self._delay_ms = delay_ms
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}

    def open(self, host: str, port: int) -> int:
        """Bind; return the port, which differs from *port* when that is 0.

        Until `start` a connection is refused at once.  One that is taken and not answered would keep clients waiting
        for as long as a broker starts, and some of them take it for a broker of another protocol then.

        Raises:
            OSError: the address is taken or not ours; the message names it.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"cannot listen on {host}:{port} ({self.name}): {error.strerror}") from error
        self._sock = sock
        bound: int = sock.getsockname()[1]
        return bound

    def start(self) -> None:
        """Listen and accept, on the running loop."""
        assert self._sock is not None, "open comes first"
        self._sock.listen(_BACKLOG)
        asyncio.get_running_loop().add_reader(self._sock.fileno(), self._on_acceptable)

    def close(self) -> None:
        """Stop accepting and close every connection."""
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None
        for connection in list(self.connections):
            connection.close("broker stops")
        for sock, end in list(self._held.items()):
            end.cancel()
            self._let_go(sock)

    def _on_acceptable(self) -> None:
        assert self._sock is not None
        for _ in range(_ACCEPTS_PER_WAKE_UP):
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:  # out of descriptors, or the peer left already; the listener goes on
                self._on_event("accept_failed", "", str(error))
                return
            self._accept(sock, address[0], f"{address[0]}:{address[1]}")

    def _accept(self, sock: socket.socket, host: str, peer: str) -> None:
        if delay_ms := self._delay_ms(host):
            self._on_event("connection_refused", peer, f"too many connections a second, closed in {delay_ms} ms")
            self._hold(sock, delay_ms)
            return
        if len(self.connections) >= self._max_connections:
            sock.close()
            self._on_event("connection_refused", peer, f"{self._max_connections} connections are open")
            return
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections.add(
            Connection(
                sock,
                handler=self._handler,
                buffer=self._buffer,
                max_frame_bytes=self._max_frame_bytes,
                session=Session(client_host=normal_host(host), listener_name=self.name),
                peer=peer,
                on_close=self._closed,
            )
        )

    def _hold(self, sock: socket.socket, delay_ms: int) -> None:
        """Leave a connection unanswered for a while: closed at once, its client would come back at once."""
        if len(self._held) >= MAX_HELD:
            sock.close()
            return
        self._held[sock] = asyncio.get_running_loop().call_later(delay_ms / 1000, self._let_go, sock)

    def _let_go(self, sock: socket.socket) -> None:
        del self._held[sock]
        sock.close()

    def _closed(self, connection: Connection, reason: str) -> None:
        self.connections.discard(connection)
        if self.on_closed is not None:
            self.on_closed(connection)
        if reason not in ("peer closed", "broker stops", ""):
            self._on_event("connection_closed", connection.peer, reason)

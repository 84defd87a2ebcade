"""A listening socket and the connections it accepted."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pylog.net.connection import Connection, FrameHandler
from pylog.net.unproven import Unproven
from pylog.security.exchange import LoginFailed
from pylog.security.principal import ANONYMOUS, NEVER_NS, USER, Principal, SecurityProtocol, Session, normal_host

if TYPE_CHECKING:
    from pylog.net.tls import Handshakes, TlsSocket
    from pylog.security.server_tls import ServerTls

RECEIVE_BUFFER_BYTES = 256 * 1024
"""One per listener.  Kept, not made per read: above 128 KiB malloc maps and unmaps each one, measured at three times
the cost of the whole request."""

_BACKLOG = 1024
MAX_HELD = 1_000
"""Connections over their address's rate that wait for their end; further ones end at once."""

_ACCEPTS_PER_WAKE_UP = 64  # so that a storm of connections leaves room for the ones already here


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """How a listener treats new connections that have to show who they are.

    Attributes:
        protocol: of its connections.
        tls: encryption; None for SASL_PLAINTEXT.
        user_of: returns the user of a certificate in DER, or raises LoginFailed; for SSL.
        login_timeout_s: how long a handshake may take, and then a login.
        max_login_frame_bytes: of a frame before the login.
        max_session_ms: longest session of a client with a certificate, 0 for no limit; it cannot be renewed.
        accepts_plain: plain connections are accepted too, on the same port.
        asks_proof: the handler admits connections by a proof of its own, as among brokers.
    """

    protocol: SecurityProtocol
    tls: "ServerTls | None" = None
    user_of: Callable[[bytes], str]
    login_timeout_s: float = 10.0
    max_login_frame_bytes: int = 16_384
    max_session_ms: int = 0
    accepts_plain: bool = False
    asks_proof: bool = False

    @property
    def has_login(self) -> bool:
        """Whether a connection has few rights until its handler admits it."""
        return self.protocol.has_sasl or self.asks_proof


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
        security: "ListenerSecurity | None" = None,
    ) -> None:
        """Make it; `open` binds.

        Args:
            name: written into each connection, so that a handler knows which door was used.
            handler: gets the frames.
            max_frame_bytes: `socket.request.max.bytes`.
            max_connections: further ones are closed as they come.
            on_event: called with (event, peer, reason) when a connection is refused or closed for a fault.
            delay_ms: asked with the address of each new one: 0 to serve it, or for how long it waits to be closed.
            security: encryption and login; None for a listener without either.
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
        self._security = security
        self._logins: dict[Connection, tuple[str, asyncio.TimerHandle]] = {}
        self._unproven = Unproven(max_connections, security.max_login_frame_bytes if security is not None else 1)
        self._handshakes: Handshakes | None = None
        if security is not None and security.tls is not None:
            from pylog.net import tls  # brokers without TLS do not load what it needs

            self._handshakes = tls.Handshakes(
                security.tls,
                self._handshaken,
                self._handshake_failed,
                self._unproven,
                self._plain_came if security.accepts_plain else None,
            )

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
        if self._handshakes is not None:
            self._handshakes.close()
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
            self._accept(sock, normal_host(address[0]), f"{address[0]}:{address[1]}")

    def _accept(self, sock: socket.socket, host: str, peer: str) -> None:
        if delay_ms := self._delay_ms(host):
            self._on_event("connection_refused", peer, f"too many connections a second, closed in {delay_ms} ms")
            self._hold(sock, delay_ms)
            return
        handshakes = self._handshakes
        if len(self.connections) + (0 if handshakes is None else len(handshakes)) >= self._max_connections:
            sock.close()
            self._on_event("connection_refused", peer, f"{self._max_connections} connections are open")
            return
        security = self._security
        if security is not None and (refusal := self._unproven.refusal(host)):
            sock.close()
            self._on_event("connection_refused", peer, refusal)
            return
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session = Session(client_host=host, listener_name=self.name)
        if handshakes is not None and security is not None:
            handshakes.begin(sock, host, peer, security.login_timeout_s)
        elif security is not None:
            self._connect(Connection, sock, replace(session, security_protocol=security.protocol), peer)
        else:
            self._connect(Connection, sock, session, peer)

    def _connect(self, kind: type[Connection], sock: "socket.socket | TlsSocket", session: Session, peer: str) -> None:
        security = self._security
        has_login = security is not None and security.has_login
        connection = kind(
            sock,  # type: ignore[arg-type]  # a TlsSocket where *kind* wants one
            handler=self._handler,
            buffer=self._buffer,
            max_frame_bytes=security.max_login_frame_bytes if has_login and security else self._max_frame_bytes,
            session=session,
            peer=peer,
            on_close=self._closed,
            on_admit=self._admitted if has_login else None,
        )
        self.connections.add(connection)
        if has_login and security is not None:
            end = asyncio.get_running_loop().call_later(
                security.login_timeout_s, connection.close, "login took too long"
            )
            self._logins[connection] = (session.client_host, end)
            self._unproven.enter(session.client_host)

    def _handshaken(self, sock: "TlsSocket", host: str, peer: str, certificate: bytes | None) -> None:
        from pylog.net.tls import TlsConnection

        security = self._security
        assert security is not None
        session = Session(
            client_host=host,
            listener_name=self.name,
            security_protocol=security.protocol,
            binding=sock.binding,
        )
        if not security.protocol.has_sasl:
            try:
                principal = ANONYMOUS if certificate is None else Principal(USER, security.user_of(certificate))
            except LoginFailed as error:
                sock.close()
                self._handshake_failed(peer, str(error))
                return
            now_ns = time.perf_counter_ns()
            limit_ns = security.max_session_ms * 1_000_000
            session = replace(
                session,
                principal=principal,
                authenticated_at_ns=now_ns,
                expires_at_ns=now_ns + limit_ns if limit_ns and certificate is not None else NEVER_NS,
            )
        self._connect(TlsConnection, sock, session, peer)

    def _plain_came(self, sock: socket.socket, host: str, peer: str) -> None:
        self._connect(Connection, sock, Session(client_host=host, listener_name=self.name), peer)

    def _handshake_failed(self, peer: str, reason: str) -> None:
        self._on_event("connection_refused", peer, reason)

    def _admitted(self, connection: Connection) -> int:
        self._end_login(connection)
        return self._max_frame_bytes

    def _end_login(self, connection: Connection) -> None:
        if (login := self._logins.pop(connection, None)) is not None:
            host, end = login
            end.cancel()
            self._unproven.leave(host)

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
        self._end_login(connection)
        if self.on_closed is not None:
            self.on_closed(connection)
        if reason not in ("peer closed", "broker stops", ""):
            self._on_event("connection_closed", connection.peer, reason)

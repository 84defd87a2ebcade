"""TLS under a connection: a socket that looks like a plain one, and the handshake before it.

OpenSSL's own habits end here.  What it has decrypted already waits where no poll sees it, so a read goes on until
nothing is left or the buffer is full.  A write that could not be sent as a whole must be repeated with the same bytes,
so they are kept until they have gone.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pylog.log.segment import FileSlice
from pylog.net.connection import Connection
from pylog.net.unproven import Unproven
from pylog.security.server_tls import ServerTls

MAX_WRITE_BYTES = 64 * 1024
"""Given to OpenSSL at once: four records.  More gains nothing, and a blocked write keeps as much of a copy."""

HANDSHAKE_THREADS = 2
"""A handshake takes a millisecond of a processor; OpenSSL lets other threads run meanwhile."""

CLIENT_HELLO = b"\x16"
"""First byte of a TLS connection, the type of a handshake record; a plain request begins with 0."""


class TlsSocket:
    """A non-blocking `ssl.SSLSocket` after its handshake, with the manners of a plain socket.

    Its methods raise BlockingIOError where a plain socket would, and an end without notice is an end.

    Attributes:
        binding: see `ServerTls.binding`; of the certificate that the client was shown.
        reads_on: whether its connection is about to read again what is decrypted already.
    """

    __slots__ = ("_pinned", "_sock", "binding", "reads_on")

    def __init__(self, sock: ssl.SSLSocket, binding: bytes = b"") -> None:
        self._sock = sock
        self.binding = binding
        self.reads_on = False
        self._pinned: bytes | None = None

    def fileno(self) -> int:
        """See `socket.socket.fileno`."""
        return self._sock.fileno()

    def recv_into(self, view: bytearray | memoryview) -> int:
        """Fill as much of *view* as there is; 0 at the end of the stream."""
        view = memoryview(view)
        have, size = 0, len(view)
        try:
            while have < size:
                count = self._sock.recv_into(view[have:])
                if not count:
                    break
                have += count
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not have:
                raise BlockingIOError from None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass  # the next read meets it again if some bytes came before it
        return have

    @property
    def has_decrypted(self) -> bool:
        """Whether bytes wait inside, which no poll tells of."""
        return self._sock.pending() > 0

    def send(self, data: bytes | memoryview) -> int:
        """Send the first `MAX_WRITE_BYTES` of *data*, or none of it; return how many.

        After BlockingIOError the next call must have the same bytes at its beginning.
        """
        if self._pinned is None:
            self._pinned = bytes(data[:MAX_WRITE_BYTES])
        try:
            sent = self._sock.send(self._pinned)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        assert sent == len(self._pinned), f"partial write of {sent} of {len(self._pinned)} bytes"
        self._pinned = None
        return sent

    @property
    def pinned_bytes(self) -> int:
        """Size of a write that was begun; 0 without one."""
        return 0 if self._pinned is None else len(self._pinned)

    def close(self) -> None:
        """Say goodbye if nothing is in the way, and close."""
        with contextlib.suppress(OSError, ValueError):
            if self._pinned is None:
                self._sock.unwrap()
        self._sock.close()


class TlsConnection(Connection):
    """A connection over a `TlsSocket`: slices of files are read and encrypted here."""

    __slots__ = ()

    _sock: TlsSocket  # type: ignore[assignment]  # all that the base class uses of a socket

    def _on_readable(self) -> None:
        super()._on_readable()
        self._read_on()

    def _read_on(self) -> None:
        # The kernel tells of bytes that came, not of those that OpenSSL holds already.  Not at once: a client that
        # sends as fast as we read would have the loop to itself.
        is_waiting = self._is_paused or self._is_behind
        if not self.is_closed and not is_waiting and not self._sock.reads_on and self._sock.has_decrypted:
            self._sock.reads_on = True
            self._loop.call_soon(self._read_decrypted)

    def _resume(self) -> None:
        was_paused = self._is_paused
        super()._resume()
        if was_paused:
            self._read_on()

    def _read_decrypted(self) -> None:
        self._sock.reads_on = False
        if not self.is_closed and not self._is_paused:
            self._on_readable()

    def _send_bytes(self) -> None:
        """Send the parts at the front as one piece: each send is a record of its own."""
        if self._sock.pinned_bytes:
            sent = self._sock.send(b"")
        else:
            front = bytearray()
            for part in self._out:
                if isinstance(part, FileSlice) or len(front) >= MAX_WRITE_BYTES:
                    break
                front += part[: MAX_WRITE_BYTES - len(front)]
            sent = self._sock.send(bytes(front))
        self._note_sent(sent)

    def _transfer(self, part: FileSlice, size_bytes: int) -> int:
        if self._sock.pinned_bytes:
            return self._sock.send(b"")
        data = os.pread(part.fd, min(size_bytes, MAX_WRITE_BYTES), part.position)
        return self._sock.send(data) if data else 0


class Handshakes:
    """TLS handshakes of one listener, each a job of a thread whenever its socket is ready."""

    def __init__(
        self,
        tls: ServerTls,
        on_done: Callable[[TlsSocket, str, str, bytes | None], None],
        on_failed: Callable[[str, str], None],
        unproven: Unproven,
        on_plain: Callable[[socket.socket, str, str], None] | None = None,
    ) -> None:
        """Make it; both functions are called on the loop.

        Args:
            tls: says which context to use.
            on_done: gets the socket, host, peer, and the client's certificate in DER.
            on_failed: gets the peer and the reason; not called when a client only went away.
            unproven: where handshakes under way are counted.
            on_plain: gets the socket, host and peer of a plain connection; such are refused without it.
        """
        self._tls = tls
        self._on_done = on_done
        self._on_failed = on_failed
        self._unproven = unproven
        self._on_plain = on_plain
        self._threads = ThreadPoolExecutor(HANDSHAKE_THREADS, "tls")
        self._pending: dict[_Handshake, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def begin(self, sock: socket.socket, host: str, peer: str, timeout_s: float) -> None:
        """Begin the handshake on a new non-blocking connection; it is closed after *timeout_s*."""
        handshake = _Handshake(self, sock, host, peer)
        loop = asyncio.get_running_loop()
        self._unproven.enter(host)
        self._pending[handshake] = loop.call_later(timeout_s, handshake.fail, "TLS handshake took too long")
        handshake.wait_first_byte()

    def close(self) -> None:
        """Close all that are under way."""
        for handshake in list(self._pending):
            handshake.fail("")
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Handshake:
    def __init__(self, owner: Handshakes, sock: socket.socket, host: str, peer: str) -> None:
        self._owner = owner
        self._sock: socket.socket | ssl.SSLSocket = sock
        self._fd = sock.fileno()
        self._host = host
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._is_in_thread = False
        self._is_over = False
        self._binding = b""

    def wait_first_byte(self) -> None:
        self._loop.add_reader(self._fd, self._first_byte)

    def _first_byte(self) -> None:
        self._loop.remove_reader(self._fd)
        try:
            first = self._sock.recv(1, socket.MSG_PEEK)
        except OSError:
            first = b""
        if not first:
            self.fail("")  # so health checks of load balancers end
        elif first != CLIENT_HELLO and self._owner._on_plain is not None:
            self._end()
            assert not isinstance(self._sock, ssl.SSLSocket)
            self._owner._on_plain(self._sock, self._host, self._peer)
        elif first != CLIENT_HELLO:
            # Without an alert: Java's clients take one for the size of a frame of 350 MB.
            self.fail("plain client on a TLS listener; its security.protocol must be SSL or SASL_SSL")
        else:
            self._binding = self._owner._tls.binding
            try:
                self._sock = self._owner._tls.context.wrap_socket(
                    self._sock, server_side=True, do_handshake_on_connect=False
                )
            except OSError as error:
                self.fail(f"TLS handshake failed: {error}")
                return
            self._go_on()

    def _go_on(self) -> None:
        assert isinstance(self._sock, ssl.SSLSocket)
        self._is_in_thread = True
        work = self._loop.run_in_executor(self._owner._threads, _shake, self._sock)
        work.add_done_callback(self._went)

    def _went(self, done: "asyncio.Future[str]") -> None:
        self._is_in_thread = False
        if self._is_over:
            self._sock.close()
            return
        if done.cancelled():
            return
        if error := done.exception():
            self.fail(f"TLS handshake failed: {_reason(error)}")
        elif done.result() == "read":
            self._loop.add_reader(self._fd, self._ready)
        elif done.result() == "write":
            self._loop.add_writer(self._fd, self._ready)
        else:
            self._finish()

    def _ready(self) -> None:
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._go_on()

    def _finish(self) -> None:
        assert isinstance(self._sock, ssl.SSLSocket)
        certificate = self._sock.getpeercert(binary_form=True)
        # OpenSSL looks at the certificate only when a session begins, and TLS 1.2 resumes one for two hours.
        if self._sock.session_reused and certificate is not None and self._owner._tls.has_expired(certificate):
            self.fail("client certificate: it or the revocation list has expired")
            return
        self._end()
        self._owner._on_done(TlsSocket(self._sock, self._binding), self._host, self._peer, certificate)

    def _end(self) -> None:
        self._is_over = True
        self._owner._pending.pop(self).cancel()
        self._owner._unproven.leave(self._host)

    def fail(self, reason: str) -> None:
        if self._is_over:
            return
        self._end()
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        if not self._is_in_thread:  # else the thread still uses it
            self._sock.close()
        if reason:
            self._owner._on_failed(self._peer, reason)


def _shake(sock: ssl.SSLSocket) -> str:
    try:
        sock.do_handshake()
    except ssl.SSLWantReadError:
        return "read"
    except ssl.SSLWantWriteError:
        return "write"
    return ""


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"client certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error)

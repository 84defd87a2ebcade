"""One client's connection: frames in, replies out in order, file slices sent without being read.

frame => size: int32, payload: size bytes      (big-endian; size excludes itself)

The receive buffer is one per listener, not one per connection: between two reads a connection keeps only the bytes
of its unfinished frame, so an idle connection costs no buffer.  A frame that does not fit gets a buffer of its own
which grows with the bytes received, never with the size claimed.
"""

import asyncio
import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from pylog.errors import ProtocolError
from pylog.log.segment import FileSlice
from pylog.metrics import Histogram, observe_all
from pylog.net import cold
from pylog.security.authorizer import Subject
from pylog.security.principal import NEVER_NS, Session

_logger = logging.getLogger(__name__)

Part = bytes | FileSlice
"""A piece of a reply; only this package looks inside a slice."""

MAX_REQUESTS_IN_FLIGHT = 100
"""Requests of one connection waiting for their reply; beyond it nothing more is read (rule 6)."""

MAX_REPLY_BYTES_IN_FLIGHT = 16 << 20
"""Bytes of replies waiting to be sent; beyond it nothing more is read (rule 6).  Slices count, holding none."""

TURN_NS = 20_000_000
"""How long the frames of one read are handled before all others get a turn: a read may bring 18,000 of them."""

_MAX_GATHER = 64  # parts in one sendmsg; the kernel's limit is 1024, beyond 64 the gain is gone
_FIRST_GROWTH_BYTES = 64 * 1024
_SIZE = struct.Struct(">i")
_now_ns = time.perf_counter_ns


class FrameHandler(Protocol):
    """What a connection hands its frames to."""

    def on_frame(self, connection: "Connection", frame: memoryview) -> list[Part] | None:
        """Handle one frame without its size; the view dies when this returns.

        Returns:
            The whole reply frame, or None: none is due, or one was promised by `Connection.open_slot`.

        Raises:
            ProtocolError: the connection is closed.
        """

    def on_closed(self, connection: "Connection") -> None:
        """Forget the connection."""


class Slot:
    """The place of a reply that is not ready yet; later replies wait behind it.

    Invariant: the slices of `parts` are acquired.

    Attributes:
        read_ns: when the request was read; see `Connection.read_ns`.
    """

    __slots__ = ("connection", "parts", "read_ns")

    def __init__(self, connection: "Connection", parts: list[Part] | None = None) -> None:
        self.connection = connection
        self.parts = parts
        self.read_ns = connection.read_ns

    def complete(self, parts: list[Part]) -> None:
        """Give the reply; nobody gets it if the connection closed meanwhile."""
        assert self.parts is None, "a slot is completed once"
        if self.connection.is_closed:
            return
        _acquire(parts)
        self.parts = parts
        self.connection._slot_completed()


class Connection:
    """See the module.  Lives on one event loop.

    Attributes:
        answered: the histogram of each request that was answered at once in this wake-up.  They share one look at the
            clock when their answers are with the socket.
        session: who is at the other end, and by which listener it came; see `begin_session`.
        peer: address for log lines.
        state: whatever the handler keeps for this connection.
        rights: what decides for the client, and the session that it was looked up for.
        read_ns: `time.perf_counter_ns` when the frames that are being handled were read.  Taken once a wake-up, so
            that a request counts the time in which those before it were handled.
        requests: frames handled so far.
        software: name and version that the client gave of itself, or nothing yet.
    """

    __slots__ = (
        "_big", "_big_have", "_big_size", "_buffer", "_fd", "_handler", "_is_behind", "_is_held", "_is_paused",
        "_is_reading_ahead", "_is_writing", "_loop", "_max_frame_bytes", "_muted", "_on_admit", "_on_close", "_out",
        "_out_bytes", "_raw", "_session_end", "_slots", "_sock", "_tail", "_was_read_in", "answered", "is_closed",
        "peer", "read_ns", "requests", "rights", "session", "software", "state",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        *,
        handler: FrameHandler,
        buffer: bytearray,
        max_frame_bytes: int,
        session: Session,
        peer: str,
        on_close: Callable[["Connection", str], None],
        on_admit: Callable[["Connection"], int] | None = None,
    ) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = asyncio.get_running_loop()
        self._handler = handler
        self._raw = buffer
        self._buffer = memoryview(buffer)
        self._max_frame_bytes = max_frame_bytes
        self._on_close = on_close
        self._on_admit = on_admit
        self._tail: bytes | bytearray = b""
        self._big: bytearray | None = None
        self._big_have = 0
        self._big_size = 0
        # Lists, though both are queues: they are short, and an empty deque costs ten times as much as an empty list.
        self._out: list[Part | memoryview] = []
        self._out_bytes = 0
        self._slots: list[Slot] = []
        # Whole frames lie in the tail: they are handled in a later turn, and nothing is read before.
        self._is_behind = False
        self._is_held = False
        self._is_paused = False
        self._is_writing = False
        self._is_reading_ahead = False
        self._muted: asyncio.TimerHandle | None = None
        self._was_read_in = False
        self.answered: list[Histogram] = []
        self.is_closed = False
        self.read_ns = 0
        self.requests = 0
        self.software = ("", "")
        self._session_end: asyncio.TimerHandle | None = None
        self.begin_session(session)
        self.peer = peer
        self.state: object = None
        self.rights: tuple[Session, Subject] | None = None
        self._loop.add_reader(self._fd, self._on_readable)

    def open_slot(self) -> Slot:
        """Promise a reply to the frame being handled."""
        slot = Slot(self)
        self._slots.append(slot)
        return slot

    def hold(self, frame: memoryview) -> memoryview:
        """Handle no frame behind the one being handled until `release`, so that none overtakes it; keep what it reads.

        So Kafka does with every frame until it is answered.

        Returns:
            The frame, or a part of it, as memory that nobody else writes to.
        """
        self._is_held = True
        self._pause()
        return memoryview(bytearray(frame)) if frame.obj is self._raw else frame

    def release(self) -> None:
        """Go on after `hold`."""
        self._is_held = False
        if not self.is_closed:
            self._resume()

    def begin_session(self, session: Session) -> None:
        """Replace the session; the connection is closed when this one expires, unless another one begins before.

        By a timer: a look at the clock for each frame would let a client go on that sent its frames before the end, let
        a fetch that waits be answered after it, and keep a connection open that sends nothing.
        """
        if self._session_end is not None:
            self._session_end.cancel()
            self._session_end = None
        self.session = session
        if session.expires_at_ns != NEVER_NS:
            left_s = (session.expires_at_ns - _now_ns()) / 1e9
            self._session_end = self._loop.call_later(max(left_s, 0.0), self.close, "session expired")

    def admit(self) -> None:
        """Take requests of any client's size from now on: this one has shown who it is.  A second call does nothing."""
        if self._on_admit is not None:
            self._max_frame_bytes = self._on_admit(self)
            self._on_admit = None

    def mute(self, duration_ms: int) -> None:
        """Read nothing more for *duration_ms* at least (rule 6); what was read already is handled, replies go out."""
        if self.is_closed:
            return
        until = self._loop.time() + duration_ms / 1000
        if self._muted is not None:
            if self._muted.when() >= until:
                return
            self._muted.cancel()
        self._muted = self._loop.call_at(until, self._unmute)
        self._pause()

    def _unmute(self) -> None:
        self._muted = None
        self._resume()

    def close(self, reason: str = "") -> None:
        """Close at once; queued replies are dropped and their slices let go.  A second call does nothing."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._muted is not None:
            self._muted.cancel()
        if self._session_end is not None:
            self._session_end.cancel()
        self._loop.remove_reader(self._fd)
        if self._is_writing:
            self._loop.remove_writer(self._fd)
        self._sock.close()
        _release(self._out)
        for slot in self._slots:
            _release(slot.parts or ())
        self._out.clear()
        self._slots.clear()
        self._handler.on_closed(self)
        self._on_close(self, reason)

    # -- in ------------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            if self._is_behind:
                self._handle_tail()
            elif self._big is not None:
                self._read_big()
            else:
                self._read_frames()
        except BlockingIOError:
            return
        except ProtocolError as error:
            self.close(f"protocol error: {error}")
        except ConnectionResetError:
            # So HAProxy ends its health checks, every second or two; whoever it was went away.
            self.close("peer closed")
        except OSError as error:
            self.close(f"read failed: {error}")
        except Exception:
            # A bug met here must cost one client its connection, not everybody the broker.
            _logger.exception("bug peer=%s", self.peer)
            self.close("read failed here")
        if self._out and not self._is_writing:
            self._flush()
        answered = self.answered
        if answered:
            duration_ns = _now_ns() - self.read_ns
            if len(answered) == 1:
                answered.pop().observe_ns(duration_ns)
            else:
                observe_all(answered, duration_ns)
                answered.clear()

    def _read_frames(self) -> None:
        tail, buffer = self._tail, self._buffer
        have = len(tail)
        if have:
            buffer[:have] = tail
            count = self._sock.recv_into(buffer[have:])
        else:
            count = self._sock.recv_into(buffer)
        self.read_ns = _now_ns()
        if not count:
            self.close("peer closed" if not have else f"peer closed inside a frame, after {have} bytes of it")
            return
        self._handle_frames(have + count, self.read_ns + TURN_NS)

    def _handle_frames(self, end: int, until_ns: int) -> None:
        """Handle the frames in the first *end* bytes of the receive buffer, and keep what takes longer for later."""
        buffer = self._buffer
        position = 0
        raw, handle, unpack, limit = self._raw, self._handle, _SIZE.unpack_from, self._max_frame_bytes
        while end - position >= 4:
            (size,) = unpack(raw, position)
            start = position + 4
            stop = start + size
            if stop > end or not 0 < size <= limit:
                # Checked before the payload arrives: a bad size must not make us wait for 2 GiB.
                self._check_size(size, raw[position : position + 4])
                break
            handle(buffer[start:stop])
            if self.is_closed:
                return
            position = stop
            if position < end and (self._has_too_much_in_flight or _now_ns() > until_ns):
                self._fall_behind(raw[position:end])
                return
        self._tail = raw[position:end] if position < end else b""
        if len(self._tail) > 4:
            (size,) = unpack(self._tail, 0)
            if size + 4 > len(raw):
                self._begin_big(size)

    def _fall_behind(self, rest: bytearray) -> None:
        """Handle the *rest* of what was read in a later turn, once so much is no more in flight."""
        self._tail, self._is_behind = rest, True
        self._loop.remove_reader(self._fd)
        if not self._has_too_much_in_flight:
            self._loop.call_soon(self._catch_up)

    def _catch_up(self) -> None:
        if not self.is_closed and self._is_behind and not self._has_too_much_in_flight:
            self._on_readable()

    def _handle_tail(self) -> None:
        tail = self._tail
        self._tail, self._is_behind = b"", False
        self._buffer[: len(tail)] = tail
        self._handle_frames(len(tail), _now_ns() + TURN_NS)
        if not self._is_behind and not self._is_paused and not self.is_closed:
            self._loop.add_reader(self._fd, self._on_readable)

    @property
    def _has_too_much_in_flight(self) -> bool:
        return self._is_held or len(self._slots) > MAX_REQUESTS_IN_FLIGHT or self._out_bytes > MAX_REPLY_BYTES_IN_FLIGHT

    def _check_size(self, size: int, first: bytes | bytearray) -> None:
        if 0 < size <= self._max_frame_bytes:
            return
        if first[0] == 0x16 and first[1] == 0x03:
            raise ProtocolError("TLS client hello on a plain listener; this listener speaks no TLS")
        raise ProtocolError(f"frame claims {size} bytes; 1 to {self._max_frame_bytes} are allowed")

    def _begin_big(self, size: int) -> None:
        self._big_size = size + 4
        self._big_have = len(self._tail)
        self._big = bytearray(min(self._big_size, max(2 * self._big_have, _FIRST_GROWTH_BYTES)))
        self._big[: self._big_have] = self._tail
        self._tail = b""

    def _read_big(self) -> None:
        big, have = self._big, self._big_have
        assert big is not None
        if have == len(big):
            grown = bytearray(min(self._big_size, 2 * have))
            grown[:have] = big
            self._big = big = grown
        with memoryview(big) as view:
            count = self._sock.recv_into(view[have:])
        if not count:
            self.close(f"peer closed inside a frame, after {have} of {self._big_size} bytes")
            return
        self._big_have = have + count
        if self._big_have == self._big_size:
            self.read_ns = _now_ns()
            self._big = None
            self._handle(memoryview(big)[4:])

    def _handle(self, frame: memoryview) -> None:
        self.requests += 1
        reply = self._handler.on_frame(self, frame)
        if reply is not None:
            _acquire(reply)
            if self._slots:
                self._slots.append(Slot(self, reply))
            else:
                self._enqueue(reply)
        if len(self._slots) > MAX_REQUESTS_IN_FLIGHT or self._out_bytes > MAX_REPLY_BYTES_IN_FLIGHT:
            self._pause()

    def _pause(self) -> None:
        if not self._is_paused and not self.is_closed:
            self._is_paused = True
            self._loop.remove_reader(self._fd)

    def _resume(self) -> None:
        if (
            self._is_paused
            and not self._is_held
            and self._muted is None
            and len(self._slots) <= MAX_REQUESTS_IN_FLIGHT // 2
            and self._out_bytes <= MAX_REPLY_BYTES_IN_FLIGHT // 2
        ):
            self._is_paused = False
            if self._is_behind:
                self._loop.call_soon(self._catch_up)
            else:
                self._loop.add_reader(self._fd, self._on_readable)

    # -- out -----------------------------------------------------------------------------------------------------

    def _enqueue(self, parts: list[Part]) -> None:
        self._out.extend(parts)
        for part in parts:
            self._out_bytes += len(part) if type(part) is bytes else part.size_bytes  # type: ignore[union-attr]

    def _slot_completed(self) -> None:
        slots = self._slots
        if self.is_closed:
            return
        while slots and (parts := slots[0].parts) is not None:
            del slots[0]
            self._enqueue(parts)
        if self._out and not self._is_writing:
            self._flush()
        if self._is_paused and not self.is_closed:
            self._resume()

    def _flush(self) -> None:
        """Send until the socket is full, a slice has to be read in, or nothing is left."""
        out = self._out
        try:
            while out:
                if self._is_reading_ahead:
                    self._watch_writable(False)
                    return
                part = out[0]
                if isinstance(part, FileSlice):
                    if not self._send_slice(part):
                        return
                else:
                    self._send_bytes()
        except BlockingIOError:
            self._watch_writable(True)
            return
        except OSError as error:
            self.close(f"write failed: {error}")
            return
        except Exception:
            _logger.exception("bug peer=%s", self.peer)
            self.close("write failed here")
            return
        self._watch_writable(False)
        if self._is_paused:
            self._resume()

    def _watch_writable(self, wanted: bool) -> None:
        if wanted and not self._is_writing:
            self._loop.add_writer(self._fd, self._flush)
        elif not wanted and self._is_writing:
            self._loop.remove_writer(self._fd)
        self._is_writing = wanted

    def _send_bytes(self) -> None:
        out = self._out
        if len(out) == 1:
            data = out[0]
            sent = self._sock.send(data)  # type: ignore[arg-type]
        else:
            run: list[bytes | memoryview] = []
            for part in out:
                if isinstance(part, FileSlice) or len(run) == _MAX_GATHER:
                    break
                run.append(part)
            # The frame goes on in a slice: MSG_MORE keeps the kernel from sending its head in a packet of its own.
            sent = self._sock.sendmsg(run, (), socket.MSG_MORE if len(run) < len(out) else 0)
        self._note_sent(sent)

    def _note_sent(self, sent: int) -> None:
        out = self._out
        self._out_bytes -= sent
        while sent:
            first = out[0]
            size = len(first)  # type: ignore[arg-type]
            if sent < size:
                out[0] = memoryview(first)[sent:]  # type: ignore[arg-type]
                return
            sent -= size
            del out[0]

    def _send_slice(self, part: FileSlice) -> bool:
        """Send some of *part*; return whether the caller may go on."""
        if not part.is_current():
            # The frame's length is already promised, so there is nothing true left to say (rule 5).
            self.close("log was truncated under a reply")
            return False
        wanted = part.size_bytes
        if not part.is_recent(cold.HOT_WINDOW_BYTES):
            wanted = min(wanted, cold.CHUNK_BYTES)
            if self._was_read_in:
                # Sent without another probe: under memory pressure the pages may go again, and the reply must end.
                self._was_read_in = False
            elif not cold.is_cached(part.fd, part.position, wanted):
                self._read_ahead(part, wanted)
                return False
        sent = self._transfer(part, wanted)
        if not sent:
            self.close("log ended before the end of a reply")
            return False
        part.position += sent
        part.size_bytes -= sent
        self._out_bytes -= sent
        if not part.size_bytes:
            del self._out[0]
            part.release()
        return True

    def _transfer(self, part: FileSlice, size_bytes: int) -> int:
        """Send up to *size_bytes* of a slice; return how many, 0 if the file has ended."""
        return os.sendfile(self._fd, part.fd, part.position, size_bytes)

    def _read_ahead(self, part: FileSlice, size_bytes: int) -> None:
        # A page fault in sendfile would stop the loop for everybody, so a thread takes it (rule 10).
        self._is_reading_ahead = True
        self._watch_writable(False)
        part.acquire()
        work = self._loop.run_in_executor(None, cold.read_in, part.fd, part.position, size_bytes)
        work.add_done_callback(lambda done: self._read_ahead_done(part, done))

    def _read_ahead_done(self, part: FileSlice, done: "asyncio.Future[None]") -> None:
        part.release()
        self._is_reading_ahead = False
        if self.is_closed:
            return
        if error := done.exception():
            self.close(f"read of the log failed: {error}")
        else:
            self._was_read_in = True
            self._flush()


def _acquire(parts: list[Part]) -> None:
    for part in parts:
        if type(part) is FileSlice:
            part.acquire()


def _release(parts: Sequence[Part | memoryview]) -> None:
    for part in parts:
        if isinstance(part, FileSlice):
            part.release()

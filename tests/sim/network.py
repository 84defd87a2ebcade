"""A network of byte streams: delays, losses that cost a retransmission, cuts in one direction or both, resets.

A stream keeps its order, as TCP does; different streams overtake each other.  Bytes that meet a cut are sent again
until it heals or the stream is given up; in some runs ever more seldom, as TCP does, so that a stream of before comes
through long after newer ones.  What a closed or killed end had sent may still arrive.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.sim.world import CURRENT, Process, World

RETRANSMIT_S = (0.05, 0.4)
GIVE_UP_S = 12.0
"""How long bytes are sent again before their stream is reset."""

BACKING_OFF_SHARE = 0.3
"""Runs in which the pause before bytes are sent again grows up to the time that they have waited for."""

CHUNK_BYTES = 16 << 10
FIRST_FD = 1 << 24  # no real descriptor is ever that large

Address = tuple[str, int]


@dataclass(slots=True)
class Weather:
    """How the network is at the moment."""

    delay_s: tuple[float, float] = (0.0001, 0.001)
    loss: float = 0.0
    reset: float = 0.0


@dataclass(slots=True, eq=False)
class Attempt:
    """A connection being made."""

    is_over: bool = False


class End:
    """One end of a stream.

    Attributes:
        peer: the other end.
        received: bytes that have arrived and were not read.
        is_finished: the peer sent its last byte, and it arrived.
    """

    def __init__(self, network: "Network", process: Process | None, host: str, name: str) -> None:
        self.network = network
        self.process = process
        self.host = host
        self.name = name
        self.peer: End = self
        self.received = bytearray()
        self.is_finished = False
        self.is_reset = False
        self.is_closed = False
        self.on_data: Callable[[], None] | None = None
        self._sending: deque[tuple[int, bytes | None]] = deque()
        self._is_stalled = False
        self._last_us = 0
        self._hangs_until_us = 0

    def hang(self, until_us: int) -> None:
        """Hold back what is sent from here, until then."""
        self._hangs_until_us = max(self._hangs_until_us, until_us)

    def send(self, data: bytes | None) -> None:
        """Send bytes, or None as the last; they arrive in order, or the stream is reset."""
        if self.is_closed or self.is_reset:
            return
        world = self.network.world
        size = -1 if data is None else len(data)
        world.note(f"send {self.host} {self.peer.host} {self.name} {size}")
        low, high = self.network.weather.delay_s
        arrival_us = max(self._last_us + 1, world.now_us + int(world.random.uniform(low, high) * 1e6))
        self._last_us = arrival_us
        self._sending.append((world.now_us, data))
        world.at(arrival_us, None, self._arrive)

    def _arrive(self) -> None:
        if not self._is_stalled:
            self._deliver()

    def _deliver(self) -> None:
        """Hand over the next bytes, or try again later."""
        if not self._sending or self.is_reset:
            return
        network = self.network
        world, weather = network.world, network.weather
        sent_us, data = self._sending[0]
        if world.now_us < self._hangs_until_us:
            self._is_stalled = True
            world.at(self._hangs_until_us, None, self._again)
            return
        if weather.reset and world.random.random() < weather.reset:
            self.reset()
            return
        is_lost = weather.loss > 0 and world.random.random() < weather.loss
        if is_lost or network.is_cut(self.host, self.peer.host):
            if world.now_us - sent_us > GIVE_UP_S * 1e6:
                self.reset()
                return
            self._is_stalled = True
            low_s, high_s = RETRANSMIT_S
            if network.is_backing_off:
                high_s = max(high_s, (world.now_us - sent_us) / 1e6)
            world.after(world.random.uniform(low_s, high_s), None, self._again)
            return
        self._sending.popleft()
        peer = self.peer
        if peer.is_closed:
            if peer.process is None or peer.process.is_alive or network.is_up(peer.host):
                self.reset()
            return
        if data is None:
            peer.is_finished = True
            size = -1
        else:
            peer.received += data
            size = len(data)
        world.note(f"arrive {self.host} {peer.host} {self.name} {size}")
        peer.wake()

    def _again(self) -> None:
        self._is_stalled = False
        for _ in range(len(self._sending)):
            if self._is_stalled or self.is_reset:
                return
            self._deliver()

    def wake(self) -> None:
        """Tell the owner that there is something to read."""
        if self.on_data is not None and (self.received or self.is_finished or self.is_reset):
            self.on_data()

    def reset(self) -> None:
        """End the stream in both directions; bytes under way are lost."""
        self.network.world.note("reset", self.host, self.peer.host, self.name)
        for end in (self, self.peer):
            if not end.is_reset:
                end.is_reset = True
                end._sending.clear()
                end.wake()

    def close(self) -> None:
        """Send the end and read nothing more."""
        if not self.is_closed:
            self.send(None)
            self.is_closed = True
            self.on_data = None

    def die(self) -> None:
        """Its process was killed: the kernel, if the host lives, ends the stream, or resets it if some was unread."""
        network = self.network
        if network.is_up(self.host) and network.world.random.random() < 0.5:
            self.send(None)
        elif network.is_up(self.host):
            network.world.after(0.0005, None, self._reset_unless_cut)
        self.is_closed = True
        self.on_data = None

    def _reset_unless_cut(self) -> None:
        if not self.network.is_cut(self.host, self.peer.host):
            self.reset()


class Network:
    """All streams and who can reach whom.

    Attributes:
        weather: of all streams.
        is_backing_off: see `BACKING_OFF_SHARE`.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_backing_off = world.random.random() < BACKING_OFF_SHARE
        self.weather = Weather()
        self._cuts: set[tuple[str, str]] = set()
        self._down: set[str] = set()
        self._listening: dict[Address, SimSocket] = {}
        self._sockets: dict[int, SimSocket] = {}
        self._ends: dict[End, None] = {}
        self._fds = itertools.count(FIRST_FD)
        self._streams = itertools.count(1)

    # -- who reaches whom ------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Lose everything from *source* to *target*."""
        self._cuts.add((source, target))

    def uncut(self, source: str, target: str) -> None:
        """Let bytes pass again."""
        self._cuts.discard((source, target))

    def hang(self, source: str, target: str, for_s: float) -> None:
        """Hold back what is sent on streams that there are from *source* to *target*; new ones are as fast as ever."""
        self.world.note("hang", f"{source}>{target}", for_s)
        for end in self._ends:
            if end.host == source and end.peer.host == target:
                end.hang(self.world.now_us + int(for_s * 1e6))

    def heal(self) -> None:
        """Let everybody reach everybody."""
        self._cuts.clear()

    def is_cut(self, source: str, target: str) -> bool:
        """Whether bytes from *source* do not reach *target* now."""
        return (source, target) in self._cuts or source in self._down or target in self._down

    def is_up(self, host: str) -> bool:
        """Whether the machine runs."""
        return host not in self._down

    def set_up(self, host: str, is_up: bool) -> None:
        """Switch a machine on or off."""
        if is_up:
            self._down.discard(host)
        else:
            self._down.add(host)

    def forget(self, process: Process) -> None:
        """Close what a killed process had open."""
        for address, sock in list(self._listening.items()):
            if sock.process is process:
                del self._listening[address]
        for end in [end for end in self._ends if end.process is process]:
            del self._ends[end]
            end.die()

    # -- sockets, as `pylog.net` uses them -------------------------------------------------------------------------

    AF_INET, AF_INET6, SOCK_STREAM, SOCK_NONBLOCK, SOL_SOCKET, SO_REUSEADDR, IPPROTO_TCP, TCP_NODELAY = range(1, 9)

    def socket(self, family: int, kind: int) -> "SimSocket":
        """Return a socket to listen with."""
        return self.adopt(SimSocket(self, CURRENT.get(), next(self._fds)))

    def adopt(self, sock: "SimSocket") -> "SimSocket":
        """Let the loop know a socket by its descriptor."""
        self._sockets[sock.fileno()] = sock
        return sock

    def listen(self, address: Address, sock: "SimSocket") -> None:
        """Let *sock* get the connections to *address*."""
        self._listening[address] = sock

    def unlisten(self, sock: "SimSocket") -> None:
        """Refuse connections from now on."""
        for address in [address for address, other in self._listening.items() if other is sock]:
            del self._listening[address]
        self._sockets.pop(sock.fileno(), None)

    def on_readable(self, fd: int, callback: Callable[[], None] | None) -> None:
        """Call back whenever *fd* may be read."""
        sock = self._sockets.get(fd)
        if sock is not None:
            sock.on_readable = callback

    def look(self, fd: int) -> None:
        """Call back at once if *fd* may be read now."""
        sock = self._sockets.get(fd)
        if sock is not None and sock.is_readable:
            sock.wake()

    def sendfile(self, out_fd: int, data: bytes) -> int:
        """Send what was read from a file."""
        return self._sockets[out_fd].send(data)

    def is_simulated(self, fd: int) -> bool:
        """Whether *fd* is one of ours."""
        return fd >= FIRST_FD

    # -- connecting ------------------------------------------------------------------------------------------------

    def connect(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        protocol: asyncio.Protocol,
        connected: "asyncio.Future[asyncio.Transport]",
    ) -> Attempt:
        """Connect to a listener: after a round trip, or never while a cut is in between."""
        process = CURRENT.get()
        assert process is not None
        attempt, source = Attempt(), process.host

        def knock() -> None:
            if attempt.is_over or connected.done():
                return
            if self.is_cut(source, host) or self.is_cut(host, source):
                self.world.after(self.world.random.uniform(*RETRANSMIT_S), process, knock)
                return
            listener = self._listening.get((host, port))
            if listener is None:
                connected.set_exception(ConnectionRefusedError(f"{host}:{port} refuses"))
                return
            name = f"s{next(self._streams)}"
            near = End(self, process, source, name)
            far = End(self, listener.process, host, name)
            near.peer, far.peer = far, near
            self._ends[near] = self._ends[far] = None
            listener.offer(far, source)
            connected.set_result(SimTransport(near, protocol, loop))

        low, high = self.weather.delay_s
        self.world.after(2 * self.world.random.uniform(low, high), process, knock)
        return attempt

    def closed(self, end: End) -> None:
        """Forget an end that was closed."""
        self._ends.pop(end, None)

    def new_fd(self) -> int:
        """Return the next descriptor."""
        return next(self._fds)


class SimSocket:
    """`socket.socket`, as far as `pylog.net` uses it: listening, or accepted."""

    def __init__(self, network: Network, process: Process | None, fd: int, end: End | None = None) -> None:
        self.process = process
        self.on_readable: Callable[[], None] | None = None
        self._network = network
        self._fd = fd
        self._end = end
        self._backlog: deque[tuple[End, str]] = deque()
        self._address: Address = ("", 0)
        if end is not None:
            end.on_data = self.wake

    @property
    def is_readable(self) -> bool:
        """Whether accept or recv has something to say."""
        end = self._end
        return bool(self._backlog) if end is None else bool(end.received or end.is_finished or end.is_reset)

    def wake(self) -> None:
        """Tell the loop."""
        if self.on_readable is not None:
            self.on_readable()

    def fileno(self) -> int:
        return self._fd

    def setsockopt(self, *options: object) -> None:
        """Nothing to set."""

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def bind(self, address: Address) -> None:
        self._address = address

    def listen(self, backlog: int) -> None:
        self._network.listen(self._address, self)

    def getsockname(self) -> Address:
        return self._address

    def offer(self, end: End, host: str) -> None:
        """Put a connection into the backlog."""
        self._backlog.append((end, host))
        self.wake()

    def accept(self) -> "tuple[SimSocket, Address]":
        if not self._backlog:
            raise BlockingIOError
        end, host = self._backlog.popleft()
        sock = self._network.adopt(SimSocket(self._network, self.process, self._network.new_fd(), end))
        return sock, (host, 0)

    def recv_into(self, buffer: memoryview) -> int:
        end = self._end
        assert end is not None
        if end.is_reset:
            raise ConnectionResetError("reset by peer")
        if not end.received:
            if end.is_finished:
                return 0
            raise BlockingIOError
        count = min(len(buffer), len(end.received), CHUNK_BYTES)
        buffer[:count] = end.received[:count]
        del end.received[:count]
        return count

    def send(self, data: Any) -> int:
        end = self._end
        assert end is not None
        if end.is_reset:
            raise ConnectionResetError("reset by peer")
        end.send(bytes(data))
        return len(data)

    def sendmsg(self, parts: list[Any], ancillary: object, flags: int) -> int:
        return self.send(b"".join(bytes(part) for part in parts))

    def close(self) -> None:
        if self._end is None:
            self._network.unlisten(self)
        else:
            self._end.close()
            self._network.closed(self._end)
            self._network._sockets.pop(self._fd, None)


class SimTransport(asyncio.Transport):
    """The connecting end, as asyncio's streams use it."""

    def __init__(self, end: End, protocol: asyncio.Protocol, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._end = end
        self._protocol = protocol
        self._loop = loop
        self._is_closing = False
        self._is_paused = False
        process = CURRENT.get()
        world = end.network.world
        end.on_data = lambda: world.at(world.now_us, process, self._read)
        protocol.connection_made(self)
        end.wake()

    def _read(self) -> None:
        end = self._end
        if self._is_closing or self._is_paused:
            return
        if end.is_reset:
            self._lose(ConnectionResetError("reset by peer"))
        elif end.received:
            data = bytes(end.received)
            end.received.clear()
            self._protocol.data_received(data)
            end.wake()
        elif end.is_finished:
            self._protocol.eof_received()
            self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._end.close()
            self._end.network.closed(self._end)
            self._loop.call_soon(self._protocol.connection_lost, error)

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._end.send(bytes(data))

    def close(self) -> None:
        self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._end.wake()

    def get_write_buffer_size(self) -> int:
        return 0

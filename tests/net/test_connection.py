"""One connection against a real socket: frames cut anywhere, replies in order, slices under truncation, bad sizes."""

import asyncio
import itertools
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.errors import ProtocolError
from pylog.log.segment import FileSlice, Segment
from pylog.metrics import Histogram
from pylog.net import connection as net
from pylog.net.connection import Connection, Part, Slot
from pylog.security.principal import Session

MAX_FRAME = 1 << 20
BUFFER = 4096


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Echo:
    """Answers each frame with itself; keeps what it saw."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.reason = ""
        self.answer: Callable[[Connection, bytes], list[Part] | None] = lambda connection, frame: [framed(frame)]

    def on_frame(self, connection: Connection, frame: memoryview) -> list[Part] | None:
        self.frames.append(bytes(frame))
        return self.answer(connection, bytes(frame))

    def on_closed(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection, reason: str) -> None:
        self.reason = reason


def run(test: Callable[[socket.socket, Echo, Connection], Awaitable[None]], buffer_bytes: int = BUFFER) -> Echo:
    """Run *test* with the client's socket, the handler and the server's connection."""
    echo = Echo()

    async def body() -> None:
        client, server = socket.socketpair()
        client.setblocking(False)
        server.setblocking(False)
        connection = Connection(
            server,
            handler=echo,
            buffer=bytearray(buffer_bytes),
            max_frame_bytes=MAX_FRAME,
            session=Session(client_host="test", listener_name="test"),
            peer="test",
            on_close=echo.closed,
        )
        try:
            await asyncio.wait_for(test(client, echo, connection), 20)
        finally:
            connection.close()
            client.close()

    asyncio.run(body())
    return echo


async def read(client: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        got = await loop.sock_recv(client, size - len(data))
        if not got:
            break
        data += got
    return data


payloads = st.lists(st.binary(min_size=1, max_size=3 * BUFFER), min_size=1, max_size=6)


@given(payloads, st.lists(st.integers(1, 2 * BUFFER), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_frames_cut_and_pipelined_anywhere_give_the_same_answers(sent: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(framed(payload) for payload in sent)

    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        receiving = loop.create_task(read(client, len(stream)))
        position = 0
        while position < len(stream):
            size = cuts[position % len(cuts)]
            await loop.sock_sendall(client, stream[position : position + size])
            position += size
            await asyncio.sleep(0)
        assert await receiving == stream

    assert run(test).frames == sent


def test_a_reset_is_the_peer_that_went_away() -> None:
    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        await asyncio.get_running_loop().sock_sendall(client, framed(b"a"))
        while not echo.frames:
            await asyncio.sleep(0)
        client.close()  # with the answer unread
        while not echo.reason:
            await asyncio.sleep(0)

    assert run(test).reason == "peer closed"


def test_requests_of_one_read_share_the_time_until_their_answers_are_sent() -> None:
    writes, reads = Histogram(), Histogram()

    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        def answer(connection: Connection, frame: bytes) -> list[Part]:
            connection.answered.append(reads if frame == b"read" else writes)
            return [framed(frame)]

        echo.answer = answer
        loop = asyncio.get_running_loop()
        for frames in ([b"a", b"b", b"c"], [b"d", b"read"]):
            sent = b"".join(map(framed, frames))
            await loop.sock_sendall(client, sent)
            assert await read(client, len(sent)) == sent
        assert connection.answered == []

    run(test)
    assert (sum(writes.counts), sum(reads.counts)) == (4, 1)
    assert writes.sum_ns > reads.sum_ns > 0
    assert max(writes.counts) >= 3, "three of them took as long as each other"


def test_every_byte_alone_gives_the_same_answers() -> None:
    sent = [b"a", b"bc" * 30, b"d" * 7]
    stream = b"".join(framed(payload) for payload in sent)

    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        for byte in stream:
            await loop.sock_sendall(client, bytes([byte]))
            await asyncio.sleep(0)
        assert await read(client, len(stream)) == stream

    assert run(test).frames == sent


@pytest.mark.parametrize("size", [-1, 0, -(2**31), MAX_FRAME + 1, 2**31 - 1])
def test_an_impossible_size_closes_the_connection_before_the_payload(size: int) -> None:
    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        await asyncio.get_running_loop().sock_sendall(client, struct.pack(">i", size))
        assert await read(client, 1) == b""

    echo = run(test)
    assert not echo.frames
    assert f"claims {size} bytes" in echo.reason


def test_a_tls_hello_is_named() -> None:
    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        await asyncio.get_running_loop().sock_sendall(client, bytes([0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC]))
        assert await read(client, 1) == b""

    assert "TLS" in run(test).reason


def test_a_large_claim_takes_memory_only_as_bytes_arrive() -> None:
    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, struct.pack(">i", MAX_FRAME) + b"x" * 10)
        for _ in range(5):
            await asyncio.sleep(0)
        assert connection._big is not None
        assert len(connection._big) <= 64 * 1024

    run(test)


def test_replies_leave_in_order_though_the_first_is_late() -> None:
    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        slots: list[Slot] = []

        def answer(connection: Connection, frame: bytes) -> list[Part] | None:
            if frame == b"late":
                slots.append(connection.open_slot())
                return None
            return [framed(frame)]

        echo.answer = answer
        await loop.sock_sendall(client, framed(b"late") + framed(b"soon"))
        while len(echo.frames) < 2:
            await asyncio.sleep(0)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        slots[0].complete([framed(b"late")])
        assert await read(client, 16) == framed(b"late") + framed(b"soon")

    run(test)


def test_frames_of_one_read_leave_a_turn_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_ns = 0

    def now_ns() -> int:
        return clock_ns

    monkeypatch.setattr(net, "_now_ns", now_ns)
    turns: list[int] = []

    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        def slow(connection: Connection, frame: bytes) -> list[Part] | None:
            nonlocal clock_ns
            clock_ns += net.TURN_NS // 2 + 1
            return [framed(frame)]

        echo.answer = slow
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"".join(framed(bytes([number])) for number in range(6)) + b"\0\0")
        while len(echo.frames) < 6:
            await asyncio.sleep(0)
            turns.append(len(echo.frames))
        await loop.sock_sendall(client, b"\0\1z")
        sent = b"".join(framed(bytes([number])) for number in range(6)) + framed(b"z")
        assert await read(client, len(sent)) == sent, "in order, also what came in two pieces"

    run(test)
    assert max(after - before for before, after in itertools.pairwise(turns)) <= 2


def test_what_was_read_waits_while_too_much_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net, "MAX_REQUESTS_IN_FLIGHT", 3)

    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        slots: list[Slot] = []

        def wait(connection: Connection, frame: bytes) -> list[Part] | None:
            slots.append(connection.open_slot())
            return None

        echo.answer = wait
        sent = [bytes([number]) for number in range(20)]
        await asyncio.get_running_loop().sock_sendall(client, b"".join(map(framed, sent)))
        answered = 0
        while answered < len(sent):
            while len(slots) == answered:
                await asyncio.sleep(0)
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(slots) - answered <= 4, "one more than allowed tells that there are too many"
            slots[answered].complete([framed(sent[answered])])
            answered += 1
        assert await read(client, 5 * len(sent)) == b"".join(map(framed, sent))

    run(test)


def test_a_frame_that_wants_no_reply_gets_none() -> None:
    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        echo.answer = lambda connection, frame: None if frame == b"quiet" else [framed(frame)]
        await asyncio.get_running_loop().sock_sendall(client, framed(b"quiet") + framed(b"loud"))
        assert await read(client, 8) == framed(b"loud")

    run(test)


def test_a_protocol_error_closes_only_this_connection() -> None:
    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        def answer(connection: Connection, frame: bytes) -> list[Part] | None:
            raise ProtocolError("bad request")

        echo.answer = answer
        await asyncio.get_running_loop().sock_sendall(client, framed(b"x"))
        assert await read(client, 1) == b""

    assert run(test).reason == "protocol error: bad request"


def test_a_bug_met_while_reading_closes_only_this_connection() -> None:
    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        unheard_of: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard_of.append(context))
        echo.answer = lambda connection, frame: ["no bytes"]  # type: ignore[list-item]
        await asyncio.get_running_loop().sock_sendall(client, framed(b"x"))
        assert await read(client, 1) == b""
        assert unheard_of == [], "the loop's handler ends the process"

    assert run(test).reason.endswith("failed here")


def make_segment(directory: Path, content: bytes) -> Segment:
    segment = Segment(directory, 0)
    segment.create()
    os.write(segment.fd, content)
    segment.size_bytes = len(content)
    return segment


def slice_of(segment: Segment) -> FileSlice:
    return FileSlice(segment.fd, 0, segment.size_bytes, segment, segment.generation)


@pytest.mark.parametrize("is_active", [True, False], ids=["hot", "cold"])
def test_slices_are_sent_between_bytes_and_let_go(tmp_path: Path, is_active: bool) -> None:
    content = os.urandom(700_000)
    segment = make_segment(tmp_path, content)
    segment.is_active = is_active

    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        echo.answer = lambda connection, frame: [b"head", slice_of(segment), b"tail"]
        await asyncio.get_running_loop().sock_sendall(client, framed(b"x"))
        assert await read(client, 8 + len(content)) == b"head" + content + b"tail"

    run(test)
    assert segment.references == 1


def test_slices_of_late_replies_are_held_and_let_go(tmp_path: Path) -> None:
    segment = make_segment(tmp_path, b"0123456789")
    segment.is_active = True

    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        slots: list[Slot] = []

        def answer(connection: Connection, frame: bytes) -> list[Part] | None:
            slots.append(connection.open_slot())
            return None

        echo.answer = answer
        await loop.sock_sendall(client, framed(b"x") * 3)
        while len(slots) < 3:
            await asyncio.sleep(0)
        slots[1].complete([slice_of(segment)])
        assert segment.references == 2, "it waits behind the first reply"
        slots[0].complete([slice_of(segment)])
        assert await read(client, 20) == b"0123456789" * 2
        assert segment.references == 1
        connection.close()
        slots[2].complete([slice_of(segment)])

    run(test)
    assert segment.references == 1


def test_truncation_under_a_slow_reader_closes_the_connection(tmp_path: Path) -> None:
    segment = make_segment(tmp_path, bytes(4 << 20))
    segment.is_active = True

    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        echo.answer = lambda connection, frame: [b"head", slice_of(segment)]
        await asyncio.get_running_loop().sock_sendall(client, framed(b"x"))
        assert await read(client, 5) == b"head\x00"
        segment.generation += 1
        received = 5
        while got := await asyncio.get_running_loop().sock_recv(client, 65536):
            received += len(got)
        assert received < 4 << 20

    assert "truncated" in run(test).reason
    assert segment.references == 1


def test_a_file_that_ends_early_closes_the_connection(tmp_path: Path) -> None:
    segment = make_segment(tmp_path, bytes(100))
    segment.is_active = True

    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        echo.answer = lambda connection, frame: [FileSlice(segment.fd, 0, 200, segment, 0)]
        await asyncio.get_running_loop().sock_sendall(client, framed(b"x"))
        assert len(await read(client, 200)) == 100

    assert "ended before" in run(test).reason


def test_a_client_that_does_not_read_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net, "MAX_REPLY_BYTES_IN_FLIGHT", 1 << 20)

    async def test(client: socket.socket, echo: Echo, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        echo.answer = lambda connection, frame: [bytes(100_000)]
        sending = loop.create_task(loop.sock_sendall(client, framed(b"x") * 10_000))
        for _ in range(200):
            await asyncio.sleep(0)
        handled = len(echo.frames)
        assert handled < 10_000
        assert connection._out_bytes <= (1 << 20) + BUFFER // 5 * 100_000
        assert len(await read(client, handled * 100_000)) == handled * 100_000  # and it goes on once read
        while len(echo.frames) == handled:
            await read(client, 100_000)
        sending.cancel()

    run(test, buffer_bytes=256)

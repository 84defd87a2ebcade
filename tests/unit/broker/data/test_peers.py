"""How answers of another broker are put together from what arrives."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pylog.broker.data.peers import MAX_IMAGE_BYTES, PeerClient, _Answers
from pylog.errors import ApiError, ProtocolError
from pylog.model import NodeAddress
from pylog.wire.internal import InternalKey

FRAME = (5).to_bytes(4, "big") + b"hello"


class Transport(asyncio.Transport):
    """Keeps what is written; closing it does nothing more."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Any] = []
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True


def called(arrive: Callable[[_Answers], None]) -> bytes:
    """Return what a call returns if *arrive* happens while it waits."""

    async def story() -> bytes:
        answers, transport = _Answers(), Transport()
        answers.connection_made(transport)
        call = asyncio.create_task(answers.call(b"request"))
        await asyncio.sleep(0)
        assert transport.written == [b"request"]
        arrive(answers)
        return bytes(await call)

    return asyncio.run(story())


@pytest.mark.parametrize("piece_bytes", [1, 3, 4, 6, 9])
def test_an_answer_may_come_in_pieces(piece_bytes: int) -> None:
    def arrive(answers: _Answers) -> None:
        for start in range(0, len(FRAME), piece_bytes):
            answers.data_received(FRAME[start : start + piece_bytes])

    assert called(arrive) == b"hello"


def test_the_next_answer_begins_anew() -> None:
    async def story() -> None:
        answers = _Answers()
        answers.connection_made(Transport())
        for pieces in ([FRAME[:6], FRAME[6:]], [FRAME], [FRAME[:2], FRAME[2:]]):
            call = asyncio.create_task(answers.call(b""))
            await asyncio.sleep(0)
            for piece in pieces:
                answers.data_received(piece)
            assert bytes(await call) == b"hello"

    asyncio.run(story())


@pytest.mark.parametrize("size", [0, -1, MAX_IMAGE_BYTES + 1])
def test_a_size_that_cannot_be_is_refused_before_anything_is_kept(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"claims {size} bytes"):
        called(lambda answers: answers.data_received(size.to_bytes(4, "big", signed=True)))


def test_more_than_was_asked_for_is_no_answer() -> None:
    with pytest.raises(ProtocolError, match="14 bytes came where 5 were due"):
        called(lambda answers: answers.data_received(FRAME + FRAME))


@pytest.mark.parametrize("error", [None, ConnectionResetError("reset")])
def test_a_lost_connection_ends_the_call(error: Exception | None) -> None:
    with pytest.raises(ConnectionError):
        called(lambda answers: answers.connection_lost(error))


def test_nothing_is_asked_on_a_connection_that_is_gone() -> None:
    async def story() -> None:
        answers, transport = _Answers(), Transport()
        answers.connection_made(transport)
        answers.close()
        assert transport.is_closed
        with pytest.raises(ConnectionError):
            await answers.call(b"request")
        assert not transport.written

    asyncio.run(story())


def test_a_broker_that_does_not_answer_in_time_is_said_to() -> None:
    async def story() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        address = NodeAddress(7, *server.sockets[0].getsockname())
        async with server:
            with pytest.raises(ApiError, match=r"broker 7 at .*: no answer in time$"):
                await PeerClient(1, b"hush", lambda: 1).call(address, InternalKey.PULL_IMAGE, b"", 0.05)

    asyncio.run(story())

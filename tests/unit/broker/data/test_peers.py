"""How answers of another broker are put together from what arrives."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.peers import MAX_IMAGE_BYTES, MAX_UNPROVEN_REQUESTS, PeerClient, PeerRequests, _Answers
from pylog.errors import ApiError, ProtocolError
from pylog.model import NodeAddress
from pylog.security.principal import Session
from pylog.wire import internal
from pylog.wire.internal import InternalKey, encode_hello

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
                await PeerClient(1, PeerKeys(b"hush"), lambda: 1).call(address, InternalKey.PULL_IMAGE, b"", 0.05)

    asyncio.run(story())


def test_the_time_of_a_call_counts_while_another_one_has_the_connection() -> None:
    async def story() -> None:
        client = PeerClient(1, PeerKeys(b"hush"), lambda: 1)
        client._answers = answers = _Answers()
        async with client._lock:  # as a call does that waits for its answer
            late = client.call(NodeAddress(7, "h", 1), InternalKey.PULL_IMAGE, b"", 0)
            with pytest.raises(ApiError, match=r"broker 7 at h:1: no answer in time$"):
                await asyncio.wait_for(late, 5)
        assert client._answers is answers, "the other call goes on"
        assert not client._lock.locked()

    asyncio.run(story())


@contextlib.asynccontextmanager
async def serving(keys: PeerKeys) -> AsyncIterator[NodeAddress]:
    """Listen for brokers as one with *keys*."""
    unused: Any = None
    requests = PeerRequests(keys, unused, unused, unused)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: Any = SimpleNamespace(
            state=None, session=Session(client_host="h", listener_name="internal"), admit=lambda: None
        )
        with contextlib.suppress(asyncio.IncompleteReadError, ProtocolError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                parts = requests.on_frame(connection, memoryview(await reader.readexactly(size)))
                writer.writelines(cast(list[bytes], parts))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield NodeAddress(7, *server.sockets[0].getsockname())


def is_let_in(caller: bytes, callee: bytes) -> bool:
    """Say whether a broker with the file *caller* reaches one with the file *callee*."""

    async def story() -> bool:
        client = PeerClient(1, PeerKeys(caller), lambda: 1)
        async with serving(PeerKeys(callee)) as address:
            try:
                return await client.reach(address, 10)
            except ApiError as error:
                if "it does not know the cluster secret" in str(error):
                    return False
                raise
            finally:
                client.close()

    return asyncio.run(story())


@pytest.mark.parametrize("key", [InternalKey.HELLO, InternalKey.PULL_IMAGE])
def test_whoever_proves_nothing_is_not_answered_for_ever(key: InternalKey) -> None:
    unused: Any = None
    requests = PeerRequests(PeerKeys(b"secret"), unused, unused, unused)
    connection: Any = SimpleNamespace(state=None, session=Session(client_host="h", listener_name="internal"))
    frame = memoryview(internal.encode_request(key, 1, encode_hello(2, bytes(internal.NONCE_BYTES))))[4:]
    for _ in range(MAX_UNPROVEN_REQUESTS):
        assert requests.on_frame(connection, frame) is not None
    with pytest.raises(ProtocolError, match="no proof"):
        requests.on_frame(connection, frame)


PHASES = (b"old\n", b"old\nnew\n", b"new\nold\n", b"new\n")
"""The file of a broker while a cluster changes its secret, one roll after the other."""


def test_f5_brokers_know_each_other_in_the_middle_of_each_roll_to_another_secret() -> None:
    for before, after in pairwise(PHASES):
        assert is_let_in(before, after)
        assert is_let_in(after, before)


def test_f5_who_knows_only_the_former_secret_is_let_in_no_more() -> None:
    assert not is_let_in(b"old", b"new\nold\n"), "a callee takes its own alone"
    assert not is_let_in(b"old", b"new")
    assert not is_let_in(b"new", b"old\nnew\n")
    assert not is_let_in(b"", b"new")


def keys_of(file: Path, content: bytes) -> PeerKeys:
    file.write_bytes(content)
    return PeerKeys(content, file=file)


def change(keys: PeerKeys, file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert keys.reload_secrets()


def request(key: InternalKey, body: bytes) -> memoryview:
    return memoryview(internal.encode_request(key, 1, body))[4:]


def prove(requests: PeerRequests, connection: Any, secret: bytes) -> None:
    """Show broker 1's knowledge of *secret* on *connection*."""
    nonce = b"n" * internal.NONCE_BYTES
    [hello] = cast(list[bytes], requests.on_frame(connection, request(InternalKey.HELLO, encode_hello(1, nonce))))
    callee_nonce = internal.parse_response(hello[4:], 1)[1][: internal.NONCE_BYTES]
    requests.on_frame(connection, request(InternalKey.PROVE, internal.caller_proof(secret, nonce, callee_nonce)))


FETCH = memoryview(b"\0\1" + b"\0" * 20)


@pytest.mark.parametrize("frame", [request(InternalKey.TAKE_IDS, internal.encode_broker_id(1)), FETCH])
def test_f5_a_connection_ends_with_the_secret_that_opened_it(tmp_path: Path, frame: memoryview) -> None:
    heard: list[InternalKey] = []

    async def answer(request: internal.InternalRequest) -> bytes:
        heard.append(request.key)
        return b""

    async def story() -> None:
        unused: Any = None
        keys = keys_of(tmp_path / "secret", PHASES[0])
        requests = PeerRequests(keys, unused, answer, answer)
        slot = SimpleNamespace(complete=lambda parts: None)
        session = Session(client_host="h", listener_name="internal")
        connection: Any = SimpleNamespace(state=None, session=session, open_slot=lambda: slot, admit=lambda: None)
        prove(requests, connection, b"old")
        for number, content in enumerate(PHASES[1:3]):
            change(keys, tmp_path / "secret", content)
            requests.on_frame(connection, request(InternalKey.TAKE_IDS, internal.encode_broker_id(1)))
            await asyncio.sleep(0)
            assert len(heard) == number + 1, "no pause in the middle of the change"
        change(keys, tmp_path / "secret", PHASES[3])
        with pytest.raises(ProtocolError, match="not valid any more"):
            requests.on_frame(connection, frame)
        await requests.close()

    asyncio.run(story())


def test_f5_a_caller_leaves_a_broker_that_proved_a_secret_which_it_does_not_know_any_more(tmp_path: Path) -> None:
    async def story() -> None:
        caller = keys_of(tmp_path / "caller", PHASES[1])
        callee = keys_of(tmp_path / "callee", PHASES[0])
        client = PeerClient(1, caller, lambda: 1)
        async with serving(callee) as address:
            try:
                assert await client.reach(address, 10)
                change(callee, tmp_path / "callee", PHASES[2])
                change(caller, tmp_path / "caller", PHASES[2])
                assert not await client.reach(address, 10), "the connection of before"
                change(caller, tmp_path / "caller", PHASES[3])
                assert await client.reach(address, 10), "a new one"
                change(caller, tmp_path / "caller", b"other")
                with pytest.raises(ApiError, match="it does not know the cluster secret"):
                    await client.reach(address, 10)
            finally:
                client.close()

    asyncio.run(story())

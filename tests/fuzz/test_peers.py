"""Noise where a broker lets others in: before the proof by the cluster secret, and before TLS has begun."""

import asyncio
import contextlib
import random
import ssl
from pathlib import Path
from typing import Any

import pytest

from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.peers import PeerRequests
from pylog.client.security import client_context
from pylog.net.listener import Listener, ListenerSecurity
from pylog.security.principal import SecurityProtocol
from pylog.security.server_tls import ServerTls, TlsConfig
from pylog.wire.internal import InternalKey, InternalRequest, caller_proof, encode_hello, encode_request
from tests.fuzz.effort import EFFORT
from tests.fuzz.test_login import NoRequests, converse, damaged
from tests.servers.certificates import Authority

SECRET, NONCE = b"s" * 32, b"n" * 32


class NoFetch:
    """What no fetch must reach."""

    def handle(self, *parts: object, **more: object) -> None:
        raise AssertionError(f"a fetch passed without a proof: {parts}")

    def forget(self, connection: object) -> None:
        pass


async def no_answer(request: InternalRequest) -> bytes:
    raise AssertionError(f"a request passed without a proof: {request}")


def seeds() -> list[bytes]:
    """Return frames of brokers, without their sizes: all but the proof are good."""
    bodies = dict.fromkeys(InternalKey, b"{}") | {
        InternalKey.HELLO: encode_hello(1, NONCE),
        InternalKey.PROVE: caller_proof(b"t" * 32, NONCE, NONCE),
    }
    frames = [encode_request(key, 1, body)[4:] for key, body in bodies.items()]
    return [*frames, *[frames[0]] * 8, *[frames[1]] * 8, b"\x00\x01\x00\x0b" + bytes(40), b""]


@pytest.mark.parametrize("seed", range(4))
def test_noise_before_the_proof_lets_nobody_in(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    noise = random.Random(seed if EFFORT == 1 else None)

    async def run() -> None:
        bugs: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context))
        fetch: Any = NoFetch()
        requests = PeerRequests(PeerKeys(SECRET), fetch, no_answer, no_answer)
        good = seeds()
        for _ in range(300 * EFFORT):
            connection = await converse(noise, requests, good)
            assert not getattr(connection.state, "is_proven", False)
        await requests.close()
        assert bugs == []

    asyncio.run(run())
    assert not [record for record in caplog.records if "bug" in record.message]


def client_hello(authority: Authority) -> bytes:
    """Return what a client of TLS sends first."""
    sent = ssl.MemoryBIO()
    client = client_context(authority.trusted).wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def test_noise_before_tls_lets_nobody_in_and_keeps_nobody_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    noise = random.Random(1 if EFFORT == 1 else None)
    authority = Authority(tmp_path)
    tls = ServerTls(TlsConfig(key_store=authority.server(), trust_store=authority.trusted, client_auth="required"))
    good = client_hello(authority)

    async def run() -> None:
        bugs: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context))
        listener = Listener(
            "secure",
            NoRequests(),
            max_frame_bytes=1 << 20,
            max_connections=10,
            on_event=lambda event, peer, reason: None,
            security=ListenerSecurity(protocol=SecurityProtocol.SSL, tls=tls, user_of=lambda der: "alice"),
        )
        port = listener.open("127.0.0.1", 0)
        listener.start()
        try:
            for _ in range(100 * EFFORT):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(damaged(good, noise))
                writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(reader.read(), 20)
                writer.close()
                assert not listener.connections
            context = client_context(authority.trusted, authority.issue("alice.pem"))
            _, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port, ssl=context), 20)
            writer.close()
        finally:
            listener.close()
        assert bugs == []

    asyncio.run(run())
    assert not [record for record in caplog.records if "bug" in record.message]

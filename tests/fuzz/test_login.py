"""Noise before a login: whatever comes, nobody gets in, nothing raises, and the connection ends or waits."""

import asyncio
import random
import socket
import struct
import time

import pytest

from pylog.broker.login import LoginLimits, Logins, Stage
from pylog.metrics import Metrics
from pylog.net.connection import Connection, FrameHandler, Part
from pylog.security.exchange import LoginFailed
from pylog.security.oauthbearer import OAuthBearerServer
from pylog.security.plain import PlainServer
from pylog.security.principal import ANONYMOUS, SecurityProtocol, Session
from pylog.security.scram import CredentialSource, ScramClient, ScramCredential, ScramMechanism, ScramServer
from tests.fuzz.effort import EFFORT

SHA_256 = ScramMechanism.SHA_256
CREDENTIAL = ScramCredential.from_password(SHA_256, "secret")
SOURCE = CredentialSource(lambda user, mechanism: CREDENTIAL if user == "alice" else None, b"s")
FRAME_LIMIT = 4096


def no_token(token: str) -> tuple[str, float]:
    raise LoginFailed("no token is good here")


class NoRequests:
    """The handler behind the gate, which no frame must reach."""

    def on_frame(self, connection: Connection, frame: memoryview) -> list[Part] | None:
        raise AssertionError(f"a request passed without a login: {bytes(frame)!r}")

    def on_closed(self, connection: Connection) -> None:
        pass


def seeds() -> list[bytes]:
    """Return frames of good logins, from which the noise is made."""

    def sent(key: int, version: int, body: bytes) -> bytes:
        return struct.pack(">hhih", key, version, 1, -1) + body

    def text(value: bytes) -> bytes:
        return struct.pack(">h", len(value)) + value

    def octets(value: bytes) -> bytes:
        return struct.pack(">i", len(value)) + value

    first = ScramClient(SHA_256, "alice", "wrong").first()
    mechanisms = (b"SCRAM-SHA-256", b"PLAIN", b"OAUTHBEARER", b"GSSAPI")
    return [
        sent(18, 0, b""),
        sent(18, 3, b"\0\x02a\x02b\0"),
        *(sent(17, version, text(name)) for name in mechanisms for version in (0, 1)),
        *(sent(36, version, octets(first)) for version in (0, 1)),
        sent(36, 2, b"\0" + bytes([len(first) + 1]) + first + b"\0"),
        sent(36, 1, octets(b"\0alice\0wrong")),
        sent(36, 1, octets(b"n,,\x01auth=Bearer a.b.c\x01\x01")),
        sent(36, 1, octets(b"c=biws,r=x,p=AAAA")),
        sent(3, 1, struct.pack(">i", 0)),
        first,
        b"\0alice\0wrong",
        b"",
    ]


def damaged(frame: bytes, noise: random.Random) -> bytes:
    data = bytearray(frame)
    match noise.randrange(6):
        case 0:
            return bytes(data)
        case 1 if data:
            for _ in range(noise.randint(1, 4)):
                data[noise.randrange(len(data))] = noise.randrange(256)
        case 2:
            del data[noise.randint(0, len(data)) :]
        case 3:
            at = noise.randint(0, len(data))
            data[at:at] = noise.randbytes(noise.randint(1, 40))
        case 4:
            return noise.randbytes(noise.randint(0, 60))
        case _:
            data = data * 2
    return bytes(data)


async def converse(noise: random.Random, handler: FrameHandler, good: list[bytes]) -> Connection:
    """Send some frames, cut anywhere, on one connection; return it as it was at the end."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    connection = Connection(
        theirs,
        handler=handler,
        buffer=bytearray(1024),
        max_frame_bytes=FRAME_LIMIT,
        session=Session(client_host="h", listener_name="client", security_protocol=SecurityProtocol.SASL_PLAINTEXT),
        peer="fuzz",
        on_close=lambda connection, reason: None,
    )
    loop = asyncio.get_running_loop()
    try:
        for _ in range(noise.randint(1, 6)):
            frame = damaged(noise.choice(good), noise)
            size = len(frame) if noise.random() < 0.97 else noise.choice([-1, 0, FRAME_LIMIT + 1, 2**31 - 1])
            data = struct.pack(">i", size) + frame
            cut = noise.randint(0, len(data))
            for part in (data[:cut], data[cut:]):
                if part and not connection.is_closed:
                    await loop.sock_sendall(ours, part)
                    for _ in range(3):
                        await asyncio.sleep(0)
        while isinstance(connection.state, object) and getattr(connection.state, "is_busy", False):
            await asyncio.sleep(0)
        return connection
    finally:
        connection.close()
        ours.close()


@pytest.mark.parametrize("seed", range(4))
def test_noise_before_the_login_lets_nobody_in(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    noise = random.Random(seed if EFFORT == 1 else None)

    async def run() -> None:
        bugs: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context))
        logins = Logins(
            "client",
            NoRequests(),
            {
                "SCRAM-SHA-256": lambda: ScramServer(SHA_256, SOURCE),
                "PLAIN": lambda: PlainServer(SOURCE),
                "OAUTHBEARER": lambda: OAuthBearerServer(no_token),
            },
            LoginLimits(failure_delay_ms=0, max_reauth_ms=60_000),
            Metrics(),
            wall_s=time.time,
        )
        good = seeds()
        for _ in range(300 * EFFORT):
            connection = await converse(noise, logins, good)
            assert getattr(connection.state, "stage", Stage.VERSIONS) is not Stage.DONE
            assert connection.session.principal == ANONYMOUS
            assert connection.session.authenticated_at_ns == 0
        await logins.close()
        assert bugs == []

    asyncio.run(run())
    assert not [record for record in caplog.records if "bug" in record.message]

"""Connections among brokers over TLS: who is let in, and that a proof is worth nothing on another connection."""

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import NameOID

from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.peers import PeerClient, PeerRequests
from pylog.errors import ApiError, ConfigError
from pylog.model import NodeAddress
from pylog.net.listener import Listener, ListenerSecurity
from pylog.security.principal import SecurityProtocol
from pylog.security.server_tls import ServerTls, TlsConfig, check_names, own_certificate
from pylog.wire import internal
from pylog.wire.internal import InternalKey
from tests.servers.certificates import Authority

SECRET = b"s" * 32


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def config_of(authority: Authority, file: str) -> TlsConfig:
    return TlsConfig(
        key_store=authority.issue(file, (NameOID.COMMON_NAME, file)),
        trust_store=authority.trusted,
        client_auth="required",
        is_mutual=True,
        names=("127.0.0.1", "LOCALHOST"),
    )


def keys_of(authority: Authority, file: str, *, calls_by_tls: bool = True, secret: bytes = SECRET) -> PeerKeys:
    return PeerKeys(secret, tls=ServerTls(config_of(authority, file)), calls_by_tls=calls_by_tls)


@contextmanager
def callee(
    keys: PeerKeys, *, accepts_plain: bool, login_timeout_s: float = 20.0
) -> Iterator[tuple[NodeAddress, list[str]]]:
    """Listen for brokers; yield the address, and what is logged."""
    events: list[str] = []
    unused: Any = None
    security = ListenerSecurity(
        protocol=SecurityProtocol.PLAINTEXT if keys.tls is None else SecurityProtocol.SSL,
        tls=keys.tls,
        user_of=lambda der: "brokers",
        accepts_plain=accepts_plain,
        asks_proof=True,
        login_timeout_s=login_timeout_s,
    )
    listener = Listener(
        "internal",
        PeerRequests(keys, unused, unused, unused),
        max_frame_bytes=1 << 20,
        max_connections=10,
        on_event=lambda event, peer, reason: events.append(reason),
        security=security,
    )
    port = listener.open("127.0.0.1", 0)
    listener.start()
    # Nothing of a fetch or an answer is under way here.
    listener._handler.on_closed = lambda connection: None  # type: ignore[method-assign]
    try:
        yield NodeAddress(7, "127.0.0.1", port), events
    finally:
        listener.close()


async def reach(keys: PeerKeys, address: NodeAddress) -> None:
    client = PeerClient(1, keys, lambda: 2)
    try:
        assert await client.reach(address, 20)
    finally:
        client.close()


def test_plain_and_encrypted_calls_reach_a_broker_in_the_middle_of_a_migration(authority: Authority) -> None:
    async def story() -> None:
        with callee(keys_of(authority, "a.pem"), accepts_plain=True) as (address, events):
            await reach(keys_of(authority, "b.pem"), address)
            await reach(keys_of(authority, "b.pem", calls_by_tls=False), address)
            await reach(PeerKeys(SECRET), address)
            assert events == []

    asyncio.run(story())


def test_a_plain_call_is_refused_after_the_migration(authority: Authority) -> None:
    async def story() -> None:
        with callee(keys_of(authority, "a.pem"), accepts_plain=False) as (address, events):
            await reach(keys_of(authority, "b.pem"), address)
            with pytest.raises(ApiError, match=r"closed|reset"):
                await reach(PeerKeys(SECRET), address)
            assert "plain client on a TLS listener" in events[0]

    asyncio.run(story())


@pytest.fixture(params=["PLAINTEXT", "SSL"])
def keys(request: pytest.FixtureRequest, authority: Authority) -> PeerKeys:
    """What a broker shows that calls plainly, or by TLS."""
    return PeerKeys(SECRET) if request.param == "PLAINTEXT" else keys_of(authority, "b.pem")


async def stranger(keys: PeerKeys, address: NodeAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect with a good certificate, if one is asked for, and no proof."""
    context = keys.context()
    name = None if context is None else address.host
    return await asyncio.open_connection(address.host, address.port, ssl=context, server_hostname=name)


def test_a_frame_before_the_proof_is_small(keys: PeerKeys) -> None:
    async def story() -> None:
        with callee(keys, accepts_plain=False) as (address, events):
            reader, writer = await stranger(keys, address)
            writer.write((16_385).to_bytes(4, "big"))
            assert await asyncio.wait_for(reader.read(), 10) == b""
            assert "frame claims 16385 bytes; 1 to 16384 are allowed" in events[0]
            writer.close()

    asyncio.run(story())


def test_a_frame_after_the_proof_is_as_large_as_others(keys: PeerKeys) -> None:
    async def story() -> None:
        with callee(keys, accepts_plain=False) as (address, events):
            client = PeerClient(1, keys, lambda: 2)
            assert await client.reach(address, 20)
            large = b"\0" * 100_000
            with pytest.raises(ConnectionError):
                await client._call(len(large).to_bytes(4, "big") + large)
            assert "not a broker's request" in events[0]

    asyncio.run(story())


def test_a_proof_that_does_not_come_in_time_ends_the_connection(keys: PeerKeys) -> None:
    async def story() -> None:
        with callee(keys, accepts_plain=False, login_timeout_s=0.5) as (address, events):
            reader, writer = await stranger(keys, address)
            writer.write(internal.encode_request(InternalKey.HELLO, 1, internal.encode_hello(1, b"n" * 32)))
            await asyncio.wait_for(reader.read(), 10)
            assert events == ["login took too long"]
            writer.close()

    asyncio.run(story())


def test_a_broker_of_another_authority_is_refused_in_both_directions(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "strangers")

    async def story() -> None:
        with callee(keys_of(authority, "a.pem"), accepts_plain=False) as (address, _):
            with pytest.raises(ApiError, match=r"certificate verify failed|CERTIFICATE_VERIFY_FAILED"):
                await reach(keys_of(stranger, "b.pem"), address)
            keys = keys_of(authority, "c.pem")
            assert keys.tls is not None
            without = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            without.load_verify_locations(authority.trusted)
            keys.tls.caller_context = without  # a caller that shows no certificate
            with pytest.raises(ApiError):
                await reach(keys, address)

    asyncio.run(story())


def test_a_broker_without_the_secret_is_refused_however_good_its_certificate(authority: Authority) -> None:
    async def story() -> None:
        with callee(keys_of(authority, "a.pem"), accepts_plain=False) as (address, _):
            caller = keys_of(authority, "b.pem", secret=b"t" * 32)
            with pytest.raises(ApiError, match="it does not know the cluster secret"):
                await reach(caller, address)

    asyncio.run(story())


@asynccontextmanager
async def relay(keys: PeerKeys, to: NodeAddress) -> Any:
    """Stand between two brokers: with a good certificate, and without the secret."""
    tls = keys.tls
    assert tls is not None

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(to.host, to.port, ssl=tls.caller_context)
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls.context)
    async with server:
        yield NodeAddress(7, *server.sockets[0].getsockname())


def test_a_proof_that_is_passed_on_from_another_connection_is_worth_nothing(authority: Authority) -> None:
    async def story() -> None:
        with callee(keys_of(authority, "a.pem"), accepts_plain=False) as (address, _):
            async with relay(keys_of(authority, "stolen.pem"), address) as between:
                with pytest.raises(ApiError, match="it does not know the cluster secret"):
                    await reach(keys_of(authority, "b.pem"), between)

    asyncio.run(story())


def test_the_relay_of_that_test_works_where_the_proof_is_not_bound(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof_of = internal.callee_proof, internal.caller_proof
    monkeypatch.setattr(internal, "callee_proof", lambda *args: proof_of[0](*args[:3]))
    monkeypatch.setattr(internal, "caller_proof", lambda *args: proof_of[1](*args[:3]))

    async def story() -> None:
        with callee(keys_of(authority, "a.pem"), accepts_plain=False) as (address, _):
            async with relay(keys_of(authority, "stolen.pem"), address) as between:
                await reach(keys_of(authority, "b.pem"), between)

    asyncio.run(story())


def test_renewed_certificates_and_secrets_are_used_from_the_next_connection_on(
    authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    tls = ServerTls(config_of(authority, "a.pem"))
    keys = PeerKeys(SECRET, file=file, tls=tls, calls_by_tls=True)

    async def story() -> None:
        with callee(keys, accepts_plain=False) as (address, _):
            before = tls.binding
            authority.issue("a.pem", (NameOID.COMMON_NAME, "renewed"))
            file.write_bytes(b"n" * 32 + b"\n" + SECRET)
            assert tls.reload()
            assert keys.reload_secrets()
            assert not keys.reload_secrets()
            assert tls.binding != before
            await reach(keys_of(authority, "b.pem", secret=SECRET + b"\n" + b"n" * 32), address)
            with pytest.raises(ApiError, match="cluster secret"):
                await reach(keys_of(authority, "b.pem"), address)
            file.write_bytes(b"\n")
            with pytest.raises(ConfigError, match="is empty"):
                keys.reload_secrets()
            file.unlink()
            with pytest.raises(ConfigError, match="No such file"):
                keys.reload_secrets()
            assert keys.secrets == (b"n" * 32, SECRET), "the ones before stay in use"

    asyncio.run(story())


def test_a_certificate_that_does_not_name_what_is_advertised_is_refused(authority: Authority) -> None:
    config = config_of(authority, "a.pem")
    with pytest.raises(ConfigError, match=r"must name log1\.example, 192\.0\.2\.1.*localhost, 127\.0\.0\.1"):
        ServerTls(replace(config, names=("localhost", "log1.example", "192.0.2.1")))


def test_a_wildcard_stands_for_one_label(authority: Authority) -> None:
    file = authority.issue("w.pem", (NameOID.COMMON_NAME, "w"), hosts=("*.example.internal",))
    check_names(own_certificate(file), ["log1.example.internal"])
    for wrong in ("example.internal", "a.log1.example.internal"):
        with pytest.raises(ConfigError, match="must name"):
            check_names(own_certificate(file), [wrong])


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_calls_use_the_versions_of_tls_that_the_listener_speaks(authority: Authority, version: str) -> None:
    tls = ServerTls(replace(config_of(authority, "a.pem"), protocols=(version,)))
    wanted = ssl.TLSVersion.TLSv1_2 if version == "TLSv1.2" else ssl.TLSVersion.TLSv1_3
    for context in (tls.context, tls.caller_context):
        assert context is not None
        assert (context.minimum_version, context.maximum_version) == (wanted, wanted)

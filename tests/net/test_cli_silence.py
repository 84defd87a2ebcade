"""A broker that closes connections without a word: the user is told why, each cause by its own code."""

import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from socket import create_server
from threading import Thread

import pytest

from pylog.testing import BrokerProcess, SecuredBroker
from tests.command import Command, Ended
from tests.servers.certificates import DAY, HOUR, Authority


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("plain")) as broker:
        yield broker


def topics(bootstrap: str, properties: dict[str, str], *, exit_code: int, verb: tuple[str, ...] = ("list",)) -> Ended:
    """Run `pylog topic list`, or another verb of it, as a client with these properties."""
    given = [part for name, text in properties.items() for part in ("--property", f"{name}={text}")]
    return Command(bootstrap)("topic", *verb, "--timeout", "4", *given, exit_code=exit_code)


def client(broker: SecuredBroker, user: str | None = None, **changes: str) -> dict[str, str]:
    properties = {name: text for name, text in broker.client(user).items() if name != "bootstrap.servers"}
    return properties | {name.replace("__", "."): text for name, text in changes.items()}


def test_a_wrong_password(secured: SecuredBroker) -> None:
    ended = topics(secured.bootstrap, client(secured, sasl__password="wrong"), exit_code=1)
    assert "PYLOG-1058" in ended.notes
    assert "wrong" not in ended.notes.replace("password or token is wrong", "")


def test_a_missing_right(secured: SecuredBroker) -> None:
    ended = topics(secured.bootstrap, client(secured, "alice"), exit_code=1, verb=("create", "clicks"))
    assert "PYLOG-1029" in ended.notes


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ("PLAINTEXT", "is encrypted (SSL or SASL_SSL); security.protocol is PLAINTEXT"),
        ("SASL_PLAINTEXT", "is encrypted (SSL or SASL_SSL); security.protocol is SASL_PLAINTEXT"),
        ("SSL", "asks for a login (SASL_SSL); security.protocol is SSL"),
    ],
)
def test_a_protocol_that_an_encrypted_listener_does_not_speak(
    secured: SecuredBroker, protocol: str, reason: str
) -> None:
    ended = topics(secured.bootstrap, client(secured, security__protocol=protocol), exit_code=1)
    assert "PYLOG-0102" in ended.notes
    assert f"{secured.bootstrap} {reason}" in ended.notes


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ("SSL", "is not encrypted; security.protocol is SSL"),
        ("SASL_SSL", "is not encrypted; security.protocol is SASL_SSL"),
        ("SASL_PLAINTEXT", "asks for no login; security.protocol is SASL_PLAINTEXT"),
    ],
)
def test_a_protocol_that_an_open_listener_does_not_speak(
    plain: BrokerProcess, secured: SecuredBroker, protocol: str, reason: str
) -> None:
    ended = topics(plain.bootstrap, client(secured, security__protocol=protocol), exit_code=1)
    assert "PYLOG-0102" in ended.notes
    assert f"{plain.bootstrap} {reason}" in ended.notes


def test_a_broker_of_another_authority(secured: SecuredBroker, tmp_path: Path) -> None:
    stranger = str(Authority(tmp_path).trusted)
    ended = topics(secured.bootstrap, client(secured, ssl__ca__location=stranger), exit_code=3)
    assert "PYLOG-0109" in ended.notes


@contextmanager
def handshakes(key_store: Path) -> Iterator[str]:
    """Shake hands with whoever comes, and end the connection; yield the address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key_store)
    server = create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            with closing(sock):
                sock.settimeout(5)
                try:
                    context.wrap_socket(sock, server_side=True).close()
                except OSError:
                    continue

    thread = Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(2)
        server.close()
        thread.join()


@pytest.mark.parametrize(("valid_from", "valid_to"), [(-2 * DAY, -DAY), (HOUR, DAY)], ids=["expired", "not yet"])
def test_a_certificate_that_is_not_valid_now(tmp_path: Path, valid_from: timedelta, valid_to: timedelta) -> None:
    authority = Authority(tmp_path)
    with handshakes(authority.issue("broker.pem", valid_from=valid_from, valid_to=valid_to)) as address:
        properties = {"security.protocol": "SSL", "ssl.ca.location": str(authority.trusted)}
        ended = topics(address, properties, exit_code=3)
    assert "PYLOG-0107" in ended.notes
    assert f"certificate of {address}: certificate " in ended.notes


def test_nobody_at_all() -> None:
    with create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    assert "PYLOG-0100" in topics(address, {}, exit_code=3).notes

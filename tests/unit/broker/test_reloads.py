"""Files that are read again: whatever is wrong in them, the broker goes on with what it has."""

import asyncio
import logging
import shutil
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtensionOID, NameOID

from pylog.broker.reloads import Reloads
from pylog.security.server_tls import ServerTls, TlsConfig
from tests.servers.certificates import Authority

THREE_BYTE_ADDRESS = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"\x30\x05\x87\x03\x01\x02\x03")
"""Subject alternative names with one address, of a length that no address has."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def look(reloads: Reloads) -> None:
    asyncio.run(reloads.look())


def test_a_certificate_that_cannot_be_parsed_leaves_the_former_one_in_use(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key_store = tmp_path / "server.pem"
    shutil.copy(authority.server(), key_store)
    tls = ServerTls(TlsConfig(key_store=key_store, names=("127.0.0.1",)))
    reloads = Reloads()
    reloads.add("certificates", tls.reload)
    before = tls.context, tls.binding
    shutil.copy(authority.issue("bad.pem", (NameOID.COMMON_NAME, "bad"), names_as=THREE_BYTE_ADDRESS), key_store)
    look(reloads)
    assert (tls.context, tls.binding) == before
    assert "not reloaded" in caplog.text
    assert "ssl.keystore.location" in caplog.text
    shutil.copy(authority.server(), key_store)
    look(reloads)
    assert tls.binding != before[1]


def test_a_file_that_changes_while_it_is_read_is_read_at_the_next_look(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key_store = tmp_path / "server.pem"
    second, third = authority.server("second.pem"), authority.server("third.pem")
    arriving: list[Path] = []

    def now_s() -> float:
        if arriving:  # after the files were compared, and before they are read
            shutil.copy(arriving.pop(), key_store)
        return second.stat().st_mtime

    shutil.copy(authority.server("first.pem"), key_store)
    tls = ServerTls(TlsConfig(key_store=key_store), now_s=now_s)
    reloads = Reloads()
    reloads.add("certificates", tls.reload)
    before = tls.context, tls.binding
    shutil.copy(second, key_store)
    arriving.append(third)
    look(reloads)
    assert (tls.context, tls.binding) == before
    assert "changed while it was read" in caplog.text
    look(reloads)
    assert tls.binding == ServerTls(TlsConfig(key_store=third)).binding


def test_a_bug_in_one_reload_is_logged_and_the_others_are_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reloads = Reloads()

    def fail() -> bool:
        raise IndexError("nobody thought of this")

    reloads.add("first", fail)
    reloads.add("second", lambda: True)
    look(reloads)
    assert "stays in use what=first reason=IndexError('nobody thought of this')" in caplog.text
    assert "reloaded what=second" in caplog.text

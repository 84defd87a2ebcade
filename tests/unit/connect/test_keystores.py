"""Keystores of a worker's REST API, as Java reads them."""

import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.x509.oid import NameOID

from pylog.connect.keystores import main, write_keystores
from tests.servers.certificates import Authority


def listed(store: Path, password: str) -> str:
    command = ["keytool", "-list", "-keystore", str(store), "-storetype", "PKCS12", "-storepass", password]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_java_finds_the_key_and_trusts_the_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    keys = authority.issue("tls.pem", (NameOID.COMMON_NAME, "pylog-connect"))
    target = tmp_path / "run"
    target.mkdir()
    write_keystores(keys, authority.trusted, target)
    first = (target / "keystores.properties").read_text()
    password = first.strip().removeprefix("password=")
    assert "PrivateKeyEntry" in listed(target / "keys.p12", password)
    assert "trustedCertEntry" in listed(target / "trust.p12", password)
    assert {stat.S_IMODE(path.stat().st_mode) for path in target.iterdir()} == {0o600}
    write_keystores(keys, authority.trusted, target)
    assert (target / "keystores.properties").read_text() != first, "a password lasts for one start"


def test_files_without_a_key_are_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(tmp_path)
    assert main(str(authority.trusted), str(authority.trusted), str(tmp_path)) == 1
    assert main(str(tmp_path / "none.pem"), str(authority.trusted), str(tmp_path)) == 1
    assert capsys.readouterr().err.count("keystores: ") == 2

"""File < environment < flags."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pylog.cli.failure import Exit, Failure
from pylog.cli.options import assignments, settings
from pylog.cli.settings import Settings, load_settings
from pylog.cli.sql import security_options
from pylog.errors import ConfigError
from pylog.ingest.options import parse_options
from tests.servers.certificates import Authority


def written(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "config.yml"
    path.write_text(text)
    return {"PYLOG_CONFIG": str(path)}


def test_without_file_and_environment_the_defaults_hold(tmp_path: Path) -> None:
    assert load_settings({"HOME": str(tmp_path)}) == Settings(bootstrap="localhost:9092", format="text", timeout_s=10)


def test_the_file_at_home_is_read(tmp_path: Path) -> None:
    (tmp_path / ".config" / "pylog").mkdir(parents=True)
    (tmp_path / ".config" / "pylog" / "config.yml").write_text("bootstrap: a:1\n")
    assert load_settings({"HOME": str(tmp_path)}).bootstrap == "a:1"


def test_the_environment_is_stronger_than_the_file(tmp_path: Path) -> None:
    environment = written(tmp_path, "bootstrap: a:1\nformat: json\ntimeout_s: 3\n")
    assert load_settings(environment) == Settings(bootstrap="a:1", format="json", timeout_s=3)
    environment |= {"PYLOG_BOOTSTRAP": "b:2", "PYLOG_FORMAT": "yaml", "PYLOG_TIMEOUT": "0.5"}
    assert load_settings(environment) == Settings(bootstrap="b:2", format="yaml", timeout_s=0.5)


def test_properties_become_what_librdkafka_reads(tmp_path: Path) -> None:
    environment = written(tmp_path, "properties: {security.protocol: ssl, enable.ssl.certificate.verification: true}\n")
    assert load_settings(environment).properties == {
        "security.protocol": "ssl",
        "enable.ssl.certificate.verification": "true",
    }


def test_the_password_of_a_profile_stands_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("sesame\n")
    (tmp_path / "password").chmod(0o600)
    block = f"{{protocol: SASL_PLAINTEXT, mechanism: SCRAM-SHA-256, user: a, password_file: {tmp_path}/password}}"
    found = load_settings(written(tmp_path, f"bootstrap: a:1\nsecurity: {block}\n"))
    assert found.properties["sasl.password"] == "sesame"
    with pytest.raises(Failure) as caught:
        load_settings(written(tmp_path, "bootstrap: a:1\nsecurity: {password: sesame}\n"))
    assert "config.yml:2" in str(caught.value)


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert load_settings(written(tmp_path, "# nothing yet\n")) == Settings()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("bootstrap: a:1\nbootstap: b:2\n", "config.yml:2"),
        ("- a\n", "config.yml:1"),
        ("bootstrap: [a\n", "config.yml"),
        ("bootstrap: 9092\n", "config.yml:1"),
        ("\ntimeout_s: 0\n", "config.yml:2"),
        ("format: xml\n", "config.yml:1"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(Failure) as caught:
        load_settings(written(tmp_path, text))
    assert caught.value.exit_code is Exit.USAGE
    assert where in str(caught.value)


@pytest.mark.parametrize(
    "environment",
    [
        {"PYLOG_CONFIG": "/does/not/exist.yml"},
        {"PYLOG_FORMAT": "xml"},
        {"PYLOG_TIMEOUT": "soon"},
        {"PYLOG_TIMEOUT": "-1"},
    ],
)
def test_a_wrong_variable_is_named(environment: dict[str, str]) -> None:
    with pytest.raises(Failure, match="a setting is wrong") as caught:
        load_settings({"HOME": "/does/not/exist"} | environment)
    assert next(iter(environment)) in str(caught.value)


def test_an_assignment_may_hold_the_sign_itself() -> None:
    assert assignments("-X", ["a=b=c", "d="]) == {"a": "b=c", "d": ""}


def test_spark_connects_as_the_block_of_the_settings_says(tmp_path: Path) -> None:
    authority, password = Authority(tmp_path).trusted, tmp_path / "password"
    password.write_text("sesame\n")
    password.chmod(0o600)
    block = {"protocol": "SASL_SSL", "user": "alice", "password_file": str(password), "ca_file": str(authority)}
    found = load_settings(written(tmp_path, f"security: {json.dumps(block | {'mechanism': 'SCRAM-SHA-256'})}\n"))
    options = security_options(found)
    assert options == {f"security.{key}": value for key, value in found.security.items()}
    assert "sesame" not in str(options)
    assert parse_options(options | {"bootstrap": "h:1", "topic": "t"}, is_stream=False).security == found.security


def test_spark_is_not_sent_in_the_open_to_a_cluster_that_others_log_in_to(tmp_path: Path) -> None:
    found = load_settings(written(tmp_path, "properties: {sasl.username: alice, sasl.password: sesame}\n"))
    with pytest.raises(Failure, match="password_file"):
        security_options(found)
    assert security_options(load_settings(written(tmp_path, "properties: {client.id: me}\n"))) == {}


def test_a_password_on_the_command_line_is_told_to_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYLOG_CONFIG", str(written(tmp_path, "bootstrap: a:1\n")["PYLOG_CONFIG"]))
    assert settings(None, None, ["sasl.password=sesame"]).properties == {"sasl.password": "sesame"}
    said = capsys.readouterr().err
    assert "sasl.password" in said
    assert "sesame" not in said
    settings(None, None, ["client.id=me"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["ssl.key.pem", "sasl.oauthbearer.config", "sasl.oauthbearer.client.secret"])
def test_every_secret_on_the_command_line_is_told_to_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setenv("PYLOG_CONFIG", str(written(tmp_path, "bootstrap: a:1\n")["PYLOG_CONFIG"]))
    settings(None, None, [f"{name}=sesame"])
    said = capsys.readouterr().err
    assert name in said
    assert "sesame" not in said


def test_a_password_that_is_given_twice_is_covered_twice() -> None:
    program = (
        "import pathlib, sys; from pylog.cli.options import settings; "
        "given = settings(None, None, sys.argv[1:]).properties; "
        "assert given['sasl.password'] == 'second', given; "
        "sys.stdout.buffer.write(pathlib.Path('/proc/self/cmdline').read_bytes())"
    )
    arguments = ["sasl.password=first", "ssl.key.pem=-----BEGIN", "sasl.password=second"]
    shown = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, check=True).stdout
    names = [b"sasl.password=" + b"*" * 5, b"ssl.key.pem=" + b"*" * 10, b"sasl.password=" + b"*" * 6]
    assert shown.split(b"\0")[-4:-1] == names


def test_a_property_can_name_the_file_of_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYLOG_CONFIG", str(written(tmp_path, "bootstrap: a:1\n")["PYLOG_CONFIG"]))
    password = tmp_path / "password"
    password.write_text("sesame\n")
    password.chmod(0o600)
    assert settings(None, None, [f"sasl.password.file={password}"]).properties == {"sasl.password": "sesame"}
    assert capsys.readouterr().err == ""
    with pytest.raises(Failure, match=r"sasl\.password and sasl\.password\.file"):
        settings(None, None, [f"sasl.password.file={password}", "sasl.password=other"])
    password.chmod(0o644)
    with pytest.raises(ConfigError, match="must not be readable by everybody"):
        settings(None, None, [f"sasl.password.file={password}"])


def test_a_password_on_the_command_line_is_covered_in_the_list_of_processes() -> None:
    program = (
        "import pathlib, sys; from pylog.cli.arguments import hide; "
        "assert hide('sasl.password', sys.argv[1].partition('=')[2]); "
        "sys.stdout.buffer.write(pathlib.Path('/proc/self/cmdline').read_bytes())"
    )
    arguments = ["sasl.password=a sesame (of) ours", "topic=a sesame"]
    shown = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, check=True).stdout
    assert shown.split(b"\0")[-3:-1] == [b"sasl.password=" + b"*" * 18, b"topic=a sesame"]

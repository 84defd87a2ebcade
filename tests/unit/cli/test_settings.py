"""File < environment < flags."""

from pathlib import Path

import pytest

from pylog.cli.failure import Exit, Failure
from pylog.cli.options import assignments
from pylog.cli.settings import Settings, load_settings


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

"""What librdkafka's properties mean for our own blocking connections."""

from pathlib import Path

import pytest

from pylog.client.connection import Connection
from pylog.client.security import ClientSecurity, security_properties
from pylog.errors import ConfigError
from pylog.security.principal import SecurityProtocol

LOGIN = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": "secret"}


def test_without_properties_nothing_is_protected() -> None:
    security = Connection(bootstrap="h:1").security()
    assert security == ClientSecurity()
    assert security.context() is None


def test_properties_have_librdkafka_s_names() -> None:
    properties = {
        **LOGIN,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "/ca.pem",
        "linger.ms": "5",
    }
    security = Connection(bootstrap="h:1", properties=properties).security()
    assert (security.protocol, security.mechanism) == (SecurityProtocol.SASL_SSL, "SCRAM-SHA-256")
    assert (security.user, security.password, security.ca_location) == ("alice", "secret", Path("/ca.pem"))
    assert "secret" not in repr(security)


@pytest.mark.parametrize(
    ("properties", "fault"),
    [
        ({"security.protocol": "TLS"}, "must be one of PLAINTEXT"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism="),
        ({**LOGIN, "security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI"),
        ({**LOGIN, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "needs SASL_SSL"),
        ({**LOGIN, "security.protocol": "SASL_SSL", "sasl.password": ""}, "needs sasl.username and sasl.password"),
    ],
)
def test_what_is_not_built_is_refused_by_name(properties: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClientSecurity.from_properties(properties)
    assert fault in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["ca", "certificate"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, key: str) -> None:
    properties = {"security.protocol": "SSL", f"ssl.{key}.location": str(tmp_path / "none.pem")}
    with pytest.raises(ConfigError, match=f"ssl.{key}.location=.*none.pem"):
        ClientSecurity.from_properties(properties).context()


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("sesame\n")
    path.chmod(0o640)
    return path


def test_a_block_of_a_programs_file_becomes_properties(password: Path) -> None:
    block = {"protocol": "SASL_PLAINTEXT", "mechanism": "SCRAM-SHA-256", "user": "a", "password_file": str(password)}
    assert security_properties(block, {}) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "a",
        "sasl.password": "sesame",
    }


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        ({"password": "x"}, "security.password: unknown key; must be one of protocol, mechanism"),
        ({"protocol": "TLS"}, "security.protocol=TLS: must be one of"),
        ({"protocol": "SASL_SSL"}, "sasl.mechanism=: must be one of"),
        ({"user": "b"}, "security.user: properties has sasl.username too"),
        ({"password_file": "/nowhere"}, "security.password_file: /nowhere: No such file"),
        ({"protocol": "SSL", "ca_file": "/nowhere"}, "ssl.ca.location=/nowhere: No such file"),
    ],
)
def test_a_wrong_block_is_refused_by_name(block: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        security_properties(block, {"sasl.username": "a"})
    assert fault in str(refused.value)


def test_a_password_that_everybody_may_read_is_refused_and_not_shown(password: Path) -> None:
    password.chmod(0o644)
    with pytest.raises(ConfigError, match="must not be readable by everybody") as refused:
        security_properties({"password_file": str(password)}, {})
    assert "sesame" not in str(refused.value)
    password.chmod(0o600)
    password.write_text("\nsesame")
    with pytest.raises(ConfigError, match="its first line must be the password"):
        security_properties({"password_file": str(password)}, {})

"""Principals, sessions and the spelling of addresses."""

import dataclasses

import pytest

from pylog.errors import ConfigError
from pylog.security.principal import ANONYMOUS, Principal, SecurityProtocol, Session, normal_host


def test_a_name_may_contain_colons_and_commas() -> None:
    principal = Principal.parse("User:CN=host-a,OU=a:b")
    assert principal == Principal("User", "CN=host-a,OU=a:b")
    assert str(principal) == "User:CN=host-a,OU=a:b"


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice", "User"])
def test_a_principal_needs_a_type_and_a_name(text: str) -> None:
    with pytest.raises(ConfigError, match="must be TYPE:NAME"):
        Principal.parse(text)


def test_types_are_case_sensitive() -> None:
    assert Principal.parse("user:a") != Principal.parse("User:a")


def test_a_session_begins_anonymous_and_cannot_be_changed() -> None:
    session = Session(client_host="192.0.2.1", listener_name="client")
    assert session.principal is ANONYMOUS
    assert session.security_protocol is SecurityProtocol.PLAINTEXT
    with pytest.raises(dataclasses.FrozenInstanceError):
        session.principal = Principal("User", "alice")


@pytest.mark.parametrize(
    ("host", "normal"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("h", "h"),
    ],
)
def test_an_address_has_one_spelling(host: str, normal: str) -> None:
    assert normal_host(host) == normal


@pytest.mark.parametrize(
    ("protocol", "has_tls", "has_sasl"),
    [("PLAINTEXT", False, False), ("SSL", True, False), ("SASL_PLAINTEXT", False, True), ("SASL_SSL", True, True)],
)
def test_what_a_protocol_protects(protocol: str, has_tls: bool, has_sasl: bool) -> None:
    assert (SecurityProtocol(protocol).has_tls, SecurityProtocol(protocol).has_sasl) == (has_tls, has_sasl)

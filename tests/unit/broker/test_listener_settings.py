"""Settings of a listener: what goes together, and what is refused by name."""

import pytest

from pylog.broker.listener_settings import parse_internal_settings, parse_listener_settings
from pylog.errors import ConfigError
from pylog.security.principal import SecurityProtocol

SASL_SSL = {"security.protocol": "SASL_SSL", "ssl.keystore.location": "/k.pem"}
TOKENS = {
    **SASL_SSL,
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json",
    "sasl.oauthbearer.expected.audience": "a, b",
}


def test_a_listener_is_plaintext_by_default() -> None:
    settings = parse_listener_settings({})
    assert settings.protocol is SecurityProtocol.PLAINTEXT
    assert settings.connections_max_reauth_ms == 0


def test_values_have_their_types() -> None:
    settings = parse_listener_settings({**SASL_SSL, "connections.max.reauth.ms": "3600000"})
    assert settings.connections_max_reauth_ms == 3_600_000
    assert settings.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert str(settings.key_store) == "/k.pem"
    assert settings.trust_store is None
    assert parse_listener_settings(TOKENS).sasl_oauthbearer_expected_audience == "a,b"


def test_a_frame_before_the_login_is_as_long_as_its_mechanisms_need_unless_told() -> None:
    set_by_hand = {"sasl.server.max.receive.size": "524288"}
    assert parse_listener_settings(SASL_SSL).sasl_server_max_receive_size == 16_384
    assert parse_listener_settings(TOKENS).sasl_server_max_receive_size == 65_536
    assert parse_listener_settings({**SASL_SSL, **set_by_hand}).sasl_server_max_receive_size == 524_288
    assert parse_listener_settings({**TOKENS, **set_by_hand}).sasl_server_max_receive_size == 524_288


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SSL"}, "needs ssl.keystore.location"),
        ({"ssl.keystore.location": "/k.pem"}, "ssl.keystore.location: has no effect with PLAINTEXT"),
        ({"connections.max.reauth.ms": "1"}, "connections.max.reauth.ms: has no effect with PLAINTEXT"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "has no effect with PLAINTEXT"),
        ({**SASL_SSL, "ssl.client.auth": "required"}, "needs ssl.truststore.location"),
        ({**SASL_SSL, "ssl.enabled.protocols": "TLSv1.1"}, "may list TLSv1.2, TLSv1.3"),
        ({**SASL_SSL, "sasl.enabled.mechanisms": "GSSAPI"}, "may list SCRAM-SHA-256"),
        ({**SASL_SSL, "sasl.enabled.mechanisms": ""}, "must not be empty"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN"}, "needs SASL_SSL"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "OAUTHBEARER"}, "needs SASL_SSL"),
        ({**SASL_SSL, "sasl.enabled.mechanisms": "OAUTHBEARER"}, "needs sasl.oauthbearer.jwks.endpoint.url"),
        ({**TOKENS, "sasl.oauthbearer.expected.audience": ""}, "needs sasl.oauthbearer.expected.audience"),
        ({**TOKENS, "sasl.oauthbearer.jwks.endpoint.url": "http://keys"}, "must match"),
        ({**TOKENS, "sasl.oauthbearer.jwks.endpoint.url": "file://etc/keys"}, "must match"),
        ({**SASL_SSL, "connection.failed.authentication.delay.ms": "10000"}, "between 0 and 9000"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(given: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_listener_settings(given)
    assert fault in str(caught.value)


MUTUAL = {"ssl.keystore.location": "/k", "ssl.truststore.location": "/t"}


@pytest.mark.parametrize(
    ("given", "calls_by", "accepted"),
    [
        ({}, "PLAINTEXT", {"PLAINTEXT"}),
        ({**MUTUAL, "accepted.protocols": "PLAINTEXT,SSL"}, "PLAINTEXT", {"PLAINTEXT", "SSL"}),
        ({**MUTUAL, "security.protocol": "SSL", "accepted.protocols": "PLAINTEXT,SSL"}, "SSL", {"PLAINTEXT", "SSL"}),
        ({**MUTUAL, "security.protocol": "SSL"}, "SSL", {"SSL"}),
    ],
)
def test_brokers_come_to_encryption_in_three_steps(given: dict[str, str], calls_by: str, accepted: set[str]) -> None:
    settings = parse_internal_settings(given)
    assert (settings.protocol, settings.accepted) == (calls_by, accepted)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"security.protocol": "SASL_SSL"}, "one of PLAINTEXT, SSL"),
        ({"security.protocol": "SSL"}, "needs ssl.keystore.location\nSSL: needs ssl.truststore.location"),
        ({"accepted.protocols": "PLAINTEXT,SSL"}, "SSL: needs ssl.keystore.location"),
        ({**MUTUAL, "accepted.protocols": "SSL"}, "must contain PLAINTEXT"),
        (MUTUAL, "ssl.keystore.location: has no effect with PLAINTEXT"),
    ],
)
def test_settings_of_the_brokers_own_listener_that_do_not_go_together(given: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_internal_settings(given)
    assert fault in str(caught.value)

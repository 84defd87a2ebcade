"""Somebody who logs in at a program: what is judged before a broker is asked."""

import pytest

from pylog.client import person
from pylog.client.connection import Connection
from pylog.client.person import TopicRights
from pylog.errors import ApiError, ErrorCode
from pylog.security.acl import Operation

SECURED = Connection(
    bootstrap="127.0.0.1:1",
    properties={
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "program",
        "sasl.password": "secret",
    },
)


def test_a_login_takes_over_nothing_of_the_program_s_own_user() -> None:
    kept = {name: value for name, value in SECURED.properties.items() if name not in person._CREDENTIALS}
    assert kept == {"security.protocol": "SASL_PLAINTEXT"}


@pytest.mark.parametrize(
    ("user", "password"), [("", "x"), ("*", "x"), ("a\nb", "x"), ("alice", ""), ("a", "x" * 1_025)]
)
def test_what_is_no_name_or_password_is_refused_before_a_broker_is_asked(user: str, password: str) -> None:
    with pytest.raises(ApiError) as caught:
        person.log_in(SECURED, "SCRAM-SHA-256", user, password)
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_missing_topic_can_be_seen_and_nothing_else() -> None:
    missing = person._rights(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -(1 << 31))
    assert [one for one in Operation if missing.allows(one)] == [Operation.DESCRIBE]


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
def test_a_topic_that_may_not_be_described_allows_nothing(code: ErrorCode) -> None:
    assert person._rights(code, 1 << Operation.WRITE) == TopicRights(0, is_visible=False)

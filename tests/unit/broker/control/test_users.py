"""Which changes of SCRAM users are made, and which are refused with which error."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.broker.control.users import handle_alter, handle_describe, plan_changes
from pylog.broker.handler import Caller
from pylog.errors import ApiError, ErrorCode
from pylog.security.principal import SecurityProtocol, Session
from pylog.security.scram import ScramCredential, ScramMechanism, salt_password
from pylog.wire.api.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    ScramDeletion,
    ScramUpsertion,
    UserName,
)

SHA_256, SHA_512 = ScramMechanism
USERS = {"alice": {"SCRAM-SHA-256": ScramCredential.from_password(SHA_256, "a", 5000).text()}, "bob": {}}
SALT = b"0123456789"


def upsertion(name: str = "carol", **changes: Any) -> ScramUpsertion:
    salted = salt_password(SHA_256, "secret", SALT, 4096)
    values: dict[str, Any] = {"mechanism": 1, "iterations": 4096, "salt": SALT, "salted_password": salted} | changes
    return ScramUpsertion(name=name, **values)


def results(*changes: ScramUpsertion | ScramDeletion) -> dict[str, int]:
    """Return the error of each user, and check that only users without one are changed."""
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, ScramDeletion)],
        upsertions=[one for one in changes if isinstance(one, ScramUpsertion)],
    )
    changed, rows = plan_changes(request, USERS)
    assert set(changed) == {row.user for row in rows if row.error_code == ErrorCode.NONE}
    return {row.user: row.error_code for row in rows}


def test_the_broker_derives_the_keys_and_keeps_no_salted_password() -> None:
    changes, _ = plan_changes(AlterUserScramCredentialsRequest(upsertions=[upsertion()]), USERS)
    text = changes["carol"]["SCRAM-SHA-256"]
    assert text is not None
    credential = ScramCredential.parse(SHA_256, text)
    assert credential.is_password("secret")
    assert salt_password(SHA_256, "secret", SALT, 4096) not in (credential.stored_key, credential.server_key)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (upsertion(), ErrorCode.NONE),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("*"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ANONYMOUS"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("."), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(".."), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ü"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a\nb"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a/b:c;d,e f%g"), ErrorCode.NONE),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=2), ErrorCode.UNACCEPTABLE_CREDENTIAL),  # the key of the other hash
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramDeletion(name="alice", mechanism=1), ErrorCode.NONE),
        (ScramDeletion(name="alice", mechanism=2), ErrorCode.RESOURCE_NOT_FOUND),
        (ScramDeletion(name="nobody", mechanism=1), ErrorCode.RESOURCE_NOT_FOUND),
        (ScramDeletion(name="alice", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_each_change_is_checked(change: ScramUpsertion | ScramDeletion, error: ErrorCode) -> None:
    assert list(results(change).values()) == [error]


def test_a_user_is_changed_as_a_whole_or_not_at_all_and_others_all_the_same() -> None:
    wrong = upsertion("alice", mechanism=2, iterations=1)
    found = results(ScramDeletion(name="alice", mechanism=1), wrong, upsertion("carol"))
    assert found == {"alice": ErrorCode.UNACCEPTABLE_CREDENTIAL, "carol": ErrorCode.NONE}


def test_one_credential_twice_in_a_request_is_refused() -> None:
    assert results(upsertion(), upsertion()) == {"carol": ErrorCode.DUPLICATE_RESOURCE}
    assert results(ScramDeletion(name="alice", mechanism=1), upsertion("alice")) == {
        "alice": ErrorCode.DUPLICATE_RESOURCE
    }


def caller(host: str, protocol: SecurityProtocol) -> Caller:
    return Caller("c", Session(client_host=host, listener_name="client", security_protocol=protocol), 0)


class Cluster:
    """What the handlers use of a broker."""

    partitions = SimpleNamespace(image=SimpleNamespace(scram_credentials={"alice": USERS["alice"]}))

    async def ask_controller(self, request: Any) -> AlterUserScramCredentialsResponse:
        return AlterUserScramCredentialsResponse()


def test_a_salted_password_is_not_taken_from_another_host_unencrypted() -> None:
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion()])
    cluster: Any = Cluster()
    for protocol in SecurityProtocol:
        if protocol.has_tls:
            answer: Any = handle_alter(cluster, request, caller("192.0.2.1", protocol))
            asyncio.run(answer)
        else:
            with pytest.raises(ApiError, match="not encrypted") as caught:
                handle_alter(cluster, request, caller("192.0.2.1", protocol))
            assert caught.value.code is ErrorCode.POLICY_VIOLATION
    here: Any = handle_alter(cluster, request, caller("127.0.0.1", SecurityProtocol.SASL_PLAINTEXT))
    asyncio.run(here)
    deletion = AlterUserScramCredentialsRequest(deletions=[ScramDeletion(name="alice", mechanism=1)])
    asyncio.run(handle_alter(cluster, deletion, caller("192.0.2.1", SecurityProtocol.PLAINTEXT)))  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [None, []])
def test_without_names_all_users_are_described_and_no_secret_is(names: list[UserName] | None) -> None:
    cluster: Any = Cluster()
    answer: Any = handle_describe(
        cluster, DescribeUserScramCredentialsRequest(users=names), caller("h", SecurityProtocol.PLAINTEXT)
    )
    [row] = answer.results
    assert (row.user, row.error_code) == ("alice", ErrorCode.NONE)
    assert [(one.mechanism, one.iterations) for one in row.credential_infos] == [(1, 5000)]


def test_unknown_and_repeated_names_are_told_once() -> None:
    cluster: Any = Cluster()
    names = [UserName(name=name) for name in ("nobody", "alice", "alice", "")]
    request = DescribeUserScramCredentialsRequest(users=names)
    answer: Any = handle_describe(cluster, request, caller("h", SecurityProtocol.PLAINTEXT))
    assert {row.user: row.error_code for row in answer.results} == {
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "alice": ErrorCode.DUPLICATE_RESOURCE,
        "": ErrorCode.RESOURCE_NOT_FOUND,
    }


def test_what_a_request_holds_is_not_shown() -> None:
    shown = repr(AlterUserScramCredentialsRequest(upsertions=[upsertion()]))
    assert "salted_password" not in shown
    assert "0123456789" not in shown

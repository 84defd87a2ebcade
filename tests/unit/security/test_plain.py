"""PLAIN checked against SCRAM's keys."""

import pytest

from pylog.security.exchange import INVALID_CREDENTIALS, LoginFailed
from pylog.security.plain import PlainServer
from pylog.security.scram import CredentialSource, ScramCredential, ScramMechanism

USERS = {
    ("alice", ScramMechanism.SHA_256): ScramCredential.from_password(ScramMechanism.SHA_256, "p,=ü"),
    ("bob", ScramMechanism.SHA_512): ScramCredential.from_password(ScramMechanism.SHA_512, "b"),
}
SOURCE = CredentialSource(lambda user, mechanism: USERS.get((user, mechanism)), b"s")


@pytest.mark.parametrize("message", ["\0alice\0p,=ü", "alice\0alice\0p,=ü", "\0bob\0b"])
def test_the_right_password_logs_in(message: str) -> None:
    step = PlainServer(SOURCE).step(message.encode())
    assert step.reply == b""
    assert step.user == message.split("\0")[1]


@pytest.mark.parametrize(
    "message",
    ["\0alice\0wrong", "\0nobody\0p,=ü", "\0\0p", "\0alice\0", "\0*\0p", "\0ANONYMOUS\0p", "\0alice\0" + "x" * 1025],
)
def test_all_wrong_credentials_look_the_same(message: str) -> None:
    with pytest.raises(LoginFailed) as caught:
        PlainServer(SOURCE).step(message.encode())
    assert caught.value.public == INVALID_CREDENTIALS


@pytest.mark.parametrize("message", [b"", b"alice", b"\0alice", b"\0alice\0p\0more", b"\xff\0alice\0p"])
def test_a_malformed_message_is_refused(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        PlainServer(SOURCE).step(message)


def test_the_authorization_id_is_looked_at_after_the_password() -> None:
    with pytest.raises(LoginFailed, match="authorization id"):
        PlainServer(SOURCE).step(b"admin\0bob\0b")
    with pytest.raises(LoginFailed) as caught:
        PlainServer(SOURCE).step(b"admin\0bob\0wrong")
    assert caught.value.public == INVALID_CREDENTIALS

"""What a login by SASL is: messages back and forth until one side has proved who it is.

An exchange knows no frames, sockets or clocks.  `pylog.broker.login` carries its messages.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from pylog.errors import PylogError

INVALID_CREDENTIALS = "Authentication failed during authentication due to invalid credentials"
"""The one sentence that a client is told, whatever was wrong: anything else would say whether a user exists."""

MAX_NAME_BYTES = 256
"""Longest user name; names are labels of metrics and parts of log lines."""


class LoginFailed(PylogError):
    """The client did not prove who it is.

    Attributes:
        public: what the client is told; the exception's own message is for the log of the broker.
    """

    fault = 1058

    def __init__(self, reason: str, public: str = INVALID_CREDENTIALS) -> None:
        super().__init__(reason)
        self.public = public


@dataclass(frozen=True, slots=True)
class Step:
    """The server's answer to one message.

    Attributes:
        reply: bytes for the client, which may be empty.
        user: name of the principal once the client has proved it, else None: another message must come.
        expires_at_s: when the proof itself ends, in seconds since 1970; None if it has no end.
    """

    reply: bytes
    user: str | None = None
    expires_at_s: float | None = None


class Exchange(Protocol):
    """One login by one mechanism, the server's side."""

    is_slow: ClassVar[bool]
    """Whether a step takes so long that it must not run on the event loop."""

    def step(self, message: bytes) -> Step:
        """Answer the client's next message.

        Raises:
            LoginFailed: the exchange is over, without success.
        """


def check_name(name: str) -> str:
    """Return *name* if a user who logs in may have it.

    Raises:
        LoginFailed: the name belongs to clients without a login, to an ACL for everybody, or cannot be stored.
    """
    # An ACL for `User:*` grants to everybody, ANONYMOUS is a client that did not log in, and no node of the store,
    # where credentials and quotas are, can be `.` or `..`.
    unusable = ("", "*", "ANONYMOUS", ".", "..")
    if name in unusable or len(name.encode()) > MAX_NAME_BYTES or not name.isprintable():
        raise LoginFailed(f"user name {name[:MAX_NAME_BYTES]!r} is not allowed")
    return name

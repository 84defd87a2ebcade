"""PLAIN: user and password in one message, checked against the keys that SCRAM keeps.

message => [authzid] NUL user NUL password

Kafka keeps the passwords of PLAIN users readable in its configuration.  Here there is one store of users, and none of
it is readable: the password is put through PBKDF2 and compared with the stored key.

Source: RFC 4616.
"""

import hmac
from typing import ClassVar

from pylog.security.exchange import LoginFailed, Step, check_name
from pylog.security.scram import CredentialSource, ScramMechanism

MAX_PASSWORD_BYTES = 1024
"""PBKDF2 hashes a longer one first, so that it costs no more; this only bounds what a message may be."""


class PlainServer:
    """The server's side of one login."""

    is_slow: ClassVar[bool] = True  # PBKDF2: 1 to 10 ms

    def __init__(self, source: CredentialSource) -> None:
        self._source = source

    def step(self, message: bytes) -> Step:
        """Answer the only message; see `Exchange.step`."""
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            raise LoginFailed("message is not UTF-8") from None
        if len(parts) != 3:
            raise LoginFailed(f"message of {len(parts)} parts", "Invalid SASL/PLAIN response: expected 3 tokens")
        authzid, user, password = parts
        if not password or len(password.encode()) > MAX_PASSWORD_BYTES:
            raise LoginFailed("password is empty or too long")
        check_name(user)
        if not self._is_right(user, password):
            raise LoginFailed(f"wrong password or unknown user {user!r}")
        # Only now: told before, it would say whether the user exists.
        if authzid and not hmac.compare_digest(authzid.encode(), user.encode()):
            raise LoginFailed(
                f"authorization id {authzid[:256]!r} of user {user!r}",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        return Step(b"", user)

    def _is_right(self, user: str, password: str) -> bool:
        # The first mechanism for which the user has a credential.  An unknown user costs the same time as one with the
        # default credential.
        for mechanism in ScramMechanism:
            credential, exists = self._source.credential(user, mechanism)
            if exists:
                return credential.is_password(password)
        credential, _ = self._source.credential(user, ScramMechanism.SHA_256)
        credential.is_password(password)
        return False

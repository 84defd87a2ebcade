"""SCRAM-SHA-256 and SCRAM-SHA-512: credentials, and both sides of the exchange.

client first => "n," ["a=" authzid] "," "n=" user ",r=" nonce *("," extension)
server first => "r=" nonce of both ",s=" salt in base64 ",i=" iterations
client final => "c=" gs2 header in base64 ",r=" nonce of both *("," extension) ",p=" proof in base64
server final => "v=" signature in base64

The server keeps a salt, two keys and a number of iterations, from which the password cannot be computed.  It looks for
errors in both messages in the same way for a user that does not exist: such a user gets a salt that never changes, and
fails at its proof like one with a wrong password.

Source: RFC 5802, RFC 7677; Kafka's `ScramCredentialUtils` for the text of a credential.
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar

from pylog.errors import ConfigError
from pylog.security.exchange import LoginFailed, Step, check_name

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
DEFAULT_ITERATIONS = 4096
"""Kafka's default.  A user that does not exist appears to have so many."""

SALT_BYTES = 16
_NONCE_BYTES = 24
_MAX_CLIENT_NONCE = 1024
_GS2 = re.compile(r"n,(?:a=((?:[^,=]|=2C|=3D)+))?,")
# Printable ASCII but no comma, and `=` only as the two escapes.
_FIRST = re.compile(r"n=((?:[\x21-\x2b\x2d-\x3c\x3e-\x7e ]|=2C|=3D)+),r=([\x21-\x2b\x2d-\x7e]+)((?:,[A-Za-z]+=[^,]*)*)")
_FINAL = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]=[^,]*)*),p=([A-Za-z0-9+/=]+)")
_SERVER_FIRST = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=(\d{1,9})(?:,[A-Za-z]=[^,]*)*")
_TOKEN_AUTH = "tokenauth"


class ScramMechanism(IntEnum):
    """The number is the one of DescribeUserScramCredentials."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """What SASL calls it."""
        return "SCRAM-SHA-256" if self is ScramMechanism.SHA_256 else "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        """What hashlib calls its hash."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def hash_bytes(self) -> int:
        """Size of its keys."""
        return 32 if self is ScramMechanism.SHA_256 else 64


SCRAM_MECHANISMS: Mapping[str, ScramMechanism] = {one.sasl_name: one for one in ScramMechanism}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What the broker keeps of a password.

    Attributes:
        salt: random, public.
        stored_key: hash of the client's key; a proof is compared with it.
        server_key: by which the server proves that it knows the user.
        iterations: of PBKDF2.
    """

    mechanism: ScramMechanism
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def from_salted_password(
        cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
    ) -> "ScramCredential":
        """Return the credential of a password that PBKDF2 has already been applied to."""
        stored_key = hashlib.new(mechanism.hash_name, _hmac(mechanism, salted, b"Client Key")).digest()
        return cls(
            mechanism=mechanism,
            salt=salt,
            stored_key=stored_key,
            server_key=_hmac(mechanism, salted, b"Server Key"),
            iterations=iterations,
        )

    @classmethod
    def from_password(
        cls,
        mechanism: ScramMechanism,
        password: str,
        iterations: int = DEFAULT_ITERATIONS,
        salt: bytes | None = None,
    ) -> "ScramCredential":
        """Return the credential of *password*, with a new salt unless one is given; takes milliseconds."""
        salt = os.urandom(SALT_BYTES) if salt is None else salt
        return cls.from_salted_password(
            mechanism, salt_password(mechanism, password, salt, iterations), salt, iterations
        )

    def is_password(self, password: str) -> bool:
        """Return whether *password* is the one of this credential; takes milliseconds, so call it in a thread."""
        salted = salt_password(self.mechanism, password, self.salt, self.iterations)
        stored_key = hashlib.new(self.mechanism.hash_name, _hmac(self.mechanism, salted, b"Client Key")).digest()
        return hmac.compare_digest(stored_key, self.stored_key)

    def text(self) -> str:
        """Return it as Kafka writes it into a user's node; `parse` reads it."""
        salt, stored, server = (base64.b64encode(one).decode() for one in (self.salt, self.stored_key, self.server_key))
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def parse(cls, mechanism: ScramMechanism, text: str) -> "ScramCredential":
        """Return the credential that *text* holds.

        Raises:
            ConfigError: the text is not one; the message does not repeat it.
        """
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            credential = cls(
                mechanism=mechanism,
                salt=base64.b64decode(fields["salt"], validate=True),
                stored_key=base64.b64decode(fields["stored_key"], validate=True),
                server_key=base64.b64decode(fields["server_key"], validate=True),
                iterations=int(fields["iterations"]),
            )
        except (KeyError, ValueError) as error:
            raise ConfigError(f"{mechanism.sasl_name} credential: {type(error).__name__} in it") from None
        sizes = {len(credential.stored_key), len(credential.server_key)}
        if not credential.salt or sizes != {mechanism.hash_bytes}:
            raise ConfigError(f"{mechanism.sasl_name} credential: salt or keys have a wrong size")
        return credential


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return PBKDF2 of *password*, which RFC 5802 calls SaltedPassword."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def new_nonce() -> str:
    """Return a nonce that was never used before."""
    return base64.b64encode(os.urandom(_NONCE_BYTES)).decode()


FindCredential = Callable[[str, ScramMechanism], ScramCredential | None]
"""Returns what is kept of a user's password, or None."""


@dataclass(frozen=True, slots=True)
class CredentialSource:
    """The stored credentials, and a stable substitute for users that do not exist.

    Attributes:
        find: looks one up.
        secret: from which the substitutes are derived, the same on all brokers of a cluster.
    """

    find: FindCredential
    secret: bytes = field(repr=False)

    def credential(self, user: str, mechanism: ScramMechanism) -> tuple[ScramCredential, bool]:
        """Return a credential, and whether it is that of an existing user; the other matches no proof."""
        found = self.find(user, mechanism)
        if found is not None and found.iterations >= MIN_ITERATIONS:
            return found, True
        name = f"{mechanism.sasl_name} {user}".encode()
        salt = hmac.digest(self.secret, b"salt " + name, "sha256")[:SALT_BYTES]
        # Nobody knows a password whose hash is this key: no proof fits it.
        key = hmac.digest(self.secret, b"key " + name, "sha512")[: mechanism.hash_bytes]
        substitute = ScramCredential(
            mechanism=mechanism, salt=salt, stored_key=key, server_key=key, iterations=DEFAULT_ITERATIONS
        )
        return substitute, False


class ScramServer:
    """The server's side of one login."""

    is_slow: ClassVar[bool] = False

    def __init__(
        self, mechanism: ScramMechanism, source: CredentialSource, nonce: Callable[[], str] = new_nonce
    ) -> None:
        self._mechanism = mechanism
        self._source = source
        self._new_nonce = nonce
        self._user = ""
        self._gs2 = ""
        self._client_nonce = ""
        self._nonce = ""
        self._signed = ""
        self._credential: ScramCredential | None = None
        self._exists = False
        self._is_over = False

    def step(self, message: bytes) -> Step:
        """Answer the first or the final message; see `Exchange.step`."""
        if self._is_over:
            raise LoginFailed("message after the end of the exchange")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise LoginFailed("message is not UTF-8") from None
        if self._credential is None:
            return self._first(text)
        self._is_over = True
        return self._final(text, self._credential)

    def _first(self, text: str) -> Step:
        gs2 = _GS2.match(text)
        if gs2 is None:
            raise LoginFailed("first message without gs2 flag n; channel binding is not supported")
        bare = text[gs2.end() :]
        first = _FIRST.fullmatch(bare)
        if first is None or len(first[2]) > _MAX_CLIENT_NONCE:
            raise LoginFailed("malformed first message")
        user, authzid = _unescaped(first[1]), gs2[1] and _unescaped(gs2[1])
        if authzid and authzid != user:
            raise LoginFailed(
                f"authorization id {authzid[:256]!r} of user {user[:256]!r}",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        if f",{_TOKEN_AUTH}=true" in first[3]:
            raise LoginFailed(f"delegation token of {user[:256]!r}", "Delegation tokens are not supported")
        self._user, self._gs2 = check_name(user), gs2[0]
        self._credential, self._exists = self._source.credential(user, self._mechanism)
        self._client_nonce = first[2]
        self._nonce = self._client_nonce + self._new_nonce()
        salt = base64.b64encode(self._credential.salt).decode()
        reply = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._signed = f"{bare},{reply}"
        return Step(reply.encode())

    def _final(self, text: str, credential: ScramCredential) -> Step:
        final = _FINAL.fullmatch(text)
        if final is None:
            raise LoginFailed(f"malformed final message of user {self._user!r}")
        without_proof, binding, nonce, proof_text = final.groups()
        # Exactly what was sent, not something that ends like it (CVE-2024-56128).  librdkafka before 2.6.1, and so
        # Debian's kcat, puts its own part in front once more; the proof covers that, too.
        is_sent = hmac.compare_digest(nonce.encode(), self._nonce.encode())
        if not is_sent and not hmac.compare_digest(nonce.encode(), (self._client_nonce + self._nonce).encode()):
            raise LoginFailed(f"nonce of user {self._user!r} is not the one of the first message")
        if _decoded(binding) != self._gs2.encode():
            raise LoginFailed(f"channel binding of user {self._user!r} is not the one of the first message")
        signed = f"{self._signed},{without_proof}".encode()
        proof = _decoded(proof_text)
        signature = _hmac(self._mechanism, credential.stored_key, signed)
        if len(proof) != len(signature):
            raise LoginFailed(f"proof of user {self._user!r} has {len(proof)} bytes")
        stored_key = hashlib.new(self._mechanism.hash_name, _xor(proof, signature)).digest()
        is_right = hmac.compare_digest(stored_key, credential.stored_key)
        if not (is_right and self._exists):
            raise LoginFailed(f"wrong password or unknown user {self._user!r}")
        reply = base64.b64encode(_hmac(self._mechanism, credential.server_key, signed)).decode()
        return Step(f"v={reply}".encode(), self._user)


class ScramClient:
    """The client's side of one login; also checks that the server knows the user."""

    MAX_ITERATIONS = 1_000_000
    """A server may not make the client compute for minutes."""

    def __init__(
        self, mechanism: ScramMechanism, user: str, password: str, nonce: Callable[[], str] = new_nonce
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce()
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the final message that answers the server's first one.

        Raises:
            LoginFailed: the server's message is malformed, or answers another client.
        """
        found = _SERVER_FIRST.fullmatch(server_first.decode(errors="replace"))
        if found is None or not found[1].startswith(self._nonce) or found[1] == self._nonce:
            raise LoginFailed("the server's first message is malformed or has a foreign nonce")
        iterations = int(found[3])
        if not MIN_ITERATIONS <= iterations <= self.MAX_ITERATIONS:
            raise LoginFailed(f"the server asks for {iterations} iterations")
        salted = salt_password(self._mechanism, self._password, _decoded(found[2]), iterations)
        without_proof = f"c=biws,r={found[1]}"
        signed = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        client_key = _hmac(self._mechanism, salted, b"Client Key")
        stored_key = hashlib.new(self._mechanism.hash_name, client_key).digest()
        proof = _xor(client_key, _hmac(self._mechanism, stored_key, signed))
        self._signature = _hmac(self._mechanism, _hmac(self._mechanism, salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def finish(self, server_final: bytes) -> None:
        """Check the server's final message.

        Raises:
            LoginFailed: the server does not know the user's keys.
        """
        expected = b"v=" + base64.b64encode(self._signature)
        if not self._signature or not hmac.compare_digest(server_final, expected):
            raise LoginFailed("the server did not prove that it knows the user")


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)


def _xor(left: bytes, right: bytes) -> bytes:
    size = len(left)
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(size, "big")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise LoginFailed("malformed base64") from None


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")

"""How a blocking connection of ours is encrypted and logs in; librdkafka does the same for itself.

The properties have librdkafka's names, so that one set of them serves all connections of a program.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pylog.errors import ApiError, ConfigError, ErrorCode
from pylog.security.exchange import LoginFailed
from pylog.security.password_file import read_password
from pylog.security.principal import SecurityProtocol
from pylog.security.scram import SCRAM_MECHANISMS, ScramClient
from pylog.wire.api.message import Request
from pylog.wire.api.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

SECURITY_KEYS: Mapping[str, str] = {
    "protocol": "security.protocol",
    "mechanism": "sasl.mechanism",
    "user": "sasl.username",
    "password_file": "sasl.password",
    "ca_file": "ssl.ca.location",
    "certificate_file": "ssl.certificate.location",
    "key_file": "ssl.key.location",
}
"""What a block ``security:`` of a program's file may say, and librdkafka's property for it."""

HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 1  # the last before flexible encoding, and the first that tells the session's lifetime

_PLAIN = "PLAIN"
_MECHANISMS = (*SCRAM_MECHANISMS, _PLAIN)

Ask = Callable[[Request, int], memoryview]
"""Sends a request of this version, and returns the body of its response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """How to connect.

    Attributes:
        protocol: of the listener.
        mechanism: of the login, where there is one.
        user: who logs in.
        password: of the user.
        ca_location: PEM file with the authorities of the brokers; None for the system's.
        certificate_location: PEM file with the client's own certificate, where the listener asks for one.
        key_location: PEM file with its private key.
        made: the context, made already; see `loaded`.
    """

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    ca_location: Path | None = None
    certificate_location: Path | None = None
    key_location: Path | None = None
    made: ssl.SSLContext | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "ClientSecurity":
        """Return what librdkafka's *properties* ask for; those that are about something else are passed over.

        Raises:
            ConfigError: a protocol or mechanism that is not built, or a user without name or password.
        """
        name = str(properties.get("security.protocol", "PLAINTEXT")).upper()
        if name not in list(SecurityProtocol):
            raise ConfigError(f"security.protocol={name}: must be one of {', '.join(SecurityProtocol)}")
        protocol = SecurityProtocol(name)
        mechanism = str(properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "")
        user, password = (str(properties.get(f"sasl.{key}", "")) for key in ("username", "password"))
        if protocol.has_sasl:
            if mechanism not in _MECHANISMS:
                raise ConfigError(f"sasl.mechanism={mechanism}: must be one of {', '.join(_MECHANISMS)}")
            if mechanism == _PLAIN and not protocol.has_tls:
                raise ConfigError(f"sasl.mechanism={_PLAIN}: sends the password readable; needs SASL_SSL")
            if not (user and password):
                raise ConfigError(f"security.protocol={protocol}: needs sasl.username and sasl.password")
        files = {key: properties.get(f"ssl.{key}.location") for key in ("ca", "certificate", "key")}
        paths = {key: Path(file) for key, file in files.items() if file}
        return cls(
            protocol=protocol,
            mechanism=mechanism,
            user=user,
            password=password,
            ca_location=paths.get("ca"),
            certificate_location=paths.get("certificate"),
            key_location=paths.get("key"),
        )

    def context(self) -> ssl.SSLContext | None:
        """Return a context that verifies the broker and its name; None without encryption.

        Raises:
            ConfigError: a file is missing or is not what it should be.
        """
        if not self.protocol.has_tls:
            return None
        return self.made or client_context(self.ca_location, self.certificate_location, self.key_location)

    def loaded(self) -> "ClientSecurity":
        """Return the same with its files read: for a process that goes on as a user who may not read them.

        Raises:
            ConfigError: as `context`.
        """
        return replace(self, made=self.context())


def security_properties(block: Mapping[str, str], beside: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's properties for a block ``security:``; its password is read from its file.

    Args:
        block: keys of `SECURITY_KEYS`.
        beside: the properties that stand beside the block.

    Raises:
        ConfigError: names the key; a password that everybody may read is refused too.
    """
    properties: dict[str, str] = {}
    for key, text in block.items():
        if key not in SECURITY_KEYS:
            raise ConfigError(f"security.{key}: unknown key; must be one of {', '.join(SECURITY_KEYS)}")
        name = SECURITY_KEYS[key]
        if name in beside:
            raise ConfigError(f"security.{key}: properties has {name} too")
        properties[name] = read_password(Path(text), "security.password_file") if key == "password_file" else text
    ClientSecurity.from_properties({**beside, **properties}).context()
    return properties


def security_of(block: Mapping[str, str]) -> ClientSecurity:
    """Return how blocking connections are encrypted and log in by a block ``security:``; see `security_properties`."""
    return ClientSecurity.from_properties(security_properties(block, {}))


def client_context(
    ca_location: Path | None, certificate_location: Path | None = None, key_location: Path | None = None
) -> ssl.SSLContext:
    """Return a context that verifies the server and its name; see `ClientSecurity`.

    Raises:
        ConfigError: a file is missing or is not what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if ca_location is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(ca_location)
    except OSError as error:
        raise ConfigError(f"ssl.ca.location={ca_location}: {error.strerror or error}") from None
    try:
        if certificate_location is not None:
            context.load_cert_chain(certificate_location, key_location)
    except OSError as error:
        raise ConfigError(f"ssl.certificate.location={certificate_location}: {error.strerror or error}") from None
    return context


def log_in(security: ClientSecurity, ask: Ask) -> int:
    """Log in on a new connection; return after how many ms the broker wants it again, 0 for never.

    Raises:
        ApiError: SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM or ILLEGAL_SASL_STATE; asking again would not
            change it.
    """
    handshake = SaslHandshakeResponse.decode(
        HANDSHAKE_VERSION, ask(SaslHandshakeRequest(mechanism=security.mechanism), HANDSHAKE_VERSION)
    )
    if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise ApiError(ErrorCode.ILLEGAL_SASL_STATE, "the listener has no login")
    if handshake.error_code != ErrorCode.NONE:
        offered = ", ".join(handshake.mechanisms) or "no mechanism"
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"{security.mechanism}: the broker offers {offered}")
    try:
        if security.mechanism == _PLAIN:
            return _send(ask, f"\0{security.user}\0{security.password}".encode()).session_lifetime_ms
        scram = ScramClient(SCRAM_MECHANISMS[security.mechanism], security.user, security.password)
        last = _send(ask, scram.final(_send(ask, scram.first()).auth_bytes))
        scram.finish(last.auth_bytes)
    except LoginFailed as error:
        raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None
    return last.session_lifetime_ms


def _send(ask: Ask, message: bytes) -> SaslAuthenticateResponse:
    response = SaslAuthenticateResponse.decode(
        AUTHENTICATE_VERSION, ask(SaslAuthenticateRequest(auth_bytes=message), AUTHENTICATE_VERSION)
    )
    if response.error_code != ErrorCode.NONE:
        raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, response.error_message or "login refused")
    return response

"""Identities: the principal of a client, and the session of a connection.

Source: Kafka documentation, "Security"; `KafkaPrincipal` and `SecurityProtocol` there.
"""

import ipaddress
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

from pylog.errors import ConfigError

USER = "User"
"""The only type of principal that a login makes."""

NEVER_NS = 2**63 - 1
"""When a session without a limit expires."""


class SecurityProtocol(StrEnum):
    """How a listener is protected: encryption by TLS, login by SASL."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether the bytes are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether a client must log in before its first request."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Principal(NamedTuple):
    """Who sends a request; two ways to prove the same name lead to the same principal.

    Attributes:
        type: case-sensitive; USER unless an operator wrote another one into an ACL.
        name: of a user, or the distinguished name of a certificate; may contain colons and commas.
    """

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the principal that ``Type:name`` names.

        Raises:
            ConfigError: the text has no type, or no name.
        """
        principal_type, colon, name = text.partition(":")
        if not (principal_type and colon and name):
            raise ConfigError(f"principal {text!r} must be TYPE:NAME, such as User:alice")
        return cls(principal_type, name)


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""A client that has not logged in: all clients of a listener without security."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What is known of the client of one connection; a login replaces it as a whole.

    Attributes:
        principal: who it is; ANONYMOUS before the login and on listeners without one.
        client_host: its address, as `normal_host` writes it.
        listener_name: which listener accepted the connection.
        security_protocol: of that listener.
        authenticated_at_ns: when the principal was established, by the clock of `Connection.read_ns`.
        binding: SHA-256 of the certificate that the client was shown, b"" without encryption.
        expires_at_ns: when the connection ends unless the client has logged in again, by the same clock; NEVER_NS
            without a limit.
    """

    principal: Principal = ANONYMOUS
    client_host: str
    listener_name: str
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    binding: bytes = b""
    authenticated_at_ns: int = 0
    expires_at_ns: int = NEVER_NS


def normal_host(host: str) -> str:
    """Return the one spelling of an address that quotas and ACLs are compared with.

    An IPv4 client of a listener for both families has an address such as ``::ffff:192.0.2.1``: it counts as IPv4.  What
    is not an address is returned unchanged.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)

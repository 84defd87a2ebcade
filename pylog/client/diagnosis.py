"""Why no broker answers: librdkafka says that time is up, and a connection of ours is told more.

A broker closes a connection that speaks another protocol without a word, as Kafka does.  So what it speaks is found by
trying: first as the client is configured, then with and without encryption.
"""

import socket
import ssl
import time
from collections.abc import Callable

from pylog.client.connection import Connection
from pylog.client.raw import METADATA_VERSION, BrokerConnection, parse_bootstrap
from pylog.client.security import ClientSecurity
from pylog.errors import ApiError, ErrorCode, ProtocolError, PylogError
from pylog.security.principal import SecurityProtocol
from pylog.wire.api.metadata import MetadataRequest
from pylog.wire.api.table import ApiKey
from pylog.wire.api.versions import ApiVersionsRequest

MAX_S = 3.0
"""All attempts take no longer."""

_CERT_NOT_YET_VALID, _CERT_HAS_EXPIRED = 9, 10  # OpenSSL's codes of a verification


class CertificateNotValid(PylogError):
    """A certificate has expired or is not valid yet: that of the broker, or our own."""

    fault = 107


class CertificateNotTrusted(PylogError):
    """A certificate is of another authority or for another address, or the broker wants one and got none."""

    fault = 109


def reason_of_silence(cluster: Connection) -> PylogError | None:
    """Return why no broker of *cluster* answers a client that is configured so; None if that cannot be told."""
    deadline = time.monotonic() + min(cluster.timeout_s, MAX_S)
    try:
        security = cluster.security()
        for address in parse_bootstrap(cluster.bootstrap):
            if reason := _reason(address, security, deadline):
                return reason
    except PylogError:
        pass  # librdkafka can do what our connections cannot
    return None


def _reason(address: tuple[str, int], security: ClientSecurity, deadline: float) -> PylogError | None:
    where = f"{address[0]}:{address[1]}"
    try:
        _ask(address, security, deadline)
    except ssl.SSLError as error:
        found = _certificate_fault(where, error)
        return found or _other_protocol(address, security, deadline)
    except ApiError as error:
        if error.code is ErrorCode.ILLEGAL_SASL_STATE:
            return ProtocolError(f"{where} asks for no login; security.protocol is {security.protocol}")
        return error
    except ConnectionRefusedError:
        return None
    except (OSError, ProtocolError):
        return _other_protocol(address, security, deadline)
    return None


def _ask(address: tuple[str, int], security: ClientSecurity, deadline: float) -> None:
    """Do what each client does first, to where a request needs a login."""
    connection = BrokerConnection(address, time.monotonic, deadline, security)
    try:
        connection.log_in(deadline)
        connection.ask(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=[]).encode(METADATA_VERSION), deadline)
    finally:
        connection.close()


def _certificate_fault(where: str, error: ssl.SSLError) -> PylogError | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        is_time = error.verify_code in (_CERT_NOT_YET_VALID, _CERT_HAS_EXPIRED)
        text = f"certificate of {where}: {error.verify_message}"
        return CertificateNotValid(text) if is_time else CertificateNotTrusted(text)
    reason = (error.reason or "").lower().replace("_", " ")
    if "alert" not in reason or not ("certificate" in reason or "unknown ca" in reason):
        return None
    refused = CertificateNotValid if "expired" in reason else CertificateNotTrusted
    return refused(f"{where} refuses our certificate (ssl.certificate.location): {reason}")


def _other_protocol(address: tuple[str, int], security: ClientSecurity, deadline: float) -> PylogError | None:
    """Return that the listener speaks another protocol, if it does."""
    where, protocol = f"{address[0]}:{address[1]}", security.protocol
    is_plain = _succeeds(lambda: _greet(address, deadline, has_tls=False))
    if is_plain and protocol.has_tls:
        return ProtocolError(f"{where} is not encrypted; security.protocol is {protocol}")
    if not is_plain and not protocol.has_tls and _succeeds(lambda: _greet(address, deadline, has_tls=True)):
        return ProtocolError(f"{where} is encrypted (SSL or SASL_SSL); security.protocol is {protocol}")
    if not protocol.has_sasl and (is_plain or protocol.has_tls):
        same = SecurityProtocol.SASL_SSL if protocol.has_tls else SecurityProtocol.SASL_PLAINTEXT
        return ProtocolError(f"{where} asks for a login ({same}); security.protocol is {protocol}")
    return None


def _greet(address: tuple[str, int], deadline: float, *, has_tls: bool) -> None:
    """Shake hands, or ask which requests are served: both are answered before a login."""
    if has_tls:
        # Nothing is sent over it but the greeting, so nobody needs to be trusted.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        left_s = max(deadline - time.monotonic(), 0.001)
        with socket.create_connection(address, left_s) as plain, context.wrap_socket(plain):
            return
    connection = BrokerConnection(address, time.monotonic, deadline, ClientSecurity())
    try:
        connection.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest().encode(0), deadline)
    finally:
        connection.close()


def _succeeds(attempt: Callable[[], None]) -> bool:
    try:
        attempt()
    except (OSError, PylogError):
        return False
    return True

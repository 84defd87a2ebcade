"""kazoo's way to threads and sockets, with TLS as we want it.

kazoo's own TLS trusts the system's authorities beside the one that it is given, and does not check host names unless it
is told to.
"""

import logging
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from pylog.store.zookeeper_security import ZooKeeperSecurity

_logger = logging.getLogger(__name__)


MAX_HANDSHAKE_S = 20.0
"""Longer than a session usually lasts: a client without a session has nothing to lose by waiting."""


class ConnectionHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Opens connections, encrypted where *security* says so.

    Args:
        security: see `ZooKeeperSecurity`.
        attempt_timeout_s: for the connection and for its handshake, each.

    Attributes:
        failure: why the last attempt to connect failed; "" after one that did not.
        handshake_timeout_s: what the next handshake of TLS may take. Doubled by one that took longer, up to
            `MAX_HANDSHAKE_S`: handshakes that are given up cost servers which are short of processor the most, so that
            with one limit for all of them no client would ever get in.
    """

    def __init__(self, security: ZooKeeperSecurity, attempt_timeout_s: float) -> None:
        super().__init__()
        self._security = security
        self._attempt_timeout_s = attempt_timeout_s
        self.handshake_timeout_s = attempt_timeout_s
        self._context: ssl.SSLContext | None = None
        self.failure = ""

    def create_connection(  # what else kazoo hands over is about its own TLS
        self, address: tuple[str, int], timeout: float | None = None, hostname: str = "", **_: object
    ) -> socket.socket:
        """Connect to *address*, whose certificate must name *hostname*; raise OSError if that fails."""
        try:
            connection = self._connect(address, hostname or address[0])
        except OSError as error:
            self.failure = f"{hostname}:{address[1]}: {_reason(error)}"
            raise
        self.failure = ""
        return connection

    def select(
        self,
        rlist: Sequence[Any],
        wlist: Sequence[Any],
        xlist: Sequence[Any],
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait for sockets; one that OpenSSL has decrypted bytes of is ready, which no poll of the kernel tells."""
        if any(isinstance(one, ssl.SSLSocket) and one.pending() for one in rlist):
            timeout = 0
        ready, writable, failed = super().select(rlist, wlist, xlist, timeout)
        more = [one for one in rlist if isinstance(one, ssl.SSLSocket) and one not in ready and one.pending()]
        return [*ready, *more], writable, failed

    def _connect(self, address: tuple[str, int], hostname: str) -> socket.socket:
        context = self._new_context()
        connection = socket.create_connection(address, self._attempt_timeout_s)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection if context is None else self._encrypt(connection, context, hostname)
        except BaseException:
            connection.close()
            raise

    def _encrypt(self, connection: socket.socket, context: ssl.SSLContext, hostname: str) -> ssl.SSLSocket:
        connection.settimeout(self.handshake_timeout_s)
        try:
            encrypted = context.wrap_socket(connection, server_hostname=hostname)
        except TimeoutError:
            longest_s = max(MAX_HANDSHAKE_S, self._attempt_timeout_s)
            self.handshake_timeout_s = min(2 * self.handshake_timeout_s, longest_s)
            raise
        self.handshake_timeout_s = self._attempt_timeout_s
        encrypted.settimeout(self._attempt_timeout_s)
        return encrypted

    def _new_context(self) -> ssl.SSLContext | None:
        """Return a context of the files as they are now, or the one before while they are not right."""
        trust_store = self._security.trust_store
        if trust_store is None:
            return None
        try:
            self._context = client_context(trust_store, self._security.key_store)
        except OSError as error:
            if self._context is None:
                raise
            _logger.error("zookeeper_certificates_not_reloaded reason=%s", error)
        return self._context


def client_context(trust_store: Path, key_store: Path | None) -> ssl.SSLContext:
    """Return a context that verifies the server and its name.

    Raises:
        OSError: a file is missing or is not what it should be; the message names the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    at = trust_store
    try:
        context.load_verify_locations(trust_store)
        if key_store is not None:
            at = key_store
            # Without a password for the key OpenSSL would ask for one on the terminal.
            context.load_cert_chain(key_store, password=lambda: "")
    except OSError as error:
        raise OSError(error.errno, f"{at}: {_reason(error)}") from None
    return context


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate of the server is not accepted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error)

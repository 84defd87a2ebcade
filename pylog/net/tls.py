"""TLS under a connection: a socket that looks like a plain one, the handshake before it, and the contexts behind it.

OpenSSL's own habits end here.  What it has decrypted already waits where no poll sees it, so a read goes on until
nothing is left or the buffer is full.  A write that could not be sent as a whole must be repeated with the same bytes,
so they are kept until they have gone.
"""

import asyncio
import contextlib
import hashlib
import ipaddress
import logging
import math
import os
import socket
import ssl
import time
from collections.abc import Callable, Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from pylog.errors import CertificateExpired, ConfigError
from pylog.log.segment import FileSlice
from pylog.net.connection import Connection

_logger = logging.getLogger(__name__)

MAX_WRITE_BYTES = 64 * 1024
"""Given to OpenSSL at once: four records.  More gains nothing, and a blocked write keeps as much of a copy."""

HANDSHAKE_THREADS = 2
"""A handshake takes a millisecond of a processor; OpenSSL lets other threads run meanwhile."""

CLIENT_HELLO = b"\x16"
"""First byte of a TLS connection, the type of a handshake record; a plain request begins with 0."""

_CIPHERS_1_2 = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE+AESGCM:ECDHE+CHACHA20"
_CRL_BEGIN = b"-----BEGIN X509 CRL-----"
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsSocket:
    """A non-blocking `ssl.SSLSocket` after its handshake, with the manners of a plain socket.

    Its methods raise BlockingIOError where a plain socket would, and an end without notice is an end.

    Attributes:
        binding: see `ServerTls.binding`; of the certificate that the client was shown.
        reads_on: whether its connection is about to read again what is decrypted already.
    """

    __slots__ = ("_pinned", "_sock", "binding", "reads_on")

    def __init__(self, sock: ssl.SSLSocket, binding: bytes = b"") -> None:
        self._sock = sock
        self.binding = binding
        self.reads_on = False
        self._pinned: bytes | None = None

    def fileno(self) -> int:
        """See `socket.socket.fileno`."""
        return self._sock.fileno()

    def recv_into(self, view: bytearray | memoryview) -> int:
        """Fill as much of *view* as there is; 0 at the end of the stream."""
        view = memoryview(view)
        have, size = 0, len(view)
        try:
            while have < size:
                count = self._sock.recv_into(view[have:])
                if not count:
                    break
                have += count
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not have:
                raise BlockingIOError from None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass  # the next read meets it again if some bytes came before it
        return have

    @property
    def has_decrypted(self) -> bool:
        """Whether bytes wait inside, which no poll tells of."""
        return self._sock.pending() > 0

    def send(self, data: bytes | memoryview) -> int:
        """Send the first `MAX_WRITE_BYTES` of *data*, or none of it; return how many.

        After BlockingIOError the next call must have the same bytes at its beginning.
        """
        if self._pinned is None:
            self._pinned = bytes(data[:MAX_WRITE_BYTES])
        try:
            sent = self._sock.send(self._pinned)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        assert sent == len(self._pinned), f"partial write of {sent} of {len(self._pinned)} bytes"
        self._pinned = None
        return sent

    @property
    def pinned_bytes(self) -> int:
        """Size of a write that was begun; 0 without one."""
        return 0 if self._pinned is None else len(self._pinned)

    def close(self) -> None:
        """Say goodbye if nothing is in the way, and close."""
        with contextlib.suppress(OSError, ValueError):
            if self._pinned is None:
                self._sock.unwrap()
        self._sock.close()


class TlsConnection(Connection):
    """A connection over a `TlsSocket`: slices of files are read and encrypted here."""

    __slots__ = ()

    _sock: TlsSocket  # type: ignore[assignment]  # all that the base class uses of a socket

    def _on_readable(self) -> None:
        super()._on_readable()
        self._read_on()

    def _read_on(self) -> None:
        # The kernel tells of bytes that came, not of those that OpenSSL holds already.  Not at once: a client that
        # sends as fast as we read would have the loop to itself.
        is_waiting = self._is_paused or self._is_behind
        if not self.is_closed and not is_waiting and not self._sock.reads_on and self._sock.has_decrypted:
            self._sock.reads_on = True
            self._loop.call_soon(self._read_decrypted)

    def _resume(self) -> None:
        was_paused = self._is_paused
        super()._resume()
        if was_paused:
            self._read_on()

    def _read_decrypted(self) -> None:
        self._sock.reads_on = False
        if not self.is_closed and not self._is_paused:
            self._on_readable()

    def _send_bytes(self) -> None:
        """Send the parts at the front as one piece: each send is a record of its own."""
        if self._sock.pinned_bytes:
            sent = self._sock.send(b"")
        else:
            front = bytearray()
            for part in self._out:
                if isinstance(part, FileSlice) or len(front) >= MAX_WRITE_BYTES:
                    break
                front += part[: MAX_WRITE_BYTES - len(front)]
            sent = self._sock.send(bytes(front))
        self._note_sent(sent)

    def _transfer(self, part: FileSlice, size_bytes: int) -> int:
        if self._sock.pinned_bytes:
            return self._sock.send(b"")
        data = os.pread(part.fd, min(size_bytes, MAX_WRITE_BYTES), part.position)
        return self._sock.send(data) if data else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """Files and rules of TLS on one listener.

    Attributes:
        key_store: PEM file with the private key and the certificate chain, the listener's own certificate first.
        trust_store: PEM file with the authorities whose clients are let in; None only without client certificates.
        client_auth: whether clients show a certificate: none, requested or required.
        protocols: TLS versions that are spoken, of TLSv1.2 and TLSv1.3.
        crl: PEM file with lists of revoked certificates, one of each authority that signs certificates of clients.
        names: host names and addresses that the own certificate must have, since clients look for them in it.
        is_mutual: whether connections to others are made too, with the same files.
    """

    key_store: Path
    trust_store: Path | None = None
    client_auth: str = "none"
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    crl: Path | None = None
    names: tuple[str, ...] = ()
    is_mutual: bool = False


def server_context(config: TlsConfig, now_s: float) -> ssl.SSLContext:
    """Return a new context from the files of *config*; a context in use is never changed.

    Raises:
        ConfigError: a file is missing or is not what it should be, or key and certificate do not fit.
        CertificateExpired: a revocation list has expired.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, config)
    # A ticket from before lets its holder in without a look at the certificate, whatever the rules have become since.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    context.verify_mode = _CLIENT_AUTH[config.client_auth]
    _trust(context, config, now_s)
    if config.trust_store is None and config.client_auth != "none":
        raise ConfigError(f"ssl.client.auth={config.client_auth}: needs ssl.truststore.location")
    return context


def caller_context(config: TlsConfig, now_s: float) -> ssl.SSLContext:
    """Return a new context for connections to others, which must have a certificate for the address that is called.

    Raises:
        ConfigError: as of `server_context`.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, config)
    _trust(context, config, now_s)
    return context


def _context(side: "ssl._SSLMethod", config: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_2 if "TLSv1.2" in config.protocols else ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_3 if "TLSv1.3" in config.protocols else ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS_1_2)
    _load(config.key_store, "ssl.keystore.location", lambda path: context.load_cert_chain(path))
    return context


def _trust(context: ssl.SSLContext, config: TlsConfig, now_s: float) -> None:
    if config.trust_store is not None:
        _load(config.trust_store, "ssl.truststore.location", lambda path: context.load_verify_locations(path))
    if config.crl is not None:
        if crl_expiry_s(config.crl) <= now_s:
            raise CertificateExpired(f"ssl.crl.location: a list in {config.crl} has expired; nobody would be let in")
        _load(config.crl, "ssl.crl.location", lambda path: context.load_verify_locations(path))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load(path: Path, setting: str, load: Callable[[Path], None]) -> None:
    try:
        load(path)
    except ssl.SSLError as error:
        reason = error.reason or "no PEM with what is needed"
        raise ConfigError(f"{setting}: {path}: {reason.lower().replace('_', ' ')}") from None
    except OSError as error:
        raise ConfigError(f"{setting}: {path}: {error.strerror}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCertificate:
    """What is looked at in the certificate of a key store; see `own_certificate`.

    Attributes:
        key_store: the file that it is in.
        hosts: host names that it is for, in lower case.
        addresses: IP addresses that it is for.
        valid_from_s: when it becomes valid, in seconds since 1970.
        expires_s: when it expires, in seconds since 1970.
        digest: SHA-256 of it in DER.
    """

    key_store: Path
    hosts: tuple[str, ...]
    addresses: tuple[object, ...]
    valid_from_s: float
    expires_s: float
    digest: bytes


def own_certificate(key_store: Path) -> OwnCertificate:
    """Return the first certificate in a PEM file.

    All that can be wrong in it is met here: the parser looks at a part of a certificate only when asked for it.

    Raises:
        ConfigError: there is none, or it has a form that it may not have.
    """
    try:
        certificate = x509.load_pem_x509_certificates(key_store.read_bytes())[0]
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            names = x509.SubjectAlternativeName([])
        return OwnCertificate(
            key_store=key_store,
            hosts=tuple(name.lower() for name in names.get_values_for_type(x509.DNSName)),
            addresses=tuple(names.get_values_for_type(x509.IPAddress)),
            valid_from_s=certificate.not_valid_before_utc.timestamp(),
            expires_s=certificate.not_valid_after_utc.timestamp(),
            digest=hashlib.sha256(certificate.public_bytes(Encoding.DER)).digest(),
        )
    except (OSError, ValueError, IndexError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise ConfigError(f"ssl.keystore.location: {key_store}: {error}") from None


def check_time(certificate: OwnCertificate, now_s: float) -> None:
    """Check that *certificate* is valid at *now_s*, in seconds since 1970.

    Raises:
        CertificateExpired: it is not valid yet, or has expired.
    """
    where = f"ssl.keystore.location: the certificate in {certificate.key_store}"
    if certificate.valid_from_s > now_s:
        raise CertificateExpired(f"{where} is not valid yet")
    if certificate.expires_s <= now_s:
        raise CertificateExpired(f"{where} has expired")


def crl_expiry_s(crl: Path) -> float:
    """Return when the first of the revocation lists in a PEM file expires, in seconds since 1970.

    Raises:
        ConfigError: there is none, or one names no such time.
    """
    try:
        parts = crl.read_bytes().split(_CRL_BEGIN)[1:]
        times = [x509.load_pem_x509_crl(_CRL_BEGIN + part).next_update_utc for part in parts]
    except (OSError, ValueError) as error:
        raise ConfigError(f"ssl.crl.location: {crl}: {error}") from None
    if not times or None in times:
        raise ConfigError(f"ssl.crl.location: {crl}: wanted revocation lists in PEM, each with its next update")
    return min(time.timestamp() for time in times if time is not None)


def check_names(certificate: OwnCertificate, names: Iterable[str]) -> None:
    """Check that *certificate* is for these host names and addresses.

    Raises:
        ConfigError: with those that it lacks.
    """
    hosts, addresses = certificate.hosts, certificate.addresses
    if missing := [name for name in names if not _covers(hosts, addresses, name)]:
        found = ", ".join([*hosts, *map(str, addresses)]) or "none"
        raise ConfigError(
            f"ssl.keystore.location: the certificate in {certificate.key_store} must name {', '.join(missing)}, "
            f"which is advertised; its subject alternative names: {found}"
        )


def _covers(hosts: Iterable[str], addresses: Container[object], name: str) -> bool:
    try:
        return ipaddress.ip_address(name) in addresses
    except ValueError:
        wildcard = "*." + name.lower().partition(".")[2]
        return any(host in (name.lower(), wildcard) for host in hosts)


class ServerTls:
    """The contexts that new connections of a listener use, made anew when its files change.

    Attributes:
        config: files and rules.
        context: for the next connection.
        caller_context: for the next connection to another broker, if there are such.
        binding: SHA-256 of the own certificate, by which a proof is bound to a connection (RFC 5929,
            tls-server-end-point).
        expires_s: when its certificate expires, in seconds since 1970.
        crl_expires_s: the same of the revocation lists; infinity without any.
    """

    def __init__(self, config: TlsConfig, *, now_s: Callable[[], float] = time.time) -> None:
        """Read the files.

        Raises:
            ConfigError: as of `server_context`, or the certificate is not valid now or lacks a name.
        """
        self.config = config
        self._now_s = now_s
        self._digest = self._files()
        self._make(self._digest)

    def reload(self) -> bool:
        """Use the files' contents from the next connection on, if they changed; return whether they did.

        Raises:
            ConfigError: they are wrong, and the context from before stays in use.
        """
        digest = self._files()
        if digest == self._digest:
            return False
        self._make(digest)
        self._digest = digest
        return True

    def _make(self, digest: bytes) -> None:
        """Make everything from the files, which have *digest*, and only then use it."""
        config, now_s = self.config, self._now_s()
        context = server_context(config, now_s)
        caller = caller_context(config, now_s) if config.is_mutual else None
        certificate = own_certificate(config.key_store)
        check_time(certificate, now_s)
        check_names(certificate, config.names)
        crl_expires_s = math.inf if config.crl is None else crl_expiry_s(config.crl)
        # OpenSSL reads the files itself: a change in between would give the context one certificate and the proof of
        # brokers another one.
        if self._files() != digest:
            raise ConfigError(
                f"ssl.keystore.location: {config.key_store}, or a file beside it, changed while it was read"
            )
        self.context, self.caller_context, self.binding = context, caller, certificate.digest
        self.expires_s, self.crl_expires_s = certificate.expires_s, crl_expires_s

    def _files(self) -> bytes:
        digest = hashlib.sha256()
        for path in (self.config.key_store, self.config.trust_store, self.config.crl):
            try:
                digest.update(b"" if path is None else path.read_bytes())
            except OSError as error:
                raise ConfigError(f"{path}: {error.strerror}") from None
        return digest.digest()


class Handshakes:
    """TLS handshakes of one listener, each a job of a thread whenever its socket is ready."""

    def __init__(
        self,
        tls: ServerTls,
        on_done: Callable[[TlsSocket, str, str, bytes | None], None],
        on_failed: Callable[[str, str], None],
        on_plain: Callable[[socket.socket, str, str], None] | None = None,
    ) -> None:
        """Make it; both functions are called on the loop.

        Args:
            tls: says which context to use.
            on_done: gets the socket, host, peer, and the client's certificate in DER.
            on_failed: gets the peer and the reason; not called when a client only went away.
            on_plain: gets the socket, host and peer of a plain connection; such are refused without it.
        """
        self._tls = tls
        self._on_done = on_done
        self._on_failed = on_failed
        self._on_plain = on_plain
        self._threads = ThreadPoolExecutor(HANDSHAKE_THREADS, "tls")
        self._pending: dict[_Handshake, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def begin(self, sock: socket.socket, host: str, peer: str, timeout_s: float) -> None:
        """Begin the handshake on a new non-blocking connection; it is closed after *timeout_s*."""
        handshake = _Handshake(self, sock, host, peer)
        loop = asyncio.get_running_loop()
        self._pending[handshake] = loop.call_later(timeout_s, handshake.fail, "TLS handshake took too long")
        handshake.wait_first_byte()

    def close(self) -> None:
        """Close all that are under way."""
        for handshake in list(self._pending):
            handshake.fail("")
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Handshake:
    def __init__(self, owner: Handshakes, sock: socket.socket, host: str, peer: str) -> None:
        self._owner = owner
        self._sock: socket.socket | ssl.SSLSocket = sock
        self._fd = sock.fileno()
        self._host = host
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._is_in_thread = False
        self._is_over = False
        self._binding = b""

    def wait_first_byte(self) -> None:
        self._loop.add_reader(self._fd, self._first_byte)

    def _first_byte(self) -> None:
        self._loop.remove_reader(self._fd)
        try:
            first = self._sock.recv(1, socket.MSG_PEEK)
        except OSError:
            first = b""
        if not first:
            self.fail("")  # so health checks of load balancers end
        elif first != CLIENT_HELLO and self._owner._on_plain is not None:
            self._end()
            assert not isinstance(self._sock, ssl.SSLSocket)
            self._owner._on_plain(self._sock, self._host, self._peer)
        elif first != CLIENT_HELLO:
            # Without an alert: Java's clients take one for the size of a frame of 350 MB.
            self.fail("plain client on a TLS listener; its security.protocol must be SSL or SASL_SSL")
        else:
            self._binding = self._owner._tls.binding
            try:
                self._sock = self._owner._tls.context.wrap_socket(
                    self._sock, server_side=True, do_handshake_on_connect=False
                )
            except OSError as error:
                self.fail(f"TLS handshake failed: {error}")
                return
            self._go_on()

    def _go_on(self) -> None:
        assert isinstance(self._sock, ssl.SSLSocket)
        self._is_in_thread = True
        work = self._loop.run_in_executor(self._owner._threads, _shake, self._sock)
        work.add_done_callback(self._went)

    def _went(self, done: "asyncio.Future[str]") -> None:
        self._is_in_thread = False
        if self._is_over:
            self._sock.close()
            return
        if done.cancelled():
            return
        if error := done.exception():
            self.fail(f"TLS handshake failed: {_reason(error)}")
        elif done.result() == "read":
            self._loop.add_reader(self._fd, self._ready)
        elif done.result() == "write":
            self._loop.add_writer(self._fd, self._ready)
        else:
            self._finish()

    def _ready(self) -> None:
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._go_on()

    def _finish(self) -> None:
        self._end()
        assert isinstance(self._sock, ssl.SSLSocket)
        certificate = self._sock.getpeercert(binary_form=True)
        self._owner._on_done(TlsSocket(self._sock, self._binding), self._host, self._peer, certificate)

    def _end(self) -> None:
        self._is_over = True
        self._owner._pending.pop(self).cancel()

    def fail(self, reason: str) -> None:
        if self._is_over:
            return
        self._end()
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        if not self._is_in_thread:  # else the thread still uses it
            self._sock.close()
        if reason:
            self._owner._on_failed(self._peer, reason)


def _shake(sock: ssl.SSLSocket) -> str:
    try:
        sock.do_handshake()
    except ssl.SSLWantReadError:
        return "read"
    except ssl.SSLWantWriteError:
        return "write"
    return ""


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"client certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error)

"""What a server encrypts by: contexts of OpenSSL from files that are checked first, and made anew when those change.

A context in use is never changed: one wrong file loaded into it would break every later handshake.
"""

import hashlib
import ipaddress
import math
import ssl
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from pylog.errors import CertificateExpired, ConfigError

_CIPHERS_1_2 = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE+AESGCM:ECDHE+CHACHA20"
_CRL_BEGIN = b"-----BEGIN X509 CRL-----"
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """Files and rules of TLS on one listener.

    Attributes:
        key_store: PEM file with the private key and the certificate chain, the listener's own certificate first.
        key: PEM file with the private key, where it is in a file of its own.
        trust_store: PEM file with the authorities whose clients are let in; None only without client certificates.
        client_auth: whether clients show a certificate: none, requested or required.
        protocols: TLS versions that are spoken, of TLSv1.2 and TLSv1.3.
        crl: PEM file with lists of revoked certificates, one of each authority that signs certificates of clients.
        names: host names and addresses that the own certificate must have, since clients look for them in it.
        is_mutual: whether connections to others are made too, with the same files.
    """

    key_store: Path
    key: Path | None = None
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
    _load(config.key_store, "ssl.keystore.location", lambda path: _load_keys(context, path, config.key))
    return context


def _load_keys(context: ssl.SSLContext, chain: Path, key: Path | None) -> None:
    # With a password at hand, so that a key that needs one is an error and no question on the terminal.
    context.load_cert_chain(chain, key, password="")


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

    def has_expired(self, certificate: bytes) -> bool:
        """Return whether the time of a client's certificate, in DER, is over, or that of the revocation lists."""
        ends_s = x509.load_der_x509_certificate(certificate).not_valid_after_utc.timestamp()
        return min(ends_s, self.crl_expires_s) <= self._now_s()

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
        for path in (self.config.key_store, self.config.key, self.config.trust_store, self.config.crl):
            try:
                digest.update(b"" if path is None else path.read_bytes())
            except OSError as error:
                raise ConfigError(f"{path}: {error.strerror}") from None
        return digest.digest()

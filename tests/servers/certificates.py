"""Certificates for tests: an authority, and keys with certificates that it signed, in PEM files."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID, ObjectIdentifier

HOUR = datetime.timedelta(hours=1)
DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority whose files stand in one directory.

    Attributes:
        directory: of all files.
        trusted: PEM file with its own certificate.
    """

    def __init__(self, directory: Path, name: str = "pylog test authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * DAY)
            .not_valid_after(now + 10 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.trusted = directory / f"{name.replace(' ', '-')}.pem"
        self.trusted.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        file: str,
        *names: tuple[ObjectIdentifier, str],
        valid_from: datetime.timedelta = -HOUR,
        valid_to: datetime.timedelta = DAY,
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        names_as: x509.ExtensionType | None = None,
    ) -> Path:
        """Return a PEM file with a new key and its certificate for *hosts*; *names* is the subject in its order.

        With *names_as* that stands where the hosts would be.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(oid, value) for oid, value in names]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + valid_from)
            .not_valid_after(now + valid_to)
            .add_extension(names_as or x509.SubjectAlternativeName(list(map(_general_name, hosts))), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = self.directory / file
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def server(self, file: str = "server.pem") -> Path:
        """Return a PEM file for a server on loopback."""
        return self.issue(file, (NameOID.ORGANIZATION_NAME, "Org"), (NameOID.COMMON_NAME, "server"))

    def revoke(self, *files: Path, valid_to: datetime.timedelta = DAY, file: str = "revoked.pem") -> Path:
        """Return a PEM file with a list on which the certificates of *files* are revoked."""
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - DAY)
            .next_update(now + valid_to)
        )
        for one in files:
            serial = x509.load_pem_x509_certificates(one.read_bytes())[0].serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - HOUR).build()
            builder = builder.add_revoked_certificate(revoked)
        path = self.directory / file
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

"""Keystores for the REST API of a worker, whose web server reads no PEM.

Made anew at each start, by the worker's own unit and in its directory below ``/run``, under a password that lasts as
long: nothing but that unit's user may read the directory.

    python -m pylog.connect.keystores KEYS CA DIRECTORY     keys.p12, trust.p12 and keystores.properties in DIRECTORY
"""

import secrets
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)

# What Java 17 takes from a PKCS12 keystore for a server.
_KEYS = (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey)

PASSWORD = "password"
"""Key of the password in ``keystores.properties``."""


def write_keystores(keys: Path, authorities: Path, directory: Path) -> None:
    """Write the keystores of one start.

    Args:
        keys: private key and chain in PEM, the host's own certificate first.
        authorities: certificates to trust, in PEM.
        directory: is there; files are for their owner alone.

    Raises:
        ValueError: a file has no key or no certificate in PEM.
        OSError: a file cannot be read or written.
    """
    password = secrets.token_hex(32)
    encryption = BestAvailableEncryption(password.encode())
    pem = keys.read_bytes()
    key = load_pem_private_key(pem, password=None)
    own, *chain = x509.load_pem_x509_certificates(pem)
    trusted = x509.load_pem_x509_certificates(authorities.read_bytes())
    if not isinstance(key, _KEYS):
        raise ValueError(f"{keys}: found a {type(key).__name__}, wanted a key of RSA or EC")
    _write(directory / "keys.p12", serialize_key_and_certificates(b"connect", key, own, chain, encryption))
    named = [PKCS12Certificate(one, f"authority-{number}".encode()) for number, one in enumerate(trusted)]
    _write(directory / "trust.p12", serialize_java_truststore(named, encryption))
    _write(directory / "keystores.properties", f"{PASSWORD}={password}\n".encode())


def _write(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def main(keys: str = "", authorities: str = "", directory: str = "") -> int:
    """Write keystores; 1 with a sentence where they cannot be made."""
    if not directory:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        write_keystores(Path(keys), Path(authorities), Path(directory))
    except (OSError, ValueError) as error:
        print(f"keystores: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))

r"""Bytes that only the holder of a key can read: how a backup lies on a disk, since it has the keys of all passwords.

sealed => "pylog-sealed-1\n" base64(salt[16] nonce[12] ciphertext tag[16]) "\n"

The cipher is AES-256-GCM; the tag is also over the first line, salt and nonce.  The key is derived from the secret and
the salt (HKDF with SHA-256), so that no nonce is used twice under one key however many files there are.  A secret is
random, as `openssl rand -hex 32` makes it, and not something that people remember.

Source: NIST SP 800-38D; RFC 5869.
"""

import base64
import binascii
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pylog.errors import ConfigError, PylogError

MAGIC = b"pylog-sealed-1\n"
MIN_SECRET_LENGTH = 32
"""Characters: `openssl rand -hex 16` makes as many."""

_SALT_BYTES = 16
_NONCE_BYTES = 12
_HEAD_BYTES = _SALT_BYTES + _NONCE_BYTES


class SealError(PylogError):
    """A sealed file cannot be opened with these keys, or was changed."""

    fault = 316


def read_secrets(path: Path) -> tuple[bytes, ...]:
    """Return the secrets in *path*, one a line: the first one seals, each may open.

    Raises:
        ConfigError: the file is missing, readable by everybody, has no secret, or a short one.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o004:
                raise ConfigError(f"key file {path}: must not be readable by everybody: chmod o-r {path}")
            secrets = tuple(line.strip() for line in file if line.strip())
    except OSError as error:
        raise ConfigError(f"key file {path}: {error.strerror}") from None
    if not secrets or min(map(len, secrets)) < MIN_SECRET_LENGTH:
        raise ConfigError(f"key file {path}: each line must be a secret of {MIN_SECRET_LENGTH} characters or more")
    return secrets


def is_sealed(content: bytes) -> bool:
    """Return whether *content* is what `seal` returns."""
    return content.startswith(MAGIC)


def seal(content: bytes, secret: bytes) -> bytes:
    """Return *content* so that only a holder of *secret* can read it, and nobody else can change it."""
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    ciphertext = AESGCM(_key(secret, salt)).encrypt(nonce, content, MAGIC + salt + nonce)
    return MAGIC + base64.b64encode(salt + nonce + ciphertext) + b"\n"


def unseal(sealed: bytes, secrets: Sequence[bytes], name: str) -> bytes:
    """Return what was sealed.

    Args:
        sealed: what `seal` returned.
        secrets: tried in order.
        name: where it came from, for messages.

    Raises:
        SealError: it was cut or changed, or sealed with another secret.
    """
    try:
        raw = base64.b64decode(sealed.removeprefix(MAGIC).strip(), validate=True)
    except binascii.Error:
        raw = b""
    salt, nonce, ciphertext = raw[:_SALT_BYTES], raw[_SALT_BYTES:_HEAD_BYTES], raw[_HEAD_BYTES:]
    if is_sealed(sealed) and len(nonce) == _NONCE_BYTES:
        for secret in secrets:
            try:
                return AESGCM(_key(secret, salt)).decrypt(nonce, ciphertext, MAGIC + salt + nonce)
            except InvalidTag:
                continue
    raise SealError(f"{name}: none of the {len(secrets)} secrets in the key file opens it, or it was changed since")


def _key(secret: bytes, salt: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=MAGIC).derive(secret)

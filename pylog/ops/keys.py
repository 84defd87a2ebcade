"""Private keys on a host: made there and never sent anywhere; a request goes out and a chain comes back.

It runs in Ansible's module `pylog_key` with the standard library and the host's ``openssl``.  The file of a key is
written as a whole and renamed: readers see the former pair or the new one, never a key with another's certificate.

file => private key (PKCS#8, PEM), certificate of the host, certificates of its issuers
"""

import contextlib
import grp
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
PENDING = ".request"
MODE = 0o640


class KeyProblem(Exception):
    """A key cannot be made, or does not belong to a certificate; the message shows neither."""


def certificates_in(text: str) -> str:
    """Return the certificates of a file in PEM, without the private key that may stand before them."""
    blocks = [part.split(END)[0] for part in text.split(BEGIN)[1:] if END in part]
    return "".join(f"{BEGIN}{block}{END}\n" for block in blocks)


def request(about: Mapping[str, Any]) -> dict[str, Any]:
    """Make a new private key beside ``path`` and return the request for its certificate.

    The key that is in use stays until `install`. A request that nobody answered is replaced.
    """
    pending = Path(about["path"] + PENDING)
    key = _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    _write(pending, key, 0, 0, 0o600)
    return {"request": _openssl("req", "-new", "-key", str(pending), "-subj", "/CN=" + about["common_name"])}


def install(about: Mapping[str, Any]) -> dict[str, Any]:
    """Put ``chain`` behind the key that it was requested for, or behind ``key`` where one is given, and use them.

    Raises:
        KeyProblem: the first certificate is for another key.
    """
    path = Path(about["path"])
    pending = Path(about["path"] + PENDING)
    chain = certificates_in(about["chain"])
    key = about.get("key") or ""
    try:
        key = key or pending.read_text()
    except OSError as error:
        raise KeyProblem(f"{pending}: {error.strerror}; request a certificate first") from None
    # As PKCS#8, which is what ZooKeeper reads.
    key = _openssl("pkey", stdin=key)
    if _openssl("pkey", "-pubout", stdin=key) != _openssl("x509", "-noout", "-pubkey", stdin=chain):
        raise KeyProblem(f"{path}: the first certificate is for another private key")
    try:
        group = grp.getgrnam(about["group"]).gr_gid
    except KeyError:
        raise KeyProblem(f"{path}: there is no group {about['group']}") from None
    content = key + chain
    is_changed = not _is_there(path, content, group)
    if is_changed:
        _write(path, content, 0, group, MODE)
    with contextlib.suppress(FileNotFoundError):
        pending.unlink()
    return {"changed": is_changed}


def _is_there(path: Path, content: str, group: int) -> bool:
    try:
        found = path.stat()
        return (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (0, group, MODE) and path.read_text() == content
    except OSError:
        return False


def _write(path: Path, content: str, owner: int, group: int, mode: int) -> None:
    """Write *path* as a whole; nobody but root can read the file before it has its group."""
    part = path.with_name(path.name + ".part")
    with contextlib.suppress(FileNotFoundError):
        part.unlink()
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
        file.flush()
        if (owner, group) != (os.getuid(), os.getgid()):
            os.fchown(descriptor, owner, group)
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    part.rename(path)


def _openssl(*words: str, stdin: str = "") -> str:
    try:
        done = subprocess.run(["openssl", *words], input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise KeyProblem("openssl is not installed") from None
    if done.returncode:
        # Its errors name the reason and the file, and show no key.
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise KeyProblem(f"openssl {words[0]}: {lines[-1]}")
    return done.stdout


VERBS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"request": request, "install": install}

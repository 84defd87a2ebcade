"""Takes secrets out of text that leaves the operator's hands.  Pure.

Two ways at once: values that are known to be secret, wherever they stand; and what looks like a secret by the name
before it or by its form, for those nobody listed.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

MASK = "***"

SHORTEST = 6
"""A shorter value is no secret, and would be masked inside of words."""

_NAME = (
    r"(?:passwo?r?d|passphrase|secret|token|credential|api[_-]?key|private[_-]?key|stored_key|server_key|backup_keys?"
    r"|salt)"
)
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
# What names a place and not the secret itself stays readable: cluster_secret_file: /etc/pylog/cluster.secret
_ASSIGNED = re.compile(
    rf"""(?P<name>["']?[\w.-]*{_NAME}(?![\w.-]*(?:file|path|location))[\w.-]*["']?\s*[:=]\s*)"""
    r"""(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s,;&}\]]+)""",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(?P<name>\b[a-z][a-z0-9+.-]*://[^\s/:@]+:)(?P<value>[^\s/@]+)(?=@)", re.IGNORECASE)
_HEADER = re.compile(r"(?P<name>\bauthorization:\s*(?:basic|bearer)\s+)(?P<value>\S+)", re.IGNORECASE)
_KEY_BLOCK = re.compile(r"-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----.*?(?:-----END (?P=kind)-----|\Z)", re.DOTALL)


def secrets_of(variables: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the values that some hosts' variables call secret by their names, at any depth."""
    found: set[str] = set()
    for one in variables:
        found |= {value for name, value in _texts(one) if _SECRET_NAME.search(name) and len(value) >= SHORTEST}
    return {value for value in found if not value.startswith("/")}  # a path is where it lies


def values(texts: Iterable[str]) -> set[str]:
    """Return the words of files that hold nothing but secrets."""
    return {word for text in texts for word in text.split() if len(word) >= SHORTEST}


def _texts(value: object, name: str = "") -> Iterable[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _texts(below, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _texts(below, name)
    elif isinstance(value, str):
        yield name, value.strip()


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """Return *text* without *secrets*, and without what looks like one."""
    # The longest first: one may be a part of another.
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    text = _KEY_BLOCK.sub(rf"-----BEGIN \g<kind>-----{MASK}", text)
    for pattern in (_IN_ADDRESS, _HEADER, _ASSIGNED):
        text = pattern.sub(rf"\g<name>{MASK}", text)
    return text

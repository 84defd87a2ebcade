r"""The format strings of `pylog consume -f`: how one record is written.

template => (text | "%" letter | "\" letter | "\x" 2 hex digits)*
letter after % => s or v value, S its size, k key, K its size, h headers, T timestamp in ms, D the same as a date,
                  t topic, p partition, o offset, % itself;  -1 is the size of a null
letter after \ => n, r, t, 0, \

The letters are kcat's, and v is rpk's.  Whole words stand for what is often wanted: text, wide, json, yaml.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from pylog import faults
from pylog.cli.failure import Failure
from pylog.client.consumer import ConsumedRecord


@dataclass(frozen=True, slots=True)
class Field:
    """A place in a template that a record fills."""

    letter: str


Writer: TypeAlias = Callable[[ConsumedRecord], bytes]
"""Makes the bytes that stand for one record."""

_FIELDS: dict[str, Writer] = {
    "s": lambda r: b"" if r.value is None else r.value,
    "v": lambda r: b"" if r.value is None else r.value,
    "S": lambda r: _size(r.value),
    "k": lambda r: b"" if r.key is None else r.key,
    "K": lambda r: _size(r.key),
    "h": lambda r: b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in r.headers),
    "T": lambda r: b"%d" % r.timestamp_ms,
    "D": lambda r: _date(r.timestamp_ms),
    "t": lambda r: r.topic.encode(),
    "p": lambda r: b"%d" % r.partition,
    "o": lambda r: b"%d" % r.offset,
}
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


_WORDS = {"text": r"%s\n", "wide": r"%t-%p@%o %D %k %s\n"}


def compile_template(template: str) -> Writer:
    """Return the function that writes a record as *template* says; ``json`` means an object a line.

    Raises:
        Failure: with exit code 2, on an unknown letter.
    """
    if template == "json":
        return as_json
    if template == "yaml":
        return _as_yaml
    parts: list[bytes | Writer] = [
        _FIELDS[part.letter] if isinstance(part, Field) else part
        for part in parse_template(_WORDS.get(template, template), "".join(_FIELDS))
    ]
    return lambda record: b"".join([part if isinstance(part, bytes) else part(record) for part in parts])


def as_json(record: ConsumedRecord) -> bytes:
    """Return the record as one line of JSON; bytes that are no UTF-8 become ``{"base64": ...}``."""
    return json.dumps(_plain(record), ensure_ascii=False).encode() + b"\n"


def _as_yaml(record: ConsumedRecord) -> bytes:
    import yaml

    return b"---\n" + yaml.safe_dump(_plain(record), sort_keys=False, allow_unicode=True, encoding="utf-8")


def _plain(record: ConsumedRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def parse_template(template: str, letters: str) -> list[bytes | Field]:
    """Return the texts and fields of *template*, which may have the fields *letters*.

    Raises:
        Failure: with exit code 2, on an unknown letter.
    """
    parts: list[bytes | Field] = []
    position = 0
    while position < len(template):
        character = template[position]
        letter = template[position + 1 : position + 2]
        if character == "%":
            parts.append(_field(template, letter, letters))
        elif character == "\\" and letter == "x":
            parts.append(_hexadecimal(template, template[position + 2 : position + 4]))
            position += 2
        elif character == "\\":
            parts.append(_escape(template, letter))
        else:
            parts.append(character.encode())
            position -= 1
        position += 2
    return parts


def _field(template: str, letter: str, letters: str) -> bytes | Field:
    if letter == "%":
        return b"%"
    if not letter or letter not in letters:
        raise _wrong(template, f"%{letter}", "one of " + " ".join(f"%{known}" for known in f"{letters}%"))
    return Field(letter)


def _escape(template: str, letter: str) -> bytes:
    if letter not in _ESCAPES:
        raise _wrong(template, f"\\{letter}", r"one of \n \r \t \0 \\ \xHH")
    return _ESCAPES[letter]


def _hexadecimal(template: str, digits: str) -> bytes:
    try:
        return bytes.fromhex(digits) if len(digits) == 2 else _escape(template, "x" + digits)
    except ValueError:
        raise _wrong(template, f"\\x{digits}", r"\x and two hex digits") from None


def _wrong(template: str, found: str, wanted: str) -> Failure:
    return Failure(faults.FORMAT_WRONG, where=template, found=found, wanted=wanted)


def _date(timestamp_ms: int) -> bytes:
    if timestamp_ms < 0:
        return b"-"
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").encode()


def _size(content: bytes | None) -> bytes:
    return b"-1" if content is None else b"%d" % len(content)


def _text(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}

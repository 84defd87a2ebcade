r"""The format strings of `pylog produce -f`: what a line of input holds.

template => (text | "%" letter | "\" letter | "\x" 2 hex digits)*        (letters of `pylog.cli.template`)
letter after % => s or v value, k key, p partition, T timestamp in ms, h headers as name=value,name=value, % itself

A field reaches up to the text that follows it, the last one to the end of the line.  ``json`` means an object a line,
as `pylog consume -f json` writes it (topic and offset are given anew); ``text`` is the line as it is.
"""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.template import Field, parse_template


@dataclass(slots=True)
class InputRecord:
    """What one line says; what it does not say is None."""

    value: bytes | None = None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


Reader: TypeAlias = Callable[[bytes], InputRecord]
"""Makes a record of a line without its end; raises ValueError, with the reason, for one that does not fit."""

_LETTERS = "svkpTh"


def compile_input(template: str) -> Reader:
    """Return the function that reads a line as *template* says.

    Raises:
        Failure: with exit code 2, on an unknown letter, or two fields with nothing between them.
    """
    if template == "json":
        return read_json
    if template == "text":
        return InputRecord
    parts = parse_template(template, _LETTERS)
    if parts and parts[-1] == b"\n":
        parts.pop()
    pattern = b""
    letters: list[str] = []
    for place, part in enumerate(parts):
        if isinstance(part, bytes):
            if b"\n" in part:
                raise _wrong(template, r"\n inside", "one line a record")
            pattern += re.escape(part)
            continue
        if letters and isinstance(parts[place - 1], Field):
            raise _wrong(template, f"%{letters[-1]}%{part.letter}", "text between two fields")
        letters.append(part.letter)
        pattern += b"(.*?)" if place < len(parts) - 1 else b"(.*)"
    return _reader(re.compile(pattern, re.DOTALL), letters, template)


def _reader(pattern: re.Pattern[bytes], letters: list[str], template: str) -> Reader:
    def read(line: bytes) -> InputRecord:
        found = pattern.fullmatch(line)
        if found is None:
            raise ValueError(f"{line[:80]!r} is not of the form {template}")
        record = InputRecord()
        for letter, text in zip(letters, found.groups(), strict=True):
            _take(record, letter, text)
        return record

    return read


def _take(record: InputRecord, letter: str, text: bytes) -> None:
    match letter:
        case "k":
            record.key = text
        case "p":
            record.partition = int(text)
        case "T":
            record.timestamp_ms = int(text)
        case "h":
            pairs = [pair.partition(b"=") for pair in text.split(b",") if pair]
            record.headers = [(name.decode(), value) for name, _, value in pairs]
        case _:
            record.value = text


def read_json(line: bytes) -> InputRecord:
    """Return what `pylog.cli.template.as_json` wrote; offsets are given by the broker anew.

    Raises:
        ValueError: the line is no such object.
    """
    body = json.loads(line)
    if not isinstance(body, dict):
        raise ValueError("an object is wanted")
    known = {"topic", "partition", "offset", "timestamp_ms", "key", "value", "headers"}
    if unknown := body.keys() - known:
        raise ValueError(f"unknown key {min(unknown)!r}; known are {', '.join(sorted(known))}")
    headers = body.get("headers") or []
    if not isinstance(headers, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in headers):
        raise ValueError("headers are pairs of name and value")
    return InputRecord(
        value=_bytes(body.get("value")),
        key=_bytes(body.get("key")),
        partition=_number(body.get("partition")),
        timestamp_ms=_number(body.get("timestamp_ms")),
        headers=[(str(name), _bytes(value)) for name, value in headers],
    )


def _bytes(content: Any) -> bytes | None:  # noqa: ANN401  # whatever JSON may hold
    if content is None:
        return None
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, dict) and content.keys() == {"base64"}:
        return base64.b64decode(content["base64"], validate=True)
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def _number(value: Any) -> int | None:  # noqa: ANN401
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{value!r} is no number")
    return value


def _wrong(template: str, found: str, wanted: str) -> Failure:
    return Failure(faults.FORMAT_WRONG, where=template, found=found, wanted=wanted)

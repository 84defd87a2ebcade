"""Makes an entry fit into a record.  Decides; waits for nothing."""

import json
from typing import Any

from pylog.ship.lines import HEAD_BYTES, Line

MARKER = "PYLOG_TRUNCATED"
"""Field that a shortened entry has in addition: field name -> its size in the journal, in bytes of JSON.

Journal fields are trusted only with a leading underscore, so this name says of itself that it was added.
"""

_KEPT_BYTES = 256
_WHOLE_LINE = "*"


def fit(line: Line, limit_bytes: int) -> tuple[bytes, bool]:
    """Return the entry's JSON in at most *limit_bytes*, and whether something had to go.

    An entry that fits is passed on as journalctl wrote it.  Of one that does not, the largest fields are cut until it
    does; addresses (fields with two underscores) stay whole.  Of one that was too long even to be read, only its place
    and the start of its text are left.

    Args:
        line: the entry.
        limit_bytes: at least 4 KiB.
    """
    if not line.is_whole:
        return _stub(line), True
    if line.size_bytes <= limit_bytes:
        return line.content, False
    try:
        fields = json.loads(line.content)
    except ValueError:
        return _stub(line), True
    cut = _cut(fields, limit_bytes)
    return (cut, True) if len(cut) <= limit_bytes else (_stub(line), True)


def _cut(fields: dict[str, Any], limit_bytes: int) -> bytes:
    """Return *fields* as JSON of at most *limit_bytes*, unless they are too many to be cut to that."""
    excess_bytes = len(_encode(fields)) - limit_bytes
    sizes = {name: len(_encode(value)) for name, value in fields.items() if not name.startswith("__")}
    marker: dict[str, int] = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        if excess_bytes <= 0 or sizes[name] <= _KEPT_BYTES:
            break
        # The marker grows with every field it names.
        excess_bytes += len(name) + len(MARKER) + 32
        keep = max(_KEPT_BYTES, sizes[name] - excess_bytes)
        fields[name] = _shortened(fields[name], keep)
        marker[name] = sizes[name]
        excess_bytes -= sizes[name] - len(_encode(fields[name]))
    return _encode(fields | {MARKER: marker})


def _shortened(value: Any, keep_bytes: int) -> Any:  # noqa: ANN401  a field is a string, an array of bytes or of both
    """Return the start of a field in at most *keep_bytes* of JSON."""
    if not isinstance(value, str | list):
        return None
    # Escapes and array commas make JSON longer than what it stands for, so the share that fits is guessed and halved.
    length = min(len(value), keep_bytes - 2)
    while length and len(_encode(value[:length])) > keep_bytes:
        length //= 2
    return value[:length]


def _stub(line: Line) -> bytes:
    start = line.content[:HEAD_BYTES].decode(errors="replace")
    return _encode({"__CURSOR": line.cursor, "MESSAGE": start, MARKER: {_WHOLE_LINE: line.size_bytes}})


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")

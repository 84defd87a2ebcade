"""Cuts what `journalctl -o json` writes into entries of bounded size.  Decides; reads nothing itself."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Only a field's own name is preceded by a brace or a comma: inside a string every quote has a backslash before it.
_CURSOR = re.compile(rb'[{,]"__CURSOR":"([^"\\]+)"')
_CURSOR_FIELD_BYTES = 1024
"""A cursor is about 120 bytes; so much is kept of a skipped part to find one that lies across two reads."""

HEAD_BYTES = 512
"""What is kept of a line too long to be read whole."""


@dataclass(frozen=True, slots=True)
class Line:
    """One entry as journalctl wrote it.

    Attributes:
        content: the JSON, or its first `HEAD_BYTES` if it was too long.
        cursor: the entry's place in the journal; None if this is no entry.
        size_bytes: of the whole line.
    """

    content: bytes
    cursor: str | None
    size_bytes: int

    @property
    def is_whole(self) -> bool:
        """Whether `content` is all of it."""
        return len(self.content) == self.size_bytes


class LineCutter:
    """Turns pieces of a byte stream into lines, and never keeps more than *limit_bytes* and one piece.

    A line beyond the limit is skipped as it comes, but for its start and its cursor: a core dump in the journal may be
    larger than this host's memory, and what follows it must still be found.
    """

    def __init__(self, limit_bytes: int) -> None:
        assert limit_bytes >= HEAD_BYTES, f"{limit_bytes} bytes are less than a head of {HEAD_BYTES}"
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._skipped: _Skipped | None = None

    def feed(self, piece: bytes) -> Iterator[Line]:
        """Yield every line that *piece* completes."""
        *ends, rest = piece.split(b"\n")
        for end in ends:
            line = self._complete(end)
            if line.size_bytes:
                yield line
        self._keep(rest)

    def _complete(self, end: bytes) -> Line:
        if self._skipped is None and len(self._buffer) + len(end) <= self._limit_bytes:
            content = bytes(self._buffer) + end
            self._buffer.clear()
            return Line(content, _cursor_in(content), len(content))
        self._keep(end, is_too_long=True)
        skipped, self._skipped = self._skipped, None
        assert skipped is not None, "a line beyond the limit is skipped"
        return Line(skipped.head, skipped.cursor, skipped.size_bytes)

    def _keep(self, piece: bytes, *, is_too_long: bool = False) -> None:
        """Keep an incomplete line's next piece, or as much as is needed of it."""
        if self._skipped is None:
            self._buffer += piece
            if not is_too_long and len(self._buffer) <= self._limit_bytes:
                return
            self._skipped = _Skipped(bytes(self._buffer[:HEAD_BYTES]))
            piece = bytes(self._buffer)
            self._buffer.clear()
        self._skipped.add(piece)


@dataclass(slots=True)
class _Skipped:
    """A line that is being skipped: its start, its cursor as soon as that was seen, its size so far."""

    head: bytes
    cursor: str | None = None
    size_bytes: int = 0
    _end: bytes = b""

    def add(self, piece: bytes) -> None:
        self.size_bytes += len(piece)
        if self.cursor is None:
            seen = self._end + piece
            self.cursor = _cursor_in(seen)
            self._end = seen[-_CURSOR_FIELD_BYTES:]


def _cursor_in(content: bytes) -> str | None:
    found = _CURSOR.search(content)
    return found[1].decode() if found else None

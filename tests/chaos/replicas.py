"""The batches that a stopped broker has on its disk, read by the format's own description and nothing of pylog's.

batch => base_offset: int64, length: int32, leader_epoch: int32, magic: int8, crc: uint32, attributes: int16,
         last_offset_delta: int32, ...       (big-endian; length counts what follows it)
"""

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

_HEAD = struct.Struct(">qiibIhi")
_BEFORE_LENGTH = 12
_STARTS = "log-start-offset-checkpoint"


def batches(directory: Path, begin: int, end: int) -> dict[int, str]:
    """Return the batches of one partition that lie wholly in [*begin*, *end*): base offset to a digest of the bytes."""
    found = {}
    for base, last, raw in _all_batches(directory):
        if base >= begin and last < end:
            found[base] = f"{len(raw)} bytes, {zlib.crc32(raw):08x}"
    return found


def log_start(data_dir: Path, topic: str, number: int) -> int:
    """Return where the log of one partition begins: at its first segment, or later if the checkpoint says so.

    checkpoint => version, count, {topic " " partition " " offset}, each in a line
    """
    segments = sorted((data_dir / f"{topic}-{number}").glob("*.log"))
    starts = [int(segment.stem) for segment in segments[:1]]
    path = data_dir / _STARTS
    if path.exists():
        line = re.search(rf"^{re.escape(topic)} {number} (\d+)$", path.read_text(), re.MULTILINE)
        starts += [int(line[1])] if line else []
    return max(starts, default=0)


def _all_batches(directory: Path) -> Iterator[tuple[int, int, bytes]]:
    for segment in sorted(directory.glob("*.log")):
        content = segment.read_bytes()
        position = 0
        while position + _HEAD.size <= len(content):
            base, length, _epoch, _magic, _crc, _attributes, delta = _HEAD.unpack_from(content, position)
            size = _BEFORE_LENGTH + length
            yield base, base + delta, content[position : position + size]
            position += size

"""Record batches by hand, from the format's description and nothing else.

batch => base_offset: int64, length: int32 (of what follows), partition_leader_epoch: int32, magic: int8 (2),
         crc: uint32 (CRC-32C of what follows it), attributes: int16, last_offset_delta: int32, base_timestamp: int64,
         max_timestamp: int64, producer_id: int64, producer_epoch: int16, base_sequence: int32, count: int32, records
record => length: varint, attributes: int8, timestamp_delta: varint, offset_delta: varint, key: varint + bytes,
          value: varint + bytes, headers: varint count + (varint + bytes, varint + bytes)

Deliberately not pylog's codec: the tests of bad input need batches it would refuse to build, and an oracle that does
not share its mistakes.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import crc32c

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_MS = 1_500_000_000_000


def varint(value: int) -> bytes:
    """Return *value* zigzagged, seven bits a byte, low ones first."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def record(offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """Return one record without headers."""
    body = b"\x00" + varint(0) + varint(offset_delta) + _nullable(key) + _nullable(value) + varint(0)
    return varint(len(body)) + body


def _nullable(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch whose every header field may be set to a lie; None means the truth."""

    values: Sequence[bytes | None] = (b"value",)
    base_offset: int = 0
    length: int | None = None
    magic: int = 2
    crc: int | None = None
    attributes: int = 0
    last_offset_delta: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int | None = None
    timestamp_ms: int = TIMESTAMP_MS
    records: bytes | None = field(default=None, repr=False)

    def encode(self) -> bytes:
        """Return the batch's bytes."""
        records = self.records
        if records is None:
            records = b"".join(record(number, None, value) for number, value in enumerate(self.values))
        count = len(self.values) if self.count is None else self.count
        delta = len(self.values) - 1 if self.last_offset_delta is None else self.last_offset_delta
        length = _HEADER.size - 12 + len(records) if self.length is None else self.length
        packed = bytearray(
            _HEADER.pack(
                self.base_offset,
                length,
                -1,
                self.magic,
                0,
                self.attributes,
                delta,
                self.timestamp_ms,
                self.timestamp_ms,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                count,
            )
            + records
        )
        crc = crc32c.crc32c(memoryview(packed)[21:]) if self.crc is None else self.crc
        struct.pack_into(">I", packed, 17, crc)
        return bytes(packed)


def compressions(segment: bytes) -> list[str]:
    """Return the codec of every batch in a segment file, in order.

    Raises:
        AssertionError: a batch's magic or CRC is wrong, or the file ends inside a batch.
    """
    found, position = [], 0
    while position < len(segment):
        _, length, _, magic, crc, attributes = _HEADER.unpack_from(segment, position)[:6]
        end = position + 12 + length
        assert end <= len(segment), f"the batch at {position} ends at {end}, the file at {len(segment)}"
        assert magic == 2, f"magic {magic} at {position}"
        assert crc == crc32c.crc32c(segment[position + 21 : end]), f"CRC of the batch at {position}"
        found.append(_CODECS[attributes & 7])
        position = end
    return found

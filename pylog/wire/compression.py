"""The four codecs of a record batch, with decompression that stops at a cap.

snappy comes in two shapes: a raw block (librdkafka), or Java's framing of
`header: 16 bytes, (size: int32, raw block)*` (Java, kafka-python).  Both are read; the framed one is written.
lz4 is a frame of independent blocks: `header: 7 bytes, (size: uint32 little-endian, block)*, zero: uint32`.
"""

import struct
from collections.abc import Callable
from typing import Any

import cramjam

from pylog.errors import CorruptRecords

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Name, as `compression.type` has it, -> number in a batch's attributes."""

NAMES = {number: name for name, number in CODECS.items()}

MAX_DECOMPRESSED_BYTES = 128 << 20
"""A batch that unpacks to more is refused: larger than any sane `max.message.bytes`, small enough not to hurt."""

_MOST_RATIOS = {"none": 1, "gzip": 1032, "snappy": 22, "lz4": 255, "zstd": 43_700}
"""What a byte can unpack to at most, rounded up.  Deflate: 258 bytes in two bits; snappy: 64 in 3 bytes; lz4: 255 a
byte; zstd: a block of 128 KiB in 3 bytes and one that it repeats."""

_SNAPPY_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK_BYTES = 32 * 1024
_INT32 = struct.Struct(">i")

# Magic; version 1 with independent blocks; blocks of 64 KiB; checksum of these two bytes.  The blocks of the library's
# own frames depend on each other, which Java's reader refuses.
_LZ4_HEADER = bytes.fromhex("04224d18 60 40 82")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_SIZE = struct.Struct("<I")
_LZ4_STORED = 1 << 31
_LZ4_END = bytes(4)


def compress(codec: int, data: bytes | bytearray | memoryview) -> bytes:
    """Return *data* compressed with the codec numbered *codec*, 0 to 4."""
    if codec == 0:
        return bytes(data)
    if codec == CODECS["snappy"]:
        return _compress_snappy(memoryview(data))
    if codec == CODECS["lz4"]:
        return _compress_lz4(memoryview(data))
    return bytes(_module(codec).compress(data))


def decompress(codec: int, data: memoryview | bytes, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> memoryview:
    """Return *data* unpacked, a view of the input when nothing was packed.

    Raises:
        CorruptRecords: the bytes are not what the codec writes, or unpack to more than *max_bytes*.
    """
    if codec == 0:
        return memoryview(data)
    try:
        if codec == CODECS["snappy"]:
            return _decompress_snappy(memoryview(data), max_bytes)
        return _grow(_module(codec).decompress_into, memoryview(data), len(data) * 4, max_bytes)
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"{NAMES[codec]} data of {len(data)} bytes does not unpack: {error}") from error


def most_unpacked_bytes(codec: int, packed_bytes: int) -> int:
    """Return how many bytes *packed_bytes* of a codec, known or not, can unpack to at most."""
    return min(packed_bytes * _MOST_RATIOS.get(NAMES.get(codec, ""), 1), max(MAX_DECOMPRESSED_BYTES, packed_bytes))


def _module(codec: int) -> Any:  # noqa: ANN401  cramjam has no types
    if codec not in NAMES:
        raise CorruptRecords(f"compression codec {codec} is unknown; 0 to 4 are")
    return getattr(cramjam, NAMES[codec])


def _grow(unpack_into: Callable[[Any, bytearray], int], data: memoryview, guess: int, max_bytes: int) -> memoryview:
    # The formats do not say reliably how much comes out, so the buffer grows until it fits.  Four tries reach 256
    # times the first guess, and memory never exceeds the cap whatever the input claims.
    size = min(max(guess, 64 * 1024), max_bytes)
    while True:
        out = bytearray(size)
        try:
            return memoryview(out)[: unpack_into(data, out)]
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if size == max_bytes:
                raise CorruptRecords(f"a batch of {len(data)} bytes unpacks to more than {max_bytes}") from error
            del out  # before the next one is made
            size = min(size * 4, max_bytes)


def _compress_snappy(data: memoryview) -> bytes:
    out = bytearray(_SNAPPY_HEADER)
    for start in range(0, len(data), _SNAPPY_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(data[start : start + _SNAPPY_BLOCK_BYTES])
        out += _INT32.pack(len(block))
        out += bytes(block)
    return bytes(out)


def _compress_lz4(data: memoryview) -> bytes:
    out = bytearray(_LZ4_HEADER)
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += _LZ4_SIZE.pack(len(block)) + block
        else:
            out += _LZ4_SIZE.pack(len(plain) | _LZ4_STORED)
            out += plain
    return bytes(out + _LZ4_END)


def _decompress_snappy(data: memoryview, max_bytes: int) -> memoryview:
    if bytes(data[:8]) != _SNAPPY_HEADER[:8]:
        return _snappy_block(data, max_bytes)
    out, position = bytearray(), len(_SNAPPY_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise CorruptRecords("snappy data ends inside a block's size")
        (size,) = _INT32.unpack_from(data, position)
        position += 4
        if not 0 <= size <= len(data) - position:
            raise CorruptRecords(f"snappy block claims {size} bytes, {len(data) - position} are left")
        out += _snappy_block(data[position : position + size], max_bytes - len(out))
        position += size
    return memoryview(out)


def _snappy_block(block: memoryview, max_bytes: int) -> memoryview:
    claimed = cramjam.snappy.decompress_raw_len(block)
    # A raw block says its size up front; snappy packs at most 64 bytes into 3, so a larger claim is a lie.
    if claimed > max_bytes or claimed > len(block) * 32 + 64:
        raise CorruptRecords(f"snappy block of {len(block)} bytes claims {claimed}, the cap is {max_bytes}")
    out = bytearray(claimed)
    return memoryview(out)[: cramjam.snappy.decompress_raw_into(block, out)]

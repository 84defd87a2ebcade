"""What the records of the brokers' own topics have in common.

key, value => version: int16, rest
header     => `TOPIC_IDS_HEADER`: (name_length: int16, name, topic_id: 16 bytes)*      sorted by name; Kafka ignores it
"""

import struct
from collections.abc import Iterable, Mapping
from uuid import UUID

from pylog.errors import ProtocolError
from pylog.wire.api import codec

TOPIC_IDS_HEADER = "pylog.topic_ids"
"""Name of the header with the ids of the topics that a record is about, as its writer knew them."""

TOPIC_ID_BYTES = 16

_VERSION = struct.Struct(">h")
_LENGTH = struct.Struct(">h")


def encode_versioned(version: int, message: object, *, layout: int | None = None, is_flexible: bool = False) -> bytes:
    """Return *message* behind *version*; *layout* is the version of its fields, if that is another one."""
    out = bytearray(_VERSION.pack(version))
    codec.encode(message, version if layout is None else layout, is_flexible, out)
    return bytes(out)


def split_version(raw: bytes) -> tuple[int, memoryview]:
    """Return the version and what follows it.

    Raises:
        ProtocolError: there is none.
    """
    if len(raw) < _VERSION.size:
        raise ProtocolError(f"{len(raw)} bytes where a version must be")
    return _VERSION.unpack_from(raw)[0], memoryview(raw)[_VERSION.size :]


def topic_ids_header(topic_ids: Mapping[str, UUID]) -> tuple[str, bytes]:
    """Return the header with the ids of topics."""
    out = bytearray()
    for name, topic_id in sorted(topic_ids.items()):
        encoded = name.encode()
        out += _LENGTH.pack(len(encoded)) + encoded + topic_id.bytes
    return TOPIC_IDS_HEADER, bytes(out)


def find_topic_ids(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, UUID] | None:
    """Return the ids of topics by name that a record has among its headers; None without that header.

    Raises:
        ProtocolError: the header contradicts itself.
    """
    found = None
    for name, content in headers:
        if name == TOPIC_IDS_HEADER:
            found = _decode_topic_ids(content or b"")
    return found


def _decode_topic_ids(raw: bytes) -> dict[str, UUID]:
    found, position = {}, 0
    try:
        while position < len(raw):
            [length] = _LENGTH.unpack_from(raw, position)
            if length < 0:
                raise ValueError(f"name of {length} bytes")
            start = position + _LENGTH.size
            end = start + length
            position = end + TOPIC_ID_BYTES
            found[raw[start:end].decode()] = UUID(bytes=raw[end:position])
    except (struct.error, ValueError) as error:
        raise ProtocolError(f"topic ids of {len(raw)} bytes beside a record: {error}") from error
    return found

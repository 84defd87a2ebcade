"""Variable-length integers, and bounded reading of what a peer claims.

varint   => 7 bits a byte, least significant group first, high bit set on all but the last
zigzag n => (n << 1) ^ (n >> 63), so that small negative numbers stay short
"""

from pylog.errors import ProtocolError

MAX_VARINT_BYTES = 10  # 64 bits in groups of 7

MAX_STRING_BYTES = 32767
"""The longest string the protocol has, also where its length is a varint."""

MAX_ELEMENTS = 1 << 16
"""Numbers, strings, byte fields and structs that one request may hold in arrays.  A few bytes on the wire become a hundred in
memory, and tens of microseconds of the event loop where each has to be refused by name: a frame of 100 MB must not be
taken at its word.  A cluster has fewer partitions than this."""


def read_unsigned_varint(view: memoryview | bytes, position: int) -> tuple[int, int]:
    """Return (number, position after it).

    Raises:
        ProtocolError: the bytes end inside the number, or it is longer than 64 bits need.
    """
    result = shift = 0
    end = min(len(view), position + MAX_VARINT_BYTES)
    for at in range(position, end):
        byte = view[at]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at + 1
        shift += 7
    raise ProtocolError(f"varint at byte {position} does not end within {end - position} bytes")


def read_varint(view: memoryview | bytes, position: int) -> tuple[int, int]:
    """Return (signed number, position after it); see `read_unsigned_varint`."""
    if position < len(view) and (byte := view[position]) < 0x80:  # as most do; half the time of the general way
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw, position = read_unsigned_varint(view, position)
    return (raw >> 1) ^ -(raw & 1), position


def write_unsigned_varint(out: bytearray, number: int) -> None:
    """Append the non-negative *number* to *out*."""
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)


def write_varint(out: bytearray, number: int) -> None:
    """Append the signed 64-bit *number* to *out* in zigzag form."""
    if -64 <= number < 64:  # as most are
        out.append((number << 1) ^ (number >> 63))
        return
    write_unsigned_varint(out, ((number << 1) ^ (number >> 63)) & 0xFFFF_FFFF_FFFF_FFFF)


def take(view: memoryview, position: int, size: int) -> memoryview:
    """Return *size* bytes of *view* from *position*.

    Raises:
        ProtocolError: so many are not there; nothing is allocated by claim.
    """
    if size < 0 or size > len(view) - position:
        raise ProtocolError(f"a field at byte {position} claims {size} bytes, {len(view) - position} are left")
    return view[position : position + size]


def check_count(count: int, bytes_left: int, element_bytes: int = 1) -> None:
    """Check an array's count before its elements, of *element_bytes* at least, are read: a larger one is a lie."""
    if count < 0 or count * element_bytes > bytes_left:
        raise ProtocolError(f"an array claims {count} elements, {bytes_left} bytes are left")


def claim_elements(count: int, elements_left: int) -> int:
    """Return how many more elements a message may hold in its arrays after *count* of them.

    Raises:
        ProtocolError: not even these; see `MAX_ELEMENTS`.
    """
    if count > elements_left:
        raise ProtocolError(f"too many elements in one message: {count} where {elements_left} more may be")
    return elements_left - count


def skip_tags(view: memoryview, position: int) -> int:
    """Return the position after the tagged fields at *position*, none of which is read."""
    # Nearly every structure has none: one zero byte.
    return position + 1 if view[position] == 0 else read_tags(view, position)[1]


def read_tags(view: memoryview, position: int) -> tuple[dict[int, memoryview], int]:
    """Return (content by tag, position after the tagged fields at *position*)."""
    count, position = read_unsigned_varint(view, position)
    check_count(count, len(view) - position)
    tags: dict[int, memoryview] = {}
    for _ in range(count):
        tag, position = read_unsigned_varint(view, position)
        size, position = read_unsigned_varint(view, position)
        tags[tag] = take(view, position, size)
        position += size
    return tags, position

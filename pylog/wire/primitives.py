"""Variable-length integers, and bounded reading of what a peer claims.

varint   => 7 bits a byte, least significant group first, high bit set on all but the last
zigzag n => (n << 1) ^ (n >> 63), so that small negative numbers stay short
"""

from pylog.errors import ProtocolError, TooManyElements

MAX_VARINT_BYTES = 10  # 64 bits in groups of 7

MAX_STRING_BYTES = 32767
"""The longest string the protocol has, also where its length is a varint."""

MAX_ELEMENTS = 1 << 16
"""Numbers, strings, byte fields and structs that one request may hold in arrays.  A few bytes on the wire become a
hundred in memory, and tens of microseconds of the event loop where each has to be refused by name: a frame of 100 MB
must not be taken at its word.  A cluster has fewer partitions than this."""

MAX_TAGS = 64
"""Tagged fields in one section.  No message has more than a few; a client may send some that are newer than this
broker, and each costs a microsecond of the event loop, also before the login."""

_LEAST_TAG_BYTES = 2
"""Tag and size."""


def read_unsigned_varint(view: memoryview | bytes, position: int) -> tuple[int, int]:
    """Return (number, position after it).

    Raises:
        ProtocolError: the bytes end inside the number, or it is longer than 64 bits need.
    """
    if position < len(view) and (byte := view[position]) < 0x80:  # as most do
        return byte, position + 1
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
        TooManyElements: not even these; see `MAX_ELEMENTS`.
    """
    if count > elements_left:
        raise TooManyElements(f"too many elements in one message: {count} where {elements_left} more may be")
    return elements_left - count


def claim_tags(view: memoryview, position: int, elements_left: int) -> int:
    """Return how many more elements a message may hold after the tagged fields at *position*.

    The first one comes with its structure; every further one is an element.

    Raises:
        ProtocolError: not even these.
    """
    # The first byte is the count, or above 127: the count is refused, or written in more bytes than it needs.
    return claim_elements(max(view[position] - 1, 0), elements_left)


def skip_tags(view: memoryview, position: int) -> int:
    """Return the position after the tagged fields at *position*, none of which is kept."""
    # Nearly every structure has none: one zero byte.
    if view[position] == 0:
        return position + 1
    count, position = _count_tags(view, position)
    for _ in range(count):
        _, position = read_unsigned_varint(view, position)
        size, position = read_unsigned_varint(view, position)
        position += len(take(view, position, size))
    return position


def read_tags(view: memoryview, position: int) -> tuple[dict[int, memoryview], int]:
    """Return (content by tag, position after the tagged fields at *position*)."""
    count, position = _count_tags(view, position)
    tags: dict[int, memoryview] = {}
    for _ in range(count):
        tag, position = read_unsigned_varint(view, position)
        size, position = read_unsigned_varint(view, position)
        tags[tag] = take(view, position, size)
        position += size
    return tags, position


def check_tag_count(count: int) -> None:
    """Refuse more tagged fields than a section may have."""
    if count > MAX_TAGS:
        raise ProtocolError(f"{count} tagged fields in one section; {MAX_TAGS} are allowed")


def _count_tags(view: memoryview, position: int) -> tuple[int, int]:
    count, position = read_unsigned_varint(view, position)
    check_count(count, len(view) - position, _LEAST_TAG_BYTES)
    check_tag_count(count)
    return count, position

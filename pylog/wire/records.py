"""Record batches, format 2: the unit that is checksummed, compressed, sent and written.

batch  => base_offset: int64, batch_length: int32, partition_leader_epoch: int32, magic: int8 (2), crc: uint32,
          attributes: int16, last_offset_delta: int32, base_timestamp: int64, max_timestamp: int64,
          producer_id: int64, producer_epoch: int16, base_sequence: int32, record_count: int32, records
record => length: varint, attributes: int8, timestamp_delta: varlong, offset_delta: varint,
          key_length: varint, key, value_length: varint, value, header_count: varint, header*
header => key_length: varint, key, value_length: varint, value      (all varints zigzag; length -1 is null)

`batch_length` counts the bytes after itself.  The CRC-32C covers attributes to the end, so base offset and leader
epoch can be patched in place.

Source: Kafka protocol guide, "Record batch"; KIP-98.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from crc32c import crc32c

from pylog.errors import CorruptRecords, InvalidRecords, ProtocolError, RecordError
from pylog.wire import compression
from pylog.wire.primitives import read_varint, write_varint

HEADER = struct.Struct(">qiibIhiqqqhii")
MAX_INT64 = (1 << 63) - 1
_MIN_INT64 = -(1 << 63)
HEADER_BYTES = HEADER.size  # 61
LENGTH_OVERHEAD = 12
"""Bytes before and including `batch_length`, which it does not count."""

CRC_START = 21
"""First byte under the CRC: the attributes."""

MAGIC = 2
_UNDER_CRC = struct.Struct(">hiqqqhii")
_PATCH = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")

COMPRESSION_MASK = 0x07
_RECORD_BYTES = 7
"""The shortest record: length, attributes, two deltas, no key, no value, no headers, a byte each."""

LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40


@dataclass(slots=True)
class BatchHeader:
    """The 61 bytes before the records; field names are the protocol's."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record, kept by compaction even when that record is gone."""
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> int:
        """Codec number, see `pylog.wire.compression.CODECS`."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether `max_timestamp` is the broker's clock and stands for every record."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a marker, which consumers skip."""
        return bool(self.attributes & CONTROL)


@dataclass(slots=True)
class Record:
    """One decoded record; timestamp in milliseconds since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


def parse_header(view: memoryview | bytes, position: int = 0) -> BatchHeader:
    """Return the header at *position*; nothing is checked but that 61 bytes are there.

    Raises:
        CorruptRecords: fewer bytes are left.
    """
    if len(view) - position < HEADER_BYTES:
        raise CorruptRecords(f"{len(view) - position} bytes left at {position}, a batch header has {HEADER_BYTES}")
    return BatchHeader(*HEADER.unpack_from(view, position))


def check_batch(view: memoryview, position: int = 0) -> BatchHeader:
    """Return the header of the batch at *position* after checking size, magic, CRC and count.

    Records inside are not looked at.  Bytes after the batch are allowed.

    Raises:
        CorruptRecords: the bytes contradict themselves.
        InvalidRecords: the count is not last_offset_delta + 1, or not positive.
    """
    left = len(view) - position
    if left < HEADER_BYTES:
        raise CorruptRecords(f"{left} bytes left at {position}, a batch header has {HEADER_BYTES}")
    header = BatchHeader(*HEADER.unpack_from(view, position))
    size = header.batch_length + LENGTH_OVERHEAD
    if size < HEADER_BYTES or size > left:
        raise CorruptRecords(f"batch at {position} claims {size} bytes, {len(view) - position} are there")
    if header.magic != MAGIC:
        raise CorruptRecords(f"batch at {position} has magic {header.magic}; only {MAGIC} is stored")
    if crc32c(view[position + CRC_START : position + size]) != header.crc:
        raise CorruptRecords(f"batch at {position} of {size} bytes fails its CRC")
    if header.record_count != header.last_offset_delta + 1 or header.record_count <= 0:
        # A compacted batch may hold fewer records than its offsets span; a client's may not.  Recovery calls
        # check_stored_batch instead.
        raise InvalidRecords(f"batch counts {header.record_count} records over {header.last_offset_delta + 1} offsets")
    if header.record_count * _RECORD_BYTES > size - HEADER_BYTES:
        _check_room(header, size - HEADER_BYTES)
    return header


def _check_room(header: BatchHeader, packed_bytes: int) -> None:
    """Refuse a batch whose records do not fit into it, whatever they are.

    A count is believed where records are not unpacked: a batch of 61 bytes that claims 2^31 - 1 of them would use up
    the offsets of a whole segment, and each would take a file of its own.

    Raises:
        InvalidRecords: the codec cannot have packed so many.
    """
    room = compression.most_unpacked_bytes(header.compression, packed_bytes)
    if header.record_count * _RECORD_BYTES > room:
        raise InvalidRecords(f"batch counts {header.record_count} records in {packed_bytes} bytes")


def check_stored_batch(view: memoryview, position: int = 0) -> BatchHeader:
    """Like `check_batch`, for bytes from a log: compaction may have thinned the records or left none."""
    try:
        return check_batch(view, position)
    except InvalidRecords:
        header = parse_header(view, position)
        if 0 <= header.record_count <= header.last_offset_delta + 1:
            return header
        raise


def patch(view: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and partition leader epoch into the batch at the start of *view*; the CRC stays valid."""
    _PATCH.pack_into(view, 0, base_offset)
    _EPOCH.pack_into(view, LENGTH_OVERHEAD, leader_epoch)


def patch_crc(view: memoryview, crc: int) -> None:
    """Write the CRC of what lies under it into the batch at the start of *view*."""
    _CRC.pack_into(view, CRC_START - _CRC.size, crc)


def iter_batches(view: memoryview | bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of every whole batch; a partial tail, which a fetch may end with, is dropped.

    Raises:
        CorruptRecords: a batch claims a size that cannot be.
    """
    position, end = 0, len(view)
    while end - position >= HEADER_BYTES:
        header = parse_header(view, position)
        if header.batch_length < HEADER_BYTES - LENGTH_OVERHEAD:
            raise CorruptRecords(f"batch at {position} claims {header.size_bytes} bytes")
        if header.size_bytes > end - position:
            return
        yield position, header
        position += header.size_bytes


def encode_batch(
    records: Iterable[Record],
    *,
    compression_type: str = "none",
    base_offset: int = 0,
    last_offset: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    leader_epoch: int = -1,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Return one batch of *records*, whose `offset` counts from *base_offset*.

    Last offset and timestamps follow from the records; compaction, which leaves fewer or none, says what they were.
    """
    records = list(records)
    assert records or None not in (last_offset, base_timestamp, max_timestamp), "nothing says what an empty batch spans"
    codec = compression.CODECS[compression_type]
    if last_offset is None:
        last_offset = records[-1].offset
    if base_timestamp is None:
        base_timestamp = records[0].timestamp
    if max_timestamp is None:
        max_timestamp = max(record.timestamp for record in records)
    body = bytearray()
    for record in records:
        _write_record(body, record, base_offset, base_timestamp)
    packed = compression.compress(codec, body)
    under_crc = _UNDER_CRC.pack(
        attributes | codec,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    crc = crc32c(packed, crc32c(under_crc))
    front = struct.pack(">qiibI", base_offset, HEADER_BYTES - LENGTH_OVERHEAD + len(packed), leader_epoch, MAGIC, crc)
    return front + under_crc + packed


def decode_records(
    view: memoryview | bytes,
    header: BatchHeader,
    position: int = 0,
    max_bytes: int = compression.MAX_DECOMPRESSED_BYTES,
) -> list[Record]:
    """Return the records of the batch at *position*; the CRC is not checked again.

    Raises:
        CorruptRecords: the records do not unpack, or their sizes and count contradict each other.
    """
    data = compression.decompress(
        header.compression, memoryview(view)[position + HEADER_BYTES : position + header.size_bytes], max_bytes
    )
    return list(read_records(data, header))


def read_records(data: memoryview, header: BatchHeader) -> Iterator[Record]:
    """Yield the records that *data*, unpacked, holds one after the other.

    Raises:
        CorruptRecords: their sizes and count contradict each other.
    """
    number = at = 0
    try:
        while number < header.record_count:
            record, at = _read_record(data, at, header)
            yield record
            number += 1
    except (ProtocolError, IndexError, UnicodeDecodeError) as error:
        raise CorruptRecords(f"record {number} of {header.record_count}: {error}") from error
    if at != len(data):
        raise CorruptRecords(f"{len(data) - at} bytes follow the last of {header.record_count} records")


MAX_CHECKED = 1 << 20
"""Records and headers that `check_records` looks at: a second of work.  An honest batch has far fewer."""


def check_records(
    data: memoryview, header: BatchHeader, *, are_keys_wanted: bool = False, most: int = MAX_CHECKED
) -> int:
    """Refuse what `read_records` would, offsets out of turn, and records without a wanted key; makes no records.

    Args:
        data: the records, unpacked.
        header: of their batch.
        are_keys_wanted: whether each needs a key.
        most: records and headers that may be looked at.

    Returns:
        How many there were.

    Raises:
        CorruptRecords: their sizes and count contradict each other.
        InvalidRecords: an offset is not the next one, or keys are missing; names the records to blame.
    """
    raw = bytes(data)  # its bytes are read twice as fast as those of a view
    number = at = header_count = 0
    if header.record_count > most:
        raise InvalidRecords(f"batch of {header.record_count} records; {most} may be checked in one request")
    keyless: list[RecordError] = []
    try:
        while number < header.record_count:
            length, at = read_varint(raw, at)
            end = at + length
            if length < 0 or end > len(raw):
                raise ProtocolError(f"claims {length} bytes, {len(raw) - at} are left")
            _, at = read_varint(raw, at + 1)  # behind the attributes
            delta, at = read_varint(raw, at)
            key_size, at = read_varint(raw, at)
            at = _behind(at, key_size, end)
            size, at = read_varint(raw, at)
            at = _behind(at, size, end)
            count, at = read_varint(raw, at)
            if count:
                header_count += max(count, 0)
                if header.record_count + header_count > most:
                    message = f"batch of {header.record_count} records with {header_count} headers or more"
                    raise InvalidRecords(f"{message}; {most} of both may be checked in one request")
                at = _behind_headers(raw, at, count, end)
            if at != end:
                raise ProtocolError(f"is {at - end:+d} bytes off its length")
            if delta != number:
                message = f"record {number} has offset delta {delta}"
                raise InvalidRecords(message, [RecordError(number, message)])
            if key_size < 0 and are_keys_wanted:
                keyless.append(RecordError(number, "no key; the topic is compacted by keys"))
            number += 1
    except (ProtocolError, IndexError, UnicodeDecodeError) as error:
        raise CorruptRecords(f"record {number} of {header.record_count}: {error}") from error
    if at != len(raw):
        raise CorruptRecords(f"{len(raw) - at} bytes follow the last of {header.record_count} records")
    if keyless:
        first, reason = keyless[0]
        more = f" (and {len(keyless) - 1} more records)" if len(keyless) > 1 else ""
        raise InvalidRecords(f"record {first} has {reason}{more}", keyless)
    return number + header_count


def _behind(at: int, size: int, end: int) -> int:
    if size > end - at:
        raise ProtocolError(f"claims {size} bytes, {end - at} are left")
    return at + size if size > 0 else at


def _behind_headers(raw: bytes, at: int, count: int, end: int) -> int:
    if not 0 <= count <= end - at:  # each header takes at least two bytes
        raise ProtocolError(f"claims {count} headers in {end - at} bytes")
    for _ in range(count):
        size, at = read_varint(raw, at)
        after = _behind(at, size, end)
        raw[at:after].decode()
        size, at = read_varint(raw, after)
        at = _behind(at, size, end)
    return at


def _write_record(out: bytearray, record: Record, base_offset: int, base_timestamp: int) -> None:
    body = bytearray(b"\x00")
    write_varint(body, record.timestamp - base_timestamp)
    write_varint(body, record.offset - base_offset)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, value)
    write_varint(out, len(body))
    out += body


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    write_varint(out, -1 if value is None else len(value))
    out += value or b""


def _read_record(data: memoryview, at: int, header: BatchHeader) -> tuple[Record, int]:
    length, at = read_varint(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise ProtocolError(f"claims {length} bytes, {len(data) - at} are left")
    at += 1  # attributes, unused
    timestamp_delta, at = read_varint(data, at)
    offset_delta, at = read_varint(data, at)
    key, at = _read_bytes(data, at, end)
    value, at = _read_bytes(data, at, end)
    count, at = read_varint(data, at)
    if not 0 <= count <= end - at:  # each header takes at least two bytes
        raise ProtocolError(f"claims {count} headers in {end - at} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_bytes(data, at, end)
        content, at = _read_bytes(data, at, end)
        headers.append(((name or b"").decode(), content))
    if at != end:
        raise ProtocolError(f"is {at - end:+d} bytes off its length")
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    if not _MIN_INT64 <= timestamp <= MAX_INT64:
        timestamp = MAX_INT64 if timestamp > 0 else _MIN_INT64  # a batch that gives it cannot be told so again
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def _read_bytes(data: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length < 0:
        return None, at
    if length > end - at:
        raise ProtocolError(f"claims {length} bytes, {end - at} are left")
    return bytes(data[at : at + length]), at + length

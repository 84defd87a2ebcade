"""Produce, API key 0: the write half of the hot path, with records left where they arrived.

request  => transactional_id: nullable string, acks: int16, timeout_ms: int32,
            topics: [name: string, partitions: [index: int32, records: nullable bytes]]
response => responses: [name, partitions: [index: int32, error_code: int16, base_offset: int64,
            log_append_time_ms: int64, log_start_offset: int64 (v5+),
            record_errors: [batch_index: int32, message: nullable string] (v8+),
            error_message: nullable string (v8+)]], throttle_time_ms: int32

Versions 3 to 12 are served; from 9 on lengths are compact (unsigned varint of length + 1) and tagged fields follow
every structure.  Version 10 allows tagged fields that name a new leader, 11 errors of transactions, and 12 is of
transactions that have an epoch each: their layout is that of 9.  Written by hand because a library's objects cost ten
times this and copy the records.

Source: Kafka protocol guide; ProduceRequest.json and ProduceResponse.json.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from pylog.errors import ErrorCode, ProtocolError, RecordError
from pylog.wire.primitives import (
    MAX_ELEMENTS,
    MAX_STRING_BYTES,
    check_count,
    claim_elements,
    claim_tags,
    read_unsigned_varint,
    skip_tags,
    take,
    write_unsigned_varint,
)

FIRST_FLEXIBLE_VERSION = 9

_ACKS_TIMEOUT = struct.Struct(">hi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INDEX_SIZE = struct.Struct(">ii")
_ONE_PART = struct.Struct(">hhiih")
_COUNT_INDEX_SIZE = struct.Struct(">iii")
_PARTITION = struct.Struct(">ihqq")
_INT64 = struct.Struct(">q")
_HEAD = struct.Struct(">ii")
_ONE_TOPIC = struct.Struct(">iiih")
_ROW_V3 = struct.Struct(">iihqqi")  # a count, one partition, the throttle time
_ROW_V5 = struct.Struct(">iihqqqi")
_ROW_V8 = struct.Struct(">iihqqq6si")
_TAIL_V8 = b"\x00\x00\x00\x00\xff\xff"  # no record errors, no message
_TAIL_V9 = b"\x01\x00\x00"  # the same, compact, and no tagged fields
_ONE_PART_V9 = struct.Struct(">BhiBB")  # no transaction, acks and timeout, a count of one, the length of the name + 1
_COUNT_INDEX_SIZE_V9 = struct.Struct(">BiB")  # a count of one, the partition, the first byte of the size
_ONE_TOPIC_V9 = struct.Struct(">iiBBB")
_ROW_V9 = struct.Struct(">Bihqqq4siB")  # a count, one partition and the tags of its topic, the throttle time, tags
_TOPIC_BYTES, _TOPIC_BYTES_V9, _PARTITION_BYTES_V9 = 6, 3, 6
"""The least that a topic and a partition take: lengths and counts, and tags in the flexible versions."""
_ONE = 2
"""A compact count of one."""
_MAX_VARINT_SHIFT = 28
"""Of the last group of a size: a request is smaller than 2 GiB."""


@dataclass(slots=True)
class ProduceRequest:
    """A parsed request.

    Attributes:
        acks: 0, 1 or -1.
        timeout_ms: how long replication may take when acks is -1.
        transactional_id: None unless the producer is transactional.
        parts: (topic, partition, records); records is a view of the receive buffer, or None.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    parts: list[tuple[str, int, memoryview | None]]


@dataclass(slots=True)
class ProduceResult:
    """The answer for one partition."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None


@dataclass(slots=True)
class RefusedBatch(ProduceResult):
    """The answer for a partition whose batch was refused.

    Attributes:
        record_errors: the records to blame; empty if it is the batch as a whole.
    """

    record_errors: Sequence[RecordError] = ()


def parse_request(frame: memoryview, version: int, position: int, most: int = MAX_ELEMENTS) -> ProduceRequest:
    """Return the request whose body starts at *position* of *frame*.

    Raises:
        TooManyElements: it has more than *most* topics and partitions.
        ProtocolError: a length or count does not fit into the bytes that are there.
    """
    try:
        if version >= FIRST_FLEXIBLE_VERSION:
            return _parse_one_flexible(frame, position) or _parse_flexible(frame, position, most)
        return _parse(frame, position, most)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"produce request of {len(frame)} bytes: {error}") from error


def encode_response(version: int, results: list[ProduceResult], throttle_time_ms: int = 0) -> bytes:
    """Return the body for *results*, which stand grouped by topic as in the request."""
    if version >= FIRST_FLEXIBLE_VERSION:
        return _encode_flexible(results, throttle_time_ms)
    topics = _by_topic(results)
    out = [_INT32.pack(len(topics))]
    for topic, rows in topics:
        name = topic.encode()
        out += (_INT16.pack(len(name)), name, _INT32.pack(len(rows)))
        for row in rows:
            out.append(_PARTITION.pack(row.partition, row.error, row.base_offset, row.log_append_time_ms))
            if version >= 5:
                out.append(_INT64.pack(row.log_start_offset))
            if version >= 8:
                out.append(_TAIL_V8 if row.message is None else _record_errors(row) + _string(row.message))
    out.append(_INT32.pack(throttle_time_ms))
    return b"".join(out)


def encode_reply(version: int, correlation_id: int, results: list[ProduceResult], throttle_time_ms: int = 0) -> bytes:
    """Return the whole reply frame, size and header included; see `encode_response`."""
    row = results[0] if len(results) == 1 else None
    if row is not None and row.message is None:
        # One partition, as nearly all are about: three steps instead of twelve.
        name = row.topic.encode()
        if version >= FIRST_FLEXIBLE_VERSION:
            if len(name) < 0x7F:
                return _encode_one_flexible(correlation_id, name, row, throttle_time_ms)
            return _encode_reply(version, correlation_id, results, throttle_time_ms)
        numbers = (1, row.partition, row.error, row.base_offset, row.log_append_time_ms)
        if version >= 8:
            rest = _ROW_V8.pack(*numbers, row.log_start_offset, _TAIL_V8, throttle_time_ms)
        elif version >= 5:
            rest = _ROW_V5.pack(*numbers, row.log_start_offset, throttle_time_ms)
        else:
            rest = _ROW_V3.pack(*numbers, throttle_time_ms)
        return _ONE_TOPIC.pack(10 + len(name) + len(rest), correlation_id, 1, len(name)) + name + rest
    return _encode_reply(version, correlation_id, results, throttle_time_ms)


def _encode_reply(version: int, correlation_id: int, results: list[ProduceResult], throttle_time_ms: int) -> bytes:
    body = encode_response(version, results, throttle_time_ms)
    tags = b"\x00" if version >= FIRST_FLEXIBLE_VERSION else b""
    return _HEAD.pack(4 + len(tags) + len(body), correlation_id) + tags + body


def refuse_old_version(body: memoryview, version: int) -> bytes | None:
    """Return the answer UNSUPPORTED_VERSION to a request of version 0 to 2, or None when acks 0 wants none.

    Raises:
        ProtocolError: the body is not such a request.
    """
    # Those versions lack the transactional id: a null one in front makes them readable.
    request = parse_request(memoryview(b"\xff\xff" + bytes(body)), 3, 0)
    if request.acks == 0:
        return None
    error = ErrorCode.UNSUPPORTED_VERSION
    answer = encode_response(3, [ProduceResult(topic, partition, error) for topic, partition, _ in request.parts])
    if version == 2:
        return answer
    topics = _by_topic([ProduceResult(topic, partition, error) for topic, partition, _ in request.parts])
    out = bytearray(_INT32.pack(len(topics)))
    for topic, rows in topics:
        out += _string(topic) + _INT32.pack(len(rows))
        for row in rows:
            out += _PARTITION.pack(row.partition, row.error, -1, -1)[:-8]  # no append time yet
    return bytes(out if version == 0 else out + _INT32.pack(0))


def _string(text: str) -> bytes:
    raw = text.encode()[:32767]
    return _INT16.pack(len(raw)) + raw


def _record_errors(row: ProduceResult) -> bytes:
    found = row.record_errors if isinstance(row, RefusedBatch) else ()
    return _INT32.pack(len(found)) + b"".join(_INT32.pack(one.number) + _string(one.message) for one in found)


def _by_topic(results: list[ProduceResult]) -> list[tuple[str, list[ProduceResult]]]:
    if len(results) == 1:
        return [(results[0].topic, results)]
    topics: dict[str, list[ProduceResult]] = {}
    for row in results:
        topics.setdefault(row.topic, []).append(row)
    return list(topics.items())


def _parse(frame: memoryview, at: int, most: int = MAX_ELEMENTS) -> ProduceRequest:
    end = len(frame)
    if end - at >= _ONE_PART.size:
        # Nearly all requests: no transaction, one topic, one partition.
        length, acks, timeout_ms, topic_count, name_length = _ONE_PART.unpack_from(frame, at)
        if length == -1 and topic_count == 1 and 0 <= name_length <= end - at - 26:
            begin = at + _ONE_PART.size
            stop = begin + name_length
            count, partition, size = _COUNT_INDEX_SIZE.unpack_from(frame, stop)
            if count == 1 and size == end - stop - 12:
                topic = str(frame[begin:stop], "utf-8")
                return ProduceRequest(None, acks, timeout_ms, [(topic, partition, frame[stop + 12 :])])
    (length,) = _INT16.unpack_from(frame, at)
    at += 2
    transactional_id = None
    if length >= 0:
        transactional_id = str(take(frame, at, length), "utf-8")
        at += length
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, at)
    (topic_count,) = _INT32.unpack_from(frame, at + 6)
    at += 10
    check_count(topic_count, end - at, _TOPIC_BYTES)
    left = claim_elements(topic_count, most)
    parts: list[tuple[str, int, memoryview | None]] = []
    for _ in range(topic_count):
        (length,) = _INT16.unpack_from(frame, at)
        topic = str(take(frame, at + 2, length), "utf-8")
        at += 2 + length
        (count,) = _INT32.unpack_from(frame, at)
        at += 4
        check_count(count, end - at, _INDEX_SIZE.size)
        left = claim_elements(count, left)
        for _ in range(count):
            partition, size = _INDEX_SIZE.unpack_from(frame, at)
            at += 8
            if size < 0:
                parts.append((topic, partition, None))
                continue
            if size > end - at:
                raise ProtocolError(f"records of {topic}-{partition} claim {size} bytes, {end - at} are left")
            parts.append((topic, partition, frame[at : at + size]))
            at += size
    if at != end:
        raise ProtocolError(f"{end - at} bytes follow a produce request")
    return ProduceRequest(transactional_id, acks, timeout_ms, parts)


def _parse_one_flexible(frame: memoryview, at: int) -> ProduceRequest | None:
    """Return a request about one partition, as nearly all are, in three steps; None for any other."""
    end = len(frame)
    if end - at < _ONE_PART_V9.size:
        return None
    transaction, acks, timeout_ms, topics, length = _ONE_PART_V9.unpack_from(frame, at)
    begin = at + _ONE_PART_V9.size
    stop = begin + length - 1
    if transaction or topics != _ONE or not 0 < length < 0x80 or end - stop < _COUNT_INDEX_SIZE_V9.size:
        return None
    count, partition, byte = _COUNT_INDEX_SIZE_V9.unpack_from(frame, stop)
    at, size, shift = stop + _COUNT_INDEX_SIZE_V9.size, byte & 0x7F, 7
    while byte > 0x7F and shift <= _MAX_VARINT_SHIFT:
        byte = frame[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
    tail = at + size - 1
    if count != _ONE or byte > 0x7F or not size or end - tail != 3:
        return None  # more partitions, or no records
    if frame[tail] or frame[tail + 1] or frame[tail + 2]:
        return None  # tagged fields
    return ProduceRequest(None, acks, timeout_ms, [(str(frame[begin:stop], "utf-8"), partition, frame[at:tail])])


def _parse_flexible(frame: memoryview, at: int, most: int = MAX_ELEMENTS) -> ProduceRequest:
    end = len(frame)
    transactional_id = None
    length, at = read_unsigned_varint(frame, at)
    if length:
        transactional_id = str(take(frame, at, length - 1), "utf-8")
        at += length - 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, at)
    topic_count, at = read_unsigned_varint(frame, at + 6)
    check_count(topic_count - 1, end - at, _TOPIC_BYTES_V9)
    left = claim_elements(topic_count - 1, most)
    parts: list[tuple[str, int, memoryview | None]] = []
    for _ in range(topic_count - 1):
        length, at = read_unsigned_varint(frame, at)
        if length > MAX_STRING_BYTES:
            raise ProtocolError(f"topic name of {length - 1} bytes")
        topic = str(take(frame, at, length - 1), "utf-8")
        count, at = read_unsigned_varint(frame, at + length - 1)
        check_count(count - 1, end - at, _PARTITION_BYTES_V9)
        left = claim_elements(count - 1, left)
        for _ in range(count - 1):
            (partition,) = _INT32.unpack_from(frame, at)
            size, at = read_unsigned_varint(frame, at + 4)
            if not size:
                parts.append((topic, partition, None))
            else:
                parts.append((topic, partition, take(frame, at, size - 1)))
                at += size - 1
            left = claim_tags(frame, at, left)
            at = skip_tags(frame, at)
        left = claim_tags(frame, at, left)
        at = skip_tags(frame, at)
    at = skip_tags(frame, at)
    if at != end:
        raise ProtocolError(f"{end - at} bytes follow a produce request")
    return ProduceRequest(transactional_id, acks, timeout_ms, parts)


def _encode_one_flexible(correlation_id: int, name: bytes, row: ProduceResult, throttle_time_ms: int) -> bytes:
    """Return the reply about one partition that was not refused, whose topic has a short name."""
    rest = _ROW_V9.pack(
        _ONE,
        row.partition,
        row.error,
        row.base_offset,
        row.log_append_time_ms,
        row.log_start_offset,
        b"\x01\x00\x00\x00",  # as _TAIL_V9, and no tagged fields of the topic
        throttle_time_ms,
        0,
    )
    return _ONE_TOPIC_V9.pack(7 + len(name) + len(rest), correlation_id, 0, _ONE, len(name) + 1) + name + rest


def _encode_flexible(results: list[ProduceResult], throttle_time_ms: int) -> bytes:
    topics = _by_topic(results)
    out = bytearray()
    write_unsigned_varint(out, len(topics) + 1)
    for topic, rows in topics:
        name = topic.encode()
        write_unsigned_varint(out, len(name) + 1)
        out += name
        write_unsigned_varint(out, len(rows) + 1)
        for row in rows:
            out += _PARTITION.pack(row.partition, row.error, row.base_offset, row.log_append_time_ms)
            out += _INT64.pack(row.log_start_offset)
            if row.message is None:
                out += _TAIL_V9
            else:
                _write_refusal(out, row, row.message)
        out.append(0)
    out += _INT32.pack(throttle_time_ms)
    out.append(0)
    return bytes(out)


def _write_refusal(out: bytearray, row: ProduceResult, message: str) -> None:
    """Write why a batch was refused, and the end of its partition's tags."""
    found = row.record_errors if isinstance(row, RefusedBatch) else ()
    write_unsigned_varint(out, len(found) + 1)
    for one in found:
        out += _INT32.pack(one.number)
        _write_compact(out, one.message)
        out.append(0)
    _write_compact(out, message)
    out.append(0)


def _write_compact(out: bytearray, text: str) -> None:
    raw = text.encode()
    write_unsigned_varint(out, len(raw) + 1)
    out += raw

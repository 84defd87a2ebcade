"""Fetch, API key 1: the read half of the hot path.  A reply is a head and file slices; records are never touched.

request  => replica_id: int32 (v14-), max_wait_ms: int32, min_bytes: int32, max_bytes: int32, isolation_level: int8,
            session_id: int32 (v7+), session_epoch: int32 (v7+),
            topics: [topic: string (v12-), topic_id: uuid (v13+), partitions: [partition: int32,
              current_leader_epoch: int32 (v9+), fetch_offset: int64, last_fetched_epoch: int32 (v12+),
              log_start_offset: int64 (v5+), partition_max_bytes: int32]],
            forgotten_topics_data: [topic or topic_id, partitions: [int32]] (v7+), rack_id: string (v11+)
response => throttle_time_ms: int32, error_code: int16 (v7+), session_id: int32 (v7+),
            responses: [topic or topic_id, partitions: [partition_index: int32, error_code: int16,
              high_watermark: int64, last_stable_offset: int64, log_start_offset: int64 (v5+),
              aborted_transactions: nullable [], preferred_read_replica: int32 (v11+), records: nullable bytes]]

Versions 4 to 17 are served.  From 12 on they are compact with tagged fields: a partition's answer may carry its
diverging epoch (tag 0: epoch: int32, end_offset: int64, tags).  From 13 on topics are named by their ids alone.  From
15 on a replica says who it is in tag 1 (replica_id: int32, replica_epoch: int64, tags).

Our followers speak version 12, with fields of our own: the broker epoch (tag 1000: int64), and whether the list begins
a feed or changes the one of its connection (tag 1001: int8; see `Feeding`).  Behind the partitions of a topic a
follower names the topic's id (tag 1002: 16 bytes), and so does the answer to it: a topic that is deleted and made again
has other records under the same name, offsets and leader epochs.  The answer about one partition says up to where the
leader's log lacks tombstones, if that is not below what is asked for (tag 1003: int64, see `pylog.log.tombstones`).

Source: Kafka protocol guide; FetchRequest.json and FetchResponse.json.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

from pylog.errors import ErrorCode, ProtocolError
from pylog.wire.primitives import (
    MAX_ELEMENTS,
    MAX_STRING_BYTES,
    check_count,
    claim_elements,
    claim_tags,
    read_tags,
    read_unsigned_varint,
    skip_tags,
    take,
    write_unsigned_varint,
)

FIRST_FLEXIBLE_VERSION = 12
_LEAST_ELEMENT_BYTES = 3
"""No array has shorter elements: a topic without name and partitions, in a flexible version."""
REPLICA_VERSION = 12
"""What our followers speak: the first version with diverging epochs, the last without topic ids."""
FIRST_VERSION_BY_ID = 13
"""From here on a topic has no name, only its id."""
_REPLICA_STATE_VERSION = 15

_DIVERGING_EPOCH_TAG = 0
_BROKER_EPOCH_TAG = 1000
_FEED_TAG = 1001
_TOPIC_ID_TAG = 1002
_REMOVED_TOMBSTONE_TAG = 1003
_TOPIC_ID_BYTES = 16
_REPLICA_STATE_TAG = 1
_CONSUMER = -1

SliceT = TypeVar("SliceT")

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_REMOVED = struct.Struct(">qi")
_DIVERGING = struct.Struct(">iq")
_HEAD_V4 = struct.Struct(">iiiib")
_HEAD_V7 = struct.Struct(">iiiibii")
_HEAD_V15 = struct.Struct(">iiibii")
_REPLICA_STATE = struct.Struct(">iq")
_ONE_TOPIC = struct.Struct(">iiiibiiih")
_ONE_PARTITION = struct.Struct(">iiiqqii")  # a count of one, the partition, and nothing forgotten
_ONE_TOPIC_V12 = struct.Struct(">iiiibiiB")  # up to the count of topics
_ONE_TOPIC_V15 = struct.Struct(">iiibiiB")
_ONE_PARTITION_V12 = struct.Struct(">BiiqiqiBBBB")  # as above, with the tags of both and the length of the rack's name
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_ROW_V4 = struct.Struct(">ihqqi")  # the last number counts aborted transactions: -1 is null
_ROW_V5 = struct.Struct(">ihqqqi")
_ROW_V11 = struct.Struct(">ihqqqii")
_ONE_HEAD = struct.Struct(">iiihiih")
_ONE_ROW_V5 = struct.Struct(">iihqqqii")  # a count of one before the row, the size of the records behind it
_ONE_ROW_V11 = struct.Struct(">iihqqqiii")
_ROW_V12 = struct.Struct(">ihqqqbi")  # the int8 is a compact count: null or empty
_ONE_HEAD_V12 = struct.Struct(">iibihiB")  # no tags of the header; a count of one topic at the end
_ONE_ROW_V12 = struct.Struct(">Bihqqqbi")
_ONE_TAIL_V12 = b"\x00\x00\x00"  # no tags of the partition, its topic and the reply
_ONE = 2
"""A compact count of one."""
_NOTHING = 1
"""A compact count of none, or the length of an empty string."""
_NO_ABORTED = -1
_ABORTED = struct.Struct(">qq")
READ_COMMITTED = 1
"""Isolation level of consumers that want nothing of transactions that are open or aborted."""
_NONE = ErrorCode.NONE


class Feeding(IntEnum):
    """What a follower's list of partitions is about; a leader that keeps one answers with a session id above 0."""

    NO = -1
    """This request alone."""
    BEGIN = 0
    """All that follows on this connection."""
    CHANGE = 1
    """What is other than in the request before; all else is asked again as it was."""


@dataclass(slots=True)
class FetchPartition:
    """What is asked of one partition.

    Attributes:
        topic: "" in a request by topic ids, until the name is looked up.
        topic_id: the 16 bytes of the topic that a follower means, or a consumer from version 13 on; else empty.
    """

    topic: str
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    topic_id: bytes = b""


@dataclass(slots=True)
class FetchRequest:
    """A parsed request.

    Attributes:
        replica_id: -1 for consumers, -2 for a debugging consumer, else the broker that follows.
        forgotten: partitions that leave the fetch session, each with the key that `session_key` gives.
        broker_epoch: of that broker's process; -1 if not told.
        version: of the request.
        feeding: what the list of a follower is about.
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    forgotten: Sequence[tuple[str, int]] = ()
    rack_id: str = ""
    broker_epoch: int = -1
    version: int = REPLICA_VERSION
    feeding: Feeding = Feeding.NO


@dataclass(slots=True)
class FetchResult(Generic[SliceT]):
    """The answer for one partition; `records` is a slice of `records_bytes` bytes, or None.

    Attributes:
        diverging: (epoch, end offset) of our log, for a follower whose log is not a prefix of it.
        topic_id: the 16 bytes of the topic that the answer is about; empty if the request named none.
        aborted: producer id and first offset of aborted transactions that may have records here, by their markers; None
            if the reader did not ask for it.
        removed_tombstone: for a follower: the highest offset at which our log lacks a tombstone, if that is not below
            what it asks for, else -1.
        removing_pass: where `removed_tombstone` is not -1, the number of the last pass of compaction that removed one
            which is not below what the follower asks for.
    """

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    preferred_read_replica: int = -1
    records: SliceT | None = None
    records_bytes: int = 0
    diverging: tuple[int, int] | None = None
    topic_id: bytes = b""
    removed_tombstone: int = -1
    removing_pass: int = 0
    aborted: Sequence[tuple[int, int]] | None = None


def session_key(row: FetchPartition | FetchResult[SliceT], *, is_by_id: bool) -> tuple[str, int]:
    """Return what a fetch session knows a partition by: its topic's name, or the id in hex."""
    return (row.topic_id.hex() if is_by_id else row.topic), row.partition


def parse_request(frame: memoryview, version: int, position: int, most: int = MAX_ELEMENTS) -> FetchRequest:
    """Return the request whose body starts at *position* of *frame*.

    Raises:
        TooManyElements: it has more than *most* topics and partitions.
        ProtocolError: a length or count does not fit into the bytes that are there.
    """
    try:
        if version >= FIRST_FLEXIBLE_VERSION:
            return _parse_one_flexible(frame, version, position) or _parse(frame, version, position, most)
        if version >= 9:
            return _parse_one(frame, version, position) or _parse(frame, version, position, most)
        return _parse(frame, version, position, most)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"fetch request of {len(frame)} bytes: {error}") from error


def _parse(frame: memoryview, version: int, at: int, most: int = MAX_ELEMENTS) -> FetchRequest:
    reader = _Reader(frame, version >= FIRST_FLEXIBLE_VERSION, most)
    if version >= _REPLICA_STATE_VERSION:
        replica = _CONSUMER
        wait, low, high, isolation, session_id, session_epoch = _HEAD_V15.unpack_from(frame, at)
        at += _HEAD_V15.size
    elif version >= 7:
        replica, wait, low, high, isolation, session_id, session_epoch = _HEAD_V7.unpack_from(frame, at)
        at += _HEAD_V7.size
    else:
        replica, wait, low, high, isolation = _HEAD_V4.unpack_from(frame, at)
        session_id, session_epoch = 0, -1
        at += _HEAD_V4.size
    request = FetchRequest(replica, wait, low, high, isolation, session_id, session_epoch, [], version=version)
    count, at = reader.count(at)
    for _ in range(count):
        at = _parse_topic(reader, version, at, request.partitions)
    if version >= 7:
        count, at = reader.count(at)
        forgotten: list[tuple[str, int]] = []
        for _ in range(count):
            at = _parse_forgotten(reader, version, at, forgotten)
        if forgotten:
            request.forgotten = forgotten
    if version >= 11:
        request.rack_id, at = reader.string(at)
    if reader.is_flexible:
        tags, at = reader.tags(at)
        if len(epoch := tags.get(_BROKER_EPOCH_TAG, b"")) == _INT64.size:
            (request.broker_epoch,) = _INT64.unpack(epoch)
        if version >= _REPLICA_STATE_VERSION and _REPLICA_STATE_TAG in tags:
            request.replica_id, _ = _REPLICA_STATE.unpack_from(tags[_REPLICA_STATE_TAG])
        if replica >= 0 and _FEED_TAG in tags:
            request.feeding = Feeding.CHANGE if bytes(tags[_FEED_TAG]) == b"\x01" else Feeding.BEGIN
    if at != len(frame):
        raise ProtocolError(f"{len(frame) - at} bytes follow a fetch request")
    return request


def _parse_one(frame: memoryview, version: int, at: int) -> FetchRequest | None:
    """Return a request about one partition, as those of most consumers are, in four steps; None for any other."""
    end = len(frame)
    if end - at < _ONE_TOPIC.size:
        return None
    replica, wait, low, high, isolation, session_id, epoch, topics, length = _ONE_TOPIC.unpack_from(frame, at)
    begin = at + _ONE_TOPIC.size
    stop = begin + length
    if topics != 1 or length < 0 or end - stop < _ONE_PARTITION.size:
        return None
    count, number, leader_epoch, offset, log_start, size, forgotten = _ONE_PARTITION.unpack_from(frame, stop)
    at = stop + _ONE_PARTITION.size
    if count != 1 or forgotten != 0:
        return None
    rack_id = ""
    if version >= 11:
        (rack_length,) = _INT16.unpack_from(frame, at)
        at += 2 + rack_length
        if rack_length > 0 and at <= end:
            rack_id = str(frame[at - rack_length : at], "utf-8")
    if at != end:
        return None
    part = FetchPartition(str(frame[begin:stop], "utf-8"), number, leader_epoch, offset, -1, log_start, size)
    return FetchRequest(
        replica,
        wait,
        low,
        high,
        isolation,
        session_id,
        epoch,
        [part],
        rack_id=rack_id,
        version=version,
    )


def _parse_one_flexible(frame: memoryview, version: int, at: int) -> FetchRequest | None:
    """Return a consumer's request about one partition from version 12 on; None for any other.

    Raises:
        struct.error: it is too short for one.
    """
    if version >= _REPLICA_STATE_VERSION:
        replica = _CONSUMER
        wait, low, high, isolation, session_id, epoch, topics = _ONE_TOPIC_V15.unpack_from(frame, at)
        at += _ONE_TOPIC_V15.size
    else:
        replica, wait, low, high, isolation, session_id, epoch, topics = _ONE_TOPIC_V12.unpack_from(frame, at)
        at += _ONE_TOPIC_V12.size
    if topics != _ONE or replica >= 0:
        return None
    topic, topic_id, length = "", b"", _TOPIC_ID_BYTES
    if version >= FIRST_VERSION_BY_ID:
        topic_id = bytes(frame[at : at + length])
    else:
        length = frame[at] - 1
        at += 1
        if not 0 <= length < 0x7F:
            return None
    stop = at + length
    if len(frame) - stop < _ONE_PARTITION_V12.size:
        return None
    if not topic_id:
        topic = str(frame[at:stop], "utf-8")
    count, number, leader_epoch, offset, last_epoch, log_start, size, tags, topic_tags, forgotten, rack_length = (
        _ONE_PARTITION_V12.unpack_from(frame, stop)
    )
    at = stop + _ONE_PARTITION_V12.size
    end = at + rack_length - 1
    if count != _ONE or tags or topic_tags or forgotten != _NOTHING or not 0 < rack_length < 0x80:
        return None
    if end != len(frame) - 1 or frame[end]:
        return None  # tagged fields
    rack_id = str(frame[at:end], "utf-8") if rack_length > _NOTHING else ""
    part = FetchPartition(topic, number, leader_epoch, offset, last_epoch, log_start, size, topic_id)
    return FetchRequest(
        replica, wait, low, high, isolation, session_id, epoch, [part], rack_id=rack_id, version=version
    )


def _parse_topic(reader: "_Reader", version: int, at: int, out: list[FetchPartition]) -> int:
    frame = reader.frame
    topic, topic_id = "", b""
    if version >= FIRST_VERSION_BY_ID:
        topic_id = bytes(take(frame, at, _TOPIC_ID_BYTES))
        at += _TOPIC_ID_BYTES
    else:
        topic, at = reader.string(at)
    count, at = reader.count(at)
    for _ in range(count):
        leader_epoch = last_epoch = log_start = -1
        if version >= 12:
            partition, leader_epoch, offset, last_epoch, log_start, size = _PARTITION_V12.unpack_from(frame, at)
            at += _PARTITION_V12.size
        elif version >= 9:
            partition, leader_epoch, offset, log_start, size = _PARTITION_V9.unpack_from(frame, at)
            at += _PARTITION_V9.size
        elif version >= 5:
            partition, offset, log_start, size = _PARTITION_V5.unpack_from(frame, at)
            at += _PARTITION_V5.size
        else:
            partition, offset, size = _PARTITION_V4.unpack_from(frame, at)
            at += _PARTITION_V4.size
        at = reader.end_of_structure(at)
        out.append(FetchPartition(topic, partition, leader_epoch, offset, last_epoch, log_start, size))
    if not reader.is_flexible:
        return at
    named_id, at = _read_topic_id(reader, at)
    topic_id = topic_id or named_id
    if topic_id:
        for part in out[len(out) - count :]:
            part.topic_id = topic_id
    return at


def _read_topic_id(reader: "_Reader", at: int) -> tuple[bytes, int]:
    """Return the id among a topic's tags, empty if there is none, and where the tags end."""
    if reader.frame[at] == 0:
        return b"", at + 1
    tags, at = reader.tags(at)
    topic_id = bytes(tags.get(_TOPIC_ID_TAG, b""))
    if topic_id and len(topic_id) != _TOPIC_ID_BYTES:
        raise ProtocolError(f"a topic id of {len(topic_id)} bytes")
    return topic_id, at


def _write_topic_id(out: bytearray, topic_id: bytes) -> None:
    """Write the tags of a topic: its id, or none."""
    if not topic_id:
        out.append(0)
        return
    out.append(1)
    write_unsigned_varint(out, _TOPIC_ID_TAG)
    out.append(_TOPIC_ID_BYTES)
    out += topic_id


def _parse_forgotten(reader: "_Reader", version: int, at: int, out: list[tuple[str, int]]) -> int:
    if version >= FIRST_VERSION_BY_ID:
        topic = take(reader.frame, at, _TOPIC_ID_BYTES).hex()
        at += _TOPIC_ID_BYTES
    else:
        topic, at = reader.string(at)
    count, at = reader.count(at)
    for _ in range(count):
        (partition,) = _INT32.unpack_from(reader.frame, at)
        out.append((topic, partition))
        at += 4
    return reader.end_of_structure(at)


class _Reader:
    """Lengths and counts in either encoding, each bounded by the bytes that are left, and all counts together."""

    __slots__ = ("_elements_left", "frame", "is_flexible")

    def __init__(self, frame: memoryview, is_flexible: bool, most: int = MAX_ELEMENTS) -> None:
        self.frame = frame
        self.is_flexible = is_flexible
        self._elements_left = most

    def count(self, at: int) -> tuple[int, int]:
        if self.is_flexible:
            count, at = read_unsigned_varint(self.frame, at)
            count -= 1
        else:
            (count,) = _INT32.unpack_from(self.frame, at)
            at += 4
        count = max(count, 0)  # null is empty here
        check_count(count, len(self.frame) - at, _LEAST_ELEMENT_BYTES)
        self._elements_left = claim_elements(count, self._elements_left)
        return count, at

    def string(self, at: int) -> tuple[str, int]:
        if self.is_flexible:
            length, at = read_unsigned_varint(self.frame, at)
            length -= 1
        else:
            (length,) = _INT16.unpack_from(self.frame, at)
            at += 2
        if length > MAX_STRING_BYTES:
            raise ProtocolError(f"string of {length} bytes")
        return str(take(self.frame, at, length), "utf-8"), at + length

    def end_of_structure(self, at: int) -> int:
        if not self.is_flexible:
            return at
        if self.frame[at] == 0:
            return at + 1
        self._elements_left = claim_tags(self.frame, at, self._elements_left)
        return skip_tags(self.frame, at)

    def tags(self, at: int) -> tuple[dict[int, memoryview], int]:
        self._elements_left = claim_tags(self.frame, at, self._elements_left)
        return read_tags(self.frame, at)


def encode_response(
    version: int,
    correlation_id: int,
    results: list[FetchResult[SliceT]],
    *,
    error: ErrorCode = ErrorCode.NONE,
    session_id: int = 0,
    throttle_time_ms: int = 0,
) -> list[bytes | SliceT]:
    """Return the whole reply frame, size and header included, as bytes and the slices of *results* between them.

    Results of one topic stand together, as in the request.
    """
    if len(results) == 1 and version >= 7 and not results[0].aborted:
        if version < FIRST_FLEXIBLE_VERSION:
            return _encode_one(version, correlation_id, results[0], error, session_id, throttle_time_ms)
        if results[0].diverging is None and (version >= FIRST_VERSION_BY_ID or not results[0].topic_id):
            return _encode_one_flexible(version, correlation_id, results[0], error, session_id, throttle_time_ms)
    is_flexible, is_by_id = version >= FIRST_FLEXIBLE_VERSION, version >= FIRST_VERSION_BY_ID
    head = bytearray(4) + _INT32.pack(correlation_id)
    if is_flexible:
        head.append(0)
    head += _INT32.pack(throttle_time_ms)
    if version >= 7:
        head += _INT16.pack(error) + _INT32.pack(session_id)
    topics = _by_topic(results)
    _write_count(head, len(topics), is_flexible)
    parts: list[bytes | SliceT] = []
    size = 0
    for topic, rows in topics:
        if is_by_id:
            head += rows[0].topic_id
        else:
            _write_name(head, topic, is_flexible)
        _write_count(head, len(rows), is_flexible)
        for row in rows:
            _write_row(head, row, version)
            if row.records is not None:
                parts += (bytes(head), row.records)
                size += len(head) + row.records_bytes
                head.clear()
            if row.diverging is not None and is_flexible:
                head += bytes((1, _DIVERGING_EPOCH_TAG, _DIVERGING.size + 1))
                head += _DIVERGING.pack(*row.diverging) + b"\x00"
            elif row.removed_tombstone >= 0:
                head.append(1)
                write_unsigned_varint(head, _REMOVED_TOMBSTONE_TAG)
                head.append(_REMOVED.size)
                head += _REMOVED.pack(row.removed_tombstone, row.removing_pass)
            elif is_flexible:
                head.append(0)
        if is_by_id:
            head.append(0)
        elif is_flexible:
            _write_topic_id(head, rows[0].topic_id)
    if is_flexible:
        head.append(0)
    if head:
        parts.append(bytes(head))
        size += len(head)
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = _INT32.pack(size - 4) + first[4:]
    return parts


def _encode_one(
    version: int,
    correlation_id: int,
    row: FetchResult[SliceT],
    error: ErrorCode,
    session_id: int,
    throttle_time_ms: int,
) -> list[bytes | SliceT]:
    """Return the reply about one partition in two steps; see `encode_response`."""
    name = row.topic.encode()
    offsets = (1, row.partition, row.error, row.high_watermark, row.last_stable_offset, row.log_start_offset)
    if version >= 11:
        rest = _ONE_ROW_V11.pack(*offsets, _aborted_count(row), row.preferred_read_replica, row.records_bytes)
    else:
        rest = _ONE_ROW_V5.pack(*offsets, _aborted_count(row), row.records_bytes)
    size = _ONE_HEAD.size - 4 + len(name) + len(rest) + row.records_bytes
    head = _ONE_HEAD.pack(size, correlation_id, throttle_time_ms, error, session_id, 1, len(name)) + name + rest
    return [head] if row.records is None else [head, row.records]


def _encode_one_flexible(
    version: int,
    correlation_id: int,
    row: FetchResult[SliceT],
    error: ErrorCode,
    session_id: int,
    throttle_time_ms: int,
) -> list[bytes | SliceT]:
    """Return the reply about one partition whose tags are all empty; see `encode_response`."""
    head = bytearray(_ONE_HEAD_V12.size)
    if version >= FIRST_VERSION_BY_ID:
        head += row.topic_id
    else:
        _write_name(head, row.topic, True)
    offsets = (row.high_watermark, row.last_stable_offset, row.log_start_offset)
    none = _aborted_count(row) + 1
    head += _ONE_ROW_V12.pack(_ONE, row.partition, row.error, *offsets, none, row.preferred_read_replica)
    write_unsigned_varint(head, row.records_bytes + 1)
    size = len(head) - 4 + row.records_bytes + len(_ONE_TAIL_V12)
    _ONE_HEAD_V12.pack_into(head, 0, size, correlation_id, 0, throttle_time_ms, error, session_id, _ONE)
    if row.records is None:
        return [bytes(head + _ONE_TAIL_V12)]
    return [bytes(head), row.records, _ONE_TAIL_V12]


def _by_topic(results: list[FetchResult[SliceT]]) -> list[tuple[str, list[FetchResult[SliceT]]]]:
    # By id too: a refused row names none, those of its topic that were served do.
    topics: dict[tuple[str, bytes], list[FetchResult[SliceT]]] = {}
    for row in results:
        topics.setdefault((row.topic, row.topic_id), []).append(row)
    return [(topic, rows) for (topic, _), rows in topics.items()]


def _write_count(out: bytearray, count: int, is_flexible: bool) -> None:
    if is_flexible:
        write_unsigned_varint(out, count + 1)
    else:
        out += _INT32.pack(count)


def _write_name(out: bytearray, name: str, is_flexible: bool) -> None:
    raw = name.encode()
    if is_flexible:
        write_unsigned_varint(out, len(raw) + 1)
    else:
        out += _INT16.pack(len(raw))
    out += raw


def _aborted_count(row: FetchResult[SliceT]) -> int:
    return _NO_ABORTED if row.aborted is None else len(row.aborted)


def _write_row(out: bytearray, row: FetchResult[SliceT], version: int) -> None:
    offsets = (row.partition, row.error, row.high_watermark, row.last_stable_offset)
    if row.aborted:
        _write_row_with_aborted(out, row, version)
    elif version >= 12:
        count = _aborted_count(row) + 1
        out += _ROW_V12.pack(*offsets, row.log_start_offset, count, row.preferred_read_replica)
    elif version >= 11:
        out += _ROW_V11.pack(*offsets, row.log_start_offset, _aborted_count(row), row.preferred_read_replica)
    elif version >= 5:
        out += _ROW_V5.pack(*offsets, row.log_start_offset, _aborted_count(row))
    else:
        out += _ROW_V4.pack(*offsets, _aborted_count(row))
    if version >= FIRST_FLEXIBLE_VERSION:
        write_unsigned_varint(out, row.records_bytes + 1)
    else:
        out += _INT32.pack(row.records_bytes)


def _write_row_with_aborted(out: bytearray, row: FetchResult[SliceT], version: int) -> None:
    assert row.aborted is not None
    out += struct.pack(">ihqq", row.partition, row.error, row.high_watermark, row.last_stable_offset)
    if version >= 5:
        out += _INT64.pack(row.log_start_offset)
    is_flexible = version >= FIRST_FLEXIBLE_VERSION
    _write_count(out, len(row.aborted), is_flexible)
    for transaction in row.aborted:
        out += _ABORTED.pack(*transaction)
        if is_flexible:
            out.append(0)
    if version >= 11:
        out += _INT32.pack(row.preferred_read_replica)


def encode_replica_request(correlation_id: int, broker_id: int, broker_epoch: int, request: FetchRequest) -> bytes:
    """Return the frame, size included, by which broker *broker_id* fetches what it follows.

    Partitions of one topic stand together.
    """
    out = bytearray(4) + struct.pack(">hhihB", 1, REPLICA_VERSION, correlation_id, -1, 0)
    out += _HEAD_V7.pack(
        broker_id, request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level, 0, -1
    )
    topics: dict[tuple[str, bytes], list[FetchPartition]] = {}
    for part in request.partitions:
        topics.setdefault((part.topic, part.topic_id), []).append(part)
    _write_count(out, len(topics), True)
    for (topic, topic_id), parts in topics.items():
        _write_name(out, topic, True)
        _write_count(out, len(parts), True)
        for part in parts:
            out += _PARTITION_V12.pack(
                part.partition,
                part.current_leader_epoch,
                part.fetch_offset,
                part.last_fetched_epoch,
                part.log_start_offset,
                part.max_bytes,
            )
            out.append(0)
        _write_topic_id(out, topic_id)
    _write_count(out, len(request.forgotten), True)
    for topic, number in request.forgotten:
        _write_name(out, topic, True)
        out += b"\x02" + _INT32.pack(number) + b"\x00"  # one partition, no tags
    out += b"\x01"  # no rack
    out.append(1 if request.feeding is Feeding.NO else 2)
    write_unsigned_varint(out, _BROKER_EPOCH_TAG)
    out.append(_INT64.size)
    out += _INT64.pack(broker_epoch)
    if request.feeding is not Feeding.NO:
        write_unsigned_varint(out, _FEED_TAG)
        out += bytes((1, request.feeding))
    out[:4] = _INT32.pack(len(out) - 4)
    return bytes(out)


def parse_replica_response(frame: memoryview, correlation_id: int) -> tuple[list[FetchResult[memoryview]], bool]:
    """Return what a leader answered, and whether it keeps the list that it was asked for as a feed.

    *frame* comes without its size; `records` are views of it.

    Raises:
        ProtocolError: it is not such an answer, or answers something else.
    """
    try:
        found, at = _INT32.unpack_from(frame)[0], 4
        if found != correlation_id:
            raise ProtocolError(f"response to {found} where {correlation_id} was asked")
        at = skip_tags(frame, at) + 4  # throttle time
        error, session_id = struct.unpack_from(">hi", frame, at)
        if error:
            raise ProtocolError(f"fetch refused: error {error}")
        reader = _Reader(frame, True)
        results: list[FetchResult[memoryview]] = []
        count, at = reader.count(at + 6)
        for _ in range(count):
            topic, at = reader.string(at)
            rows, at = reader.count(at)
            for _ in range(rows):
                at = _parse_replica_row(reader, topic, at, results)
            topic_id, at = _read_topic_id(reader, at)
            if topic_id:
                for result in results[len(results) - rows :]:
                    result.topic_id = topic_id
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as fault:
        raise ProtocolError(f"fetch response of {len(frame)} bytes: {fault}") from fault
    return results, session_id > 0


def _parse_replica_row(reader: _Reader, topic: str, at: int, results: list[FetchResult[memoryview]]) -> int:
    frame = reader.frame
    partition, error, high_watermark, stable, log_start, aborted, preferred = _ROW_V12.unpack_from(frame, at)
    if aborted not in (0, 1):
        raise ProtocolError("aborted transactions in a leader's answer to a follower, which reads them in the log")
    size, at = read_unsigned_varint(frame, at + _ROW_V12.size)
    records = take(frame, at, max(size - 1, 0))
    tags, at = reader.tags(at + len(records))
    result: FetchResult[memoryview] = FetchResult(
        topic,
        partition,
        ErrorCode(error) if error else _NONE,
        high_watermark,
        stable,
        log_start,
        preferred,
        records,
        len(records),
    )
    if _DIVERGING_EPOCH_TAG in tags:
        epoch, end_offset = _DIVERGING.unpack_from(tags[_DIVERGING_EPOCH_TAG])
        result.diverging = (epoch, end_offset)
    if len(removed := tags.get(_REMOVED_TOMBSTONE_TAG, b"")) == _REMOVED.size:
        result.removed_tombstone, result.removing_pass = _REMOVED.unpack(removed)
    results.append(result)
    return at

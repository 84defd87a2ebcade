"""A look inside a producer's batch, where its topic asks for one: compaction, `validate.records`, `compression.type`.

All other batches are stored as they came, by their header and CRC alone.  What is unpacked here is bounded, whatever a
batch claims.
"""

import struct

from crc32c import crc32c

from pylog.errors import ApiError, ErrorCode
from pylog.log.config import LogConfig
from pylog.wire import compression, records
from pylog.wire.records import CRC_START, LOG_APPEND_TIME, BatchHeader, patch_crc

MAX_UNPACKED_RATIO = 32
"""A batch may unpack to so many times `max.message.bytes`: far more than honest records, a moment of work for a lie."""

MAX_REQUEST_UNPACKED_BYTES = 128 << 20
"""Bytes that the batches of one request may unpack to, together: a fraction of a second of the event loop."""

_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_ATTRIBUTES_AT, _MAX_TIMESTAMP_AT = CRC_START, 35


def max_unpacked_bytes(config: LogConfig) -> int:
    """Return how much a batch of a topic with *config* may unpack to."""
    return min(max(config.max_message_bytes, 1) * MAX_UNPACKED_RATIO, compression.MAX_DECOMPRESSED_BYTES)


class Allowance:
    """How much of the batches of one request may still be looked into on the event loop.

    Attributes:
        unpacked_bytes: that they may unpack to.
        elements: records and headers.
    """

    __slots__ = ("elements", "unpacked_bytes")

    def __init__(self) -> None:
        self.unpacked_bytes = MAX_REQUEST_UNPACKED_BYTES
        self.elements = records.MAX_CHECKED

    def unpack(self, packed: memoryview, header: BatchHeader, most_bytes: int) -> memoryview:
        """Return the records of a batch, of which at most *most_bytes* are unpacked.

        Raises:
            ApiError: see `take_in`.
            CorruptRecords: they do not unpack.
        """
        if self.unpacked_bytes <= 0:
            raise _too_much()
        charge = min(most_bytes, compression.most_unpacked_bytes(header.compression, len(packed)))
        self.unpacked_bytes -= charge  # also of one that turns out to be false
        unpacked = compression.decompress(header.compression, packed, most_bytes)
        self.unpacked_bytes += charge - len(unpacked)
        return unpacked

    def check(self, unpacked: memoryview, header: BatchHeader, *, are_keys_wanted: bool) -> None:
        """Check the records of a batch; see `records.check_records`.

        Raises:
            ApiError: see `take_in`.
            InvalidRecords: as `take_in`.
            CorruptRecords: as `take_in`.
        """
        before = self.elements
        if before < records.MAX_CHECKED and header.record_count > before:
            raise _too_much()
        self.elements -= min(before, len(unpacked) // 2)  # a header takes two bytes at least; also of a false one
        checked = records.check_records(unpacked, header, are_keys_wanted=are_keys_wanted, most=before)
        self.elements = before - checked


def _too_much() -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, "the request has too much to unpack; send its batches one by one")


def take_in(
    batch: memoryview, header: BatchHeader, config: LogConfig, allowance: Allowance | None = None
) -> tuple[memoryview, BatchHeader]:
    """Check the records of *batch* and bring them into the topic's compression.

    Args:
        batch: exactly the batch, which `check_batch` let through.
        header: what that returned.
        config: of its topic.
        allowance: of the request, which is used up; a new one if None.

    Returns:
        The batch to append, writable, and its header: the same, or one packed anew.

    Raises:
        CorruptRecords: the records do not unpack within the cap, or contradict themselves or the header.
        InvalidRecords: an offset is out of turn, a record of a compacted topic has no key, or there are too many.
        ApiError: REQUEST_TIMED_OUT, which is tried again: the other batches of the request have used up what it may
            have unpacked.
    """
    codec = config.codec
    is_as_wanted = codec is None or codec == header.compression
    if is_as_wanted and not config.is_compacting and not config.validate_records:
        return batch, header
    packed = batch[records.HEADER_BYTES :]
    allowance = Allowance() if allowance is None else allowance
    unpacked = allowance.unpack(packed, header, max_unpacked_bytes(config))
    allowance.check(unpacked, header, are_keys_wanted=config.is_compacting)
    if is_as_wanted or codec is None:
        return batch, header
    return _pack(batch, header, unpacked, codec)


def _pack(batch: memoryview, header: BatchHeader, unpacked: memoryview, codec: int) -> tuple[memoryview, BatchHeader]:
    """Return the batch with the same records under another codec."""
    body = compression.compress(codec, unpacked)
    made = bytearray(batch[: records.HEADER_BYTES])
    made += body
    header.attributes = header.attributes & ~records.COMPRESSION_MASK | codec
    header.batch_length = len(made) - records.LENGTH_OVERHEAD
    records.HEADER.pack_into(
        made,
        0,
        header.base_offset,
        header.batch_length,
        header.partition_leader_epoch,
        header.magic,
        0,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    header.crc = crc32c(memoryview(made)[records.CRC_START :])
    records.patch_crc(memoryview(made), header.crc)
    return memoryview(made), header


def treat_time(batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> int:
    """Apply what the topic says about timestamps; return the log append time, -1 if the producer's times stay.

    Raises:
        ApiError: INVALID_TIMESTAMP: the times lie outside what the topic allows.
    """
    if header.attributes & LOG_APPEND_TIME:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "only the broker may set the log append time")
    if config.is_log_append_time:
        header.attributes |= LOG_APPEND_TIME
        header.max_timestamp = now_ms
        _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, header.attributes)
        _TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, now_ms)
        header.crc = crc32c(batch[CRC_START:])
        patch_crc(batch, header.crc)
        return now_ms
    early, late = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    if header.max_timestamp - now_ms > late or now_ms - header.base_timestamp > early:
        message = (
            f"timestamps {header.base_timestamp} to {header.max_timestamp} are not within "
            f"{early} ms before and {late} ms after {now_ms}"
        )
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, message)
    return -1

"""The first record of a time or later, in the records themselves: work for a thread.

The indexes say in which segment and from which batch on it must be; that is asked on the thread of the log.  To read
and unpack batches until one has such a record may take seconds.  Batches are stored by their headers alone, and a
header may name a later time than any of its records has: what is unpacked in one search is bounded.
"""

import os
from dataclasses import dataclass
from itertools import islice

from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.log.segment import FileSlice
from pylog.model import Offset
from pylog.wire import compression, records

MAX_UNPACKED_BYTES = compression.MAX_DECOMPRESSED_BYTES
"""Bytes after which a search unpacks no other batch.  An honest one unpacks a single batch, two where the log begins
inside of the first."""

MAX_RECORDS = records.MAX_CHECKED
"""Records that a search looks at: some seconds of a thread."""


@dataclass(slots=True)
class Allowance:
    """How much one search may still look through.

    Attributes:
        unpacked_bytes: no batch is unpacked once they are used up.
        record_count: records of unpacked batches.
    """

    unpacked_bytes: int = MAX_UNPACKED_BYTES
    record_count: int = MAX_RECORDS


def first_not_older(
    part: FileSlice, timestamp: int, log_start_offset: Offset, allowance: Allowance | None = None
) -> tuple[int, Offset] | None:
    """Return (timestamp, offset) of the first record in *part* not older than *timestamp*, or None.

    The caller holds *part*, which begins with a batch.  It changes nothing and may run in any thread; what it returns
    or raises means nothing if the slice is not current afterwards.

    Args:
        part: where to search.
        timestamp: in milliseconds.
        log_start_offset: records below it do not count.
        allowance: of the search, which is used up; a new one if None.

    Raises:
        StorageError: the file cannot be read, ends early, or holds no batch where one must be.
        CorruptRecords: a batch does not decode.
        ApiError: REQUEST_TIMED_OUT, the allowance is used up.
    """
    allowance = Allowance() if allowance is None else allowance
    position, end = part.position, part.position + part.size_bytes
    while end - position >= records.HEADER_BYTES:
        header = records.parse_header(_read(part, position, records.HEADER_BYTES))
        if not records.HEADER_BYTES <= header.size_bytes <= end - position:
            claim = f"batch at {position} claims {header.size_bytes} bytes, {end - position} are left"
            raise StorageError(f"{part.segment.path}: {claim}")
        if header.max_timestamp >= timestamp and header.last_offset >= log_start_offset:
            if allowance.unpacked_bytes <= 0:
                raise _too_much(part)
            packed = memoryview(_read(part, position, header.size_bytes))[records.HEADER_BYTES :]
            unpacked = compression.decompress(header.compression, packed)
            allowance.unpacked_bytes -= len(unpacked)
            for record in islice(records.read_records(unpacked, header), allowance.record_count):
                if record.timestamp >= timestamp and record.offset >= log_start_offset:
                    return record.timestamp, record.offset
            if header.record_count > allowance.record_count:
                raise _too_much(part)
            allowance.record_count -= header.record_count
        position += header.size_bytes
    return None


def _too_much(part: FileSlice) -> ApiError:
    message = f"{part.segment.path}: headers of batches name later times than their records have; the search was ended"
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, message)


def _read(part: FileSlice, position: int, size_bytes: int) -> bytes:
    try:
        data = os.pread(part.fd, size_bytes, position)
    except OSError as error:
        raise StorageError(f"{part.segment.path}: {error.strerror}") from error
    if len(data) != size_bytes:
        raise StorageError(f"{part.segment.path}: {len(data)} of {size_bytes} bytes at {position}")
    return data

"""The first record of a time or later, in the records themselves: work for a thread.

The indexes say in which segment and from which batch on it must be; that is asked on the thread of the log.  To read
and unpack batches until one has such a record may take seconds.
"""

import os

from pylog.errors import StorageError
from pylog.log.segment import FileSlice
from pylog.model import Offset
from pylog.wire import compression, records


def first_not_older(part: FileSlice, timestamp: int, log_start_offset: Offset) -> tuple[int, Offset] | None:
    """Return (timestamp, offset) of the first record in *part* not older than *timestamp*, or None.

    The caller holds *part*, which begins with a batch.  It changes nothing and may run in any thread; what it returns
    or raises means nothing if the slice is not current afterwards.

    Raises:
        StorageError: the file cannot be read, ends early, or holds no batch where one must be.
        CorruptRecords: a batch does not decode.
    """
    position, end = part.position, part.position + part.size_bytes
    while end - position >= records.HEADER_BYTES:
        header = records.parse_header(_read(part, position, records.HEADER_BYTES))
        if not records.HEADER_BYTES <= header.size_bytes <= end - position:
            claim = f"batch at {position} claims {header.size_bytes} bytes, {end - position} are left"
            raise StorageError(f"{part.segment.path}: {claim}")
        if header.max_timestamp >= timestamp and header.last_offset >= log_start_offset:
            packed = memoryview(_read(part, position, header.size_bytes))[records.HEADER_BYTES :]
            for record in records.read_records(compression.decompress(header.compression, packed), header):
                if record.timestamp >= timestamp and record.offset >= log_start_offset:
                    return record.timestamp, record.offset
        position += header.size_bytes
    return None


def _read(part: FileSlice, position: int, size_bytes: int) -> bytes:
    try:
        data = os.pread(part.fd, size_bytes, position)
    except OSError as error:
        raise StorageError(f"{part.segment.path}: {error.strerror}") from error
    if len(data) != size_bytes:
        raise StorageError(f"{part.segment.path}: {len(data)} of {size_bytes} bytes at {position}")
    return data

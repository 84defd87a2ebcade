"""A file of record batches, one after the other, which its users share.

file => batch*        see `pylog.wire.records`
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.wire.records import HEADER, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, BatchHeader

SCAN_BYTES = 1 << 14
"""Read at a time when searching headers: four index intervals."""

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""Refusals of `open` that pass when somebody closes a file or a connection; the disk has nothing to do with them."""

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Refusals that pass when somebody makes room; everything else is the disk's end."""


class OutOfDescriptors(ApiError):
    """A file cannot be opened now; nothing has changed, and a later attempt may succeed."""

    def __init__(self, path: Path | str, error: OSError) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}: {error.strerror}")


class BatchFile:
    """The file, open while anybody uses it.

    Attributes:
        fd: the open file, -1 while it is not open; the active segment's always is.
        size_bytes: bytes of whole batches.  Invariant: nothing above is ever read or sent.
        generation: grows when bytes that a slice may cover are cut off; see `FileSlice.is_current`.
        references: users of the open file; the last one closes it.
    """

    __slots__ = ("fd", "generation", "path", "references", "size_bytes")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = 0
        self.generation = 0
        self.references = 1  # the log's own
        self.fd = -1

    def open(self) -> int:
        """Return the open file; a closed segment is opened when it is first read.

        Raises:
            OutOfDescriptors: not now.
            StorageError: the file cannot be opened.
        """
        if self.fd < 0:
            try:
                self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
                if error.errno in NO_DESCRIPTORS:
                    raise OutOfDescriptors(self.path, error) from error
                raise StorageError(f"{self.path}: {error.strerror}") from error
        return self.fd

    def create(self) -> None:
        """Make the empty file, or empty an old one.

        Raises:
            OSError: the disk refuses.
        """
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def acquire(self) -> None:
        """Count one more user of the open file."""
        self.references += 1

    def release(self) -> None:
        """Count one user less; the last one closes the file."""
        self.references -= 1
        assert self.references >= 0, f"{self.path}: {self.references} references"
        if not self.references and self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of every batch from *position* to *end*, reading as little else as possible.

        Raises:
            StorageError: the file cannot be read or holds no batch where one must be.
        """
        fd = self.open()
        if end is None:
            end = self.size_bytes
        data, start = b"", position
        while position < end:
            at = position - start
            if at + HEADER_BYTES > len(data):
                data, start, at = self._pread(fd, min(SCAN_BYTES, end - position), position), position, 0
            header = self._header(data, at, position, end)
            yield position, header
            position += header.batch_length + LENGTH_OVERHEAD

    def _header(self, data: bytes, at: int, position: int, end: int) -> BatchHeader:
        if len(data) - at < HEADER_BYTES:
            raise StorageError(f"{self.path}: {len(data) - at} bytes at {position} are no batch")
        header = BatchHeader(*HEADER.unpack_from(data, at))
        size = header.batch_length + LENGTH_OVERHEAD
        if size < HEADER_BYTES or size > end - position or header.magic != MAGIC:
            raise StorageError(f"{self.path}: no batch at {position}: {size} bytes of magic {header.magic}")
        return header

    def read_batch(self, position: int, size_bytes: int) -> memoryview:
        """Return the bytes of one batch.

        Raises:
            StorageError: the file cannot be read or ends early.
        """
        data = self._pread(self.open(), size_bytes, position)
        if len(data) != size_bytes:
            raise StorageError(f"{self.path}: {len(data)} of {size_bytes} bytes at {position}")
        return memoryview(data)

    def _pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        try:
            return os.pread(fd, size_bytes, position)
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror} at {position}") from error

"""The transaction index of a segment: its abort markers, in Kafka's format.

.txnindex => entry*
entry     => version: int16 (0), producer_id: int64, first_offset: int64, last_offset: int64, last_stable_offset: int64

`last_offset` is the offset of the marker, which is in this segment; entries are in its order.  The file exists only if
the segment has, or had, an abort marker.

Unlike the other indexes it is no hint: without an entry a consumer takes aborted records for committed ones.  What the
disk refuses to take stays in memory, and the recovery point does not pass it; a start after a crash makes the entries
above the recovery point again from the batches.

Source: Kafka's TransactionIndex and AbortedTxn.
"""

import contextlib
import os
import struct
from bisect import bisect_left
from pathlib import Path

from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.log.batch_file import DISK_FULL, NO_DESCRIPTORS, OutOfDescriptors
from pylog.log.transactions import AbortedTransaction
from pylog.model import Offset

SUFFIX = ".txnindex"

_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size  # 34


class TransactionIndex:
    """The entries of one segment: in the file, and all of them in memory while they are in use.

    Aborts are rare; a segment with a thousand of them needs 100 KiB.
    """

    __slots__ = ("_entries", "_written_count", "path")

    def __init__(self, path: Path, *, is_new: bool = False) -> None:
        """Make it for the file at *path*, which is not read if the index *is_new*."""
        self.path = path
        self._entries: list[AbortedTransaction] | None = [] if is_new else None
        self._written_count = 0

    def entries(self) -> list[AbortedTransaction]:
        """Return all, by the offset of the marker.

        Raises:
            OutOfDescriptors: not now.
            StorageError: the file cannot be read, or is none.
        """
        if self._entries is None:
            self._entries = self._read()
            self._written_count = len(self._entries)
        return self._entries

    def read(self) -> list[AbortedTransaction]:
        """Return what `entries` does, and keep nothing in memory; in any thread.

        Raises:
            OutOfDescriptors: not now.
            StorageError: the file cannot be read, or is none.
        """
        entries = self._entries
        return self._read() if entries is None else list(entries)

    def append(self, entry: AbortedTransaction) -> None:
        """Add *entry*; what is left of a torn write before it is overwritten.

        Want of descriptors or room passes: then the entry is in memory only, and `flush` tries again.

        Raises:
            StorageError: the disk fails.
        """
        entries = self.entries()
        assert not entries or entries[-1].last_offset < entry.last_offset, (entries[-1], entry)
        entries.append(entry)
        with contextlib.suppress(ApiError):
            self.flush()

    def flush(self) -> None:
        """Write what is in memory only.

        Raises:
            ApiError: no descriptor or no room now.
            StorageError: the disk fails.
        """
        if self._entries is None or len(self._entries) == self._written_count:
            return
        rows = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self._entries[self._written_count :])
        self._write(rows, self._written_count * ENTRY_BYTES)
        self._written_count = len(self._entries)

    def forget(self) -> None:
        """Keep nothing in memory that is in the file."""
        if self._entries is not None and self._written_count == len(self._entries):
            self._entries = None

    def clear(self) -> None:
        """Begin anew, without entries.

        Raises:
            StorageError: the disk refuses.
        """
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror}") from error
        self._entries, self._written_count = [], 0

    def truncate(self, log_end_offset: Offset) -> None:
        """Drop the entries of markers at or above *log_end_offset*.

        Raises:
            OutOfDescriptors: not now; never after `entries` has returned.
            StorageError: the disk refuses.
        """
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < log_end_offset]
        if len(kept) < len(entries):
            if len(kept) < self._written_count:
                try:
                    os.truncate(self.path, len(kept) * ENTRY_BYTES)
                except OSError as error:
                    raise self._fault(error) from error
            self._entries = kept
            self._written_count = min(self._written_count, len(kept))

    def overlapping(self, fetch_offset: Offset, end_offset: Offset) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborted transactions that may have records between two offsets.

        Args:
            fetch_offset: of the first record.
            end_offset: above the last record.

        Returns:
            the entries, and whether later segments have none: a marker was met above which nothing was open.
        """
        found: list[AbortedTransaction] = []
        entries = self.entries()
        for number in range(bisect_left(entries, fetch_offset, key=_last_offset), len(entries)):
            entry = entries[number]
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def _read(self) -> list[AbortedTransaction]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._fault(error) from error
        # A crash may leave part of an entry behind, which would shift all later ones.
        entries: list[AbortedTransaction] = []
        for version, *fields in _ENTRY.iter_unpack(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]):
            if version != _VERSION:
                raise StorageError(f"{self.path}: entry {len(entries)} has version {version}")
            entry = AbortedTransaction(*fields)
            if entry.first_offset > entry.last_offset or (entries and entry.last_offset <= entries[-1].last_offset):
                raise StorageError(f"{self.path}: entry {len(entries)} contradicts the ones before it")
            entries.append(entry)
        return entries

    def _write(self, data: bytes, position: int) -> None:
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._fault(error) from error
        try:
            while data:
                written = os.pwrite(fd, data, position)
                data, position = data[written:], position + written
        except OSError as error:
            raise self._fault(error) from error
        finally:
            os.close(fd)

    def _fault(self, error: OSError) -> Exception:
        if error.errno in NO_DESCRIPTORS:
            return OutOfDescriptors(self.path, error)
        if error.errno in DISK_FULL:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {error.strerror}")
        return StorageError(f"{self.path}: {error.strerror}")


def _last_offset(entry: AbortedTransaction) -> Offset:
    return entry.last_offset

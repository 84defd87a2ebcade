"""One segment: a file of record batches, its two indexes, and slices of it on their way to a socket."""

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pylog.errors import StorageError
from pylog.log.index import OffsetIndex, TimeIndex
from pylog.wire.records import HEADER, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, BatchHeader

RECENT_BATCH_COUNT = 512
"""Batch boundaries kept in memory per active segment; 8 KiB, so that a thousand partitions cost 8 MiB.

Consumers that keep up and the high watermark lie within them, and need neither index nor file.
"""

RELATIVE_OFFSET_MAX = 2**31 - 1
"""Largest offset above the base that Kafka's indexes hold."""

SCAN_BYTES = 1 << 14
"""Read at a time when searching headers: four index intervals."""

NO_TIMESTAMP = -1


class Boundary(NamedTuple):
    """Where a batch lies in its segment."""

    position: int
    size_bytes: int


class Segment:
    """A segment's files and what is known about them.

    Attributes:
        fd: the open file, -1 while it is not open; the active segment's always is.
        size_bytes: bytes of whole batches.  Invariant: nothing above is ever read or sent.
        next_offset: offset after the last record.
        max_timestamp: largest timestamp in the segment, -1 if none; `max_timestamp_offset` is the last offset of
            the first batch that has it.
        first_timestamp: largest timestamp of the first batch, from which the age of the segment counts.
        indexed_timestamp: timestamp of the time index's last entry.
        scrubbed_ms: when all of it was last known to be sound, 0 if nobody asked yet.
        generation: grows when bytes that a slice may cover are cut off; see `FileSlice.is_current`.
    """

    __slots__ = (
        "base_offset", "bytes_since_index", "fd", "first_timestamp", "generation", "index", "indexed_timestamp",
        "is_active", "max_timestamp", "max_timestamp_offset", "next_offset", "path", "recent_offsets",
        "recent_positions", "references", "scrubbed_ms", "size_bytes", "time_index",
    )  # fmt: skip

    def __init__(self, directory: Path, base_offset: int) -> None:
        stem = directory / f"{base_offset:020d}"
        self.path = stem.with_suffix(".log")
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.first_timestamp = NO_TIMESTAMP
        self.bytes_since_index = 0
        self.indexed_timestamp = NO_TIMESTAMP
        self.index = OffsetIndex(stem.with_suffix(".index"))
        self.time_index = TimeIndex(stem.with_suffix(".timeindex"))
        self.is_active = False
        self.scrubbed_ms = 0
        self.generation = 0
        self.references = 1  # the log's own
        self.recent_offsets = array("q")
        self.recent_positions = array("q")
        self.fd = -1

    def open(self) -> int:
        """Return the open file; a closed segment is opened when it is first read.

        Raises:
            StorageError: the file cannot be opened.
        """
        if self.fd < 0:
            try:
                self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
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

    def add(self, last_offset: int, size_bytes: int, max_timestamp: int, interval_bytes: int) -> None:
        """Take note of a batch just written at the end."""
        position = self.size_bytes
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index > interval_bytes:
            self.add_index_entry(last_offset, position)
        self.bytes_since_index += size_bytes
        recent = self.recent_offsets
        recent.append(self.next_offset)
        self.recent_positions.append(position)
        if len(recent) >= RECENT_BATCH_COUNT:
            del recent[: RECENT_BATCH_COUNT // 2], self.recent_positions[: RECENT_BATCH_COUNT // 2]
        self.next_offset = last_offset + 1
        self.size_bytes = position + size_bytes

    def add_index_entry(self, last_offset: int, position: int) -> None:
        """Index the batch at *position*, and the largest timestamp so far if it has grown."""
        self.index.append(last_offset - self.base_offset, position)
        self.bytes_since_index = 0
        self.add_time_index_entry()

    def add_time_index_entry(self) -> None:
        """Index the largest timestamp so far if it has grown since the last entry."""
        if self.max_timestamp > self.indexed_timestamp:
            self.indexed_timestamp = self.max_timestamp
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def close_indexes(self) -> bool:
        """Write both indexes to their ends, as a segment that will not grow has them; return whether it worked."""
        if self.size_bytes:
            self.add_time_index_entry()
        return self.index.flush() & self.time_index.flush()

    def skip_to(self, offset: int) -> None:
        """Let the next batch begin at *offset*, after a gap that compaction left."""
        self.forget_recent()  # they stand for offsets without gaps
        self.next_offset = offset

    def note(self, position: int, header: BatchHeader, interval_bytes: int) -> None:
        """Take note of a batch found in the file at *position*, where the known part of the segment ends.

        Raises:
            StorageError: its offsets do not follow what is before, or no index of this segment could name them.
        """
        if header.base_offset < self.next_offset or header.last_offset_delta < 0:
            raise StorageError(f"{self.path}: offset {header.base_offset} at {position}, wanted {self.next_offset}")
        if header.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            # No CRC covers a batch's offset.
            raise StorageError(f"{self.path}: offset {header.last_offset} at {position}, too far from the first")
        if header.base_offset > self.next_offset:
            self.skip_to(header.base_offset)
        if not self.size_bytes:
            self.first_timestamp = header.max_timestamp
        self.add(header.last_offset, header.size_bytes, header.max_timestamp, interval_bytes)

    def walk_tail(self, end: int, interval_bytes: int) -> None:
        """Find the end of offsets and timestamps from the last index entry on; nothing is checked by CRC.

        Raises:
            StorageError: a batch is not where index or file say.
        """
        self.go_back_to(self.index.last(), is_exact=False)
        for position, header in self.batches(self.size_bytes, end):
            self.note(position, header, interval_bytes)

    def read_first_timestamp(self) -> None:
        """Learn from which time the age of the segment counts."""
        for _, header in self.batches():
            self.first_timestamp = header.max_timestamp
            return

    def go_back_to(self, entry: tuple[int, int] | None, *, is_exact: bool = True) -> None:
        """Set what is known of the segment back to just before the batch of an index entry; None: to its beginning.

        Raises:
            StorageError: the entry names no batch that ends with its offset.
        """
        if entry is None:
            entry = (0, 0)
            self.index.replace(())
            self.time_index.replace(())
            self.size_bytes, self.next_offset = 0, self.base_offset
        else:
            relative_offset, position = entry
            _, header = next(self.batches(position, self.path.stat().st_size), (0, None))
            if header is None or header.last_offset != self.base_offset + relative_offset:
                raise StorageError(f"{self.index.path}: entry {entry} names no batch")
            if is_exact:
                self.index.truncate(relative_offset + 1)
                self.time_index.truncate(relative_offset + 1)
            self.size_bytes, self.next_offset = position, header.base_offset
        self.bytes_since_index = 0
        self.forget_recent()
        self.restore_timestamps()

    def restore_timestamps(self) -> None:
        """Take the largest timestamp from the last entry of the time index."""
        timestamp, relative_offset = self.time_index.last() or (-1, 0)
        self.max_timestamp = self.indexed_timestamp = timestamp
        self.max_timestamp_offset = self.base_offset + relative_offset

    def drop_indexes(self) -> None:
        """Remove index files that could not be completed; the next start makes them again.

        Raises:
            OSError: the disk refuses even that.
        """
        self.index.path.unlink(missing_ok=True)
        self.time_index.path.unlink(missing_ok=True)

    def forget_recent(self) -> None:
        """Drop the boundaries in memory; the segment is searched through its index from now on."""
        del self.recent_offsets[:], self.recent_positions[:]

    def find(self, offset: int) -> Boundary | None:
        """Return the first batch whose last offset is at least *offset*: the one that holds it, or follows a gap.

        Raises:
            StorageError: the file cannot be read or holds no batch where one must be.
        """
        recent = self.recent_offsets
        if recent and offset >= recent[0]:
            return self._find_recent(offset)
        floor = self.index.floor(offset - self.base_offset) if offset >= self.base_offset else None
        for position, header in self.batches(floor[1] if floor else 0):
            if header.base_offset + header.last_offset_delta >= offset:
                return Boundary(position, header.size_bytes)
        return None

    def _find_recent(self, offset: int) -> Boundary | None:
        if offset >= self.next_offset:
            return None
        row = bisect_right(self.recent_offsets, offset) - 1
        position = self.recent_positions[row]
        is_last = row + 1 == len(self.recent_positions)
        end = self.size_bytes if is_last else self.recent_positions[row + 1]
        return Boundary(position, end - position)

    def end_position(self, upper_bound_offset: int) -> int:
        """Return the position before which every batch lies wholly below *upper_bound_offset*."""
        if upper_bound_offset >= self.next_offset:
            return self.size_bytes
        recent = self.recent_offsets
        if recent and upper_bound_offset >= recent[0]:
            row = bisect_left(recent, upper_bound_offset)
            if row < len(recent) and recent[row] == upper_bound_offset:
                return self.recent_positions[row]
        found = self.find(upper_bound_offset)
        return found.position if found else self.size_bytes

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


@dataclass(slots=True)
class FileSlice:
    """Bytes of a segment that go to a socket without being read.

    Whoever keeps a slice beyond the current call acquires it, and releases it once.

    Attributes:
        fd: the segment's open file.
        generation: the segment's when the slice was made.
    """

    fd: int
    position: int
    size_bytes: int
    segment: Segment
    generation: int

    def acquire(self) -> None:
        """Keep the file open."""
        self.segment.references += 1

    def release(self) -> None:
        """Let the file close when nobody else holds it."""
        self.segment.release()

    def is_current(self) -> bool:
        """Whether the bytes are still what they were when the slice was made; checked before every send."""
        return self.segment.generation == self.generation

    def is_recent(self, window_bytes: int) -> bool:
        """Whether the slice lies within the last *window_bytes* of the active segment: surely in the page cache."""
        segment = self.segment
        return segment.is_active and segment.size_bytes - self.position <= window_bytes

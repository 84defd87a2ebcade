"""One segment: a file of record batches, its indexes, and slices of it on their way to a socket."""

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pylog.errors import StorageError
from pylog.log.aborted import SUFFIX as ABORTED_SUFFIX
from pylog.log.aborted import TransactionIndex
from pylog.log.batch_file import BatchFile
from pylog.log.config import LogConfig
from pylog.log.index import OffsetIndex, TimeIndex
from pylog.log.transactions import AbortedTransaction
from pylog.wire.records import HEADER_BYTES, BatchHeader

RECENT_BATCH_COUNT = 512
"""Batch boundaries kept in memory per active segment; 8 KiB, so that a thousand partitions cost 8 MiB.

Consumers that keep up and the high watermark lie within them, and need neither index nor file.
"""

RELATIVE_OFFSET_MAX = 2**31 - 1
"""Largest offset above the base that Kafka's indexes hold."""

NO_TIMESTAMP = -1

_NEVER = 2**63 - 1


class Boundary(NamedTuple):
    """Where a batch lies in its segment."""

    position: int
    size_bytes: int


class Segment(BatchFile):
    """A segment's files and what is known about them.

    Attributes:
        aborted: the index of aborted transactions; None if the segment has none.
        next_offset: offset after the last record.
        max_timestamp: largest timestamp in the segment, -1 if none; `max_timestamp_offset` is the last offset of
            the first batch that has it.
        first_timestamp: largest timestamp of the first batch, from which the age of the segment counts.
        indexed_timestamp: timestamp of the time index's last entry.
        scrubbed_ms: when all of it was last known to be sound, 0 if nobody asked yet.
        roll_bytes, roll_timestamp, last_possible_offset: a batch beyond any of these belongs into the next segment;
            kept here, so that an append compares numbers and computes nothing.
    """

    __slots__ = (
        "aborted", "base_offset", "bytes_since_index", "first_timestamp", "index", "indexed_timestamp", "is_active",
        "last_possible_offset", "max_timestamp", "max_timestamp_offset", "next_offset", "recent_offsets",
        "recent_positions", "roll_bytes", "roll_timestamp", "scrubbed_ms", "time_index",
    )  # fmt: skip

    def __init__(self, directory: Path, base_offset: int) -> None:
        stem = directory / f"{base_offset:020d}"
        super().__init__(stem.with_suffix(".log"))
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.first_timestamp = NO_TIMESTAMP
        self.bytes_since_index = 0
        self.indexed_timestamp = NO_TIMESTAMP
        self.index = OffsetIndex(stem.with_suffix(".index"))
        self.time_index = TimeIndex(stem.with_suffix(".timeindex"))
        self.aborted: TransactionIndex | None = None
        self.is_active = False
        self.scrubbed_ms = 0
        self.roll_bytes = self.roll_timestamp = _NEVER
        self.last_possible_offset = base_offset + RELATIVE_OFFSET_MAX
        self.recent_offsets = array("q")
        self.recent_positions = array("q")

    @property
    def index_paths(self) -> list[Path]:
        """The files beside the one with the batches; some may be missing."""
        paths = [self.index.path, self.time_index.path]
        return paths if self.aborted is None else [*paths, self.aborted.path]

    @property
    def paths(self) -> list[Path]:
        """All files; some may be missing."""
        return [self.path, *self.index_paths]

    def add_aborted(self, row: AbortedTransaction) -> None:
        """Take note of a transaction that a marker in this segment, the active one, aborts.

        Raises:
            StorageError: the disk fails.
        """
        if self.aborted is None:
            self.aborted = TransactionIndex(self.path.with_suffix(ABORTED_SUFFIX), is_new=True)
        self.aborted.append(row)

    def limit(self, config: LogConfig) -> None:
        """Let the segment end where *config* says."""
        # An index entry follows at least so many bytes, so this bound keeps both indexes within theirs.
        apart_bytes = max(config.index_interval_bytes + 1, HEADER_BYTES)
        self.roll_bytes = min(config.segment_bytes, config.segment_index_bytes // 12 * apart_bytes)
        is_aging = self.size_bytes or self.first_timestamp >= 0
        self.roll_timestamp = self.first_timestamp + config.roll_ms if is_aging else _NEVER

    def begin(self, timestamp: int, config: LogConfig) -> None:
        """Let the age of the segment count from *timestamp*, that of its first batch."""
        self.first_timestamp = timestamp
        self.limit(config)

    def has_room(self, header: BatchHeader, before_bytes: int = 0) -> bool:
        """Whether a batch that comes *before_bytes* after the end belongs into this segment."""
        if not self.size_bytes and before_bytes:
            return False  # its age counts from its first batch, which must be there before the next is compared
        return (
            self.size_bytes + before_bytes + header.size_bytes <= self.roll_bytes
            and header.max_timestamp <= self.roll_timestamp
            and header.last_offset <= self.last_possible_offset
        )

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
        """Remove index files of offsets and times that could not be completed; the next start makes them again.

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

    def offset_above(self, position: int) -> int:
        """Return an offset above all records that lie before *position*, at most a few batches above.

        Raises:
            StorageError: the index cannot be read.
        """
        recent = self.recent_positions
        if recent and position > recent[0]:
            row = bisect_left(recent, position)
            return self.recent_offsets[row] if row < len(recent) else self.next_offset
        low, high = 0, self.next_offset - self.base_offset
        while low < high:
            middle = (low + high) // 2
            entry = self.index.floor(middle)
            if entry is None or entry[1] < position:
                low = middle + 1
            else:
                high = middle
        return self.base_offset + low

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

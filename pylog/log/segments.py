"""The segments of one log, oldest first: where an offset or a time lies, and which files come and go."""

import contextlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from pylog.log.retention import SegmentFacts
from pylog.log.segment import FileSlice, Segment
from pylog.log.swap import put_in_place
from pylog.log.transactions import AbortedTransaction
from pylog.model import Offset


class Segments:
    """At least one segment; the last one is active.

    What the disk refuses comes out as OSError, what a file should hold and does not as StorageError; in both cases the
    log goes offline.
    """

    __slots__ = ("_closed_bytes", "_directory", "_rows", "active")

    def __init__(self, directory: Path, rows: Sequence[Segment]) -> None:
        self._directory = directory
        self._rows = list(rows)
        self._activate_last()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._rows)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._closed_bytes + self.active.size_bytes

    @property
    def base_offset(self) -> Offset:
        """Base offset of the oldest segment."""
        return self._rows[0].base_offset

    def slice(
        self, offset: Offset, max_bytes: int, upper_bound_offset: Offset, min_one_batch: bool
    ) -> FileSlice | None:
        """Return the bytes from the batch that holds *offset* on; see `Log.read`."""
        rows = self._rows
        row = len(rows) - 1
        segment = self.active
        if offset < segment.base_offset:
            row = bisect_right(rows, offset, key=_base_offset_of) - 1
            segment = rows[row]
        while (first := segment.find(offset)) is None:
            # Compaction left nothing at or above the offset in this segment.
            row += 1
            if row == len(rows):
                return None
            segment = rows[row]
        size_bytes = segment.end_position(upper_bound_offset) - first.position
        if size_bytes <= 0:
            return None
        if size_bytes > max_bytes:
            size_bytes = max_bytes
            if size_bytes < first.size_bytes:
                if not min_one_batch:
                    return None
                size_bytes = first.size_bytes
        return FileSlice(segment.open(), first.position, size_bytes, segment, segment.generation)

    def aborted(self, first: Segment, fetch_offset: Offset, end_offset: Offset) -> list[AbortedTransaction]:
        """Return the aborted transactions that may have records in *first* between two offsets."""
        found: list[AbortedTransaction] = []
        for segment in self._rows[self._rows.index(first) :]:
            if segment.aborted is not None:
                rows, is_complete = segment.aborted.overlapping(fetch_offset, end_offset)
                found += rows
                if is_complete:
                    break
        return found

    def part_not_older(self, timestamp: int, from_offset: Offset) -> FileSlice | None:
        """Return the rest of the first segment that may have a record of *timestamp* or later from *from_offset* on.

        It begins with a batch: every record before it is older, or below *from_offset*.
        """
        for segment in self._rows:
            if segment.max_timestamp < timestamp or segment.next_offset <= from_offset:
                continue
            floor = segment.time_index.floor(timestamp)
            start = max(segment.base_offset + floor[1] if floor else segment.base_offset, from_offset)
            if (first := segment.find(start)) is not None:
                size_bytes = segment.size_bytes - first.position
                return FileSlice(segment.open(), first.position, size_bytes, segment, segment.generation)
        return None

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of all segments, -1 if there is none."""
        return max(segment.max_timestamp for segment in self._rows)

    def between(self, start: Offset, end: Offset) -> list[Segment]:
        """Return the segments that hold anything from *start* up to *end*."""
        return [segment for segment in self._rows if segment.next_offset > start and segment.base_offset < end]

    def wholly_below(self, offset: Offset) -> int:
        """Return how many closed segments end at or below *offset*."""
        return sum(segment.next_offset <= offset for segment in self._rows[:-1])

    def facts(self) -> list[SegmentFacts]:
        """Return what retention decides by."""
        return [
            SegmentFacts(
                segment.base_offset,
                segment.next_offset,
                segment.size_bytes,
                segment.max_timestamp,
                segment.path.stat().st_mtime_ns // 1_000_000,
                segment.is_active,
            )
            for segment in self._rows
        ]

    def begin(self, base_offset: Offset) -> None:
        """Close the active segment and begin one at *base_offset*; if that fails, nothing has changed."""
        new = Segment(self._directory, base_offset)
        new.create()
        old = self.active
        old.is_active = False
        old.close_indexes()
        old.forget_recent()
        if old.aborted is not None:
            old.aborted.forget()
        self._rows.append(new)
        self._activate_last()

    def first_offset_after(self, count: int) -> Offset:
        """Return where the log will begin without its oldest *count* segments."""
        return self._rows[count].base_offset

    def drop_first(self, count: int) -> list[Path]:
        """Take the oldest *count* segments out; return the files that are left to be removed."""
        dropped = self._rows[:count]
        del self._rows[:count]
        self._closed_bytes -= sum(segment.size_bytes for segment in dropped)
        return _retire(dropped)

    def replace(self, old: Sequence[Segment], new: Segment) -> list[Path]:
        """Put *new*, which holds what is left of neighbours *old*, in their place; return the files to be removed.

        Readers with a slice of an old segment keep its bytes, which do not change.
        """
        row = self._rows.index(old[0])
        paths = put_in_place(old, new)
        self._rows[row : row + len(old)] = [new]
        for segment in old:
            segment.release()
        self._closed_bytes = sum(segment.size_bytes for segment in self._rows[:-1])
        return paths

    def holds(self, segments: Sequence[Segment]) -> bool:
        """Whether *segments* are still here, side by side."""
        if segments[0] not in self._rows:
            return False
        row = self._rows.index(segments[0])
        return self._rows[row : row + len(segments)] == list(segments)

    def cut_offset(self, offset: Offset) -> Offset:
        """Return where `cut` at *offset* leaves the end: behind the last batch that lies wholly below.

        A batch that reaches across goes whole, and compaction may have left nothing just before it.
        """
        segment = self._rows[bisect_right(self._rows, offset, key=_base_offset_of) - 1]
        boundary = segment.find(offset)
        position = boundary.position if boundary else segment.size_bytes
        for _, header in segment.batches(position) if boundary else ():
            offset = min(offset, header.base_offset)
            break
        floor = segment.index.floor(offset - 1 - segment.base_offset) if offset > segment.base_offset else None
        end_offset = segment.base_offset
        for _, header in segment.batches(floor[1] if floor else 0, position):
            end_offset = header.last_offset + 1
        return end_offset

    def begins_at(self, offset: Offset) -> bool:
        """Whether a segment begins at *offset*."""
        row = bisect_right(self._rows, offset, key=_base_offset_of)
        return row > 0 and self._rows[row - 1].base_offset == offset

    def next_batch_offset(self, offset: Offset) -> Offset | None:
        """Return the base offset of the batch that has *offset* or, in a gap, of the one behind; None without any."""
        for segment in self._rows[max(bisect_right(self._rows, offset, key=_base_offset_of) - 1, 0) :]:
            boundary = segment.find(offset)
            for _, header in segment.batches(boundary.position) if boundary else ():
                return header.base_offset
        return None

    def cut(self, offset: Offset, interval_bytes: int) -> list[Path]:
        """Drop everything at or above *offset*, which lies in a segment; return the files left to be removed.

        What needs a descriptor comes first: if there is none, nothing has been cut.
        """
        above = sum(segment.base_offset > offset for segment in self._rows)
        segment = self._rows[len(self._rows) - 1 - above]
        boundary = segment.find(offset)
        end = boundary.position if boundary else segment.size_bytes
        segment.open()
        if segment.aborted is not None:
            segment.aborted.entries()
        segment.index.truncate(offset - segment.base_offset)
        segment.time_index.truncate(offset - segment.base_offset)
        if segment.aborted is not None:
            segment.aborted.truncate(offset)
        paths = self._drop_last(above)
        segment.generation += 1
        os.ftruncate(segment.fd, end)
        segment.walk_tail(end, interval_bytes)
        segment.read_first_timestamp()
        self._activate_last()
        return paths

    def spare(self, base_offset: Offset) -> Segment:
        """Return an empty segment at *base_offset* for `begin_anew`; if that fails, nothing has changed."""
        segment = Segment(self._directory, base_offset)
        # Under another name, which one of the old files may have, so that there is a log in any case.
        segment.path = segment.path.with_name(segment.path.name + ".tmp")
        segment.create()
        return segment

    def begin_anew(self, spare: Segment) -> list[Path]:
        """Drop everything and begin with *spare*; return the files left to be removed."""
        paths = self._drop_last(len(self._rows))
        spare.path = spare.path.rename(spare.path.with_suffix(""))
        self._rows.append(spare)
        self._activate_last()
        return paths

    def close_indexes(self) -> None:
        """Write all indexes to their ends; what cannot be written is removed and made again at the next start."""
        for segment in self._rows:
            if not segment.close_indexes():
                segment.drop_indexes()

    def flush_aborted(self, segments: Sequence[Segment] | None = None) -> None:
        """Write the rows of aborted transactions that are in memory only.

        Raises:
            ApiError: no descriptor or no room now.
            StorageError: the disk fails.
        """
        for segment in self._rows if segments is None else segments:
            if segment.aborted is not None:
                segment.aborted.flush()

    def release(self) -> None:
        """Let go of all files; readers that hold a slice keep theirs until they are done."""
        for segment in self._rows:
            segment.is_active = False
            segment.release()
        self._rows.clear()

    def _drop_last(self, count: int) -> list[Path]:
        kept = len(self._rows) - count
        dropped = self._rows[kept:]
        del self._rows[kept:]
        for segment in dropped:
            segment.generation += 1
        return _retire(dropped)

    def _activate_last(self) -> None:
        self.active = self._rows[-1]
        self.active.open()
        self.active.is_active = True
        self._closed_bytes = sum(segment.size_bytes for segment in self._rows[:-1])


def _base_offset_of(segment: Segment) -> Offset:
    return segment.base_offset


def _retire(segments: Sequence[Segment]) -> list[Path]:
    """Rename files to `.deleted`, which is quick; removing a GiB is not.  Readers with a slice keep their bytes."""
    paths: list[Path] = []
    for segment in segments:
        for path in segment.paths:
            gone = path.with_name(path.name + ".deleted")
            with contextlib.suppress(FileNotFoundError):
                path.rename(gone)
                paths.append(gone)
        segment.is_active = False
        segment.release()
    return paths

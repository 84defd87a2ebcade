"""The two sparse indexes of a segment, in Kafka's format.

.index     => entry*   entry => relative_offset: uint32, position: uint32        floor: offset -> position
.timeindex => entry*   entry => timestamp: int64, relative_offset: uint32        floor: timestamp -> offset

Relative offsets count from the segment's base offset, and name the last record of a batch.  Both keys grow strictly.
An index is a hint that can always be made again from its segment, so it is written lazily, a failed write only keeps
the entries in memory, and a failed read only makes the search longer.

Source: Kafka's OffsetIndex and TimeIndex.
"""

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

BLOCK_ENTRY_COUNT = 512
"""Entries read, cached and written at a time: 4 KiB of index, 2 MiB of log.

A thousand active segments then hold 20 MB of entries at most, where whole indexes would hold 5 MB for each GiB.
"""


class SparseIndex:
    """A growing list of (key, value) entries: all but the newest in a file, the newest in memory.

    Attributes:
        flushed_count: entries in the file.  Invariant: the file's first `flushed_count` entries are valid.
    """

    __slots__ = (
        "_block", "_block_keys", "_block_number", "_is_file_longer", "_keys", "_values", "flushed_count", "path",
    )  # fmt: skip
    entry = struct.Struct(">II")
    key_type = "I"

    def __init__(self, path: Path, flushed_count: int = 0) -> None:
        self.path = path
        self.flushed_count = flushed_count
        self._is_file_longer = False  # entries that were dropped are still in the file
        self._keys = array(self.key_type)
        self._values = array("I")
        # First key of every block in the file, and the block read last; a reader that moves on finds most there.
        self._block_keys: array[int] | None = None
        self._block_number = -1
        self._block = array(self.key_type), array("I")

    @classmethod
    def count_on_disk(cls, path: Path) -> int:
        """Return how many entries the file holds; -1 if it is missing or no whole number of entries."""
        try:
            count, rest = divmod(path.stat().st_size, cls.entry.size)
        except FileNotFoundError:
            return -1
        return -1 if rest else count

    def __len__(self) -> int:
        return self.flushed_count + len(self._keys)

    def append(self, key: int, value: int) -> None:
        """Add an entry; *key* is above all before it."""
        self._keys.append(key)
        self._values.append(value)
        if not len(self._keys) % BLOCK_ENTRY_COUNT:
            self.flush()

    def floor(self, key: int) -> tuple[int, int] | None:
        """Return the entry with the greatest key not above *key*."""
        keys = self._keys
        if keys and keys[0] <= key:
            row = bisect_right(keys, key) - 1
            return keys[row], self._values[row]
        if not self.flushed_count:
            return None
        try:
            number = bisect_right(self._first_keys(), key) - 1
            if number < 0:
                return None
            keys, values = self._read_block(number)
        except OSError:
            return None
        row = bisect_right(keys, key) - 1
        return keys[row], values[row]

    def last(self) -> tuple[int, int] | None:
        """Return the last entry.

        Raises:
            OSError: the file cannot be read; make the index again.
        """
        if self._keys:
            return self._keys[-1], self._values[-1]
        if not self.flushed_count:
            return None
        return self._read_rows(self.flushed_count - 1, 1)[0]

    def entries(self) -> Iterator[tuple[int, int]]:
        """Yield every entry in order."""
        if self.flushed_count:
            yield from self._read_rows(0, self.flushed_count)
        yield from zip(self._keys, self._values, strict=True)

    def replace(self, entries: Iterable[tuple[int, int]]) -> None:
        """Hold exactly *entries*, all in memory until the next flush."""
        found = list(entries)
        self.flushed_count = 0
        self._keys = array(self.key_type, [key for key, _ in found])
        self._values = array("I", [value for _, value in found])
        self._forget()

    def _count_below(self, relative_offset: int, column: int) -> int:
        """Return how many entries have less than *relative_offset* in *column*; both columns grow."""
        memory = (self._keys, self._values)[column]
        if memory and memory[0] < relative_offset:
            return self.flushed_count + bisect_left(memory, relative_offset)
        # An index of a GiB has 260,000 entries: looking at eighteen of them is quicker than reading all.
        rows = range(self.flushed_count)
        return bisect_left(rows, relative_offset, key=lambda row: self._read_rows(row, 1)[0][column])

    def _keep(self, count: int) -> None:
        """Drop all entries after the first *count*."""
        if count > self.flushed_count:
            del self._keys[count - self.flushed_count :], self._values[count - self.flushed_count :]
            return
        # The last entry goes to memory, so that `last` answers without the file.
        last = self._read_rows(count - 1, 1) if count else []
        self.replace(last)
        self.flushed_count = count - len(last)
        self._is_file_longer = True

    def flush(self) -> bool:
        """Write what only memory holds; return whether the file is complete.

        A disk that refuses costs nothing but memory: the entries stay here, and a later flush tries again.
        """
        if not self._keys and self.flushed_count and not self._is_file_longer:
            return True
        start = self.flushed_count * self.entry.size
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.ftruncate(fd, start)  # what a refused write or a former life left behind
                data = b"".join(map(self.entry.pack, self._keys, self._values))
                if os.pwrite(fd, data, start) != len(data):
                    return False
            finally:
                os.close(fd)
        except OSError:
            return False
        self._is_file_longer = False
        self._count_flushed()
        return True

    def _count_flushed(self) -> None:
        old_count, self.flushed_count = self.flushed_count, self.flushed_count + len(self._keys)
        if self._block_keys is not None:
            first_row = -old_count % BLOCK_ENTRY_COUNT
            self._block_keys.fromlist(self._keys[first_row::BLOCK_ENTRY_COUNT].tolist())
        if self._block_number == old_count // BLOCK_ENTRY_COUNT:
            self._block_number = -1  # the cached block has grown
        del self._keys[:], self._values[:]

    def _forget(self) -> None:
        self._block_keys = None
        self._block_number = -1
        self._block = array(self.key_type), array("I")

    def _first_keys(self) -> "array[int]":
        if self._block_keys is None:
            data, size = self._read(0, self.flushed_count), self.entry.size
            starts = range(0, len(data), BLOCK_ENTRY_COUNT * size)
            self._block_keys = array("q", [self.entry.unpack_from(data, start)[0] for start in starts])
        return self._block_keys

    def _read_block(self, number: int) -> "tuple[array[int], array[int]]":
        if number != self._block_number:
            row = number * BLOCK_ENTRY_COUNT
            rows = self._read_rows(row, min(BLOCK_ENTRY_COUNT, self.flushed_count - row))
            self._block = array(self.key_type, [key for key, _ in rows]), array("I", [value for _, value in rows])
            self._block_number = number
        return self._block

    def _read_rows(self, row: int, count: int) -> list[tuple[int, int]]:
        return [(key, value) for key, value in self.entry.iter_unpack(self._read(row, count))]

    def _read(self, row: int, count: int) -> bytes:
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, count * self.entry.size, row * self.entry.size)
        finally:
            os.close(fd)
        if len(data) != count * self.entry.size:
            raise OSError(f"{self.path}: entries {row} to {row + count} are not there")
        return data


class OffsetIndex(SparseIndex):
    """Relative offset -> position of the batch that ends with it."""

    __slots__ = ()

    def truncate(self, relative_offset: int) -> None:
        """Drop entries at or above *relative_offset*; if the file cannot be read, nothing has changed.

        Raises:
            OSError: the file cannot be read.
        """
        self._keep(self._count_below(relative_offset, 0))


class TimeIndex(SparseIndex):
    """Largest timestamp so far -> relative offset of the batch that brought it."""

    __slots__ = ()
    entry = struct.Struct(">qI")
    key_type = "q"

    def truncate(self, relative_offset: int) -> None:
        """Drop entries whose offset is at or above *relative_offset*; see `OffsetIndex.truncate`."""
        self._keep(self._count_below(relative_offset, 1))

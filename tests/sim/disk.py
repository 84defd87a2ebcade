"""Disks that forget: what was written and not synced may be gone, or half there, after a power cut.

Data lies in real files on a file system in memory.  Of each file is remembered what its last sync made safe; a power
cut leaves a part of what was written since.  Names (creations, renames, deletions) are safe at once: that is what a
journaling file system does in practice, and what it does not promise is not simulated.
"""

import errno
import os
import random
import stat
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pylog.log.directory import RESERVE
from tests.sim.world import CURRENT, Process


class Real(NamedTuple):
    """The operating system's own functions."""

    open: Callable[..., int]
    close: Callable[[int], None]
    pwrite: Callable[[int, Any, int], int]
    pread: Callable[[int, int, int], bytes]
    ftruncate: Callable[[int, int], None]
    fsync: Callable[[int], None]


NUMBER_BYTES = 4
"""A small file torn so close to its end looks whole unless one looks closely."""

REAL = Real(os.open, os.close, os.pwrite, os.pread, os.ftruncate, os.fsync)


def read_file(path: Path | str, position: int, size: int) -> bytes:
    """Return so many bytes of a file, whatever befalls its disk."""
    fd = REAL.open(path, os.O_RDONLY)
    try:
        return REAL.pread(fd, size, position)
    finally:
        REAL.close(fd)


@dataclass(slots=True)
class _Safe:
    """What of a file survives: *content*, and from *dirty_from* on the file may differ from it."""

    content: bytearray
    dirty_from: int


class Disks:
    """The data directories of all hosts.

    Attributes:
        full: hosts whose disk takes nothing more.
        boots: how often the power of each host was cut.
        failing: hosts whose disk fails every sync, and drops what was not synced.
        unreadable: hosts whose next reads of a file fail, and how many of them.
        starved: hosts whose processes may open nothing more.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._safe: dict[int, _Safe] = {}
        self.full: set[str] = set()
        self.failing: set[str] = set()
        self.boots: Counter[str] = Counter()
        self.unreadable: dict[str, int] = {}
        self.starved: set[str] = set()

    # -- stand in for functions of `os` -----------------------------------------------------------------------------

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """As `os.open`; the descriptor closes with its process, and a full disk takes no further file."""
        process = CURRENT.get()
        if process is not None and process.host in self.starved:
            raise OSError(errno.EMFILE, "Too many open files")
        if process is not None and process.host in self.full and flags & os.O_CREAT and not Path(path).exists():
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        fd = REAL.open(path, flags, mode, dir_fd=dir_fd)
        if process is not None:
            process.fds.add(fd)
        return fd

    def close(self, fd: int) -> None:
        """As `os.close`, and nothing for a descriptor that a killed process left behind."""
        process = CURRENT.get()
        if process is not None:
            if fd not in process.fds:
                return
            process.fds.discard(fd)
        REAL.close(fd)

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        """As `os.pwrite`."""
        process = CURRENT.get()
        if process is not None and process.host in self.full:
            half = memoryview(data)[: len(data) // 2]
            if not len(half):
                raise OSError(errno.ENOSPC, "No space left on device")
            self._touch(fd, position)
            REAL.pwrite(fd, half, position)
            raise OSError(errno.ENOSPC, "No space left on device")
        self._touch(fd, position)
        return REAL.pwrite(fd, data, position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """As `os.pread`."""
        process = CURRENT.get()
        if process is not None and self.unreadable.get(process.host, 0):
            self.unreadable[process.host] -= 1
            raise OSError(errno.EIO, "Input/output error")
        return REAL.pread(fd, size, position)

    def ftruncate(self, fd: int, size: int) -> None:
        """As `os.ftruncate`."""
        self._touch(fd, size)
        REAL.ftruncate(fd, size)

    def fsync(self, fd: int) -> None:
        """Make what the file holds now safe."""
        process = CURRENT.get()
        if process is not None and process.host in self.failing:
            raise OSError(errno.EIO, "Input/output error")
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            return
        safe = self._safe.get(found.st_ino)
        if safe is None:
            safe = self._safe[found.st_ino] = _Safe(bytearray(), 0)
        start = min(safe.dirty_from, len(safe.content))
        safe.content[start:] = read_file(f"/proc/self/fd/{fd}", start, max(found.st_size - start, 0))
        safe.dirty_from = len(safe.content)

    def _touch(self, fd: int, position: int) -> None:
        safe = self._safe.get(os.fstat(fd).st_ino)
        if safe is not None:
            safe.dirty_from = min(safe.dirty_from, position)

    # -- what happens to them ----------------------------------------------------------------------------------------

    def forget(self, process: Process) -> None:
        """Close what a killed process had open, and with it its locks."""
        for fd in sorted(process.fds):
            REAL.close(fd)
        process.fds.clear()

    def cut_power(self, directory: Path, *, torn: str = "", to_the_last_sync: bool = False) -> int:
        """Leave of every file below *directory* what a power cut leaves; return how many bytes that cost.

        Of files named *torn* the last number loses a digit or two, unless it was synced.  How much of the rest was
        written back is by lot; *to_the_last_sync*: nothing was.
        """
        lost = 0
        self.boots[directory.name] += 1
        for path in sorted(path for path in directory.rglob("*") if path.is_file() and path.name != RESERVE):
            safe = self._safe.get(path.stat().st_ino)
            now = path.read_bytes()
            before = bytes(safe.content) if safe is not None else b""
            start = min(safe.dirty_from, len(before)) if safe is not None else 0
            # Written back in order, up to somewhere; what lies behind is as it was.
            end = self._chance.choice((start, self._tear(start, len(now)), self._tear(start, len(now)), len(now)))
            if path.name == torn:
                end = max(start, len(now) - self._chance.randint(2, 3))
            left = before if to_the_last_sync or end < start else now[:end] + before[end:]
            if left != now:
                lost += max(len(now) - len(left), 0)
                path.write_bytes(left)
                self._safe[path.stat().st_ino] = _Safe(bytearray(left), len(left))
        return lost

    def _tear(self, start: int, end: int) -> int:
        """Return where between two positions writing stopped: anywhere, or inside the last number of a text."""
        low = self._chance.choice((start, max(start, end - NUMBER_BYTES)))
        return self._chance.randint(low, max(end, low))

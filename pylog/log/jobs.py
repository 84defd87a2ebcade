"""Work that may wait for a disk; the log hands it out and starts no thread itself.

`run` is called in any thread and touches nothing but files.  `finish` is called afterwards where the log lives.
"""

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pylog.log.log import Log
    from pylog.log.segment import Segment

_logger = logging.getLogger(__name__)


class Job(Protocol):
    """Something to run elsewhere, then to finish here."""

    def run(self) -> None:
        """Do the waiting part, in any thread."""

    def finish(self) -> None:
        """Take note of the outcome, in the log's own thread.

        Raises:
            StorageError: it failed, and the partition is offline.
        """


class SyncJob:
    """Make everything of a log below `end_offset` survive a power cut, then move its recovery point."""

    def __init__(
        self, log: "Log", segments: "Sequence[Segment]", end_offset: int, truncation_count: int, paths: Sequence[Path]
    ) -> None:
        """Hold *segments* open until `finish`; *paths* are synced after them: indexes, and the directory with names."""
        self.log = log
        self.end_offset = end_offset
        self._truncation_count = truncation_count
        self._segments = list(segments)
        self._paths = list(paths)
        self._error: OSError | None = None
        self._is_run = False
        for segment in self._segments:
            segment.acquire()
        self._fds = [segment.open() for segment in self._segments]

    def run(self) -> None:
        """Sync the segments, then what goes with them."""
        try:
            for fd in self._fds:
                os.fdatasync(fd)
            for path in self._paths:
                # Retention or truncation may have taken the segment away meanwhile; then there is nothing to keep.
                with contextlib.suppress(FileNotFoundError):
                    sync_path(path)
            self._is_run = True
        except OSError as error:
            self._error = error

    def finish(self) -> None:
        """Move the recovery point, or take the log offline."""
        for segment in self._segments:
            segment.release()
        self._segments = []
        if self._error is not None:
            message = f"{self.log.directory}: sync failed: {self._error.strerror}"
            raise self.log.go_offline(message) from self._error
        assert self._is_run, f"the sync of {self.log.directory} up to {self.end_offset} is finished before it was run"
        self.log.note_synced(self.end_offset, self._truncation_count)


class UnlinkJob:
    """Free the blocks of deleted files; for a GiB that takes too long for a loop."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._error: OSError | None = None

    def run(self) -> None:
        """Remove the files."""
        for path in self._paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self._error = error

    def finish(self) -> None:
        """Report a file that would not go; it keeps its `.deleted` suffix, and the next start tries again."""
        if self._error is not None:
            _logger.warning("cannot remove file=%s reason=%s", self._error.filename, self._error.strerror)


def sync_path(path: Path) -> None:
    """Sync one file or directory by name.

    Raises:
        OSError: the disk refuses, or nothing has that name.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

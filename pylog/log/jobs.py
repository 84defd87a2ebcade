"""Work that may wait for a disk; the log hands it out and starts no thread itself.

`run` is called in any thread and touches nothing but files.  `finish` is called afterwards where the log lives.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from pylog.errors import StorageError
from pylog.log.checkpoint import sync_path
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
    """Make segments survive a power cut, then say so."""

    def __init__(
        self,
        segments: Sequence[Segment],
        paths: Sequence[Path],
        *,
        on_done: Callable[[], None],
        on_error: Callable[[OSError], StorageError],
    ) -> None:
        """Hold *segments* open until `finish`.

        Args:
            segments: synced first.
            paths: synced after them: indexes, and the directories with names.
            on_done: called by `finish` when all of it was synced.
            on_error: called by `finish` when the disk failed; returns the error to raise.
        """
        self._on_done = on_done
        self._on_error = on_error
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
        """Release the segments and report the outcome.

        Raises:
            StorageError: the disk failed; it is what `on_error` returned.
        """
        for segment in self._segments:
            segment.release()
        self._segments = []
        if self._error is not None:
            raise self._on_error(self._error) from self._error
        assert self._is_run, f"the sync of {self._paths or self._fds} is finished before it was run"
        self._on_done()


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

"""Work that may wait for a disk; the log hands it out and starts no thread itself.

`run` is called in any thread and touches nothing but files.  `finish` is called afterwards where the log lives.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from pylog.errors import StorageError
from pylog.log.batch_file import NO_DESCRIPTORS, OutOfDescriptors
from pylog.log.checkpoint import sync_path
from pylog.log.segment import Segment

_logger = logging.getLogger(__name__)


WORK_S = 0.002
"""How long a job that computes works at a time.  It shares the interpreter with the event loop, so it sleeps as long
after that."""

DESCRIPTOR_WAIT_S = 0.1
DESCRIPTOR_ATTEMPTS = 600
"""A minute in which somebody may close files or connections; who leaks them needs a new process anyway."""

_Result = TypeVar("_Result")


def patiently(work: Callable[[], _Result]) -> _Result:
    """Return what *work* returns; where it finds no descriptor to open a file with, wait and call it again.

    Only for jobs' threads: the loop must not wait, since it is what closes connections.

    Raises:
        OSError: what *work* raised, of another kind or too often.
        OutOfDescriptors: too often.
    """
    for _ in range(DESCRIPTOR_ATTEMPTS - 1):
        try:
            return work()
        except OutOfDescriptors:
            pass
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
        time.sleep(DESCRIPTOR_WAIT_S)
    return work()


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
        self._fds = [segment.open() for segment in self._segments]
        for segment in self._segments:
            segment.acquire()

    def run(self) -> None:
        """Sync the segments, then what goes with them."""
        try:
            for fd in self._fds:
                os.fdatasync(fd)
            for path in self._paths:
                # Retention or truncation may have taken the segment away meanwhile; then there is nothing to keep.
                with contextlib.suppress(FileNotFoundError):
                    patiently(partial(sync_path, path))
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


class Breath:
    """Gives the interpreter away every few milliseconds."""

    def __init__(self) -> None:
        self._since_s = time.monotonic()

    def take(self) -> None:
        """Sleep, if it is time to."""
        now_s = time.monotonic()
        if now_s - self._since_s >= WORK_S:
            time.sleep(now_s - self._since_s)
            self._since_s = time.monotonic()


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

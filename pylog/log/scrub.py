"""Scrubbing: closed segments are read again now and then, so that damage is found before a reader is given it.

A fetch sends a segment's bytes without looking at them, so a bit that flipped on the disk would be served.  Every batch
was checked when it was written; from then on each closed segment is checked once an interval, slowly, in a thread.
Damage takes the partition offline: another replica leads, or nobody is served what was never written.
"""

import errno
import logging
import os
import time

from crc32c import crc32c

from pylog.errors import StorageError
from pylog.log.log import Log
from pylog.log.segment import Segment
from pylog.wire.records import CRC_START

_logger = logging.getLogger(__name__)

BYTES_PER_SECOND = 8 << 20
"""How fast a segment is read; a terabyte takes a day and a half, the disk hardly notices."""

_WINDOW_BYTES = 1 << 20
"""Read, and dropped from the page cache if it was not there before, at a time."""


def due_segment(log: Log, now_ms: int, interval_ms: int) -> Segment | None:
    """Return the closed segment that was checked longest ago, if that is *interval_ms* or more."""
    if log.offline is not None:
        return None
    due = [(checked_ms(segment), segment) for segment in log.segments[:-1]]
    oldest = min(due, key=lambda one: one[0], default=None)
    return oldest[1] if oldest is not None and now_ms - oldest[0] >= interval_ms else None


def checked_ms(segment: Segment) -> int:
    """Return when a segment was last known to be sound: when it was scrubbed, or else when it was written."""
    if not segment.scrubbed_ms:
        try:
            segment.scrubbed_ms = segment.path.stat().st_mtime_ns // 1_000_000
        except OSError:
            return 1 << 62  # gone, or its disk is: no matter of ours
    return segment.scrubbed_ms


class ScrubJob:
    """Check every batch of one closed segment.

    Attributes:
        is_cancelled: set to have `run` end soon, with nothing found.
        error: what is wrong with the segment.
    """

    def __init__(self, log: Log, segment: Segment, bytes_per_second: int = BYTES_PER_SECOND) -> None:
        """Hold *segment* open until `finish`.

        Raises:
            OutOfDescriptors: not now.
        """
        self.log = log
        self.is_cancelled = False
        self.error: StorageError | None = None
        self._segment = segment
        self._generation = segment.generation
        self._size_bytes = segment.size_bytes
        self._bytes_per_second = bytes_per_second
        segment.open()
        segment.acquire()

    def run(self) -> None:
        """Read the segment, at a pace."""
        checked_bytes = 0
        try:
            while checked_bytes < self._size_bytes and not self.is_cancelled:
                was_cached = _is_cached(self._segment.fd, checked_bytes)
                begun = checked_bytes
                checked_bytes = self._check_window(begun)
                if not was_cached:
                    os.posix_fadvise(self._segment.fd, begun, checked_bytes - begun, os.POSIX_FADV_DONTNEED)
                self._rest((checked_bytes - begun) / self._bytes_per_second)
        except StorageError as error:
            self.error = error
        except OSError as error:
            self.error = StorageError(f"{self._segment.path}: {error.strerror} at {checked_bytes}")

    def _check_window(self, start: int) -> int:
        """Check the batches that begin within a window; return where the next one begins."""
        for position, header in self._segment.batches(start, self._size_bytes):
            if position - start >= _WINDOW_BYTES:
                return position
            batch = self._segment.read_batch(position, header.size_bytes)
            if crc32c(batch[CRC_START:]) != header.crc:
                raise StorageError(
                    f"{self._segment.path}: the batch at {position}, offsets {header.base_offset} to "
                    f"{header.last_offset}, fails its CRC"
                )
        return self._size_bytes

    def _rest(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while not self.is_cancelled and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, 0.05))

    def finish(self, now_ms: int = 0) -> None:
        """Note that the segment is sound, or take the partition offline."""
        is_current = self._segment.generation == self._generation and self.log.has_segments([self._segment])
        self._segment.release()
        if self.is_cancelled or not is_current:
            return  # what was read may be gone by now, and says nothing of what is there
        if self.error is None:
            self._segment.scrubbed_ms = now_ms
        elif self.log.offline is None:
            _logger.error("damage found partition=%s reason=%s", self.log.topic_partition, self.error)
            self.log.go_offline(str(self.error))


def _is_cached(fd: int, position: int) -> bool:
    try:
        os.preadv(fd, [bytearray(1)], position, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
            return False
        raise
    return True

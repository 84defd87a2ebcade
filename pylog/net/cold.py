"""Whether bytes of a file are in the page cache, and bringing them in.

A page fault inside sendfile stops the whole event loop, so bytes that may be cold are probed first and read in by a
thread.  The probe is `preadv` with RWF_NOWAIT, which answers EAGAIN instead of waiting for the disk.
"""

import errno
import os

CHUNK_BYTES = 256 * 1024
"""Sent, probed and read in at a time."""

HOT_WINDOW_BYTES = 64 << 20
"""The end of the active segment that was written so lately that nothing has to be probed."""

_PROBE_STRIDE = 64 * 1024  # read-ahead brings in at least this much at once, so probing finer finds nothing more


def is_cached(fd: int, position: int, size_bytes: int) -> bool:
    """Whether reading these bytes would not wait, as far as probes every 64 KiB can tell."""
    probe = [bytearray(1)]
    last = position + size_bytes - 1
    try:
        for at in (*range(position, last, _PROBE_STRIDE), last):
            os.preadv(fd, probe, at, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
            return False
        raise
    return True


def read_in(fd: int, position: int, size_bytes: int) -> None:
    """Read the bytes and drop them, which leaves them in the page cache; for a thread.

    Raises:
        OSError: the disk refuses.
    """
    buffer = bytearray(min(size_bytes, CHUNK_BYTES))
    end = position + size_bytes
    while position < end:
        count = os.preadv(fd, [memoryview(buffer)[: end - position]], position)
        if not count:
            return
        position += count

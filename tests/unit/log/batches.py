"""Batches and logs for the tests of this directory."""

import os
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pylog.log.config import LogConfig
from pylog.log.log import AppendResult, Log
from pylog.log.segment import FileSlice, Segment
from pylog.model import Offset, TopicPartition
from pylog.wire.records import Record, check_batch, encode_batch, iter_batches

PARTITION = TopicPartition("clicks", 0)
SMALL = LogConfig(segment_bytes=1024, index_interval_bytes=200)
"""Rolls after a handful of batches and indexes every other one."""


def batch(
    count: int = 1,
    *,
    timestamp: int = 1_000,
    value: bytes = b"v" * 30,
    base_offset: Offset = 0,
    **fields: Any,
) -> memoryview:
    """Return a writable batch of *count* records, a millisecond apart, as a producer sends it."""
    records = [Record(base_offset + number, timestamp + number, None, value) for number in range(count)]
    return memoryview(bytearray(encode_batch(records, base_offset=base_offset, **fields)))


OPENED: list[Log] = []
"""Logs of the running test; each holds files, of which a process may have only so many open."""


def open_log(
    directory: Path,
    config: LogConfig = SMALL,
    *,
    clean: bool = False,
    recovery_point: Offset = 0,
    log_start_offset: Offset = 0,
    now_ms: int = 0,
) -> Log:
    """Open the log in *directory* with everything readable."""
    log = Log.open(
        directory, PARTITION, config, now_ms=now_ms, clean=clean, recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )  # fmt: skip
    log.high_watermark = log.log_end_offset
    OPENED.append(log)
    return log


def append(log: Log, view: memoryview | None = None, *, epoch: int = 0, now_ms: int = 0, **fields: Any) -> AppendResult:
    """Append a batch as the leader and let consumers see it."""
    view = batch(**fields) if view is None else view
    result = log.append_as_leader(view, check_batch(view), epoch, now_ms)
    log.high_watermark = log.log_end_offset
    return result


def fill(log: Log, batch_count: int, /, **fields: Any) -> list[bytes]:
    """Append *batch_count* batches and return them as they are stored."""
    stored = []
    for _ in range(batch_count):
        view = batch(**fields)
        append(log, view)
        stored.append(bytes(view))
    return stored


def content(found: FileSlice) -> bytes:
    """Return the bytes of a slice."""
    return os.pread(found.fd, found.size_bytes, found.position)


def read_all(log: Log) -> bytes:
    """Return every byte from the log start on, through `Log.read` alone."""
    parts, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 30, upper_bound_offset=log.log_end_offset, min_one_batch=True)
        assert found is not None, offset
        parts.append(content(found))
        *_, (_, last) = iter_batches(parts[-1])
        offset = last.last_offset + 1
    return b"".join(parts)


def crash(log: Log) -> None:
    """Stop as a killed process does: what was written is in the files, nothing else is."""
    log.abandon()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let the kernel refuse every `open` of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def segment_files(directory: Path, suffix: str = ".log") -> list[Path]:
    """Return a log's files of one kind, oldest first."""
    return sorted(directory.glob(f"*{suffix}"))


def tear(segments: Iterable[Segment], cut: int, tail: bytes) -> None:
    """Leave the files as a power cut may: whole up to byte *cut* of all of them, then *tail*."""
    left = cut
    for segment in segments:
        data = segment.path.read_bytes()
        if left < len(data):
            # Garbage, so not what stood there; segments after this one may well have reached the disk.
            garbage = bytes([data[left] ^ 0xFF]) + tail if tail else b""
            segment.path.write_bytes(data[:left] + garbage)
            break
        left -= len(data)

"""Checks segment files offline: every batch of every file, what is wrong where, and what lies between files.

Files are only read.  A running broker may append meanwhile: what grows at the end of the newest segment is a tail,
not damage.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pylog.errors import ApiError, PylogError
from pylog.model import Offset
from pylog.wire.records import HEADER_BYTES, BatchHeader, check_stored_batch, decode_records, parse_header

_NAME_DIGITS = 20
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is wrong, and the position in the file where it starts."""

    file: Path
    position: int
    detail: str


@dataclass(slots=True)
class SegmentReport:
    """What one segment file holds.

    Attributes:
        file: the segment.
        batch_count: whole batches, good and bad.
        record_count: records of good batches.
        size_bytes: of the file when it was opened.
        first_offset: of the first good batch; None in an empty file.
        next_offset: after the last good batch.
        gap_count: offsets that no batch covers, before or inside this segment; compaction and lost files leave them.
        tail_bytes: of a partial batch at the end of the newest segment, which recovery would cut.
        damages: what is wrong.
    """

    file: Path
    batch_count: int = 0
    record_count: int = 0
    size_bytes: int = 0
    first_offset: Offset | None = None
    next_offset: Offset | None = None
    gap_count: int = 0
    tail_bytes: int = 0
    damages: list[Damage] = field(default_factory=list)


def find_segments(root: Path) -> dict[Path, list[Path]]:
    """Return the segment files under *root* by directory, oldest first; *root* may be a segment itself."""
    files = [root] if root.is_file() else sorted(path for path in root.rglob("*.log") if path.is_file())
    by_directory: dict[Path, list[Path]] = {}
    for path in files:
        if base_offset(path) is not None:
            by_directory.setdefault(path.parent, []).append(path)
    return by_directory


def base_offset(path: Path) -> Offset | None:
    """Return the offset that names a segment file, or None if the name is not one of a segment."""
    is_segment = path.suffix == ".log" and len(path.stem) == _NAME_DIGITS and path.stem.isdecimal()
    return int(path.stem) if is_segment else None


def verify_partition(files: list[Path], *, check_records: bool = False) -> Iterator[SegmentReport]:
    """Yield a report on each of a partition's segments, oldest first.

    Args:
        files: all segments of the partition, oldest first.
        check_records: whether records are decompressed and decoded as well.
    """
    expected: Offset | None = None
    for path in files:
        report = verify_segment(path, is_newest=path == files[-1], check_records=check_records)
        first = report.first_offset if report.first_offset is not None else base_offset(path)
        if expected is not None and first is not None:
            report.gap_count += max(0, first - expected)
            if first < expected:
                report.damages.insert(
                    0, Damage(path, 0, f"starts at offset {first}, the segment before ends with {expected - 1}")
                )
        expected = report.next_offset if report.next_offset is not None else expected
        yield report


def verify_segment(path: Path, *, is_newest: bool, check_records: bool = False) -> SegmentReport:
    """Return what one segment file holds and what is wrong with it."""
    report = SegmentReport(path)
    with path.open("rb", buffering=_BUFFER_BYTES) as file:
        report.size_bytes = path.stat().st_size
        for position, header, batch in read_batches(file, report.size_bytes):
            report.batch_count += 1
            detail = _fault(header, batch, check_records=check_records)
            if detail is None:
                detail = _place(report, header)
            if detail is not None:
                report.damages.append(Damage(path, position, detail))
        end = file.tell()
        file.seek(end)
        _judge_rest(report, end, file.read(HEADER_BYTES), is_newest=is_newest)
    return report


def read_batches(file: BinaryIO, size_bytes: int) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Yield (position, header, bytes) of every whole batch of a segment file.

    Ends where no whole batch follows, and leaves the file's position there.  Reads instead of mapping: a broker that
    truncates the file meanwhile would otherwise kill this process.
    """
    position = 0
    while size_bytes - position >= HEADER_BYTES:
        front = file.read(HEADER_BYTES)
        if len(front) < HEADER_BYTES:
            break
        header = parse_header(front)
        if not HEADER_BYTES <= header.size_bytes <= size_bytes - position:
            break
        batch = front + file.read(header.size_bytes - HEADER_BYTES)
        if len(batch) < header.size_bytes:
            break
        yield position, header, batch
        position += header.size_bytes
    file.seek(position)


def _fault(header: BatchHeader, batch: bytes, *, check_records: bool) -> str | None:
    """Return what is wrong inside a whole batch."""
    try:
        check_stored_batch(memoryview(batch))
        if check_records:
            decode_records(batch, header)
    except ApiError as error:
        return f"{error.code.name}: {error}"
    except PylogError as error:
        return str(error)
    return None


def _place(report: SegmentReport, header: BatchHeader) -> str | None:
    """Count a good batch, or return why it does not belong where it stands."""
    expected = report.next_offset if report.next_offset is not None else base_offset(report.file) or 0
    if header.base_offset < expected:
        return f"batch starts at offset {header.base_offset}, {expected} or later is wanted here"
    if report.next_offset is None:
        report.first_offset = header.base_offset
    report.gap_count += header.base_offset - expected if report.next_offset is not None else 0
    report.record_count += header.record_count
    report.next_offset = header.last_offset + 1
    return None


def _judge_rest(report: SegmentReport, position: int, front: bytes, *, is_newest: bool) -> None:
    """Say what the bytes after the last whole batch are."""
    left = report.size_bytes - position
    if left <= 0:
        return
    claimed = parse_header(front).size_bytes if len(front) == HEADER_BYTES else None
    if claimed is not None and claimed < HEADER_BYTES:
        detail = f"batch claims {claimed} bytes; the last {left} bytes of the file cannot be read"
    elif is_newest:
        report.tail_bytes = left
        return
    else:
        detail = f"{left} bytes are left for a batch" + (f" of {claimed}" if claimed is not None else "")
    report.damages.append(Damage(report.file, position, detail))

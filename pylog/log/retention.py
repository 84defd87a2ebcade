"""Which segments have outlived their topic's retention; a decision without files or clock."""

from collections.abc import Sequence
from typing import NamedTuple

from pylog.log.config import NO_LIMIT, LogConfig
from pylog.model import Offset


class SegmentFacts(NamedTuple):
    """What the decision needs to know of one segment."""

    base_offset: Offset
    end_offset: Offset
    size_bytes: int
    max_timestamp: int
    modified_ms: int
    is_active: bool = False


class DeletedSegment(NamedTuple):
    """A segment that goes, or would go; *reason* is `start`, `time` or `size`."""

    base_offset: Offset
    size_bytes: int
    reason: str


def expired_segments(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    log_start_offset: Offset,
    high_watermark: Offset,
    now_ms: int,
) -> list[DeletedSegment]:
    """Return the segments that may go at *now_ms*, oldest first, up to the first that must stay.

    Only what lies wholly below the high watermark goes.  The active segment is never named for its size; when it is
    named, the caller rolls it first.
    """
    excess_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    expired: list[DeletedSegment] = []
    for segment in segments:
        if segment.end_offset > high_watermark or (segment.is_active and not segment.size_bytes):
            break
        reason = _reason(segment, config, excess_bytes, log_start_offset, now_ms)
        if reason is None:
            break
        excess_bytes -= segment.size_bytes
        expired.append(DeletedSegment(segment.base_offset, segment.size_bytes, reason))
    return expired


def _reason(
    segment: SegmentFacts, config: LogConfig, excess_bytes: int, log_start_offset: Offset, now_ms: int
) -> str | None:
    if segment.end_offset <= log_start_offset and not segment.is_active:
        return "start"
    if not config.is_deleting:
        return None
    if config.retention_ms != NO_LIMIT and now_ms - newest_ms(segment, now_ms) > config.retention_ms:
        return "time"
    if config.retention_bytes != NO_LIMIT and excess_bytes >= segment.size_bytes and not segment.is_active:
        return "size"
    return None


def newest_ms(segment: SegmentFacts, now_ms: int) -> int:
    """Return when the segment's newest record was written, as far as it can be known.

    A timestamp in the future would keep the segment for ever, so the file's mtime counts then, and where no batch has
    a timestamp.
    """
    return segment.max_timestamp if 0 <= segment.max_timestamp <= now_ms else segment.modified_ms

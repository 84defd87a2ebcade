"""Retention deletes no more than its settings allow: compared with what segments had, not with how it decides.

Nor does it go by the time that it decides by: a record is old when it is old by the world's clock, which no fault sets.
"""

from collections.abc import Callable
from typing import NamedTuple

from pylog.log.config import NO_LIMIT, LogConfig
from pylog.log.log import Log
from pylog.log.retention import DeletedSegment
from pylog.log.segment import Segment
from pylog.model import Offset
from pylog.wire.records import iter_batches
from tests.sim.disk import read_file
from tests.sim.world import Violation

INVARIANT = "retention deletes what its settings allow"

_delete_expired = Log.delete_expired  # of the product, however often it is watched

SKEW_MS = 500
"""How far a host's clock may be ahead and be believed; a clock that is further ahead deletes nothing."""


class _Segment(NamedTuple):
    """What a segment had before retention looked at it.

    Attributes:
        newest_ms: timestamp of its newest record, -1 without one.
    """

    base_offset: Offset
    end_offset: Offset
    size_bytes: int
    newest_ms: int


def watch(true_ms: Callable[[], int]) -> None:
    """Look at everything that retention deletes from now on, in whatever log; whoever looked before looks no more.

    It raises `Violation` from the retention itself.

    Args:
        true_ms: the world's time, in milliseconds since 1970.
    """

    newest: _Newest = {}

    def seen(log: Log, now_ms: int, dry_run: bool = False) -> list[DeletedSegment]:
        before = [] if dry_run or log.offline is not None else _segments(log, newest)
        start, high_watermark = log.log_start_offset, log.high_watermark
        deleted = _delete_expired(log, now_ms, dry_run)
        if deleted and not dry_run:
            gone = [segment for segment in before if segment.base_offset < log.segments[0].base_offset]
            kept_bytes = sum(segment.size_bytes for segment in before)
            # A clock that is behind keeps records for longer, and that time is looked at too.
            latest_ms = min(now_ms, true_ms() + SKEW_MS)
            for segment in gone:
                kept_bytes -= segment.size_bytes
                if not _may_go(segment, kept_bytes, log.config, start, high_watermark, latest_ms):
                    times = f"at {true_ms()}, {now_ms} to the broker"
                    detail = f"{log.topic_partition}: {segment} went, {kept_bytes} bytes are left {times}"
                    raise Violation(INVARIANT, f"{detail}; start {start}, high watermark {high_watermark}")
        return deleted

    Log.delete_expired = seen  # type: ignore[method-assign,assignment]


_Newest = dict[Segment, tuple[int, int, int]]
"""Of each segment that was read: the log's truncations and its own size then, and its newest timestamp."""


def _segments(log: Log, newest: _Newest) -> list[_Segment]:
    found = []
    for segment in log.segments:
        truncations, size_bytes, newest_ms = newest.get(segment, (-1, 0, -1))
        if (truncations, size_bytes) != (log.truncation_count, segment.size_bytes):
            data = read_file(segment.path, 0, segment.size_bytes)
            newest_ms = max((header.max_timestamp for _, header in iter_batches(data)), default=-1)
            newest[segment] = log.truncation_count, segment.size_bytes, newest_ms
        found.append(_Segment(segment.base_offset, segment.next_offset, segment.size_bytes, newest_ms))
    return found


def _may_go(
    segment: _Segment, kept_bytes: int, config: LogConfig, start: Offset, high_watermark: Offset, now_ms: int
) -> bool:
    if segment.end_offset > high_watermark:
        return False
    if segment.end_offset <= start or not segment.size_bytes:
        return True
    if not config.is_deleting:
        return False
    is_old = config.retention_ms != NO_LIMIT and segment.newest_ms < now_ms - config.retention_ms
    return is_old or (config.retention_bytes != NO_LIMIT and kept_bytes >= config.retention_bytes)

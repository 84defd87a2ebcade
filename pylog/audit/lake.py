"""Counts what a lake holds: the Parquet files themselves, row by row."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pylog.audit.reader import TopicCounter
from pylog.audit.reports import Report, Tier
from pylog.client.admin import Admin
from pylog.model import Offset, TopicPartition

_COLUMNS = ["partition", "value", "headers"]
STEPS_MS = (5_000, 15_000, 30_000, 60_000, 120_000, 300_000, 900_000, 3_600_000, 6 * 3_600_000, 86_400_000)
"""How long ago everything may be that the lake is asked for, one after the other."""


def count(
    topic: str,
    files: Iterable[Path],
    window_ms: int,
    *,
    from_ms: int,
    now_ms: int,
    complete_ms: int,
    warn: Callable[[str], None],
) -> Report:
    """Return a whole report of one topic.

    Args:
        topic: which.
        files: those that count; one that is missing or damaged holds nothing, and is told.
        window_ms: how long a window is.
        from_ms: windows that begin earlier are not in *files*.
        now_ms: the time.
        complete_ms: up to when the lake has everything.
        warn: told of files that cannot be read.
    """
    # The time numbers the reports: each says everything, so the latest counts.
    counter = TopicCounter(Tier.LAKE, topic, Tier.LAKE, window_ms, number=now_ms)
    row = 0
    for path in files:
        try:
            for batch in pq.ParquetFile(path).iter_batches(columns=_COLUMNS):
                headers, values = batch["headers"].to_pylist(), batch["value"].to_pylist()
                for stamps, value in zip(headers, values, strict=True):
                    counter.add(0, row, [(one["key"], one["value"]) for one in stamps or ()], value)
                    row += 1
        except (OSError, pa.ArrowException, KeyError) as error:
            warn(f"{path}: {error}")
    report = counter.report(now_ms, complete_ms)
    report.is_whole, report.from_ms, report.offsets = True, from_ms, {}
    report.windows = {key: found for key, found in report.windows.items() if key[1] >= from_ms}
    return report


def complete_ms(admin: Admin, topic: str, loaded: Mapping[int, Offset], now_ms: int) -> int:
    """Return a time such that the lake has every record of before it; 0 if none is found.

    Args:
        admin: of the cluster that the lake is loaded from.
        topic: which.
        loaded: next offset to load, by partition.
        now_ms: the time.
    """
    partitions = [TopicPartition(topic, one.partition) for one in admin.topic(topic).partitions]
    for step_ms in STEPS_MS:
        wanted = admin.offsets_at(partitions, now_ms - step_ms)
        if all(loaded.get(one.partition, 0) >= offset for one, offset in wanted.items()):
            return now_ms - step_ms
    return 0

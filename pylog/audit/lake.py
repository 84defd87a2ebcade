"""Counts what a lake holds: the Parquet files themselves, row by row, but for rows that cannot have a stamp."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pylog.audit.counting import STAMP_HEADER
from pylog.audit.reader import TopicCounter
from pylog.audit.reports import Report, Tier
from pylog.client.admin.cluster import Admin
from pylog.model import Offset, TopicPartition

_COLUMNS = ["value", "headers"]
_NAMES = "headers.list.element.key"
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
    for path in files:
        try:
            _count_file(counter, pq.ParquetFile(path))
        except (OSError, pa.ArrowException, KeyError) as error:
            warn(f"{path}: {error}")
    report = counter.report(now_ms, complete_ms)
    report.is_whole, report.from_ms, report.offsets = True, from_ms, {}
    report.windows = {key: found for key, found in report.windows.items() if key[1] >= from_ms}
    return report


def _count_file(counter: TopicCounter, file: pq.ParquetFile) -> None:
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    stamped = [number for number, group in enumerate(groups) if _may_have_stamps(group)]
    counter.add_unstamped(sum(group.num_rows for number, group in enumerate(groups) if number not in stamped))
    for batch in file.iter_batches(row_groups=stamped, columns=_COLUMNS) if stamped else ():
        _count_rows(counter, batch)


def _may_have_stamps(group: pq.RowGroupMetaData) -> bool:
    """Return whether a stamp's name lies between the lowest and the highest header's, which the file's end has."""
    columns = (group.column(number) for number in range(group.num_columns))
    names = next((one.statistics for one in columns if one.path_in_schema == _NAMES), None)
    if names is None:
        return True
    if not names.has_min_max:
        return bool(names.num_values)
    return bool(names.min <= STAMP_HEADER <= names.max)


def _count_rows(counter: TopicCounter, batch: pa.RecordBatch) -> None:
    headers, values = batch["headers"], batch["value"]
    entries = headers.flatten()
    chosen = pc.fill_null(pc.equal(pc.struct_field(entries, "key"), STAMP_HEADER), False)
    rows = pc.list_parent_indices(headers).filter(chosen).to_numpy()
    stamps = pc.struct_field(entries, "value").filter(chosen)
    is_last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]  # of several, the last one counts
    rows, stamps = rows[is_last], stamps.filter(pa.array(is_last))
    counter.add_stamped(stamps.to_pylist(), values.take(pa.array(rows)).to_pylist())
    counter.add_unstamped(batch.num_rows - len(rows))


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

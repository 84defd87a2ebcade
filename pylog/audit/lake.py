"""Counts what a lake holds: the Parquet files themselves, row by row, but for what a file's end says of its rows.

A file is read once, as long as it is what it was (`pylog.audit.held`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pylog.audit.counting import STAMP_HEADER, WindowCount
from pylog.audit.held import Held, Memory
from pylog.audit.places import ORIGIN_HEADER, ORIGIN_ID_HEADER, ORIGIN_OFFSET_HEADER, Places, offset_of
from pylog.audit.reader import TopicCounter
from pylog.audit.reports import Report, Tier, WindowKey
from pylog.audit.sequences import Sequences
from pylog.client.admin.cluster import Admin
from pylog.model import Offset, TopicPartition

_STAMP_COLUMNS = ["value"]
_PLACE_COLUMNS = ["partition", "offset"]
_NAMES = "headers.list.element.key"
Int64s: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
STEPS_MS = (5_000, 15_000, 30_000, 60_000, 120_000, 300_000, 900_000, 3_600_000, 6 * 3_600_000, 86_400_000)
"""How long ago everything may be that the lake is asked for, one after the other."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What of a topic the lake has loaded.

    Attributes:
        topic_id: of the topic in the cluster that the lake is loaded from; None in a lake that does not know it.
        offsets: next one to load, by partition.
        is_all: whether the files that are counted are all that there are of the topic.
    """

    topic_id: str | None = None
    offsets: Mapping[int, Offset] = field(default_factory=dict)
    is_all: bool = True


def count(
    topic: str,
    files: Iterable[Path],
    window_ms: int,
    loaded: Loaded = Loaded(),
    *,
    from_ms: int,
    now_ms: int,
    complete_ms: int,
    warn: Callable[[str], None],
    memory: Memory | None = None,
) -> Report:
    """Return a whole report of one topic.

    Args:
        topic: which.
        files: those that count; one that is missing or damaged holds nothing, and is told.
        window_ms: how long a window is.
        loaded: what should be in them.
        from_ms: windows that begin earlier are not in *files*.
        now_ms: the time.
        complete_ms: up to when the lake has everything.
        warn: told of files that cannot be read.
        memory: what is known of files; takes in what is read.
    """
    memory = memory or Memory(window_ms)
    holds: dict[Path, Held] = {}
    for path in files:
        try:
            holds[path] = memory.held(path, loaded.topic_id, lambda one: _read(one, topic, window_ms, loaded.topic_id))
        except (OSError, pa.ArrowException, KeyError) as error:
            warn(f"{path}: {error}")
    windows, in_several = _joined(holds.values())
    # Which of two copies' bytes count, their order decides, and a file's own sums do not tell them apart.
    again = [path for path, held in holds.items() if in_several & held.windows.keys()]
    counted = _count_windows(again, topic, window_ms, warn) if again else {}
    seen: _Seen = defaultdict(list)
    for held in holds.values():
        for key, ranges in held.seen.items():
            seen[key] += ranges
    # The time numbers the reports: each says everything, so the latest counts.
    counter = TopicCounter(Tier.LAKE, topic, Tier.LAKE, window_ms, number=now_ms)
    counter.add_unstamped(sum(held.unstamped for held in holds.values()))
    report = counter.report(now_ms, complete_ms)
    report.is_whole, report.from_ms, report.after = True, from_ms, None
    report.topic_id, report.offsets = loaded.topic_id, dict(loaded.offsets)
    report.places = _places(seen, loaded)
    windows |= {key: counted[key] for key in in_several & counted.keys()}
    report.windows = {key: found for key, found in windows.items() if key[1] >= from_ms}
    return report


def _read(path: Path, topic: str, window_ms: int, topic_id: str | None) -> Held:
    counter = TopicCounter(Tier.LAKE, topic, Tier.LAKE, window_ms)
    seen: _Seen = defaultdict(list)
    _count_file(counter, seen, pq.ParquetFile(path), topic_id)
    report = counter.report(0, 0)
    ranges = {key: list(Sequences(found).ranges()) for key, found in seen.items()}
    return Held(topic_id, report.unstamped, report.windows, ranges)


def _count_windows(
    paths: Iterable[Path], topic: str, window_ms: int, warn: Callable[[str], None]
) -> Mapping[WindowKey, WindowCount]:
    """Return the windows of all files, read one after the other."""
    counter = TopicCounter(Tier.LAKE, topic, Tier.LAKE, window_ms)
    for path in paths:
        try:
            _count_file(counter, defaultdict(list), pq.ParquetFile(path), None)
        except (OSError, pa.ArrowException, KeyError) as error:
            warn(f"{path}: {error}")
    return counter.report(0, 0).windows


def _joined(holds: Iterable[Held]) -> tuple[dict[WindowKey, WindowCount], set[WindowKey]]:
    """Return the windows of all files, and those of which two files have the same record."""
    found: dict[WindowKey, WindowCount] = {}
    in_several = set()
    for held in holds:
        for key, count in held.windows.items():
            there = found.setdefault(key, WindowCount(count.host))
            doubled = there.doubled + count.doubled
            there.merge(count)
            if there.doubled > doubled:
                in_several.add(key)
    return found, in_several


_Seen: TypeAlias = defaultdict[tuple[str, int], list[tuple[Offset, Offset]]]
"""Topic id and partition to ranges of offsets, in any order."""


def _places(seen: _Seen, loaded: Loaded) -> Places:
    found = Places()
    # That of the topic as it is now comes last, so that it is not forgotten.
    for (topic_id, partition), ranges in sorted(seen.items(), key=lambda row: (row[0][0] == loaded.topic_id, row[0])):
        for first, last in Sequences(ranges).ranges():
            found.add(topic_id, partition, first, last, floor=0 if loaded.is_all else None)
    for partition in loaded.offsets if loaded.topic_id is not None and loaded.is_all else ():
        found.begin(loaded.topic_id or "", partition, 0)
    found.fit()
    return found


def _count_file(counter: TopicCounter, seen: _Seen, file: pq.ParquetFile, topic_id: str | None) -> None:
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        is_stamped, has_copies = _may_have(group, STAMP_HEADER), _may_have(group, ORIGIN_HEADER)
        wanted = [*_STAMP_COLUMNS, "headers"] if is_stamped else []
        run = None if has_copies or topic_id is None else _run_of(group)
        if topic_id is not None and run is None:
            wanted += [*_PLACE_COLUMNS, "headers"] if has_copies else _PLACE_COLUMNS
        if not is_stamped:
            counter.add_unstamped(group.num_rows)
        if topic_id is not None and run is not None:
            seen[topic_id, run[0]].append(run[1:])
        for batch in file.iter_batches(row_groups=[number], columns=sorted({*wanted})) if wanted else ():
            if is_stamped:
                _count_rows(counter, batch)
            if topic_id is not None and run is None:
                _see_rows(seen, batch, topic_id, has_copies=has_copies)


def _may_have(group: pq.RowGroupMetaData, name: str) -> bool:
    """Return whether a header's name lies between the lowest and the highest, which the file's end has."""
    names = _statistics(group, _NAMES)
    if names is None:
        return True
    if not names.has_min_max:
        return bool(names.num_values)
    return bool(names.min <= name <= names.max)


def _run_of(group: pq.RowGroupMetaData) -> tuple[int, Offset, Offset] | None:
    """Return partition, lowest and highest offset of rows that are all those in between; None if they may not be."""
    partition, offset = _statistics(group, "partition"), _statistics(group, "offset")
    if partition is None or offset is None or not (partition.has_min_max and offset.has_min_max):
        return None
    is_run = partition.min == partition.max and offset.max - offset.min + 1 == group.num_rows
    return (int(partition.min), int(offset.min), int(offset.max)) if is_run else None


def _statistics(group: pq.RowGroupMetaData, name: str) -> pq.Statistics | None:
    columns = (group.column(number) for number in range(group.num_columns))
    return next((one.statistics for one in columns if one.path_in_schema == name), None)


def _count_rows(counter: TopicCounter, batch: pa.RecordBatch) -> None:
    rows, stamps = _headers_of(batch, STAMP_HEADER)
    counter.add_stamped(stamps.to_pylist(), batch["value"].take(pa.array(rows)).to_pylist())
    counter.add_unstamped(batch.num_rows - len(rows))


def _headers_of(batch: pa.RecordBatch, name: str) -> tuple[Int64s, pa.Array]:
    """Return the rows that have a header of this name, and its values; of several, the last one counts."""
    headers = batch["headers"]
    entries = headers.flatten()
    chosen = pc.fill_null(pc.equal(pc.struct_field(entries, "key"), name), False)
    rows = pc.list_parent_indices(headers).filter(chosen).to_numpy()
    values = pc.struct_field(entries, "value").filter(chosen)
    is_last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]
    return rows[is_last], values.filter(pa.array(is_last))


def _see_rows(seen: _Seen, batch: pa.RecordBatch, topic_id: str, *, has_copies: bool) -> None:
    """Note where the rows were first written."""
    partitions, offsets = batch["partition"].to_numpy(), batch["offset"].to_numpy()
    is_own = np.ones(batch.num_rows, dtype=bool)
    if has_copies:
        copies, _ = _headers_of(batch, ORIGIN_HEADER)
        is_own[copies] = False
        _see_copies(seen, batch, partitions, is_own)
    for partition in np.unique(partitions[is_own]):
        seen[topic_id, int(partition)] += _ranges(offsets[is_own & (partitions == partition)])


def _see_copies(seen: _Seen, batch: pa.RecordBatch, partitions: Int64s, is_own: Bools) -> None:
    rows, ids = _headers_of(batch, ORIGIN_ID_HEADER)
    offset_rows, texts = _headers_of(batch, ORIGIN_OFFSET_HEADER)
    if np.array_equal(rows, offset_rows) and not is_own[rows].any():
        try:
            offsets = pc.cast(pc.cast(texts, pa.string()), pa.int64()).to_numpy()
            for origin_id in pc.unique(ids).to_pylist():
                is_its = pc.equal(ids, origin_id).to_numpy(zero_copy_only=False)
                for partition in np.unique(partitions[rows[is_its]]):
                    chosen = offsets[is_its & (partitions[rows] == partition)]
                    seen[origin_id.decode(errors="replace"), int(partition)] += _ranges(chosen)
        except (pa.ArrowException, AttributeError, TypeError, ValueError):
            pass  # a header that is none of the mirror's: each row by itself
        else:
            return
    found = dict(zip(rows.tolist(), ids.to_pylist(), strict=True))
    for row, text in zip(offset_rows.tolist(), texts.to_pylist(), strict=True):
        offset, origin_id = offset_of(text), found.get(row)
        if not is_own[row] and offset is not None and origin_id is not None:
            seen[origin_id.decode(errors="replace"), int(partitions[row])].append((offset, offset))


def _ranges(offsets: Int64s) -> list[tuple[Offset, Offset]]:
    offsets = np.sort(offsets)
    breaks = np.flatnonzero(np.diff(offsets) > 1)
    firsts, lasts = offsets[np.append(0, breaks + 1)], offsets[np.append(breaks, len(offsets) - 1)]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


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

"""What one Spark task of the load job does: fetch its ranges, decode them column-wise, write Parquet by hour.

The hour is that of the record's own timestamp.  No record passes through the JVM, and none becomes a Python object.  A
task that is run twice, by a retry or by speculation, writes two sets of files under names of their own; the driver
commits those of the run whose report it got.

columns => key: binary, value: binary, partition: int32, offset: int64, timestamp: timestamp[us, UTC],
           headers: list<struct<key: string, value: binary>>
dead letter => partition: int32, first_offset: int64, last_offset: int64, reason: string, batch: binary (as stored),
               topic_id: string, isolation_level: string (of the load that met the batch); the last two are null, or
               missing, in what 0.1.0 wrote
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socket import gethostname
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pylog.client.avro import RegistryUnreachable
from pylog.client.raw import RawClient, RawConfig
from pylog.client.security import security_of
from pylog.errors import ApiError, ErrorCode, PylogError, StorageError
from pylog.ingest.decode import HEADERS
from pylog.ingest.event_time import EventTime
from pylog.ingest.fetch import DeadLetter, Fetched, decoded, read_range
from pylog.ingest.lake import File, dead_letter_path_of, path_of, sync
from pylog.ingest.plan import Range
from pylog.model import IsolationLevel, Offset, TopicPartition

HOUR_MS = 3_600_000

COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", HEADERS),
    ]
)
DEAD_LETTER_COLUMNS = pa.schema(
    [
        ("partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("reason", pa.string()),
        ("batch", pa.binary()),
        ("topic_id", pa.string()),
        ("isolation_level", pa.string()),
    ]
)

_BUFFER_BYTES = 64 << 20
# Rows a task holds back so that row groups are worth reading; the largest hour goes to its file when this is full.

_NO_TIME_US = _NO_HOUR = -(1 << 63)

_MAX_OPEN_FILES = 32
# A backlog of years by hours would need thousands at once; the one longest unused is closed, and a late record opens
# another file of its hour.


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """What all tasks of one attempt share.

    Attributes:
        bootstrap: brokers.
        directory: the attempt's, on a file system that every host of Spark sees.
        prefix: begins the name of every file.
        fail_on_data_loss: whether offsets that retention deletes under the task's hands end their topic's part of it.
        topic_ids: of the topics that the ranges were planned for; of one that is made again meanwhile nothing counts.
        accepted: topics of which offsets may be missing.
        event_times: topics whose hours follow from a field of the payload; where it is no time, from the record's own.
        header_errors: what becomes of header names that are not UTF-8: ``strict`` makes dead letters of their batches,
            ``replace`` puts U+FFFD in place of what is none.
        security: keys of `pylog.client.security.SECURITY_KEYS`; a task reads their files on its own host.
        isolation_level: whether records of open and aborted transactions are landed.
        believed_ms: from when to when a record's own time gives it an hour.  A clock that is off by years would make a
            file of each record; what lies outside shares one directory with records without a usable time.
    """

    bootstrap: str
    directory: Path
    prefix: str
    fail_on_data_loss: bool
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    accepted: frozenset[str] = frozenset()
    event_times: Mapping[str, EventTime] = field(default_factory=dict)
    header_errors: str = "strict"
    believed_ms: tuple[int, int] = (-(1 << 52), 1 << 52)
    security: Mapping[str, str] = field(default_factory=dict)
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED


class Origin(NamedTuple):
    """Where the records of a range come from, beside their partition.

    Attributes:
        topic_id: of the topic; None if it is not known.
        isolation_level: that they were read with; None if it is not known.
    """

    topic_id: str | None
    isolation_level: IsolationLevel | None


@dataclass(slots=True)
class Landed:
    """What one task did.

    Attributes:
        files: what it wrote, by their final paths.
        dead_letters: files of batches that do not decode.
        rows: records landed, by range.
        dead_offsets: offsets in dead letters, by partition.
        holes: offsets that retention deleted.
        gone: topics that were not there any more when their ranges were read; nothing of them counts.
        failed: topics that could not be read, with the error's class and text; nothing of them counts.
        fetched_bytes: of record batches as they came, by topic.
    """

    files: list[File] = field(default_factory=list)
    dead_letters: list[File] = field(default_factory=list)
    rows: dict[Range, int] = field(default_factory=dict)
    dead_offsets: Counter[TopicPartition] = field(default_factory=Counter)
    holes: list[Range] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    fetched_bytes: Counter[str] = field(default_factory=Counter)

    def without(self, topics: Collection[str]) -> "Landed":
        """Return this without what it says of *topics*; each file holds records of one topic."""
        return Landed(
            files=[file for file in self.files if file.topic not in topics],
            dead_letters=[file for file in self.dead_letters if file.topic not in topics],
            rows={r: count for r, count in self.rows.items() if r.partition.topic not in topics},
            dead_offsets=Counter({p: count for p, count in self.dead_offsets.items() if p.topic not in topics}),
            holes=[hole for hole in self.holes if hole.partition.topic not in topics],
            fetched_bytes=Counter({topic: n for topic, n in self.fetched_bytes.items() if topic not in topics}),
        )


def land(ranges: Sequence[Range], landing: Landing) -> Landed:
    """Land *ranges*; runs in a task.

    A topic that is deleted meanwhile, or cannot be read, is told, and ends only what is read of it.

    Raises:
        StorageError: the lake cannot be written from here.
    """
    task = Task(landing)
    config = RawConfig(isolation_level=landing.isolation_level)
    with RawClient(landing.bootstrap, config, security_of(landing.security)) as client:
        for wanted in ranges:
            topic = wanted.partition.topic
            if topic in task.landed.failed or topic in task.landed.gone:
                continue
            may_miss = not landing.fail_on_data_loss or topic in landing.accepted
            on_hole = task.landed.holes.append if may_miss else None
            task.begin(wanted)
            fetches = read_range(client, wanted, config, on_hole, landing.topic_ids.get(topic))
            try:
                while (fetched := _next(fetches, topic, task.landed)) is not None:
                    task.take(fetched)
            except RegistryUnreachable as error:
                task.landed.failed[topic] = quoted(error)
    return task.end()


def quoted(error: PylogError) -> str:
    """Return an error as one line from which the driver makes it again; see `pylog.ingest.spark.error_of`."""
    return f"{type(error).__module__}.{type(error).__qualname__}: {' '.join(str(error).split())}"


def _next(fetches: Iterator[Fetched], topic: str, landed: Landed) -> Fetched | None:
    """Return the next fetch; None at the end, or where *topic* cannot be read on, which *landed* then says."""
    try:
        return next(fetches, None)
    except ApiError as error:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            landed.gone.add(topic)
        else:
            landed.failed[topic] = quoted(error)
    except PylogError as error:
        landed.failed[topic] = quoted(error)
    return None


class Task:
    """Takes in fetches, range by range, and writes their records into files."""

    def __init__(self, landing: Landing) -> None:
        self.landed = Landed()
        self._believed_us = tuple(ms * 1000 for ms in landing.believed_ms)
        self._files = _Files(landing)
        self._event_times = landing.event_times
        self._header_errors = landing.header_errors
        self._landing = landing
        self._range: Range | None = None
        self._origin = Origin(None, None)

    def begin(self, wanted: Range, origin: Origin | None = None) -> None:
        """Go on with another range.

        Args:
            wanted: the range.
            origin: where its records come from; as the landing says if None.
        """
        self._range = wanted
        if origin is None:
            origin = Origin(self._landing.topic_ids.get(wanted.partition.topic), self._landing.isolation_level)
        self._origin = origin
        self.landed.rows[wanted] = 0

    def take(self, fetched: Fetched) -> None:
        """Take in one fetch; batches that do not decode become dead letters."""
        assert self._range is not None, "begin() comes first"
        self.landed.fetched_bytes[self._range.partition.topic] += len(fetched.records)
        for rows in self._decoded(fetched, self._range.end):
            self._add(rows)

    def end(self) -> Landed:
        """Close the files; return what was done."""
        self.landed.files, self.landed.dead_letters = self._files.close()
        return self.landed

    def _decoded(self, fetched: Fetched, end: Offset) -> Iterator[pa.RecordBatch]:
        for found in decoded(fetched, end, with_headers=True, header_errors=self._header_errors):
            if isinstance(found, DeadLetter):
                self._bury(found)
            else:
                yield found

    def _bury(self, dead: DeadLetter) -> None:
        assert self._range is not None, "begin() comes first"
        partition = self._range.partition
        self._files.add_dead_letter(partition, dead, self._origin)
        self.landed.dead_offsets[partition] += dead.last_offset - dead.first_offset + 1

    def _add(self, rows: pa.RecordBatch) -> None:
        assert self._range is not None, "begin() comes first"
        partition = self._range.partition
        self.landed.rows[self._range] += rows.num_rows
        rows = _in_order(rows, partition.partition)
        times = rows["timestamp"]
        if partition.topic in self._event_times:
            times = pc.coalesce(self._event_times[partition.topic].times(rows["value"]), times)
        times_us = times.cast(pa.int64()).fill_null(_NO_TIME_US).to_numpy(zero_copy_only=False)
        is_believed = (times_us >= self._believed_us[0]) & (times_us <= self._believed_us[1])
        hours = np.where(is_believed, times_us // (HOUR_MS * 1000), _NO_HOUR)
        found = np.unique(hours).tolist()
        for hour in found:
            own = rows if len(found) == 1 else rows.filter(pa.array(hours == hour))
            self._files.add(partition.topic, None if hour == _NO_HOUR else hour, own)


def _in_order(rows: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    own = pa.repeat(pa.scalar(partition, pa.int32()), rows.num_rows)
    return pa.RecordBatch.from_arrays(
        [own if name == "partition" else rows[name] for name in COLUMNS.names], schema=COLUMNS
    )


_Hour = tuple[str, int | None]  # topic and hour since 1970


class _Files:
    """Rows on their way into files, one an hour and topic."""

    def __init__(self, landing: Landing) -> None:
        self._landing = landing
        self._held: dict[_Hour, list[pa.RecordBatch]] = {}
        self._held_bytes: Counter[_Hour] = Counter()
        self._open: OrderedDict[_Hour, _Writer] = OrderedDict()
        self._dead: dict[str, _Writer] = {}
        self._done: list[File] = []

    def add(self, topic: str, hour: int | None, rows: pa.RecordBatch) -> None:
        where = (topic, hour)
        self._held.setdefault(where, []).append(rows)
        self._held_bytes[where] += rows.nbytes
        if self._held_bytes.total() > _BUFFER_BYTES:
            self._write(self._held_bytes.most_common(1)[0][0])

    def add_dead_letter(self, partition: TopicPartition, dead: DeadLetter, origin: Origin) -> None:
        writer = self._dead.get(partition.topic)
        if writer is None:
            name = self._name()
            path = dead_letter_path_of(partition.topic, name)
            writer = self._dead[partition.topic] = _Writer(
                path, self._landing.directory / name, DEAD_LETTER_COLUMNS
            )  # fmt: skip
        level = None if origin.isolation_level is None else origin.isolation_level.value
        row = [
            partition.partition,
            dead.first_offset,
            dead.last_offset,
            dead.reason,
            dead.batch,
            origin.topic_id,
            level,
        ]
        writer.write(
            pa.Table.from_arrays(
                [pa.array([v], f.type) for v, f in zip(row, DEAD_LETTER_COLUMNS, strict=True)],
                schema=DEAD_LETTER_COLUMNS,
            )
        )

    def close(self) -> tuple[list[File], list[File]]:
        """Return the files with rows and those with dead letters, all of them on disk."""
        for where in list(self._held):
            self._write(where)
        files = self._done + [writer.close() for writer in self._open.values()]
        return files, [writer.close() for writer in self._dead.values()]

    def _name(self) -> str:
        return f"{self._landing.prefix}-{uuid4().hex[:16]}.parquet"

    def _write(self, where: _Hour) -> None:
        rows = self._held.pop(where)
        del self._held_bytes[where]
        writer = self._open.pop(where, None)
        if writer is None:
            if len(self._open) >= _MAX_OPEN_FILES:
                self._done.append(self._open.popitem(last=False)[1].close())
            name = self._name()
            writer = _Writer(path_of(*where, name), self._landing.directory / name, COLUMNS)
        self._open[where] = writer
        writer.write(pa.Table.from_batches(rows, COLUMNS))


class _Writer:
    """One Parquet file in staging."""

    def __init__(self, path: str, staged: Path, columns: pa.Schema) -> None:
        self._path = path
        self._staged = staged
        self._rows = 0
        if not staged.parent.is_dir():
            raise StorageError(
                f"{staged.parent} is not there on {gethostname()}: the lake must lie on a file system that all hosts "
                "of Spark share under this path; or another driver was faster and cleaned it away"
            )
        try:
            # Keys and values seldom repeat, and a dictionary of them would be built and thrown away.
            self._writer = pq.ParquetWriter(
                staged, columns, compression="snappy", use_dictionary=["partition", "reason"], store_schema=False
            )  # fmt: skip
        except OSError as error:
            raise _unwritable(staged, error) from error

    def write(self, rows: pa.Table) -> None:
        """Append one row group."""
        self._rows += rows.num_rows
        try:
            self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        except OSError as error:
            raise _unwritable(self._staged, error) from error

    def close(self) -> File:
        """Finish the file and wait until the disk has it."""
        try:
            self._writer.close()
            sync(self._staged)
            return File(self._path, self._rows, self._staged.stat().st_size)
        except OSError as error:
            raise _unwritable(self._staged, error) from error


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"{path} cannot be written on {gethostname()}: {error}")


def report(landed: Sequence[Landed], holes: Iterable[Range]) -> dict[str, Any]:
    """Return what was landed, as a commit says it.

    commit => {"ranges": [{"topic", "partition", "start", "end", "rows"}],
               "holes": [{"topic", "partition", "start", "end"}], "dead_offsets": [{"topic", "partition", "offsets"}]}
    """
    rows = {r: count for one in landed for r, count in one.rows.items()}
    all_holes = sorted([*holes, *(hole for one in landed for hole in one.holes)])
    dead: Counter[TopicPartition] = Counter()
    for one in landed:
        dead += one.dead_offsets
    return {
        "ranges": [{**_named(r), "rows": count} for r, count in sorted(rows.items())],
        "holes": [_named(hole) for hole in all_holes],
        "dead_offsets": [
            {"topic": p.topic, "partition": p.partition, "offsets": count} for p, count in sorted(dead.items())
        ],
    }


def _named(r: Range) -> dict[str, Any]:
    return {"topic": r.partition.topic, "partition": r.partition.partition, "start": r.start, "end": r.end}

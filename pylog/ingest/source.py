"""The Spark data source ``pylog``: topics as tables and streams, in Arrow batches.

Spark plans on the driver (`partitions`, `latestOffset`) and reads in tasks (`read`): different processes, so all that
a task needs travels in its `TaskShare`.  Spark never calls a Python source's `stop`, calls `commit` one batch late and
not at all for the last one; so nothing here depends on either.

Source: pyspark.sql.datasource, Spark 4.2 and later (admission control, AvailableNow).
"""

# ruff: noqa: N802  the methods' names are Spark's

import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pylog.client.raw import RawClient, RawConfig
from pylog.client.security import security_of
from pylog.errors import ConfigError
from pylog.ingest import plan
from pylog.ingest.decode import FIELDS, HEADERS, decode
from pylog.ingest.fetch import (
    SAMPLE,
    DeadLetter,
    Fetched,
    Topics,
    decoded,
    epoch_ends,
    offsets_at,
    positions,
    read_range,
    resolve,
    sampled_rates,
    with_read_uncommitted,
)
from pylog.ingest.filters import Wanted, wanted_by
from pylog.ingest.options import DECODE_ERROR, DECODED, Mode, SourceOptions, parse_options, parse_sink_options
from pylog.ingest.plan import Position, Range
from pylog.model import OWN_TOPICS, IsolationLevel, Offset, TopicPartition
from pylog.wire.api.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

# What reads Avro, and what writes, is imported where it is asked for: Spark starts seven processes for one query, and
# all import this.
if TYPE_CHECKING:
    from pylog.ingest.avro import AvroColumns
    from pylog.ingest.resolve import Column
    from pylog.ingest.sink import PylogStreamWriter, PylogWriter

_IDLE_S = 0.1
# Spark's default trigger asks an idle stream for its end forty times a second; a micro-batch takes longer than this.

_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)
# The columns of Spark's own Kafka connector, in its order.

_DEAD_LETTER = StructField(
    "deadLetter",
    StructType(
        [
            StructField("firstOffset", LongType()),
            StructField("lastOffset", LongType()),
            StructField("reason", StringType()),
            StructField("batch", BinaryType()),
        ]
    ),
)
_DEAD_LETTER_ARROW = pa.struct(
    [("firstOffset", pa.int64()), ("lastOffset", pa.int64()), ("reason", pa.string()), ("batch", pa.binary())]
)

_ARROW_ORDER = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


class PylogDataSource(DataSource):
    """``format("pylog")`` of `read`, `readStream`, `write` and `writeStream`; see `pylog.ingest.options`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "pylog"

    def schema(self) -> StructType:
        """Return the columns; the headers only when asked for."""
        # Spark does not say here which kind of query it is, and the columns are the same in both.
        bounds = ("endingoffsets", "endingtimestamp")
        options = parse_options({k: v for k, v in self.options.items() if k.lower() not in bounds}, is_stream=True)
        headers = [_HEADERS] if options.include_headers else []
        dead = [_DEAD_LETTER] if options.mode is Mode.KEEP else []
        return StructType([*_COLUMNS, *headers, *_decoded_fields(_reader_texts(options)), *dead])

    def reader(self, schema: StructType) -> "PylogReader":
        """Return the reader of a batch query."""
        options = parse_options(self.options, is_stream=False)
        return (FilteringReader if options.filter_pushdown else PylogReader)(options, schema)

    def streamReader(self, schema: StructType) -> "PylogStreamReader":
        """Return the reader of a stream."""
        return PylogStreamReader(parse_options(self.options, is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "PylogWriter":
        """Return the writer of a batch query.

        Raises:
            ConfigError: the query overwrites, or its columns or options cannot be written.
        """
        from pylog.ingest.sink import PylogWriter

        if overwrite:
            raise ConfigError("mode 'overwrite' is given; a topic only grows: 'append' is wanted")
        return PylogWriter(schema, parse_sink_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "PylogStreamWriter":
        """Return the writer of a stream; in mode ``complete`` each micro-batch writes the whole result again."""
        from pylog.ingest.sink import PylogStreamWriter

        return PylogStreamWriter(schema, parse_sink_options(self.options))


def _decoded_fields(texts: Sequence[str] | None) -> list[StructField]:
    """Return what is added to the columns; a field that no column can hold is named in the comment of ``decoded``."""
    if texts is None:
        return []
    from pylog.ingest.avro import column_for

    column = column_for(texts)
    left_out = "; ".join(f"{path}: {reason}" for path, reason in column.left_out.items())
    comment = {"comment": f"left out: {left_out}"} if left_out else {}
    return [
        StructField(DECODED, _spark_type(column), metadata=comment),
        StructField(DECODE_ERROR, StringType()),
    ]


def _spark_type(column: "Column") -> DataType:
    return from_arrow_type(column.kind, prefer_timestamp_ntz=True)


def _reader_texts(options: SourceOptions) -> tuple[str, ...] | None:
    if not options.registry:
        return None
    from pylog.client.avro import RegistryClient

    registry = RegistryClient(options.registry, security=options.client_security())
    return registry.latest(_subject(options))


def _subject(options: SourceOptions) -> str:
    return options.schema_subject or f"{options.topics[0]}-value"


@dataclass
class TaskShare(InputPartition):
    """All that one Spark task needs to read its share."""

    ranges: tuple[Range, ...]
    bootstrap: str
    include_headers: bool
    fail_on_data_loss: bool
    registry: tuple[str, ...] = ()
    reader_texts: tuple[str, ...] | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    mode: Mode = Mode.FAIL
    security: Mapping[str, str] = field(default_factory=dict)
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    subject: str | None = None


class _TaskReader:
    """What tasks of both kinds of query do; holds nothing that a task changes.

    Args:
        options: of the query.
        columns: as the query was planned with; a schema that came since must not change them.
    """

    def __init__(self, options: SourceOptions, columns: StructType) -> None:
        self._options = options
        self._reader_texts = _reader_texts(options)
        if self._reader_texts is not None and DECODED in columns.names:
            from pylog.client.avro import SchemaError
            from pylog.ingest.avro import column_for

            found = _spark_type(column_for(self._reader_texts)).simpleString()
            if found != columns[DECODED].dataType.simpleString():
                raise SchemaError(
                    f"topic {options.topics[0]} has a new schema since the query was planned: run the query again"
                )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of *partition*; runs in a task."""
        if not isinstance(partition, TaskShare):
            return iter(())  # where partitions() found nothing, Spark makes up one partition
        return read_task(partition)

    @property
    def _topics(self) -> Topics:
        return self._options.topic_pattern or self._options.topics

    def _tasks(
        self, ranges: list[Range], log_starts: dict[TopicPartition, Offset], topic_ids: Mapping[str, str]
    ) -> list[TaskShare]:
        options = self._options
        ranges = plan.present(ranges, log_starts, fail_on_data_loss=options.fail_on_data_loss)
        if options.min_partitions is not None:
            ranges = plan.spread(ranges, options.min_partitions)
        pieces = list(plan.split(ranges, options.max_records_per_partition))
        least = max(plan.MIN_QUERY_TASKS, options.min_partitions or 0)
        return [
            TaskShare(
                share,
                options.bootstrap,
                options.include_headers,
                options.fail_on_data_loss,
                options.registry,
                self._reader_texts,
                {r.partition.topic: topic_ids[r.partition.topic] for r in share if r.partition.topic in topic_ids},
                options.mode,
                options.security,
                options.isolation_level,
                _subject(options) if options.registry else None,
            )
            for share in plan.gather(pieces, least, options.max_records_per_partition)
        ]


class PylogReader(_TaskReader, DataSourceReader):
    """Reads what is there between the starting and the ending offsets."""

    def partitions(self) -> Sequence[TaskShare]:
        """Return the tasks."""
        with _client_of(self._options) as client:
            # In this order a topic that comes up meanwhile is not read, and of all others the log start is known.
            end = resolve(client, self._topics, self._options.ending)
            start = resolve(client, self._topics, self._options.starting)
            log_starts = positions(client, self._topics, EARLIEST_TIMESTAMP)
            ranges = self._narrowed(client, plan.ranges_between(start, end, log_starts.offsets))
        return self._tasks(ranges, dict(log_starts.offsets), end.topic_ids)

    def _narrowed(self, client: RawClient, ranges: list[Range]) -> list[Range]:
        return ranges


class FilteringReader(PylogReader):
    """Fetches only what a query's filters on partition, offset and timestamp may want.

    A class of its own, because Spark refuses every reader that has `pushFilters` unless the session allows pushdown.
    """

    _wanted = Wanted()

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Take in what narrows the ranges; Spark applies all filters again, since batches are fetched whole."""
        self._wanted = wanted_by(filters)
        yield from filters

    def _narrowed(self, client: RawClient, ranges: list[Range]) -> list[Range]:
        # The ends are known by now, so a record that comes meanwhile cannot be left out by its time.
        since_ms = self._wanted.since_ms
        starts = {} if since_ms is None else offsets_at(client, [r.partition for r in ranges], since_ms)
        return self._wanted.narrow(ranges, starts)


class PylogStreamReader(_TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what arrives, micro-batch by micro-batch."""

    _target: Position | None = None
    _seen: Position | None = None
    _looked_s = float("-inf")
    _clock = staticmethod(time.monotonic)

    @cached_property
    def _client(self) -> RawClient:
        # Made at first use and never before: Spark pickles the reader for its planning process.
        return _client_of(self._options)

    @cached_property
    def _sampler(self) -> RawClient:
        return _client_of(self._options, SAMPLE)

    @cached_property
    def _rates(self) -> dict[str, float]:
        return {}

    @cached_property
    def _told(self) -> dict[str, str]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_reader_texts": self._reader_texts}

    def initialOffset(self) -> dict[str, Any]:
        """Return where a first run begins; Spark asks again on each start and then prefers its checkpoint."""
        return resolve(self._client, self._topics, self._options.starting).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return ``maxOffsetsPerTrigger`` in Spark's terms."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix where this run ends: what arrives later belongs to the next one."""
        self._target = self._latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends."""
        begin = self._position(start)
        if self._is_idle(begin) and self._clock() - self._looked_s < _IDLE_S:
            return start
        latest = self._latest()
        if self._options.fail_on_data_loss:
            plan.check_topics(begin, latest)
        self._seen = plan.kept(begin, latest)
        if self._is_idle(begin):
            return start
        if not self._options.fail_on_data_loss:
            begin = self._without_made_again(begin, latest)
        if self._target is not None:
            latest = plan.not_beyond(latest, self._target)
        latest = with_read_uncommitted(self._client, begin, latest)
        if self._options.fail_on_data_loss:
            plan.check_topics(begin, latest)
            if begin.offsets != latest.offsets:
                plan.check_not_cut(begin, epoch_ends(self._client, begin, latest))
        latest = plan.kept(begin, latest)
        log_starts = self._log_starts()
        most = [limit.max_rows] if isinstance(limit, ReadMaxRows) else []
        if self._options.max_bytes_per_trigger is not None:
            wanted = plan.ranges_between(begin, latest, log_starts)
            wanted = plan.present(wanted, log_starts, fail_on_data_loss=False)
            self._rates |= sampled_rates(self._sampler, wanted, self._rates)
            most.append(plan.offsets_in(wanted, self._options.max_bytes_per_trigger, self._rates))
        if most:
            latest = plan.limited(begin, latest, log_starts, min(most))
        # Also without a limit: a topic made again or a cut log must fail here, by name, and not in a task.
        plan.ranges_between(begin, latest, log_starts)
        return latest.to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the end of the topics, from which Spark's progress tells the lag."""
        # Spark asks after each look for a micro-batch's end, which has just seen it.
        return (self._seen or self._latest()).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[TaskShare]:
        """Return the tasks between two positions, which may come from a run before partitions were added."""
        now = positions(self._client, self._topics, EARLIEST_TIMESTAMP)
        begin, until = self._position(start), self._position(end)
        if not self._options.fail_on_data_loss:
            # Also since the batch was planned, which may have been in another run: the next one reads the new topic.
            until = self._without_made_again(until, now)
            begin = plan.without_made_again(begin, until)
        ranges = plan.ranges_between(begin, until, now.offsets)
        return self._tasks(ranges, dict(now.offsets), until.topic_ids)

    def _position(self, body: dict[str, Any]) -> Position:
        """Return a position as Spark keeps it, without topics that a pattern meant in an earlier release."""
        found = Position.from_json(body)
        topics = self._topics
        if not isinstance(topics, re.Pattern):
            return found
        return found.without([name for name in found.topic_ids if OWN_TOPICS.fullmatch(name)])

    def _without_made_again(self, start: Position, now: Position) -> Position:
        """Return *start* without topics that were made again, and say which, once."""
        found = plan.without_made_again(start, now)
        for topic in sorted(start.topic_ids.keys() - found.topic_ids.keys()):
            if self._told.get(topic) != now.topic_ids[topic]:
                self._told[topic] = now.topic_ids[topic]
                print(
                    f"pylog: topic {topic!r} was deleted and made again: its id was {start.topic_ids[topic]} and is "
                    f"{now.topic_ids[topic]}; what was not read of the old one is lost, the new one is read from its "
                    "beginning",
                    file=sys.stderr,
                )
        return found

    def _latest(self) -> Position:
        self._seen = positions(self._client, self._topics, LATEST_TIMESTAMP)
        self._looked_s = self._clock()
        return self._seen

    def _is_idle(self, begin: Position) -> bool:
        """Return whether the last look found nothing behind *begin*, in the same topics and partitions."""
        seen = self._seen
        return seen is not None and seen.offsets == begin.offsets and seen.topic_ids == begin.topic_ids

    def _log_starts(self) -> dict[TopicPartition, Offset]:
        return dict(positions(self._client, self._topics, EARLIEST_TIMESTAMP).offsets)


def _client_of(options: SourceOptions, config: RawConfig | None = None) -> RawClient:
    config = replace(config or RawConfig(), isolation_level=options.isolation_level)
    return RawClient(options.bootstrap, config, options.client_security())


def read_task(task: TaskShare) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's ranges, fetch by fetch.

    Raises:
        plan.DataLoss: a partition ends before its range does.
        plan.PositionError: a topic was deleted and made again since the query was planned.
        UndecidedRecords: a range ends behind the beginning of a transaction that stays open.
    """
    config = RawConfig(isolation_level=task.isolation_level)
    columns = None if task.reader_texts is None else _avro_columns(task, task.reader_texts)
    on_hole = None if task.fail_on_data_loss else _pass_over
    with RawClient(task.bootstrap, config, security_of(task.security)) as client:
        last = {one.partition.topic: one for one in task.ranges}
        for wanted in task.ranges:
            # Once for all of a topic: should it be another one, the task fails, and nothing of it counts.
            topic = wanted.partition.topic
            topic_id = task.topic_ids.get(topic) if wanted is last[topic] else None
            for fetched in read_range(client, wanted, config, on_hole, topic_id):
                for found in _rows(fetched, task, wanted):
                    rows = with_decoded(with_partition(found, wanted.partition), columns)
                    yield rows if task.mode is not Mode.KEEP else _with_dead_letter(rows, found)


def _avro_columns(task: TaskShare, reader_texts: tuple[str, ...]) -> "AvroColumns":
    from pylog.ingest.avro import AvroColumns, registry_of

    return AvroColumns(registry_of(task.registry, security_of(task.security)), reader_texts, task.subject)


def _rows(fetched: Fetched, task: TaskShare, wanted: Range) -> Iterator[pa.RecordBatch]:
    """Yield the records of one fetch; a batch that does not decode becomes what the query's mode says."""
    if task.mode is Mode.FAIL:
        yield from decode(
            fetched.records, fetched.batches, start=fetched.start, end=wanted.end, with_headers=task.include_headers
        )
        return
    for found in decoded(fetched, wanted.end, with_headers=task.include_headers):
        if not isinstance(found, DeadLetter):
            yield found
        elif task.mode is Mode.KEEP:
            yield _dead_row(found, with_headers=task.include_headers)
        else:
            print(
                f"pylog: dropped {wanted.partition} offsets {found.first_offset} to {found.last_offset}, which do "
                f"not decode: {found.reason}",
                file=sys.stderr,
            )


def _dead_row(dead: DeadLetter, *, with_headers: bool) -> pa.RecordBatch:
    """Return a row at a dead batch's first offset, with the batch beside the columns that all rows have."""
    fields = [*FIELDS, ("headers", HEADERS)] if with_headers else list(FIELDS)
    arrays = [pa.nulls(1, kind) if name != "offset" else pa.array([dead.first_offset]) for name, kind in fields]
    row = pa.array([dict(zip((one.name for one in _DEAD_LETTER_ARROW), dead, strict=True))], _DEAD_LETTER_ARROW)
    return pa.RecordBatch.from_arrays([*arrays, row], [*(name for name, _ in fields), _DEAD_LETTER.name])


def _with_dead_letter(rows: pa.RecordBatch, found: pa.RecordBatch) -> pa.RecordBatch:
    is_dead = _DEAD_LETTER.name in found.schema.names
    dead = found[_DEAD_LETTER.name] if is_dead else pa.nulls(rows.num_rows, _DEAD_LETTER_ARROW)
    return pa.RecordBatch.from_arrays([*rows.columns, dead], [*rows.schema.names, _DEAD_LETTER.name])


def _pass_over(hole: Range) -> None:
    print(f"pylog: retention deleted {hole.partition} offsets {hole.start} to {hole.end - 1}", file=sys.stderr)


def with_partition(rows: pa.RecordBatch, partition: TopicPartition) -> pa.RecordBatch:
    """Return *rows* with topic and partition, in the schema's order."""
    own = {
        "topic": pa.repeat(pa.scalar(partition.topic), rows.num_rows),
        "partition": pa.repeat(pa.scalar(partition.partition, pa.int32()), rows.num_rows),
    }
    names = [*_ARROW_ORDER, *(["headers"] if "headers" in rows.schema.names else [])]
    return pa.RecordBatch.from_arrays([own.get(n) if n in own else rows[n] for n in names], names)


def with_decoded(rows: pa.RecordBatch, columns: "AvroColumns | None") -> pa.RecordBatch:
    """Return *rows* with what their values hold, if that was asked for."""
    if columns is None:
        return rows
    decoded, errors = columns.decode(rows["value"])
    return pa.RecordBatch.from_arrays([*rows.columns, decoded, errors], [*rows.schema.names, DECODED, DECODE_ERROR])

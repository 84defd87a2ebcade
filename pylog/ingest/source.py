"""The Spark data source ``pylog``: topics as tables and streams, in Arrow batches.

Spark plans on the driver (`partitions`, `latestOffset`) and reads in tasks (`read`): different processes, so all that
a task needs travels in its `TaskRange`.  Spark never calls a Python source's `stop`, calls `commit` one batch late and
not at all for the last one; so nothing here depends on either.

Source: pyspark.sql.datasource, Spark 4.2 and later (admission control, AvailableNow).
"""

# ruff: noqa: N802  the methods' names are Spark's

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pylog.client.raw import RawBatches, RawClient, RawConfig
from pylog.errors import ApiError, CorruptRecords, ErrorCode
from pylog.ingest import plan
from pylog.ingest.decode import decode, whole_batches
from pylog.ingest.options import SourceOptions, StartingOffsets, parse_options
from pylog.ingest.plan import Position, Range
from pylog.model import Offset, TopicPartition
from pylog.wire.api.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

SCHEMA = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
HEADERS_SCHEMA = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
"""The columns of Spark's own Kafka connector, in its order."""

_ARROW_ORDER = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


class PylogDataSource(DataSource):
    """``spark.read.format("pylog")`` and ``spark.readStream.format("pylog")``; see `pylog.ingest.options`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "pylog"

    def schema(self) -> str:
        """Return the columns; the headers only when asked for."""
        # Spark does not say here which kind of query it is; headers are asked for the same way in both.
        wants_headers = parse_options(self.options, is_stream=False).include_headers
        return SCHEMA + HEADERS_SCHEMA if wants_headers else SCHEMA

    def reader(self, schema: StructType) -> "PylogReader":
        """Return the reader of a batch query."""
        return PylogReader(parse_options(self.options, is_stream=False))

    def streamReader(self, schema: StructType) -> "PylogStreamReader":
        """Return the reader of a stream."""
        return PylogStreamReader(parse_options(self.options, is_stream=True))


@dataclass
class TaskRange(InputPartition):
    """All that one Spark task needs to read its share."""

    range: Range
    bootstrap: str
    include_headers: bool


class _TaskReader:
    """What tasks of both kinds of query do; holds nothing that a task changes."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of *partition*; runs in a task."""
        assert isinstance(partition, TaskRange), f"{partition!r} is not from our partitions()"
        return read_range(partition)

    def _tasks(self, ranges: list[Range], log_starts: dict[TopicPartition, Offset]) -> list[TaskRange]:
        options = self._options
        ranges = plan.present(ranges, log_starts, fail_on_data_loss=options.fail_on_data_loss)
        return [
            TaskRange(piece, options.bootstrap, options.include_headers)
            for piece in plan.split(ranges, options.max_records_per_partition)
        ]


class PylogReader(_TaskReader, DataSourceReader):
    """Reads what is there between the starting and the ending offsets."""

    def partitions(self) -> Sequence[TaskRange]:
        """Return the tasks."""
        with RawClient(self._options.bootstrap) as client:
            log_starts = positions(client, self._options.topics, EARLIEST_TIMESTAMP)
            start = resolve(client, self._options.topics, self._options.starting)
            end = resolve(client, self._options.topics, self._options.ending)
        ranges = plan.ranges_between(start, end, log_starts.offsets)
        return self._tasks(ranges, dict(log_starts.offsets))


class PylogStreamReader(_TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what arrives, micro-batch by micro-batch."""

    _target: Position | None = None

    @cached_property
    def _client(self) -> RawClient:
        # Made at first use and never before: Spark pickles the reader for its planning process.
        return RawClient(self._options.bootstrap)

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options}

    def initialOffset(self) -> dict[str, Any]:
        """Return where a first run begins; Spark asks again on each start and then prefers its checkpoint."""
        return resolve(self._client, self._options.topics, self._options.starting).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return ``maxOffsetsPerTrigger`` in Spark's terms."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix where this run ends: what arrives later belongs to the next one."""
        self._target = self._latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends."""
        latest = self._latest()
        if self._target is not None:
            latest = plan.not_beyond(latest, self._target)
        begin = Position.from_json(start)
        log_starts = self._log_starts()
        if isinstance(limit, ReadMaxRows):
            latest = plan.limited(begin, latest, log_starts, limit.max_rows)
        # Also without a limit: a topic made again or a cut log must fail here, by name, and not in a task.
        plan.ranges_between(begin, latest, log_starts)
        return latest.to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the end of the topics, from which Spark's progress tells the lag."""
        return self._latest().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[TaskRange]:
        """Return the tasks between two positions, which may come from a run before partitions were added."""
        log_starts = self._log_starts()
        ranges = plan.ranges_between(Position.from_json(start), Position.from_json(end), log_starts)
        return self._tasks(ranges, log_starts)

    def _latest(self) -> Position:
        return positions(self._client, self._options.topics, LATEST_TIMESTAMP)

    def _log_starts(self) -> dict[TopicPartition, Offset]:
        return dict(positions(self._client, self._options.topics, EARLIEST_TIMESTAMP).offsets)


def positions(client: RawClient, topics: Sequence[str], timestamp: int) -> Position:
    """Return the position at *timestamp* in every partition that *topics* have now."""
    found = client.topics(topics)
    partitions = [TopicPartition(name, p) for name, topic in found.items() for p in topic.leaders]
    ids = {name: str(topic.topic_id) for name, topic in found.items()}
    return Position(client.list_offsets(partitions, timestamp), ids)


def resolve(client: RawClient, topics: Sequence[str], wanted: StartingOffsets) -> Position:
    """Return *wanted* as numbers.

    Raises:
        ApiError: UNKNOWN_TOPIC_OR_PARTITION, for an offset given to a partition that is not there.
    """
    base = positions(client, topics, wanted.default)
    offsets = dict(base.offsets)
    for topic, by_partition in wanted.by_partition.items():
        for number, offset in by_partition.items():
            partition = TopicPartition(topic, number)
            if partition not in offsets:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"an offset is given for {partition}: no such one")
            if offset < 0:
                offset = client.list_offsets([partition], offset)[partition]
            offsets[partition] = offset
    return Position(offsets, base.topic_ids)


def read_range(task: TaskRange) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one range, fetch by fetch.

    Raises:
        plan.DataLoss: the partition ends before the range does.
    """
    partition, position, end = task.range
    # A first batch larger than the fetch's limit still comes whole, so every fetch that is not empty advances.
    config = RawConfig()
    with RawClient(task.bootstrap, config) as client:
        empty_fetches = 0
        while position < end:
            fetched = client.fetch({partition: position})[partition]
            batches = whole_batches(fetched.records)
            if not batches:
                empty_fetches += 1
                _refuse_to_wait(fetched, task.range, position, empty_fetches * config.max_wait_ms >= config.retry_ms)
                continue
            empty_fetches = 0
            for rows in decode(fetched.records, batches, start=position, end=end, with_headers=task.include_headers):
                yield with_partition(rows, partition)
            position = batches[-1][1].last_offset + 1


def _refuse_to_wait(fetched: RawBatches, wanted: Range, position: Offset, is_late: bool) -> None:
    if len(fetched.records):
        raise CorruptRecords(f"{wanted.partition} offset {position}: a fetch ends inside its first batch")
    if is_late:
        # A new leader may know less for a moment, never for as long as a client retries.
        raise plan.DataLoss(
            f"{wanted.partition} ends at {fetched.high_watermark}, before {wanted.end} where it ended when the "
            f"query was planned: offsets {position} to {wanted.end - 1} are gone"
        )


def with_partition(rows: pa.RecordBatch, partition: TopicPartition) -> pa.RecordBatch:
    """Return *rows* with topic and partition, in the schema's order."""
    own = {
        "topic": pa.repeat(pa.scalar(partition.topic), rows.num_rows),
        "partition": pa.repeat(pa.scalar(partition.partition, pa.int32()), rows.num_rows),
    }
    names = [*_ARROW_ORDER, *(["headers"] if "headers" in rows.schema.names else [])]
    return pa.RecordBatch.from_arrays([own.get(n) if n in own else rows[n] for n in names], names)

"""The Spark sink ``pylog``: rows become records of topics, in batch and as a stream.

Each task sends its rows with a producer of its own and ends once all of them are acknowledged by every in-sync replica.
The producer is idempotent, so that what it sends again is stored once.  A task or a micro-batch that Spark runs again
is sent again: at least once, as by Spark's own Kafka sink.

Source: pyspark.sql.datasource, `DataSourceArrowWriter` and `DataSourceStreamArrowWriter`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pylog.client.connection import Connection
from pylog.client.producer import Producer
from pylog.client.raw import RawClient, RawConfig
from pylog.client.security import security_of
from pylog.errors import ConfigError, PylogError
from pylog.ingest.options import SinkOptions

_FIRST_ANSWER_MS = 15_000
_BUFFERED_BYTES = 64 << 20
# Of one task; several share a host.

_FULL_QUEUE_WAIT_S = 0.1

_BYTES = (StringType(), BinaryType())
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_KINDS: dict[str, tuple[DataType, ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (_HEADERS,),
    "timestamp": (TimestampType(),),
}
_PASSED_OVER = frozenset({"offset", "timestampType"})
# A topic that was read by this format has them, and the brokers give new ones.

Encoder: TypeAlias = Callable[[object], bytes]


class UnwritableRow(PylogError):
    """A row cannot be a record; the message names the column, what it holds and what is wanted."""

    fault = 317


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote.

    Attributes:
        records: acknowledged ones.
    """

    records: int


def check_columns(columns: StructType, options: SinkOptions) -> None:
    """Check that rows of these columns can be records.

    Raises:
        ConfigError: names the column.
    """
    found = {field.name: field.dataType for field in columns}
    if "value" not in found:
        raise ConfigError(f"column 'value' is missing; the columns are {', '.join(found) or 'none'}")
    if "topic" not in found and not options.topic:
        raise ConfigError("column 'topic' is missing, and so is option 'topic', which names the topic of all rows")
    for name, kind in found.items():
        if name in _PASSED_OVER or (name == "value" and options.registry):
            continue
        if name not in _KINDS:
            raise ConfigError(
                f"column {name!r} cannot be written; {', '.join(_KINDS)} can, so select, drop or rename it first"
            )
        # Whether something may be null says nothing about what it is.
        if kind.simpleString() not in [one.simpleString() for one in _KINDS[name]]:
            wanted = " or ".join(one.simpleString() for one in _KINDS[name])
            raise ConfigError(f"column {name!r} is {kind.simpleString()}; {wanted} is wanted")


def planned(columns: StructType, options: SinkOptions) -> SinkOptions:
    """Return *options* as tasks need them, once a write of these columns was found possible; runs on the driver.

    Raises:
        ConfigError: a column is missing or of another type than a record's.
        ApiError: UNKNOWN_TOPIC_OR_PARTITION, the topic of option ``topic`` does not exist.
        SchemaError: the registry has no schema of the subject.
    """
    check_columns(columns, options)
    if options.topic:
        with _client_of(options) as client:
            client.topics([options.topic])
    if not options.registry:
        return options
    from pylog.client.avro import RegistryClient

    subject = options.schema_subject or f"{options.topic}-value"
    texts = RegistryClient(options.registry, security=security_of(options.security)).latest(subject)
    if len(texts) > 1:
        raise ConfigError(f"the schema of subject {subject!r} refers to others; values cannot be written under it")
    return replace(options, schema_subject=subject, schema_text=texts[0])


class _Rows:
    """Writes the rows of a query.

    Args:
        columns: of the rows.
        options: of the query.

    Raises:
        PylogError: as `planned`.
    """

    def __init__(self, columns: StructType, options: SinkOptions) -> None:
        self._options = planned(columns, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of a partition; runs in a task."""
        return write_rows(iterator, self._options)


class PylogWriter(_Rows, DataSourceArrowWriter):
    """Writes the rows of a batch query."""


class PylogStreamWriter(_Rows, DataSourceStreamArrowWriter):
    """Writes the rows of each micro-batch; of a query that outputs its complete result, all of it each time."""


def write_rows(batches: Iterable[pa.RecordBatch], options: SinkOptions) -> Written:
    """Send all rows and wait until they are acknowledged.

    Raises:
        UnwritableRow: a row cannot be a record.
        ApiError: the brokers refuse a record; others of the rows are written.
        Unreachable: no broker answers.
    """
    encode = _encoder(options)
    cluster = Connection(bootstrap=options.bootstrap).secured(options.security)
    count = 0
    with ExitStack() as stack:
        topics = _Topics(stack.enter_context(_client_of(options)))
        producer = Producer(
            cluster,
            compression=options.compression,
            delivery_timeout_ms=options.delivery_timeout_ms,
            buffered_bytes=_BUFFERED_BYTES,
        )
        for rows in batches:
            for topic, own in _by_topic(rows, options.topic):
                if not options.topic or "partition" in own.schema.names:
                    topics.check(topic, own)
                try:
                    _send(producer, topic, own, encode)
                except UnwritableRow:
                    raise
                except PylogError as error:
                    error.args = (f"topic {topic!r}: {error}",)
                    raise
            count += rows.num_rows
            if producer.first_error is not None:
                break
        producer.flush()
        if producer.first_error is not None:
            raise _failed(producer, options)
    return Written(count)


def _client_of(options: SinkOptions) -> RawClient:
    return RawClient(options.bootstrap, RawConfig(retry_ms=_FIRST_ANSWER_MS), security_of(options.security))


def _failed(producer: Producer, options: SinkOptions) -> PylogError:
    """Return why the first record that failed did, with where it was to go."""
    error = producer.first_error
    assert error is not None, "the caller found one"
    topic, partition = producer.first_failed or (options.topic, -1)
    where = (f"topic {topic!r}" if topic else "a topic") + (f" partition {partition}" if partition >= 0 else "")
    error.args = (f"{producer.failed_count} records were not written, the first to {where}: {error}",)
    return error


def _encoder(options: SinkOptions) -> Encoder | None:
    if not options.schema_text:
        return None
    from pylog.client.avro import AvroSerializer, RegistryClient

    registry = RegistryClient(options.registry, security=security_of(options.security))
    return AvroSerializer(registry, options.schema_subject, options.schema_text, registers=False, strict=True)


class _Topics:
    """What topics there are, asked for once in a task: a producer would have the brokers make those that are missing.

    Args:
        client: to ask.
    """

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._partitions: dict[str, int] = {}

    def check(self, topic: str, rows: pa.RecordBatch) -> None:
        """Check that a topic and the partitions that *rows* name exist.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION, there is no such topic.
            UnwritableRow: there is no such partition.
        """
        if topic not in self._partitions:
            self._partitions[topic] = len(self._client.topics([topic])[topic].leaders)
        if "partition" not in rows.schema.names:
            return
        bounds = pc.min_max(rows["partition"]).as_py()
        lowest, highest = bounds["min"], bounds["max"]
        if lowest is not None and (lowest < 0 or highest >= self._partitions[topic]):
            found = lowest if lowest < 0 else highest
            raise UnwritableRow(
                f"column 'partition' is {found}; topic {topic!r} has partitions 0 to {self._partitions[topic] - 1}"
            )


def _by_topic(rows: pa.RecordBatch, topic: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each topic, in their order; *topic* stands for all if it is not empty."""
    if topic:
        yield topic, rows
        return
    names = rows["topic"].dictionary_encode()
    if rows["topic"].null_count:
        raise UnwritableRow("column 'topic' is null; a name is wanted, or option 'topic' for all rows")
    for number, name in enumerate(names.dictionary.to_pylist()):
        yield name, rows if len(names.dictionary) == 1 else rows.filter(pc.equal(names.indices, number))


def _send(producer: Producer, topic: str, rows: pa.RecordBatch, encode: Encoder | None) -> None:
    names = rows.schema.names
    values = _bytes(rows["value"]) if encode is None else _encoded(rows["value"], encode)
    keys = _bytes(rows["key"]) if "key" in names else [None] * rows.num_rows
    partitions = rows["partition"].fill_null(-1).to_pylist() if "partition" in names else [-1] * rows.num_rows
    if "headers" not in names and "timestamp" not in names:
        records: list[dict[str, object]] = [
            {"value": value, "key": key, "partition": partition}
            for value, key, partition in zip(values, keys, partitions, strict=True)
        ]
        producer.send_records(topic, records)
        return
    # librdkafka takes many records at once only without headers and times.
    times_ms = _times_ms(rows["timestamp"]) if "timestamp" in names else [0] * rows.num_rows
    headers = rows["headers"].to_pylist() if "headers" in names else [None] * rows.num_rows
    for value, key, partition, time_ms, own in zip(values, keys, partitions, times_ms, headers, strict=True):
        pairs = [(one["key"], one["value"]) for one in own or ()]
        while not producer.hand_over(topic, value, key, partition, pairs, None, time_ms):
            producer.poll(_FULL_QUEUE_WAIT_S)
    producer.poll(0)


def _bytes(column: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return found


def _encoded(column: pa.Array, encode: Encoder) -> list[bytes | None]:
    # A null deletes the key from a compacted topic; the schema is not asked about it.
    values: Sequence[Any] = column.to_pylist(maps_as_pydicts="strict")
    return [None if value is None else encode(value) for value in values]


def _times_ms(column: pa.Array) -> list[int]:
    """Return milliseconds since 1970; 0, which a producer takes for now, where a row has no time."""
    ms = pc.divide(column.cast(pa.int64()), 1000)
    lowest = pc.min(ms).as_py()
    if lowest is not None and lowest <= 0:
        raise UnwritableRow(
            f"column 'timestamp' is {lowest} ms since 1970; a record's time is after that, or null for now"
        )
    found: list[int] = ms.fill_null(0).to_pylist()
    return found

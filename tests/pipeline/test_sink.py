"""``format("pylog")`` on a real Spark, writing to a real broker; read back by librdkafka."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pylog.client.admin.cluster import Admin
from pylog.client.avro import AvroDeserializer, RegistryClient, SchemaError
from pylog.client.connection import Connection
from pylog.client.raw import RawClient
from pylog.errors import ApiError, ErrorCode, PylogError
from pylog.ingest.options import SinkOptions, parse_sink_options
from pylog.ingest.sink import UnwritableRow, write_rows
from pylog.ingest.spark import cause_of
from pylog.model import TopicPartition
from pylog.testing import BrokerProcess
from pylog.wire.api.offsets import LATEST_TIMESTAMP
from pylog.wire.records import parse_header
from tests.pipeline.conftest import Topics
from tests.servers.web import WebServer
from tests.unit.ingest.test_avro_columns import NEW, Registry

AT = datetime(2024, 10, 4, 12, 0, 0, 123000, tzinfo=UTC)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Seen(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: object
    timestamp_ms: int


@pytest.fixture
def read(broker: BrokerProcess) -> Callable[[str], list[Seen]]:
    """Reads all that a topic holds."""

    def consume(topic: str) -> list[Seen]:
        with RawClient(broker.bootstrap) as client:
            partitions = [TopicPartition(topic, number) for number in client.topics([topic])[topic].leaders]
            ends = client.list_offsets(partitions, LATEST_TIMESTAMP)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", "enable.auto.commit": False})
        found: list[Seen] = []
        try:
            consumer.assign([Assigned(topic, one.partition, 0) for one in partitions])
            while len(found) < sum(ends.values()):
                for one in consumer.consume(1000, 20):
                    assert one.error() is None
                    time_ms = one.timestamp()[1]
                    found.append(Seen(one.partition() or 0, one.key(), one.value(), one.headers(), time_ms))
        finally:
            consumer.close()
        return sorted(found, key=lambda one: (one.partition, one.key or b""))

    return consume


def write(frame: DataFrame, broker: BrokerProcess, **options: str) -> None:
    frame.write.format("pylog").option("bootstrap", broker.bootstrap).options(**options).mode("append").save()


def options_of(broker: BrokerProcess, **more: str) -> SinkOptions:
    return parse_sink_options({"bootstrap": broker.bootstrap, **more})


def rows(**columns: tuple[Any, pa.DataType]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(values, kind) for name, (values, kind) in columns.items()})


def test_rows_become_records_with_all_their_columns(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, read: Callable[[str], list[Seen]]
) -> None:
    topic = topics.create(partitions=3)
    frame = spark.createDataFrame(
        [
            (b"a", "first", 2, AT, [("h", b"1"), ("empty", None)]),
            (None, None, 1, AT, []),
            (b"c", "third", 0, AT, None),
        ],
        "key BINARY, value STRING, partition INT, timestamp TIMESTAMP, "
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    )
    write(frame, broker, topic=topic, compression="zstd")
    at_ms = int(AT.timestamp() * 1000)
    assert read(topic) == [
        Seen(0, b"c", b"third", None, at_ms),
        Seen(1, None, None, None, at_ms),
        Seen(2, b"a", b"first", [("h", b"1"), ("empty", None)], at_ms),
    ]


def test_a_column_names_the_topic_of_each_row_and_a_topic_is_copied_as_it_was_read(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, read: Callable[[str], list[Seen]]
) -> None:
    first, second, copy = topics.create(), topics.create(), topics.create()
    frame = spark.range(100).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value", f"IF(id < 30, '{first}', '{second}') AS topic"
    )
    write(frame, broker)
    assert {one.value for one in read(first)} == {b"%d" % number for number in range(30)}
    assert {one.value for one in read(second)} == {b"%d" % number for number in range(30, 100)}
    source = spark.read.format("pylog").option("bootstrap", broker.bootstrap).option("topic", second).load()
    write(source, broker, topic=copy)
    assert read(copy) == read(second), "partition and time of each record too"


class Lines:
    """A stream of lines that Spark itself reads from files, and where its query stands."""

    def __init__(self, spark: SparkSession, directory: Path, broker: BrokerProcess, topic: str) -> None:
        self._spark, self._directory, self._bootstrap, self._topic = spark, directory, broker.bootstrap, topic
        (directory / "lines").mkdir()

    def add(self, numbers: range) -> None:
        text = "".join(f"{number}\n" for number in numbers)
        (self._directory / "lines" / f"{numbers.start}.txt").write_text(text)

    def run(self, query: Callable[[DataFrame], DataFrame], mode: str = "append") -> None:
        """Write what is there and was not written yet."""
        frame = query(self._spark.readStream.schema("value STRING").text(str(self._directory / "lines")))
        writer = frame.writeStream.format("pylog").option("bootstrap", self._bootstrap).option("topic", self._topic)
        writer = writer.outputMode(mode).option("checkpointLocation", str(self._directory / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()


def test_a_stream_goes_on_where_it_stopped_and_writes_each_record_once(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, read: Callable[[str], list[Seen]], tmp_path: Path
) -> None:
    topic = topics.create()
    lines = Lines(spark, tmp_path, broker, topic)
    for numbers in (range(50), range(50, 80), range(0)):
        if numbers:
            lines.add(numbers)
        lines.run(lambda frame: frame.selectExpr("concat('line ', value) AS value"))
    assert sorted(one.value or b"" for one in read(topic)) == sorted(b"line %d" % number for number in range(80))


def test_a_stream_that_failed_writes_its_micro_batch_again_and_loses_nothing(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, read: Callable[[str], list[Seen]], tmp_path: Path
) -> None:
    topic = topics.create(partitions=1)
    lines = Lines(spark, tmp_path, broker, topic)
    lines.add(range(20))
    fails = tmp_path / "fails"
    fails.touch()

    def last_fails(batches: Any) -> Any:
        for batch in batches:
            yield batch.slice(0, 10)
            if fails.exists():
                raise RuntimeError("in the middle of a task")
            yield batch.slice(10)

    def query(frame: DataFrame) -> DataFrame:
        return frame.mapInArrow(last_fails, "value STRING")

    with pytest.raises(PySparkException, match="in the middle of a task"):
        lines.run(query)
    fails.unlink()
    lines.run(query)
    assert {one.value for one in read(topic)} == {b"%d" % number for number in range(20)}


def test_a_complete_result_is_written_with_each_micro_batch(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, read: Callable[[str], list[Seen]], tmp_path: Path
) -> None:
    topic = topics.create(partitions=1)
    lines = Lines(spark, tmp_path, broker, topic)
    for numbers, expected in ((range(3), [b"3"]), (range(3, 7), [b"3", b"7"])):
        lines.add(numbers)
        lines.run(lambda frame: frame.groupBy().count().selectExpr("CAST(count AS STRING) AS value"), "complete")
        assert [one.value for one in read(topic)] == expected


def test_a_write_that_cannot_begin_names_the_column_or_the_topic(
    spark: SparkSession, broker: BrokerProcess, topics: Topics
) -> None:
    frame = spark.range(1)
    topic = topics.create()
    for columns, to, said in (
        ("id AS value", topic, "column 'value' is bigint; string or binary is wanted"),
        ("CAST(id AS STRING) AS value", "no-such-topic", "topic 'no-such-topic' does not exist"),
    ):
        with pytest.raises(PySparkException) as refused:
            write(frame.selectExpr(columns), broker, topic=to)
        assert said in cause_of(str(refused.value))


def test_values_are_written_in_avro_under_the_subject_s_latest_schema(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, read: Callable[[str], list[Seen]]
) -> None:
    topic = topics.create(partitions=1)
    with WebServer("127.0.0.1", 0, Registry()) as server:
        url = f"http://127.0.0.1:{server.port}"
        registry = RegistryClient(url)
        registry.schema_id(f"{topic}-value", NEW)
        frame = spark.sql(
            "SELECT 'a' AS key, named_struct('member', 7L, 'country', 'CH') AS value "
            "UNION ALL SELECT 'b', named_struct('member', 8L, 'country', NULL) UNION ALL SELECT 'c', NULL"
        )
        write(frame, broker, topic=topic, schemaRegistry=url)
        decode = AvroDeserializer(registry)
        found = {one.key: None if one.value is None else decode(one.value) for one in read(topic)}
        assert found == {b"a": {"member": 7, "country": "CH"}, b"b": {"member": 8, "country": None}, b"c": None}

        given = options_of(broker, topic=topic, schemaRegistry=url, schemaSubject="s")
        lost = SinkOptions(
            bootstrap=given.bootstrap, topic=topic, registry=given.registry, schema_subject="s", schema_text=NEW
        )
        extra = pa.struct([("member", pa.int64()), ("contry", pa.string())])
        with pytest.raises(SchemaError, match="s: the value does not fit the schema"):
            write_rows([rows(value=([{"member": 9, "contry": "CH"}], extra))], lost)
    assert len(read(topic)) == 3


def test_records_come_from_an_idempotent_producer(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.create(partitions=1)
    written = write_rows([rows(value=([b"a", b"b"], pa.binary()))], options_of(broker, topic=topic))
    assert written.records == 2
    with RawClient(broker.bootstrap) as client:
        header = parse_header(client.fetch({TopicPartition(topic, 0): 0})[TopicPartition(topic, 0)].records, 0)
    assert header.producer_id >= 0


@pytest.mark.parametrize("with_headers", [False, True])
@pytest.mark.parametrize("size", [10_000, 2_000_000])  # the broker refuses the first, the client the second
def test_what_is_refused_fails_the_task_and_names_the_topic(
    broker: BrokerProcess, topics: Topics, with_headers: bool, size: int
) -> None:
    topic = f"{topics.create()}.small"
    create = Admin(Connection(bootstrap=broker.bootstrap)).create_topic
    create(topic, partitions=1, replication_factor=1, config={"max.message.bytes": "2000"})
    columns: dict[str, tuple[Any, pa.DataType]] = {"value": ([b"small", bytes(size)], pa.binary())}
    if with_headers:
        columns["headers"] = ([[{"key": "a", "value": b"1"}]] * 2, HEADERS)
    with pytest.raises(PylogError, match=f"topic '{topic}'.*too large"):
        write_rows([rows(**columns)], options_of(broker, topic=topic))


def test_rows_that_no_record_can_be_are_named(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    value = (["v"], pa.string())
    when = pa.timestamp("us", "UTC")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"value": value, "topic": ([None], pa.string())}, "column 'topic' is null; a name is wanted"),
        ({"value": value, "topic": ([topic], pa.string()), "partition": ([2], pa.int32())},
         f"column 'partition' is 2; topic '{topic}' has partitions 0 to 1"),
        ({"value": value, "topic": ([topic], pa.string()), "partition": ([-2], pa.int32())}, "'partition' is -2"),
        ({"value": value, "topic": ([topic], pa.string()), "timestamp": ([-1000], when)},
         "column 'timestamp' is -1 ms since 1970"),
    )  # fmt: skip
    for columns, said in cases:
        with pytest.raises(UnwritableRow, match=said):
            write_rows([rows(**columns)], options_of(broker))
    with pytest.raises(ApiError, match="topic 'no-such-topic' does not exist") as refused:
        write_rows([rows(value=value, topic=(["no-such-topic"], pa.string()))], options_of(broker))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_time_or_a_partition_that_is_null_is_chosen(
    broker: BrokerProcess, topics: Topics, read: Callable[[str], list[Seen]]
) -> None:
    topic = topics.create(partitions=2)
    given = rows(
        key=(["k"] * 2, pa.string()), value=(["a", "b"], pa.string()), partition=([None, 0], pa.int32()),
        timestamp=([None, AT], pa.timestamp("us", "UTC")),
    )  # fmt: skip
    write_rows([given], options_of(broker, topic=topic))
    now, then = sorted(read(topic), key=lambda one: one.value or b"")
    assert now.timestamp_ms > then.timestamp_ms == int(AT.timestamp() * 1000)
    assert then.partition == 0

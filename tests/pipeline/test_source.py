"""``format("pylog")`` on a real Spark, reading a real broker."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming import DataStreamReader, StreamingQuery

from pylog.client.raw import RawClient
from pylog.ingest.fetch import positions
from pylog.ingest.spark import cause_of
from pylog.testing import BrokerProcess
from pylog.wire.api.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tests.pipeline.conftest import Topics

NOW_MS = 1_700_000_000_123


@pytest.fixture
def reader(spark: SparkSession, broker: BrokerProcess) -> Callable[..., DataFrameReader]:
    def make(topic: str, **options: object) -> DataFrameReader:
        given = {"bootstrap": broker.bootstrap, "topic": topic, **options}
        return spark.read.format("pylog").options(**given)  # type: ignore[arg-type]

    return make


@pytest.fixture
def stream(spark: SparkSession, broker: BrokerProcess) -> Callable[..., DataStreamReader]:
    def make(topic: str, **options: object) -> DataStreamReader:
        given = {"bootstrap": broker.bootstrap, "topic": topic, "startingOffsets": "earliest", **options}
        return spark.readStream.format("pylog").options(**given)  # type: ignore[arg-type]

    return make


def drain(stream: DataFrame, checkpoint: Path, seen: list[list[str]]) -> StreamingQuery:
    """Run the stream over all there is; one list of keys a micro-batch."""

    def collect(records: DataFrame, batch_id: int) -> None:
        seen.append(sorted(bytes(row.key).decode() for row in records.select("key").collect()))

    query = (
        stream.writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def keys(*numbers: int) -> list[bytes]:
    return [b"%04d" % number for number in numbers]


@pytest.fixture
def rows(reader: Callable[..., DataFrameReader]) -> Callable[..., Iterator[tuple[object, ...]]]:
    def read(topic: str, *columns: str, **options: object) -> list[tuple[object, ...]]:
        frame = reader(topic, **options).load().select(*columns)
        return sorted(tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in frame.collect())

    return read  # type: ignore[return-value]


def test_the_columns_are_those_of_sparks_kafka_connector(
    reader: Callable[..., DataFrameReader], topics: Topics
) -> None:
    schema = reader(topics.create()).load().schema.simpleString()
    assert schema == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )


def test_a_batch_query_reads_what_was_produced_in_every_codec(
    rows: Callable[..., list[tuple[object, ...]]], topics: Topics
) -> None:
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    topic = topics.create(partitions=len(codecs))
    for partition, codec in enumerate(codecs):
        topics.send(topic, keys(*range(500)), codec=codec, partition=partition)
    assert rows(topic, "partition", "offset", "key", "value", "topic", "timestampType") == [
        (partition, i, b"%04d" % i, b"value of %04d" % i, topic, 0)
        for partition in range(len(codecs))
        for i in range(500)
    ]


def test_nulls_headers_and_timestamps_arrive(reader: Callable[..., DataFrameReader], topics: Topics) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, [None], value=lambda _: None, timestamp_ms=NOW_MS)
    topics.send(topic, [b""], value=lambda _: b"", headers=lambda _: [("a", b"1"), ("b", None)], timestamp_ms=NOW_MS)
    first, second = reader(topic, includeHeaders=True).load().orderBy("offset").collect()
    assert (first.key, first.value, first.headers) == (None, None, [])
    assert (second.key, second.value) == (b"", b"")
    assert [(h.key, h.value) for h in second.headers] == [("a", b"1"), ("b", None)]
    assert first.timestamp.astimezone(UTC) == datetime.fromtimestamp(NOW_MS / 1000, UTC)


def test_offsets_bound_a_batch_query(rows: Callable[..., list[tuple[object, ...]]], topics: Topics) -> None:
    topic = topics.create()
    for partition in (0, 1):
        topics.send(topic, keys(*range(10)), partition=partition)
    found = rows(
        topic, "partition", "offset",
        startingOffsets=json.dumps({topic: {"0": 7, "1": -2}}), endingOffsets=json.dumps({topic: {"1": 3}}),
    )  # fmt: skip
    assert found == [(0, 7), (0, 8), (0, 9), (1, 0), (1, 1), (1, 2)]


def test_a_fat_partition_becomes_several_tasks(reader: Callable[..., DataFrameReader], topics: Topics) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, keys(*range(100)))
    frame = reader(topic, maxRecordsPerPartition=30).load()
    assert frame.rdd.getNumPartitions() == 4
    assert frame.count() == 100


def test_sql_reads_a_topic(spark: SparkSession, broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, keys(*range(20)))
    spark.sql(f"CREATE TEMPORARY VIEW logins USING pylog OPTIONS (bootstrap '{broker.bootstrap}', topic '{topic}')")
    try:
        (row,) = spark.sql("SELECT count(*) AS n, max(CAST(key AS STRING)) AS last FROM logins").collect()
    finally:
        spark.catalog.dropTempView("logins")
    assert (row.n, row.last) == (20, "0019")


def test_available_now_drains_in_bounded_batches_and_goes_on_where_it_stopped(
    stream: Callable[..., DataStreamReader], topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, keys(*range(100)))
    seen: list[list[str]] = []
    query = drain(stream(topic, maxOffsetsPerTrigger=40).load(), tmp_path, seen)
    assert [len(batch) for batch in seen] == [40, 40, 20]
    assert sorted(chain(*seen)) == [key.decode() for key in keys(*range(100))]
    progress = query.lastProgress
    assert progress is not None
    source = progress.sources[0]
    assert json.loads(source.endOffset) == json.loads(source.latestOffset)

    topics.send(topic, keys(100, 101))
    again: list[list[str]] = []
    drain(stream(topic, maxOffsetsPerTrigger=40).load(), tmp_path, again)
    assert sorted(chain(*again)) == ["0100", "0101"]


def test_what_arrives_during_available_now_waits_for_the_next_run(
    stream: Callable[..., DataStreamReader], topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, keys(*range(10)))
    seen: list[int] = []

    def collect(records: DataFrame, batch_id: int) -> None:
        topics.send(topic, keys(100 + batch_id))  # more with every batch: it would never end otherwise
        seen.append(records.count())

    query = (
        stream(topic, maxOffsetsPerTrigger=5).load().writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert seen == [5, 5]


def test_a_topic_made_again_is_refused_by_name(
    stream: Callable[..., DataStreamReader], topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, keys(*range(10)))
    drain(stream(topic).load(), tmp_path, [])
    topics.delete(topic)
    topics.create(name=topic)
    topics.send(topic, keys(*range(50)))
    with pytest.raises(PySparkException) as refused:
        drain(stream(topic).load(), tmp_path, [])
    assert f"topic '{topic}' was deleted and made again" in cause_of(str(refused.value))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "topic 'no-such-topic' does not exist"),
        ({"includeHeaders": "maybe"}, "option 'includeHeaders' is 'maybe'; true or false is wanted"),
        ({"bootstrap": "nowhere"}, "bootstrap address 'nowhere' is not host:port"),
    ],
)
def test_a_mistake_is_named(reader: Callable[..., DataFrameReader], options: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException) as refused:
        reader("no-such-topic", **options).load().count()
    assert said in cause_of(str(refused.value))


def test_positions_carry_the_topics_id(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.create(partitions=3)
    topics.send(topic, keys(1), partition=2)
    with RawClient(broker.bootstrap) as client:
        first = positions(client, [topic], EARLIEST_TIMESTAMP)
        last = positions(client, [topic], LATEST_TIMESTAMP)
    assert first.topic_ids == last.topic_ids
    assert set(first.topic_ids[topic]) - set("0-")  # an id, not zeros
    assert {p.partition: last.offsets[p] - first.offsets[p] for p in last.offsets} == {0: 0, 1: 0, 2: 1}

"""``format("pylog")`` on a real Spark, reading a real broker."""

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path

import pytest
from crc32c import crc32c
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming import DataStreamReader, StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pylog.cli.app import run as pylog
from pylog.client.avro import AvroSerializer, RegistryClient
from pylog.client.raw import RawClient
from pylog.ingest import sql
from pylog.ingest.fetch import positions
from pylog.ingest.options import parse_options
from pylog.ingest.plan import MIN_QUERY_TASKS, Position, PositionError
from pylog.ingest.source import PylogDataSource, PylogReader, PylogStreamReader, read_task
from pylog.ingest.spark import cause_of
from pylog.model import TopicPartition
from pylog.testing import BrokerProcess
from pylog.wire import records as wire
from pylog.wire.api.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from pylog.wire.records import Record, encode_batch
from tests.interop.frames import Connection, produce, produce_result
from tests.pipeline.conftest import Topics
from tests.servers.web import WebServer
from tests.unit.ingest.test_avro_columns import NEW, OLD, Registry

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
        frame = reader(topic, **options).load().selectExpr(*columns)
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


def test_filters_choose_what_is_fetched(reader: Callable[..., DataFrameReader], topics: Topics) -> None:
    topic = topics.create(partitions=2)
    for partition in (0, 1):
        for number in range(6):  # one batch each, so that a fetch can begin at each
            topics.send(topic, keys(number), partition=partition, timestamp_ms=NOW_MS + number * 1000)
    found = reader(topic, filterPushdown=True, maxRecordsPerPartition=1).load()
    for where, count in (
        ("partition = 1", 6),
        ("partition = 1 AND offset >= 2 AND offset < 4", 2),
        ("timestamp >= timestamp_millis(1700000004123)", 4),
        ("timestamp > timestamp_millis(1800000000000)", 0),
        ("topic = 'other'", 0),
        ("partition IN (0, 1) AND key IS NOT NULL", 12),
    ):
        filtered = found.where(where)
        # Where there is nothing to read, Spark makes up one partition.
        assert (filtered.rdd.getNumPartitions(), filtered.count()) == (max(count, 1), count), where


def test_times_bound_a_batch_query(rows: Callable[..., list[tuple[object, ...]]], topics: Topics) -> None:
    topic = topics.create(partitions=1)
    for number in range(6):
        topics.send(topic, keys(number), timestamp_ms=NOW_MS + number * 1000)
    assert rows(topic, "offset", startingTimestamp=NOW_MS + 1001, endingTimestamp=NOW_MS + 4000) == [(2,), (3,)]
    assert rows(topic, "offset", startingTimestamp=NOW_MS + 9000) == []


def test_a_pattern_chooses_topics_also_those_that_come_later(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, tmp_path: Path
) -> None:
    one = topics.create(name="pattern-one")
    topics.create(name="other-pattern-x")
    topics.send(one, keys(1))
    topics.send("other-pattern-x", keys(9))
    stream = spark.readStream.format("pylog").options(
        bootstrap=broker.bootstrap, topicPattern="pattern-.*", startingOffsets="earliest"
    )
    seen: list[list[str]] = []
    drain(stream.load(), tmp_path, seen)
    topics.send(topics.create(name="pattern-two"), keys(2))
    topics.send(one, keys(3))
    drain(stream.load(), tmp_path, seen)
    assert seen == [["0001"], ["0002", "0003"]]


def test_partitions_added_while_a_stream_runs_are_read(
    stream: Callable[..., DataStreamReader], topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, keys(1))
    seen: list[list[str]] = []

    def collect(records: DataFrame, batch_id: int) -> None:
        seen.append(sorted(bytes(row.key).decode() for row in records.select("key").collect()))
        if batch_id == 0:
            topics.add_partitions(topic, 3)
            topics.send(topic, keys(2), partition=2)

    query = (
        stream(topic).load().writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="200 milliseconds").start()
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while len(seen) < 2:
            assert query.exception() is None
            assert time.monotonic() < deadline, seen
            time.sleep(0.05)
    finally:
        query.stop()
    assert seen == [["0001"], ["0002"]]


def test_offsets_that_retention_deleted_fail_early_by_name_or_are_passed_over(
    stream: Callable[..., DataStreamReader], topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, keys(*range(4)))
    drain(stream(topic).load(), tmp_path, [])
    topics.send(topic, keys(*range(4, 9)))
    topics.delete_records(topic, 0, before=7)
    with pytest.raises(PySparkException) as refused:
        drain(stream(topic).load(), tmp_path, [])
    assert f"retention deleted {topic}-0 offsets 4 to 6 before they were read" in cause_of(str(refused.value))
    seen: list[list[str]] = []
    drain(stream(topic, failOnDataLoss=False).load(), tmp_path, seen)
    assert seen == [["0007", "0008"]]


def test_avro_becomes_columns_under_the_latest_schema(
    rows: Callable[..., list[tuple[object, ...]]], topics: Topics
) -> None:
    topic = topics.create(partitions=1)
    with WebServer("127.0.0.1", 0, Registry()) as server:
        url = f"http://127.0.0.1:{server.port}"
        client = RegistryClient(url)
        old, new = AvroSerializer(client, "s", OLD), AvroSerializer(client, "s", NEW)
        topics.send(topic, [old({"member": 1, "ip": "10.0.0.1"}), b"no Avro"], value=lambda key: key)
        topics.send(topic, [new({"member": 2, "country": "CH"})], value=lambda key: key)
        columns = ("offset", "decoded.member", "decoded.country", "decodeError IS NULL AS ok")
        found = rows(topic, *columns, schemaRegistry=url)
    assert found == [(0, 1, None, True), (1, None, None, False), (2, 2, "CH", True)]


def test_the_command_answers_sql_over_topics(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create()
    topics.send(topic, keys(*range(20)))
    query = f"SELECT partition >= 0 AS ok, count(*) AS n, max(key) AS last FROM topic('{topic}') GROUP BY 1"
    assert pylog(["sql", query, "--bootstrap", broker.bootstrap, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"ok": True, "n": 20, "last": "0019"}]
    assert pylog(["sql", f"SELECT nothing FROM topic('{topic}')", "--bootstrap", broker.bootstrap]) == 1
    assert "UNRESOLVED_COLUMN" in capsys.readouterr().err


def test_a_table_of_a_query_is_the_topic_of_that_name(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, dotted = topics.create(name="sql_plain"), topics.create(name="sql.dotted")
    for name, count in ((plain, 3), (dotted, 4)):
        topics.send(name, keys(*range(count)))
    counts = f"(SELECT count(*) FROM w) AS a, (SELECT count(*) FROM `{dotted}`) AS b"
    query = f"WITH w AS (SELECT key FROM {plain}) SELECT {counts}"
    assert pylog(["sql", query, "--bootstrap", broker.bootstrap, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"a": 3, "b": 4}]
    assert pylog(["sql", f"SELECT * FROM {dotted}", "--bootstrap", broker.bootstrap]) == 1
    assert f"topic('{dotted}')" in capsys.readouterr().err
    assert pylog(["sql", "SELECT * FROM nosuchtopic", "--bootstrap", broker.bootstrap]) != 0
    assert "nosuchtopic" in capsys.readouterr().err
    assert pylog(["sql", "SELECT 1 AS one", "--bootstrap", broker.bootstrap, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"one": 1}]


def test_the_recipe_runs_as_it_stands(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs/recipes.md").read_text()
    [(program, wanted)] = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    topics.send(topics.create(name="clicks"), [b"alice", b"bob", b"alice"])
    assert "localhost:9092" in program
    exec(program.replace("localhost:9092", broker.bootstrap), {"spark": spark})
    assert capsys.readouterr().out.strip() == wanted.strip()


def test_the_command_follows_a_query(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, keys(1))
    query = f"SELECT CAST(key AS STRING) AS k FROM topic('{topic}') WHERE offset >= 0"
    process = subprocess.Popen(
        [sys.executable, "-m", "pylog", "sql", "--follow", "--bootstrap", broker.bootstrap,
         "--option", "startingOffsets=earliest", query],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == '{"k": "0001"}\n'
        topics.send(topic, keys(2))
        assert process.stdout.readline() == '{"k": "0002"}\n'
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_rows_come_as_they_are_made(spark: SparkSession, broker: BrokerProcess) -> None:
    """Collected, these would take hours and more memory than there is."""
    columns, found = sql.rows("SELECT id FROM range(0, 10000000000, 1, 20000)", broker.bootstrap, {}, "local[2]")
    assert (columns, list(islice(found, 3))) == (["id"], [[0], [1], [2]])


def test_streams_are_joined_within_their_watermarks(broker: BrokerProcess, topics: Topics) -> None:
    topics.create(1, "views_of_pages")
    topics.create(1, "clicks_on_pages")
    query = (
        "SELECT CAST(v.key AS STRING) AS k FROM views_of_pages v JOIN clicks_on_pages c ON v.key = c.key "
        "AND c.timestamp BETWEEN v.timestamp AND v.timestamp + INTERVAL 1 MINUTE"
    )
    topics.send("views_of_pages", keys(1, 2, 3), timestamp_ms=1_700_000_000_000)
    topics.send("clicks_on_pages", keys(2), timestamp_ms=1_700_000_030_000)
    arguments = ["sql", "--follow", "--bootstrap", broker.bootstrap, "--option", "startingOffsets=earliest"]
    marks = [f"--watermark={name}=timestamp 10 minutes" for name in ("views_of_pages", "clicks_on_pages")]
    process = subprocess.Popen(
        [sys.executable, "-m", "pylog", *arguments, *marks, query],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == '{"k": "0002"}\n'
        topics.send("clicks_on_pages", keys(3), timestamp_ms=1_700_000_040_000)
        assert process.stdout.readline() == '{"k": "0003"}\n'
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_watermark_that_helps_nobody_is_refused(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create()
    asked = ["sql", f"SELECT * FROM topic('{topic}')", "--bootstrap", broker.bootstrap]
    assert pylog([*asked, "--watermark=clicks=timestamp 1 minute"]) == 2
    assert "--follow" in capsys.readouterr().err
    assert pylog([*asked, "--follow", "--watermark=clicks=timestamp"]) == 2
    assert "a column and a time" in capsys.readouterr().err
    assert pylog([*asked, "--follow", "--watermark=clicks=timestamp 1 minute"]) != 0
    assert "--watermark names topic clicks, which the query does not read" in capsys.readouterr().err


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


def test_a_micro_batch_is_bounded_in_bytes_too(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.create(partitions=1)
    for number in range(8):  # a batch each
        topics.send(topic, keys(number), value=lambda key: bytes(100_000))
    given = {"bootstrap": broker.bootstrap, "topic": topic, "startingOffsets": "earliest"}
    source = PylogDataSource(given | {"maxBytesPerTrigger": "250000"})
    reader = source.streamReader(source.schema())
    position = reader.initialOffset()
    ends: list[int] = []
    while not ends or ends[-1] < 8:
        position = reader.latestOffset(position, reader.getDefaultReadLimit())
        ends.append(Position.from_json(position).offsets[TopicPartition(topic, 0)])
    assert ends == [2, 4, 6, 8]


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


def test_a_checkpoint_of_another_topic_is_refused_by_name(
    stream: Callable[..., DataStreamReader], topics: Topics, tmp_path: Path
) -> None:
    one, other = topics.create(), topics.create()
    topics.send(one, keys(*range(10)))
    topics.send(other, keys(*range(5)))
    drain(stream(one).load(), tmp_path, [])
    with pytest.raises(PySparkException) as refused:
        drain(stream(other).load(), tmp_path, [])
    assert f"the last run read '{one}', this one reads '{other}'" in cause_of(str(refused.value))


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


def test_a_batch_that_does_not_decode_fails_the_query_or_is_dropped_or_kept(
    reader: Callable[..., DataFrameReader], broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, keys(*range(10)))
    # What a producer that packs batches by hand may well send: a header name that is no text.
    bad = bytearray(encode_batch([Record(0, 0, b"k", b"v", [("hx", b"1")])], base_offset=0))
    at = bad.index(b"\x04hx")
    bad[at + 1 : at + 3] = b"\xff\xff"
    struct.pack_into(">I", bad, wire.CRC_START - 4, crc32c(bad[wire.CRC_START :]))
    with Connection(broker.bootstrap) as connection:
        answer = connection.ask(produce(topic, bytes(bad)))
    assert produce_result(answer)[0] == 0
    topics.send(topic, keys(*range(10, 20)))
    with pytest.raises(PySparkException, match="headers do not decode"):
        reader(topic=topic, includeHeaders="true").load().collect()
    assert reader(topic=topic, includeHeaders="true", mode="drop").load().count() == 20
    kept = reader(topic=topic, includeHeaders="true", mode="keep").load()
    (dead,) = kept.where("deadLetter IS NOT NULL").collect()
    assert (kept.count(), dead.offset, dead.topic, dead.value) == (21, 10, topic, None)
    assert (dead.deadLetter.firstOffset, dead.deadLetter.lastOffset) == (10, 10)
    assert "headers do not decode" in dead.deadLetter.reason


def test_ranges_become_at_least_so_many_tasks(reader: Callable[..., DataFrameReader], topics: Topics) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, keys(*range(20)))
    found = reader(topic=topic, minPartitions="4").load()
    assert (found.rdd.getNumPartitions(), found.count()) == (4, 20)


def test_many_partitions_with_little_share_tasks(reader: Callable[..., DataFrameReader], topics: Topics) -> None:
    topic = topics.create(partitions=200)
    topics.send_one_to_each(topic, 200)
    found = reader(topic=topic).load()
    assert MIN_QUERY_TASKS <= found.rdd.getNumPartitions() < 70
    assert sorted((row.partition, bytes(row.key)) for row in found.collect()) == list(enumerate(keys(*range(200))))
    assert reader(topic=topic, minPartitions="100").load().rdd.getNumPartitions() == 100
    assert reader(topic=topic, maxRecordsPerPartition="1").load().rdd.getNumPartitions() == 200


def test_a_topic_made_again_is_refused_by_a_task_with_many_of_its_partitions(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.create(partitions=130)
    topics.send_one_to_each(topic, 130)
    given = {"bootstrap": broker.bootstrap, "topic": topic}
    reader = PylogReader(parse_options(given, is_stream=False), PylogDataSource(given).schema())
    first = reader.partitions()[0]
    assert len(first.ranges) > 1
    assert sum(rows.num_rows for rows in read_task(first)) == len(first.ranges)
    topics.delete(topic)
    topics.create(partitions=130, name=topic)
    topics.send_one_to_each(topic, 130)
    with pytest.raises(PositionError, match="made again"):
        list(read_task(first))


def test_an_idle_stream_does_not_ask_the_brokers_again_at_once(broker: BrokerProcess, topics: Topics) -> None:
    topic, now_s = topics.create(partitions=1), [100.0]
    given = {"bootstrap": broker.bootstrap, "topic": topic, "startingOffsets": "earliest"}
    reader = PylogStreamReader(parse_options(given, is_stream=True), PylogDataSource(given).schema())
    reader._clock = lambda: now_s[0]
    topics.send(topic, keys(1))
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert [one["partitions"]["0"] for one in start["topics"].values()] == [1]
    topics.send(topic, keys(2))
    assert reader.latestOffset(start, ReadAllAvailable()) == start == reader.reportLatestOffset()
    now_s[0] += 1
    end = reader.latestOffset(start, ReadAllAvailable())
    assert [one["partitions"]["0"] for one in end["topics"].values()] == [2]
    assert reader.reportLatestOffset() == end

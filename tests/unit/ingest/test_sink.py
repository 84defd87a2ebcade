"""What a write to topics takes, and what it refuses before anything is sent."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pylog.errors import ConfigError
from pylog.ingest.options import SinkOptions, parse_sink_options
from pylog.ingest.sink import check_columns
from pylog.ingest.source import PylogDataSource

GIVEN = {"bootstrap": "h1:9092", "topic": "counts"}
OPTIONS = SinkOptions(bootstrap="h1:9092", topic="counts")


BYTES, TEXT, NUMBER, LONG, TIME = BinaryType(), StringType(), IntegerType(), LongType(), TimestampType()
HEADERS = ArrayType(StructType([StructField("key", TEXT), StructField("value", BYTES)]))
STRUCT = StructType([StructField("a", NUMBER)])


def columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


@pytest.mark.parametrize(
    "kinds",
    [
        columns(value=BYTES),
        StructType([StructField("key", TEXT), StructField("value", TEXT, nullable=False)]),
        columns(key=BYTES, value=BYTES, topic=TEXT, partition=NUMBER, timestamp=TIME, headers=HEADERS),
        columns(
            key=BYTES, value=BYTES, topic=TEXT, partition=NUMBER, offset=LONG, timestamp=TIME, timestampType=NUMBER
        ),
    ],
)
def test_columns_of_sparks_kafka_sink_and_of_what_was_read_can_be_written(kinds: StructType) -> None:
    check_columns(kinds, OPTIONS)


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (columns(key=TEXT), "column 'value' is missing; the columns are key"),
        (columns(value=NUMBER), "column 'value' is int; string or binary is wanted"),
        (columns(value=TEXT, key=STRUCT), "column 'key' is struct<a:int>; string or binary is wanted"),
        (columns(value=TEXT, partition=LONG), "column 'partition' is bigint; int is wanted"),
        (columns(value=TEXT, timestamp=LONG), "column 'timestamp' is bigint; timestamp is wanted"),
        (columns(value=TEXT, headers=MapType(TEXT, TEXT)), "column 'headers' is map<string,string>; array<struct<key"),
        (columns(value=TEXT, haeders=TEXT), "column 'haeders' cannot be written; key, value, topic, "),
        (columns(value=TEXT, deadLetter=TEXT), "column 'deadLetter' cannot be written"),
    ],
)
def test_columns_that_no_record_has_are_refused_by_name(kinds: StructType, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_columns(kinds, OPTIONS)


def test_without_a_topic_for_all_rows_each_names_its_own() -> None:
    nowhere = SinkOptions(bootstrap="h1:9092")
    check_columns(columns(topic=TEXT, value=TEXT), nowhere)
    with pytest.raises(ConfigError, match="column 'topic' is missing, and so is option 'topic'"):
        check_columns(columns(value=TEXT), nowhere)


def test_a_value_of_any_type_is_written_in_avro() -> None:
    check_columns(columns(value=STRUCT), SinkOptions(bootstrap="h", topic="t", registry=("http://r",)))


def test_options_are_checked_and_typed() -> None:
    found = parse_sink_options(
        {
            "kafka.bootstrap.servers": "h1:9092,h2:9092",
            "Topic": "counts",
            "compression": "ZSTD",
            "deliveryTimeoutMs": "5000",
            "schemaRegistry": "http://r1, http://r2",
            "checkpointLocation": "/somewhere",
            "path": "",
        }
    )
    assert found == SinkOptions(
        bootstrap="h1:9092,h2:9092",
        topic="counts",
        compression="zstd",
        delivery_timeout_ms=5000,
        registry=("http://r1", "http://r2"),
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"topic": "a", "startingOffsets": "latest"}, "option 'startingoffsets' is unknown to a write"),
        ({"bootstrap": ""}, "option 'bootstrap' is missing"),
        ({"bootstrap": "h1"}, "host:port"),
        ({"compression": "lzma"}, "option 'compression' is 'lzma'; one of none, gzip"),
        ({"deliveryTimeoutMs": "0"}, "option 'deliveryTimeoutMs' is '0'; a number from 1"),
        ({"topic": "", "schemaRegistry": "http://r"}, "option 'schemaRegistry' needs option 'topic'"),
        ({"security.protocol": "TLS"}, "TLS"),
    ],
)
def test_options_that_a_write_cannot_have_are_named(more: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_sink_options({**GIVEN, **more})


def test_a_topic_is_never_overwritten() -> None:
    with pytest.raises(ConfigError, match="mode 'overwrite' is given; a topic only grows: 'append' is wanted"):
        PylogDataSource(GIVEN).writer(columns(value=TEXT), overwrite=True)

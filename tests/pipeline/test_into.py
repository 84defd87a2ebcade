"""``pylog sql --into TOPIC``: rows of a query become records, on a real Spark and a real broker."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from pylog.errors import ConfigError, PylogError
from pylog.ingest import sql
from pylog.ingest.sql import Target
from pylog.testing import BrokerProcess
from tests.pipeline.conftest import Topics

MINUTE_MS = 60_000
BEGIN_MS = 1_700_000_040_000 // MINUTE_MS * MINUTE_MS
ENDS_S = 240.0
MARK = ("timestamp", "1 minute")
COUNTS = (
    "SELECT CAST(unix_millis(w.start) AS STRING) AS key, CAST(n AS STRING) AS value FROM "
    "(SELECT window(timestamp, '1 minute') AS w, count(*) AS n FROM topic('{0}') GROUP BY 1)"
)


def records_of(broker: BrokerProcess, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Return the first *count* records of a topic of one partition, and all others that come within a second."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": "false"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes | None, bytes | None]] = []
    deadline_s = time.monotonic() + ENDS_S
    while time.monotonic() < deadline_s:
        message = consumer.poll(1.0)
        if message is None:
            if len(found) >= count:
                break
            continue
        assert message.error() is None, message.error()
        found.append((message.key(), message.value()))
    consumer.close()
    return found


@contextmanager
def running(broker: BrokerProcess, query: str, *options: str) -> Iterator[None]:
    command = [sys.executable, "-m", "pylog", "sql", "--follow", "--bootstrap", broker.bootstrap, *options, query]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # Spark's processes too
        process.wait()


def test_rows_become_json_beside_their_keys(broker: BrokerProcess, topics: Topics) -> None:
    source, target = topics.create(1), topics.create(1)
    topics.send(source, [b"a", b"b"])
    query = f"SELECT key, CAST(key AS STRING) AS name, offset + 1 AS number, NULL AS nothing FROM topic('{source}')"
    assert sql.write(query, broker.bootstrap, {}, "local[2]", Target(target)) == 2
    assert [(key, json.loads(value or b"")) for key, value in records_of(broker, target, 2)] == [
        (b"a", {"name": "a", "number": 1, "nothing": None}),
        (b"b", {"name": "b", "number": 2, "nothing": None}),
    ]


def test_a_query_that_names_a_value_writes_it_as_it_is(broker: BrokerProcess, topics: Topics) -> None:
    source, target = topics.create(1), topics.create(1)
    topics.send(source, [b"a", b"b"])
    assert sql.write(f"SELECT * FROM topic('{source}')", broker.bootstrap, {}, "local[2]", Target(target)) == 2
    assert records_of(broker, target, 2) == [(b"a", b"value of a"), (b"b", b"value of b")]


def test_windows_are_written_once_they_are_final_and_a_checkpoint_goes_on(
    broker: BrokerProcess, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(1), topics.create(1)
    options = (
        "--option=startingOffsets=earliest", f"--watermark={source}=timestamp 1 minute", f"--into={target}",
        f"--checkpoint={tmp_path / 'counts'}",
    )  # fmt: skip

    def key(minute: int) -> bytes:
        return b"%d" % (BEGIN_MS + minute * MINUTE_MS)

    topics.send(source, [b"a", b"b"], timestamp_ms=BEGIN_MS)
    topics.send(source, [b"c"], timestamp_ms=BEGIN_MS + 5 * MINUTE_MS)
    with running(broker, COUNTS.format(source), *options):
        assert records_of(broker, target, 1) == [(key(0), b"2")]
    topics.send(source, [b"late"], timestamp_ms=BEGIN_MS)
    topics.send(source, [b"d"], timestamp_ms=BEGIN_MS + 10 * MINUTE_MS)
    with running(broker, COUNTS.format(source), *options):
        assert records_of(broker, target, 2) == [(key(0), b"2"), (key(5), b"1")]


@pytest.mark.parametrize(
    ("query", "watermarks", "message"),
    [
        ("SELECT * FROM topic('{target}')", {}, "reads topic '{target}' and would read what it writes"),
        ("SELECT key, timestamp FROM topic('{source}')", {}, "no column for the record's value"),
        (
            "SELECT a.value FROM topic('{source}') a JOIN topic('{other}') b ON a.key = b.key",
            {"{other}": MARK},
            "would keep all rows of '{source}': give --watermark '{source}=timestamp 10 minutes'",
        ),
        ("SELECT key, count(*) AS n FROM topic('{source}') GROUP BY key", {}, "watermark"),
    ],
)  # fmt: skip
def test_a_stream_that_would_never_end_well_is_refused_before_it_begins(
    broker: BrokerProcess, topics: Topics, query: str, watermarks: dict[str, tuple[str, str]], message: str
) -> None:
    names = {name: topics.create(1) for name in ("source", "other", "target")}
    marks = {topic.format(**names): mark for topic, mark in watermarks.items()}
    with pytest.raises(PylogError) as failed:
        sql.follow_into(query.format(**names), broker.bootstrap, {}, "local[2]", Target(names["target"]), marks)
    assert message.format(**names) in str(failed.value)


def test_a_topic_that_is_missing_and_a_value_that_is_missing_are_named(broker: BrokerProcess, topics: Topics) -> None:
    source = topics.create(1)
    topics.send(source, [b"a"])
    with pytest.raises(PylogError, match="no-such-topic"):
        sql.write(f"SELECT value FROM topic('{source}')", broker.bootstrap, {}, "local[2]", Target("no-such-topic"))
    with pytest.raises(ConfigError, match="no column for the record's value"):
        sql.write(f"SELECT key FROM topic('{source}')", broker.bootstrap, {}, "local[2]", Target(source))

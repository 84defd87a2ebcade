"""`pylog stream`: the queries of examples/streams, their ends and their refusals, on a real Spark and a real broker."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from pylog.client.admin.groups import GroupAdmin
from pylog.client.connection import Connection
from pylog.config import load_stream_config
from pylog.errors import PylogError
from pylog.ingest.stream import query
from pylog.ingest.stream.checkpoint import Owner, StreamCheckpoint, last_batch
from pylog.ingest.stream.config import Input, StreamConfig
from pylog.testing import BrokerProcess
from tests.pipeline.conftest import Topics

EXAMPLES = Path("examples/streams")
MINUTE_MS = 60_000
BEGIN_MS = 1_700_000_040_000 // (60 * MINUTE_MS) * 60 * MINUTE_MS
BEGIN = "2023-11-14T22:{:02}:00.000Z"
Make = Callable[..., StreamConfig]


class Never:
    """A stop that nobody wants; a query that runs once ends by itself."""

    def wait(self, timeout_s: float) -> bool:
        """Look again at once: these queries have little to do."""
        return False


@pytest.fixture
def make(broker: BrokerProcess, topics: Topics, tmp_path: Path) -> Make:
    """Makes an example's or a test's own query over this broker."""

    def made(source: str | dict[str, Input], sql: str = "", **more: Any) -> StreamConfig:
        own: dict[str, Any] = {
            "cluster": Connection(bootstrap=broker.bootstrap),
            "metrics_file": tmp_path / "metrics.prom",
        }
        if isinstance(source, str):
            found = load_stream_config(EXAMPLES / f"{source}.yml")
            return replace(found, checkpoint=tmp_path / source, **own, **more)
        given: dict[str, Any] = {
            "name": "own",
            "checkpoint": tmp_path / "own",
            "output": topics.create(1),
            **own,
            **more,
        }
        return StreamConfig(sql=sql, inputs=source, **given)

    return made


def run(config: StreamConfig) -> None:
    """Run a query until it has written what its topics hold now."""
    query.run(config, Never(), is_once=True)


def records(config: StreamConfig) -> list[tuple[str, dict[str, Any]]]:
    """Return keys and values of all records of the output, in order; its topic has one partition."""
    consumer = Consumer({
        "bootstrap.servers": config.cluster.bootstrap, "group.id": "none", "enable.auto.commit": "false",
        "enable.partition.eof": "true",
    })  # fmt: skip
    consumer.assign([TopicPartition(config.output, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(((message.key() or b"").decode(), json.loads(message.value() or b"null")))
    consumer.close()
    return found


def written(config: StreamConfig) -> list[dict[str, Any]]:
    """Return the values of `records`."""
    return [value for _, value in records(config)]


def owner_of(config: StreamConfig) -> Owner:
    owner = StreamCheckpoint(config.checkpoint).owner()
    assert owner is not None
    return owner


def send(topics: Topics, topic: str, keys: Sequence[bytes], minute: int, value: bytes = b"") -> None:
    topics.send(topic, keys, value=lambda _: value, timestamp_ms=BEGIN_MS + minute * MINUTE_MS)


def create(topics: Topics, config: StreamConfig) -> None:
    for name in sorted({*config.topics, config.output}):
        topics.create(1, name)


def test_windows_are_written_once_they_are_final_and_late_records_are_counted_and_left_out(
    make: Make, topics: Topics
) -> None:
    config = make("views-by-minute")
    create(topics, config)
    send(topics, "page-views", [b"home", b"home", b"about"], 0)
    send(topics, "page-views", [b"home"], 11)
    run(config)
    send(topics, "page-views", [b"late"], 0)  # its window is written
    send(topics, "page-views", [b"home"], 5)  # late, and still within the watermark
    send(topics, "page-views", [b"home"], 30)
    run(config)
    rows = [(row["minute"], row["page"], row["views"]) for row in written(config)]
    assert sorted(rows[:2]) == [(BEGIN.format(0), "about", 1), (BEGIN.format(0), "home", 2)]
    assert sorted(rows[2:]) == [(BEGIN.format(5), "home", 1), (BEGIN.format(11), "home", 1)]
    page = config.metrics_file.read_text() if config.metrics_file else ""
    assert 'pylog_stream_late_rows_total{query="views-by-minute"} 1' in page
    assert 'pylog_stream_read_records_total{query="views-by-minute"} 3' in page
    assert GroupAdmin(config.cluster).committed("stream-views-by-minute") == {("page-views", 0): 7}

    sliding = make("views-sliding", group="")
    topics.create(1, sliding.output)
    run(sliding)
    counts = {(row["since"], row["page"]): row["views"] for row in written(sliding)}
    assert counts[BEGIN.format(0), "home"] == 2
    assert counts[BEGIN.format(1), "home"] == 1  # minutes 1 to 5 have the late one alone
    assert counts[BEGIN.format(11), "home"] == 1


def test_a_join_of_streams_pairs_what_came_within_the_hour(make: Make, topics: Topics) -> None:
    config = make("orders-paid")
    create(topics, config)
    send(topics, "orders", [b"1", b"2"], 0, b"books")
    send(topics, "payments", [b"1"], 30, b"10 EUR")
    send(topics, "payments", [b"2"], 61, b"too late")
    send(topics, "orders", [b"3"], 200, b"pens")
    send(topics, "payments", [b"3"], 201, b"1 EUR")
    run(config)
    assert sorted((row["order"], row["goods"], row["paid"]) for row in written(config)) == [
        ("1", "books", "10 EUR"), ("3", "pens", "1 EUR"),
    ]  # fmt: skip
    # Both watermarks are past the others, which are kept no more.
    page = config.metrics_file.read_text() if config.metrics_file else ""
    kept = re.search(r"pylog_stream_state_rows\{query=\"orders-paid\"\} (\d+)", page)
    assert kept is not None
    assert int(kept[1]) == 2


def test_a_table_is_read_anew_for_each_micro_batch(make: Make, topics: Topics) -> None:
    config = make("orders-with-customers")
    create(topics, config)
    topics.send("customers", [b"7", b"8"], value=lambda key: b"Ada" if key == b"7" else b"Bob")
    topics.send("customer-orders", [b"1"], value=lambda _: b"7")
    run(config)
    topics.send("customers", [b"7"], value=lambda _: b"Ada Lovelace")
    topics.send("customers", [b"8"], value=lambda _: None)
    topics.send("customer-orders", [b"2"], value=lambda _: b"7")
    topics.send("customer-orders", [b"3"], value=lambda _: b"8")
    run(config)
    assert sorted((row["order"], row["name"]) for row in written(config)) == [
        ("1", "Ada"), ("2", "Ada Lovelace"), ("3", None),
    ]  # fmt: skip


def test_a_visit_ends_with_half_an_hour_without_a_view(make: Make, topics: Topics) -> None:
    config = make("visits")
    create(topics, config)
    for minute in (0, 20, 55, 200):
        send(topics, "user-views", [b"home"], minute, b"ada")
    run(config)
    assert sorted((row["began"], row["views"]) for row in written(config)) == [
        (BEGIN.format(0), 2), (BEGIN.format(55), 1),
    ]  # fmt: skip


PLAIN = "SELECT key, CAST(value AS STRING) AS text FROM words"


def test_a_changed_query_is_refused_until_it_is_rebased_and_then_goes_on_where_it_was(
    make: Make, topics: Topics
) -> None:
    source = topics.create(2)
    config = make({"words": Input(topic=source)}, PLAIN)
    topics.send(source, [b"a", b"b"])
    run(config)
    changed = replace(config, sql="SELECT key, upper(CAST(value AS STRING)) AS text FROM words")
    for refused in (lambda: query.check(changed), lambda: run(changed)):
        with pytest.raises(PylogError, match="changed since checkpoint"):
            refused()
    checkpoint = StreamCheckpoint(config.checkpoint)
    checkpoint.rebase(owner_of(config))
    topics.add_partitions(source, 3)
    topics.send(source, [b"c"])
    topics.send(source, [b"d"], partition=2)
    run(changed)
    assert sorted(row["text"] for row in written(config)) == ["VALUE OF C", "VALUE OF D", "value of a", "value of b"]
    checkpoint.reset(owner_of(config))
    run(changed)
    assert sorted(row["text"] for row in written(config))[:4] == [f"VALUE OF {key}" for key in "ABCC"]


def test_what_is_not_there_or_another_querys_is_named_before_anything_is_written(make: Make, topics: Topics) -> None:
    source = topics.create(1)
    topics.send(source, [b"a"])
    config = make({"words": Input(topic=source)}, PLAIN)
    with pytest.raises(PylogError, match="'no-such-topic', the output, does not exist"):
        run(replace(config, output="no-such-topic"))
    with pytest.raises(PylogError, match="'no-such-input', an input, does not exist"):
        run(replace(config, inputs={"words": Input(topic="no-such-input")}))
    assert not config.checkpoint.exists()
    run(config)
    with pytest.raises(PylogError, match="belongs to query 'own', not to 'other'"):
        run(replace(config, name="other"))
    path = config.checkpoint / "stream.json"
    mine = path.read_text()
    path.write_text(path.read_text().replace('"cluster": "', '"cluster": "another-'))
    with pytest.raises(PylogError, match="belongs to cluster 'another-"):
        run(config)
    path.write_text(mine)
    checkpoint = StreamCheckpoint(config.checkpoint)
    with checkpoint.held(), pytest.raises(PylogError, match="another process runs the query"):
        run(config)
    checkpoint.rebase(owner_of(config))
    topics.delete(source)
    topics.create(1, source)
    with pytest.raises(PylogError, match="deleted and made again"):
        run(config)
    assert len(written(config)) == 1


@pytest.mark.parametrize(
    ("sql", "watermark", "message"),
    [
        ("SELECT a.value FROM words a JOIN others b ON a.key = b.key", "", "would keep all rows of '{0}'"),
        ("SELECT a.value FROM words a JOIN others b ON a.key = b.key", "timestamp 1 minute", "without a range of time"),
        (
            "SELECT a.value FROM words a JOIN others b ON a.key = b.key "
            "WHERE a.timestamp > '2026-01-01' AND b.timestamp > '2026-01-01'",
            "timestamp 1 minute",
            "without a range of time",
        ),
        ("SELECT key, count(*) AS n FROM words GROUP BY key", "", "watermark"),
        ("SELECT DISTINCT value FROM words", "timestamp 1 minute", "SELECT DISTINCT"),
        ("SELECT value FROM strangers", "", "reads 'strangers', which is none of its inputs: others, words"),
        ("SELECT value FORM words", "", "sql: [PARSE_SYNTAX_ERROR]"),
        ("SELECT price FROM words", "", "sql: [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ("SELECT key, offset FROM words", "", "no column for the record's value"),
        ("SELECT 'a' AS value", "", "reads none of its inputs"),
    ],
)
def test_a_query_that_cannot_run_for_long_is_refused_by_check(
    make: Make, topics: Topics, sql: str, watermark: str, message: str
) -> None:
    names = [topics.create(1), topics.create(1)]
    inputs = {a: Input(topic=name, watermark=watermark) for a, name in zip(("words", "others"), names, strict=True)}
    with pytest.raises(PylogError) as failed:
        query.check(make(inputs, sql))
    assert message.format(*sorted(names)) in str(failed.value)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.value FROM words a JOIN others b ON a.key = b.key WHERE a.timestamp > b.timestamp - INTERVAL 1 HOUR"
        " AND a.timestamp < b.timestamp + INTERVAL 1 HOUR",
        "SELECT CAST(a.w.start AS STRING) AS value FROM (SELECT key, window(timestamp, '1 minute') AS w FROM words) a"
        " JOIN (SELECT key, window(timestamp, '1 minute') AS w FROM others) b ON a.key = b.key AND a.w = b.w",
    ],
)
def test_a_join_is_bounded_by_its_where_and_by_its_windows_too(make: Make, topics: Topics, sql: str) -> None:
    inputs = {a: Input(topic=topics.create(1), watermark="timestamp 1 minute") for a in ("words", "others")}
    assert query.check(make(inputs, sql)) == ["value"]


COUNTED = """SELECT CAST(unix_millis(w.start) AS STRING) AS key, n
FROM (SELECT window(timestamp, '1 minute') AS w, count(*) AS n FROM words GROUP BY 1)"""


class Running:
    """`pylog stream run` as a process of its own.

    Args:
        config: of the query.
        path: where its configuration is written.
        options: of its input.
    """

    def __init__(self, config: StreamConfig, path: Path, options: dict[str, str]) -> None:
        self._config = config
        inputs = {
            alias: {"topic": one.topic, "watermark": one.watermark, "options": options}
            for alias, one in config.inputs.items()
        }
        body = {
            "version": 1, "name": config.name, "bootstrap": config.cluster.bootstrap, "sql": config.sql,
            "inputs": inputs, "output": config.output, "checkpoint": str(config.checkpoint),
            "trigger": "100 milliseconds",
        }  # fmt: skip
        path.write_text(json.dumps(body))
        self._process = subprocess.Popen([sys.executable, "-m", "pylog", "stream", "run", "--config", str(path)])

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def end(self, number: int) -> int:
        """Send a signal, and return what the process ended with."""
        self._process.send_signal(number)
        return self._process.wait(120)

    def wait_batch(self, count: int) -> int:
        """Return the last micro-batch that ended, once *count* more than now have."""
        directory = StreamCheckpoint(self._config.checkpoint).spark_directory(Owner(name="", cluster=""))
        begin, deadline_s = last_batch(directory), time.monotonic() + 240
        while (number := last_batch(directory)) < begin + count:
            assert self._process.poll() is None, f"ended with {self._process.returncode}"
            assert time.monotonic() < deadline_s, "it does not get on"
            time.sleep(0.02)
        return number


def test_a_query_that_is_killed_loses_nothing_and_one_that_is_stopped_doubles_nothing(
    make: Make, topics: Topics, tmp_path: Path
) -> None:
    source = topics.create(1)
    inputs = {"words": Input(topic=source, watermark="timestamp 1 minute")}
    config = make(inputs, COUNTED, group="stream-own")
    expected = {str(BEGIN_MS + minute * MINUTE_MS): 3 + minute % 5 for minute in range(60)}
    for minute, count in enumerate(expected.values()):
        send(topics, source, [b"word"] * count, minute)
    path, few = tmp_path / "own.yml", {"maxOffsetsPerTrigger": "12"}
    with Running(config, path, few) as first:
        first.wait_batch(4)
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
    after_kill = counts(config)
    with Running(config, path, few) as second:
        second.wait_batch(3)
        before_stop = counts(config)
        assert second.end(signal.SIGTERM) == 0
    # All of them, but the last one, which is still open, and what waits for the watermark.
    run(config)
    found = counts(config)
    assert {key: value for key, value in expected.items() if key <= str(BEGIN_MS + 57 * MINUTE_MS)} == {
        key: next(iter({*values})) for key, values in found.items()
    }
    assert all(len({*values}) == 1 for values in found.values()), "a window was written with two counts"
    # At least once: what the kill cut off came again; after the stop nothing did.
    doubled = {key for key, values in found.items() if len(values) > 1}
    assert doubled <= {*after_kill}
    assert len(doubled) <= 12
    assert {*before_stop} >= {*after_kill}
    assert GroupAdmin(config.cluster).committed("stream-own") == {(source, 0): sum(expected.values())}


class Begun:
    """A stop that is wanted once a micro-batch has begun."""

    def __init__(self, config: StreamConfig) -> None:
        self._offsets = config.checkpoint / "0001" / "offsets" / "0"

    def wait(self, timeout_s: float) -> bool:
        """Look, and leave the processor to the query in between."""
        time.sleep(0.05)
        return self._offsets.exists()


def test_a_stop_cuts_a_micro_batch_off_that_takes_too_long_and_the_next_run_writes_all_of_it(
    make: Make, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = topics.create(2)
    keys = [str(number).encode() for number in range(400)]
    topics.send(source, keys)
    slow = "aggregate(sequence(1, 20000), 0L, (a, x) -> a + length(sha2(string(x + offset), 512)))"
    config = make({"words": Input(topic=source)}, f"SELECT key, {slow} AS n FROM words", group="stream-slow")
    monkeypatch.setattr(query, "_END_S", 0.5)
    query.run(config, Begun(config))
    directory = config.checkpoint / "0001"
    assert last_batch(directory) == -1
    assert GroupAdmin(config.cluster).committed("stream-slow") == {}
    run(config)
    assert {key for key, _ in records(config)} == {key.decode() for key in keys}
    assert sum(GroupAdmin(config.cluster).committed("stream-slow").values()) == len(keys)


def test_a_stop_that_comes_while_spark_starts_begins_no_micro_batch(make: Make, topics: Topics) -> None:
    source = topics.create(1)
    topics.send(source, [b"word"])
    config = make({"words": Input(topic=source)}, "SELECT value FROM words")

    class Now(Never):
        """A stop that was wanted before."""

        def wait(self, timeout_s: float) -> bool:
            return True

    query.run(config, Now(), on_start=lambda: pytest.fail("it began"))
    assert StreamCheckpoint(config.checkpoint).owner() is None


def counts(config: StreamConfig) -> dict[str, list[int]]:
    """Return what was written of each window, as often as it was."""
    found: dict[str, list[int]] = {}
    for key, value in records(config):
        found.setdefault(key, []).append(value["n"])
    return found

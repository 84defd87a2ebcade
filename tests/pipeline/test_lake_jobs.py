"""Compaction and reports: DataFrame jobs over a lake that the load job filled."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pylog.audit.load import ensure_topic
from pylog.audit.producer import AuditedProducer
from pylog.client.connection import Connection
from pylog.errors import ConfigError
from pylog.ingest import compact, job, reports
from pylog.ingest.compact import CompactConfig
from pylog.ingest.job import JobConfig
from pylog.ingest.lake import Lake, LakeError
from pylog.ingest.reports import ReportConfig
from pylog.testing import BrokerProcess
from tests.pipeline.conftest import Topics

MakeConfig = Callable[..., JobConfig]
_HOUR_MS = 3_600_000
HOUR = 480_000 * _HOUR_MS  # 2024-10-04 00:00


def keys(start: int, end: int) -> list[bytes]:
    return [b"%06d" % number for number in range(start, end)]


def listed(lake: Path, topic: str = "") -> list[tuple[bytes, int, int, object, object]]:
    """Every record that counts, or of one topic, in the order of its file."""
    names = ("key", "partition", "offset", "timestamp", "headers")
    return [
        tuple(row[name] for name in names)
        for file in sorted(Lake.open(lake).visible().files.values(), key=lambda file: file.path)
        if topic in ("", file.topic)
        for row in pq.read_table(lake / file.path).to_pylist()
    ]


def test_small_files_of_closed_hours_become_one(spark: SparkSession, topics: Topics, config: MakeConfig) -> None:
    topic = topics.create()
    for start in (0, 10, 20):
        topics.send(topic, keys(start, start + 10), timestamp_ms=HOUR + start, headers=lambda key: [("id", key)])
        topics.send(topic, keys(start + 100, start + 103))  # now: an open hour
        job.run(config(topic))
    lake = config(topic).lake
    before, files = listed(lake), Lake.open(lake).visible().files
    assert compact.run(CompactConfig(lake=lake)) == (3, 1)
    after = Lake.open(lake).visible()
    assert sorted(listed(lake), key=str) == sorted(before, key=str)
    (new,) = set(after.files) - set(files)
    assert new.startswith(f"topic={topic}/date=2024-10-04/hour=00/")
    found = [(row["partition"], row["offset"]) for row in pq.read_table(lake / new).to_pylist()]
    assert found == sorted(found)
    assert len(found) == 30
    assert pq.read_schema(lake / new).names == pq.read_schema(lake / next(iter(after.files))).names
    assert compact.run(CompactConfig(lake=lake)) == (0, 0)

    topics.send(topic, keys(40, 45), timestamp_ms=HOUR)  # late: a file more, which the next run takes in
    assert job.run(config(topic)) == 5
    assert compact.run(CompactConfig(lake=lake, grace_s=0)) == (2, 1)
    assert len(listed(lake)) == 44
    assert all((lake / path).exists() for path in Lake.open(lake).visible().files)
    assert not any((lake / path).exists() for path in files if "2024-10-04" in path)


def test_files_that_cannot_be_compacted_hold_up_no_others(
    spark: SparkSession, topics: Topics, config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = topics.create(), topics.create()
    for start in (0, 10):
        for topic in (bad, good):
            topics.send(topic, keys(start, start + 10), timestamp_ms=HOUR)
        job.run(config(bad, good))
    lake = config(good).lake
    damaged = lake / min(path for path in Lake.open(lake).visible().files if f"topic={bad}/" in path)
    damaged.write_bytes(b"no Parquet")
    assert compact.main(["--lake", str(lake)]) == 1
    said = capsys.readouterr().err
    assert f"compacted 2 files into 1; left as they are: 2 files of topic={bad}/date=2024-10-04/hour=00: " in said
    files = Lake.open(lake).visible().files
    assert [sum(f"topic={topic}/" in path for path in files) for topic in (bad, good)] == [2, 1]
    assert sorted(row[0] for row in listed(lake, good)) == keys(0, 20)


def test_a_load_and_a_compaction_at_once_both_end_well(
    spark: SparkSession, topics: Topics, config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create()
    for start in (0, 10):
        topics.send(topic, keys(start, start + 10), timestamp_ms=HOUR)
        job.run(config(topic))
    lake = config(topic).lake
    compacted = compact._compacted

    def slow(*arguments: object) -> object:
        topics.send(topic, keys(20, 25), timestamp_ms=HOUR)
        assert job.run(config(topic)) == 5
        return compacted(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compact, "_compacted", slow)
    assert compact.run(CompactConfig(lake=lake)) == (2, 1)
    assert sorted(key for key, *_ in listed(lake)) == keys(0, 25)


def test_reports_over_the_lake(
    spark: SparkSession, topics: Topics, config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create()
    views = [("a", "/jobs"), ("a", "/jobs"), ("b", "/jobs"), ("b", "/in/7")]
    bodies = [json.dumps({"session": session, "page": page}).encode() for session, page in views]
    topics.send(topic, [*bodies, b"no JSON"], value=lambda key: key, timestamp_ms=HOUR + 5)
    topics.send(topic, bodies[:1], value=lambda key: key, timestamp_ms=HOUR + _HOUR_MS)
    job.run(config(topic))
    lake = config(topic).lake
    assert reports.main(["sessions", f"--lake={lake}", f"--topic={topic}"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["page"], row["sessions"], row["views"]) for row in rows] == [
        ("/in/7", 1, 1), ("/jobs", 2, 3), ("/jobs", 1, 1),
    ]  # fmt: skip
    assert reports.main(["counts", f"--lake={lake}"]) == 0
    counts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["topic"], row["records"]) for row in counts] == [(topic, 5), (topic, 1)]
    assert counts[0]["value_bytes"] == sum(map(len, bodies)) + 7


def test_a_topic_named_like_a_number_keeps_its_name(
    spark: SparkSession, topics: Topics, config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.send(topics.create(name="007"), keys(0, 3), timestamp_ms=HOUR)
    assert job.run(config("007")) == 3
    assert reports.main(["counts", f"--lake={config('007').lake}", "--topic=007"]) == 0
    [row] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["topic"], row["records"]) == ("007", 3)


def test_a_report_on_nothing_says_so(spark: SparkSession, topics: Topics, config: MakeConfig) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 1))
    job.run(config(topic))
    with pytest.raises(LakeError, match="holds nothing of topic 'other'; load it first"):
        reports.run(ReportConfig(name="counts", lake=config(topic).lake, topic="other"))


def test_the_completeness_report_names_what_is_missing(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, config: MakeConfig
) -> None:
    ensure_topic(Connection(bootstrap=broker.bootstrap), 1)
    topic = topics.create(1)
    with AuditedProducer(broker.bootstrap, host="web-1") as closed:
        for number in range(50):
            closed.send(topic, b"%d" % number)
    silent = AuditedProducer(broker.bootstrap, host="web-2", report_s=3600)
    silent.send(topic, b"no count follows")
    silent._producer.flush()
    topics.send(topic, keys(0, 3))  # without a stamp
    asked = job.run(config(topic))
    assert asked == 54
    lake = config(topic).lake
    wanted = ReportConfig(name="completeness", lake=lake, topic=topic, ledger=broker.bootstrap)

    def rows(producer: AuditedProducer) -> dict[str, int]:
        found: list[Any] = [row for row in reports.run(wanted) if row["producer"] == producer.instance]
        assert {row["host"] for row in found} == {"web-1" if producer is closed else "web-2"}
        return {
            name: sum(int(row[name]) for row in found)  # a minute may have ended in between
            for name in ("is_known", "produced", "landed", "missing", "doubled")
        } | {"windows": len(found)}

    found = rows(closed)
    assert (found["produced"], found["landed"], found["missing"], found["doubled"]) == (50, 50, 0, 0)
    assert found["is_known"] == found["windows"]
    unknown = rows(silent)
    assert (unknown["is_known"], unknown["produced"], unknown["landed"], unknown["missing"]) == (0, 0, 1, 0)

    path = lake / min(Lake.open(lake).visible().files)
    table = pq.read_table(path)
    # One lost and one doubled: the count stays what it was.
    pq.write_table(pa.concat_tables([table.slice(1), table.slice(4, 1)]), path)
    found = rows(closed)
    assert (found["produced"], found["landed"], found["missing"], found["doubled"]) == (50, 49, 1, 1)


def test_completeness_wants_to_know_where_the_reports_are(
    spark: SparkSession, topics: Topics, config: MakeConfig
) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 1))
    job.run(config(topic))
    with pytest.raises(ConfigError, match="wants --ledger"):
        reports.run(ReportConfig(name="completeness", lake=config(topic).lake))

"""The load job against a real broker and a real Spark: everything once, whatever happens to it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from pylog.cli.app import run as pylog
from pylog.client.admin.groups import GroupAdmin
from pylog.client.avro import RegistryClient
from pylog.daemon.web import WebServer
from pylog.errors import PylogError
from pylog.ingest import job, landing, plan
from pylog.ingest.fetch import Fetched
from pylog.ingest.job import JobConfig
from pylog.ingest.lake import Lake, LakeError, Lost
from pylog.ingest.landing import Landing
from pylog.ingest.plan import Range
from pylog.ingest.status import StatusFiles
from pylog.metrics import Metrics
from pylog.model import TopicPartition
from pylog.registry.api import new_app
from pylog.testing import BrokerProcess
from pylog.wire.api.offsets import EARLIEST_TIMESTAMP
from tests.pipeline.conftest import Topics
from tests.unit.registry.test_api import InMemory

MakeConfig = Callable[..., JobConfig]
_DAY_MS = 86_400_000
_START_TIMEOUT_S = 300
"""Spark starts in a few seconds on two idle cores, and much later beside other work."""


def landed(lake: Path) -> list[tuple[str, str, int, bytes]]:
    """Topic, date, hour and key of every record, as a plain reader of the directory sees them."""
    if not any(lake.glob("topic=*/*/*/*")):
        return []
    table = ds.dataset(lake, format="parquet", partitioning="hive").to_table(columns=["topic", "date", "hour", "key"])
    return sorted(zip(*(table[name].to_pylist() for name in ("topic", "date", "hour", "key")), strict=True))


def landed_keys(lake: Path) -> list[bytes]:
    return [key for *_, key in landed(lake)]


def keys(start: int, end: int) -> list[bytes]:
    return [b"%06d" % number for number in range(start, end)]


def arguments(config: JobConfig, *more: str) -> list[str]:
    return [
        f"--bootstrap={config.bootstrap}", f"--topics={','.join(config.topics)}", f"--lake={config.lake}",
        f"--checkpoint={config.checkpoint}", f"--max-offsets-per-batch={config.max_offsets_per_batch}", *more,
    ]  # fmt: skip


def start_job(config: JobConfig, *more: str) -> subprocess.Popen[str]:
    # Its own process group: the JVM and the workers die with it, as they would with the host.
    return subprocess.Popen(
        [sys.executable, "-m", "pylog.ingest.job", *arguments(config, *more)],
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def wait_for_commit(process: subprocess.Popen[str], lake: Path, number: int) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not (lake / "_commits" / f"{number:010}.json").exists():
        assert process.poll() is None, f"the job was done too early: {process.communicate()[1]}"
        assert time.monotonic() < deadline, f"commit {number} was not made within {_START_TIMEOUT_S} s"
        time.sleep(0.01)


def wait_for_stop(process: subprocess.Popen[str], lake: Path, topic: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while topic not in StatusFiles(lake).read().stopped:
        assert process.poll() is None, f"the job ended: {process.communicate()[1]}"
        assert time.monotonic() < deadline, f"topic {topic} did not stop within {_START_TIMEOUT_S} s"
        time.sleep(0.01)


def test_topics_land_once_by_topic_and_hour(spark: SparkSession, topics: Topics, config: MakeConfig) -> None:
    logins, searches = topics.create(), topics.create()
    topics.send(logins, keys(0, 50), timestamp_ms=20_000 * _DAY_MS)
    topics.send(logins, keys(50, 60), timestamp_ms=20_001 * _DAY_MS - 1)
    topics.send(searches, keys(0, 30), timestamp_ms=20_001 * _DAY_MS, headers=lambda key: [("id", key)])
    both = config(logins, searches, max_offsets_per_batch=50)
    assert job.run(both) == 90
    expected = [(logins, "2024-10-04", 0, key) for key in keys(0, 50)]
    expected += [(logins, "2024-10-04", 23, key) for key in keys(50, 60)]
    expected += [(searches, "2024-10-05", 0, key) for key in keys(0, 30)]
    assert landed(both.lake) == sorted(expected)

    assert job.run(both) == 0  # nothing new, nothing twice
    topics.send(logins, keys(60, 65), timestamp_ms=20_000 * _DAY_MS)  # late records add a file to their hour
    assert job.run(both) == 5
    expected += [(logins, "2024-10-04", 0, key) for key in keys(60, 65)]
    assert landed(both.lake) == sorted(expected)

    headers = ds.dataset(both.lake / f"topic={searches}", format="parquet").to_table(columns=["key", "headers"])
    assert headers.to_pylist()[0]["headers"] == [{"key": "id", "value": headers.to_pylist()[0]["key"]}]
    lake = Lake.open(both.lake)
    files = lake.visible().files
    assert set(files) == {str(path.relative_to(both.lake)) for path in both.lake.glob("topic=*/*/*/*.parquet")}
    assert sum(file.rows for file in files.values()) == 95
    last = lake.commit_of(lake.visible().number)
    assert sum(one["rows"] for one in last["ranges"]) == 5
    assert {entry["id"] for entry in last["position"]["topics"].values()} == set(
        lake.visible().position.topic_ids.values()
    )


def test_a_consumer_group_is_told_the_offsets(spark: SparkSession, topics: Topics, config: MakeConfig) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 7), partition=0)
    topics.send(topic, keys(7, 10), partition=1)
    given = config(topic, group="lake-watchers")
    job.run(given)
    assert GroupAdmin(given.bootstrap).committed("lake-watchers") == {
        TopicPartition(topic, 0): 7, TopicPartition(topic, 1): 3,
    }  # fmt: skip


def test_a_partition_added_between_two_runs_is_read_from_its_beginning(
    spark: SparkSession, topics: Topics, config: MakeConfig
) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, keys(0, 5))
    assert job.run(config(topic)) == 5
    topics.add_partitions(topic, 3)
    topics.send(topic, keys(5, 9), partition=2)
    assert job.run(config(topic)) == 4
    assert landed_keys(config(topic).lake) == keys(0, 9)


def test_a_job_killed_while_it_writes_lands_everything_once(
    spark: SparkSession, topics: Topics, config: MakeConfig
) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 20_000), value=lambda key: bytes(100))
    given = config(topic, max_offsets_per_batch=5_000)
    process = start_job(given)
    try:
        wait_for_commit(process, given.lake, 1)  # one is in, others are on their way
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    partly = landed_keys(given.lake)  # readable, and without a copy
    assert len(set(partly)) == len(partly)
    job.run(given)
    assert landed_keys(given.lake) == keys(0, 20_000)


def test_of_two_drivers_at_once_one_stops_and_everything_lands_once(
    spark: SparkSession, topics: Topics, config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 3_000))
    given = config(topic)
    commit = Lake.commit

    def slow(self: Lake, *arguments: object, **more: object) -> object:
        # The other driver comes, loads everything, more arrives, and it loads that too.
        with monkeypatch.context() as patch:
            patch.setattr(Lake, "commit", commit)
            other = config(topic, checkpoint=tmp_path / "other")
            assert job.run(other) == 3_000
            topics.send(topic, keys(3_000, 3_100))
            assert job.run(other) == 100
        return commit(self, *arguments, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "commit", slow)
        with pytest.raises(Lost, match="this one stops"):
            job.run(given)
    assert job.run(given) == 0
    assert landed_keys(given.lake) == keys(0, 3_100)


def test_a_topic_made_again_is_refused_until_told_so(spark: SparkSession, topics: Topics, config: MakeConfig) -> None:
    topic, other = topics.create(), topics.create()
    topics.send(topic, keys(0, 10))
    topics.send(other, keys(50, 60))
    assert job.run(config(topic, other)) == 20
    topics.delete(topic)
    topics.create(name=topic)
    topics.send(topic, keys(10, 40))
    with pytest.raises(PylogError, match=rf"topic '{topic}' was deleted and made again.*--recreated {topic}"):
        job.run(config(topic, other))
    assert job.run(config(topic, other, recreated=frozenset({topic}))) == 30
    assert job.run(config(topic, other, recreated=frozenset({topic}))) == 0  # it is a permission, not an order
    assert sorted(landed_keys(config(topic).lake)) == keys(0, 60)[:40] + keys(50, 60)  # topics in any order


def test_a_topic_made_again_under_a_task_s_hands_lands_nothing(
    spark: SparkSession, topics: Topics, config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, keys(0, 10))
    pack = plan.pack

    def late(*arguments: Any) -> object:
        topics.delete(topic)
        topics.create(name=topic, partitions=1)
        topics.send(topic, keys(100, 140))
        return pack(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(plan, "pack", late)
        with pytest.raises(PylogError, match=f"topic '{topic}' was deleted and made again"):
            job.run(config(topic))
    assert landed_keys(config(topic).lake) == []
    assert job.run(config(topic)) == 40
    assert landed_keys(config(topic).lake) == keys(100, 140)


def deleted_during(
    monkeypatch: pytest.MonkeyPatch, step: str, topics: Topics, name: str, where: Callable[..., bool] = lambda *_: True
) -> None:
    """Delete topic *name* when a run comes to its first *step* of which *where* holds."""
    go_on, still = getattr(job, step), iter([name])

    def late(*arguments: object) -> object:
        if where(*arguments):
            for topic in still:
                topics.delete(topic)
        return go_on(*arguments)

    monkeypatch.setattr(job, step, late)


def holes(lake: Path, number: int) -> list[tuple[str, int, int, int]]:
    found = Lake.open(lake).commit_of(number)["holes"]
    return [(hole["topic"], hole["partition"], hole["start"], hole["end"]) for hole in found]


def test_a_topic_deleted_before_its_task_reads_it_ends_and_the_others_land(
    spark: SparkSession,
    topics: Topics,
    config: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone, stays = topics.create(partitions=1), topics.create(partitions=1)
    given = config(gone, stays)
    topics.send(gone, keys(0, 10))
    topics.send(stays, keys(50, 60))
    assert job.run(given) == 20
    topics.send(gone, keys(10, 15))
    topics.send(stays, keys(60, 67))
    with monkeypatch.context() as patch:
        deleted_during(patch, "_task", topics, gone)
        assert job.run(given) == 7
    assert sorted(landed_keys(given.lake)) == keys(0, 10) + keys(50, 67)
    assert holes(given.lake, 2) == [(gone, 0, 10, 15)]
    said = capsys.readouterr().err
    assert f"topic '{gone}' was deleted" in said
    assert f"not loaded: {gone}-0 offsets 10 to 14" in said

    topics.send(stays, keys(67, 70))
    assert job.run(given) == 3  # it goes on without the topic, and says so
    assert holes(given.lake, 3) == []
    assert f"topic '{gone}' was deleted" in capsys.readouterr().err

    topics.create(name=gone, partitions=1)
    topics.send(gone, keys(100, 105))
    with pytest.raises(PylogError, match=rf"topic '{gone}' was deleted and made again.*--recreated {gone}"):
        job.run(given)
    assert job.run(config(gone, stays, recreated=frozenset({gone}))) == 5
    assert sorted(landed_keys(given.lake)) == keys(0, 10) + keys(50, 70) + keys(100, 105)


def test_a_topic_deleted_while_a_run_plans_ends_also_if_the_lake_has_nothing_of_it(
    spark: SparkSession, topics: Topics, config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, stays = topics.create(partitions=1), topics.create(partitions=1)
    given = config(gone, stays)
    topics.send(gone, keys(0, 4))
    topics.send(stays, keys(50, 60))
    with monkeypatch.context() as patch:
        deleted_during(patch, "positions_of_present", topics, gone, lambda *asked: asked[2] == EARLIEST_TIMESTAMP)
        assert job.run(given) == 10
    assert landed_keys(given.lake) == keys(50, 60)
    assert holes(given.lake, 1) == [(gone, 0, 0, 4)]
    assert job.run(given) == 0  # the lake has seen the topic: it is not taken for a name that was never there
    topics.delete(stays)
    with pytest.raises(PylogError, match=f"nothing is left to load: '{gone}', '{stays}' was there and is not any more"):
        job.run(given)
    assert landed_keys(given.lake) == keys(50, 60)


@pytest.mark.parametrize("step", ["with_read_uncommitted", "epoch_ends", "deleted"])
def test_a_topic_deleted_while_a_run_plans_ends_alone_whatever_the_run_asks_next(
    spark: SparkSession, topics: Topics, config: MakeConfig, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    gone, stays = topics.create(partitions=1), topics.create(partitions=1)
    given = config(gone, stays)
    topics.send(gone, keys(0, 4))
    topics.send(stays, keys(50, 60))
    assert job.run(given) == 14
    topics.send(gone, keys(4, 6))
    topics.send(stays, keys(60, 63))
    with monkeypatch.context() as patch:
        deleted_during(patch, step, topics, gone)
        assert job.run(given) == 3
    assert sorted(landed_keys(given.lake)) == keys(0, 4) + keys(50, 63)
    assert holes(given.lake, 2) == [(gone, 0, 4, 6)]
    assert (job.run(given), StatusFiles(given.lake).read().stopped) == (0, {})


def test_a_topic_made_again_and_deleted_while_a_run_plans_ends_alone(
    spark: SparkSession, topics: Topics, config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, stays = topics.create(partitions=1), topics.create(partitions=1)
    given = config(gone, stays)
    topics.send(gone, keys(0, 4))
    topics.send(stays, keys(50, 60))
    assert job.run(given) == 14
    topics.delete(gone)
    topics.send(topics.create(name=gone, partitions=1), keys(0, 2))
    topics.send(stays, keys(60, 63))
    with monkeypatch.context() as patch:
        deleted_during(patch, "positions_of_present", topics, gone, lambda *asked: asked[2] == EARLIEST_TIMESTAMP)
        assert job.run(given) == 3
    assert sorted(landed_keys(given.lake)) == keys(0, 4) + keys(50, 63)
    assert holes(given.lake, 2) == [], "what it would have loaded, nobody knows"


def test_a_topic_deleted_after_its_name_matched_a_pattern_holds_up_none_of_the_others(
    spark: SparkSession, topics: Topics, config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, stays = (topics.create(name=f"matched.{name}", partitions=1) for name in ("gone", "stays"))
    for topic in (gone, stays):
        topics.send(topic, keys(0, 5))
    given = config(topic_pattern=re.compile("matched[.].*"))
    with monkeypatch.context() as patch:
        deleted_during(patch, "positions_of_present", topics, gone)
        assert job.run(given) == 5
    assert [topic for topic, *_ in landed(given.lake)] == [stays] * 5


def test_a_name_that_no_topic_has_stops_alone(
    spark: SparkSession, topics: Topics, config: MakeConfig, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 5))
    given = config(topic, "no-such-topic", metrics_file=tmp_path / "ingest.prom")
    with pytest.raises(PylogError, match="topic 'no-such-topic' does not exist"):
        job.run(given)
    assert landed_keys(given.lake) == keys(0, 5)
    assert set(StatusFiles(given.lake).read().stopped) == {"no-such-topic"}
    assert "pylog_ingest_stopped_topics 1" in (tmp_path / "ingest.prom").read_text()


def test_of_a_topic_deleted_between_two_fetches_nothing_counts(
    topics: Topics, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, stays = topics.create(partitions=1), topics.create(partitions=1)
    topics.send(gone, keys(0, 12), value=lambda key: bytes(900_000))  # more than one fetch holds
    topics.send(stays, keys(50, 60))
    take, fetches = landing.Task.take, iter([gone])

    def late(task: landing.Task, fetched: Fetched) -> None:
        take(task, fetched)
        for topic in fetches:
            topics.delete(topic)

    monkeypatch.setattr(landing.Task, "take", late)
    how = Landing(
        bootstrap=broker.bootstrap, directory=tmp_path, prefix="1", fail_on_data_loss=True
    )  # fmt: skip
    read = [Range(TopicPartition(gone, 0), 0, 12), Range(TopicPartition(stays, 0), 0, 10)]
    found = landing.land(read, how)
    assert found.gone == {gone}
    assert 0 < found.rows[read[0]] < 12
    left = found.without({gone})
    assert left.rows == {read[1]: 10}
    assert {file.topic for file in left.files} == {stays}


def test_holes_that_retention_left_stop_the_job_or_are_written_down(
    spark: SparkSession, topics: Topics, config: MakeConfig
) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, keys(0, 10))
    assert job.run(config(topic)) == 10
    topics.send(topic, keys(10, 30))
    topics.delete_records(topic, 0, before=25)
    with pytest.raises(PylogError, match=f"retention deleted {topic}-0 offsets 10 to 24 before they were read"):
        job.run(config(topic))
    allowing = config(topic, fail_on_data_loss=False)
    assert job.run(allowing) == 5
    assert landed_keys(allowing.lake) == keys(0, 10) + keys(25, 30)
    lake = Lake.open(allowing.lake)
    assert lake.commit_of(2)["holes"] == [{"topic": topic, "partition": 0, "start": 10, "end": 25}]


def test_topics_that_stop_leave_the_others_alone_and_go_on_when_accepted(
    spark: SparkSession, topics: Topics, config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holed, again, whole = (topics.create(name=f"stops.{name}", partitions=1) for name in ("holed", "again", "whole"))
    given = config(topic_pattern=re.compile(r"stops\..*"), metrics_file=tmp_path / "ingest.prom")
    for topic in (holed, again, whole):
        topics.send(topic, keys(0, 10))
    assert job.run(given) == 30
    for topic in (holed, whole):
        topics.send(topic, keys(10, 30))
    topics.delete_records(holed, 0, before=25)
    topics.delete(again)
    topics.send(topics.create(name=again, partitions=1), keys(50, 60))
    with pytest.raises(PylogError, match=f"'{again}' was deleted and made again.*; stopped too: '{holed}'"):
        job.run(given)
    assert landed_keys(given.lake).count(keys(29, 30)[0]) == 1
    status = StatusFiles(given.lake)
    assert set(status.read().stopped) == {holed, again}
    assert (status.read().lag[holed], status.read().lag[whole]) == (20, 0)
    assert "pylog_ingest_stopped_topics 2" in (tmp_path / "ingest.prom").read_text()
    assert f"pylog lake accept {given.lake} {holed}" in capsys.readouterr().err
    for command in commands_that_status_shows(given.lake, capsys):
        assert pylog(command) == 0
    assert job.run(given) == 15
    assert (status.read().stopped, status.accepted()) == ({}, frozenset())
    assert sorted(landed_keys(given.lake)) == sorted(keys(0, 10) * 3 + keys(10, 30) + keys(25, 30) + keys(50, 60))


def commands_that_status_shows(lake: Path, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Return the commands by which `pylog lake status` says that stopped topics go on, without the program's name."""
    capsys.readouterr()
    assert pylog(["lake", "status", str(lake)]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    return [words[1:] for words in shown if words[:3] == ["pylog", "lake", "accept"]]


def test_a_topic_whose_schema_is_missing_stops_alone(
    spark: SparkSession, topics: Topics, config: MakeConfig, tmp_path: Path
) -> None:
    timed, other = topics.create(), topics.create()
    topics.send(timed, keys(0, 5))
    topics.send(other, keys(10, 15))
    with WebServer("127.0.0.1", 0, new_app(InMemory(), Metrics())) as server:
        url = f"http://127.0.0.1:{server.port}"
        metrics = tmp_path / "load.prom"
        given = config(timed, other, event_times={timed: "at"}, registry=(url,), metrics_file=metrics)
        with pytest.raises(PylogError, match="not found"):
            job.run(given)
        assert landed_keys(given.lake) == keys(10, 15)
        assert StatusFiles(given.lake).read().stopped.keys() == {timed}
        assert "pylog_ingest_stopped_topics 1" in metrics.read_text().splitlines()
        fields = [{"name": "at", "type": "long"}]
        RegistryClient(url).schema_id(f"{timed}-value", json.dumps({"type": "record", "name": "R", "fields": fields}))
        assert job.run(given) == 5
    assert sorted(landed_keys(given.lake)) == keys(0, 5) + keys(10, 15)


def test_one_topic_of_fifty_that_stops_holds_up_none_of_the_others(
    spark: SparkSession, topics: Topics, config: MakeConfig
) -> None:
    names = [topics.create(name=f"fifty.{number:02}", partitions=1) for number in range(50)]
    given = config(topic_pattern=re.compile(r"fifty[.]\d+"))
    topics.send_each(names, keys(0, 2))
    assert job.run(given) == 100
    topics.send_each(names, keys(2, 4))
    topics.delete_records(names[17], 0, before=3)
    with pytest.raises(PylogError, match=re.escape(names[17])):
        job.run(given)
    [*others] = [row for row in landed(given.lake) if row[0] != names[17]]
    assert sorted((name, key) for name, *_, key in others) == [
        (name, key) for name in names if name != names[17] for key in keys(0, 4)
    ], "the other 49 are there after one run"
    assert set(StatusFiles(given.lake).read().stopped) == {names[17]}


def test_a_pattern_takes_in_topics_that_come_up_later(spark: SparkSession, topics: Topics, config: MakeConfig) -> None:
    topics.send(topics.create(name="web.a"), keys(0, 10))
    given = config(topic_pattern=re.compile("web[.].*"))
    assert job.run(given) == 10
    topics.send(topics.create(name="web.b"), keys(10, 20))
    assert job.run(given) == 10


def test_retention_that_is_faster_than_a_task_stops_the_job_or_is_written_down(
    spark: SparkSession, topics: Topics, config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, keys(0, 10))
    pack, deleted = plan.pack, iter([4, 7])

    def late(*arguments: Any) -> object:
        topics.delete_records(topic, 0, before=next(deleted))
        return pack(*arguments)

    monkeypatch.setattr(plan, "pack", late)
    with pytest.raises(PylogError, match=f"retention deleted {topic}-0 offsets 0 to 3 before they were read"):
        job.run(config(topic))
    assert job.run(config(topic, fail_on_data_loss=False)) == 3
    (hole,) = Lake.open(config(topic).lake).commit_of(1)["holes"]
    assert (hole["start"], hole["end"]) == (4, 7)


def test_a_lake_that_is_not_there_any_more_is_refused(
    spark: SparkSession, topics: Topics, config: MakeConfig, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 7))
    given = config(topic)
    job.run(given)
    given.lake.rename(tmp_path / "unmounted")
    with pytest.raises(LakeError, match="is the right file system mounted there"):
        job.run(given)


def test_the_command_ends_with_0_when_drained(
    spark: SparkSession, topics: Topics, config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 7))
    assert job.main(arguments(config(topic))) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"landed records=7 topics={topic}" in said.err


def test_the_command_lists_files_and_status(
    spark: SparkSession, topics: Topics, config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create(partitions=1)
    topics.send(topic, keys(0, 7))
    lake = config(topic).lake
    job.run(config(topic))
    assert pylog(["lake", "files", str(lake)]) == 0
    (path,) = capsys.readouterr().out.splitlines()
    assert ds.dataset(path, format="parquet").count_rows() == 7
    assert pylog(["lake", "status", str(lake), "--format", "wide"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:3] == [topic, "7", "1"]
    assert pylog(["lake", "files", str(lake / "nothing")]) == 1
    assert "is no lake" in capsys.readouterr().err


def test_a_continuous_job_outlives_a_topic_goes_on_behind_an_accepted_hole_and_stops_when_told(
    topics: Topics, config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, gone, holed = topics.create(), topics.create(), topics.create(partitions=1)
    topics.send(topic, keys(0, 7))
    topics.send(gone, keys(50, 55))
    topics.send(holed, keys(60, 65))
    given = config(topic, gone, holed)
    process = start_job(given, "--every=0.2")
    try:
        wait_for_commit(process, given.lake, 1)
        topics.send(topic, keys(7, 8))  # one record at a time: two might stand in two commits
        wait_for_commit(process, given.lake, 2)
        topics.delete(gone)  # in a run or between two of them
        topics.send(topic, keys(8, 9))
        wait_for_commit(process, given.lake, 3)
        os.killpg(process.pid, signal.SIGSTOP)  # so that no load is faster than retention
        topics.send(holed, keys(65, 75))
        topics.delete_records(holed, 0, before=12)
        os.killpg(process.pid, signal.SIGCONT)
        wait_for_stop(process, given.lake, holed)
        [command] = commands_that_status_shows(given.lake, capsys)
        assert pylog(command) == 0
        wait_for_commit(process, given.lake, 4)
        process.terminate()
        said = process.communicate(timeout=_START_TIMEOUT_S)[1]
        assert process.returncode == 0, said
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert sorted(landed_keys(given.lake)) == keys(0, 9) + keys(50, 55) + keys(60, 65) + keys(72, 75)
    assert holes(given.lake, 4) == [(holed, 0, 5, 12)]
    assert said.count("landed records=1 ") == 2
    assert said.count(f"topic '{gone}' was deleted") == 1


def test_an_unknown_topic_ends_the_command_with_1_before_spark_starts(
    config: MakeConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(job, "context")
    given = config("no-such-topic")
    assert job.main(arguments(given)) == 1
    assert capsys.readouterr().err == "pylog ingest: topic 'no-such-topic' does not exist [PYLOG-1003]\n"
    assert not given.lake.exists()


def test_with_nothing_new_spark_is_not_started(
    spark: SparkSession, topics: Topics, config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 7))
    given = config(topic)
    assert job.run(given) == 7
    with monkeypatch.context() as patch:
        patch.delattr(job, "context")
        assert job.run(given) == 0
    topics.send(topic, keys(7, 8))
    assert job.run(given) == 1


def test_a_lake_that_cannot_be_written_is_said(topics: Topics, config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PylogError, match=r"lake .*/file/lake cannot be written"):
        job.run(config(topics.create(), lake=tmp_path / "file" / "lake"))


def test_brokers_that_are_down_are_said(config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(job, "_FIRST_ANSWER_MS", 200)
    with BrokerProcess(tmp_path / "gone") as gone:
        bootstrap = gone.bootstrap
    down = JobConfig(bootstrap=bootstrap, topics=("logins",), lake=tmp_path / "lake", checkpoint=tmp_path / "cp")
    with pytest.raises(PylogError, match=f"no broker of {bootstrap} answers"):
        job.run(down)

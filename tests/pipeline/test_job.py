"""The ingestion job against a real broker: everything once, whatever happens to it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from pylog.errors import PylogError
from pylog.ingest import job
from pylog.ingest.job import JobConfig
from pylog.ingest.lake import Lake
from pylog.testing import BrokerProcess
from tests.pipeline.conftest import Topics

MakeConfig = Callable[..., JobConfig]
_DAY_MS = 86_400_000
_START_TIMEOUT_S = 300
"""Spark starts in five to ten seconds on two idle cores, and much later beside other work."""


def landed(lake: Path) -> list[tuple[str, str, bytes]]:
    """Topic, date and key of every record, as a plain reader of the directory sees them."""
    table = ds.dataset(lake, format="parquet", partitioning="hive").to_table(columns=["topic", "date", "key"])
    return sorted(zip(*(table[name].to_pylist() for name in ("topic", "date", "key")), strict=True))


def keys(start: int, end: int) -> list[bytes]:
    return [b"%06d" % number for number in range(start, end)]


def arguments(config: JobConfig) -> list[str]:
    return [
        f"--bootstrap={config.bootstrap}", f"--topics={','.join(config.topics)}", f"--lake={config.lake}",
        f"--checkpoint={config.checkpoint}", f"--max-offsets-per-batch={config.max_offsets_per_batch}",
    ]  # fmt: skip


def test_topics_land_once_by_topic_and_day(spark: SparkSession, topics: Topics, config: MakeConfig) -> None:
    logins, searches = topics.create(), topics.create()
    topics.send(logins, keys(0, 50), timestamp_ms=20_000 * _DAY_MS)
    topics.send(logins, keys(50, 60), timestamp_ms=20_001 * _DAY_MS - 1)
    topics.send(searches, keys(0, 30), timestamp_ms=20_001 * _DAY_MS, headers=lambda key: [("id", key)])
    both = config(logins, searches, max_offsets_per_batch=50)
    assert job.run(both) == 90
    expected = [(logins, "2024-10-04", key) for key in keys(0, 60)]
    expected += [(searches, "2024-10-05", key) for key in keys(0, 30)]
    assert landed(both.lake) == sorted(expected)

    assert job.run(both) == 0  # nothing new, nothing twice
    topics.send(logins, keys(60, 65), timestamp_ms=20_000 * _DAY_MS)
    assert job.run(both) == 5
    expected += [(logins, "2024-10-04", key) for key in keys(60, 65)]
    assert landed(both.lake) == sorted(expected)

    headers = ds.dataset(both.lake / f"topic={searches}", format="parquet").to_table(columns=["key", "headers"])
    assert headers.to_pylist()[0]["headers"] == [{"key": "id", "value": headers.to_pylist()[0]["key"]}]
    commits = [json.loads(path.read_text()) for path in sorted((both.lake / "_commits").glob("*.json"))]
    listed = {file["path"] for commit in commits for file in commit["files"]}
    assert listed == {str(path.relative_to(both.lake)) for path in both.lake.glob("topic=*/*/*.parquet")}
    assert sum(file["rows"] for commit in commits for file in commit["files"]) == 95


def test_a_job_that_fails_between_its_steps_lands_everything_once(
    spark: SparkSession, topics: Topics, config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 100))
    given = config(topic)
    for step in ("_stage", "_publish", "_commit"):
        real = getattr(Lake, step)

        def failing(self: Lake, *arguments: object, real: Callable[..., object] = real) -> None:
            real(self, *arguments)
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(Lake, step, failing)
            with pytest.raises(PylogError, match="Input/output error"):
                job.run(given)
    # The last failure came after the commit: the records are there, and Spark still has to hear of it.
    assert job.run(given) == 0
    assert [key for _, _, key in landed(given.lake)] == keys(0, 100)


def test_a_job_killed_while_it_writes_lands_everything_once(
    spark: SparkSession, topics: Topics, config: MakeConfig
) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 20_000), value=lambda key: bytes(100))
    given = config(topic, max_offsets_per_batch=5_000)
    # Its own process group: the JVM and the workers die with it, as they would with the host.
    process = subprocess.Popen(
        [sys.executable, "-m", "pylog.ingest.job", *arguments(given)], stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not list((given.lake / "_commits").glob("*.json")):  # one batch is in, others are on their way
            assert process.poll() is None, "the job was done before it could be killed"
            assert time.monotonic() < deadline, f"no batch landed within {_START_TIMEOUT_S} s"
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    partly = landed(given.lake)  # readable, and without a copy
    assert len({key for _, _, key in partly}) == len(partly)
    job.run(given)
    assert [key for _, _, key in landed(given.lake)] == keys(0, 20_000)


def test_the_command_ends_with_0_when_drained(
    spark: SparkSession, topics: Topics, config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 7))
    assert job.main(arguments(config(topic))) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"landed records=7 topics={topic}" in said.err


def test_an_unknown_topic_ends_the_command_with_1_before_spark_starts(
    config: MakeConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(job, "session")
    given = config("no-such-topic")
    assert job.main(arguments(given)) == 1
    assert capsys.readouterr().err == "pylog ingest: topic 'no-such-topic' does not exist\n"
    assert not given.lake.exists()


def test_with_nothing_new_spark_is_not_started(
    spark: SparkSession, topics: Topics, config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 7))
    given = config(topic)
    assert job.run(given) == 7
    with monkeypatch.context() as patch:
        patch.delattr(job, "session")
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


def test_another_checkpoint_on_the_same_lake_is_refused(
    spark: SparkSession, topics: Topics, config: MakeConfig, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, keys(0, 7))
    job.run(config(topic))
    with pytest.raises(PylogError, match="written with another checkpoint"):
        job.run(config(topic, checkpoint=tmp_path / "other"))
    assert len(landed(config(topic).lake)) == 7

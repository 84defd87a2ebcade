"""Which small files become one."""

import errno
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from pylog.errors import StorageError
from pylog.ingest import compact
from pylog.ingest.compact import CompactConfig
from pylog.ingest.compaction import plan_compaction
from pylog.ingest.lake import File, Kind, Lake, LakeError, path_of

HOUR = 490_000


def file(name: str, size: int = 10, hour: int | None = HOUR, topic: str = "logins") -> File:
    return File(path_of(topic, hour, name), 1, size)


def test_small_files_of_one_hour_and_topic_become_one() -> None:
    a, b, other_hour, other_topic = file("a"), file("b"), file("c", hour=HOUR - 1), file("d", topic="searches")
    assert plan_compaction([b, other_topic, a, other_hour], (HOUR + 1) * 3600) == [[a, b]]


def test_an_open_hour_is_left_alone() -> None:
    files = [file("a"), file("b")]
    assert plan_compaction(files, (HOUR + 1) * 3600 - 1) == []


def test_large_files_are_left_alone() -> None:
    files = [file("a", 100), file("b", 70), file("c", 20), file("d", 20)]
    assert plan_compaction(files, 1e18, target_bytes=100) == [files[1:3]]


def test_what_comes_out_is_about_the_target() -> None:
    files = [file(f"{n}", 40) for n in range(5)]
    assert plan_compaction(files, 1e18, target_bytes=100) == [files[:2], files[2:4]]


@pytest.mark.parametrize(("hour", "end"), [(0, 3600), (HOUR, (HOUR + 1) * 3600), (None, 0)])
def test_the_end_of_an_hour_is_read_from_the_path(hour: int | None, end: float) -> None:
    assert file("a", hour=hour).hour_ended_s == end


def test_a_late_record_does_not_write_a_large_file_again() -> None:
    large, late, later = file("a", 100 << 20), file("b", 1000), file("c", 1000)
    assert plan_compaction([large, late], 1e18) == []
    assert plan_compaction([large, late, later], 1e18) == [[late, later]]
    equal = [file("e", 1), *(file(f"f{n}", 10) for n in range(3))]
    assert plan_compaction(equal, 1e18) == [equal]
    assert plan_compaction([large, file("d", 25 << 20)], 1e18) == [[large, file("d", 25 << 20)]]


def test_a_compaction_that_ended_well_says_when_and_one_that_failed_leaves_that(tmp_path: Path) -> None:
    lake, told = tmp_path / "lake", tmp_path / "compact.prom"
    arguments = ["--lake", str(lake), "--metrics-file", str(told)]
    assert compact.main(arguments) == 1, "there is no lake yet"
    assert not told.exists()
    Lake.create(lake)
    began_s = time.time()
    assert compact.main(arguments) == 0, "there is nothing to compact"
    [value] = re.findall(r"^pylog_lake_compacted_timestamp_seconds (\S+)$", told.read_text(), re.MULTILINE)
    assert began_s - 1 < float(value) <= time.time()
    (lake / "_iceberg").mkdir()
    before = told.read_text()
    assert compact.main(arguments) == 1, "its Iceberg tables name its files"
    assert told.read_text() == before


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with two small files in each of 1,000 hours."""
    lake = Lake.create(tmp_path / "lake")
    attempt = lake.begin(Kind.LOAD, lake.finish())
    files = [file(f"{hour}{name}", hour=hour) for hour in range(1000) for name in "ab"]
    for one in files:
        (attempt.directory / Path(one.path).name).touch()
    lake.commit(attempt, files, more={"position": {"version": 1, "topics": {}}})
    return lake


def failing(monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]) -> list[str]:
    """Have no set of files compacted, on no Spark; return where the groups that are tried come to stand."""
    tried: list[str] = []

    def refuse(_spark: object, _root: Path, _attempt: object, files: Sequence[File]) -> File:
        tried.append(files[0].group)
        raise error()

    monkeypatch.setattr(compact, "session", lambda *_: None)
    monkeypatch.setattr(compact, "_compacted", refuse)
    return tried


def test_a_round_in_which_nothing_can_be_compacted_is_the_last(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = failing(monkeypatch, lambda: PySparkException("Cannot call methods on a stopped SparkContext."))
    with pytest.raises(LakeError) as caught:
        compact.run(CompactConfig(lake=lake.root))
    assert len(tried) == compact._MAX_SETS
    said = str(caught.value)
    assert said.count("stopped SparkContext") == 10
    assert said.endswith("; and 190 more; left for the next run: 1600 files")


@pytest.mark.parametrize(
    "error",
    [
        lambda: PySparkException(f"Job aborted.\n\tCaused by: java.io.IOException: {os.strerror(errno.ENOSPC)}"),
        lambda: StorageError(f"x cannot be written: {OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))}"),
    ],
)
def test_a_full_disk_ends_a_compaction(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]
) -> None:
    failing(monkeypatch, error)
    with pytest.raises(LakeError, match=r"; left as they are: 2 files of [^;]*: No space left on device; left for"):
        compact.run(CompactConfig(lake=lake.root))

"""Which small files become one."""

import re
import time
from pathlib import Path

import pytest

from pylog.ingest import compact
from pylog.ingest.compaction import plan_compaction
from pylog.ingest.lake import File, Lake, path_of

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

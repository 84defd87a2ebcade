"""What the closing table calls equal, and how it says what is not."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from local.demo.reconcile import Row, as_json, as_table, count_until_equal, parse, total
from pylog.audit.counting import Count, Counter, write_report
from pylog.errors import ConfigError


def seen(*keys: str) -> Count:
    counter = Counter()
    counter.update(key.encode() for key in keys)
    return counter.distinct()


EQUAL = Row("logins", seen("a", "b"), seen("b", "a"), seen("a", "b"))
CASES = {
    "lost on the way to the brokers": (Row("t", seen("a", "b"), seen("a"), seen("a")), "1 missing from stored"),
    "lost on the way to the lake": (Row("t", seen("a", "b"), seen("a", "b"), seen("b")), "1 missing from landed"),
    "from nowhere": (Row("t", seen("a"), seen("a", "x"), seen("a", "x")), "1 too many in stored"),
    "another key": (Row("t", seen("a", "b"), seen("a", "b"), seen("a", "x")), "but not the same keys"),
    "doubled by the ingestion": (Row("t", seen("a"), seen("a"), seen("a", "a")), "0 duplicates stored, 1 landed"),
    "a loss beside a duplicate": (Row("t", seen("a", "b"), seen("a", "b"), seen("a", "a")), "1 missing from landed"),
    "lost by the mirror": (
        Row("t", seen("a", "b"), seen("a", "b"), seen("a"), seen("a")), "2 stored, 1 mirrored: 1 missing from mirrored"
    ),
    "doubled behind the mirror": (
        Row("t", seen("a"), seen("a"), seen("a", "a"), seen("a")), "0 duplicates mirrored, 1 landed"
    ),
}  # fmt: skip


def test_equal_is_equal() -> None:
    assert EQUAL.differences() == []


def test_duplicates_of_an_at_least_once_path_are_shown_and_allowed() -> None:
    row = Row("logins", seen("a", "b"), seen("a", "b", "a"), seen("a", "a", "b"))
    assert row.differences() == []
    assert row.stored.duplicates == 1


def test_what_the_mirror_doubled_is_in_the_lake_as_often() -> None:
    row = Row("logins", seen("a", "b"), seen("a", "b"), seen("a", "b", "a"), seen("a", "a", "b"))
    assert row.differences() == []
    assert list(json.loads(as_json([row]))["rows"][0]) == [
        "source", "produced", "stored", "mirrored", "landed", "differences"]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_difference_is_named(case: str) -> None:
    row, said = CASES[case]
    (difference,) = row.differences()[:1]
    assert difference.startswith("t: ")
    assert said in "; ".join(row.differences())


def test_the_table_shows_every_number() -> None:
    console = Console(width=140, record=True)
    console.print(as_table([EQUAL, CASES["lost on the way to the lake"][0]]))
    text = console.export_text()
    assert "equal" in text
    assert "differs" in text
    assert f"{EQUAL.landed.key_hash:016x}" in text


def test_json_says_the_same() -> None:
    body = json.loads(as_json([EQUAL, CASES["another key"][0]]))
    assert not body["is_equal"]
    assert body["rows"][0]["produced"] == {"count": 2, "duplicates": 0, "key_hash": f"{EQUAL.produced.key_hash:016x}"}
    assert body["rows"][1]["differences"] == CASES["another key"][0].differences()


def test_reports_of_several_runs_add_up(tmp_path: Path) -> None:
    first, second = seen("a"), seen("b", "c")
    write_report(tmp_path / "1", {"logins": first})
    write_report(tmp_path / "2", {"logins": second, "searches": second})
    counts = total([tmp_path / "1", tmp_path / "2"])
    assert (counts["logins"].count, counts["logins"].key_hash) == (3, seen("a", "b", "c").key_hash)
    assert counts["searches"].count == 2


def test_a_report_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none"):
        total([tmp_path / "none"])


def test_without_patience_it_counts_once() -> None:
    counted = []

    def count() -> list[Row]:
        counted.append(1)
        return [CASES["from nowhere"][0]]

    assert count_until_equal(count, 0) == [CASES["from nowhere"][0]]
    assert len(counted) == 1


@pytest.mark.parametrize(
    "arguments", [[], ["--journal", "live1"], ["--journal", "=file"], ["--report", "run1=a", "--report", "b"]]
)
def test_a_wrong_command_line_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--bootstrap", "h:1", "--lake", "/lake", *arguments])
    assert ended.value.code == 2


def test_a_report_names_its_run_or_does_not() -> None:
    given = parse(["--bootstrap", "h:1", "--lake", "/lake", "--report", "run1=/a", "--report", "run2=/b"])
    assert [(report.run, report.path) for report in given.report] == [("run1", Path("/a")), ("run2", Path("/b"))]
    given = parse(["--bootstrap", "h:1", "--lake", "/lake", "--report", "/a"])
    assert given.report[0].run is None

"""The end of `make test`: what it adds up, and when it does not believe a zero."""

from pathlib import Path

import pytest

from local.test import report

LONG = "x" * 1000
REPORT = f"""<testsuites><testsuite tests="4">
<testcase classname="a" name="passes"/>
<testcase classname="a" name="fails"><failure message="no"/></testcase>
<testcase classname="a" name="breaks"><error message="not within 40 s:&#10;  {LONG}the log"/></testcase>
<testcase classname="a" name="waits"><skipped message="needs two hosts"/></testcase>
</testsuite></testsuites>"""
GREEN = '<testsuites><testsuite tests="1"><testcase classname="a" name="passes"/></testsuite></testsuites>'


@pytest.fixture
def stages(tmp_path: Path) -> Path:
    path = tmp_path / "stages.tsv"
    path.write_text("unit\t12.0\t300\t0\t9.0\n")
    return path


def test_the_last_line_has_the_sums(stages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "unit.xml").write_text(REPORT)
    assert report.main([str(stages), str(tmp_path), "12", "60"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 passed, 2 failed, 1 skipped"
    assert "skipped 1: needs two hosts" in lines
    assert "failed: unit: a::fails: no" in lines
    [broken] = [line for line in lines if "a::breaks" in line]
    assert broken.startswith("failed: unit: a::breaks: not within 40 s: xxx")
    assert broken.endswith("xxxthe log")
    assert len(broken) < 500


def test_a_second_try_counts_and_is_named(stages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "unit.xml").write_text(REPORT)
    (tmp_path / "unit-again.xml").write_text(
        '<testsuites><testsuite tests="2"><testcase classname="a" name="breaks"/>'
        '<testcase classname="a" name="fails"><failure message="still no"/></testcase></testsuite></testsuites>'
    )
    assert report.main([str(stages), str(tmp_path), "12", "60"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "2 passed, 1 failed, 1 skipped"
    assert "failed: unit: a::fails: no" in lines
    assert [line.startswith("passed only when tried again: unit: a::breaks: not within") for line in lines].count(
        True
    ) == 1


def test_each_stage_shows_its_time_its_budget_and_how_much_of_it_was_waiting() -> None:
    stages = report.read_stages("unit\t12.0\t300\t0\t9.0\nlog\t9.5\t4\t1\t19.0\nempty\t0.0\t4\t0\t0.0\n")
    lines = [line.split() for line in report.budget_table(stages, seconds=14, budget_s=10).splitlines()]
    assert lines == [
        ["stage", "seconds", "budget", "cpu", "waiting"],
        ["unit", "12.0", "300", "9.0", "25%"],
        ["log", "9.5", "4", "19.0", "0%", "over", "budget,", "failed", "(1)"],
        ["empty", "0.0", "4", "0.0", "0%"],
        ["all,", "side", "by", "side", "14.0", "10", "28.0", "0%", "over", "budget"],
    ]


def test_all_green_ends_well(stages: Path, tmp_path: Path) -> None:
    (tmp_path / "unit.xml").write_text(GREEN)
    assert report.main([str(stages), str(tmp_path), "12", "60"]) == 0


def test_a_stage_that_broke_before_its_tests_fails_the_run(
    stages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "unit.xml").write_text(GREEN)
    stages.write_text(stages.read_text() + "cluster scenario\t5.0\t60\t143\t1.0\n")
    assert report.main([str(stages), str(tmp_path), "12", "60"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "failed stage: cluster scenario" in lines
    assert lines[-1] == "1 passed, 1 failed, 0 skipped"


def test_no_test_at_all_is_a_failure(stages: Path, tmp_path: Path) -> None:
    assert report.main([str(stages), str(tmp_path), "12", "60"]) == 1

"""What is kept of many runs, and the page about them."""

from collections import Counter
from pathlib import Path

import pytest

from tests.sim import survey
from tests.sim.run import Result
from tests.sim.survey import Range, Survey, Totals, left, numbers, page, ranges, read_record, summed_up


def result(seed: int, invariant: str = "") -> Result:
    kinds, pairs = Counter({"trim": 2, "crash": 1} if seed % 2 else {}), Counter({"trim": 1} if seed % 2 else {})
    detail = f"{invariant}: a | b\nmore" if invariant else ""
    return Result(seed, "", invariant, detail, 7, 12.0, 100, {"acknowledged": 3}, kinds, pairs, [], 1.25)


def test_a_survey_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    for seed in (1, 2, 5):
        Survey(tmp_path).add(result(seed))
    again = Survey(tmp_path)
    assert left(range(1, 8), again.rows()) == [3, 4, 6, 7]
    assert [(row.seed, row.kinds, row.cpu_s) for row in again.rows()][:1] == [(1, {"trim": 2, "crash": 1}, 1.25)]


def test_another_tree_is_another_survey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Survey(tmp_path / "kept").add(result(1))
    monkeypatch.setattr(survey, "ROOT", tmp_path)
    assert Survey(tmp_path / "kept").rows() == []


def test_what_decides_no_run_is_no_other_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (
        ("pylog/__init__.py", "before = 1"),
        ("pylog/log/__init__.py", ""),
        ("pylog/log/file.py", ""),
        ("pylog/late.py", ""),
        ("pylog/console.py", "before = 1"),
        ("tests/sim/faults.py", "from pylog.log import file\nfrom tests.client import Link"),
        ("tests/client.py", "before = 1"),
        ("tests/sim/mutants.py", "before = 1"),
        ("tests/sim/test_a.py", "import pylog.console"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "pylog/log/file.py").write_text("def read():\n    import pylog.late\n")
    monkeypatch.setattr(survey, "ROOT", tmp_path)
    before = survey.digest()
    for name, is_other in (
        ("tests/sim/mutants.py", False),
        ("tests/sim/test_a.py", False),
        ("pylog/console.py", False),
        ("pylog/late.py", True),
        ("tests/client.py", True),
        ("pylog/log/__init__.py", True),
        ("pylog/__init__.py", True),
    ):
        (tmp_path / name).write_text("after = 1")
        now = survey.digest()
        assert (now != before) is is_other, name
        before = now


def test_the_tree_is_what_a_broker_is_made_of() -> None:
    files = {str(path.relative_to(survey.ROOT)) for path in survey._files()}
    assert {"pylog/broker/broker.py", "pylog/log/recovery.py", "pylog/store/embedded.py", "tests/sim/run.py"} <= files
    assert "tests/kafka_client.py" in files
    assert not any(name.startswith(("pylog/console", "pylog/probe", "pylog/ops", "tests/unit")) for name in files)


def test_a_line_that_a_stop_cut_off_is_run_again(tmp_path: Path) -> None:
    kept = Survey(tmp_path)
    kept.add(result(1))
    kept.add(result(2))
    [path] = tmp_path.iterdir()
    path.write_text(path.read_text()[:-20])
    assert left([1, 2], kept.rows()) == [2]
    kept.add(result(3))
    kept.add(result(4))
    assert left([1, 2, 3, 4], kept.rows()) == [2, 3], "it is behind the line that has no end"


def test_no_page_is_written_of_a_few_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(survey, "PAGE_SEEDS", 2)
    kept = Survey(tmp_path / "kept")
    kept.add(result(1))
    assert kept.write_page() is None
    kept.add(result(2))
    assert kept.write_page() == tmp_path / "page.md"
    assert kept.tree in (tmp_path / "page.md").read_text()


def test_the_page_says_what_broke_and_of_which_events_there_are_too_few(tmp_path: Path) -> None:
    kept = Survey(tmp_path)
    for seed in range(1, 61):
        kept.add(result(seed, "logs match" if seed == 4 else ""))
    text = page("0123", "abc", kept.rows())
    assert "| 4 | logs match: a / b |" in text
    assert "| seeds | 1-60 (60) |" in text
    assert "| records acknowledged | 180 |" in text
    assert "| trim | 60 | 50.0 | 30 |" in text
    assert "Short of that: trim." in text


def test_ranges_are_read_as_numbers() -> None:
    assert [numbers(ranges(one)) for one in ([], [3], [1, 2, 3, 7, 9, 10])] == [[], [3], [1, 2, 3, 7, 9, 10]]


def test_numbers_are_told_as_ranges() -> None:
    assert [ranges(one) for one in ([], [3], [1, 2, 3, 7, 9, 10])] == ["", "3", "1-3, 7, 9-10"]


def of_seeds(first: int, last: int, *, broken: int = 0, tree: str = "0123") -> Range:
    totals = Totals()
    for seed in range(first, last + 1):
        totals.add(result(seed, "logs match" if seed == broken else ""))
    return Range.of(totals, tree)


def test_ranges_of_one_tree_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "PAGE_SEEDS", 200)
    path = tmp_path / "record"
    path.write_text(f"{of_seeds(1, 60).line()}\n")
    text, is_enough = summed_up(read_record(path))
    assert not is_enough
    assert "60 seeds (1-60), none broke, 75 s of processor time" in text
    assert [line.strip() for line in text.splitlines()[1:]] == [
        "140 seeds are left of 200",
        "trim: in 50.0 % of the runs, 30 beside a crash",
    ]
    with path.open("a") as file:
        file.write(f"{of_seeds(61, 200).line()}\n")
    text, is_enough = summed_up(read_record(path))
    assert is_enough
    assert "200 seeds (1-200)" in text
    assert text.endswith("nothing is missing")


def test_a_broken_seed_is_something_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "PAGE_SEEDS", 200)
    text, is_enough = summed_up([of_seeds(1, 100), of_seeds(101, 200, broken=150)])
    assert not is_enough
    assert "an invariant broke: seeds 150" in text


def test_ranges_of_two_trees_do_not_add_up() -> None:
    text, _ = summed_up([of_seeds(1, 30), of_seeds(31, 60, tree="4567")])
    assert "30 seeds (1-30)" in text
    assert "30 seeds (31-60)" in text


def test_a_seed_counts_once() -> None:
    with pytest.raises(ValueError, match="seeds 20-30 of tree 0123 are recorded twice"):
        summed_up([of_seeds(1, 30), of_seeds(20, 60)])


@pytest.mark.parametrize("line", ["", "seeds 1-20", "[]", '{"seeds": "1-20"}'])
def test_what_is_no_line_of_a_record_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "record"
    path.write_text(f"{of_seeds(1, 2).line()}\n{line}\n")
    with pytest.raises(ValueError, match="line 2: not a range of seeds"):
        read_record(path)


def test_the_page_of_the_faults_names_those_that_were_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MUTANTS_PAGE", tmp_path / "page.md")
    rows = [("one", "12", "logs match"), ("two", "tell-of-two", "progress"), ("three", "", "")]
    text = survey.mutants_page(rows, 1, 1000).read_text()
    assert "3 faults, of which 1 were found neither" in text
    assert text.splitlines()[-3:] == [
        "| one | seed 12 | logs match |",
        "| two | tell-of-two | progress |",
        "| three |  |  |",
    ]

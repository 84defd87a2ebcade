"""The faults that `python -m tests.chaos --planted` puts into brokers are faults of the code as it is today."""

from collections import Counter
from pathlib import Path

import pytest

from tests.chaos import checker
from tests.chaos import hunt as hunting
from tests.chaos.hunt import VIOLATIONS, Found, chosen, hunt, table
from tests.chaos.planted import PLANTED, Planted, mutants


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_fault_changes_the_code_and_names_what_the_checker_must_find(planted: Planted) -> None:
    for mutant in planted.mutants:
        mutant.applied()
    assert planted.kinds
    assert planted.kinds <= set(checker.KINDS)


def test_a_fault_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="no mutant 'no-such-fault'"):
        mutants("no-such-fault")
    with pytest.raises(ValueError, match="no planted fault 'no-such-fault'"):
        list(chosen(["no-such-fault"]))


def test_the_page_tells_how_a_fault_was_found_and_that_one_was_not() -> None:
    first, second = PLANTED[:2]
    found = [
        Found(first, 2, Counter({checker.LOST: 5, checker.UNSEEN: 7}), True, 130.4),
        Found(second, 10, Counter(), False, 900.0),
    ]
    lines = table(found, 1.0).splitlines()
    assert lines[-2] == f"| {first.name} | {first.what} | 2 | unseen (7), lost (5) | 130 |"
    assert lines[-1] == f"| {second.name} | {second.what} | not found |  | 900 |"


def test_without_names_all_planted_faults_are_tried() -> None:
    assert list(chosen([])) == list(PLANTED)


def test_a_run_with_something_that_the_fault_does_not_explain_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = next(one for one in PLANTED if one.kinds == {checker.RETURNED})
    told = {1: [], 2: [checker.DOUBLED], 3: [checker.RETURNED, checker.DOUBLED], 4: [checker.RETURNED]}

    def run(planted: Planted, seed: int, options: object) -> Path:
        directory = tmp_path / str(seed)
        directory.mkdir()
        (directory / VIOLATIONS).write_text("".join(f"{kind}\twhere\twhat\n" for kind in told[seed]))
        return directory

    monkeypatch.setattr(hunting, "_run", run)
    found = hunt(planted, [])
    assert (found.runs, found.is_found, found.kept) == (3, True, [tmp_path / "1", tmp_path / "2", tmp_path / "3"])
    told[1] = told[4]
    for directory in tmp_path.iterdir():
        (directory / VIOLATIONS).unlink()
        directory.rmdir()
    assert (hunt(planted, []).kept, list(tmp_path.iterdir())) == ([], [])

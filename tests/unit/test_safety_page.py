"""docs/design/safety.md: every row names tests, stories and mutants that exist."""

import re

import pytest

from tests.sim.mutants import MUTANTS
from tests.sim.stories import STORIES
from tests.unit.test_features import ROOT, fault_of

_PAGE = ROOT / "docs/design/safety.md"
_ROWS = re.findall(r"^\| ([\w ]+) \|.*\| ([^|]+) \|$", _PAGE.read_text(), re.MULTILINE)
_SHOWN = [(name, shown) for name, shown in _ROWS if name != "id"]
_MUTANTS = {mutant.name: mutant.story for mutant in MUTANTS}


def test_every_fault_and_clause_has_its_row() -> None:
    names = [name for name, _ in _SHOWN]
    assert names[:10] == [str(number) for number in range(1, 11)]
    assert len(names) == len(set(names)) >= 25


@pytest.mark.parametrize(("name", "shown"), _SHOWN, ids=[name for name, _ in _SHOWN])
def test_what_shows_a_row_exists(name: str, shown: str) -> None:
    tests = re.findall(r"`(tests/[^`]+)`", shown)
    stories = re.findall(r"story `([^`]+)`", shown)
    mutants = re.findall(r"mutant `([^`]+)`", shown)
    assert tests or stories, name
    assert not [fault for test in tests if (fault := fault_of(test, ROOT))]
    assert not [story for story in stories if story not in STORIES]
    assert not [mutant for mutant in mutants if mutant not in _MUTANTS]
    # What a story of the row is told for is found by a story that the row names.
    assert not [mutant for mutant in mutants if _MUTANTS[mutant] and _MUTANTS[mutant] not in stories], name

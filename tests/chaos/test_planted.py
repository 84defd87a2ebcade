"""The faults that `python -m tests.chaos --planted` puts into brokers are faults of the code as it is today."""

import pytest

from tests.chaos import checker
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

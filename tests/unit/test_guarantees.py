"""docs/guarantees.md and docs/paper-api.md: every statement names a test that exists, or says that it is not shown."""

import re

import pytest

from tests.unit.test_features import ROOT, fault_of

_NAMED = re.compile(r"`(tests/[^`]+)`")


@pytest.mark.parametrize(("page", "at_least"), [("docs/guarantees.md", 21), ("docs/paper-api.md", 11)])
def test_every_statement_is_shown_or_says_that_it_is_not(page: str, at_least: int) -> None:
    statements = re.findall(r"^- (.+?)(?=\n(?:- |\n|\Z)|\Z)", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert len(statements) >= at_least
    for statement in statements:
        names = _NAMED.findall(statement)
        assert names or "(not shown" in statement, statement
        faults = [fault for name in names if (fault := fault_of(name, ROOT))]
        assert not faults, faults

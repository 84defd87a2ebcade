"""docs/guarantees.md: every statement names a test that exists, or says that it is not shown."""

import re

from tests.unit.test_features import ROOT, fault_of

_NAMED = re.compile(r"`(tests/[^`]+)`")


def test_every_statement_is_shown_or_says_that_it_is_not() -> None:
    page = (ROOT / "docs/guarantees.md").read_text()
    statements = re.findall(r"^- (.+?)(?=\n(?:- |\n|\Z)|\Z)", page, re.MULTILINE | re.DOTALL)
    assert len(statements) > 20
    for statement in statements:
        names = _NAMED.findall(statement)
        assert names or "(not shown" in statement, statement
        faults = [fault for name in names if (fault := fault_of(name, ROOT))]
        assert not faults, faults

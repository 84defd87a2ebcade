"""Say whether the failures of a stage are worth a second try; exit code 0 if so.

    second_try.py REPORT_XML

Tests with servers, other people's clients and a machine that others use too may fail for a reason that no test of ours
can rule out.  A few of those are tried once more, by themselves; the end of `make test` names each with its message,
for whoever mends it.  Many at once are no accident, and records that were lost, doubled or out of order never are.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from local.test.report import broken_in, cases

MOST_FILES = 3
"""Files with failures; a server that does not start takes all tests of its file along."""

NEVER = re.compile(r"\b(lost|doubled|reordered|invented|corrupt\w*|checksum)\b", re.IGNORECASE)
"""What a failure says that no second try makes good."""


def is_worth_it(report: Path) -> bool:
    """Return whether there are failures, in few files and none of them about what became of records."""
    broken = [(case.get("classname"), message) for case in cases(report) if (message := broken_in(case)) is not None]
    files = {file for file, _ in broken}
    return 0 < len(files) <= MOST_FILES and not any(NEVER.search(message) for _, message in broken)


if __name__ == "__main__":
    sys.exit(0 if is_worth_it(Path(sys.argv[1])) else 1)

"""Print the end of `make test`: stages against their budgets, reasons of skips, and as the last line the sums.

    report.py STAGES_TSV RESULTS_DIR [FAILED_STAGE...]

Exit code 1 when a stage or a test failed, or when a stage left no report of any test.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

AGAIN = "-again"
"""Ends the name of a report of second tries."""

_SHOWN = 200
"""Characters of each end of a failure's message."""


@dataclass(slots=True)
class Sums:
    """What all reports say together."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)
    """Failures of tests that passed when they were tried again; these count as passed."""


def read_reports(directory: Path) -> Sums:
    """Add up every JUnit report of a directory, those of second tries (`second_try.py`) with what they are about."""
    sums = Sums()
    for report in sorted(directory.glob("*.xml")):
        if report.stem.endswith(AGAIN):
            continue
        again = report.with_name(f"{report.stem}{AGAIN}.xml")
        mended = {_test_of(case) for case in cases(again) if _has_passed(case)} if again.exists() else set()
        for case in cases(report):
            if (skip := case.find("skipped")) is not None:
                sums.skipped += 1
                sums.reasons[(skip.get("message") or "no reason given").strip()] += 1
                continue
            message = broken_in(case)
            is_failed = message is not None and _test_of(case) not in mended
            sums.failed += is_failed
            sums.passed += not is_failed
            if message is not None:
                told = sums.failures if is_failed else sums.unsteady
                told.append(f"{report.stem}: {_test_of(case)}: {shortened(message)}")
    return sums


def cases(report: Path) -> Iterator[ET.Element]:
    """Yield the tests of a JUnit report."""
    return ET.parse(report).getroot().iter("testcase")


def broken_in(case: ET.Element) -> str | None:
    """Return why a test failed or broke; None if it did not."""
    broken = [*case.iter("failure"), *case.iter("error")]
    return (broken[0].get("message") or "no message") if broken else None


def _has_passed(case: ET.Element) -> bool:
    return broken_in(case) is None and case.find("skipped") is None


def _test_of(case: ET.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def shortened(message: str) -> str:
    """Return a message on one line: its beginning says what was wanted, its end often what was found."""
    line = " ".join(message.split())
    return line if len(line) <= 2 * _SHOWN else f"{line[:_SHOWN]} ... {line[-_SHOWN:]}"


def budget_table(stages: str) -> str:
    """Return the stages as aligned lines; one over its budget says so."""
    lines = [f"{'stage':<22} {'seconds':>8} {'budget':>7}"]
    for line in stages.splitlines():
        name, seconds, budget, status = line.split("\t")
        remarks = ["over budget"] if float(seconds) > float(budget) else []
        remarks += [f"failed ({status})"] if status != "0" else []
        lines.append(f"{name:<22} {seconds:>8} {budget:>7}  {', '.join(remarks)}".rstrip())
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the report."""
    stages, results, *failed_stages = arguments
    sums = read_reports(Path(results))
    print(f"\n{budget_table(Path(stages).read_text())}\n")
    for name in sums.failures:
        print(f"failed: {name}")
    for name in sums.unsteady:
        print(f"passed only when tried again: {name}")
    for stage in failed_stages:
        print(f"failed stage: {stage}")
    for reason, count in sums.reasons.most_common():
        print(f"skipped {count}: {reason}")
    # A stage that broke before its tests began must not read as zero failures.
    failed = sums.failed or len(failed_stages)
    print(f"{sums.passed} passed, {failed} failed, {sums.skipped} skipped")
    return 1 if failed or failed_stages or not sums.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

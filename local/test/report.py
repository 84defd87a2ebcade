"""Print the end of `make test`: stages against their budgets, reasons of skips, and as the last line the sums.

    python -m local.test.report STAGES_TSV RESULTS_DIR SECONDS BUDGET_SECONDS

SECONDS is how long the whole run took, BUDGET_SECONDS what it may take. Each line of STAGES_TSV is a stage: its name,
its seconds, its budget, its exit code, and the seconds that processors worked for it, with tabs between them.

Exit code 1 when a stage or a test failed, or when a stage left no report of any test.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
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


@dataclass(frozen=True, slots=True)
class Stage:
    """How a stage ended; seconds of the clock, and `cpu_s` seconds that processors worked for it."""

    name: str
    seconds: float
    budget_s: float
    status: int
    cpu_s: float

    @property
    def waiting(self) -> float:
        """Share of its time in which it computed nothing; 0 where several processors worked for it all the time."""
        return max(0.0, 1 - self.cpu_s / self.seconds) if self.seconds else 0.0


def read_stages(text: str) -> list[Stage]:
    """Return the stages of a STAGES_TSV, those that ended first at the top."""
    rows = (line.split("\t") for line in text.splitlines())
    return [Stage(name, float(s), float(budget), int(status), float(cpu)) for name, s, budget, status, cpu in rows]


def budget_table(stages: Sequence[Stage], seconds: float, budget_s: float) -> str:
    """Return the stages and the whole run as aligned lines; what is over its budget says so."""
    whole = Stage("all, side by side", seconds, budget_s, 0, sum(stage.cpu_s for stage in stages))
    lines = [f"{'stage':<22} {'seconds':>8} {'budget':>7} {'cpu':>8} {'waiting':>8}"]
    for stage in (*stages, whole):
        remarks = ["over budget"] if stage.seconds > stage.budget_s else []
        remarks += [f"failed ({stage.status})"] if stage.status else []
        numbers = f"{stage.seconds:>8.1f} {stage.budget_s:>7.0f} {stage.cpu_s:>8.1f} {stage.waiting:>8.0%}"
        lines.append(f"{stage.name:<22} {numbers}  {', '.join(remarks)}".rstrip())
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the report."""
    stages_tsv, results, seconds, budget_s = arguments
    stages = read_stages(Path(stages_tsv).read_text())
    failed_stages = [stage.name for stage in stages if stage.status]
    sums = read_reports(Path(results))
    print(f"\n{budget_table(stages, float(seconds), float(budget_s))}\n")
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

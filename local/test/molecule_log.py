"""Decide from its log and its test report whether a green Molecule run tested anything.

    python -m local.test.molecule_log LOG JUNIT_XML MIN_TESTS [EMPTY_PLAY...]

Molecule ends with exit code 0 when a play matched no host, when a playbook is missing, when no test was collected,
and when idempotence found no recap to read. Each of these is an error here. EMPTY_PLAYS names, a line each, the plays
for which the scenario has no hosts on purpose.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Collection
from pathlib import Path

WANTED_STEPS = ("create", "prepare", "converge", "idempotence", "verify")
DEPLOYING_STEPS = ("prepare", "check", "converge", "idempotence")

# Before `create` the inventory is rightly empty; from then on each of these means that a play did nothing.
EMPTY_WORDS = (
    "no hosts matched",
    "provided hosts list is empty",
    "Could not match supplied host pattern",
    "No inventory was parsed",
)
ANYWHERE_WORDS = (
    "Missing playbook",
    "Skipping, no tests found",
    "Skipping, verifier is disabled",
    "Skipping, instances already",
)

_STEP = re.compile(r"\[[^\]]* > (\w+)\] Executing$")
_RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)
_EMPTY_PLAY = re.compile(r"^PLAY \[(.*)\] \*+\nskipping: no hosts matched$", re.MULTILINE)
_TOTAL = re.compile(r"\)\s+(\d+):(\d\d):(\d\d)\.\d+ \*+$", re.MULTILINE)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def sections(log: str) -> dict[str, str]:
    """Cut a log into its steps; a step that ran twice has both parts."""
    steps: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in _ANSI.sub("", log).splitlines():
        if step := _STEP.search(line):
            lines = steps.setdefault(step[1], [])
        lines.append(line)
    return {step: "\n".join(text) for step, text in steps.items()}


def recap(text: str) -> dict[str, int]:
    """Return how many tasks changed on each host, the control machine left out."""
    return {host: int(changed) for host, _, changed, _, _ in _RECAP.findall(text) if host != "localhost"}


def seconds(text: str) -> int:
    """Return how long a step's playbook took, as its last task says; 0 where none does."""
    found = _TOTAL.findall(text)
    hours, minutes, rest = map(int, found[-1]) if found else (0, 0, 0)
    return hours * 3600 + minutes * 60 + rest


def conclusion(log: str, tests: int) -> str:
    """Return one line that says what a run that has no problem tested."""
    steps = sections(log)
    first_s, again_s = seconds(steps["converge"]), seconds(steps["idempotence"])
    took = f", in {again_s} s after {first_s} s" if first_s else ""
    hosts = len(recap(steps["idempotence"]))
    return f"tested: {tests} tests on {hosts} host{'s' * (hosts != 1)}, the second run changed nothing{took}"


def problems(log: str, tests: int, min_tests: int, empty_plays: Collection[str] = ()) -> list[str]:
    """Return every reason not to believe this run."""
    steps = sections(log)
    found = [f"the step {step} did not run" for step in WANTED_STEPS if step not in steps]
    found += [f"the log says {words!r}" for words in ANYWHERE_WORDS if words.lower() in log.lower()]
    for step in DEPLOYING_STEPS:
        text = _EMPTY_PLAY.sub(lambda play: "" if play[1] in empty_plays else play[0], steps.get(step, ""))
        said = [words for words in EMPTY_WORDS if words.lower() in text.lower()]
        found += [f"{step} says {words!r}: a play did nothing" for words in said]
    converged, again = recap(steps.get("converge", "")), recap(steps.get("idempotence", ""))
    if not any(converged.values()):
        found.append("converge changed nothing on any host: it deployed nothing")
    if not again:
        found.append("idempotence printed no recap: nothing was compared")
    elif set(again) != set(converged):
        found.append(f"idempotence ran on {sorted(again)}, converge on {sorted(converged)}")
    elif changed := {host: count for host, count in again.items() if count}:
        found.append(f"the second run changed {changed}")
    if tests < min_tests:
        found.append(f"verify ran {tests} tests, the scenario wants at least {min_tests}")
    return found


def count_tests(report: Path) -> int:
    """Return how many tests of a JUnit report ran, skipped ones left out."""
    if not report.is_file() or report.stat().st_size == 0:
        return 0
    suites = ET.parse(report).getroot().iter("testsuite")
    return sum(int(suite.get("tests", 0)) - int(suite.get("skipped", 0)) for suite in suites)


def main(arguments: list[str]) -> int:
    """Print what is wrong, or one line that says what was tested."""
    log_path, report_path, min_tests, *empty_plays = arguments
    tests = count_tests(Path(report_path))
    log = Path(log_path).read_text(errors="replace")
    found = problems(log, tests, int(min_tests), empty_plays)
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    if not found:
        print(conclusion(log, tests))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

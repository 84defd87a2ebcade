"""Print the page of a Molecule scenario's last full run, which stays in docs/results.

    molecule_page.py SCENARIO COMMIT DATE SECONDS MACHINE TESTED NUMBERS.json JUNIT_XML ABOUT.md

NUMBERS.json is what the scenario's tests kept, if they kept anything: lists of what was done become tables, with a
line for each client that produced meanwhile; what is no such list stands below as it is. Then comes how long each test
took, and at the end ABOUT.md, if the scenario has one: what the numbers are numbers of.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

CLIENT_COLUMNS = ("client", "mb_per_s", "sent", "acked", "failed", "lost", "duplicates", "longest_pause_ms", "p99_ms")
SCALARS = (str, int, float)


def rows_of(numbers: Mapping[str, Any]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Yield the lists of what was done, each with its name; a scenario that did one thing has one without."""
    if "clients" in numbers:
        yield "", [numbers]
    for name, value in numbers.items():
        if name != "clients" and isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            yield name, value


def table(deeds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table with a line for each deed, or for each of its clients."""
    columns = list(dict.fromkeys(key for deed in deeds for key, value in deed.items() if isinstance(value, SCALARS)))
    clients = [client for deed in deeds for client in deed.get("clients", ())]
    of_clients = [key for key in CLIENT_COLUMNS if any(key in client for client in clients)]
    lines = [_line([*columns, *of_clients]), "|" + "---|" * (len(columns) + len(of_clients))]
    for deed in deeds:
        left = [deed.get(key, "") for key in columns]
        for client in deed.get("clients") or [{}]:
            lines.append(_line([*left, *(client.get(key, "") for key in of_clients)]))
            left = [""] * len(columns)
    return lines


def tests(report: ET.Element) -> list[str]:
    """Return a table with a line for each test of a JUnit report, in the order in which they ran."""
    lines = ["| test | seconds |", "|---|--:|"]
    for case in report.iter("testcase"):
        skipped = case.find("skipped")
        took = f"{float(case.get('time', 0)):.0f}" if skipped is None else f"skipped: {skipped.get('message', '')}"
        lines.append(_line([case.get("name", "").removeprefix("test_").replace("_", " "), took]))
    return lines


def page(
    scenario: str, facts: Sequence[str], numbers: Mapping[str, Any], report: ET.Element | None = None, about: str = ""
) -> str:
    """Return the page as Markdown.

    Args:
        scenario: its name.
        facts: commit, date, seconds, machine and what was tested.
        numbers: what the tests kept.
        report: the JUnit report of its tests.
        about: what stands at the end of the page of each run.
    """
    lines = [f"# Scenario {scenario}", "", _line(["commit", "date", "seconds", "machine", "tested"]), "|" + "---|" * 5]
    lines.append(_line(facts))
    tables = dict(rows_of(numbers))
    for name, deeds in tables.items():
        lines += ["", *([f"## {name.replace('_', ' ').capitalize()}", ""] if name else []), *table(deeds)]
    left = {name: value for name, value in numbers.items() if name not in tables and "" not in tables}
    if left:
        lines += ["", *("    " + line for line in json.dumps(left, indent=2).splitlines())]
    if report is not None:
        lines += ["", "## Tests", "", *tests(report)]
    if about:
        lines += ["", "## What this shows", "", about.rstrip("\n")]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"


if __name__ == "__main__":
    name, *told, kept, junit_xml, about_md = sys.argv[1:]
    figures, text = Path(kept), Path(about_md)
    print(
        page(
            name,
            told,
            json.loads(figures.read_text()) if figures.exists() else {},
            ET.parse(junit_xml).getroot(),
            text.read_text() if text.exists() else "",
        ),
        end="",
    )

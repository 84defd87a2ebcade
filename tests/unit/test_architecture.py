"""docs/architecture.md: every file it names is there, every rule that is cited stands in it, and each has its tests."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.test_features import ROOT, fault_of

PAGE = ROOT / "docs" / "architecture.md"
_RULE = re.compile(r"^### (\d+)\. .+\n((?:(?!^#).*\n)+)", re.MULTILINE)
_TEST = re.compile(r"`(tests/[^`]+::[^`]+)`")
_FILE = re.compile(r"`((?:pylog|tests)/[^`:…]+)`")
_CITED = re.compile(r"\b[Rr]ules? (\d+)((?:(?:, | and | or | to )\d+)*)|\btest_rule_(\d+)_")
_TEXT = frozenset({".py", ".md", ".j2", ".yml", ".sh", ".toml", ".c"})

RULES = {int(number): text for number, text in _RULE.findall(PAGE.read_text())}


def cited_in(text: str) -> set[int]:
    return {int(number) for found in _CITED.finditer(text) for number in re.findall(r"\d+", found[0])}


def test_rules_are_numbered_without_a_gap() -> None:
    assert list(RULES) == list(range(1, len(RULES) + 1))
    assert len(RULES) >= 18


@pytest.mark.parametrize("number", RULES)
def test_each_rule_names_tests_that_exist(number: int) -> None:
    names = _TEST.findall(RULES[number])
    assert names, "a rule without a test is a wish"
    assert not [fault for name in names if (fault := fault_of(name, ROOT))]


def test_every_file_that_the_page_names_exists() -> None:
    names = set(_FILE.findall(PAGE.read_text()))
    assert len(names) > 50
    assert not [name for name in sorted(names) if not (ROOT / name).exists()]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("cut first (rule 7).", {7}),
        ("Source: design rules 3 and 7; the same", {3, 7}),
        ("Rule 8 with a slow disk", {8}),
        ("def test_rule_15_formats() -> None:", {15}),
        ("rules 1, 2 or 30", {1, 2, 30}),
        ("a ruler 5 cm long, the rules, 12 of them", set()),
    ],
)
def test_a_citation_is_seen(text: str, numbers: set[int]) -> None:
    assert cited_in(text) == numbers


def test_every_rule_that_is_cited_is_on_the_page() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    cited: dict[int, list[str]] = {}
    for name in listed.splitlines():
        path = ROOT / name
        if (
            path.suffix in {".py", ".md", ".j2", ".yml", ".sh", ".toml", ".c"}
            and path.is_file()
            and path != Path(__file__)
        ):
            for number in cited_in(path.read_text()):
                cited.setdefault(number, []).append(name)
    assert len(cited) >= 12, "citations are not found any more"
    assert {number: names for number, names in cited.items() if number not in RULES} == {}

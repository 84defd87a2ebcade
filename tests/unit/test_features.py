"""docs/features.md and docs/traps.md speak of every row that was asked for, and every test they name exists."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FAULT_CLASSES = (
    "CVE-2026-35554",
    "CVE-2026-33558",
    "CVE-2025-27819",
    "CVE-2025-27817",
    "CVE-2024-56128",
    "CVE-2024-31141",
    "CVE-2024-27309",
    "CVE-2023-34455",
    "CVE-2022-34917",
    "CVE-2021-38153",
    "CVE-2019-12399",
    "CVE-2018-17196",
    "CVE-2018-1288",
    "CVE-2017-12610",
    "CVE-2023-52251",
)
EXPECTED = [*(f"F{n}" for n in range(1, 128)), *FAULT_CLASSES, *(f"T{n}" for n in range(1, 39))]

_ROW = re.compile(r"^\| *((?:F|T|trap |fault |limit )\d+|CVE-[\d-]+) *\|(.*)\|$", re.MULTILINE)
_NAMED = re.compile(r"`((?:tests|bench|molecule)/[^`]+)`")
_NOT_BUILT = re.compile(r"not built: \S+")


def defined_tests(path: Path) -> dict[str, bool]:
    """Return the tests of a file, a method as ``Class::method``, and whether each is parametrised."""
    tree = ast.parse(path.read_text())
    scopes: list[tuple[str, list[ast.stmt]]] = [("", tree.body)]
    scopes += [(f"{node.name}::", node.body) for node in tree.body if isinstance(node, ast.ClassDef)]
    return {
        prefix + node.name: any("parametrize" in ast.unparse(mark) for mark in node.decorator_list)
        for prefix, body in scopes
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def fault_of(name: str, root: Path) -> str | None:
    """Return what is wrong with a name in the last column; None if it points at something."""
    file, _, test = name.partition("::")
    path = root / file
    if not path.exists():
        return f"{file} does not exist"
    if not test:
        return None if file.startswith(("bench/", "molecule/")) else f"{name} names no test of the file"
    function, bracket, _ = test.partition("[")
    tests = defined_tests(path)
    if function not in tests:
        return f"{file} has no {function}"
    if bracket and not tests[function]:
        return f"{function} takes no parameters"
    return None


def faults(text: str, expected: list[str], root: Path) -> list[str]:
    """Return everything that is wrong with a page of rows."""
    rows = [(found[1], [cell.strip() for cell in found[2].split("|")]) for found in _ROW.finditer(text)]
    counts = Counter(row_id for row_id, _ in rows)
    found = [f"{row_id} is missing" for row_id in expected if not counts[row_id]]
    found += [f"{row_id} is there {count} times" for row_id, count in counts.items() if count > 1]
    found += [f"{row_id} was never asked for" for row_id in counts if row_id not in expected]
    for row_id, cells in rows:
        if len(cells) != 3 or not all(cells):
            found.append(f"{row_id} has {len(cells)} cells after its id, or an empty one")
            continue
        names = _NAMED.findall(cells[2])
        if not names and not _NOT_BUILT.search(cells[2]):
            found.append(f"{row_id} names neither a test nor a bench, nor why it is not built")
        found += [f"{row_id}: {fault}" for name in names if (fault := fault_of(name, root))]
    return found


def test_the_page_is_complete_and_its_tests_exist() -> None:
    assert faults((ROOT / "docs/features.md").read_text(), EXPECTED, ROOT) == []


def test_the_page_of_traps_is_complete_and_its_tests_exist() -> None:
    assert faults((ROOT / "docs/traps.md").read_text(), [f"trap {n}" for n in range(1, 59)], ROOT) == []


def test_the_page_of_the_pipeline_is_complete_and_its_tests_exist() -> None:
    text = (ROOT / "docs/design/pipeline.md").read_text()
    asked_for = [*(f"fault {n}" for n in range(1, 22)), *(f"limit {n}" for n in range(1, 14))]
    assert faults(text, asked_for, ROOT) == []
    _, _, rest = text.partition("## Bad input, kills")
    assert [fault for name in _NAMED.findall(rest) if (fault := fault_of(name, ROOT))] == []


@pytest.mark.parametrize(
    ("last_cell", "fault"),
    [
        ("`tests/test_a.py::test_there`", None),
        ("`tests/test_a.py::test_there`, not built: the rest", None),
        ("`tests/test_a.py::test_with[zstd-3]`", None),
        ("`tests/test_a.py::TestIt::test_method`", None),
        ("`bench/run.sh`", None),
        ("not built: later", None),
        ("`tests/test_a.py::test_gone`", "F1: tests/test_a.py has no test_gone"),
        ("`tests/test_a.py::helper`", "F1: tests/test_a.py has no helper"),
        ("`tests/test_a.py::test_there[zstd]`", "F1: test_there takes no parameters"),
        ("`tests/test_a.py`", "F1: tests/test_a.py names no test of the file"),
        ("`tests/test_b.py::test_there`", "F1: tests/test_b.py does not exist"),
        ("`bench/gone.sh`", "F1: bench/gone.sh does not exist"),
        ("not built", "F1 names neither a test nor a bench, nor why it is not built"),
        ("not built: ", "F1 names neither a test nor a bench, nor why it is not built"),
        ("by looking", "F1 names neither a test nor a bench, nor why it is not built"),
        ("", "F1 has 3 cells after its id, or an empty one"),
    ],
)
def test_what_a_row_shows_is_checked(tmp_path: Path, last_cell: str, fault: str | None) -> None:
    for folder in ("tests", "bench"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bench/run.sh").touch()
    (tmp_path / "tests/test_a.py").write_text(
        "def test_there(): pass\n"
        "def helper(): pass\n"
        "@pytest.mark.parametrize('codec', [])\nasync def test_with(codec): pass\n"
        "class TestIt:\n    def test_method(self): pass\n"
    )
    page = f"| id | a | b | c |\n|---|---|---|---|\n| F1 | what | how | {last_cell} |\n"
    assert faults(page, ["F1"], tmp_path) == ([fault] if fault else [])


def test_missing_doubled_and_unknown_rows_are_faults(tmp_path: Path) -> None:
    row = "| {} | what | how | not built: later |\n"
    page = "".join(row.format(row_id) for row_id in ("F1", "F1", "CVE-1-2", "T9"))
    assert faults(page, ["F1", "F2", "CVE-1-2"], tmp_path) == [
        "F2 is missing",
        "F1 is there 2 times",
        "T9 was never asked for",
    ]


def test_the_list_has_every_row_once() -> None:
    assert len(EXPECTED) == len(set(EXPECTED)) == 127 + 15 + 38

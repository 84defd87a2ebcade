"""Imports point left only: the layout of the package is its architecture."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent / "pylog"

# Neighbours on one level do not know each other; a level may import every level before it.
LEVELS = (
    {"model", "errors", "faults", "metrics"},
    {"wire", "delayed"},
    {"group", "replica", "cluster", "log"},
    {"net", "store"},
    {"broker"},
)
CLIENT_LEVELS = (
    *LEVELS[:3],
    {"store", "daemon"},
    {"client"},
    {"mirror", "audit", "registry", "ship", "ingest"},
    {"ops"},
)
ABOVE_EVERYTHING = {"cli", "sim", "testing", "__main__", "__init__", "config"}


def allowed_for(part: str) -> set[str]:
    for levels in (LEVELS, CLIENT_LEVELS):
        before: set[str] = set()
        for level in levels:
            if part in level:
                # The first level shares its nouns: an exception may name a topic.
                return before | {part} | (level if level is LEVELS[0] else set())
            before |= level
    raise AssertionError(f"pylog/{part} has no place in the layout; give it one here and in docs/design")


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [name.name for name in node.names]
            found |= {f"pylog.{name}" for name in names} if node.module == "pylog" else {str(node.module)}
    return {name.split(".")[1] for name in found if name.startswith("pylog.")}


def test_imports_point_left_only() -> None:
    faults = []
    for path in sorted(ROOT.rglob("*.py")):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part in ABOVE_EVERYTHING:
            continue
        wrong = imports_of(path) - allowed_for(part) - {"__version__"}
        faults += [f"{path.relative_to(ROOT)} imports pylog.{name}" for name in sorted(wrong)]
    assert not faults, "\n".join(faults)


def test_there_is_no_drawer_for_odds_and_ends() -> None:
    drawers = {"utils.py", "common.py", "helpers.py", "util.py", "misc.py"}
    assert not [path for path in ROOT.rglob("*.py") if path.name in drawers]

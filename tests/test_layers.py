"""Imports point left only: the layout of the package is its architecture."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "pylog"

# Neighbours on one level do not know each other; a level may import every level before it.
LEVELS = (
    {"model", "errors", "faults", "metrics", "runbooks"},
    {"wire", "delayed", "process_metrics", "security", "systemd", "token_bucket"},
    {"group", "replica", "cluster", "log", "transaction"},
    {"net", "store"},
    {"broker"},
)
CLIENT_LEVELS = (
    *LEVELS[:3],
    {"store", "daemon"},
    {"client"},
    {"audit"},
    {"connect", "mirror", "registry", "ship", "ingest"},
    {"ops"},
    {"probe"},
    {"console"},
)
# The same inside a part: files and folders of one level do not know each other, a folder's files do.
ROOMS: dict[str, tuple[set[str], ...]] = {
    "client": (
        {"security"},
        {"avro_bounds", "connection", "message", "partitioner", "raw", "web"},
        {"diagnosis"},
        {"admin", "person"},
        {"avro", "consumer", "producer"},
        {"commits", "paper"},
        {"rows"},
    ),
    "broker": (
        {"clock", "connection_log", "logs", "quotas", "settings", "tasks", "timer"},
        {"admin", "listener_settings", "token_keys"},
        {
            "client_counts",
            "config",
            "error_counts",
            "job_times",
            "latency",
            "lifecycle",
            "places",
            "reloads",
            "retention_clock",
            "watchdog",
        },
        {"decision_log", "flusher", "large"},
        {"denials"},
        {"authorization", "handler"},
        {"data", "listeners"},
        {"shards"},
        {"control", "groups", "maintenance"},
        {"transactions"},
        {"adoption", "apis", "status"},
        {"requests"},
        {"login"},
        {"security"},
        {"broker"},
        {"process"},
    ),
    "broker/groups": (
        {"rebalances", "topic"},
        {"offsets"},
        {"shard"},
        {"coordinator"},
        {"handlers"},
    ),
    "broker/shards": ({"loading", "log", "topic"},),
    "broker/transactions": (
        {"ends", "shard"},
        {"coordinator", "markers"},
        {"verifying"},
        {"handlers", "peers", "tools"},
    ),
    "broker/control": (
        {"acl_feed", "cluster", "controller", "images", "registration"},
        {"agent", "mutations"},
        {"api"},
        {
            "acls",
            "client_quotas",
            "configs",
            "elections",
            "formats",
            "metadata",
            "producer_ids",
            "reassignments",
            "topics",
            "users",
        },
        {"link"},
        {"membership"},
    ),
    "broker/data": (
        {"peer_keys", "sessions"},
        {"partitions"},
        {"acks", "feeds", "held_back", "partition_counts", "progress", "throttles", "topic_bytes"},
        {"reading", "waiting"},
        {"fetch", "produce"},
        {"handlers"},
        {"peers"},
        {"replication"},
        {"path"},
    ),
}
ABOVE_EVERYTHING = {"cli", "testing", "__main__", "__init__", "config"}


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
    """Return the parts of pylog that a file imports, wherever in the file."""
    names = {name for node in ast.walk(ast.parse(path.read_text())) for name in imported_by(node, path)}
    return {name.split(".")[1] for name in names if name.startswith("pylog.")}


def rooms_of(part: str, path: Path) -> set[str]:
    """Return the files and folders of *part* that one of its files imports, wherever in the file."""
    names = {name for node in ast.walk(ast.parse(path.read_text())) for name in imported_by(node, path)}
    package = f"pylog.{part.replace('/', '.')}."
    return {name.removeprefix(package).split(".")[0] for name in names if name.startswith(package)}


def imported_by(node: ast.AST, path: Path) -> Iterator[str]:
    """Yield what a statement may import: `from a import b` is `a` and, if that is a module, `a.b`."""
    if isinstance(node, ast.Import):
        yield from (name.name for name in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{path}: relative import"
        yield from (f"{node.module}.{name.name}" for name in node.names)


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def at_module_level(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement outside functions, those under `if TYPE_CHECKING` included."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for child in ast.iter_child_nodes(node):
            yield from at_module_level(child)


def import_graph(paths: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return which modules each module imports at module level."""
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        names = [name for node in at_module_level(ast.parse(path.read_text())) for name in imported_by(node, path)]
        graph[module] = {name if name in paths else name.rpartition(".")[0] for name in names} & set(paths) - {module}
    return graph


def test_imports_point_left_only() -> None:
    faults = []
    for path in sorted(ROOT.rglob("*.py")):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part in ABOVE_EVERYTHING:
            continue
        wrong = imports_of(path) - allowed_for(part) - {"__version__"}
        faults += [f"{path.relative_to(ROOT)} imports pylog.{name}" for name in sorted(wrong)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("part", ROOMS)
def test_a_part_s_rooms_import_left_only(part: str) -> None:
    faults = []
    for path in sorted((ROOT / part).rglob("*.py")):
        room = path.relative_to(ROOT / part).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        places = [number for number, level in enumerate(ROOMS[part]) if room in level]
        assert places, f"pylog/{part}/{room} has no place in the layout; give it one here"
        wrong = rooms_of(part, path) - {room}.union(*ROOMS[part][: places[0]])
        faults += [f"{path.relative_to(ROOT)} imports pylog.{part}.{name}" for name in sorted(wrong)]
    assert not faults, "\n".join(faults)


def test_there_is_no_drawer_for_odds_and_ends() -> None:
    drawers = {"utils.py", "common.py", "helpers.py", "util.py", "misc.py"}
    assert not [path for path in ROOT.rglob("*.py") if path.name in drawers]


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = import_graph({module_of(path): path for path in sorted(ROOT.rglob("*.py"))})
    assert len(graph) > 100
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError("circle of imports: " + " <- ".join(error.args[1])) from None

"""The one catalogue of metrics: a broker's as it serves them, the other programs' from the calls that make them."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.metrics import Metrics
from pylog.ops.certificates import expiries
from pylog.probe.canary import Board
from pylog.probe.lag import LagReport, Stuck
from pylog.probe.reader import JUDGED, show_report
from pylog.probe.zookeeper import ZooKeeperReader
from pylog.process_metrics import measure_process

SOURCES = Path(__file__).resolve().parents[2] / "pylog"
BROKER = "broker"
EXPORTER = "exporter"
# Those that run, and tell what their process uses; the others leave a file behind and end.
_SERVERS = ("mirror", "registry", "audit")
# Program -> where its metrics are made.
_PROGRAMS = {
    # What only a secured broker has.
    BROKER: ["broker/authorization.py", "broker/security.py"],
    "mirror": ["mirror/*.py"],
    "registry": ["registry/*.py"],
    "audit": ["audit/*.py", "cli/audit.py"],
    "retention": ["cli/retention.py"],
    "lake": ["ingest/status.py"],
    "stream": ["ingest/stream/progress.py"],
    "backup": ["cli/backup.py"],
    "ship": ["ship/report.py"],
    "connect": ["connect/health.py"],
}


@dataclass(frozen=True, slots=True, order=True)
class Metric:
    """One metric: who shows it, its name, its kind (counter, gauge, histogram), and what it says."""

    program: str
    name: str
    kind: str
    help: str


_MAKERS = ("counter", "gauge", "histogram")
_NO_LABELS = {"read", "help"}
_PASSED_ON: Mapping[str, tuple[str, ...]] = {
    "pylog_topic_(produce|fetch)_bytes_total": ("topic",),
    "pylog_produce_bad_timestamps_total": ("topic",),
    "pylog_mirror_lag_(seconds|records)": ("partition", "topic"),
    "pylog_group_stuck_offset": Stuck._fields,
    "pylog_host_certificate_expires_timestamp_seconds": ("file",),
}
"""Labels of metrics whose name or labels are handed to who makes them."""


@cache
def labels_of(name: str) -> tuple[str, ...]:
    """Return the labels of a metric as the calls name them that make it, on any of its programs."""
    return tuple(sorted({label for pattern, labels in _labels() if pattern.fullmatch(name) for label in labels}))


@cache
def _labels() -> tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]:
    """Return for each call that makes metrics with labels: which names, and which labels."""
    found = [(re.compile(name), labels) for name, labels in _PASSED_ON.items()]
    for path in sorted(SOURCES.glob("**/*.py")):
        tree = ast.parse(path.read_text())
        constants = _constants(tree)
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            if node.func.attr in _MAKERS:
                labels = tuple(one.arg for one in node.keywords if one.arg and one.arg not in _NO_LABELS)
            elif node.func.attr == "table" and len(node.args) > 3:
                columns = _value(node.args[3], constants)
                labels = columns if isinstance(columns, tuple) else ()
            else:
                continue
            if labels and (pattern := _pattern(node.args[0], constants)):
                found.append((re.compile(pattern), labels))
    return tuple(found)


def _pattern(node: ast.expr, constants: Mapping[str, object]) -> str:
    """Return a pattern of the names that an argument stands for, "" if it is not written there."""
    if isinstance(node, ast.JoinedStr):
        return "".join(re.escape(str(one.value)) if isinstance(one, ast.Constant) else r"\w+" for one in node.values)
    value = _value(node.value if isinstance(node, ast.Starred) else node, constants)
    first = value[0] if isinstance(value, tuple) and value else value
    return re.escape(first) if isinstance(first, str) else ""


def _value(node: ast.expr, constants: Mapping[str, object]) -> object:
    """Return a constant, or a tuple of some, as it is written or by its name; None for all else."""
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.Tuple):
        return tuple(one.value for one in node.elts if isinstance(one, ast.Constant))
    return node.value if isinstance(node, ast.Constant) else None


def _constants(tree: ast.Module) -> dict[str, object]:
    """Return what names stand for in a module, those of its functions too."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    found = {
        node.targets[0].id: value
        for node in assigned
        if isinstance(node.targets[0], ast.Name) and (value := _value(node.value, {})) is not None
    }
    for node in assigned:  # name, kind, help = _METRIC
        parts = _value(node.value, found)
        if isinstance(node.targets[0], ast.Tuple) and isinstance(parts, tuple):
            names = [one.id for one in node.targets[0].elts if isinstance(one, ast.Name)]
            found |= zip(names, parts, strict=False)
    return found


def catalogue(scraped: str) -> list[Metric]:
    """Return every metric by program and name, a broker's first, as it shows them in *scraped*."""
    return [
        *sorted({*_of_text(scraped, BROKER), *_of_sources(BROKER)}),
        *sorted(_of_text(_probe_page(), "probe")),
        *(
            one
            for program in _PROGRAMS
            if program != BROKER
            for one in sorted({*_of_sources(program), *_of_process(program)})
        ),
        *_of_text(expiries({}), EXPORTER),
    ]


def _of_text(scraped: str, program: str) -> Iterator[Metric]:
    helps: dict[str, str] = {}
    for line in scraped.splitlines():
        words = line.split(" ", 3)
        if words[:2] == ["#", "HELP"]:
            helps[words[2]] = words[3]
        elif words[:2] == ["#", "TYPE"]:
            yield Metric(program, words[2], words[3], helps[words[2]])


def _probe_page() -> str:
    """Return what a probe shows that has not measured anything yet."""
    metrics = Metrics()
    measure_process(metrics)
    Board(metrics, 1.0)
    show_report(metrics, LagReport)
    metrics.gauge(*JUDGED)
    ZooKeeperReader((), 15.0, metrics, Stop(), Notices())
    return metrics.render()


def _of_process(program: str) -> Iterator[Metric]:
    if program in _SERVERS:
        metrics = Metrics()
        measure_process(metrics)
        yield from _of_text(metrics.render(), program)


def _of_sources(program: str) -> Iterator[Metric]:
    for path in (path for place in _PROGRAMS[program] for path in SOURCES.glob(place)):
        tree = ast.parse(path.read_text())
        constants = _constants(tree)
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) > 1):
                continue
            words = [
                one.value if isinstance(one, ast.Constant) else constants.get(getattr(one, "id", ""))
                for one in node.args
            ]
            if node.func.attr == "declare":
                name, kind, help = words
                yield Metric(program, str(name), str(kind), str(help))
            elif node.func.attr in ("counter", "gauge") and words[0] and words[1]:
                yield Metric(program, str(words[0]), node.func.attr, str(words[1]))

"""The one catalogue of metrics: a broker's as it serves them, the other programs' from the calls that make them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.metrics import Metrics
from pylog.probe.canary import Board
from pylog.probe.lag import LagReport
from pylog.probe.reader import JUDGED, show_report
from pylog.probe.zookeeper import ZooKeeperReader
from pylog.process_metrics import measure_process

SOURCES = Path(__file__).resolve().parents[2] / "pylog"
BROKER = "broker"
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
        constants = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        }
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

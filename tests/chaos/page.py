"""The page of results that a run leaves."""

import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.chaos import checker
from tests.chaos.run import Report
from tests.chaos.schedule import Kind

_PARTS = 6
"""The memory of a run is shown at its start and at the end of so many equal parts."""

_TOLD = 20


def page(report: Report, commit: str, previous: str, command: str) -> str:
    """Return the page in Markdown."""
    return "\n".join(
        [
            "# Chaos with real processes",
            "",
            f"The last run of `{command}` that was kept, {datetime.now(UTC):%F}, commit {commit}, previous release"
            f" {previous[:10]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end.",
            "",
            *_table(("", ""), _figures(report)),
            "",
            "## What the checker found",
            "",
            *_table(("kind", "violations"), _verdict(report)),
            "",
            *_details(report),
            "## Faults",
            "",
            *_table(("kind", "planned", "carried out"), _faults(report)),
            "",
            "## Pauses",
            "",
            "Times between two acknowledgements of one partition, in ms.",
            "",
            *_table(("partition", "longest", "tenth longest", "above 1 s", "above 10 s"), _pauses(report)),
            "",
            "## Memory",
            "",
            "Resident memory of each broker in MiB, at the start and after each part of the run.",
            "",
            *_table(("broker", *_times(report)), _memory(report)),
            "",
            Path(__file__).with_name("about.md").read_text().strip(),
            "",
        ]
    )


def _figures(report: Report) -> list[tuple[object, ...]]:
    world = report.world
    return [
        ("seed", report.seed),
        ("length", f"{report.duration_s / 60:.0f} min"),
        ("brokers, ZooKeeper servers", f"{world.brokers}, {world.servers}"),
        ("acknowledged records", f"{report.acknowledged.total():,}"),
        *((f"of these in `{topic}`", f"{count:,}") for topic, count in sorted(report.acknowledged.items())),
        *((f"refused or timed out in `{topic}`", f"{count:,}") for topic, count in sorted(report.failed.items())),
        ("read by the groups", f"{report.polled:,}"),
        ("commits of the groups", f"{report.commits:,}"),
        ("incarnations of `again`", f"{report.lives}, {report.sure_lives} compared record by record"),
        *(
            (f"incarnations read to their end by the member of `{group}`", count)
            for group, count in sorted(report.read_through.items())
        ),
        ("batches compared between replicas", f"{report.batches_compared:,}"),
    ]


def _verdict(report: Report) -> list[tuple[object, ...]]:
    counts: dict[str, int] = defaultdict(int)
    for violation in report.violations:
        counts[violation.kind] += 1
    return [(kind, counts[kind]) for kind in checker.KINDS]


def _details(report: Report) -> list[str]:
    lines = [f"- {one.kind}: {one.where}: {one.what}" for one in report.violations[:_TOLD]]
    lines += [f"- not settled: {what}" for what in report.unsettled[:_TOLD]]
    lines += [f"- {name} ended by itself with {codes}" for name, codes in report.deaths.items()]
    lines += [f"- {count} x {what}" for what, count in report.notes.most_common(_TOLD)]
    return [*lines, ""] if lines else []


def _faults(report: Report) -> list[tuple[object, ...]]:
    return [(kind, report.planned[kind], report.done[kind]) for kind in Kind]


def _pauses(report: Report) -> list[tuple[object, ...]]:
    return [
        (
            f"{topic}-{number}",
            pauses[0],
            pauses[min(9, len(pauses) - 1)],
            sum(pause > 1_000 for pause in pauses),
            sum(pause > 10_000 for pause in pauses),
        )
        for (topic, number), pauses in sorted(report.pauses_ms.items())
    ]


def _times(report: Report) -> list[str]:
    return [f"{part * report.duration_s / _PARTS / 60:.1f} min" for part in range(_PARTS + 1)]


def _memory(report: Report) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for broker in range(1, report.world.brokers + 1):
        samples = [(passed_s, kb) for passed_s, number, kb in report.memory_kb if number == broker]
        cells = [_near(samples, part * report.duration_s / _PARTS) for part in range(_PARTS + 1)]
        rows.append((broker, *cells))
    return rows


def _near(samples: Sequence[tuple[float, int]], at_s: float) -> str:
    """Return the middle one of the three samples next to a time: a broker that was killed has just begun anew."""
    nearest = sorted(samples, key=lambda sample: abs(sample[0] - at_s))[:3]
    return f"{statistics.median(kb for _, kb in nearest) / 1024:.0f}" if nearest else "-"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]

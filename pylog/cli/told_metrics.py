"""What `pylog explain` says of metrics.

`python -m local.docs.generate` makes the file of the same catalogue as docs/metrics.md.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TOLD = Path(__file__).with_name("metrics.json")
_OF_A_HISTOGRAM = ("_bucket", "_count", "_sum")


@dataclass(frozen=True, slots=True)
class ToldMetric:
    """One metric.

    Attributes:
        programs: commands that show it.
        kind: counter, gauge or histogram.
        says: what it counts.
        alerts: names of those that read it.
    """

    programs: tuple[str, ...]
    kind: str
    says: str
    alerts: tuple[str, ...]


@cache
def told_metrics() -> dict[str, ToldMetric]:
    """Return every metric by its name."""
    return {
        name: ToldMetric(tuple(row["programs"]), row["kind"], row["says"], tuple(row["alerts"]))
        for name, row in json.loads(TOLD.read_text()).items()
    }


def find_metric(text: str) -> str | None:
    """Return the name of the metric that *text* names, also by one of a histogram's series; None if there is none."""
    told, name = told_metrics(), text.lower()
    if name in told:
        return name
    for suffix in _OF_A_HISTOGRAM:
        whole = name.removesuffix(suffix)
        if whole != name and whole in told and told[whole].kind == "histogram":
            return whole
    return None

"""Counters and gauges as plain values, and their Prometheus text.

A `Metrics` is made once per program and handed down.  The hot path adds to `Counter.value` directly: an attribute add
costs 30 ns, a method call with labels ten times that, so each label set is looked up once and kept.
"""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counter:
    """A number that only grows until the process ends."""

    value: float = 0

    def add(self, amount: float = 1) -> None:
        """Add *amount*, which is not negative."""
        self.value += amount


@dataclass(slots=True)
class Gauge:
    """A number that goes up and down; `read`, if given, is asked at scrape time instead."""

    value: float = 0
    read: Callable[[], float] | None = None


@dataclass(slots=True)
class _Family:
    kind: str
    help: str
    children: dict[tuple[tuple[str, str], ...], Counter | Gauge] = field(default_factory=dict)


class Metrics:
    """The metrics of one program, by name and labels."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def counter(self, name: str, help: str, **labels: str) -> Counter:
        """Return the counter *name* with these labels, made on first use."""
        child = self._child(name, "counter", help, labels, Counter)
        assert isinstance(child, Counter), f"{name} is a gauge"
        return child

    def gauge(self, name: str, help: str, read: Callable[[], float] | None = None, **labels: str) -> Gauge:
        """Return the gauge *name* with these labels; *read* is called at every scrape."""
        child = self._child(name, "gauge", help, labels, Gauge)
        assert isinstance(child, Gauge), f"{name} is a counter"
        if read is not None:
            child.read = read
        return child

    def names(self) -> set[str]:
        """Return every metric name, for the test that compares them with the documentation."""
        return set(self._families)

    def render(self) -> str:
        """Return all metrics in Prometheus's text format 0.0.4."""
        lines: list[str] = []
        for name, family in sorted(self._families.items()):
            lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
            for labels, child in family.children.items():
                value = child.read() if isinstance(child, Gauge) and child.read else child.value
                text = ",".join(f'{key}="{_escape(found)}"' for key, found in labels)
                lines.append(f"{name}{{{text}}} {value:.15g}" if text else f"{name} {value:.15g}")
        return "\n".join(lines) + "\n"

    def _child(
        self, name: str, kind: str, help: str, labels: dict[str, str], make: type[Counter] | type[Gauge]
    ) -> Counter | Gauge:
        family = self._families.setdefault(name, _Family(kind, help))
        assert family.kind == kind, f"{name}: {family.kind} and {kind}"
        return family.children.setdefault(tuple(sorted(labels.items())), make())


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

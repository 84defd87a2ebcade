"""Counters, gauges and histograms as plain values, and their Prometheus text.

A `Metrics` is made once per program and handed down.  The hot path adds to `Counter.value` directly: an attribute add
costs 30 ns, a method call with labels ten times that, so each label set is looked up once and kept.

A page is made in two steps.  `Metrics.sample` (in a broker `sample_in_steps`) takes the values, on the thread that
changes them; `render` makes the text of the samples on any thread, so that a broker's event loop is not held up by the
formatting of a large page.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

_SLOTS = 64  # of one histogram: a bit length up to 63 is nearly three centuries in nanoseconds

FIRST_BOUND_BITS, LAST_BOUND_BITS = 16, 33
"""The bounds that are shown, as powers of two of a nanosecond: 66 microseconds to 8.6 seconds."""

MAX_LABEL_CHARS = 100
"""Of a label that strangers choose: a group's id may have 8,000 characters."""

MAX_TOPICS = 1_000
"""Topics that a broker's page tells apart: whoever may write may make topics, by their names alone."""

Row = TypeVar("Row", bound=tuple[str, ...])

OTHER = "other"
"""Label of everything beyond the label values that are told apart."""


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


class Histogram:
    """How often a duration fell between two powers of two of a nanosecond.

    One observation costs about 0.15 microseconds.  A quantile that Prometheus interpolates is off by at most a factor
    of two, and on log-normal times by a few per cent.

    Attributes:
        counts: by the bit length of the nanoseconds.
        sum_ns: of all observations.
    """

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * _SLOTS
        self.sum_ns = 0

    def observe_ns(self, duration_ns: int, count: int = 1) -> None:
        """Count *duration_ns* as often as *count*; a negative one, from a clock that went back, counts as 0."""
        if duration_ns < 0:
            duration_ns = 0
        self.counts[duration_ns.bit_length()] += count
        self.sum_ns += duration_ns * count


def observe_all(histograms: list[Histogram], duration_ns: int) -> None:
    """Count the same *duration_ns* in each of *histograms*, which may name one many times."""
    first = histograms[0]
    count = histograms.count(first)  # nearly always all of them, and counted without a loop of ours
    if count == len(histograms):
        first.observe_ns(duration_ns, count)
    else:
        for histogram in histograms:
            histogram.observe_ns(duration_ns)


Labels = tuple[tuple[str, str], ...]
Table = Callable[[], Mapping[Any, float]]
"""Returns the values of a family by the values of its labels, tuples of strings; asked at every scrape."""


@dataclass(slots=True)
class _Family:
    """All children of one name.

    Attributes:
        children: those that are kept, by labels.
        columns: names of the labels of `table`.
        table: gives further children at scrape time.
        value: gives the only child, on any thread.
    """

    kind: str
    help: str
    children: dict[Labels, Counter | Gauge | Histogram] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    table: Table | None = None
    value: Callable[[], float] | None = None


@dataclass(frozen=True, slots=True)
class _Sample:
    """One family at one moment: `values` by labels, a histogram's as its counts followed by its sum."""

    name: str
    kind: str
    help: str
    values: list[tuple[Labels, "float | list[int] | Callable[[], float]"]]


Samples = list[_Sample]


class Metrics:
    """The metrics of one program, by name and labels."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._before: list[Callable[[], Iterator[None]]] = []

    def before_sample(self, count: Callable[[], Iterator[None]]) -> None:
        """Run *count* before each sample, for gauges and tables that share one pass over what they count.

        A long pass yields every few milliseconds; what it found counts when it ends, since others may run meanwhile.
        """
        self._before.append(count)

    def counter(self, name: str, help: str, **labels: str) -> Counter:
        """Return the counter *name* with these labels, made on first use."""
        child = self._child(name, "counter", help, labels, Counter)
        assert isinstance(child, Counter), f"{name} is a {type(child).__name__}"
        return child

    def gauge(self, name: str, help: str, read: Callable[[], float] | None = None, **labels: str) -> Gauge:
        """Return the gauge *name* with these labels, made on first use; *read* is called at every scrape."""
        child = self._child(name, "gauge", help, labels, Gauge)
        assert isinstance(child, Gauge), f"{name} is a {type(child).__name__}"
        if read is not None:
            child.read = read
        return child

    def histogram(self, name: str, help: str, **labels: str) -> Histogram:
        """Return the histogram of durations *name* with these labels, made on first use; it is shown in seconds."""
        child = self._child(name, "histogram", help, labels, Histogram)
        assert isinstance(child, Histogram), f"{name} is a {type(child).__name__}"
        return child

    def table(self, name: str, kind: str, help: str, columns: tuple[str, ...], read: Table) -> None:
        """Show the family *name* whose children *read* returns at every scrape, by the values of the labels *columns*.

        For values that somebody else counts already, and for labels that come and go: a topic that is deleted leaves
        the page by itself.
        """
        self._families[name] = _Family(kind, help, columns=columns, table=read)

    def declare(self, name: str, kind: str, help: str) -> None:
        """Show the family *name* before it has a child: whoever reads the page sees that it is counted."""
        self._families.setdefault(name, _Family(kind, help))

    def value(self, name: str, kind: str, help: str, read: Callable[[], float]) -> None:
        """Show what *read* returns when the text is made, on the thread that makes it.

        For what is slow to read and belongs to no thread, such as files of /proc.
        """
        self._families[name] = _Family(kind, help, value=read)

    def names(self) -> set[str]:
        """Return every metric name, for the test that compares them with the documentation."""
        return set(self._families)

    async def sample_in_steps(self) -> Samples:
        """Return what `sample` does, and let the event loop run between the steps of long passes."""
        for count in self._before:
            for _ in count():
                await asyncio.sleep(0)
        return self._sample()

    def sample(self) -> Samples:
        """Return every value as it is now; called where the values are changed."""
        for count in self._before:
            for _ in count():
                pass
        return self._sample()

    def _sample(self) -> Samples:
        samples = []
        for name, family in sorted(self._families.items()):
            values: list[tuple[Labels, float | list[int] | Callable[[], float]]] = []
            for labels, child in family.children.items():
                if isinstance(child, Histogram):
                    values.append((labels, [*child.counts, child.sum_ns]))
                elif isinstance(child, Gauge) and child.read is not None:
                    values.append((labels, child.read()))
                else:
                    values.append((labels, child.value))
            if family.value is not None:
                values.append(((), family.value))
            if family.table is not None:
                for row, value in family.table().items():
                    values.append((tuple(zip(family.columns, row, strict=True)), value))
            samples.append(_Sample(name, family.kind, family.help, values))
        return samples

    def render(self) -> str:
        """Return all metrics in Prometheus's text format 0.0.4."""
        return render(self.sample())

    def _child(
        self,
        name: str,
        kind: str,
        help: str,
        labels: dict[str, str],
        make: type[Counter] | type[Gauge] | type[Histogram],
    ) -> Counter | Gauge | Histogram:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = _Family(kind, help)
        assert family.kind == kind, f"{name}: {family.kind} and {kind}"
        key = tuple(sorted(labels.items()))
        child = family.children.get(key)
        if child is None:
            child = family.children[key] = make()
        return child


def render(samples: Iterable[_Sample]) -> str:
    """Return *samples* in Prometheus's text format 0.0.4; may be called on any thread."""
    lines: list[str] = []
    for sample in samples:
        name = sample.name
        lines += [f"# HELP {name} {sample.help}", f"# TYPE {name} {sample.kind}"]
        for labels, value in sample.values:
            text = ",".join(f'{key}="{escape(label)}"' for key, label in labels)
            if isinstance(value, list):
                lines += _histogram_lines(name, text, value)
            else:
                number = value() if callable(value) else value
                lines.append(f"{name}{{{text}}} {number:.15g}" if text else f"{name} {number:.15g}")
    return "\n".join(lines) + "\n"


def _histogram_lines(name: str, labels: str, counts_and_sum: list[int]) -> Iterable[str]:
    *counts, sum_ns = counts_and_sum
    before = labels + "," if labels else ""
    total = sum(counts[:FIRST_BOUND_BITS])
    for bits in range(FIRST_BOUND_BITS, LAST_BOUND_BITS + 1):
        total += counts[bits]
        yield f'{name}_bucket{{{before}le="{(1 << bits) / 1e9:.9g}"}} {total}'
    total += sum(counts[LAST_BOUND_BITS + 1 :])
    yield f'{name}_bucket{{{before}le="+Inf"}} {total}'
    around = f"{{{labels}}}" if labels else ""
    yield f"{name}_sum{around} {sum_ns / 1e9:.15g}"
    yield f"{name}_count{around} {total}"


def keep_largest(table: Mapping[Row, float], most: int) -> dict[Row, float]:
    """Return the *most* largest rows of *table*, and one row labelled `OTHER` with the sum of the rest.

    Labels that strangers choose, such as a client's name, are bounded by this: neither a page nor Prometheus may grow
    with what somebody sends.
    """
    if len(table) <= most:
        return dict(table)
    ranked = sorted(table.items(), key=lambda row: (-row[1], row[0]))
    kept = dict(ranked[:most])
    rest: Any = (OTHER,) * len(ranked[0][0])
    kept[rest] = kept.get(rest, 0) + sum(value for _, value in ranked[most:])
    return kept


def bounded_label(text: str) -> str:
    """Return *text* as a label that is no longer than `MAX_LABEL_CHARS`; different texts stay different.

    A page with the same labels twice is none, so what is cut off is replaced by its checksum.
    """
    if len(text) <= MAX_LABEL_CHARS:
        return text
    mark = f"~{zlib.crc32(text.encode(errors='surrogatepass')):08x}"
    return text[: MAX_LABEL_CHARS - len(mark)] + mark


def escape(text: str) -> str:
    """Return *text* as a label's value."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

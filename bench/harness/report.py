"""Medians of a result file, side by side.

python -m bench.harness.report RESULTS.csv      print the table
"""

import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.harness.measure import Sample, read_samples

NOISY_CORES = 0.25
"""From here on a run is called noisy: the measure itself is good to about a quarter of a core."""


def label_in_words(label: str) -> str:
    """Return what a row does: ``p50a1`` is produce, batches of 50, acks=1."""
    batch, _, acks = label[1:].partition("a")
    return f"produce, batches of {batch}, acks={acks}" if label[0] == "p" else "consume"


def table(samples: Sequence[Sample], system: str, peer: str) -> str:
    """Return the Markdown table of medians of *system* beside *peer*, a ratio after each pair."""
    lines = [
        f"| row | {system} msgs/s | {peer} msgs/s | ratio | {system} CPU s/M | {peer} CPU s/M | ratio "
        f"| {system} other cores | {peer} other cores | lost |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for label in dict.fromkeys(sample.label for sample in samples):
        mine, theirs = (_of(samples, name, label) for name in (system, peer))
        rates = [_median(runs, lambda each: each.rate) for runs in (mine, theirs)]
        costs = [_median(runs, lambda each: each.cpu_s_per_million) for runs in (mine, theirs)]
        noise = [_median(runs, lambda each: each.other_cores) for runs in (mine, theirs)]
        lines.append(
            f"| {label_in_words(label)} | {rates[0]:,.0f} | {rates[1]:,.0f} | {_ratio(*rates)} "
            f"| {costs[0]:.2f} | {costs[1]:.2f} | {_ratio(*costs)} | {noise[0]:.2f} | {noise[1]:.2f} "
            f"| {sum(each.lost for each in mine)} / {sum(each.lost for each in theirs)} |"
        )
    return "\n".join(lines)


def memory(samples: Sequence[Sample], system: str) -> str:
    """Return in words how much memory *system*'s broker held after its first gigabyte."""
    runs = [sample for sample in samples if sample.system == system]
    written = 0.0
    for sample in runs:
        written += sample.count * sample.size / 1e9 if sample.label.startswith("p") else 0
        if written >= 1:
            return f"{sample.rss_mb:.0f} MB after {written:.1f} GB produced"
    return f"not measured: only {written:.2f} GB were produced"


def noisy(samples: Sequence[Sample]) -> int:
    """Return how many runs something else on the machine disturbed."""
    return sum(sample.other_cores > NOISY_CORES for sample in samples)


def _of(samples: Sequence[Sample], system: str, label: str) -> list[Sample]:
    return [sample for sample in samples if (sample.system, sample.label) == (system, label)]


def _median(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    return statistics.median(map(value, samples)) if samples else float("nan")


def _ratio(mine: float, theirs: float) -> str:
    return f"{mine / theirs:.2f}" if theirs else "-"


def main(arguments: list[str]) -> int:
    """Print the table of one result file."""
    samples = read_samples(Path(arguments[0]))
    print(table(samples, "pylog", "kafka"))
    for system in dict.fromkeys(sample.system for sample in samples):
        print(f"{system}: {memory(samples, system)}")
    print(f"{noisy(samples)} of {len(samples)} runs were noisy")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

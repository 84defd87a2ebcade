"""What the broker's CPU costs a message, beside another checkout of pylog: the price of everything since then.

Both brokers run all the time under the same Python, each row goes to one and at once to the other, and who begins
changes with every round.  Each round is a pair; what counts is the mean of the pairs' ratios, with its 95 % interval.

git worktree add /tmp/before c3843ff && python -m bench.paper.releases --before /tmp/before --name c3843ff
"""

import argparse
import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

from bench.harness.clients import WORK_DIR, Topics, build_rdk_client
from bench.harness.contenders import KafkaLike, measure
from bench.harness.measure import Row, Sample, write_samples
from pylog.testing import BrokerProcess

SIZE_BYTES = 200
ROWS = (
    Row(label="p50a1", batch=50, acks=1),
    Row(label="c50", batch=50, acks=None),
    Row(label="p1a1", batch=1, acks=1),
)
_NAMES = {"p50a1": "produce, batches of 50", "c50": "consume", "p1a1": "produce, batches of 1"}
_DOCS = Path(__file__).resolve().parents[2] / "docs"
_TREE = Path(__file__).resolve().parents[2]

# Student's t for a two-sided interval of 95 %, by degrees of freedom; with more than 30 it is 2.0 or less.
_T_95: Mapping[int, float] = {
    4: 2.776, 9: 2.262, 14: 2.145, 15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 20: 2.086,
    24: 2.064, 29: 2.045,
}  # fmt: skip

_PAGE = """\
# What a message costs since {name}

CPU of the broker's process for each message, this tree beside {name}: one producer, one consumer, one partition,
{size}-byte messages, acks=1, librdkafka as the client, default settings, Python {python}. {rounds} pairs by turns of
{batched:,} messages in batches of 50 and {single:,} in batches of one, {cores} cores, nothing pinned, {day}.
The machine had other work: load {load_before} at the beginning and {load_after} at the end. Both sides of a pair ran
one after the other, and the figure is CPU time. Every run: [{csv_name}](../results/{csv_name}).

| | {name}, CPU s/M | this tree, CPU s/M | ratio | 95 % interval of the ratio |
|---|--:|--:|--:|--:|
{table}

The ratio is the geometric mean over the pairs, this tree's CPU over that of {name}; the interval is Student's over
their logarithms. {verdict}

Again: `{command}`.
"""


def run(before: Path, rounds: int, batched: int, single: int, work_dir: Path) -> list[Sample]:
    """Return every run's figures; the systems are called ``before`` and ``now``."""
    samples: list[Sample] = []
    client = build_rdk_client(work_dir)
    with ExitStack() as stack:
        both: list[KafkaLike] = []
        for name, tree in (("before", before), ("now", _TREE)):
            directory = work_dir / f"{name}-{os.getpid()}"
            # Python finds the package in its working directory first, whichever tree its environment is of.
            broker = stack.enter_context(BrokerProcess(directory, prefix=("env", "-C", str(tree))))
            topics = stack.enter_context(closing(Topics(broker.bootstrap)))
            both.append(KafkaLike(name, broker, topics, client, broker.data_dir))
        for number in range(rounds + 1):
            found = _round(both if number % 2 else both[::-1], number, batched, single)
            samples += found if number else []  # the first warms up
    return samples


def _round(both: Sequence[KafkaLike], number: int, batched: int, single: int) -> list[Sample]:
    samples: list[Sample] = []
    topics: list[str] = []
    for row in ROWS:
        if row.acks is not None:
            topics.append(f"releases-{number}-{row.label}")
            for one in both:
                one.begin(topics[-1])
        for one in both:
            sample = measure(one, row, topics[-1], batched if row.batch > 1 else single, SIZE_BYTES, None, number)
            assert sample is not None
            samples.append(sample)
            print(sample, flush=True)
    for one in both:
        for topic in topics:
            one.end(topic)
    return samples


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of *ratios* and the bounds of its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    degrees = len(logs) - 1
    known = max((one for one in _T_95 if one <= degrees), default=4)  # fewer degrees than there are: a wider interval
    half = _T_95[known] * statistics.stdev(logs) / math.sqrt(len(logs))
    middle = statistics.fmean(logs)
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def table(samples: Sequence[Sample]) -> tuple[list[str], list[tuple[str, float]]]:
    """Return a row of the page for each kind of run, and the upper bound of each."""
    lines: list[str] = []
    bounds: list[tuple[str, float]] = []
    for row in ROWS:
        before, now = (
            [one.cpu_s_per_million for one in sorted(samples, key=lambda one: one.round)
             if one.label == row.label and one.system == system]
            for system in ("before", "now")
        )  # fmt: skip
        ratio, low, high = interval([ours / theirs for ours, theirs in zip(now, before, strict=True)])
        medians = f"{statistics.median(before):.3f} | {statistics.median(now):.3f}"
        lines.append(f"| {_NAMES[row.label]} | {medians} | {ratio:.3f} | {low:.3f} to {high:.3f} |")
        bounds.append((_NAMES[row.label], high))
    return lines, bounds


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, metavar="TREE", help="the other checkout")
    parser.add_argument("--name", required=True, help="what the other checkout is called on the page")
    parser.add_argument("--rounds", type=int, default=16, help="pairs (default: 16)")
    parser.add_argument("--batched", type=int, default=3_000_000, help="messages a run in batches of 50")
    parser.add_argument("--single", type=int, default=60_000, help="messages a run in batches of one")
    parser.add_argument("--work-dir", type=Path, default=WORK_DIR, help="where brokers keep their data")
    parser.add_argument("--no-write", action="store_true", help="print the page only")
    given = parser.parse_args()
    load_before = f"{os.getloadavg()[0]:.1f}"
    samples = run(given.before.resolve(), given.rounds, given.batched, given.single, given.work_dir)
    lines, bounds = table(samples)
    over = [name for name, high in bounds if high > 1.05]
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    csv_name = f"releases-{day}.csv"
    page = _PAGE.format(
        name=given.name,
        size=SIZE_BYTES,
        python=platform.python_version(),
        rounds=given.rounds,
        batched=given.batched,
        single=given.single,
        cores=os.cpu_count(),
        day=day,
        load_before=load_before,
        load_after=f"{os.getloadavg()[0]:.1f}",
        csv_name=csv_name,
        table="\n".join(lines),
        verdict=f"Above 5 %: {', '.join(over)}." if over else "No upper bound is above 5 %.",
        command=f"python -m bench.paper.releases --before TREE --name {given.name} --rounds {given.rounds} "
        f"--batched {given.batched} --single {given.single}",
    )
    print(page)
    if not given.no_write:
        write_samples(_DOCS / "results" / csv_name, samples)
        (_DOCS / "bench" / "releases.md").write_text(page)


if __name__ == "__main__":
    main()

"""What timing every request costs: the same broker with and without its histograms, by turns.

python -m bench.broker.observed                            some 5 minutes
python -m bench.broker.observed --before TREE              and beside the pylog of another checkout
python -m bench.broker.observed --rounds 1 --count 20000 --no-write    does it run at all?
"""

import argparse
import os
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from bench.harness import pages
from bench.harness.clients import WORK_DIR, Topics, build_rdk_client
from bench.harness.contenders import KafkaLike, measure
from bench.harness.measure import Row, Sample, write_samples
from bench.paper.paper import SIZE_BYTES, split_cpus
from pylog.testing import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
_TIMED, _UNTIMED, _BEFORE = "timed", "untimed", "before"
_ROW = Row(label="p1a1", batch=1, acks=1)
_SITE = """\
from collections import deque
from pylog.net.connection import Connection
make = Connection.__init__
def make_untimed(self, *arguments, **named):
    make(self, *arguments, **named)
    self.answered = deque(maxlen=0)
Connection.__init__ = make_untimed
"""
# On the broker's path as sitecustomize.py: a deque that keeps nothing is as fast as the list, so no time is taken.

_OWN_LOAD = 4
"""A load average above it is not of broker and client alone."""
_BUSY = """: other programs kept the machine busy. Both brokers are slower for that by about the same, so the
ratio says something, less sharply than on a quiet machine, and the microseconds nothing"""
_PAGE = """\
# What timing every request costs

Messages of {size} bytes in batches of one, acks=1, one librdkafka producer; {count:,} messages a run, {rounds} rounds
by turns after one to warm up, broker and client pinned to a core each, {day}, load average {load:.1f} when it began and
{load_end:.1f} when it ended{busy}.
Every run: [{csv_name}](../results/{csv_name}).

| | broker CPU, µs a message | beside the same broker untimed |
|---|--:|--:|
{table}

*Timed* is the broker as it is. *Untimed* notes which histogram a request belongs to and then looks at no clock and
counts nothing, which leaves about 0.05 µs of the cost in it.{before}
Ratios are medians over the pairs of a round, in brackets their quartiles.

A request that is answered at once is counted when its connection's wake-up ends: all requests of one read share one
look at the clock, since they share the moment at which they were read and that at which their answers are sent.

Again: `make bench BENCH=observed`.
"""


def _brokers(stack: ExitStack, cpus: frozenset[int], before: Path | None) -> dict[str, KafkaLike]:
    site = WORK_DIR / f"untimed-site-{os.getpid()}"
    site.mkdir(parents=True, exist_ok=True)
    (site / "sitecustomize.py").write_text(_SITE)
    stack.callback(shutil.rmtree, site)
    # With a safe path the working directory does not come before the checkout that is meant.
    ways = {_TIMED: [ROOT], _UNTIMED: [site, ROOT]} | ({_BEFORE: [before]} if before else {})
    brokers, everything = {}, os.sched_getaffinity(0)
    for name, paths in ways.items():
        env: Mapping[str, str] = {"PYTHONSAFEPATH": "1", "PYTHONPATH": ":".join(map(str, paths))}
        directory = WORK_DIR / f"observed-{name}-{os.getpid()}"
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        os.sched_setaffinity(0, cpus)
        try:
            broker = stack.enter_context(BrokerProcess(directory, env=env))
        finally:
            os.sched_setaffinity(0, everything)
        topics = Topics(broker.bootstrap)
        stack.callback(topics.close)
        brokers[name] = KafkaLike(name, broker, topics, build_rdk_client(), broker.data_dir)
    return brokers


def run(rounds: int, count: int, before: Path | None) -> list[Sample]:
    """Return the runs of every broker; who begins changes with every round."""
    broker_cpus, client_cpus = split_cpus()
    samples = []
    with ExitStack() as stack:
        brokers = list(_brokers(stack, broker_cpus, before).values())
        for number in range(rounds + 1):
            first = number % len(brokers)
            for broker in brokers[first:] + brokers[:first]:
                topic = f"observed-{number}"
                broker.begin(topic)
                sample = measure(broker, _ROW, topic, count, SIZE_BYTES, client_cpus, number)
                broker.end(topic)
                assert sample is not None, "pylog has this row"
                print(sample, flush=True)
                if number:
                    samples.append(sample)
    return samples


def ratios(samples: Sequence[Sample], system: str) -> list[float]:
    """Return *system*'s CPU a message over that of the untimed broker, one for each round."""
    costs = {name: {s.round: s.cpu_s_per_million for s in samples if s.system == name} for name in (system, _UNTIMED)}
    return [cost / costs[_UNTIMED][number] for number, cost in sorted(costs[system].items())]


def _table(samples: Sequence[Sample]) -> str:
    rows = []
    for system in dict.fromkeys(sample.system for sample in sorted(samples, key=lambda s: s.system, reverse=True)):
        cost = statistics.median(s.cpu_s_per_million for s in samples if s.system == system)
        compared = "1"
        if system != _UNTIMED:
            found = ratios(samples, system)
            low, middle, high = statistics.quantiles(found, n=4) if len(found) > 1 else found * 3
            compared = f"{middle:.3f} ({low:.3f} to {high:.3f})"
        rows.append(f"| {system} | {cost:.2f} | {compared} |")
    return "\n".join(rows)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print its table and keep its results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.broker.observed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--before", type=Path, metavar="TREE", help="another checkout, run as a third broker")
    parser.add_argument("--said", default="", metavar="TEXT", help="what that checkout is, for the page")
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    samples = run(options.rounds, options.count, options.before)
    table = _table(samples)
    print(table)
    if options.write:
        csv_name = pages.result_name("observed")
        write_samples(pages.RESULTS / csv_name, samples)
        page = _PAGE.format(
            size=SIZE_BYTES,
            count=options.count,
            rounds=options.rounds,
            day=f"{datetime.now(UTC):%Y-%m-%d}",
            load=load,
            load_end=os.getloadavg()[0],
            busy=_BUSY if max(load, os.getloadavg()[0]) > _OWN_LOAD else "",
            csv_name=csv_name,
            table=table,
            before=f" *Before* is {options.said}." if options.before else "",
        )
        pages.write_page("observed", page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

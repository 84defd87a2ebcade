"""Why it is fast: each reason of the paper switched off in turn, against the same broker with all of them.

Batches: one message each. Acknowledgements: waiting for each. sendfile: the broker reads and sends instead. The page
cache: records written through to the disk before they are acknowledged.

python -m bench.paper.ablation                             some 2 minutes
python -m bench.paper.ablation --count 100000 --no-write   does it run at all?
"""

import argparse
import os
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime

from bench.harness import pages
from bench.harness.clients import WORK_DIR, Topics, build_rdk_client
from bench.harness.contenders import KafkaLike, measure
from bench.harness.measure import Row, Sample, write_samples
from bench.paper.paper import SIZE_BYTES, split_cpus
from pylog.testing import BrokerProcess

_WHOLE, _COPYING, _FLUSHING = "whole", "copying", "flushing"
_SITE = """\
import os
def sendfile(out, source, offset, count):
    return os.write(out, os.pread(source, count, offset))
os.sendfile = sendfile
"""
"""Put on the broker's path as sitecustomize.py: no setting of the broker is there only to make it slow."""

_PRODUCE, _CONSUME = Row(label="p50a1", batch=50, acks=1), Row(label="c50", batch=50, acks=None)
_STEPS = (
    ("produce: batches of 50, acks=1", _WHOLE, _PRODUCE, 1),
    ("produce: no acknowledgement", _WHOLE, Row(label="p50a0", batch=50, acks=0), 1),
    ("produce: batches of one", _WHOLE, Row(label="p1a1", batch=1, acks=1), 10),
    ("produce: flushed before the acknowledgement", _FLUSHING, _PRODUCE, 10),
    ("consume: sendfile", _WHOLE, _CONSUME, 1),
    ("consume: read and send", _COPYING, _CONSUME, 1),
)
_PAGE = """\
# What makes it fast

{size}-byte messages, one producer, one consumer, one partition; each row leaves out one thing. Medians of {rounds}
rounds, broker and client pinned to a core each, {day}; every run: [{csv_name}](../results/{csv_name}).

![rates](ablation.svg)

{table}

Again: `make bench BENCH=ablation`.
"""


def brokers(stack: ExitStack, cpus: frozenset[int]) -> dict[str, KafkaLike]:
    """Start the broker as it is, without sendfile, and with a flush for every acknowledgement."""
    site = WORK_DIR / f"copying-site-{os.getpid()}"
    site.mkdir(parents=True, exist_ok=True)
    (site / "sitecustomize.py").write_text(_SITE)
    stack.callback(shutil.rmtree, site)
    ways: dict[str, tuple[Mapping[str, object], Mapping[str, str]]] = {
        _WHOLE: ({}, {}),
        _COPYING: ({}, {"PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}"}),
        _FLUSHING: ({"log.flush.interval.messages": 1}, {}),
    }
    found, everything = {}, os.sched_getaffinity(0)
    for name, (config, env) in ways.items():
        directory = WORK_DIR / f"ablation-{name}-{os.getpid()}"
        stack.callback(shutil.rmtree, directory)
        os.sched_setaffinity(0, cpus)
        try:
            broker = stack.enter_context(BrokerProcess(directory, config=config, env=env))
        finally:
            os.sched_setaffinity(0, everything)
        topics = Topics(broker.bootstrap)
        stack.callback(topics.close)
        found[name] = KafkaLike(name, broker, topics, build_rdk_client(), broker.data_dir)
    return found


def run(rounds: int, count: int) -> dict[str, list[Sample]]:
    """Return the runs of each step, by its name."""
    broker_cpus, client_cpus = split_cpus()
    found: dict[str, list[Sample]] = {name: [] for name, *_ in _STEPS}
    with ExitStack() as stack:
        by_name = brokers(stack, broker_cpus)
        for one in by_name.values():
            one.begin("read")
            measure(one, Row(label="fill", batch=50, acks=0), "read", count, SIZE_BYTES, client_cpus, 0)
        for number in range(1, rounds + 1):
            for step, way, row, fewer in _STEPS:
                one, topic = by_name[way], "read"
                if row.acks is not None:
                    topic = f"ablation-{number}-{_STEPS.index((step, way, row, fewer))}"
                    one.begin(topic)
                sample = measure(one, row, topic, count // fewer, SIZE_BYTES, client_cpus, number)
                assert sample is not None, "pylog has every row"
                found[step].append(sample)
                print(step, sample, sep=": ", flush=True)
                if row.acks is not None:
                    one.end(topic)
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print its table and keep its results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.paper.ablation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    options = parser.parse_args(arguments)
    found = run(options.rounds, options.count)
    rates = {step: statistics.median(one.rate for one in runs) for step, runs in found.items()}
    costs = {step: statistics.median(one.cpu_s_per_million for one in runs) for step, runs in found.items()}
    table = "\n".join(
        ["| | msgs/s | broker CPU s/M |", "|---|--:|--:|"]
        + [f"| {step} | {rates[step]:,.0f} | {costs[step]:.2f} |" for step in rates]
    )
    print(table)
    if options.write:
        csv_name = pages.result_name("ablation")
        write_samples(pages.RESULTS / csv_name, [one for runs in found.values() for one in runs])
        pages.bars("ablation", "Each reason switched off", "messages a second", rates)
        pages.write_page(
            "ablation",
            _PAGE.format(
                size=SIZE_BYTES,
                rounds=options.rounds,
                day=f"{datetime.now(UTC):%Y-%m-%d}",
                csv_name=csv_name,
                table=table,
            ),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

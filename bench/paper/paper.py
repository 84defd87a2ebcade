"""The paper's workload against pylog and Apache Kafka 3.9, by turns.

200-byte messages, one producer, one consumer, one partition (Kreps et al., NetDB 2011, figures 4 and 5).  Both
brokers run all the time, each row goes to one and at once to the other, and who begins changes with every round, so
that what disturbs the machine disturbs both.  Broker and client each keep to a core of their own.

python -m bench.paper.paper                                   what counts: 5 rounds, some 8 minutes, nobody else at work
python -m bench.paper.paper --rounds 1 --batched 200000 --single 20000 --no-pin --no-write    does it run at all?
"""

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench.harness.clients import WORK_DIR
from bench.harness.contenders import Contender, contender, measure
from bench.harness.measure import Row, Sample, write_samples
from bench.harness.report import NOISY_CORES, memory, noisy, table
from tests.servers.kafka import KAFKA_VERSION

SIZE_BYTES = 200
ROWS = (
    Row(label="p50a1", batch=50, acks=1),
    Row(label="c50", batch=50, acks=None),
    Row(label="p50a0", batch=50, acks=0),
    Row(label="p1a1", batch=1, acks=1),
    Row(label="p1a0", batch=1, acks=0),
)
_DOCS = Path(__file__).resolve().parents[2] / "docs"
_REPORT = """\
# The paper's workload

One producer, one consumer, one partition, {size}-byte messages, as in figures 4 and 5 of "Kafka: a Distributed
Messaging System for Log Processing" (NetDB 2011): pylog {pylog} on Python {python} beside Apache Kafka {kafka}.
Both brokers have their default settings, no replication and no flush; the client is librdkafka 2 (`bench/rdk_client.c`)
with fetches of 200 KB. Medians of {rounds} rounds of {batched:,} messages in batches of 50 and {single:,} in batches
of one, {cores} cores, {pinning}, {day}. Every run: [{csv_name}](../results/{csv_name}).

{table}

CPU s/M: the broker's CPU seconds per million messages. Other cores: what neither broker nor client used meanwhile;
{noisy} of {runs} runs saw more than {noisy_cores} of a core, and the measure itself is good to about that.
A consumer's clock starts at its first message. With acks=0 only messages that arrived count, until the last of them.

Broker memory (resident): pylog {pylog_memory}; Apache Kafka {kafka_memory}.

Again: `make bench`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run.

    Attributes:
        systems: who takes part.
        rounds: how often each row goes to each system.
        batched: messages of a run in batches of 50.
        single: messages of a run in batches of one.
        is_pinned: whether broker and client keep to a core each.
    """

    systems: tuple[str, ...]
    rounds: int
    batched: int
    single: int
    is_pinned: bool
    work_dir: Path

    def count(self, row: Row) -> int:
        """Return how many messages a run of *row* moves."""
        return self.batched if row.batch > 1 else self.single


def run(plan: Plan) -> list[Sample]:
    """Carry out *plan* and return every run's figures, in the order they were taken."""
    broker_cpus, client_cpus = split_cpus() if plan.is_pinned else (None, None)
    samples: list[Sample] = []
    with ExitStack() as stack:
        both = [stack.enter_context(contender(system, plan.work_dir, broker_cpus)) for system in plan.systems]
        # Not counted: a Java machine compiles meanwhile, and every broker opens its first files.
        warm_up = replace(plan, batched=min(plan.batched, 2_000_000), single=min(plan.single, 50_000))
        _round(both, warm_up, client_cpus, 0)
        for number in range(1, plan.rounds + 1):
            samples += _round(both if number % 2 else both[::-1], plan, client_cpus, number)
    return samples


def _round(
    contenders: Sequence[Contender], plan: Plan, client_cpus: frozenset[int] | None, number: int
) -> list[Sample]:
    """Give every row to every broker in turn; a consumer reads the topic that the row before it filled."""
    samples: list[Sample] = []
    topics: list[str] = []
    for row in ROWS:
        if row.acks is not None:
            topics.append(f"paper-{number}-{row.label}")
            for one in contenders:
                one.begin(topics[-1])
        for one in contenders:
            sample = measure(one, row, topics[-1], plan.count(row), SIZE_BYTES, client_cpus, number)
            assert sample is not None, f"{one.name} has every row"
            samples.append(sample)
            print(sample, flush=True)
    for one in contenders:
        for topic in topics:
            one.end(topic)
    return samples


def split_cpus() -> tuple[frozenset[int], frozenset[int]]:
    """Return a core for the broker and another for its client."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise SystemExit("pinning wants two cores; --no-pin measures without")
    return frozenset(cpus[:1]), frozenset(cpus[1:2])


def report(plan: Plan, samples: Sequence[Sample], csv_name: str) -> str:
    """Return the page that tells the medians."""
    return _REPORT.format(
        size=SIZE_BYTES,
        pylog=version("pylog-cluster"),
        python=platform.python_version(),
        kafka=KAFKA_VERSION,
        rounds=plan.rounds,
        batched=plan.batched,
        single=plan.single,
        cores=os.cpu_count(),
        pinning="broker and client pinned to one each" if plan.is_pinned else "nothing pinned",
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        csv_name=csv_name,
        table=table(samples, "pylog", "kafka"),
        noisy=noisy(samples),
        runs=len(samples),
        noisy_cores=NOISY_CORES,
        pylog_memory=memory(samples, "pylog"),
        kafka_memory=memory(samples, "kafka"),
    )


def _plan(arguments: Sequence[str]) -> tuple[Plan, bool]:
    parser = argparse.ArgumentParser(
        prog="python -m bench.paper.paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--systems", nargs="+", choices=("pylog", "kafka"), default=("pylog", "kafka"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batched", type=int, default=5_500_000, help="messages a run in batches of 50: 1.1 GB")
    parser.add_argument("--single", type=int, default=200_000, help="messages a run in batches of one")
    parser.add_argument("--pin", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    parser.add_argument("--work-dir", type=Path, default=WORK_DIR)
    options = parser.parse_args(arguments)
    plan = Plan(
        systems=tuple(options.systems),
        rounds=options.rounds,
        batched=options.batched,
        single=options.single,
        is_pinned=options.pin,
        work_dir=options.work_dir,
    )
    return plan, options.write


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print its table and keep its results."""
    plan, keeps_results = _plan(arguments)
    samples = run(plan)
    csv_name = f"paper-{datetime.now(UTC):%Y-%m-%d}.csv"
    page = report(plan, samples, csv_name)
    if keeps_results:
        write_samples(_DOCS / "results" / csv_name, samples)
        target = _DOCS / "bench" / "paper.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text(page)
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

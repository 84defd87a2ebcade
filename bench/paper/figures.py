"""The paper's figures 4 and 5 again: producer and consumer beside Apache Kafka, RabbitMQ and ActiveMQ.

All four brokers run all the time; each row goes to one after the other, and who begins changes with every round.

python -m bench.paper.figures                     what counts: 3 rounds, some 12 minutes, nobody else at work
python -m bench.paper.figures --rounds 1 --batched 200000 --single 20000 --no-pin --no-write    does it run at all?
"""

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime

from bench.harness import pages
from bench.harness.clients import WORK_DIR
from bench.harness.contenders import SYSTEMS, Contender, contender, measure
from bench.harness.measure import Row, Sample, write_samples
from bench.harness.report import NOISY_CORES, label_in_words, noisy
from bench.paper.paper import SIZE_BYTES, split_cpus

# Each producing row is followed by one that consumes what it wrote.
PRODUCE = (
    Row(label="p1a0", batch=1, acks=0),
    Row(label="p1a1", batch=1, acks=1),
    Row(label="p50a0", batch=50, acks=0),
    Row(label="p50a1", batch=50, acks=1),
)
_PAGE = """\
# Figures 4 and 5 of the paper, again

"Kafka: a Distributed Messaging System for Log Processing" (NetDB 2011) compared one producer and one consumer with
ActiveMQ and RabbitMQ, {size}-byte messages. The same with today's versions on one machine: medians of {rounds} rounds
of {batched:,} messages in batches of 50 and {single:,} in batches of one, {cores} cores, {pinning}, {day}. Every run:
[{csv_name}](../results/{csv_name}); {noisy} of {runs} runs saw more than {noisy_cores} of a core at work elsewhere.

![producer](figure4.svg)

![consumer](figure5.svg)

{table}

CPU s/M: the broker's CPU seconds per million messages. How each system is set up:

- pylog and Apache Kafka: their defaults, no replication, no flush; librdkafka with fetches of 200 KB.
- RabbitMQ: one durable classic queue, persistent messages, PerfTest; acks=1 is publisher confirms, a thousand of them
  outstanding; the consumer acknowledges automatically. It has no batches.
- ActiveMQ: one queue over KahaDB, flushed now and then as in the paper, its Java client; acks=0 is asynchronous
  sending, with acks=1 each message waits for its answer, since the client knows nothing between the two. It has no
  batches either.

Again: `make bench BENCH=figures`.
"""


def run(systems: Sequence[str], rounds: int, batched: int, single: int, is_pinned: bool) -> list[Sample]:
    """Return every run's figures, in the order they were taken."""
    broker_cpus, client_cpus = split_cpus() if is_pinned else (None, None)
    samples: list[Sample] = []
    with ExitStack() as stack:
        everyone = [stack.enter_context(contender(name, WORK_DIR, broker_cpus)) for name in systems]
        _round(everyone, 0, batched // 4, single // 4, client_cpus)  # not counted: Java machines compile meanwhile
        for number in range(1, rounds + 1):
            turn = number % len(everyone)
            samples += _round(everyone[turn:] + everyone[:turn], number, batched, single, client_cpus)
    return samples


def _round(
    everyone: Sequence[Contender], number: int, batched: int, single: int, cpus: frozenset[int] | None
) -> list[Sample]:
    samples: list[Sample] = []
    for row in PRODUCE:
        queue = f"figures-{number}-{row.label}"
        for one in everyone:
            count = batched if row.batch > 1 else single
            one.begin(queue)
            produced = measure(one, row, queue, count, SIZE_BYTES, cpus, number)
            if produced is not None:
                consume = Row(label=f"c{row.batch}", batch=row.batch, acks=None)
                consumed = measure(one, consume, queue, count - produced.lost, SIZE_BYTES, cpus, number)
                assert consumed is not None, "what can be written can be read"
                samples += (produced, consumed)
                print(produced, consumed, sep="\n", flush=True)
            one.end(queue)
    return samples


def _medians(samples: Sequence[Sample]) -> dict[tuple[str, str], tuple[float, float]]:
    runs: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        runs.setdefault((sample.label, sample.system), []).append(sample)
    return {
        key: (statistics.median(one.rate for one in found), statistics.median(one.cpu_s_per_million for one in found))
        for key, found in sorted(runs.items())
    }


def table(samples: Sequence[Sample]) -> str:
    """Return the Markdown table of medians."""
    rows = ["| row | system | msgs/s | broker CPU s/M |", "|---|---|--:|--:|"]
    rows += [
        f"| {_row_in_words(label)} | {system} | {rate:,.0f} | {cpu:.2f} |"
        for (label, system), (rate, cpu) in _medians(samples).items()
    ]
    return "\n".join(rows)


def _row_in_words(label: str) -> str:
    return label_in_words(label) + (f", batches of {label[1:]}" if label[0] == "c" else "")


def draw(samples: Sequence[Sample]) -> None:
    """Draw figures 4 and 5."""
    medians = _medians(samples)
    for name, kind, title in (("figure4", "p", "Producer"), ("figure5", "c", "Consumer")):
        values = {
            f"{system}, {_row_in_words(label).split(', ', 1)[1]}": rate
            for (label, system), (rate, _) in medians.items()
            if label[0] == kind
        }
        pages.bars(name, title, "messages a second", dict(sorted(values.items(), key=lambda item: -item[1])))


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print its table and keep its results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.paper.figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batched", type=int, default=2_000_000)
    parser.add_argument("--single", type=int, default=100_000)
    parser.add_argument("--pin", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    options = parser.parse_args(arguments)
    samples = run(options.systems, options.rounds, options.batched, options.single, options.pin)
    csv_name = pages.result_name("figures")
    if options.write:
        write_samples(pages.RESULTS / csv_name, samples)
        draw(samples)
        pages.write_page(
            "figures",
            _PAGE.format(
                size=SIZE_BYTES,
                rounds=options.rounds,
                batched=options.batched,
                single=options.single,
                cores=os.cpu_count(),
                pinning="brokers and clients pinned to one each" if options.pin else "nothing pinned",
                day=f"{datetime.now(UTC):%Y-%m-%d}",
                csv_name=csv_name,
                noisy=noisy(samples),
                runs=len(samples),
                noisy_cores=NOISY_CORES,
                table=table(samples),
            ),
        )
    print(table(samples))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Two brokers by turns: who begins changes with every round, so that what disturbs the machine disturbs both."""

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol, TypeVar

from bench.harness.clients import WORK_DIR
from bench.harness.contenders import KafkaLike, contender

SYSTEMS = ("pylog", "kafka")


class Run(Protocol):
    """What one round of one system showed."""

    @property
    def system(self) -> str:
        """One of `SYSTEMS`."""


RunT = TypeVar("RunT", bound=Run)


def by_turns(rounds: int, measure: Callable[[KafkaLike, int], RunT], broker_cpus: frozenset[int] | None) -> list[RunT]:
    """Return what *measure* found in each round, which it is told; round 0 warms up and is left out.

    A Java machine compiles in its first round, and every broker opens its first files.
    """
    found: list[RunT] = []
    with ExitStack() as stack:
        both = [stack.enter_context(contender(system, WORK_DIR, broker_cpus)) for system in SYSTEMS]
        for number in range(rounds + 1):
            for one in both if number % 2 else both[::-1]:
                assert isinstance(one, KafkaLike), "both speak Kafka's protocol"
                run = measure(one, number)
                print(run, flush=True)
                if number:
                    found.append(run)
    return found


def table(found: Sequence[Run], figures: Sequence[tuple[str, str, str]]) -> str:
    """Return a row for each of *figures*, which are (what, attribute, format): both medians, and the median ratio."""
    rows = ["| | pylog | kafka | ratio |", "|---|--:|--:|--:|"]
    for what, name, form in figures:
        ours, theirs = ([getattr(run, name) for run in found if run.system == system] for system in SYSTEMS)
        ratio = statistics.median(our / their for our, their in zip(ours, theirs, strict=True))
        rows.append(f"| {what} | {statistics.median(ours):{form}} | {statistics.median(theirs):{form}} | {ratio:.2f} |")
    return "\n".join(rows)

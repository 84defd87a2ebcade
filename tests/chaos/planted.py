"""Faults planted into brokers, so that it is known what the checker finds; and `pylog` with one of them in it.

    python -m tests.chaos.planted NAME broker --config=...        (NAME: a planted fault, or one of tests.sim.mutants)

A promise that two places of the code keep is broken in both.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos import checker
from tests.sim.mutants import Mutant, find, install


@dataclass(frozen=True, slots=True)
class Planted:
    """One fault of the product.

    Attributes:
        what: the fault in words, for the page.
        mutants: what is changed.
        kinds: of violations; the checker must find one of these.
    """

    name: str
    what: str
    mutants: Sequence[Mutant]
    kinds: frozenset[str]


PLANTED: Sequence[Planted] = (
    Planted(
        "acknowledge-before-replication",
        "a leader acknowledges what no follower has yet",
        (find("acknowledge-before-the-isr-has-it"),),
        frozenset({checker.LOST}),
    ),
    Planted(
        "truncate-by-the-wrong-epoch",
        "a follower cuts its log where its own epoch ends, wherever the leader's ends",
        (find("cut-where-ones-own-epoch-ends"),),
        frozenset({checker.DIVERGED, checker.INCONSISTENT, checker.LOST}),
    ),
    Planted(
        "know-logs-by-name",
        "a topic that is made again takes over the log of the deleted one",
        (
            Mutant(
                "clean-up-nothing",
                "broker/data/partitions.py",
                "Partitions._clean_up",
                "for key in self._directory.on_disk():",
                "for key in ():",
            ),
            Mutant(
                "open-whatever-has-the-name",
                "log/directory.py",
                "LogDirectory._get_or_create",
                "if path.exists() and known_id != topic_id and (not (known_id is None and _is_empty(path))):",
                "if False:",
            ),
        ),
        frozenset({checker.FOREIGN}),
    ),
    Planted(
        "keep-offsets-of-a-deleted-topic",
        "a group goes on in a topic that was made again where it was in the deleted one",
        (
            Mutant(
                "no-offset-is-of-another-topic",
                "broker/groups/offsets.py",
                "ShardOffsets._is_orphan",
                "return committed.topic_id is None or committed.topic_id != self._topic_id(key[0])",
                "return False",
            ),
        ),
        frozenset({checker.UNSEEN}),
    ),
    Planted(
        "followers-keep-deleted-records",
        "followers do not move their log's start, and DeleteRecords does not wait for them",
        (
            Mutant(
                "leave-the-start-where-it-is",
                "broker/data/replication.py",
                "Replication._append",
                "if result.log_start_offset > log.log_start_offset:",
                "if False:",
            ),
            find("answer-a-deletion-before-the-followers-know"),
        ),
        frozenset({checker.RETURNED}),
    ),
    Planted(
        "store-a-repeated-batch",
        "a leader appends a batch that an idempotent producer sends again",
        (find("store-a-batch-twice"),),
        frozenset({checker.DOUBLED}),
    ),
    Planted(
        "compact-the-last-value-away",
        "compaction removes the last record of a key",
        (find("compact-the-last-record-of-a-key-away"),),
        frozenset({checker.COMPACTED_AWAY}),
    ),
)


def mutants(name: str) -> Sequence[Mutant]:
    """Return what the fault of this name changes.

    Raises:
        ValueError: neither the list above nor `tests.sim.mutants` has it.
    """
    for planted in PLANTED:
        if planted.name == name:
            return planted.mutants
    return (find(name),)


if __name__ == "__main__":
    for mutant in mutants(sys.argv.pop(1)):
        install(mutant)
    from pylog.__main__ import main

    main()

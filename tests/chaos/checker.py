"""Is what clients saw possible with a log that keeps its promises?  Pure functions over histories; knows no broker.

The list is that of Jepsen's tests of Kafka-like logs: lost writes, duplicates, reordered writes, inconsistent offsets,
unseen writes, polls that skip or go back; and besides records of another incarnation of a topic, committed offsets that
go back, deleted records that can be read again, compacted keys whose last value is gone, and replicas that differ.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.history import UNKNOWN_OFFSET, Ack, Commit, Reading, Row

TOLD = 5
"""So many examples of one kind and partition are told, the rest is counted."""

LOST = "lost"
DOUBLED = "doubled"
REORDERED = "reordered"
INCONSISTENT = "inconsistent offset"
UNSEEN = "unseen"
SKIPPED = "skipped by a poll"
WENT_BACK = "poll went back"
COMMIT_WENT_BACK = "commit went back"
FOREIGN = "foreign"
RETURNED = "trimmed record is back"
COMPACTED_AWAY = "last value of a key gone"
DIVERGED = "replicas differ"
KINDS = (
    LOST,
    DOUBLED,
    REORDERED,
    INCONSISTENT,
    UNSEEN,
    SKIPPED,
    WENT_BACK,
    COMMIT_WENT_BACK,
    FOREIGN,
    RETURNED,
    COMPACTED_AWAY,
    DIVERGED,
)


class Violation(NamedTuple):
    """What cannot be.

    Attributes:
        kind: one of `KINDS`.
        where: the partition, as ``topic-number`` or with its incarnation.
        what: what was seen.
    """

    kind: str
    where: str
    what: str


def check_log(
    where: str, acks: Sequence[Ack], rows: Sequence[Row], *, begin: int = 0, gave_up: Set[str] = frozenset()
) -> list[Violation]:
    """Compare one log with what its producers were told.

    Args:
        where: the partition.
        acks: of this partition and incarnation, in any order.
        rows: of the whole log, in its order.
        begin: records below this offset may have been deleted on request.
        gave_up: producers of whose records one failed.  Such a producer begins a new epoch and sends what was on its
            way with the record once more, so it may double that.
    """
    return [
        *_told(LOST, where, lost(acks, rows, begin)),
        *_told(DOUBLED, where, doubled([row for row in rows if row.producer not in gave_up])),
        *_told(REORDERED, where, reordered(acks, rows)),
        *_told(INCONSISTENT, where, inconsistent(acks, rows)),
    ]


def check_compacted(
    where: str, acks: Sequence[Ack], rows: Sequence[Row], keys: int, *, gave_up: Set[str] = frozenset()
) -> list[Violation]:
    """Compare a compacted log with what its producers were told; the key of a record is its number modulo *keys*."""
    return [
        *_told(COMPACTED_AWAY, where, compacted_away(acks, rows, keys)),
        *_told(DOUBLED, where, doubled([row for row in rows if row.producer not in gave_up])),
        *_told(REORDERED, where, reordered(acks, rows)),
        *_told(INCONSISTENT, where, inconsistent(acks, rows)),
    ]


def check_group(
    where: str, rows: Sequence[Row], readings: Sequence[Reading], commits: Sequence[Commit], *, begin: int = 0
) -> list[Violation]:
    """Compare what a group read of one log with the log.

    Args:
        where: the partition, with the group's name.
        rows: of the whole log.
        readings: of all its members.
        commits: of all its members.
        begin: records below this offset may have been deleted before the group read them.
    """
    kept = [row for row in rows if row.offset >= begin]
    return [
        *_told(UNSEEN, where, unseen(kept, readings)),
        *_told(SKIPPED, where, skipped(kept, readings)),
        *_told(WENT_BACK, where, went_back(readings)),
        *_told(COMMIT_WENT_BACK, where, commit_went_back(readings, commits)),
        *_told(INCONSISTENT, where, misread(rows, readings)),
    ]


def check_lived_through(where: str, rows: Sequence[Row], readings: Sequence[Reading]) -> list[Violation]:
    """Look for records of one incarnation that no member of a group read which lives through all of them.

    Args:
        where: the partition and its incarnation.
        rows: of this incarnation, up to an end that the group had committed before the deletion was asked for.
        readings: of all incarnations: an offset alone does not say whose record was read.
    """
    read = {row for reading in readings for row in reading.rows}
    missing = [row for row in rows if row not in read]
    return _told(UNSEEN, where, [f"{row.producer} {row.number} at offset {row.offset}" for row in missing])


def lost(acks: Sequence[Ack], rows: Sequence[Row], begin: int = 0) -> list[str]:
    """Return acknowledged records that are not in the log, but for those that may lie below *begin*."""
    there = {(row.producer, row.number) for row in rows}
    missing = []
    least: dict[str, int] = {}
    for ack in sorted(acks, key=lambda ack: (ack.producer, ack.number)):
        # A copy's acknowledgement does not say where the record is: behind the one before it.
        offset = ack.offset if ack.offset != UNKNOWN_OFFSET else least.get(ack.producer, -1) + 1
        least[ack.producer] = max(offset, least.get(ack.producer, -1))
        if offset >= begin and (ack.producer, ack.number) not in there:
            missing.append(f"{ack.producer} {ack.number} acknowledged at offset {ack.offset}, {ack.done_ms} ms")
    return missing


def doubled(rows: Sequence[Row]) -> list[str]:
    """Return records that are in the log more than once."""
    counts = Counter((row.producer, row.number) for row in rows)
    return [f"{producer} {number} is there {count} times" for (producer, number), count in counts.items() if count > 1]


def reordered(acks: Sequence[Ack], rows: Sequence[Row]) -> list[str]:
    """Return acknowledged records that stand behind a later one of the same producer; copies count by the first."""
    left = {(ack.producer, ack.number) for ack in acks}
    highest: dict[str, int] = {}
    wrong = []
    for row in rows:
        if (row.producer, row.number) not in left:
            continue
        left.remove((row.producer, row.number))
        before = highest.get(row.producer, -1)
        if row.number < before:
            wrong.append(f"{row.producer} {row.number} at offset {row.offset} behind {before}")
        highest[row.producer] = max(before, row.number)
    return wrong


def inconsistent(acks: Sequence[Ack], rows: Sequence[Row]) -> list[str]:
    """Return offsets at which the log has another record than was acknowledged there, or two."""
    at: dict[int, tuple[str, int]] = {}
    wrong = []
    for row in rows:
        other = at.setdefault(row.offset, (row.producer, row.number))
        if other != (row.producer, row.number):
            wrong.append(f"offset {row.offset} has {other} and {(row.producer, row.number)}")
    for ack in acks:
        there = at.get(ack.offset, (ack.producer, ack.number))
        if there != (ack.producer, ack.number):
            wrong.append(f"offset {ack.offset} acknowledged for {ack.producer} {ack.number} has {there}")
    return wrong


def misread(rows: Sequence[Row], readings: Sequence[Reading]) -> list[str]:
    """Return what a group read at an offset at which the log has another record."""
    at = {row.offset: row for row in rows}
    return [
        f"{reading.member} read {row.producer} {row.number} at offset {row.offset}, the log has {at[row.offset]}"
        for reading in readings
        for row in reading.rows
        if at.get(row.offset, row) != row
    ]


def unseen(rows: Sequence[Row], readings: Sequence[Reading]) -> list[str]:
    """Return records that no member of the group read."""
    seen = {row.offset for reading in readings for row in reading.rows}
    return [f"{row.producer} {row.number} at offset {row.offset}" for row in rows if row.offset not in seen]


def skipped(rows: Sequence[Row], readings: Sequence[Reading]) -> list[str]:
    """Return records that a member jumped over between two polls of one reading."""
    offsets = [row.offset for row in rows]
    place = {offset: index for index, offset in enumerate(offsets)}
    wrong = []
    for reading in readings:
        for before, after in pairwise(reading.rows):
            if before.offset + 1 == after.offset or before.offset not in place or after.offset not in place:
                continue
            between = place[after.offset] - place[before.offset] - 1
            if between > 0:
                wrong.append(f"{reading.member} jumped from {before.offset} to {after.offset} over {between} records")
    return wrong


def went_back(readings: Sequence[Reading]) -> list[str]:
    """Return polls that did not go forward within one reading."""
    return [
        f"{reading.member} read {after.offset} after {before.offset}"
        for reading in readings
        for before, after in pairwise(reading.rows)
        if after.offset <= before.offset
    ]


def commit_went_back(readings: Sequence[Reading], commits: Sequence[Commit]) -> list[str]:
    """Return readings that began below what the group had been told is committed before they began."""
    wrong = []
    for reading in readings:
        if not reading.rows:
            continue
        first = reading.rows[0].offset
        before = max((commit.offset for commit in commits if commit.time_ms < reading.begin_ms), default=0)
        if first < before:
            wrong.append(f"{reading.member} began at {first}, committed before was {before}")
    return wrong


def foreign(acks: Iterable[Ack], deleted_ms: int, rows: Sequence[Row]) -> list[str]:
    """Return records of a topic that were acknowledged before its deletion was asked for and are in a later one.

    Args:
        acks: of the deleted topic's partition.
        deleted_ms: when the deletion was asked for.
        rows: of the same partition of the topic that was made afterwards.
    """
    gone = {(ack.producer, ack.number) for ack in acks if ack.done_ms < deleted_ms}
    return [f"{row.producer} {row.number} at {row.offset}" for row in rows if (row.producer, row.number) in gone]


def returned(rows: Sequence[Row], trimmed: int) -> list[str]:
    """Return records below *trimmed*, up to where the deletion of records was answered without an error."""
    return [
        f"{row.producer} {row.number} at offset {row.offset} below {trimmed}" for row in rows if row.offset < trimmed
    ]


def compacted_away(acks: Sequence[Ack], rows: Sequence[Row], keys: int) -> list[str]:
    """Return keys whose last acknowledged value, and any later one, is not in the log."""
    last: dict[int, Ack] = {}
    for ack in acks:
        key = ack.number % keys
        if ack.offset != UNKNOWN_OFFSET and ack.offset >= last.get(key, ack).offset:
            last[key] = ack
    newest: dict[int, int] = defaultdict(lambda: -1)
    for row in rows:
        newest[row.number % keys] = max(newest[row.number % keys], row.offset)
    return [
        f"key {key}: {ack.producer} {ack.number} acknowledged at {ack.offset}, newest is at {newest[key]}"
        for key, ack in sorted(last.items())
        if newest[key] < ack.offset
    ]


def diverged(replicas: Mapping[int, Mapping[int, str]]) -> list[str]:
    """Return batches in which replicas of one partition differ.

    Args:
        replicas: by broker the batches that all of them should have: base offset to a digest of the bytes.
    """
    wrong = []
    for offset in sorted({offset for batches in replicas.values() for offset in batches}):
        digests = {broker: batches.get(offset, "nothing") for broker, batches in replicas.items()}
        if len(set(digests.values())) > 1:
            wrong.append(f"batch at {offset}: {digests}")
    return wrong


def check_replicas(where: str, replicas: Mapping[int, Mapping[int, str]]) -> list[Violation]:
    """Compare the replicas of one partition; see `diverged`."""
    return _told(DIVERGED, where, diverged(replicas))


def check_foreign(where: str, acks: Iterable[Ack], deleted_ms: int, rows: Sequence[Row]) -> list[Violation]:
    """Look for records of a deleted topic; see `foreign`."""
    return _told(FOREIGN, where, foreign(acks, deleted_ms, rows))


def check_trimmed(where: str, rows: Sequence[Row], starts: Mapping[int, int], trimmed: int) -> list[Violation]:
    """Look for deleted records, those that can be read and those that could be if another replica led.

    Args:
        where: the partition.
        rows: of the whole log as its leader has it.
        starts: by broker where its replica begins.
        trimmed: up to here the deletion of records was answered without an error.
    """
    early = [
        f"broker {broker} begins at {start} below {trimmed}" for broker, start in starts.items() if start < trimmed
    ]
    return _told(RETURNED, where, [*returned(rows, trimmed), *early])


def longest_pauses_ms(acks: Sequence[Ack], begin_ms: int, end_ms: int) -> list[int]:
    """Return the times between acknowledgements of one partition, longest first, from *begin_ms* to *end_ms*."""
    times = [begin_ms, *sorted(ack.done_ms for ack in acks if begin_ms <= ack.done_ms <= end_ms), end_ms]
    return sorted((after - before for before, after in pairwise(times)), reverse=True)


def _told(kind: str, where: str, wrong: Sequence[str]) -> list[Violation]:
    told = [Violation(kind, where, what) for what in wrong[:TOLD]]
    if len(wrong) > TOLD:
        told.append(Violation(kind, where, f"and {len(wrong) - TOLD} more"))
    return told

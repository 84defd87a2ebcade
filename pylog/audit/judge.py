"""Is everything there, and if not, what is missing where.  Decides; waits for nothing, time comes in.

A window of stamped records is judged at a tier once the producer said what it had sent in it, and the tier, and each
before it, has everything that was there the lateness after that.  Until then it is *pending*: a mirror that is behind,
or a link that is cut, is late and loses nothing.

Records without a stamp are followed from the cluster on that they were first written to, by topic id, partition and
offset: once a tier has everything that was there when such a record had been counted, and the lateness after that, it
must have the record.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

from pylog.audit.counting import WindowCount, window_of
from pylog.audit.ledger import Ledger, Mark
from pylog.audit.reports import FOR_EVER_MS, Tier
from pylog.audit.sequences import Range, Sequences

MAX_NAMED_RANGES = 10


class Kind(StrEnum):
    """What is the matter."""

    LOST = "lost"
    DOUBLED = "doubled"
    ALTERED = "altered"
    UNKNOWN = "unknown"
    """The producer was killed before it said what it sent in the window, or that report is missing, so nobody can say
    that all of it arrived; what did is followed from there on."""
    COMPACTED = "compacted"
    """Missing, of a topic whose log may drop what a later record of the same key replaces."""


ALARMS = frozenset({Kind.LOST, Kind.ALTERED})
"""Copies are what at-least-once promises, and a killed producer and compaction are no losses: told, but no alarm."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        window_ms: when the window begins.
        topic: which.
        tier: the first tier at which it shows.
        producer: instance; empty for records that are followed by offset.
        host: of the producer.
        kind: what.
        count: how many records.
        ranges: the first of their numbers, or offsets.
        topic_id: of the topic that the offsets are of; empty for numbers.
        partition: that the offsets are of; -1 for numbers.
        found_in: the tier whose log the offsets are of; None for numbers.
    """

    window_ms: int
    topic: str
    tier: Tier
    producer: str
    host: str
    kind: Kind
    count: int
    ranges: tuple[Range, ...] = ()
    topic_id: str = ""
    partition: int = -1
    found_in: Tier | None = None

    @property
    def is_alarm(self) -> bool:
        """Whether somebody should be woken."""
        return self.kind in ALARMS


@dataclass(slots=True)
class WindowRow:
    """One window of a topic, all producers together.

    Attributes:
        window_ms: when it begins.
        produced: records the producers say they sent.
        arrived: distinct records by tier.
        doubled: copies by tier.
        pending: tiers that cannot be judged yet.
    """

    window_ms: int
    produced: int = 0
    arrived: dict[Tier, int] = field(default_factory=dict)
    doubled: dict[Tier, int] = field(default_factory=dict)
    pending: set[Tier] = field(default_factory=set)


@dataclass(slots=True)
class Passage:
    """All records of a topic, stamped or not, as far as they are followed by offset.

    Attributes:
        seen: how many each tier has of those that it must have by now.
        due: how many those are.
        pending: tiers that are behind what was counted last.
    """

    seen: dict[Tier, int] = field(default_factory=dict)
    due: dict[Tier, int] = field(default_factory=dict)
    pending: set[Tier] = field(default_factory=set)


@dataclass(slots=True)
class Judgement:
    """All windows of all topics."""

    at_ms: int
    window_ms: int
    rows: dict[str, list[WindowRow]] = field(default_factory=dict)
    passages: dict[str, Passage] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def between(self, from_ms: int, to_ms: int) -> "Judgement":
        """Return the windows that begin at *from_ms* or later and before *to_ms*."""
        rows = {
            topic: kept
            for topic, found in self.rows.items()
            if (kept := [row for row in found if from_ms <= row.window_ms < to_ms])
        }
        findings = [one for one in self.findings if from_ms <= one.window_ms < to_ms]
        return Judgement(self.at_ms, self.window_ms, rows, self.passages, findings)

    def only(self, topics: Collection[str]) -> "Judgement":
        """Return what is about *topics*."""
        return Judgement(
            self.at_ms,
            self.window_ms,
            {topic: rows for topic, rows in self.rows.items() if topic in topics},
            {topic: passage for topic, passage in self.passages.items() if topic in topics},
            [one for one in self.findings if one.topic in topics],
        )

    def unknown(self, topics: Collection[str]) -> list[str]:
        """Return, as text, what nobody can tell yet: tiers that wait, and *topics* of which nothing was counted."""
        said = [
            f"topic {topic}: no record was counted"
            for topic in topics
            if topic not in self.rows and topic not in self.passages
        ]
        said += [
            f"topic {one.topic}: producer {one.producer} on {one.host} ended without its closing count, or a report of "
            "it is missing"
            for one in self.findings
            if one.kind is Kind.UNKNOWN
        ]
        for topic, rows in self.rows.items():
            waiting = sorted({tier for row in rows for tier in row.pending})
            said += [f"topic {topic}: tier {tier} is not counted to the end" for tier in waiting]
            if not any(row.arrived or row.pending for row in rows):
                said.append(f"topic {topic}: no tier behind the producer is counted")
        return said

    @property
    def alarms(self) -> list[Finding]:
        """The findings that somebody should be woken for."""
        return [one for one in self.findings if one.is_alarm]


def judge(ledger: Ledger, now_ms: int, window_ms: int, lateness_ms: int) -> Judgement:
    """Compare every tier with those before it.

    Args:
        ledger: all reports.
        now_ms: the time.
        window_ms: how long a window is.
        lateness_ms: how much later than its window a record, or a clock, may be.
    """
    result = Judgement(now_ms, window_ms)
    for topic in ledger.topics():
        rows: dict[int, WindowRow] = {}
        tiers = [one for one in ledger.tiers(topic) if one is not Tier.PRODUCER]
        complete_ms: dict[Tier, int] = {one: ledger.complete_ms(topic, one) for one in tiers}
        for (producer, window), seen in sorted(_everything(ledger, topic).items(), key=lambda one: one[0][::-1]):
            row = rows.setdefault(window, WindowRow(window))
            end_ms = window + window_ms + lateness_ms
            state = ledger.producers(topic).get(producer)
            known_ms = None if state is None else state.known_ms(window, window + window_ms)
            result.findings += _judge_window(
                topic,
                producer,
                window,
                seen,
                row,
                due_ms=end_ms if known_ms is None else known_ms + lateness_ms,
                is_known=known_ms is not None,
                is_over=now_ms >= end_ms,
                complete_ms=complete_ms,
                settled_ms={
                    tier: ledger.counts(topic, tier).changed_ms.get((producer, window), 0) + lateness_ms
                    for tier in tiers
                },
            )
        if rows:  # readers also see topics that nobody stamps
            result.rows[topic] = [row for _, row in sorted(rows.items())]
        passage, missing = _judge_places(ledger, topic, complete_ms, window_ms, lateness_ms)
        if passage.due:
            result.passages[topic] = passage
            # Where every record has a stamp, each loss is named by its number already.
            result.findings += missing if any(ledger.counts(topic, tier).unstamped for tier in tiers) else []
    if any(ledger.is_compacted(topic) for topic in result.passages | result.rows):
        result.findings = [
            replace(one, kind=Kind.COMPACTED) if one.kind is Kind.LOST and ledger.is_compacted(one.topic) else one
            for one in result.findings
        ]
    result.findings.sort()
    return result


def _judge_places(
    ledger: Ledger, topic: str, complete_ms: Mapping[Tier, int], window_ms: int, lateness_ms: int
) -> tuple[Passage, list[Finding]]:
    """Return how far a topic's records are, each named by where it was first written, and what is missing.

    Args:
        ledger: all reports.
        topic: which.
        complete_ms: up to when each tier behind the producer has everything, in the order in which records pass.
        window_ms: how long a window is.
        lateness_ms: how much the clocks of two servers may differ.
    """
    passage, findings = Passage(), []
    for topic_id, first in ledger.topic_ids(topic).items():
        marks = [one for one in ledger.counts(topic, first).marks if one.topic_id == topic_id]
        from_mark = next((one for one in reversed(marks) if one.at_ms <= ledger.from_ms), None)
        tiers = list(complete_ms)[list(complete_ms).index(first) :]
        until_ms = complete_ms[first]
        for before, tier in pairwise(tiers):
            until_ms = min(until_ms, complete_ms[tier])
            due = next((one for one in reversed(marks) if one.at_ms + lateness_ms <= until_ms), None)
            if due is not marks[-1]:
                passage.pending.add(tier)
            for partition in ledger.counts(topic, before).places.partitions(topic_id):
                start = from_mark.offsets.get(partition, 0) if from_mark is not None else 0
                end = due.offsets.get(partition, 0) if due is not None else 0
                wanted, here = _followed(ledger, topic, before, tier, topic_id, partition, start, end)
                missing = wanted.without(here)
                passage.due[tier] = passage.due.get(tier, 0) + len(wanted)
                passage.seen[tier] = passage.seen.get(tier, 0) + len(wanted) - len(missing)
                for window, ranges in _by_window(missing, marks, partition, window_ms).items():
                    findings.append(
                        Finding(window, topic, tier, "", "", Kind.LOST, len(ranges), _named(ranges.ranges()), topic_id,
                                partition, first)
                    )  # fmt: skip
    return passage, findings


def _followed(
    ledger: Ledger, topic: str, before: Tier, tier: Tier, topic_id: str, partition: int, start: int, end: int
) -> tuple[Sequences, Sequences]:
    """Return the offsets that a tier must have, and those that it has."""
    above = ledger.counts(topic, before).places.of(topic_id, partition)
    places = ledger.counts(topic, tier).places
    here = places.of(topic_id, partition)
    if here is None:
        own = places.of(ledger.counts(topic, tier).topic_id or "", partition)
        # It has not met one.  Whoever began in the middle of its log may have passed over them.
        here = (0 if own is not None and own[0] == 0 else FOR_EVER_MS), Sequences()
    if above is None:
        return Sequences(), here[1]
    return above[1].between(max(start, above[0], here[0]), end), here[1]


def _by_window(missing: Sequences, marks: Sequence[Mark], partition: int, window_ms: int) -> dict[int, Sequences]:
    """Return offsets by the window in which their first reader reported them."""
    found: dict[int, Sequences] = {}
    for first, last in missing.ranges():
        at_ms = next((one.at_ms for one in marks if one.offsets.get(partition, 0) > first), marks[-1].at_ms)
        found.setdefault(window_of(at_ms, window_ms), Sequences()).add_range(first, last)
    return found


def _everything(ledger: Ledger, topic: str) -> dict[tuple[str, int], dict[Tier, WindowCount]]:
    found: dict[tuple[str, int], dict[Tier, WindowCount]] = {}
    for tier in ledger.tiers(topic):
        for key, count in ledger.counts(topic, tier).windows.items():
            found.setdefault(key, {})[tier] = count
    return found


def _judge_window(
    topic: str,
    producer: str,
    window: int,
    seen: Mapping[Tier, WindowCount],
    row: WindowRow,
    *,
    due_ms: int,
    is_known: bool,
    is_over: bool,
    complete_ms: Mapping[Tier, int],
    settled_ms: Mapping[Tier, int],
) -> Iterator[Finding]:
    """Yield what is wrong with one producer's window, and add it to the row.

    Args:
        topic: which.
        producer: which.
        window: which.
        seen: its counts by tier.
        row: of all producers.
        due_ms: a tier that has everything as of this time must have what was sent in it.
        is_known: whether the producer said what it sent in it.
        is_over: whether the window is over, lateness included.
        complete_ms: up to when each tier behind the producer has everything, in the order in which records pass.
        settled_ms: when a tier last counted some of it, and the lateness: a clock that is behind says that the window
            was over long before.
    """
    host = next(iter(seen.values())).host
    base = seen.get(Tier.PRODUCER) if is_known else None
    if not is_known and is_over:
        counted = max((len(one.sequences) for one in seen.values()), default=0)
        yield Finding(window, topic, Tier.PRODUCER, producer, host, Kind.UNKNOWN, counted)
    if base is not None:
        row.produced += len(base.sequences)
    upstream = Sequences(base.sequences.ranges()) if base is not None else Sequences()
    doubled = 0
    is_behind = False
    for tier, tier_complete_ms in complete_ms.items():
        count = seen.get(tier) or WindowCount(host)
        row.arrived[tier] = row.arrived.get(tier, 0) + len(count.sequences)
        row.doubled[tier] = row.doubled.get(tier, 0) + count.doubled
        # A lake that has all that the mirror brought has nothing that a mirror which is behind did not bring.
        is_behind = is_behind or tier_complete_ms < due_ms
        if is_behind:
            row.pending.add(tier)
            continue
        missing = upstream.without(count.sequences)
        if len(missing):
            yield Finding(window, topic, tier, producer, host, Kind.LOST, len(missing), _named(missing.ranges()))
        if count.doubled > doubled:
            yield Finding(window, topic, tier, producer, host, Kind.DOUBLED, count.doubled - doubled)
        if base is not None and _is_altered(base, count):
            yield Finding(window, topic, tier, producer, host, Kind.ALTERED, len(count.sequences))
            base = None
        # A record whose producer had no answer may have arrived all the same; from here on it must be everywhere.
        doubled = max(doubled, count.doubled)
        upstream = Sequences(count.sequences.ranges())
        due_ms = max(due_ms, settled_ms[tier])


def _is_altered(base: WindowCount, count: WindowCount) -> bool:
    known = base.content is not None and count.content is not None
    return known and base.sequences == count.sequences and base.content != count.content


def _named(ranges: Iterable[Range]) -> tuple[Range, ...]:
    return tuple(one for one, _ in zip(ranges, range(MAX_NAMED_RANGES), strict=False))

"""Is everything there, and if not, what is missing where.  Decides; waits for nothing, time comes in.

A window is judged at a tier once the tier, and each before it, has everything that was there when the window was over,
and the lateness after it, and the producer said what it had sent in it.  Until then it is *pending*: a mirror that is
behind, or a link that is cut, is late and loses nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pylog.audit.counting import WindowCount
from pylog.audit.ledger import Ledger
from pylog.audit.reports import Tier
from pylog.audit.sequences import Range, Sequences

MAX_NAMED_RANGES = 10


class Kind(StrEnum):
    """What is the matter."""

    LOST = "lost"
    DOUBLED = "doubled"
    ALTERED = "altered"
    UNKNOWN = "unknown"
    """The producer never said what it sent in the window, so nobody can say that it is complete."""


ALARMS = frozenset({Kind.LOST, Kind.ALTERED, Kind.UNKNOWN})
"""Copies are what at-least-once promises: told, but no alarm."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        window_ms: when the window begins.
        topic: which.
        tier: the first tier at which it shows.
        producer: instance.
        host: of the producer.
        kind: what.
        count: how many records.
        ranges: the first of their numbers.
    """

    window_ms: int
    topic: str
    tier: Tier
    producer: str
    host: str
    kind: Kind
    count: int
    ranges: tuple[Range, ...] = ()

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
class Judgement:
    """All windows of all topics."""

    at_ms: int
    window_ms: int
    rows: dict[str, list[WindowRow]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def between(self, from_ms: int, to_ms: int) -> "Judgement":
        """Return the windows that begin at *from_ms* or later and before *to_ms*."""
        rows = {
            topic: kept
            for topic, found in self.rows.items()
            if (kept := [row for row in found if from_ms <= row.window_ms < to_ms])
        }
        findings = [one for one in self.findings if from_ms <= one.window_ms < to_ms]
        return Judgement(self.at_ms, self.window_ms, rows, findings)

    def unknown(self, topics: Collection[str]) -> list[str]:
        """Return, as text, what nobody can tell yet: tiers that wait, and *topics* of which nothing was counted."""
        said = [f"topic {topic}: no record was counted" for topic in topics if topic not in self.rows]
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
            known_ms = None if state is None else state.known_ms(window + window_ms)
            result.findings += _judge_window(
                topic,
                producer,
                window,
                seen,
                row,
                known_ms=known_ms,
                end_ms=end_ms,
                complete_ms=complete_ms,
                now_ms=now_ms,
            )
        if rows:  # readers also see topics that nobody stamps
            result.rows[topic] = [row for _, row in sorted(rows.items())]
    result.findings.sort()
    return result


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
    known_ms: int | None,
    end_ms: int,
    complete_ms: Mapping[Tier, int],
    now_ms: int,
) -> Iterator[Finding]:
    """Yield what is wrong with one producer's window, and add it to the row.

    Args:
        topic: which.
        producer: which.
        window: which.
        seen: its counts by tier.
        row: of all producers.
        known_ms: when the producer had said what it sent in it; None if it has not.
        end_ms: when the window is over, lateness included.
        complete_ms: up to when each tier behind the producer has everything, in the order in which records pass.
        now_ms: the time.
    """
    host = next(iter(seen.values())).host
    base = seen.get(Tier.PRODUCER) if known_ms is not None else None
    if known_ms is None and now_ms >= end_ms:
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
        is_behind = is_behind or tier_complete_ms < max(end_ms, known_ms or 0)
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


def _is_altered(base: WindowCount, count: WindowCount) -> bool:
    known = base.content is not None and count.content is not None
    return known and base.sequences == count.sequences and base.content != count.content


def _named(ranges: Iterable[Range]) -> tuple[Range, ...]:
    return tuple(one for one, _ in zip(ranges, range(MAX_NAMED_RANGES), strict=False))

"""What all reports add up to.  Decides; waits for nothing.

ledger => {"from_ms", "tiers": {topic: {tier: counts}}, "producers": {topic: {producer: [complete_ms, marks]}},
           "gaps": {topic: {producer: [[from_ms, until_ms], ...]}},
           "rounds": [as `pylog.audit.reports` has them], "progress": {topic: {partition: [[at_ms, complete_ms], ...]}}}
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pylog.audit.counting import WindowCount
from pylog.audit.places import Places
from pylog.audit.reports import FOR_EVER_MS, Progress, Report, Round, Tier, WindowKey, decode
from pylog.audit.sequences import Sequences
from pylog.model import Offset

_MAX_MARKS = 1_000
_RECENT_MARKS = 60
_SPREAD = 20
"""Marks that are not recent lie about a twentieth of their age apart."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point in time of one reader: below *offsets* is all that was in its log at *complete_ms*, none after *at_ms*.

    Attributes:
        at_ms: when its report was written.
        complete_ms: everything that was there at this time is below.
        topic_id: of the topic that these are offsets of.
        offsets: next one of each partition.
    """

    at_ms: int
    complete_ms: int
    topic_id: str | None
    offsets: dict[int, Offset]


@dataclass(slots=True)
class TierCounts:
    """One tier's counts of one topic.

    Attributes:
        windows: by producer and window.
        changed_ms: when the last report that added numbers to a window was written.
        complete_ms: everything that was there at this time is counted.
        number: of the last report by each reader.
        offsets: where the reader goes on.
        topic_id: of the topic that these are offsets of.
        unstamped: records without a stamp.
        places: where what was seen was first written.
        marks: how far the reader was when.
        is_compacted: whether the topic's log may drop records.
        by: the session whose report counted last.
    """

    windows: dict[WindowKey, WindowCount] = field(default_factory=dict)
    changed_ms: dict[WindowKey, int] = field(default_factory=dict)
    complete_ms: int = 0
    number: dict[str, int] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    topic_id: str | None = None
    unstamped: int = 0
    places: Places = field(default_factory=Places)
    marks: list[Mark] = field(default_factory=list)
    is_compacted: bool = False
    by: str = ""

    def continues(self, report: Report) -> bool:
        """Return whether *report* begins where the last one that counted ended.

        Of two readers of one tier, one's reports do, and the other's count for nothing: neither twice nor half.
        """
        if report.after is None:
            return report.number > self.number.get(report.who, -1)
        return not self.offsets or report.after == self.offsets

    def note(self, mark: Mark) -> None:
        """Note how far the reader was; of what is long ago few marks stay."""
        self.marks.append(mark)
        if len(self.marks) <= 2 * _RECENT_MARKS:
            return
        old, recent = self.marks[:-_RECENT_MARKS], self.marks[-_RECENT_MARKS:]
        kept = [recent[0]]
        for one in reversed(old):
            if kept[-1].at_ms - one.at_ms >= (mark.at_ms - one.at_ms) / _SPREAD:
                kept.append(one)
        if kept[-1] is not old[0]:
            kept.append(old[0])
        self.marks = [*reversed(kept[1:]), *recent]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "windows": [
                [*key, one.host, one.count, one.content, list(one.sequences.ranges()), self.changed_ms.get(key)]
                for key, one in self.windows.items()
            ],
            "complete_ms": self.complete_ms,
            "number": self.number,
            "offsets": self.offsets,
            "topic_id": self.topic_id,
            "unstamped": self.unstamped,
            "places": self.places.to_json(),
            "marks": [[one.at_ms, one.complete_ms, one.topic_id, one.offsets] for one in self.marks],
            "is_compacted": self.is_compacted,
            "by": self.by,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Return what `to_json` was given of."""
        found = cls(
            complete_ms=body["complete_ms"],
            number=dict(body["number"]),
            offsets=_offsets(body["offsets"]),
            topic_id=body["topic_id"],
            unstamped=body["unstamped"],
            places=Places.from_json(body["places"]),
            marks=[Mark(at_ms, ms, topic_id, _offsets(offsets)) for at_ms, ms, topic_id, offsets in body["marks"]],
            is_compacted=body["is_compacted"],
            by=body["by"],
        )
        for producer, window_ms, host, count, content, ranges, changed_ms in body["windows"]:
            found.windows[producer, window_ms] = WindowCount(host, count, content, Sequences(ranges))
            if changed_ms is not None:
                found.changed_ms[producer, window_ms] = changed_ms
        return found


@dataclass(slots=True)
class ProducerState:
    """How far one producer's own counts reach.

    Attributes:
        complete_ms: it will send nothing more from before this time.
        marks: (complete_ms, when the broker wrote it) of its reports, in order: when each stretch of time became known.
        gaps: from when to when reports are missing: what was sent in between is not known.
    """

    complete_ms: int = 0
    marks: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def known_ms(self, from_ms: int, until_ms: int) -> int | None:
        """Return when the producer had said all that it sent from *from_ms* until *until_ms*; None if it did not."""
        if any(begins_ms < until_ms and from_ms < ends_ms for begins_ms, ends_ms in self.gaps):
            return None
        return next((at_ms for complete_ms, at_ms in self.marks if complete_ms >= until_ms), None)


class Ledger:
    """Reports by topic and tier.

    Args:
        from_ms: windows that begin earlier are passed over.
        to_ms: ... and those that begin at this time or later.
    """

    def __init__(self, from_ms: int = 0, to_ms: int = FOR_EVER_MS) -> None:
        self.from_ms = from_ms
        self.to_ms = to_ms
        self._tiers: defaultdict[str, dict[Tier, TierCounts]] = defaultdict(dict)
        self._producers: defaultdict[str, dict[str, ProducerState]] = defaultdict(dict)
        self._rounds: dict[tuple[Tier, str], Round] = {}
        self._progress: defaultdict[str, dict[int, list[tuple[int, int]]]] = defaultdict(dict)

    def topics(self) -> list[str]:
        """Return every topic that somebody counted."""
        return sorted(self._tiers)

    def tiers(self, topic: str) -> Iterator[Tier]:
        """Yield the tiers that count a topic, in the order in which records pass."""
        return (tier for tier in Tier if tier in self._tiers[topic])

    def counts(self, topic: str, tier: Tier) -> TierCounts:
        """Return one tier's counts; empty ones if it has none."""
        return self._tiers[topic].get(tier) or TierCounts()

    def producers(self, topic: str) -> dict[str, ProducerState]:
        """Return the producers that report themselves."""
        return self._producers[topic]

    def topic_ids(self, topic: str) -> dict[str, Tier]:
        """Return the ids that a topic has or had, each with the first tier whose own log it is of."""
        found: dict[str, Tier] = {}
        for tier in self.tiers(topic):
            for mark in self.counts(topic, tier).marks:
                if mark.topic_id is not None and tier is not Tier.LAKE:
                    found.setdefault(mark.topic_id, tier)
        return found

    def is_compacted(self, topic: str) -> bool:
        """Return whether some tier's log of a topic may drop records that a later one of their key replaces."""
        return any(self.counts(topic, tier).is_compacted for tier in self.tiers(topic))

    def add(self, report: Report | Progress | Round, at_ms: int) -> None:
        """Take a report in.

        Args:
            report: the next one of its topic.
            at_ms: when the broker wrote it; a producer's own clock may be years off.
        """
        if isinstance(report, Progress):
            marks = self._progress[report.topic].setdefault(report.partition, [])
            marks.append((at_ms, report.complete_ms))
            del marks[:-_MAX_MARKS]
            return
        if isinstance(report, Round):
            self._rounds[report.tier, report.by] = report
            return
        tier = self._tiers[report.topic].setdefault(report.tier, TierCounts())
        if not tier.continues(report):
            return
        if report.tier is Tier.PRODUCER and report.number > tier.number.get(report.who, report.number) + 1:
            self._note_gap(report)
        tier.number[report.who] = report.number
        if report.is_whole:
            for key in [key for key in tier.windows if key[1] >= report.from_ms]:
                del tier.windows[key]
            tier.unstamped = 0
        for key, count in report.windows.items():
            if self.from_ms <= key[1] < self.to_ms:
                there = tier.windows.setdefault(key, WindowCount(count.host))
                before = len(there.sequences)
                there.merge(count)
                if len(there.sequences) > before:
                    tier.changed_ms[key] = at_ms
        tier.unstamped += report.unstamped
        if report.tier is Tier.PRODUCER:
            self._note_producer(report, at_ms)
            return
        # A topic that was made again has other partitions, each from 0 on.
        tier.offsets = dict(report.offsets)
        tier.topic_id, tier.places, tier.is_compacted = report.topic_id, report.places, report.is_compacted
        tier.by = report.by
        tier.complete_ms = max(tier.complete_ms, report.complete_ms)
        tier.note(Mark(at_ms, report.complete_ms, report.topic_id, tier.offsets))

    def move_to(self, from_ms: int, silent_ms: int) -> None:
        """Pass over windows that begin before *from_ms*, and forget who was last heard of before *silent_ms*."""
        self.from_ms = from_ms
        for topic, producers in list(self._producers.items()):
            for one in producers.values():
                one.marks = [mark for mark in one.marks if mark[1] >= silent_ms]
                one.gaps = [gap for gap in one.gaps if gap[1] > from_ms]
            self._producers[topic] = {who: one for who, one in producers.items() if one.marks}
        for topic, tiers in list(self._tiers.items()):
            known = self._producers[topic]
            for tier, counts in list(tiers.items()):
                counts.marks = [mark for mark in counts.marks if mark.at_ms >= silent_ms]
                counts.complete_ms = max((mark.complete_ms for mark in counts.marks), default=0)
                kept = {
                    key
                    for key in counts.windows
                    if key[1] >= from_ms and (tier is not Tier.PRODUCER or key[0] in known)
                }
                counts.windows = {key: one for key, one in counts.windows.items() if key in kept}
                counts.changed_ms = {key: at_ms for key, at_ms in counts.changed_ms.items() if key in kept}
                if tier is Tier.PRODUCER:
                    counts.number = {who: number for who, number in counts.number.items() if who in known}
                if not (counts.number if tier is Tier.PRODUCER else counts.marks):
                    del tiers[tier]
            if not tiers:
                del self._tiers[topic]
        self._rounds = {key: one for key, one in self._rounds.items() if one.at_ms >= silent_ms}
        # A partition that stays without marks would count as one that the mirror has not taken up, for ever.
        for topic, by_partition in list(self._progress.items()):
            kept_marks = {
                partition: [one for one in marks if one[0] >= silent_ms] for partition, marks in by_partition.items()
            }
            self._progress[topic] = {partition: marks for partition, marks in kept_marks.items() if marks}
            if not self._progress[topic]:
                del self._progress[topic]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "from_ms": self.from_ms,
            "tiers": {
                topic: {tier: counts.to_json() for tier, counts in tiers.items()}
                for topic, tiers in self._tiers.items()
            },
            "producers": {
                topic: {who: [one.complete_ms, one.marks] for who, one in known.items()}
                for topic, known in self._producers.items()
            },
            "gaps": {
                topic: {who: one.gaps for who, one in known.items() if one.gaps}
                for topic, known in self._producers.items()
            },
            "rounds": [one.encode().decode() for one in self._rounds.values()],
            "progress": self._progress,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Return what `to_json` was given of, once it went through JSON."""
        found = cls(body["from_ms"])
        for topic, tiers in body["tiers"].items():
            found._tiers[topic] = {Tier(tier): TierCounts.from_json(counts) for tier, counts in tiers.items()}
        for topic, known in body["producers"].items():
            for who, (complete_ms, marks) in known.items():
                state = ProducerState(complete_ms, [(until_ms, at_ms) for until_ms, at_ms in marks])
                found._producers[topic][who] = state
        # The release before knew of none.
        for topic, gaps_of in body.get("gaps", {}).items():
            for who, gaps in gaps_of.items():
                found._producers[topic][who].gaps = [(from_ms, until_ms) for from_ms, until_ms in gaps]
        for text in body["rounds"]:
            one = decode(text.encode())
            if isinstance(one, Round):
                found._rounds[one.tier, one.by] = one
        for topic, by_partition in body["progress"].items():
            for partition, marks in by_partition.items():
                found._progress[topic][int(partition)] = [(at_ms, complete_ms) for at_ms, complete_ms in marks]
        return found

    def complete_ms(self, topic: str, tier: Tier) -> int:
        """Return up to when a tier has everything that passed the tier before it.

        The mirror's reader has read to the end of the target, and the lake has what the target had; whether that is all
        the source had, the mirror says.
        """
        found = self._lake_complete_ms(topic) if tier is Tier.LAKE else self._own_complete_ms(topic, tier)
        progress, tiers = self._progress[topic], self._tiers[topic]
        if tier is Tier.LIVE or Tier.MIRROR not in tiers or Tier.LIVE not in tiers:
            return found
        # A partition that the mirror says nothing of is one that it has not taken up yet.
        partitions = progress.keys() | self.counts(topic, Tier.LIVE).offsets.keys()
        passed = (
            max((complete_ms for at_ms, complete_ms in progress.get(one, ()) if at_ms <= found), default=0)
            for one in partitions
        )
        return min(found, min(passed, default=0))

    def _own_complete_ms(self, topic: str, tier: Tier) -> int:
        """Return up to when a tier's reader has what its own log had."""
        counts = self.counts(topic, tier)
        last = self._rounds.get((tier, counts.by)) if counts.by else None
        return max(counts.complete_ms, 0 if last is None else last.behind.get(topic, last.complete_ms))

    def _lake_complete_ms(self, topic: str) -> int:
        """Return up to when the lake has what its cluster's log had.

        By offsets, where a reader of that cluster says when it was where: the times of records are their producers'.
        """
        lake = self.counts(topic, Tier.LAKE)
        for tier in (Tier.MIRROR, Tier.LIVE):
            reader = self.counts(topic, tier)
            if lake.topic_id is None or reader.topic_id != lake.topic_id:
                continue
            if _covers(lake.offsets, reader.offsets):
                # What the reader has since then is nothing more.
                return self._own_complete_ms(topic, tier)
            marks = (one for one in reader.marks if one.topic_id == lake.topic_id)
            return max((one.complete_ms for one in marks if _covers(lake.offsets, one.offsets)), default=0)
        return lake.complete_ms

    def _note_gap(self, report: Report) -> None:
        """Note that reports between a producer's last one and *report* never came."""
        state = self._producers[report.topic].setdefault(report.who, ProducerState())
        state.gaps.append((state.complete_ms, report.complete_ms))
        del state.gaps[:-_MAX_MARKS]

    def _note_producer(self, report: Report, at_ms: int) -> None:
        state = self._producers[report.topic].setdefault(report.who, ProducerState())
        complete_ms = FOR_EVER_MS if report.is_closed else report.complete_ms
        if complete_ms > state.complete_ms:
            state.complete_ms = complete_ms
            state.marks.append((complete_ms, at_ms))
            del state.marks[:-_MAX_MARKS]


def _offsets(body: Mapping[str, Offset]) -> dict[int, Offset]:
    return {int(partition): offset for partition, offset in body.items()}


def _covers(offsets: dict[int, Offset], others: dict[int, Offset]) -> bool:
    return all(offsets.get(partition, 0) >= offset for partition, offset in others.items())

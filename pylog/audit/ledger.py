"""What all reports add up to.  Decides; waits for nothing."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from pylog.audit.counting import WindowCount
from pylog.audit.reports import FOR_EVER_MS, Progress, Report, Tier, WindowKey

_MAX_MARKS = 1_000


@dataclass(slots=True)
class TierCounts:
    """One tier's counts of one topic.

    Attributes:
        windows: by producer and window.
        complete_ms: everything that was there at this time is counted.
        number: of the last report by each reader.
        offsets: where the reader goes on.
        unstamped: records without a stamp.
    """

    windows: dict[WindowKey, WindowCount] = field(default_factory=dict)
    complete_ms: int = 0
    number: dict[str, int] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    unstamped: int = 0


@dataclass(slots=True)
class ProducerState:
    """How far one producer's own counts reach.

    Attributes:
        complete_ms: it will send nothing more from before this time.
        marks: (complete_ms, at_ms) of its reports, in order: when each stretch of time became known.
    """

    complete_ms: int = 0
    marks: list[tuple[int, int]] = field(default_factory=list)

    def known_ms(self, until_ms: int) -> int | None:
        """Return when the producer said that it is done with everything before *until_ms*; None if it did not."""
        return next((at_ms for complete_ms, at_ms in self.marks if complete_ms >= until_ms), None)


class Ledger:
    """Reports by topic and tier.

    Args:
        from_ms: windows that begin earlier are passed over.
    """

    def __init__(self, from_ms: int = 0) -> None:
        self.from_ms = from_ms
        self._tiers: defaultdict[str, dict[Tier, TierCounts]] = defaultdict(dict)
        self._producers: defaultdict[str, dict[str, ProducerState]] = defaultdict(dict)
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

    def add(self, report: Report | Progress, at_ms: int) -> None:
        """Take a report in.

        Args:
            report: the next one of its topic.
            at_ms: when it was written; of progress, which does not say so itself.
        """
        if isinstance(report, Progress):
            marks = self._progress[report.topic].setdefault(report.partition, [])
            marks.append((at_ms, report.complete_ms))
            del marks[:-_MAX_MARKS]
            return
        tier = self._tiers[report.topic].setdefault(report.tier, TierCounts())
        if report.number <= tier.number.get(report.who, -1):
            return
        tier.number[report.who] = report.number
        if report.is_whole:
            for key in [key for key in tier.windows if key[1] >= report.from_ms]:
                del tier.windows[key]
            tier.unstamped = 0
        for key, count in report.windows.items():
            if key[1] >= self.from_ms:
                there = tier.windows.setdefault(key, WindowCount(count.host))
                there.merge(count)
        tier.unstamped += report.unstamped
        tier.offsets.update(report.offsets)
        if report.tier is Tier.PRODUCER:
            self._note_producer(report)
        else:
            tier.complete_ms = max(tier.complete_ms, report.complete_ms)

    def complete_ms(self, topic: str, tier: Tier) -> int:
        """Return up to when a tier has everything that passed the tier before it.

        The mirror's reader has read to the end of the target; whether that is all the source had, the mirror says.
        """
        found = self.counts(topic, tier).complete_ms
        progress = self._progress[topic]
        if tier is not Tier.MIRROR or not progress:
            return found
        # A partition that the mirror says nothing of is one that it has not taken up yet.
        partitions = progress.keys() | self.counts(topic, Tier.LIVE).offsets.keys()
        return min(
            max((complete_ms for at_ms, complete_ms in progress.get(one, ()) if at_ms <= found), default=0)
            for one in partitions
        )

    def _note_producer(self, report: Report) -> None:
        state = self._producers[report.topic].setdefault(report.who, ProducerState())
        complete_ms = FOR_EVER_MS if report.is_closed else report.complete_ms
        if complete_ms > state.complete_ms:
            state.complete_ms = complete_ms
            state.marks.append((complete_ms, report.at_ms))
            del state.marks[:-_MAX_MARKS]

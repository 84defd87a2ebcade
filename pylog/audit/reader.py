"""Counts what passes one tier.  Decides; waits for nothing."""

from collections.abc import Iterable, Mapping

from pylog.audit.reports import Report, Tier, WindowKey
from pylog.client.counting import STAMP_HEADER, WindowCount, checksum, read_stamp, window_of
from pylog.model import Offset


class TopicCounter:
    """One topic at one tier, read by one reader.

    Args:
        tier: where.
        topic: which.
        who: names the reader; the next one of the same name goes on where this one stops.
        window_ms: how long a window is.
        offsets: where to go on, by partition.
        number: of the first report.
    """

    def __init__(
        self,
        tier: Tier,
        topic: str,
        who: str,
        window_ms: int,
        offsets: Mapping[int, Offset] | None = None,
        number: int = 0,
    ) -> None:
        self.offsets: dict[int, Offset] = dict(offsets or {})
        self._tier, self._topic, self._who, self._window_ms = tier, topic, who, window_ms
        self._number = number
        self._windows: dict[WindowKey, WindowCount] = {}
        self._unstamped = 0

    def add(
        self, partition: int, offset: Offset, headers: Iterable[tuple[str, bytes | str | None]], value: bytes | None
    ) -> None:
        """Count one record; one below where this reader is was counted before."""
        if offset < self.offsets.get(partition, 0):
            return
        self.offsets[partition] = offset + 1
        for name, text in headers:
            if name == STAMP_HEADER and (stamp := read_stamp(text)) is not None:
                key = stamp.producer, window_of(stamp.timestamp_ms, self._window_ms)
                there = self._windows.get(key)
                if there is None:
                    there = self._windows[key] = WindowCount(stamp.host)
                there.add(stamp.sequence, checksum(stamp.sequence, value))
                return
        self._unstamped += 1

    def report(self, now_ms: int, complete_ms: int) -> Report:
        """Return what came since the last report, and begin the next."""
        found = Report(
            tier=self._tier,
            topic=self._topic,
            who=self._who,
            number=self._number,
            at_ms=now_ms,
            complete_ms=complete_ms,
            offsets=dict(self.offsets),
            windows=self._windows,
            unstamped=self._unstamped,
        )
        self._number += 1
        self._windows, self._unstamped = {}, 0
        return found


class EndWatch:
    """Up to when a reader has everything: it asked for the ends at a time, and has reached them since."""

    def __init__(self) -> None:
        self.complete_ms = 0
        self._asked_ms = 0
        self._ends: dict[int, Offset] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the ends that were asked for are not reached yet."""
        return self._ends is not None

    def ask(self, ends: Mapping[int, Offset], asked_ms: int) -> None:
        """Note the ends as they were at *asked_ms* or later."""
        self._ends, self._asked_ms = dict(ends), asked_ms

    def reach(self, offsets: Mapping[int, Offset], at_end: Iterable[int] = ()) -> None:
        """Note where the reader is; the last offsets of a partition *at_end* may hold no record."""
        if self._ends is None:
            return
        done = frozenset(at_end)
        if all(offsets.get(partition, 0) >= end or partition in done for partition, end in self._ends.items()):
            self.complete_ms, self._ends = self._asked_ms, None

"""A producer's own account: what it sent, window by window, and up to when that is all.  Decides; waits for nothing.

A report counts as acknowledged when the next reports are asked for, unless it was lost before.
"""

from dataclasses import dataclass, field

from pylog.audit.counting import Stamp, WindowCount, checksum, window_of
from pylog.audit.reports import Report, Tier, WindowKey


class Stretch:
    """The records of one topic that have the same time in their stamps.

    A million records a second pass here: what is the same for all is made once, and what each adds to the counts is
    worked out for all of them at once.

    Attributes:
        next_sequence: number of the next one.
        values: payloads of those that were handed over and are not counted yet.
    """

    __slots__ = ("_count", "_counted", "_form", "next_sequence", "values")

    def __init__(self, first: Stamp, count: WindowCount) -> None:
        head, tail = Stamp(first.producer, 0, first.timestamp_ms, first.host).encode().split(b" 0 ", 1)
        self._form = head.replace(b"%", b"%%") + b" %d " + tail.replace(b"%", b"%%")
        self.next_sequence = self._counted = first.sequence
        self._count = count
        self.values: list[bytes] = []

    def stamp(self) -> bytes:
        """Return the header's value for the next record."""
        return self._form % self.next_sequence

    def add(self, value: bytes | None) -> None:
        """Note that the next record was handed over."""
        self.next_sequence += 1
        self.values.append(value or b"")

    def settle(self) -> None:
        """Count what was handed over."""
        if self.values:
            self._count.add_run(self._counted, self.values)
            self._counted = self.next_sequence
            self.values.clear()

    def close(self) -> int:
        """Count what was handed over, and stamp no more; return the number of the next record."""
        self.settle()
        self._form = b""  # has no place for a number, so that `stamp` raises
        return self.next_sequence


@dataclass(slots=True)
class _Topic:
    next_sequence: int = 0
    stretch: Stretch | None = None
    number: int = 0
    told_ms: int = 0
    over_ms: int = 0
    windows: dict[WindowKey, WindowCount] = field(default_factory=dict)
    last: Report | None = None
    is_lost: bool = False
    is_closed: bool = False

    @property
    def is_told(self) -> bool:
        """Whether a report was made since the last window that something was sent in was over."""
        return self.told_ms >= self.over_ms and not self.windows

    def end_stretch(self) -> None:
        """Count everything; who goes on asks for another stretch."""
        if self.stretch is not None:
            self.next_sequence = self.stretch.close()
            self.stretch = None


class ProducerAccount:
    """Stamps and counts records, and takes back those that were refused.

    Args:
        producer: names this life of this producer.
        host: the server's name.
        window_ms: how long a window is.
    """

    def __init__(self, producer: str, host: str, window_ms: int) -> None:
        self._producer, self._host, self._window_ms = producer, host, window_ms
        self._topics: dict[str, _Topic] = {}
        self._last_ms = 0

    def stretch(self, topic: str, now_ms: int) -> Stretch:
        """Return where the records of now are noted, until the next one or the next reports are asked for.

        Its time does not go back, even if the clock does.
        """
        there = self._topics.setdefault(topic, _Topic())
        self._last_ms = max(self._last_ms, now_ms)
        there.end_stretch()
        first = Stamp(self._producer, there.next_sequence, self._last_ms, self._host)
        key = self._producer, window_of(self._last_ms, self._window_ms)
        there.over_ms = key[1] + self._window_ms
        there.is_closed = False
        there.stretch = Stretch(first, there.windows.setdefault(key, WindowCount(self._host)))
        return there.stretch

    def take_back(self, topic: str, stamp: Stamp, value: bytes | None) -> None:
        """Note that a record was refused, or nobody knows of it: it is not promised."""
        there = self._topics[topic]
        if there.stretch is not None:
            there.stretch.settle()
        key = self._producer, window_of(stamp.timestamp_ms, self._window_ms)
        there.windows[key].remove(stamp.sequence, checksum(stamp.sequence, value))

    def reports(self, now_ms: int, *, is_closed: bool = False) -> list[Report]:
        """Return what was sent since the last reports, one for each topic; call it while nothing is under way.

        The stretches end with it: whatever comes later has a later time.  A topic of which all is told has none until
        more is sent.  A topic whose last report was lost has that one again, under its number, since the broker may
        have it all the same; what was sent since comes with the next reports.
        """
        self._last_ms = max(self._last_ms, now_ms)
        found = []
        for topic, there in self._topics.items():
            there.end_stretch()
            if there.last is not None and there.is_lost:
                there.is_lost = False
                found.append(there.last)
                continue
            if there.is_closed or (there.is_told and not is_closed):
                continue
            there.told_ms, there.is_closed = self._last_ms, is_closed
            there.last = Report(
                tier=Tier.PRODUCER,
                topic=topic,
                who=self._producer,
                number=there.number,
                at_ms=self._last_ms,
                complete_ms=self._last_ms,
                is_closed=is_closed,
                windows={key: count for key, count in there.windows.items() if count.count},
            )
            found.append(there.last)
            there.number += 1
            there.windows = {}
        return found

    def lose(self, report: Report) -> None:
        """Note that a report was not acknowledged: it comes with the next reports again."""
        there = self._topics[report.topic]
        there.is_lost = there.last is report

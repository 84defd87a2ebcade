"""Counts what passes one tier.  Decides; waits for nothing."""

from collections.abc import Iterable, Mapping, Sequence

from pylog.audit.counting import STAMP_HEADER, WindowCount, read_stamp, window_of
from pylog.audit.reports import Report, Tier, WindowKey
from pylog.model import Offset

_SETTLE_AT = 4096
"""Records that wait to be counted together: enough that what is done once for all of them no longer shows."""

_MAX_DIGITS = 18
"""Of a number that is below what `read_stamp` takes."""


class TopicCounter:
    """One topic at one tier, read by one reader.

    A stamp is looked at once, and what records of one producer and millisecond have in common is worked out once for
    all of them: their window, its count, checksums and numbers.

    Args:
        tier: where.
        topic: which.
        who: names the reader; the next one of the same name goes on where this one stops.
        window_ms: how long a window is.
        offsets: where to go on, by partition.
        number: of the first report.

    Attributes:
        offsets: where it goes on, by partition.
        topic_id: of the topic those are of: a topic that is made again begins at 0 once more.
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
        self.topic_id: str | None = None
        self._tier, self._topic, self._who, self._window_ms = tier, topic, who, window_ms
        self._number = number
        self._windows: dict[WindowKey, WindowCount] = {}
        self._unstamped = 0
        self._stamps: list[bytes] = []
        self._values: list[bytes] = []

    def add(
        self, partition: int, offset: Offset, headers: Sequence[tuple[str, bytes | None]], value: bytes | None
    ) -> None:
        """Count one record; one below where this reader is was counted before."""
        if offset < self.offsets.get(partition, 0):
            return
        self.offsets[partition] = offset + 1
        # The last one counts: who sends on what it read, headers included, adds its own behind them.
        for name, stamp in reversed(headers):
            if name == STAMP_HEADER:
                self._stamps.append(stamp or b"")
                self._values.append(value or b"")
                if len(self._stamps) >= _SETTLE_AT:
                    self._settle()
                return
        self._unstamped += 1

    def add_stamped(self, stamps: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        """Count many records that have a stamp; nobody goes on by where they were."""
        self._stamps += [stamp or b"" for stamp in stamps]
        self._values += [value or b"" for value in values]
        self._settle()

    def add_unstamped(self, count: int) -> None:
        """Count records without a stamp."""
        self._unstamped += count

    def _settle(self) -> None:
        """Work out what the records that wait add."""
        places: dict[tuple[bytes, bytes], tuple[list[int], list[bytes]]] = {}
        windows: dict[WindowKey, tuple[list[int], list[bytes]]] = {}
        for text, value in zip(self._stamps, self._values, strict=True):
            try:
                producer, number, rest = text.split(b" ", 2)
                if len(number) > _MAX_DIGITS or not number.isdigit():
                    raise ValueError
                sequences, values = places.get((producer, rest)) or self._place(text, windows)
                places[producer, rest] = sequences, values
            except ValueError:
                self._unstamped += 1
                continue
            sequences.append(int(number))
            values.append(value)
        for key, (sequences, values) in windows.items():
            self._windows[key].add_many(sequences, values)
        self._stamps.clear()
        self._values.clear()

    def _place(
        self, text: bytes, windows: dict[WindowKey, tuple[list[int], list[bytes]]]
    ) -> tuple[list[int], list[bytes]]:
        """Return where the records with a stamp like this are gathered, among those of their producer and window."""
        stamp = read_stamp(text)
        if stamp is None:
            raise ValueError
        key = stamp.producer, window_of(stamp.timestamp_ms, self._window_ms)
        self._windows.setdefault(key, WindowCount(stamp.host))
        return windows.setdefault(key, ([], []))

    def report(self, now_ms: int, complete_ms: int) -> Report:
        """Return what came since the last report, and begin the next."""
        self._settle()
        found = Report(
            tier=self._tier,
            topic=self._topic,
            who=self._who,
            number=self._number,
            at_ms=now_ms,
            complete_ms=complete_ms,
            offsets=dict(self.offsets),
            topic_id=self.topic_id,
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

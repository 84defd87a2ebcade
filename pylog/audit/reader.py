"""Counts what passes one tier.  Decides; waits for nothing."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pylog.audit.counting import STAMP_HEADER, WindowCount, read_stamp, window_of
from pylog.audit.places import ORIGIN_HEADER, ORIGIN_ID_HEADER, ORIGIN_OFFSET_HEADER, Places, offset_of
from pylog.audit.reports import IDLE_REPORT_MS, Report, Tier, WindowKey
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
        last: its last report that counted; None for none.
        number: of the first report without one.
        by: names the session.

    Attributes:
        offsets: where it goes on, by partition.
        is_compacted: whether the topic's log may drop what a later record of the same key replaces.
    """

    def __init__(
        self,
        tier: Tier,
        topic: str,
        who: str,
        window_ms: int,
        last: Report | None = None,
        number: int = 0,
        by: str = "",
    ) -> None:
        self.offsets: dict[int, Offset] = {} if last is None else dict(last.offsets)
        self.is_compacted = False
        self._topic_id: str | None = None if last is None else last.topic_id
        self._own_id: bytes | None = None
        self._places = Places() if last is None else last.places.copy()
        self._after = dict(self.offsets)
        self._by = by
        self._reported_ms: int | None = None
        self._runs: dict[int, tuple[bytes, Offset, Offset]] = {}
        number = number if last is None else last.number + 1
        self._tier, self._topic, self._who, self._window_ms = tier, topic, who, window_ms
        self._number = number
        self._windows: dict[WindowKey, WindowCount] = {}
        self._unstamped = 0
        self._stamps: list[bytes] = []
        self._values: list[bytes] = []

    def take_up(self, topic_id: str | None) -> None:
        """Read the topic of this id from now on: one that was made again begins at 0 once more."""
        if self._topic_id not in (None, topic_id):
            self._end_runs()
            self.offsets.clear()
        self._topic_id = topic_id
        self._own_id = None if topic_id is None else topic_id.encode()

    def begin(self, partition: int, offset: Offset) -> None:
        """Go on at *offset* in a partition."""
        self.offsets[partition] = offset
        if self._topic_id is not None:
            self._places.begin(self._topic_id, partition, offset)

    def add(
        self, partition: int, offset: Offset, headers: Sequence[tuple[str, bytes | None]], value: bytes | None
    ) -> None:
        """Count one record; one below where this reader is was counted before."""
        if offset < self.offsets.get(partition, 0):
            return
        self.offsets[partition] = offset + 1
        stamp, is_copy, origin_id, place = None, False, b"", None
        # Of several, the last one counts: who sends on what it read, headers included, adds its own behind them.
        for name, header in headers:
            if name == STAMP_HEADER:
                stamp = header or b""
            elif name == ORIGIN_OFFSET_HEADER:
                place = offset_of(header)
            elif name == ORIGIN_ID_HEADER:
                origin_id = header or b""
            elif name == ORIGIN_HEADER:
                is_copy = True
        if self._own_id is not None:
            if is_copy:
                self._note_place(partition, origin_id, place if origin_id else None)
            else:
                self._note_place(partition, self._own_id, offset)
        if stamp is None:
            self._unstamped += 1
            return
        self._stamps.append(stamp)
        self._values.append(value or b"")
        if len(self._stamps) >= _SETTLE_AT:
            self._settle()

    def _note_place(self, partition: int, topic_id: bytes, offset: Offset | None) -> None:
        """Note where a record was first written; one behind the other, they are one run."""
        run = self._runs.get(partition)
        if offset is None:
            # A mirror of the release before brought it.
            self._end_runs()
            self._places.forget((self._own_id or b"").decode(), partition)
        elif run is not None and run[2] + 1 == offset and run[0] == topic_id:
            self._runs[partition] = topic_id, run[1], offset
        else:
            if run is not None:
                self._end_run(partition, run)
            self._runs[partition] = topic_id, offset, offset

    def _end_run(self, partition: int, run: tuple[bytes, Offset, Offset]) -> None:
        if self._own_id is None:
            return
        own = self._places.of(self._own_id.decode(), partition)
        # Whoever reads a log from its very beginning has met the first copy that ever came.
        floor = 0 if own is not None and own[0] == 0 else None
        self._places.add(run[0].decode(errors="replace"), partition, run[1], run[2], floor=floor)

    def _end_runs(self) -> None:
        for partition, run in self._runs.items():
            self._end_run(partition, run)
        self._runs.clear()

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

    def is_due(self, now_ms: int) -> bool:
        """Return whether there is something to report: records came, or nobody heard of the topic for long."""
        return self._reported_ms is None or now_ms - self._reported_ms >= IDLE_REPORT_MS or self.offsets != self._after

    def report(self, now_ms: int, complete_ms: int) -> Report:
        """Return what came since the last report, and begin the next."""
        self._settle()
        self._end_runs()
        self._places.fit()
        found = Report(
            tier=self._tier,
            topic=self._topic,
            who=self._who,
            number=self._number,
            at_ms=now_ms,
            complete_ms=complete_ms,
            offsets=dict(self.offsets),
            topic_id=self._topic_id,
            windows=self._windows,
            unstamped=self._unstamped,
            after=self._after,
            places=self._places.copy(),
            is_compacted=self.is_compacted,
            by=self._by,
        )
        self._number += 1
        self._windows, self._unstamped = {}, 0
        self._after, self._reported_ms = dict(self.offsets), now_ms
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

    def reach(self, offsets: Mapping[int, Offset], at_end: Mapping[int, Offset] = MappingProxyType({})) -> None:
        """Note where the reader is.

        Args:
            offsets: next offset to count, by partition.
            at_end: end of the partitions that are read to their end, whose last offsets may hold no record.  Of one
                with an open transaction that is where the transaction begins, and what follows is not read yet.
        """
        if self._ends is None:
            return
        reached = (max(offsets.get(one, 0), at_end.get(one, 0)) >= end for one, end in self._ends.items())
        if all(reached):
            self.complete_ms, self._ends = self._asked_ms, None

"""Transactions in one partition: which are open, which are ended, and how far read_committed consumers may read.

Source: KIP-98; Kafka's ProducerStateManager.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from pylog.model import Offset
from pylog.wire.records import CONTROL, TRANSACTIONAL, BatchHeader


class AbortedTransaction(NamedTuple):
    """One row of a transaction index.

    Attributes:
        last_offset: of the abort marker.
        last_stable_offset: of the log once it had this marker, as far as transactions hold it back.
    """

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class EndedTransaction(NamedTuple):
    """A transaction whose marker is in the log, and perhaps not yet in the logs of all in-sync replicas."""

    producer_id: int
    first_offset: Offset
    marker_offset: Offset


class Transactions:
    """Transactions by their first offset.

    A transaction whose marker is in the log is not decided for a consumer before every in-sync replica has the marker:
    after a fail-over the next leader may lack it, and decide otherwise.

    Attributes:
        decided_offset: the last marker of a transaction that is decided and forgotten, -1 without one.  A cut at or
            below it needs the batches to be read again; see `truncate`.
    """

    __slots__ = ("_ended", "_open", "decided_offset")

    def __init__(
        self,
        first_offsets: Mapping[int, Offset] | None = None,
        ended: Iterable[EndedTransaction] = (),
        decided_offset: Offset = -1,
    ) -> None:
        """Begin with what a snapshot says: open transactions as first offset by producer id, and those that ended."""
        # Ordered by first offset, as transactions begin at growing offsets: the first row is the oldest.
        self._open = OrderedDict(sorted((first_offsets or {}).items(), key=lambda item: item[1]))
        # By first offset.  One per producer and marker that is not replicated yet: few.
        self._ended = {row.first_offset: row for row in ended}
        self.decided_offset = decided_offset

    def first_offset(self, producer_id: int) -> Offset | None:
        """Return where the open transaction of a producer begins; None if it has none."""
        return self._open.get(producer_id)

    def first_offsets(self) -> Mapping[int, Offset]:
        """Return where each open transaction begins, by producer id, oldest first; a view."""
        return self._open

    def ended(self) -> Collection[EndedTransaction]:
        """Return the transactions whose markers may not be on every in-sync replica."""
        return self._ended.values()

    def open_at(self, offset: Offset) -> dict[int, Offset]:
        """Return what was open at *offset*: first offset by producer id."""
        rows = [row for row in self._ended.values() if row.first_offset < offset <= row.marker_offset]
        found = {row.producer_id: row.first_offset for row in rows}
        found.update({producer_id: first for producer_id, first in self._open.items() if first < offset})
        return found

    def begin(self, producer_id: int, offset: Offset) -> None:
        """A transactional batch was appended at *offset*; only the first one of a transaction counts."""
        if producer_id not in self._open:
            self._open[producer_id] = offset

    def end(self, producer_id: int, marker_offset: Offset, *, is_commit: bool) -> AbortedTransaction | None:
        """A marker was appended.

        Returns:
            the row for the index, if the marker aborts an open transaction.
        """
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None  # a transaction without records here, or a marker that was sent twice
        self._ended[first_offset] = EndedTransaction(producer_id, first_offset, marker_offset)
        if is_commit:
            return None
        oldest_open = next(iter(self._open.values()), marker_offset + 1)
        return AbortedTransaction(producer_id, first_offset, marker_offset, oldest_open)

    def replicated(self, high_watermark: Offset) -> None:
        """Every in-sync replica has what is below *high_watermark*."""
        if self._ended:
            decided = [row for row in self._ended.values() if row.marker_offset < high_watermark]
            for row in decided:
                del self._ended[row.first_offset]
                self.decided_offset = max(self.decided_offset, row.marker_offset)

    def truncate(self, log_end_offset: Offset) -> None:
        """Open again the transactions whose markers are cut off, and drop those that began above the cut.

        Markers up to `decided_offset` are forgotten: a cut at or below it needs a new `Transactions`.
        """
        assert log_end_offset > self.decided_offset, f"cut at {log_end_offset}, forgotten up to {self.decided_offset}"
        rows = sorted(self.open_at(log_end_offset).items(), key=lambda item: item[1])
        self._open = OrderedDict(rows)
        self._ended = {first: row for first, row in self._ended.items() if row.marker_offset < log_end_offset}

    def first_unstable_offset(self) -> Offset | None:
        """Return the first offset of the oldest transaction that is not decided; None if all are."""
        oldest_open = next(iter(self._open.values()), None)
        oldest_ended = min(self._ended, default=None)
        if oldest_open is None or oldest_ended is None:
            return oldest_ended if oldest_open is None else oldest_open
        return min(oldest_open, oldest_ended)

    def last_stable_offset(self, log_start_offset: Offset, high_watermark: Offset) -> Offset:
        """Return where read_committed consumers stop reading.

        Retention and DeleteRecords may have removed the beginning of a transaction; the log start is the floor then.
        """
        first = self.first_unstable_offset()
        return high_watermark if first is None else min(max(first, log_start_offset), high_watermark)


class TransactionsOfPass:
    """What a pass of compaction, which meets all batches from the log start on, has to know of transactions."""

    __slots__ = ("_met", "_rows")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Begin a pass over a log with these rows in its transaction indexes."""
        self._met: set[int] = set()
        self._rows: dict[int, list[AbortedTransaction]] = {}
        for row in aborted:
            self._rows.setdefault(row.producer_id, []).append(row)
        for rows in self._rows.values():
            rows.sort(key=_last_offset)

    def meet(self, header: BatchHeader) -> bool:
        """Take note of the next batch; return whether it is a marker of a transaction with batches before it."""
        if header.attributes & CONTROL:
            is_needed = header.producer_id in self._met
            self._met.discard(header.producer_id)
            return is_needed
        if header.attributes & TRANSACTIONAL:
            self._met.add(header.producer_id)
        return False

    def find_aborted(self, header: BatchHeader) -> AbortedTransaction | None:
        """Return the aborted transaction that a batch belongs to, or that it ends."""
        rows = self._rows.get(header.producer_id)
        if not rows or not header.attributes & TRANSACTIONAL:
            return None
        number = bisect_left(rows, header.base_offset, key=_last_offset)
        # Transactions of one producer follow each other, so no other one can hold the batch.
        is_in = number < len(rows) and rows[number].first_offset <= header.base_offset
        return rows[number] if is_in else None


def _last_offset(row: AbortedTransaction) -> Offset:
    return row.last_offset

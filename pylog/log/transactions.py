"""Transactions in one partition: which are open, which are ended, and how far read_committed consumers may read.

Source: KIP-98; Kafka's ProducerStateManager.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pylog.model import Offset


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


class Transactions:
    """Transactions by their first offset.

    A transaction whose marker is in the log is not decided for a consumer before every in-sync replica has the marker:
    after a fail-over the next leader may lack it, and decide otherwise.
    """

    __slots__ = ("_ended", "_open")

    def __init__(self, first_offsets: Mapping[int, Offset] | None = None) -> None:
        """Begin with the open transactions of a snapshot: first offset by producer id."""
        # Ordered by first offset, as transactions begin at growing offsets: the first row is the oldest.
        self._open = OrderedDict(sorted((first_offsets or {}).items(), key=lambda item: item[1]))
        # Marker's offset by first offset.  One per producer and in-flight marker: few.
        self._ended: dict[Offset, Offset] = {}

    def __len__(self) -> int:
        return len(self._open)

    def first_offset(self, producer_id: int) -> Offset | None:
        """Return where the open transaction of a producer begins; None if it has none."""
        return self._open.get(producer_id)

    def producer_ids(self) -> Iterable[int]:
        """Return the producers with an open transaction."""
        return self._open.keys()

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
        self._ended[first_offset] = marker_offset
        if is_commit:
            return None
        oldest_open = next(iter(self._open.values()), marker_offset + 1)
        return AbortedTransaction(producer_id, first_offset, marker_offset, oldest_open)

    def replicated(self, high_watermark: Offset) -> None:
        """Every in-sync replica has what is below *high_watermark*."""
        if self._ended:
            self._ended = {first: marker for first, marker in self._ended.items() if marker >= high_watermark}

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

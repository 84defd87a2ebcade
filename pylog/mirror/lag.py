"""How far the target is behind.  Decides; waits for nothing, time comes in.

The lag in seconds does not look at the records' timestamps, which producers set as they like: it is the age of the
last moment for which it is known that everything the source had then is in the target.  So it is never negative, and
while the source cannot be asked it grows.
"""

import math
from collections import deque

from pylog.model import Offset

MAX_SIGHTINGS = 256
"""Kept of the source's end and not reached yet; with more, every other one goes, which can only make the lag longer."""

STALE_MS = 15_000
"""After so long without an answer from the source, how many records it holds is unknown."""


class Lag:
    """One partition's lag.

    Args:
        now_ms: when the mirror began to look after the partition.
        complete_ms: when everything had arrived, as whoever had the partition before knew: a restart, or another
            instance, does not make the target newer.
    """

    def __init__(self, now_ms: int, complete_ms: int | None = None) -> None:
        self._complete_ms = now_ms if complete_ms is None else min(complete_ms, now_ms)
        self._is_complete_known = complete_ms is not None
        self._end: Offset = 0
        self._seen_ms = -STALE_MS
        self._next: Offset = 0
        self._sightings: deque[tuple[int, Offset]] = deque()

    @property
    def complete_ms(self) -> int | None:
        """The last moment of which everything has arrived; None while there is none."""
        return self._complete_ms if self._is_complete_known else None

    def see_end(self, end: Offset, now_ms: int) -> None:
        """Note that the source's end was *end*, asked for at *now_ms*."""
        self._end, self._seen_ms = max(end, 0), now_ms
        if self._sightings and self._sightings[-1][1] == end:
            self._sightings.pop()
        self._sightings.append((now_ms, end))
        if len(self._sightings) > MAX_SIGHTINGS:
            self._sightings = deque(list(self._sightings)[1::2])
        self._settle()

    def arrive(self, next_source: Offset) -> None:
        """Note that everything below *next_source* has arrived."""
        self._next = max(self._next, next_source)
        self._settle()

    def reset(self, next_source: Offset) -> None:
        """Begin anew at *next_source*; how old the last good moment is does not change by that."""
        self._sightings.clear()
        self._next, self._end = next_source, max(self._end, next_source)

    def seconds(self, now_ms: int) -> float:
        """Return how old the newest moment is of which everything has arrived."""
        return max(0, now_ms - self._complete_ms) / 1000

    def records(self, now_ms: int) -> float:
        """Return how many offsets have not arrived; NaN while the source does not say."""
        if now_ms - self._seen_ms >= STALE_MS:
            return math.nan
        return max(0, self._end - self._next)

    def _settle(self) -> None:
        while self._sightings and self._sightings[0][1] <= self._next:
            self._complete_ms = max(self._complete_ms, self._sightings.popleft()[0])
            self._is_complete_known = True

"""When a log reached which offset: samples of its end, kept for days in a few dozen points."""

from collections.abc import Iterator
from itertools import pairwise

from pylog.model import Offset

MAX_POINTS = 64
"""Samples of one partition.  When there are more, every second one of the older half goes: the far past is kept
coarsely, since an hour of lag need not be known to the second."""

SET_BACK_MS = 30_000
"""A clock that goes back by less is waited for."""


class EndHistory:
    """Samples of one partition's end, the oldest first.  Times are ms since the Unix epoch."""

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: list[tuple[int, Offset]] = []

    def note(self, at_ms: int, end: Offset) -> None:
        """Take a sample.

        One that goes back in offsets is of another log, and one far back in time of a clock that was set right: what
        was known before goes.
        """
        points = self._points
        if points and (end < points[-1][1] or at_ms < points[-1][0] - SET_BACK_MS):
            points.clear()
        if points and at_ms <= points[-1][0]:
            return
        if len(points) >= 2 and points[-1][1] == points[-2][1] == end:
            points[-1] = (at_ms, end)  # nothing was written for a while: its first and its last moment are enough
            return
        points.append((at_ms, end))
        if len(points) > MAX_POINTS:
            half = len(points) // 2
            self._points = points[:half:2] + points[half:]

    @property
    def end(self) -> Offset:
        """The end at the last sample."""
        return self._points[-1][1]

    @property
    def first_ms(self) -> int:
        """When the first sample was taken."""
        return self._points[0][0]

    def end_at(self, at_ms: int) -> Offset:
        """Return the end at *at_ms*, between two samples in proportion; before the first one, the first one's."""
        for (before_ms, before), (after_ms, after) in self._steps():
            if at_ms <= after_ms:
                share = max(0, at_ms - before_ms) / (after_ms - before_ms)
                return before + int((after - before) * share)
        return self.end

    def reached_ms(self, offset: Offset) -> int | None:
        """Return when the record at *offset* was written, as near as the samples tell; None if it was not yet.

        For a record that was there at the first sample that is its time: it is at least as old.
        """
        if offset >= self.end:
            return None
        if offset < self._points[0][1]:
            return self.first_ms
        for (before_ms, before), (after_ms, after) in self._steps():
            if offset < after:
                return before_ms + int((offset - before) / (after - before) * (after_ms - before_ms))
        return None

    def _steps(self) -> Iterator[tuple[tuple[int, Offset], tuple[int, Offset]]]:
        yield from pairwise(self._points)

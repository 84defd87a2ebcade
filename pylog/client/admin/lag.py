"""Does a group keep up?  Burrow's rules over the latest commits of one partition and the live end of its log.

A number of records says little: a thousand behind is nothing for a topic of a million a second, and for ever for a
consumer that hangs.  So the trend decides: what the lag was at each commit, whether commits still come, and where the
log ends now.  No clock and no socket here; `pylog.client.commits` brings what is judged.

Source: LinkedIn's Burrow, "Consumer Lag Evaluation Rules".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from pylog.model import Offset

WINDOW_COMMITS = 10
"""Commits that are looked at, the latest ones, as in Burrow."""

TREND_COMMITS = 3
"""Fewer than this are no trend."""

PATIENCE_MS = 30_000
"""No consumer counts as stopped before; several times Kafka's default commit interval of 5 s."""


class Status(StrEnum):
    """How a partition is consumed, the better first."""

    OK = "OK"
    """It keeps up, or is about to."""
    WARN = "WARN"
    """Offsets advance, but the lag has not become smaller between any two commits."""
    STALL = "STALL"
    """Commits come, always with the same offset, while there is something to read."""
    STOP = "STOP"
    """Commits no longer come while there is something to read."""


_SEVERITY = {status: place for place, status in enumerate(Status)}


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: when, the offset, and where the log ended then."""

    at_ms: int
    offset: Offset
    end: Offset

    @property
    def lag(self) -> int:
        """Records that were left to read."""
        return max(0, self.end - self.offset)


def evaluate(commits: Sequence[Commit], committed: Offset, end: Offset, recent_end: Offset, now_ms: int) -> Status:
    """Judge one partition.

    Args:
        commits: what is known of the past, the oldest first; none if the last commit is older than what was looked at.
        committed: the group's offset now.
        end: where the log ends now.
        recent_end: where it ended `PATIENCE_MS` ago; who had read so far then has not stopped, but has had no time.
        now_ms: the time.
    """
    if committed >= end:
        return Status.OK
    window = _since_last_rewind(commits)[-WINDOW_COMMITS:]
    if _has_stopped(window, now_ms) and committed < recent_end:
        return Status.STOP
    if len(window) < TREND_COMMITS or any(commit.lag == 0 for commit in window):
        return Status.OK
    if len({commit.offset for commit in window}) == 1:
        return Status.STALL
    return Status.WARN if all(before.lag <= after.lag for before, after in pairwise(window)) else Status.OK


def worst(statuses: Iterable[Status]) -> Status | None:
    """Return the status of a whole group; None if nothing was judged."""
    return max(statuses, key=_SEVERITY.__getitem__, default=None)


def _has_stopped(window: Sequence[Commit], now_ms: int) -> bool:
    """Whether the silence since the last commit is longer than all commits before took."""
    if not window:
        return True
    return now_ms - window[-1].at_ms > max(window[-1].at_ms - window[0].at_ms, PATIENCE_MS)


def _since_last_rewind(commits: Sequence[Commit]) -> Sequence[Commit]:
    """Return the commits after the offset last went back: what was before tells nothing about the way since."""
    for place in range(len(commits) - 1, 0, -1):
        if commits[place].offset < commits[place - 1].offset:
            return commits[place:]
    return commits

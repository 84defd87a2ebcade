r"""A clock that deletes nothing because somebody set it.

retention-clock-checkpoint => version "\n" count "\n" milliseconds "\n"      (version 0, count 1; since 1970)
"""

import logging
from collections.abc import Callable
from pathlib import Path

from pylog.broker.clock import steady_ms
from pylog.errors import StorageError
from pylog.log import checkpoint

_logger = logging.getLogger(__name__)

JUMP_MS = 600_000
"""How far the wall clock may run ahead of the time that really passed before that is a jump: ten minutes."""

TRUST_AFTER_MS = 3_600_000
"""How long a clock that jumped ahead must have stayed there to be believed: time to see the alarm and set it right."""


class RetentionClock:
    """The time that retention goes by.

    A clock that is set ahead makes everything look old at once.  So a jump ahead counts only after an hour; until then
    time goes on as it passes.  A further jump meanwhile begins the hour anew.  A clock that is set back makes things
    look young, which deletes nothing.

    A host may also come up with its clock ahead.  So the time is written down while the broker runs, and goes on from
    there: after ten minutes away retention is as far behind for an hour.

    Attributes:
        jumped_ms: how far the wall clock is ahead of the time gone by, 0 while it is believed.
    """

    def __init__(self, path: Path, wall_ms: Callable[[], int], passed_ms: Callable[[], int] = steady_ms) -> None:
        """Go on from the time in the file; believe the wall clock where there is none.

        Args:
            path: the file.
            wall_ms: the time, as somebody may set it.
            passed_ms: a time that only goes on.
        """
        self._path = path
        self._wall_ms = wall_ms
        self._passed_ms = passed_ms
        noted_ms = _read(path)
        self._offset_ms = (self._wall_ms() if noted_ms is None else noted_ms) - self._passed_ms()
        self._jumped_at_ms = 0  # when the hour began, and how far ahead the clock was at least since then
        self._jumped_by_ms = 0
        self.jumped_ms = 0
        self.now_ms()  # the hour begins now

    def now_ms(self) -> int:
        """Return the time."""
        passed_ms = self._passed_ms()
        wall_ms = self._wall_ms()
        ahead_ms = wall_ms - passed_ms - self._offset_ms
        if ahead_ms <= JUMP_MS:
            self._offset_ms += ahead_ms  # drift, small corrections, and every step back
            self.jumped_ms = 0
            return wall_ms
        if not self.jumped_ms or ahead_ms > self._jumped_by_ms + JUMP_MS:
            self._jumped_at_ms, self._jumped_by_ms = passed_ms, ahead_ms
        self._jumped_by_ms = min(self._jumped_by_ms, ahead_ms)
        self.jumped_ms = ahead_ms
        if passed_ms - self._jumped_at_ms >= TRUST_AFTER_MS:
            self._offset_ms += ahead_ms
            self.jumped_ms = 0
            return wall_ms
        return passed_ms + self._offset_ms

    def checkpoint_job(self) -> "ClockJob":
        """Return the job that writes down what time it is."""
        return ClockJob(self._path, self.now_ms())


class ClockJob:
    """Write a time down; without it the next start goes on from an earlier one."""

    def __init__(self, path: Path, now_ms: int) -> None:
        self._path = path
        self._now_ms = now_ms
        self._error: StorageError | None = None

    def run(self) -> None:
        """Replace the file."""
        try:
            checkpoint.write_lines(self._path, [str(self._now_ms)])
        except StorageError as error:
            self._error = error

    def finish(self) -> None:
        """Report a failure."""
        if self._error is not None:
            _logger.warning("retention's clock not written reason=%s", self._error)


def _read(path: Path) -> int | None:
    try:
        lines = checkpoint.read_lines(path)
        return None if lines is None else int(lines[0])
    except (StorageError, ValueError, IndexError) as error:
        _logger.warning("retention believes the wall clock, its own cannot be read file=%s reason=%s", path, error)
        return None

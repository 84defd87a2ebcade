"""A clock that deletes nothing because somebody set it."""

from collections.abc import Callable

from pylog.broker.clock import steady_ms

JUMP_MS = 600_000
"""How far the wall clock may run ahead of the time that really passed before that is a jump: ten minutes."""

TRUST_AFTER_MS = 3_600_000
"""How long a clock that jumped ahead must have stayed there to be believed: time to see the alarm and set it right."""


class RetentionClock:
    """The time that retention goes by.

    A clock that is set ahead makes everything look old at once.  So a jump ahead counts only after an hour; until then
    time goes on as it passes.  A clock that is set back makes things look young, which deletes nothing.

    Attributes:
        jumped_ms: how far the wall clock is ahead of the time gone by, 0 while it is believed.
    """

    def __init__(self, wall_ms: Callable[[], int], passed_ms: Callable[[], int] = steady_ms) -> None:
        """Begin with believing the wall clock.

        Args:
            wall_ms: the time, as somebody may set it.
            passed_ms: a time that only goes on.
        """
        self._wall_ms = wall_ms
        self._passed_ms = passed_ms
        self._offset_ms = self._wall_ms() - self._passed_ms()
        self._jumped_at_ms = 0
        self.jumped_ms = 0

    def now_ms(self) -> int:
        """Return the time."""
        passed_ms = self._passed_ms()
        wall_ms = self._wall_ms()
        ahead_ms = wall_ms - passed_ms - self._offset_ms
        if ahead_ms <= JUMP_MS:
            self._offset_ms += ahead_ms  # drift, small corrections, and every step back
            self.jumped_ms = 0
            return wall_ms
        if not self.jumped_ms:
            self._jumped_at_ms = passed_ms
        self.jumped_ms = ahead_ms
        if passed_ms - self._jumped_at_ms >= TRUST_AFTER_MS:
            self._offset_ms += ahead_ms
            self.jumped_ms = 0
            return wall_ms
        return passed_ms + self._offset_ms

"""A token bucket: a rate with a bounded burst, for quotas of clients and for replication throttles."""

import math

SECOND_MS = 1_000


class TokenBucket:
    """Tokens that grow with time; below zero the level is a debt that time pays.

    Attributes:
        rate: tokens a second; 0 gives nothing, ever.
    """

    __slots__ = ("_burst_ms", "_filled_ms", "_level", "rate")

    def __init__(self, rate: float, now_ms: int, burst_ms: int = SECOND_MS) -> None:
        """Begin full.

        Args:
            rate: tokens a second.
            now_ms: the time.
            burst_ms: the bucket holds what the rate brings in this time.
        """
        self.rate = rate
        self._burst_ms = burst_ms
        self._level = self.burst
        self._filled_ms = now_ms

    @property
    def burst(self) -> float:
        """Tokens in a full bucket."""
        return self.rate * self._burst_ms / 1000

    def left(self, now_ms: int) -> float:
        """Return the tokens that are left, negative for a debt; a clock that goes back adds nothing."""
        grown = self._level + self.rate * max(now_ms - self._filled_ms, 0) / 1000
        self._level = min(grown, self.burst)
        self._filled_ms = now_ms
        return self._level

    def take(self, amount: float, now_ms: int) -> float:
        """Take *amount*, also more than is left; return in how many ms the debt is paid, 0 without one."""
        self._level = left = self.left(now_ms) - amount
        if left >= 0:
            return 0
        return -left / self.rate * 1000 if self.rate else math.inf

    def set_rate(self, rate: float) -> None:
        """Go on with another rate; what exceeds its burst, saved or owed, is forgotten."""
        self.rate = rate
        self._level = max(min(self._level, self.burst), -self.burst)

"""How fast replicas that catch up may be fed, so that moving partitions leaves room for everything else.

Source: KIP-73; the lists are Kafka's `leader.replication.throttled.replicas` and its follower's twin.
"""

from functools import lru_cache

ALL = "*"


class Throttle:
    """A rate in bytes a second; what is taken beyond it is made up for by waiting.

    Attributes:
        rate: bytes a second.
    """

    __slots__ = ("_allowance", "_refilled_ms", "rate")

    def __init__(self, rate: int, now_ms: int) -> None:
        """Begin with one second's worth."""
        self.rate = rate
        self._allowance = float(rate)
        self._refilled_ms = now_ms

    def set_rate(self, rate: int) -> None:
        """Take another rate; what was saved up or owed beyond a second of it is forgotten."""
        self.rate = rate
        self._allowance = max(min(self._allowance, rate), -rate)

    def take(self, count: int) -> None:
        """Take *count* bytes, also more than there are."""
        self._allowance -= count

    def left(self, now_ms: int) -> float:
        """Return how many bytes may be taken now, at most a second's worth; none if it is not above zero."""
        passed_ms, self._refilled_ms = max(now_ms - self._refilled_ms, 0), now_ms
        self._allowance = min(self._allowance + self.rate * passed_ms / 1000, self.rate)
        return self._allowance

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether nothing more may be taken now."""
        return self.left(now_ms) <= 0

    def grant(self, now_ms: int) -> int:
        """Return how many bytes may be taken at once now: a second's worth, or none while more than that is owed.

        Not what is left of the second: whoever took the little that each millisecond brings would fetch all the time.
        """
        return 0 if self.is_exceeded(now_ms) else self.rate


@lru_cache(maxsize=1024)
def throttled_partitions(replicas: str, broker_id: int) -> frozenset[int] | None:
    """Return the partitions of which *broker_id*'s replica is in a list of throttled ones; None stands for all.

    Args:
        replicas: ``partition:broker,…``, or ``*``.
        broker_id: whose replicas.
    """
    if replicas == ALL:
        return None
    pairs = (part.split(":") for part in replicas.split(",") if part)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)

"""A producer's own account: what it sent, window by window, and up to when that is all.  Decides; waits for nothing."""

from dataclasses import dataclass, field

from pylog.audit.reports import Report, Tier, WindowKey
from pylog.client.counting import Stamp, WindowCount, checksum, window_of


@dataclass(slots=True)
class _Topic:
    next_sequence: int = 0
    number: int = 0
    windows: dict[WindowKey, WindowCount] = field(default_factory=dict)


class ProducerAccount:
    """Stamps and counts records, and takes back those that were refused.

    Args:
        producer: names this life of this producer.
        host: the server's name.
        window_ms: how long a window is.
    """

    def __init__(self, producer: str, host: str, window_ms: int) -> None:
        self._producer, self._host, self._window_ms = producer, host, window_ms
        self._topics: dict[str, _Topic] = {}
        self._last_ms = 0

    def stamp(self, topic: str, value: bytes | None, now_ms: int) -> Stamp:
        """Count the next record and return its stamp; its time does not go back, even if the clock does."""
        there = self._topics.get(topic)
        if there is None:
            there = self._topics[topic] = _Topic()
        self._last_ms = max(self._last_ms, now_ms)
        sequence = there.next_sequence
        there.next_sequence += 1
        key = self._producer, window_of(self._last_ms, self._window_ms)
        count = there.windows.get(key)
        if count is None:
            count = there.windows[key] = WindowCount(self._host)
        count.add(sequence, checksum(sequence, value))
        return Stamp(self._producer, sequence, self._last_ms, self._host)

    def take_back(self, topic: str, stamp: Stamp, value: bytes | None) -> None:
        """Note that a record was refused, or nobody knows of it: it is not promised."""
        key = self._producer, window_of(stamp.timestamp_ms, self._window_ms)
        self._topics[topic].windows[key].remove(stamp.sequence, checksum(stamp.sequence, value))

    def reports(self, now_ms: int, *, is_closed: bool = False) -> list[Report]:
        """Return what was sent since the last reports, one for each topic; call it while nothing is under way."""
        self._last_ms = max(self._last_ms, now_ms)
        found = []
        for topic, there in self._topics.items():
            found.append(
                Report(
                    tier=Tier.PRODUCER,
                    topic=topic,
                    who=self._producer,
                    number=there.number,
                    at_ms=self._last_ms,
                    complete_ms=self._last_ms,
                    is_closed=is_closed,
                    windows=there.windows,
                )
            )
            there.number += 1
            there.windows = {}
        return found

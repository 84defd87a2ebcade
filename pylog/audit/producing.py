"""A producer's own account: what it sent, window by window, and up to when that is all.  Decides; waits for nothing."""

from collections import OrderedDict
from dataclasses import dataclass, field

from pylog.audit.reports import Report, Tier, WindowKey
from pylog.client.counting import Stamp, WindowCount, window_of


@dataclass(slots=True)
class _Topic:
    next_sequence: int = 0
    number: int = 0
    under_way: OrderedDict[int, int] = field(default_factory=OrderedDict)
    windows: dict[WindowKey, WindowCount] = field(default_factory=dict)


class ProducerAccount:
    """Stamps records, and counts those that were acknowledged.

    Args:
        producer: names this life of this producer.
        host: the server's name.
        window_ms: how long a window is.
    """

    def __init__(self, producer: str, host: str, window_ms: int) -> None:
        self._producer, self._host, self._window_ms = producer, host, window_ms
        self._topics: dict[str, _Topic] = {}
        self._last_ms = 0

    def stamp(self, topic: str, now_ms: int) -> Stamp:
        """Return the stamp of the next record; its time does not go back, even if the clock does."""
        there = self._topics.setdefault(topic, _Topic())
        self._last_ms = max(self._last_ms, now_ms)
        found = Stamp(self._producer, there.next_sequence, self._last_ms, self._host)
        there.under_way[found.sequence] = found.timestamp_ms
        there.next_sequence += 1
        return found

    def settle(self, topic: str, stamp: Stamp, content: int, *, is_written: bool) -> None:
        """Note how a record ended; one that was refused, or nobody knows of, is not promised."""
        there = self._topics[topic]
        del there.under_way[stamp.sequence]
        if is_written:
            key = self._producer, window_of(stamp.timestamp_ms, self._window_ms)
            there.windows.setdefault(key, WindowCount(self._host)).add(stamp.sequence, content)

    def reports(self, now_ms: int, *, is_closed: bool = False) -> list[Report]:
        """Return what was acknowledged since the last reports, one for each topic."""
        self._last_ms = max(self._last_ms, now_ms)
        found = []
        for topic, there in self._topics.items():
            complete_ms = next(iter(there.under_way.values()), self._last_ms)
            found.append(
                Report(
                    tier=Tier.PRODUCER,
                    topic=topic,
                    who=self._producer,
                    number=there.number,
                    at_ms=self._last_ms,
                    complete_ms=complete_ms,
                    is_closed=is_closed and not there.under_way,
                    windows=there.windows,
                )
            )
            there.number += 1
            there.windows = {}
        return found

"""Bytes by topic, for who wants to know which one makes the load."""

from collections import defaultdict
from collections.abc import Mapping

from pylog.broker.data.partitions import Partitions
from pylog.metrics import MAX_TOPICS, OTHER, Metrics


class TopicBytes:
    """One counter a topic; those of topics that are gone leave the page.

    The first `MAX_TOPICS` are told apart, since a counter must not fall: what others have counted goes into one row at
    each scrape.

    Attributes:
        counts: by topic; only names of topics that exist are added.
    """

    def __init__(self, name: str, help: str, partitions: Partitions, metrics: Metrics) -> None:
        """Show them in *metrics* as *name*."""
        self.counts: defaultdict[str, int] = defaultdict(int)
        self._partitions = partitions
        self._others = 0
        metrics.table(name, "counter", help, ("topic",), self._rows)

    def _rows(self) -> Mapping[tuple[str], float]:
        for topic in self.counts.keys() - self._partitions.image.topics.keys():
            del self.counts[topic]
        for topic in tuple(self.counts)[MAX_TOPICS:]:
            self._others += self.counts.pop(topic)
        rows = {(topic,): count for topic, count in self.counts.items()}
        if self._others:
            rows[(OTHER,)] = rows.get((OTHER,), 0) + self._others
        return rows

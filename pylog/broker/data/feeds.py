"""What followers fetch from us, named once for each connection and then only where something changed.

A follower asks once for each batch that is written with acks=all.  To look at all its partitions each time made one
record among a thousand idle partitions cost as much as a thousand: so we know which of them may have news (`due`), by
what happened to their logs.  Not everything that can be told happens to a log (a throttle has ended, a disk has
failed): therefore all are looked at from time to time, and always before a fetch that found nothing is answered.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from pylog.broker.data.sessions import FetchSession
from pylog.errors import ApiError, ErrorCode
from pylog.model import Key
from pylog.wire.fetch import Feeding, FetchPartition, FetchRequest

SWEEP_MS = 400
"""How often all partitions of a feed are looked at, and their follower counts as having fetched them."""


@dataclass(slots=True, eq=False)
class Feed(FetchSession):
    """What one follower wants on one connection.

    Attributes:
        due: those of its partitions about which there may be something to tell, in the order in which they are read.
        swept_ms: when all of them were looked at last.
    """

    due: dict[Key, None] = field(default_factory=dict)
    swept_ms: int = 0

    def wanted(self) -> list[FetchPartition]:
        """Return what to look at now."""
        return [self.partitions[key] for key in self.due]

    def sweep(self) -> None:
        """Look at all, and tell of all: a follower does not take what it is told in an epoch that was over by then."""
        self.due.update(dict.fromkeys(self.partitions))
        self.told.clear()

    def done(self, keys: Iterable[Key]) -> None:
        """Look at these no more until something happens to them, or the follower names them again."""
        for key in keys:
            self.due.pop(key, None)


class Feeds:
    """All feeds of one broker."""

    def __init__(self) -> None:
        self._by_connection: dict[Hashable, Feed] = {}
        self._under: dict[Key, dict[Feed, None]] = {}

    def under(self, key: Key) -> Iterable[Feed]:
        """Return the feeds with this partition."""
        return self._under.get(key, ())

    def apply(self, connection: Hashable, request: FetchRequest, now_ms: int) -> Feed:
        """Take in what *request* says of its connection's feed, and return it.

        Raises:
            ApiError: FETCH_SESSION_ID_NOT_FOUND: it changes a feed that never began here.
        """
        if request.feeding is Feeding.BEGIN:
            self.drop(connection)
            feed = self._by_connection[connection] = Feed(session_id=1, used_ms=now_ms, swept_ms=now_ms)
        else:
            known = self._by_connection.get(connection)
            if known is None:
                raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "no list was begun on this connection")
            feed = known
        self._leave(feed, request.forgotten)
        feed.change(request.partitions, request.forgotten)
        for part in request.partitions:
            key = (part.topic, part.partition)
            feed.due[key] = None
            self._under.setdefault(key, {})[feed] = None
        return feed

    def drop(self, connection: Hashable) -> None:
        """Forget a connection's feed."""
        feed = self._by_connection.pop(connection, None)
        if feed is not None:
            self._leave(feed, list(feed.partitions))

    def _leave(self, feed: Feed, keys: Iterable[Key]) -> None:
        feed.done(keys)
        for key in keys:
            feeds = self._under.get(key)
            if feeds is not None:
                feeds.pop(feed, None)
                if not feeds:
                    del self._under[key]

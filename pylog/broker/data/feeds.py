"""What followers fetch from us, named once for each connection and then only where something changed.

A follower asks once for each batch that is written with acks=all.  To look at all its partitions each time made one
record among a thousand idle partitions cost as much as a thousand: so we know which of them may have news (`due`), by
what happened to their logs.  Not everything that can be told happens to a log (a throttle has ended, a disk has
failed): therefore some are looked at from time to time, and before a fetch that found nothing is answered, each in its
turn.  They are so few that a partition which nobody uses costs nothing, however many there are: a follower that asks
for anything on its connection counts as having asked for all of them.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from pylog.broker.data.sessions import FetchSession
from pylog.errors import ApiError, ErrorCode
from pylog.model import Key, Offset
from pylog.replica.leader import Alive
from pylog.wire.fetch import Feeding, FetchPartition, FetchRequest

SWEEP_MS = 400
"""How often some partitions of a feed are looked at to which nothing has happened."""

SWEEP_COUNT = 32
"""How many of them."""


@dataclass(slots=True, eq=False)
class Feed(FetchSession):
    """What one follower wants on one connection.

    Attributes:
        replica_id: the follower.
        broker_epoch: of its registration.
        alive: when it has asked for anything here.
        due: those of its partitions about which there may be something to tell, in the order in which they are read.
        idle: those of which it had everything when they were read last.
        swept_ms: when some of them were looked at for no reason.
    """

    replica_id: int = -1
    broker_epoch: int = -1
    alive: Alive = field(default_factory=Alive)
    due: dict[Key, None] = field(default_factory=dict)
    idle: set[Key] = field(default_factory=set)
    swept_ms: int = 0
    _turns: Iterator[Key] = field(default_factory=lambda: iter(()))

    def wanted(self) -> list[FetchPartition]:
        """Return what to look at now."""
        return [self.partitions[key] for key in self.due]

    def sweep(self) -> list[FetchPartition]:
        """Look at the next few, and tell of them whatever was told before; return what is asked of them."""
        found = list(islice(self._turns, SWEEP_COUNT))
        if len(found) < SWEEP_COUNT:
            self._turns = iter(list(self.partitions))
            found += islice(self._turns, SWEEP_COUNT - len(found))
        keys = [key for key in dict.fromkeys(found) if key in self.partitions]
        for key in keys:
            self.due[key] = None
            self.told.pop(key, None)
        return [self.partitions[key] for key in keys]

    def starts_later(self, part: FetchPartition, log_start_offset: Offset) -> bool:
        """Whether the leader's log begins above the follower's, and the follower has not been told."""
        _, told_start = self.told.get((part.topic, part.partition), (-1, -1))
        return log_start_offset > max(part.log_start_offset, told_start)

    def done(self, keys: Iterable[Key]) -> None:
        """Look at these no more until something happens to them, or the follower names them again."""
        for key in keys:
            self.due.pop(key, None)


class Feeds:
    """All feeds of one broker.

    Attributes:
        by_key: feeds with a partition.
    """

    def __init__(self, left: Callable[[Feed, Iterable[Key]], None]) -> None:
        """Make it; *left* is told which partitions a feed does not have any more."""
        self._left = left
        self._by_connection: dict[Hashable, Feed] = {}
        self._under: dict[Key, dict[Feed, None]] = {}
        self.by_key: Mapping[Key, Mapping[Feed, None]] = self._under

    def under(self, key: Key) -> Iterable[Feed]:
        """Return the feeds with this partition."""
        return self._under.get(key, ())

    def apply(self, connection: Hashable, request: FetchRequest, now_ms: int, proven_ms: int) -> Feed:
        """Take in what *request* says of its connection's feed, and return it.

        Args:
            connection: on which it came.
            request: a follower's.
            now_ms: the time.
            proven_ms: when the follower was told on this connection that its proof is right.

        Raises:
            ApiError: FETCH_SESSION_ID_NOT_FOUND: it changes a feed that never began here.
        """
        if request.feeding is Feeding.BEGIN:
            before = self._by_connection.get(connection)
            self.drop(connection)
            feed = self._by_connection[connection] = Feed(
                session_id=1,
                used_ms=now_ms,
                swept_ms=now_ms,
                replica_id=request.replica_id,
                broker_epoch=request.broker_epoch,
                alive=Alive(answered_ms=proven_ms if before is None else before.alive.answered_ms),
            )
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
            feed.idle.discard(key)
            # A follower that names it again may not have taken what it was told: its epoch was over by then.
            feed.told.pop(key, None)
            self._under.setdefault(key, {})[feed] = None
        return feed

    def drop(self, connection: Hashable) -> None:
        """Forget a connection's feed."""
        feed = self._by_connection.pop(connection, None)
        if feed is not None:
            self._leave(feed, list(feed.partitions))

    def _leave(self, feed: Feed, keys: Sequence[Key]) -> None:
        self._left(feed, keys)
        feed.done(keys)
        for key in keys:
            feed.idle.discard(key)
            feeds = self._under.get(key)
            if feeds is not None:
                feeds.pop(feed, None)
                if not feeds:
                    del self._under[key]

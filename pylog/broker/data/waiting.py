"""Fetches that found too little: they wait under their partitions until enough was appended or their time is up.

Whatever happens to a partition is looked at once the turn of the loop is over, so that a hundred batches appended in
one wake-up cause one look.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pylog.broker.data.feeds import Feed, Feeds
from pylog.broker.data.partitions import Moved, Partitions
from pylog.broker.data.sessions import FetchSession
from pylog.broker.quotas import Meter
from pylog.broker.timer import Alarm
from pylog.delayed import DelayedRequests
from pylog.model import Key, Offset
from pylog.net.connection import Connection, Part, Slot
from pylog.security.authorizer import Subject
from pylog.wire.fetch import READ_COMMITTED, FetchPartition, FetchRequest

_logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class WaitingFetch:
    """A fetch that waits for its slot to be filled.

    Attributes:
        offsets: from which it reads, by partition; a feed knows its own.
        subject: decides what it may read.
        is_looked_at: its partitions are being read, some in a turn.
        has_changed: something happened to one of them meanwhile.
        is_late: its time is up.
    """

    slot: Slot
    version: int
    correlation_id: int
    request: FetchRequest
    session: FetchSession | None
    meter: Meter | None
    offsets: Mapping[Key, Offset]
    subject: Subject | None = None
    is_looked_at: bool = False
    has_changed: bool = False
    is_late: bool = False


Look = Callable[[WaitingFetch, bool], list[Part] | None]
"""Reads again what waits, and returns the answer or None if it waits on; True says that its time is up."""


class WaitingFetches:
    """All of one broker.

    Attributes:
        feeds: of the followers.
    """

    def __init__(
        self, partitions: Partitions, now_ms: Callable[[], int], look: Look, *, tells_high_watermarks: bool
    ) -> None:
        """Make it.

        Args:
            partitions: hosted here; what happens to them is heard from now on.
            now_ms: a steady clock.
            look: reads again.
            tells_high_watermarks: followers wait for high watermarks too, for consumers that read there.
        """
        self.feeds = Feeds(self._left)
        self._partitions = partitions
        self._now_ms = now_ms
        self._look = look
        self._tells_high_watermarks = tells_high_watermarks
        self._delayed: DelayedRequests[Key, WaitingFetch] = DelayedRequests()
        self._waiting_feeds: dict[Feed, WaitingFetch] = {}
        self._changed: set[Key] = set()
        self._grown: set[Key] = set()
        self._fed: dict[Feed, WaitingFetch] = {}
        self._alarm = Alarm(self.time_is_up, now_ms)
        self._loop = asyncio.get_running_loop()
        partitions.subscribe(self.moved)

    def __len__(self) -> int:
        return len(self._delayed)

    def wait(self, fetch: WaitingFetch, max_wait_ms: int) -> None:
        """Let a fetch wait under the partitions of its offsets, or as the one of its feed."""
        if isinstance(fetch.session, Feed):
            self._waiting_feeds[fetch.session] = fetch
        deadline_ms = self._now_ms() + max_wait_ms
        self._delayed.watch(fetch, fetch.offsets, deadline_ms)
        self._alarm.ask(deadline_ms)

    def moved(self, key: Key, what: Moved) -> None:
        """Look again at the fetches that wait for a partition to which something happened.

        Followers read up to the log end and consumers up to the high watermark, and with acks=all both move with every
        batch: a fetch that gains nothing from what moved is not looked at.
        """
        is_fed, is_awaited = key in self.feeds.by_key, key in self._delayed.waiting_keys
        if not is_fed and not is_awaited:
            return
        has_only_grown = what is Moved.END or (what is Moved.HIGH_WATERMARK and not self._tells_high_watermarks)
        if is_fed:
            self._feed(key, has_only_grown=has_only_grown)
        if is_awaited:
            self._look_soon()
            (self._grown if has_only_grown else self._changed).add(key)

    def answer(self, fetch: WaitingFetch, parts: list[Part]) -> None:
        """Answer a fetch, whether it waits or not."""
        self._finish(fetch)
        fetch.slot.complete(parts)

    def forget(self, connection: Connection) -> None:
        """Drop what a closed connection waited for."""
        self.feeds.drop(connection)
        for fetch in self._delayed.waiting():
            if fetch.slot.connection is connection:
                self._finish(fetch)

    def time_is_up(self) -> None:
        """Answer the fetches whose deadline has passed."""
        for fetch in self._delayed.expire(self._now_ms()):
            self._look_at(fetch, is_late=True)
        next_ms = self._delayed.next_deadline_ms()
        if next_ms is not None:
            self._alarm.ask(next_ms)

    def _feed(self, key: Key, *, has_only_grown: bool) -> None:
        partition = self._partitions.get(*key)
        leading = None if partition is None else partition.leading
        for feed in self.feeds.under(key):
            feed.due[key] = None
            has_more = self._has_more(feed.partitions[key])
            if has_more and key in feed.idle:
                feed.idle.discard(key)
                if leading is not None:
                    leading.fell_behind(feed.replica_id)
            fetch = self._waiting_feeds.get(feed)
            if fetch is not None and (has_more or not has_only_grown):
                self._look_soon()
                self._fed[feed] = fetch

    def _has_more(self, part: FetchPartition) -> bool:
        partition = self._partitions.get(part.topic, part.partition)
        return partition is not None and partition.log is not None and partition.log.log_end_offset > part.fetch_offset

    def _left(self, feed: Feed, keys: Iterable[Key]) -> None:
        """A follower asks for partitions no more on this connection: what it does there says nothing of them now."""
        for key in keys:
            partition = self._partitions.get(*key)
            if partition is not None and partition.leading is not None:
                partition.leading.left(feed.replica_id, feed.alive, had_everything=key in feed.idle)

    def _look_soon(self) -> None:
        if not self._changed and not self._grown and not self._fed:
            self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        changed, self._changed = self._changed, set()
        grown, self._grown = self._grown, set()
        fed, self._fed = self._fed, {}
        for feed, fetch in fed.items():
            if self._waiting_feeds.get(feed) is fetch:
                self._look_at(fetch, is_late=False)
        due = dict.fromkeys(fetch for key in changed for fetch in self._delayed.under(key))
        for key in grown:
            due.update(dict.fromkeys(self._gaining(key)))
        for fetch in due:
            self._look_at(fetch, is_late=False)

    def _gaining(self, key: Key) -> list[WaitingFetch]:
        """Return the fetches waiting for *key* that find more there than when they were read last."""
        waiting = self._delayed.under(key)
        partition = self._partitions.get(*key)
        if partition is None or partition.log is None:
            return waiting
        log = partition.log
        end, shown = log.log_end_offset, log.high_watermark
        if log.producers.transactions is None:
            return [one for one in waiting if one.offsets[key] < (end if one.request.replica_id >= 0 else shown)]
        stable = log.last_stable_offset

        def bound(request: FetchRequest) -> Offset:
            if request.replica_id >= 0:
                return end
            return stable if request.isolation_level == READ_COMMITTED else shown

        return [one for one in waiting if one.offsets[key] < bound(one.request)]

    def _look_at(self, fetch: WaitingFetch, *, is_late: bool) -> None:
        """Answer a fetch that waited, if it finds enough now or its time is up."""
        try:
            parts = self._look(fetch, is_late)
            if parts is not None:
                self.answer(fetch, parts)
        except Exception:
            # As where requests come in: a bug of ours must cost one client its connection, not everybody the broker.
            _logger.exception("bug in a fetch that waited peer=%s", fetch.slot.connection.peer)
            fetch.slot.connection.close("fetch failed here")

    def _finish(self, fetch: WaitingFetch) -> None:
        self._delayed.finish(fetch)
        if isinstance(fetch.session, Feed):
            self._waiting_feeds.pop(fetch.session, None)

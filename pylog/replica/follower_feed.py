"""The follower's side of an incremental fetch session: it sends only partitions whose fetch parameters changed.

A follower with hundreds of partitions of one leader fetches once for each batch that is written with acks=all.  Both
sides keep the list for as long as their connection stands.  The leader's side is `pylog.broker.data.feeds`.
"""

from collections.abc import Callable, Iterable, Iterator, Set
from itertools import islice

from pylog.model import Key
from pylog.wire.fetch import Feeding, FetchPartition

CHECK_MS = 400
"""How often some partitions are compared with what was asked: not everything that stops a follower tells of itself."""

CHECK_COUNT = 32
"""How many of them, each in its turn, beside those that are not asked for now: a partition that nobody uses costs
nothing, however many there are."""


class FollowerFeed:
    """The list as the leader has it, or will have it once it has read the request that was built last."""

    def __init__(self) -> None:
        self._asked: dict[Key, FetchPartition | None] = {}
        self._unsure: set[Key] = set()
        self._left_out: set[Key] = set()
        self._turns: Iterator[Key] = iter(())
        self._checked_ms: int | None = None
        self._is_kept = False

    def __contains__(self, key: Key) -> bool:
        return key in self._asked

    def __bool__(self) -> bool:
        return bool(self._asked)

    def get(self, key: Key) -> FetchPartition | None:
        """Return what was asked of *key* last."""
        return self._asked.get(key)

    def forget(self) -> None:
        """Begin anew with the next request: the leader knows nothing, or nobody knows what it knows."""
        self._is_kept = False

    def answered(self, *, is_kept: bool) -> None:
        """Take note whether the leader keeps the list."""
        self._is_kept = is_kept

    def doubt(self, keys: Iterable[Key]) -> None:
        """Look at these again before the next request: what is to be asked of them may have changed."""
        self._unsure.update(keys)

    def doubt_all(self) -> None:
        """Look at all again."""
        self._checked_ms = None

    def repeat(self, key: Key) -> None:
        """Name *key* again, even if it is as before: what came was not taken."""
        if key in self._asked:
            self._asked[key] = None
            self._unsure.add(key)

    def request(
        self, keys: Set[Key], question: Callable[[Key], FetchPartition | None], now_ms: int
    ) -> tuple[Feeding, list[FetchPartition], list[Key]]:
        """Return the next request's kind, and the partitions that it names and forgets.

        Args:
            keys: all that may be asked for.
            question: what to ask of one of them; None leaves it out for now.
            now_ms: the time.
        """
        if not self._is_kept:
            self._asked.clear()
        if not self._is_kept or self._checked_ms is None:
            self._checked_ms = now_ms
            self._left_out.clear()
            self._unsure |= keys | self._asked.keys()
        elif now_ms - self._checked_ms >= CHECK_MS:
            self._checked_ms = now_ms
            self._unsure |= self._left_out
            self._unsure.update(self._next_few(keys))
        named: list[FetchPartition] = []
        forgotten: list[Key] = []
        for key in self._unsure:
            part = question(key) if key in keys else None
            if part is None:
                if key in keys:
                    self._left_out.add(key)
                if key in self._asked:
                    del self._asked[key]
                    forgotten.append(key)
                continue
            self._left_out.discard(key)
            if self._asked.get(key) != part:
                self._asked[key] = part
                named.append(part)
        self._unsure.clear()
        return (Feeding.CHANGE if self._is_kept else Feeding.BEGIN), named, forgotten

    def _next_few(self, keys: Set[Key]) -> list[Key]:
        found = list(islice(self._turns, CHECK_COUNT))
        if len(found) < CHECK_COUNT:
            self._turns = iter(list(keys))
            found += islice(self._turns, CHECK_COUNT - len(found))
        return found

"""Requests waiting for a condition or a deadline.

A request waits under the keys whose change may fulfil it.  Whoever changes a key asks which requests to look at again;
whoever owns the clock asks which are over.  Nothing here waits, calls back or knows what a request is.
"""

import heapq
import itertools
from collections.abc import Container, Hashable, Iterable
from typing import Generic, TypeVar

_SPARE = 100

RequestT = TypeVar("RequestT", bound=Hashable)
KeyT = TypeVar("KeyT", bound=Hashable)


class DelayedRequests(Generic[KeyT, RequestT]):
    """Waiting requests by key, ordered by deadline.

    Attributes:
        waiting_keys: under which some request waits; to look there costs less than to ask `is_awaited`.

    Invariant: a request is either waiting under all its keys and in the deadline heap, or done and under none.
    """

    def __init__(self) -> None:
        self._keys: dict[RequestT, tuple[KeyT, ...]] = {}
        self._waiting: dict[KeyT, dict[RequestT, None]] = {}
        self.waiting_keys: Container[KeyT] = self._waiting
        # Finished requests stay in the heap for a while: removing from the middle costs more than skipping.
        self._deadlines: list[tuple[int, int, RequestT]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._keys)

    def watch(self, request: RequestT, keys: Iterable[KeyT], deadline_ms: int) -> None:
        """Let *request* wait under *keys*, until *deadline_ms* at most."""
        assert request not in self._keys, "a request waits once"
        self._keys[request] = keys = tuple(keys)
        for key in keys:
            self._waiting.setdefault(key, {})[request] = None
        heapq.heappush(self._deadlines, (deadline_ms, next(self._order), request))

    def under(self, key: KeyT) -> list[RequestT]:
        """Return the requests a change of *key* may fulfil, in the order they came."""
        return list(self._waiting.get(key, ()))

    def waiting(self) -> list[RequestT]:
        """Return every waiting request, in the order they came."""
        return list(self._keys)

    def is_awaited(self, key: KeyT) -> bool:
        """Whether any request waits under *key*."""
        return key in self._waiting

    def finish(self, request: RequestT) -> bool:
        """Forget *request*; return whether it was waiting."""
        keys = self._keys.pop(request, None)
        if keys is None:
            return False
        for key in keys:
            requests = self._waiting[key]
            del requests[request]
            if not requests:
                del self._waiting[key]
        if len(self._deadlines) > 2 * len(self._keys) + _SPARE:
            # Not until their deadline: half a minute of producers that wait for acks=all is a hundred thousand objects,
            # and to look at them the collector would stop the broker for a tenth of a second.
            self._deadlines = [entry for entry in self._deadlines if entry[2] in self._keys]
            heapq.heapify(self._deadlines)
        return True

    def expire(self, now_ms: int) -> list[RequestT]:
        """Finish and return the requests whose deadline is *now_ms* or before."""
        late: list[RequestT] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, _, request = heapq.heappop(self._deadlines)
            if self.finish(request):
                late.append(request)
        return late

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline of a waiting request, or None."""
        while self._deadlines and self._deadlines[0][2] not in self._keys:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

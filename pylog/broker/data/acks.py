"""Requests that wait for replicas: appends with acks=all, and deletions of records.

An append is acknowledged when the high watermark has passed it and this broker has led ever since it was written.  When
the leadership is lost first, nobody can say any more whether it will last, so its writer is told to try again.  A
deletion of records is answered when every live replica begins where it was told to.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pylog.broker.data.partitions import Awaited, Moved
from pylog.broker.timer import Alarm
from pylog.delayed import DelayedRequests
from pylog.errors import ErrorCode
from pylog.model import Key


@dataclass(slots=True, eq=False)
class _Waiting:
    left: dict[Key, Awaited]
    errors: dict[Key, ErrorCode]
    done: Callable[[Mapping[Key, ErrorCode]], None]


class Acknowledgements:
    """Everything of one kind that waits for replicas."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._delayed: DelayedRequests[Key, _Waiting] = DelayedRequests()
        self._alarm = Alarm(self._time_is_up, now_ms)

    def __len__(self) -> int:
        return len(self._delayed)

    def wait(
        self, awaited: Mapping[Key, Awaited], timeout_ms: int, done: Callable[[Mapping[Key, ErrorCode]], None]
    ) -> None:
        """Call *done* with a result for each key, once all have one; perhaps at once."""
        waiting = _Waiting(dict(awaited), {}, done)
        if self._settle(waiting, list(waiting.left)):
            done(waiting.errors)
            return
        deadline_ms = self._now_ms() + timeout_ms
        self._delayed.watch(waiting, waiting.left, deadline_ms)
        self._alarm.ask(deadline_ms)

    async def wait_for(self, key: Key, awaited: Awaited, timeout_ms: int) -> ErrorCode:
        """Return how one wait ended."""
        return (await self.wait_for_all({key: awaited}, timeout_ms))[key]

    async def wait_for_all(self, awaited: Mapping[Key, Awaited], timeout_ms: int) -> Mapping[Key, ErrorCode]:
        """Return how each wait ended, once all have."""
        result: asyncio.Future[Mapping[Key, ErrorCode]] = asyncio.get_running_loop().create_future()

        def done(errors: Mapping[Key, ErrorCode]) -> None:
            if not result.done():
                result.set_result(errors)

        self.wait(awaited, timeout_ms, done)
        return await result

    def moved(self, key: Key, what: Moved) -> None:
        """Look again at what waits for *key*: its high watermark or its leader changed."""
        if key not in self._delayed.waiting_keys or what is Moved.END:
            return
        for one in self._delayed.under(key):
            self._look_at(one, (key,))  # a request may be about thousands of others

    def look_at_all(self) -> None:
        """Look again at everything that waits."""
        for one in self._delayed.waiting():
            self._look_at(one, list(one.left))

    def _look_at(self, waiting: _Waiting, keys: Iterable[Key]) -> None:
        if self._settle(waiting, keys):
            self._delayed.finish(waiting)
            waiting.done(waiting.errors)

    def _settle(self, waiting: _Waiting, keys: Iterable[Key]) -> bool:
        """Decide what can be decided of *keys*; return whether nothing is left."""
        for key in keys:
            awaited = waiting.left.get(key)
            error = None if awaited is None else awaited.result()
            if error is not None:
                waiting.errors[key] = error
                del waiting.left[key]
        return not waiting.left

    def _time_is_up(self) -> None:
        for waiting in self._delayed.expire(self._now_ms()):
            waiting.errors |= dict.fromkeys(waiting.left, ErrorCode.REQUEST_TIMED_OUT)
            waiting.done(waiting.errors)
        next_ms = self._delayed.next_deadline_ms()
        if next_ms is not None:
            self._alarm.ask(next_ms)

"""Appends that wait until every in-sync replica has them: acks=all, and the brokers' own topics.

An append is acknowledged when the high watermark has passed it and this broker has led ever since it was written.  When
the leadership is lost first, nobody can say any more whether it will last, so its writer is told to try again.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pylog.broker.data.partitions import Appended, Moved
from pylog.broker.timer import Alarm
from pylog.delayed import DelayedRequests
from pylog.errors import ErrorCode
from pylog.model import Key

_NONE = ErrorCode.NONE


@dataclass(slots=True, eq=False)
class _Waiting:
    left: dict[Key, Appended]
    errors: dict[Key, ErrorCode]
    done: Callable[[Mapping[Key, ErrorCode]], None]


class Acknowledgements:
    """Everything that waits for a high watermark."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._delayed: DelayedRequests[Key, _Waiting] = DelayedRequests()
        self._alarm = Alarm(self._time_is_up, now_ms)

    def __len__(self) -> int:
        return len(self._delayed)

    def wait(
        self, appended: Mapping[Key, Appended], timeout_ms: int, done: Callable[[Mapping[Key, ErrorCode]], None]
    ) -> None:
        """Call *done* with a result for each key, once all have one; perhaps at once."""
        waiting = _Waiting(dict(appended), {}, done)
        if self._settle(waiting):
            done(waiting.errors)
            return
        deadline_ms = self._now_ms() + timeout_ms
        self._delayed.watch(waiting, waiting.left, deadline_ms)
        self._alarm.ask(deadline_ms)

    async def wait_for(self, key: Key, appended: Appended, timeout_ms: int) -> ErrorCode:
        """Return how one append ended."""
        result: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(errors: Mapping[Key, ErrorCode]) -> None:
            if not result.done():
                result.set_result(errors[key])

        self.wait({key: appended}, timeout_ms, done)
        return await result

    def moved(self, key: Key, what: Moved) -> None:
        """Look again at what waits for *key*: its high watermark or its leader changed."""
        if key not in self._delayed.waiting_keys or what is Moved.END:
            return
        for waiting in self._delayed.under(key):
            if self._settle(waiting):
                self._delayed.finish(waiting)
                waiting.done(waiting.errors)

    def _settle(self, waiting: _Waiting) -> bool:
        """Decide what can be decided; return whether nothing is left."""
        for key, appended in list(waiting.left.items()):
            error = _result(appended)
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


def _result(appended: Appended) -> ErrorCode | None:
    partition = appended.partition
    if partition.leading is None or partition.leading_since > appended.leader_epoch:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # also where the topic was deleted, or this replica moved away
    if partition.log is None or partition.log.offline is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    reached = partition.log.countable_end_offset if appended.is_local else partition.log.high_watermark
    if reached > appended.last_offset:
        return _NONE
    if not appended.is_local and partition.leading.is_under_min_isr():
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return None

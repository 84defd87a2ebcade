"""The last answer to a question, how old it is, and since when there has been no answer.

A page shows what is known and says what is not: a dependency that is away must neither empty a page nor hold it up.
"""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pylog.errors import ApiError, PylogError

_T = TypeVar("_T")
_U = TypeVar("_U")

MAX_QUESTIONS = 512
"""Questions whose answers are kept for one person; the one that was asked least recently is dropped."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[_T]):
    """What is known about one question.

    Attributes:
        value: the last answer; None if there never was one.
        read_ms: when the value was read; None without one.  Times are ms since the Unix epoch.
        error: why the last attempt failed; empty if it did not.
        unknown_since_ms: when the first attempt failed since the last answer; None after an answer.
        tried_ms: when the last attempt ended.
    """

    value: _T | None = None
    read_ms: int | None = None
    error: str = ""
    unknown_since_ms: int | None = None
    tried_ms: int | None = None

    def answered(self, value: _T, now_ms: int) -> "Reading[_T]":
        """Return the reading after an answer."""
        return Reading(value, now_ms, "", None, now_ms)

    def failed(self, error: str, now_ms: int) -> "Reading[_T]":
        """Return the reading after a failure: the value stays."""
        since_ms = now_ms if self.unknown_since_ms is None else self.unknown_since_ms
        return Reading(self.value, self.read_ms, error, since_ms, now_ms)

    def is_due(self, now_ms: int, max_age_ms: int) -> bool:
        """Return whether it is time for another attempt."""
        return self.tried_ms is None or now_ms - self.tried_ms >= max_age_ms


class Question(Generic[_T]):
    """A question that one thread at a time asks; the others get the last reading, if there is one.

    Args:
        max_age_ms: how long an answer, or a failure, counts.
        clock_ms: ms since the Unix epoch.
    """

    def __init__(self, max_age_ms: int, clock_ms: Callable[[], int]) -> None:
        self._max_age_ms = max_age_ms
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._reading: Reading[_T] = Reading()

    def read(self, ask: Callable[[], _T]) -> Reading[_T]:
        """Return what is known, after another attempt by *ask*, which may wait, if that is due."""
        is_first = self._reading.tried_ms is None
        if not self._reading.is_due(self._clock_ms(), self._max_age_ms) or not self._lock.acquire(blocking=is_first):
            return self._reading
        try:
            # Another thread may have asked while this one waited for the lock.
            if self._reading.is_due(self._clock_ms(), self._max_age_ms):
                self._reading = self._attempt(ask)
            return self._reading
        finally:
            self._lock.release()

    def _attempt(self, ask: Callable[[], _T]) -> Reading[_T]:
        try:
            value = ask()
        except PylogError as error:
            return self._reading.failed(reason_of(error), self._clock_ms())
        return self._reading.answered(value, self._clock_ms())


class Questions:
    """The questions of one person, by key.

    Args:
        clock_ms: ms since the Unix epoch.
    """

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._questions: dict[Hashable, Question[Any]] = {}

    def read(self, key: Hashable, max_age_ms: int, ask: Callable[[], _U]) -> Reading[_U]:
        """Return the reading of the question *key*; *max_age_ms* is that of its first time."""
        with self._lock:
            question = self._questions.pop(key, None) or Question(max_age_ms, self._clock_ms)
            self._questions[key] = question
            while len(self._questions) > MAX_QUESTIONS:
                del self._questions[next(iter(self._questions))]
        return question.read(ask)

    def forget(self) -> None:
        """Ask anew from now on: the person changed something."""
        with self._lock:
            self._questions.clear()


class FirstSeen:
    """Since when each of several things has been so, as far as somebody looked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since_ms: dict[Hashable, int] = {}

    def note(self, keys: set[Hashable], now_ms: int) -> dict[Hashable, int]:
        """Return since when each of *keys* was in every call; the others are forgotten."""
        with self._lock:
            self._since_ms = {key: self._since_ms.get(key, now_ms) for key in keys}
            return dict(self._since_ms)


def reason_of(error: Exception) -> str:
    """Return what a page says of *error*, with the protocol's name for it where it has one."""
    return f"{error.code.name}: {error}" if isinstance(error, ApiError) else str(error)

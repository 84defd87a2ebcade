"""Which tails are followed at the moment: at most so many, each for a limited time.

A tail is no stream.  The browser asks for the page again every `EVERY_S` seconds, so a tail that nobody looks at any
more costs nothing, and six of them do not use up a browser's connections.  Times are seconds of any clock that does
not go back.
"""

import threading
from dataclasses import dataclass
from enum import Enum

EVERY_S = 3
"""Between two looks of one tail."""

MAX_TAILS = 8
"""Tails at once, of everybody: each look opens a connection to the brokers."""

MAX_TAILS_OF_PERSON = 2
"""Tails at once of one person who logged in: others are to find a place."""

TAIL_S = 900.0
"""How long a tail goes on by itself; who still looks asks for more."""

IDLE_S = 15.0
"""A tail of which nothing was heard for so long has ended."""


class Standing(Enum):
    """What a look may do."""

    GOES_ON = "goes on"
    ENDED = "ended"
    """Its time is up."""
    TOO_MANY = "too many"
    TOO_MANY_OF_PERSON = "too many of this person"


@dataclass(slots=True)
class _Tail:
    began_s: float
    seen_s: float


class Tails:
    """All tails that are followed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tails: dict[tuple[str, str], _Tail] = {}

    def look(self, user: str, name: str, now_s: float) -> Standing:
        """Note a look of the tail *name* of *user*, which begins with its first one.

        The empty user is everybody who came without a login.
        """
        with self._lock:
            # Those whose time is up are remembered as long as somebody asks for them.
            for other, one in list(self._tails.items()):
                if now_s - one.seen_s >= IDLE_S:
                    del self._tails[other]
            tail = self._tails.get((user, name))
            if tail is None:
                if user and sum(other == user for other, _ in self._tails) >= MAX_TAILS_OF_PERSON:
                    return Standing.TOO_MANY_OF_PERSON
                if len(self._tails) >= MAX_TAILS:
                    return Standing.TOO_MANY
                tail = self._tails[user, name] = _Tail(now_s, now_s)
            if now_s - tail.began_s >= TAIL_S:
                return Standing.ENDED
            tail.seen_s = now_s
            return Standing.GOES_ON

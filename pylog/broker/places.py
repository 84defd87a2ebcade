"""How much of what lasts runs at once, and how much of one client: searches by time, steps of large requests.

And how much memory large requests have at once.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias
from weakref import WeakValueDictionary

from pylog.security.principal import ANONYMOUS, Session

_Turns: TypeAlias = WeakValueDictionary[str, asyncio.Lock]
"""Of clients that hold or wait."""

SEARCHES_AT_ONCE = 2
"""Searches of records by time in threads; others wait for their turn."""


class Places:
    """Places for what lasts.  A client has one at most, so that no single one can take all of them."""

    def __init__(self, count: int) -> None:
        self._places = asyncio.Semaphore(count)
        self._turns: _Turns = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, session: Session) -> AsyncIterator[None]:
        """Hold a place; clients are told apart by their principal, without a login by their address."""
        async with _turn_of(self._turns, session), self._places:
            yield


class Room:
    """Room for bytes that are in memory at the same time, for one thing of a client each."""

    def __init__(self, limit_bytes: int) -> None:
        """Make it; what is larger than *limit_bytes* has all of the room."""
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._line = asyncio.Lock()
        self._freed = asyncio.Event()
        self._turns: _Turns = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, session: Session, size_bytes: int) -> AsyncIterator[None]:
        """Hold room for *size_bytes*; clients are told apart as for `Places`, and have it in the order they came."""
        size_bytes = min(size_bytes, self._limit_bytes)
        async with _turn_of(self._turns, session):
            async with self._line:
                while self._held_bytes + size_bytes > self._limit_bytes:
                    self._freed.clear()
                    await self._freed.wait()
                self._held_bytes += size_bytes
            try:
                yield
            finally:
                self._held_bytes -= size_bytes
                self._freed.set()


def _turn_of(turns: _Turns, session: Session) -> asyncio.Lock:
    """Return what only one thing of the client has at a time."""
    client = session.client_host if session.principal == ANONYMOUS else str(session.principal)
    turn = turns.get(client)
    if turn is None:
        turn = turns[client] = asyncio.Lock()
    return turn

"""How much of what lasts runs at once, and how much of one client: searches by time, steps of large requests.

And how much memory large requests have at once.
"""

import asyncio
from collections import Counter
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

    def __init__(self, limit_bytes: int, outside_bytes: int = 0) -> None:
        """Make it.

        Args:
            limit_bytes: of all clients; what is larger has all of the room.
            outside_bytes: of one client, see `RoomHolder.outside`.
        """
        self.limit_bytes = limit_bytes
        self.outside_bytes = outside_bytes
        self.outside: Counter[str] = Counter()
        self.turns: _Turns = WeakValueDictionary()
        self._held_bytes = 0
        self._line = asyncio.Lock()
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def hold(self, session: Session, size_bytes: int) -> AsyncIterator["RoomHolder"]:
        """Hold room for *size_bytes*; clients are told apart as for `Places`, and have it in the order they came."""
        holder = RoomHolder(self, session, size_bytes)
        try:
            await holder.enter()
            yield holder
        finally:
            holder.leave()

    async def take(self, size_bytes: int) -> None:
        """Wait until there is room, and take it."""
        async with self._line:
            while self._held_bytes + size_bytes > self.limit_bytes:
                self._freed.clear()
                await self._freed.wait()
            self._held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Let others have it."""
        self._held_bytes -= size_bytes
        self._freed.set()


class RoomHolder:
    """One thing that holds some of a `Room`, and its client's turn."""

    def __init__(self, room: Room, session: Session, size_bytes: int) -> None:
        """Make it; it holds nothing before `enter`."""
        self._room = room
        self._session = session
        self._size_bytes = min(size_bytes, room.limit_bytes)
        self._turn: asyncio.Lock | None = None
        self._is_inside = False

    async def enter(self) -> None:
        """Wait for the client's turn, then for room."""
        if self._turn is None:
            turn = _turn_of(self._room.turns, self._session)
            await turn.acquire()
            self._turn = turn
        await self._room.take(self._size_bytes)
        self._is_inside = True

    def leave(self, *, keeps_turn: bool = False) -> None:
        """Give back what it holds."""
        if self._is_inside:
            self._is_inside = False
            self._room.give_back(self._size_bytes)
        if self._turn is not None and not keeps_turn:
            self._turn.release()
            self._turn = None

    @asynccontextmanager
    async def outside(self, *, is_bounded: bool = True) -> AsyncIterator[None]:
        """Let others have the room, and the client's next thing its turn, while this waits for something slow.

        What waits stays in memory.  So a client of which `Room.outside_bytes` wait keeps its turn: its next thing waits
        too, and no other client does.  Without *is_bounded* nothing is counted: the wait may be for what the same
        client has yet to ask.
        """
        client, waiting = _client(self._session), self._room.outside
        size_bytes = self._size_bytes if is_bounded else 0
        waiting[client] += size_bytes
        self.leave(keeps_turn=is_bounded and waiting[client] > self._room.outside_bytes)
        try:
            yield
        except Exception:
            await self.enter()
            raise
        else:
            await self.enter()
        finally:
            waiting[client] -= size_bytes
            if not waiting[client]:
                del waiting[client]


def _client(session: Session) -> str:
    return session.client_host if session.principal == ANONYMOUS else str(session.principal)


def _turn_of(turns: _Turns, session: Session) -> asyncio.Lock:
    """Return what only one thing of the client has at a time."""
    client = _client(session)
    turn = turns.get(client)
    if turn is None:
        turn = turns[client] = asyncio.Lock()
    return turn

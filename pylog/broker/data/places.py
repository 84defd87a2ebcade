"""How much of what lasts runs at once, and how much of one client: searches by time, steps of large requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from pylog.security.principal import ANONYMOUS, Session

SEARCHES_AT_ONCE = 2
"""Searches of records by time in threads; others wait for their turn."""


class Places:
    """Places for what lasts.  A client has one at most, so that no single one can take all of them."""

    def __init__(self, count: int) -> None:
        self._places = asyncio.Semaphore(count)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # of clients that hold or wait

    @asynccontextmanager
    async def hold(self, session: Session) -> AsyncIterator[None]:
        """Hold a place; clients are told apart by their principal, without a login by their address."""
        client = session.client_host if session.principal == ANONYMOUS else str(session.principal)
        turn = self._turns.get(client)
        if turn is None:
            turn = self._turns[client] = asyncio.Lock()
        async with turn, self._places:
            yield

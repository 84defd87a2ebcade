"""One alarm on the event loop for many deadlines."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls back at the earliest time it was asked for, once."""

    def __init__(self, ring: Callable[[], None], now_ms: Callable[[], int]) -> None:
        """Make it; *ring* is called on the running loop, and asks again for what is left."""
        self._ring = ring
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = 0

    def ask(self, at_ms: int) -> None:
        """Ring at *at_ms* or before."""
        if self._handle is not None:
            if self._at_ms <= at_ms:
                return
            self._handle.cancel()
        self._at_ms = at_ms
        self._handle = self._loop.call_later(max(0, at_ms - self._now_ms()) / 1000, self._rings)

    def _rings(self) -> None:
        self._handle = None
        self._ring()

"""Files that are read again while the broker runs: certificates, revocation lists, the cluster's secrets.

What is wrong in a file is an error of the log, and what was read before stays in use.
"""

import asyncio
import logging
from collections.abc import Callable

from pylog.broker.tasks import Tasks
from pylog.errors import ConfigError

_logger = logging.getLogger(__name__)

INTERVAL_S = 60.0
"""How often the files are compared; SIGHUP has it done at once."""


class Reloads:
    """What a broker reads again."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, Callable[[], bool]]] = []
        self._tasks = Tasks()
        self._wake = asyncio.Event()

    def add(self, what: str, reload: Callable[[], bool]) -> None:
        """Call *reload* in a thread from time to time.

        It returns whether anything changed, and raises ConfigError if that was wrong; *what* is for the log.
        """
        self._rows.append((what, reload))

    def start(self) -> None:
        """Begin, on the running loop."""
        if self._rows:
            self._tasks.spawn(self._run())

    def trigger(self) -> None:
        """Look at all files now."""
        self._wake.set()

    async def stop(self) -> None:
        """Look no more."""
        await self._tasks.stop()

    async def look(self) -> None:
        """Read again what has changed."""
        for what, reload in self._rows:
            try:
                if await asyncio.to_thread(reload):
                    _logger.info("reloaded what=%s", what)
            except ConfigError as error:
                _logger.error("not reloaded, the one before stays in use what=%s reason=%s", what, error)
            except Exception as error:  # a file that nobody thought of must not cost the broker
                _logger.exception("not reloaded, the one before stays in use what=%s reason=%r", what, error)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(INTERVAL_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            await self.look()

"""The tasks a part of the broker runs beside the requests of its clients, and what comes of a bug in one.

A task that ended by a bug leaves undone what nobody misses at once: an in-sync set that nobody watches, images that
nobody pulls.  The cluster would go on counting on that broker, so its process ends instead, as when its loop hangs
(rule 11), and systemd starts another.  It is one client's bug only where a request's own task says so by catching it.
"""

import asyncio
import logging
import os
import threading
import traceback
from collections.abc import Coroutine
from typing import Any, TypeVar

from pylog.faults import BROKER_BUG

_logger = logging.getLogger(__name__)

T = TypeVar("T")


class Tasks:
    """Tasks that are ended together; a bug in one goes to the loop's exception handler."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()  # the loop itself holds tasks weakly

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run *work* on the running loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """End them all at their next wait."""
        for task in self._running:
            task.cancel()

    async def stop(self) -> None:
        """End them all, and wait until they have ended."""
        self.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.result()  # raised in a callback of the loop, as any other bug that nobody awaits


def end_process(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Be the exception handler of a broker's loop: a callback that raised in our code ends the process.

    What asyncio tells besides, and its own callbacks, is about single connections to other brokers, which are opened
    again.
    """
    bug = context.get("exception")
    if bug is None or "handle" not in context or not _is_ours(bug):
        loop.default_exception_handler(context)
        return
    _logger.critical("bug, this broker ends itself code=%s reason=%r", BROKER_BUG.code, bug, exc_info=bug)
    os._exit(1)


def end_process_of_thread(bug: threading.ExceptHookArgs) -> None:
    """Be `threading.excepthook` of a broker: a thread that a bug ended ends the process, whoever started it.

    Without the thread of ZooKeeper's client, for instance, the broker would never have a session again.
    """
    name = bug.thread.name if bug.thread is not None else "unknown"
    reason = bug.exc_value
    _logger.critical(
        "bug, this broker ends itself code=%s thread=%s reason=%r", BROKER_BUG.code, name, reason, exc_info=reason
    )
    os._exit(1)


def _is_ours(bug: BaseException) -> bool:
    frames = traceback.walk_tb(bug.__traceback__)
    return any(frame.f_globals.get("__name__", "").startswith("pylog.") for frame, _ in frames)

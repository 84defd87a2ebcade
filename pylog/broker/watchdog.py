"""Telling systemd how we are, and dying when the event loop hangs.

A loop that hangs keeps its ZooKeeper session alive through kazoo's thread, so the cluster would wait for a leader that
answers nobody.  The loop stamps a clock; a thread that sees no stamp for the session time-out kills the process
(rule 11).
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback

from pylog.broker.tasks import Tasks

_logger = logging.getLogger(__name__)

STAMP_INTERVAL_S = 0.1


def notify(state: str) -> None:
    """Send *state*, such as ``READY=1``, to systemd; without systemd nothing happens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.connect(address)
            sock.send(state.encode())
    except OSError as error:
        _logger.warning("systemd not notified state=%s reason=%s", state, error)


class Watchdog:
    """Kills the process when the loop has not run for *limit_s*."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._stamp_s = time.monotonic()
        self._stop = threading.Event()
        self._tasks = Tasks()

    def start(self) -> None:
        """Begin to watch the running loop."""
        self._tasks.spawn(self._stamp())
        threading.Thread(
            target=self._watch, args=(threading.main_thread().ident or 0,), name="watchdog", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._tasks.cancel()

    async def _stamp(self) -> None:
        while True:
            self._stamp_s = time.monotonic()
            await asyncio.sleep(STAMP_INTERVAL_S)

    def _watch(self, main_thread_id: int) -> None:
        seen_s = self._stamp_s
        silent_s = 0.0
        step_s = min(self._limit_s / 4, 1.0)
        while not self._stop.wait(step_s):
            # Silence is counted in our own steps, not by the clock: a process that was stopped (SIGSTOP, a paused
            # machine) wakes with both threads late, and the loop must get its turn before it is called hung.
            if self._stamp_s != seen_s:
                seen_s, silent_s = self._stamp_s, 0.0
                notify("WATCHDOG=1")
                continue
            silent_s += step_s
            if silent_s >= self._limit_s:
                frame = sys._current_frames().get(main_thread_id)
                stack = "".join(traceback.format_stack(frame)) if frame else ""
                sys.stderr.write(f"event loop hung for {silent_s:.1f} s, this process ends itself; it was at:\n{stack}")
                sys.stderr.flush()
                os.kill(os.getpid(), signal.SIGKILL)

"""Telling systemd how we are, and dying when the event loop hangs.

A loop that hangs keeps its ZooKeeper session alive through kazoo's thread, so the cluster would wait for a leader that
answers nobody.  The loop stamps a clock; a thread that sees no stamp for the session time-out kills the process
(rule 11).
"""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable

from pylog.broker.tasks import Tasks
from pylog.metrics import Metrics
from pylog.systemd import tell_systemd

_logger = logging.getLogger(__name__)

STAMP_INTERVAL_S = 0.1

PROGRESS_INTERVAL_S = 5.0

STALL_LIMIT_S = 300
"""How long a start may do nothing; a segment of 1 GiB is checked within this time at 4 MiB/s."""


def notify(state: str) -> None:
    """Send *state*, such as ``READY=1``, to systemd; without systemd nothing happens."""
    try:
        tell_systemd(state)
    except OSError as error:
        _logger.warning("systemd not notified state=%s reason=%s", state, error)


class StartProgress:
    """Asks systemd for more time as long as a start makes progress.

    The unit's TimeoutStartSec is for a start that hangs.  A start that reads its logs after a crash, or waits for
    ZooKeeper, would begin again from the front each time it is killed.
    """

    def __init__(self, measure: Callable[[], object], is_waiting: Callable[[], bool]) -> None:
        """Watch a start.

        Args:
            measure: returns what changes whenever the start has done some of its work.
            is_waiting: whether it waits for somebody else, which ends by itself and which no new start would shorten.
        """
        self._measure = measure
        self._is_waiting = is_waiting
        self._seen: object = None

    def poll(self) -> None:
        """Ask for `STALL_LIMIT_S` more from now on if anything was done since the last call."""
        measured = self._measure()
        if measured != self._seen or self._is_waiting():
            self._seen = measured
            notify(f"EXTEND_TIMEOUT_USEC={STALL_LIMIT_S * 1_000_000}")

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            self.poll()
            await asyncio.sleep(PROGRESS_INTERVAL_S)


class Watchdog:
    """Kills the process when the loop has not run for *limit_s*, and counts how late it runs."""

    def __init__(self, limit_s: float, metrics: Metrics) -> None:
        doc = "How late the event loop runs what is due, looked at every tenth of a second."
        self._delay = metrics.histogram("pylog_loop_delay_seconds", doc)
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
        loop = asyncio.get_running_loop()
        while True:
            self._stamp_s = time.monotonic()
            due_s = loop.time() + STAMP_INTERVAL_S
            await asyncio.sleep(STAMP_INTERVAL_S)
            self._delay.observe_ns(int((loop.time() - due_s) * 1e9))

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

"""Ends a program's waits when it is told to stop."""

import os
import select
import signal
from types import FrameType


class Stop:
    """Set by SIGTERM and SIGINT, seen by every wait at once.

    Attributes:
        is_wanted: whether the program shall end.
        fd: readable from then on; for `select`.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def on_signals(self) -> None:
        """Listen to SIGTERM and SIGINT; only the main thread may."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)

    def want(self) -> None:
        """Ask for the end; from any thread."""
        self.is_wanted = True
        os.write(self._write_fd, b"x")

    def wait(self, timeout_s: float) -> bool:
        """Wait at most so long, and return whether the end is wanted."""
        select.select([self.fd], [], [], timeout_s)
        return self.is_wanted

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self.want()

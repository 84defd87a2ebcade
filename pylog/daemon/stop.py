"""Ends a program's waits when it is told to stop."""

import os
import select
import signal
from collections.abc import Iterable
from types import FrameType


def wait_readable(fds: Iterable[int], timeout_s: float) -> set[int]:
    """Wait at most so long for data or an end on any of *fds*; return which have one."""
    poll = select.poll()  # not select.select, which refuses descriptors above 1023
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(timeout_s * 1000)}


class Stop:
    """Set by SIGTERM and SIGINT, seen by every wait at once.

    Attributes:
        is_wanted: whether the program shall end.
        fd: readable from then on; for `wait_readable`.
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
        wait_readable([self.fd], timeout_s)
        return self.is_wanted

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self.want()

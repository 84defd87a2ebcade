"""Reads the journal as `journalctl` prints it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pylog.daemon.stop import wait_readable
from pylog.errors import PylogError
from pylog.ship.lines import Line, LineCutter

LINE_LIMIT_BYTES = 16 << 20
"""An entry beyond this is not read whole: a core dump in the journal must not decide how much memory this takes."""

_PIECE_BYTES = 64 << 10
_END_WAIT_S = 5.0


class JournalEnded(PylogError):
    """journalctl ended by itself; start it again."""

    fault = 306


def journalctl_command(cursor: str | None, *, since_boot: bool, directory: Path | None = None) -> list[str]:
    """Return the command that prints the journal from a place on, and follows it.

    Args:
        cursor: the last entry not wanted again; None where there is none.
        since_boot: whether, without a cursor, only this boot's entries are wanted.
        directory: of journal files, instead of this host's own.
    """
    # --all: without it a field over 4 KiB is printed as null, which would lose it.
    # --no-tail: without it --follow starts at the last ten entries, which would lose those before.
    command = ["journalctl", "--output=json", "--all", "--follow", "--no-tail", "--no-pager", "--quiet"]
    if directory is not None:
        command.append(f"--directory={directory}")
    if cursor is not None:
        command.append(f"--after-cursor={cursor}")
    elif since_boot:
        command.append("--boot")
    return command


class Follower:
    """A running journalctl.

    Args:
        command: what to run.

    Raises:
        JournalEnded: it cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._cutter = LineCutter(LINE_LIMIT_BYTES)
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
        except OSError as error:
            raise JournalEnded(f"{command[0]} cannot be started: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, timeout_s: float, wakeup_fd: int) -> list[Line]:
        """Return the entries that have come, waiting at most *timeout_s* for the first or for *wakeup_fd*.

        Raises:
            JournalEnded: there will be no more.
        """
        stream = self._stream()
        if stream.fileno() not in wait_readable([stream.fileno(), wakeup_fd], timeout_s):
            return []
        piece = stream.read(_PIECE_BYTES)
        if not piece:
            raise JournalEnded(f"journalctl ended with status {self._process.wait(_END_WAIT_S)}")
        return list(self._cutter.feed(piece))

    def close(self) -> None:
        """End it."""
        self._stream().close()
        self._process.terminate()
        try:
            self._process.wait(_END_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _stream(self) -> IO[bytes]:
        assert self._process.stdout is not None, "stdout is a pipe"
        return self._process.stdout

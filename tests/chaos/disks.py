"""A small file system for each broker, in a file of the run, which one call fills and another empties."""

import os
import subprocess
from pathlib import Path

from tests.chaos.ledger import MOUNT, Ledger

_FILLER = "filler"
_LEFT_BYTES = 4096
"""A file system says that it has this little left and still refuses it."""


class Disk:
    """An ext4 file system in a sparse file, mounted at *directory*.

    Attributes:
        directory: where it is mounted.
    """

    def __init__(self, directory: Path, size_mb: int, ledger: Ledger) -> None:
        self.directory = directory
        self._image = directory.with_suffix(".img")
        self._size_mb = size_mb
        self._ledger = ledger

    def make(self) -> None:
        """Make and mount it."""
        self.directory.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(self._size_mb << 20)
        # Nothing is reserved for root, who the brokers run as here.
        _run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(self._image))
        self._ledger.note(MOUNT, str(self.directory))
        _run("mount", "-o", "loop", str(self._image), str(self.directory))

    def fill(self) -> None:
        """Take all the space that is left."""
        state = os.statvfs(self.directory)
        free_bytes = state.f_bavail * state.f_frsize - _LEFT_BYTES
        while free_bytes > _LEFT_BYTES:
            done = subprocess.run(
                ["fallocate", "-l", str(free_bytes), str(self.directory / _FILLER)], capture_output=True, check=False
            )
            if done.returncode == 0:
                return
            free_bytes = free_bytes * 99 // 100  # a broker wrote meanwhile, or the file system needs some for itself

    def empty(self) -> None:
        """Give the space back."""
        (self.directory / _FILLER).unlink(missing_ok=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")

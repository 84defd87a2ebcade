r"""How far compaction has removed tombstones from one log: who was away since lacks deletions of keys.

removed-tombstone-checkpoint => version "\n" count "\n" offset " " leader_epoch "\n"      (version 0, count 1)

A tombstone deletes its key for whoever reads it.  Compaction removes the record before it at once, and the tombstone
itself after `delete.retention.ms`.  A replica whose log ends at the tombstone or before has the record and would keep
it for ever, so it has to begin anew (docs/design/replication.md).
"""

import logging
import threading
from pathlib import Path

from pylog.errors import StorageError
from pylog.log import checkpoint
from pylog.log.epochs import NO_EPOCH
from pylog.model import Offset

_logger = logging.getLogger(__name__)

NONE: Offset = -1
"""No tombstone was removed."""


class RemovedTombstones:
    """The highest offset at which this log lacks a tombstone that compaction removed, here or where it was copied from.

    Attributes:
        offset: -1 if none was removed.
            Invariant: on disk before the tombstone is gone, and before anything is copied from a log that lacks it.
        copied_epoch: the log began anew from the log of this epoch's leader when that one's offset was this; -1 if it
            never did, or has removed tombstones itself since.
    """

    __slots__ = ("_lock", "_path", "copied_epoch", "offset")

    def __init__(self, directory: Path) -> None:
        self._path = directory / checkpoint.REMOVED_TOMBSTONES
        self._lock = threading.Lock()  # compaction removes tombstones in a thread
        self.offset = NONE
        self.copied_epoch = NO_EPOCH

    def load(self, log_end_offset: Offset) -> None:
        """Read the file; one that is damaged stands for all tombstones that the log may ever have had."""
        try:
            for line in checkpoint.read_lines(self._path) or ():
                self.offset, self.copied_epoch = map(int, line.split(" "))
        except (StorageError, ValueError) as error:
            _logger.error("tombstones that were removed are unknown file=%s reason=%s", self._path, error)
            self.offset, self.copied_epoch = log_end_offset - 1, NO_EPOCH

    def note(self, offset: Offset) -> None:
        """Write down that compaction is about to remove a tombstone at *offset*; in any thread.

        Raises:
            StorageError: the disk refuses; the tombstone must stay.
        """
        with self._lock:
            if offset > self.offset:
                self._set(offset, NO_EPOCH)

    def take_over(self, offset: Offset, leader_epoch: int) -> None:
        """Write down what the log of a leader lacks, before anything is copied from it into this one, which is empty.

        Raises:
            StorageError: the disk refuses; nothing may be copied.
        """
        with self._lock:
            if offset != NONE or self.offset != NONE:
                self._set(offset, leader_epoch)

    def is_copy(self, offset: Offset, leader_epoch: int) -> bool:
        """Whether this log began anew from the leader of this epoch, and tombstones up to *offset* were gone then.

        Then it has copied nothing that a tombstone deletes which it will not get.
        """
        return (self.offset, self.copied_epoch) == (offset, leader_epoch)

    def _set(self, offset: Offset, copied_epoch: int) -> None:
        checkpoint.write_lines(self._path, [f"{offset} {copied_epoch}"])
        self.offset, self.copied_epoch = offset, copied_epoch

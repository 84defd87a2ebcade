r"""How far compaction has removed tombstones from one log: who was away since lacks deletions of keys.

removed-tombstone-checkpoint => version "\n" count "\n"                                 (version 0, count 1)
                                offset " " last_pass " " copied_epoch " " copied_pass "\n"

A tombstone deletes its key for whoever reads it.  Compaction removes the record before it at once, and the tombstone
itself after `delete.retention.ms`.  A replica whose log ends at the tombstone or before has the record and would keep
it for ever, so it has to begin anew (docs/design/replication.md).
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from pylog.errors import StorageError
from pylog.log import checkpoint
from pylog.log.epochs import NO_EPOCH
from pylog.model import Offset

_logger = logging.getLogger(__name__)

NONE: Offset = -1
"""No tombstone was removed."""

MAX_REACHES = 100
"""Passes that are told apart; more of them count as if the earlier had been as late as the next."""


class RemovedTombstones:
    """The highest offset at which this log lacks a tombstone that compaction removed, here or where it was copied from.

    Attributes:
        offset: -1 if none was removed.
            Invariant: on disk before the tombstone is gone, and before anything is copied from a log that lacks it.
        copied_epoch: the log began anew from the log of this epoch's leader; -1 if it never did, or was cut since.
        copied_pass: the last pass that had removed tombstones there then.
    """

    __slots__ = ("_last_pass", "_lock", "_path", "_reaches", "copied_epoch", "copied_pass", "offset")

    def __init__(self, directory: Path) -> None:
        self._path = directory / checkpoint.REMOVED_TOMBSTONES
        self._lock = threading.Lock()  # compaction removes tombstones in a thread
        self.offset = NONE
        self._last_pass = 0
        # (offset of the last tombstone that it removed, number) of passes since this process began: a pass that reached
        # less far than a later one is of no account.
        self._reaches: list[tuple[Offset, int]] = []
        self.copied_epoch, self.copied_pass = NO_EPOCH, 0

    def load(self, log_end_offset: Offset) -> None:
        """Read the file; one that is damaged stands for all tombstones that the log may ever have had.

        Raises:
            StorageError: the file cannot be read now.
        """
        try:
            for line in checkpoint.read_lines(self._path) or ():
                self.offset, self._last_pass, self.copied_epoch, self.copied_pass = map(int, line.split(" "))
        except (StorageError, ValueError) as error:
            if isinstance(error.__cause__, OSError):
                raise
            _logger.error("tombstones that were removed are unknown file=%s reason=%s", self._path, error)
            self.offset = log_end_offset
        if self.offset >= log_end_offset:  # also where it was killed between a truncation and its end here
            self.offset, self.copied_epoch = log_end_offset - 1, NO_EPOCH
        self._reaches = [(self.offset, self._last_pass)]

    def note(self, offset: Offset, is_current: Callable[[], bool]) -> None:
        """Write down that a pass of compaction is about to remove tombstones; in any thread.

        Args:
            offset: of the last of them, -1 if there are none.
            is_current: whether the log is still as the compaction found it.  Once it is not, nothing is written: the
                offset may be beyond the log end by now, and the directory that of another topic.

        Raises:
            StorageError: the disk refuses; the tombstones must stay.
        """
        with self._lock:
            if offset == NONE or not is_current():
                return
            self._set(max(offset, self.offset), self.copied_epoch, self.copied_pass)
            kept = [one for one in self._reaches if one[0] > offset]
            if len(kept) == MAX_REACHES:
                (reached, _), (_, later) = kept[-2:]
                kept[-2:] = [(reached, later)]
            self._reaches = [*kept, (offset, self._last_pass)]

    def cut(self, log_end_offset: Offset) -> None:
        """Take note that the log was cut, and of the tombstones removed only those below its end are still lacking.

        Whatever else is still lacking, none of it lies above.

        Raises:
            StorageError: the disk refuses; what is in memory is right, and what a start makes of the file too, unless
                the log has grown again by then.
        """
        with self._lock:
            if self.offset >= log_end_offset:
                self.offset, self.copied_epoch = log_end_offset - 1, NO_EPOCH
                self._reaches = [(self.offset, self._last_pass)]
                self._set(self.offset, NO_EPOCH, 0)

    def settle(self) -> None:
        """Wait until nothing is being written: the directory is about to be renamed, and its name another one's."""
        with self._lock:
            pass

    def take_over(self, offset: Offset, leader_epoch: int, last_pass: int) -> None:
        """Write down what the log of a leader lacks, before anything is copied from it into this one, which is empty.

        Args:
            offset: the leader's.
            leader_epoch: under which it leads.
            last_pass: the leader's `last_pass`.

        Raises:
            StorageError: the disk refuses; nothing may be copied.
        """
        with self._lock:
            if offset != NONE or self.offset != NONE:
                self._set(offset, leader_epoch, last_pass)
                self._reaches = [(offset, self._last_pass)]

    def last_pass(self, offset: Offset = 0) -> int:
        """Return the number of the last pass that removed a tombstone at *offset* or above, 0 for none."""
        return max((number for reached, number in self._reaches if reached >= offset), default=0)

    def is_copy(self, leader_epoch: int, last_pass: int) -> bool:
        """Whether this log began anew from the leader of this epoch, after its pass of that number.

        Then it has copied nothing that a tombstone deletes which it will not get.
        """
        return self.copied_epoch == leader_epoch and last_pass <= self.copied_pass

    def _set(self, offset: Offset, copied_epoch: int, copied_pass: int) -> None:
        number = self._last_pass + 1
        checkpoint.write_lines(self._path, [f"{offset} {number} {copied_epoch} {copied_pass}"])
        self.offset, self._last_pass = offset, number
        self.copied_epoch, self.copied_pass = copied_epoch, copied_pass

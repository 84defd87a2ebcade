"""Which leader epoch wrote which offsets: what a follower compares to find where two logs part."""

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from pylog.errors import StorageError
from pylog.log import checkpoint
from pylog.model import Offset

NO_EPOCH = -1


class LeaderEpochs:
    """(leader epoch, first offset written under it), oldest first, kept in `leader-epoch-checkpoint`.

    Compaction may have removed the first records of an epoch, or all of them, before this log copied the others.  The
    epoch then begins where the batch before ends: never later than it began.  Otherwise a deposed leader whose own
    records lie in that gap would be told that they are a copy of ours.

    Attributes:
        path: the file.
        latest: the newest epoch, -1 if none is known.
        is_saved: the file holds what memory does; not so after the disk refused.
        save_count: how often the file was written.
            Invariant: epochs and offsets both grow strictly.

    Source: KIP-101, KIP-279.
    """

    __slots__ = ("_epochs", "_starts", "_synced_count", "is_saved", "latest", "path", "save_count")

    def __init__(self, directory: Path) -> None:
        self.path = directory / checkpoint.LEADER_EPOCHS
        self._epochs: list[int] = []
        self._starts: list[Offset] = []
        self.latest = NO_EPOCH
        self.is_saved = True
        self.save_count = 0
        self._synced_count = -1

    def load(self) -> bool:
        """Read the file; return False if it is missing or damaged, and the log must be walked instead."""
        self._epochs, self._starts = [], []
        try:
            for line in checkpoint.read_lines(self.path) or ():
                epoch, start = map(int, line.split(" "))
                if self._epochs and (epoch <= self._epochs[-1] or start <= self._starts[-1]):
                    raise ValueError(f"epoch {epoch} at {start} after {self._epochs[-1]} at {self._starts[-1]}")
                self._add(epoch, start)
        except (StorageError, ValueError):
            self._epochs, self._starts = [], []
            return False
        return self.path.exists()

    @property
    def oldest(self) -> int:
        """The oldest epoch, -1 if none is known: of earlier ones this log says nothing any more."""
        return self._epochs[0] if self._epochs else NO_EPOCH

    def entries(self) -> list[tuple[int, Offset]]:
        """Return all (epoch, first offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start: Offset, *, save: bool = True) -> None:
        """Note that *epoch* begins at *start*; an epoch not above the latest one changes nothing."""
        if self._add(epoch, start):
            self.is_saved = False
            if save:
                self.save()

    def end_offset(self, epoch: int, log_end_offset: Offset) -> tuple[int, Offset]:
        """Return (largest known epoch not above *epoch*, offset after its last record); (-1, -1) if none is known.

        Args:
            epoch: what the other side asks for.
            log_end_offset: end of the latest epoch.
        """
        if not self._epochs or epoch > self.latest or epoch < 0:
            return NO_EPOCH, -1
        row = bisect_right(self._epochs, epoch)
        if row == 0:
            # Everything of that epoch is gone, so the two logs can part no later than where ours begins.
            return epoch, self._starts[0]
        end = log_end_offset if row == len(self._epochs) else self._starts[row]
        return self._epochs[row - 1], end

    def truncate_end(self, log_end_offset: Offset, *, save: bool = True) -> None:
        """Forget epochs that begin at or after *log_end_offset*."""
        count = len(self._epochs)
        while self._starts and self._starts[-1] >= log_end_offset:
            self._epochs.pop()
            self._starts.pop()
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH
        if len(self._epochs) != count:
            self.is_saved = False
            if save:
                self.save()

    def keep_last(self, saved: Sequence[tuple[int, Offset]], log_start_offset: Offset, *, save: bool = True) -> None:
        """Let an empty log keep the epoch of the record before its start, of those that were *saved*.

        Its records are gone because they were deleted, not because another leader had others: everything below the
        start was written under that epoch or before it.  Without it the log would lose every comparison.
        """
        known = [epoch for epoch, start in saved if start <= log_start_offset]
        if known:
            self.assign(known[-1], log_start_offset, save=False)
            if save and not self.is_saved:
                self.save(durable=True)

    def truncate_start(self, log_start_offset: Offset, *, save: bool = True) -> None:
        """Forget epochs that ended by *log_start_offset*; the one it lies in now begins there."""
        row = bisect_right(self._starts, log_start_offset) - 1
        if row < 0 or (row == 0 and self._starts[0] >= log_start_offset):
            return
        del self._epochs[:row], self._starts[:row]
        self._starts[0] = log_start_offset
        if save:
            self.save()

    def clear(self, *, save: bool = True) -> None:
        """Forget everything."""
        self._epochs, self._starts, self.latest = [], [], NO_EPOCH
        self.is_saved = False
        if save:
            self.save()

    def save(self, *, durable: bool = False) -> None:
        """Write the file; after a power cut a torn one is made again from the batches.

        Args:
            durable: let it survive a power cut, where there are no batches to make it from.

        Raises:
            StorageError: the disk refuses.
        """
        self.is_saved = False
        self.save_count += 1
        checkpoint.write_lines(self.path, (f"{epoch} {start}" for epoch, start in self.entries()), durable=durable)
        self.is_saved = True
        if durable:
            self.note_synced(self.save_count)

    def note_synced(self, save_count: int) -> None:
        """Take note that the file survives a power cut as it was when *save_count* had this value."""
        self._synced_count = save_count

    @property
    def is_synced(self) -> bool:
        """Whether what memory holds survives a power cut."""
        return self.is_saved and self._synced_count == self.save_count

    def _add(self, epoch: int, start: Offset) -> bool:
        if epoch <= self.latest:
            return False
        # An epoch under which nothing was written gives way to the next.
        while self._starts and self._starts[-1] >= start:
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        self.latest = epoch
        return True

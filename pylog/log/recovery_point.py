"""The recovery point of a log: everything below it survives a power cut (rule 8)."""

from pylog.log.config import LogConfig
from pylog.model import Offset

_NEVER = 2**63 - 1


class RecoveryPoint:
    """Rises when a sync ends, falls before a truncation.

    Attributes:
        offset: the point.

    Invariant: when a log is cut, the checkpoint on disk is not above the cut.
    """

    __slots__ = ("_is_lowered", "_lowered_count", "_unsynced_since_ms", "offset")

    def __init__(self, offset: Offset) -> None:
        self.offset = offset
        self._is_lowered = False  # in memory, and not known to be on disk
        self._lowered_count = 0
        self._unsynced_since_ms = _NEVER

    def is_sync_due(self, log_end_offset: Offset, config: LogConfig, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a sync; time counts from the first look at unsynced records.

        Where only records are counted, time ends the wait too: `LogConfig.max_unsynced_ms`.
        """
        unsynced = log_end_offset - self.offset
        if unsynced <= 0:
            return False
        if self._unsynced_since_ms == _NEVER:
            self._unsynced_since_ms = now_ms
        return unsynced >= config.flush_messages or now_ms - self._unsynced_since_ms >= config.max_unsynced_ms

    def begin_sync(self) -> int:
        """Return what to hand to `end_sync`."""
        self._unsynced_since_ms = _NEVER
        return self._lowered_count

    def end_sync(self, end_offset: Offset, lowered_count: int) -> None:
        """Rise to *end_offset*, unless the log was cut since the sync began, or is about to be."""
        if lowered_count == self._lowered_count:
            self.offset = max(self.offset, end_offset)

    def lower(self, offset: Offset) -> int | None:
        """Fall to *offset*, where a truncation is about to cut; the point may be below already.

        What is written there next is not synced, and a crash must not find the old point above it.

        Returns:
            What to hand to `note_written` once a checkpoint is written; None if no checkpoint is needed.
        """
        if offset < self.offset:
            self.offset = offset
            self._lowered_count += 1
            self._is_lowered = True
        return self._lowered_count if self._is_lowered else None

    def note_written(self, lowered_count: int) -> None:
        """Take note that a checkpoint was written since `lower` returned *lowered_count*."""
        if lowered_count == self._lowered_count:
            self._is_lowered = False

    def begin_truncation(self) -> None:
        """Let syncs that are under way count for nothing: they cover bytes that are about to be cut."""
        assert not self._is_lowered, f"recovery point {self.offset} is not on disk"
        self._lowered_count += 1

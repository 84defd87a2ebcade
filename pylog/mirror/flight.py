"""Records of one partition on their way: up to where all of them have arrived.  Decides; waits for nothing."""

from collections import deque

from pylog.model import Offset


class Flight:
    """One partition's records, in the source's order.

    Args:
        start: the source offset of the first record to come.
        epoch: the source's leader epoch of the record before it; None if it is not known.

    Attributes:
        epoch: of the last record below `next_source`; None if it is not known.
        next_source: every record below it has arrived, or was not to go.
        next_target: behind the last that arrived; None before the first.

    Invariant: acknowledgements of one partition come in the order of sending, as an idempotent producer keeps it.
    """

    def __init__(self, start: Offset, epoch: int | None = None) -> None:
        self.epoch = epoch
        self._epochs: deque[tuple[Offset, int]] = deque()
        self.next_source = start
        self.next_target: Offset | None = None
        self._lowest_target: Offset | None = None
        self._originals: deque[tuple[Offset, Offset]] = deque()
        self._passed: tuple[Offset, Offset] | None = None
        self._arrived = 0
        self._last = start
        self._under_way: deque[tuple[Offset, bool]] = deque()
        self._has_failed = False

    def __len__(self) -> int:
        """Return how many records have not arrived yet."""
        return len(self._under_way)

    def send(self, offset: Offset) -> None:
        """Note that the record at *offset* was sent."""
        self._follow(offset)
        self._under_way.append((offset, True))

    def skip(self, offset: Offset) -> None:
        """Note that the record at *offset* is not to go."""
        self._follow(offset)
        self._under_way.append((offset, False))
        self._settle()

    def note_epoch(self, offset: Offset, epoch: int | None) -> None:
        """Note the leader epoch of the record at *offset*, before it is sent or skipped."""
        last = self._epochs[-1][1] if self._epochs else self.epoch
        if epoch is not None and epoch != last:
            self._epochs.append((offset, epoch))

    def note_original(self, offset: Offset, original: Offset) -> None:
        """Note that the record at *offset*, which is to be skipped, is at *original* in the target."""
        self._originals.append((offset, original))

    def reach_end(self, end: Offset) -> None:
        """Note that no record is left below *end*."""
        if end > self._last:
            self.skip(end - 1)

    def acknowledge(self, target: Offset) -> None:
        """Note that the first record that was sent and has not arrived is at *target* now.

        Below 0 it is not known: librdkafka does not learn it of a record that the broker had already.
        """
        offset, is_sent = self._under_way.popleft()
        assert is_sent, f"offset {offset} was skipped and arrived at {target}"
        if self._has_failed:
            self._settle()
            return
        self.next_source = offset + 1
        if target >= 0:
            self.next_target = target + 1
            self._lowest_target = target if self._lowest_target is None else min(target, self._lowest_target)
        self._arrived += 1
        self._settle()

    def fail(self) -> Offset:
        """Return the source offset of the first record that was sent and has not arrived: it never will.

        Whatever arrives after it counts for nothing, or what is committed would pass over it.
        """
        self._has_failed = True
        offset, _ = self._under_way.popleft()
        self._settle()
        return offset

    def take_arrived(self) -> int:
        """Return how many records arrived since the last call."""
        count, self._arrived = self._arrived, 0
        return count

    def take_lowest_target(self) -> Offset | None:
        """Return the lowest target offset that was acknowledged since the last call; None without any."""
        lowest, self._lowest_target = self._lowest_target, None
        return lowest

    def take_passed(self) -> tuple[Offset, Offset] | None:
        """Return what was passed over since the last call, of what came from the target; None if nothing was.

        Returns:
            The source offset of the last of these records, and the lowest offset that one of them has in the target.
        """
        passed, self._passed = self._passed, None
        return passed

    def _follow(self, offset: Offset) -> None:
        assert offset >= self._last, f"offset {offset} after {self._last}: it would be passed over"
        self._last = offset

    def _settle(self) -> None:
        while self._under_way and not self._under_way[0][1]:
            if self._has_failed:
                self._under_way.popleft()
                continue
            self.next_source = self._under_way.popleft()[0] + 1
        while self._epochs and self._epochs[0][0] < self.next_source:
            self.epoch = self._epochs.popleft()[1]
        while self._originals and self._originals[0][0] < self.next_source:
            offset, original = self._originals.popleft()
            self._passed = offset, original if self._passed is None else min(original, self._passed[1])

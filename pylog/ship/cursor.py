"""Which cursor may be remembered, given that acknowledgements come when they like.  Decides; waits for nothing."""

from collections import deque


class CursorWindow:
    """Entries on their way to the brokers, in the journal's order.

    Invariant: `storable` is the cursor of the last entry that is acknowledged together with all before it, so that
    going on after it loses nothing; what was acknowledged beyond it is sent again after a restart.

    Args:
        limit: entries under way at most, which bounds memory.
    """

    def __init__(self, limit: int) -> None:
        assert limit > 0, f"a window of {limit} entries lets nothing through"
        self._limit = limit
        self._first = 0
        self._cursors: deque[str] = deque()
        self._acknowledged: set[int] = set()
        self.storable: str | None = None

    def __len__(self) -> int:
        """Return how many entries are not yet below `storable`."""
        return len(self._cursors)

    @property
    def next_number(self) -> int:
        """Number of the entry that `add` takes next."""
        return self._first + len(self._cursors)

    @property
    def is_full(self) -> bool:
        """Whether the next entry must wait."""
        return len(self._cursors) >= self._limit

    def add(self, cursor: str) -> int:
        """Take the next entry and return its number, for `acknowledge`."""
        assert not self.is_full, f"{len(self._cursors)} entries under way, {self._limit} allowed"
        number = self.next_number
        self._cursors.append(cursor)
        return number

    def acknowledge(self, number: int) -> None:
        """Note that the brokers have the entry with this number; a second time changes nothing."""
        if number < self._first:
            return
        assert number < self.next_number, f"entry {number} was never added"
        self._acknowledged.add(number)
        while self._first in self._acknowledged:
            self._acknowledged.remove(self._first)
            self.storable = self._cursors.popleft()
            self._first += 1

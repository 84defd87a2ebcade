"""Which transactional ids have waited too long, found without a look at all the others."""

import heapq
from collections import OrderedDict
from itertools import takewhile

from pylog.transaction.state import TransactionConfig, TransactionMetadata, TransactionState

AGAIN_MS = 100
"""How soon an id is due again whose transaction nobody has ended by then."""


class Deadlines:
    """See the module.

    Transactions that are open stand in a heap by the time at which they will be open for too long: one row of each id,
    which is moved only when its time has come, for most transactions end long before.  Ids stand in the order in which
    they were used last, so that those that expire stand in front.
    """

    def __init__(self, config: TransactionConfig) -> None:
        """Begin without ids."""
        self._expiration_ms = config.expiration_ms
        self._late_ms: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._in_heap: dict[str, int] = {}
        self._used_ms: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used_ms)

    def note(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        """Take note of what is in force of an id."""
        self._used_ms[transactional_id] = metadata.update_ms
        self._used_ms.move_to_end(transactional_id)
        if metadata.state is TransactionState.ONGOING:
            late_ms = self._late_ms[transactional_id] = metadata.late_ms
            if late_ms < self._in_heap.get(transactional_id, late_ms + 1):
                self._push(transactional_id, late_ms)
        else:
            self._late_ms.pop(transactional_id, None)

    def forget(self, transactional_id: str) -> None:
        """An id is gone."""
        self._used_ms.pop(transactional_id, None)
        self._late_ms.pop(transactional_id, None)
        self._in_heap.pop(transactional_id, None)

    def by_use(self) -> list[str]:
        """Return all ids, that which was used last at the end."""
        return list(self._used_ms)

    def due(self, now_ms: int) -> list[str]:
        """Return the ids whose transaction is open for too long at *now_ms*, and those that nobody uses any more."""
        late: dict[str, None] = {}
        while self._heap and self._heap[0][0] < now_ms:
            queued_ms, transactional_id = heapq.heappop(self._heap)
            if self._in_heap.get(transactional_id) != queued_ms:
                continue  # an earlier row of it has taken its place
            del self._in_heap[transactional_id]
            late_ms = self._late_ms.get(transactional_id)
            if late_ms is None:
                continue
            if late_ms < now_ms:
                late[transactional_id] = None
                late_ms = now_ms + AGAIN_MS
            self._push(transactional_id, late_ms)
        unused = takewhile(lambda row: row[1] + self._expiration_ms <= now_ms, self._used_ms.items())
        return [*late, *(transactional_id for transactional_id, _ in unused if transactional_id not in late)]

    def _push(self, transactional_id: str, late_ms: int) -> None:
        self._in_heap[transactional_id] = late_ms
        heapq.heappush(self._heap, (late_ms, transactional_id))

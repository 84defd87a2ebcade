"""How often somebody may try to log in: counted by key, such as an address or a user."""

import threading
from collections import OrderedDict, deque

WINDOW_S = 60.0
"""For which attempts to log in are counted."""

MAX_KEYS = 10_000
"""Users and addresses whose attempts are remembered; beyond it the one that was quiet longest is forgotten."""


class Attempts:
    """Counts what somebody tried within `WINDOW_S`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def take(self, key: str, limit: int, now_s: float) -> bool:
        """Count an attempt of *key*; return False, and count nothing, if there were *limit* in the window."""
        with self._lock:
            times = self._times.setdefault(key, deque())
            self._times.move_to_end(key)
            while times and now_s - times[0] >= WINDOW_S:
                times.popleft()
            if len(times) >= limit:
                return False
            times.append(now_s)
            while len(self._times) > MAX_KEYS:
                self._times.popitem(last=False)
            return True

    def is_over(self, key: str, limit: int, now_s: float) -> bool:
        """Return whether *key* has tried *limit* times in the window; counts nothing."""
        with self._lock:
            return sum(now_s - one < WINDOW_S for one in self._times.get(key, ())) >= limit

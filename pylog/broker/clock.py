"""The two clocks: one tells the time, the other only how much of it has passed.

The clock on the wall may be set, by a day forwards or back; whatever waits, lags or expires goes by the steady one.
"""

import time


def wall_ms() -> int:
    """Return the milliseconds since 1970, for timestamps that others read."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Return milliseconds that only grow, for deadlines and durations inside this process."""
    return int(time.monotonic() * 1000)

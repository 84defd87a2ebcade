"""The two clocks: one tells the time, the other only how much of it has passed.

The clock on the wall may be set, by a day forwards or back; whatever waits, lags or expires goes by the steady one.
"""

import time

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's monotonic clock stands still while the host is suspended, and others do not wait for it.  A leader that has
slept must not take followers that asked it before for followers that ask it now."""


def wall_ms() -> int:
    """Return the milliseconds since 1970, for timestamps that others read."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Return milliseconds that only grow, also while the host is suspended, for deadlines and durations."""
    return time.clock_gettime_ns(_STEADY) // 1_000_000

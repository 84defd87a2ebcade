"""The filter by which role `monitoring` knows after how long something that cron starts is late."""

import sys
from collections.abc import Callable
from pathlib import Path

# Ansible loads this file by itself; the checkout that it belongs to need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pylog.ops.schedules import longest_gap_s


def cron_gap_s(schedule: str) -> int:
    """Return the longest time in seconds between two runs of a schedule of cron; ValueError if it is none."""
    return longest_gap_s(str(schedule))


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[[str], int]]:
        """Return name -> filter."""
        return {"cron_gap_s": cron_gap_s}

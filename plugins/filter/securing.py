"""The filters by which roles and `secure.yml` know the steps between an open datacenter and a secured one."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Ansible loads this file by itself; the checkout that it belongs to need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pylog.ops.securing import broker_text, ensemble_text, whom_it_cuts_off


def cut_off_by(turn: Mapping[str, Any], readings: Mapping[str, Mapping[str, Any]], quiet_s: int) -> list[str]:
    """Return whom the turn of `secure.yml` would cut off, by what each host's brokers said."""
    return whom_it_cuts_off(turn, readings, int(quiet_s))


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return name -> filter."""
        return {"stage_text_of_broker": broker_text, "stage_text_of_server": ensemble_text, "cut_off_by": cut_off_by}

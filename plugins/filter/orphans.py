"""The filter by which `site` finds programs that a host's groups no longer name."""

import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

# Ansible loads this file by itself; the checkout that it belongs to need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pylog.ops.orphans import orphans


def orphaned_units(enabled: Iterable[str], groups: Collection[str], is_watched: bool) -> list[str]:
    """Return what `pylog.ops.orphans` finds."""
    return orphans(map(str, enabled), [*map(str, groups)], is_watched=is_watched)


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[[Iterable[str], Collection[str], bool], list[str]]]:
        """Return name -> filter."""
        return {"orphaned_units": orphaned_units}

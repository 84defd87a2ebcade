"""The filter with which role `zookeeper` judges a configuration before any server gets it."""

import sys
from collections.abc import Callable
from pathlib import Path

# Ansible loads this file by itself; the checkout that it belongs to need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pylog.ops.zoo_cfg import problems


def zoo_cfg_problems(text: str, own_id: int) -> list[str]:
    """Return what is wrong with a zoo.cfg."""
    return list(problems(text, own_id))


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[[str, int], list[str]]]:
        """Return name -> filter."""
        return {"zoo_cfg_problems": zoo_cfg_problems}

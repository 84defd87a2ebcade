"""Filters with which the files of `playbooks/tasks` ask `pylog.ops.restart` for a roll's decisions.

On the control machine and without a process of their own: nobody else's user, directory or secret is involved.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Ansible loads this file by itself; the checkout that it belongs to need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pylog.ops.restart import VERBS


def plain(decide: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Callable[[Mapping[str, Any]], Any]:
    """Return *decide* with an answer of JSON's own types, which are all that Ansible keeps."""
    return lambda question: json.loads(json.dumps(decide(question)))


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
        """Return name -> filter: `roll_plan`, `roll_next`, one for each question that `restart` answers."""
        return {f"roll_{verb}": plain(decide) for verb, decide in VERBS.items()}

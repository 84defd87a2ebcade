"""The filter that makes the rules of role `firewall`, without a process of its own on the control machine."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Ansible loads this file by itself; the checkout that it belongs to need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pylog.ops.firewall import rules_of

ROOT = Path(__file__).resolve().parents[2]


def nft_rules(question: Mapping[str, Any]) -> str:
    """Return the text for ``nft --file`` that `pylog.ops.firewall` makes of one host's variables."""
    # As JSON's own types: what Ansible hands over marks where each value came from.
    return str(rules_of(json.loads(json.dumps(question, default=str)), ROOT / "roles"))


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[[Mapping[str, Any]], str]]:
        """Return name -> filter."""
        return {"nft_rules": nft_rules}

"""Run the module `pylog_host`, and say when the control machine asked and when it had the answer.

A host's clock is compared with this machine's, and a login may take longer than clocks may differ.
"""

import time
from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase  # type: ignore[import-untyped]


class ActionModule(ActionBase):  # type: ignore[misc]
    """What Ansible looks for in this file."""

    def run(self, tmp: str | None = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result with ``asked_ms`` and ``answered_ms``."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        asked_ms = time.time_ns() // 1_000_000
        result |= self._execute_module(task_vars=task_vars)
        return result | {"asked_ms": asked_ms, "answered_ms": time.time_ns() // 1_000_000}

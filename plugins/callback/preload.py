"""The callback that loads filters and tests before the first worker starts.

Ansible runs each task of each host in a process that it forks, and loads all filters there with the first one that the
task names: the bundle's own with what they import, and thrown away when the task ends.  That is most of what a small
task costs the control machine.  What the process that forks has loaded, all of them have.
"""

from __future__ import annotations

from ansible.playbook import Playbook  # type: ignore[import-untyped]
from ansible.plugins.callback import CallbackBase  # type: ignore[import-untyped]
from ansible.plugins.loader import filter_loader, test_loader  # type: ignore[import-untyped]

DOCUMENTATION = """
    name: preload
    type: aggregate
    short_description: load filters and tests once, not in each worker
    description: Prints nothing and changes nothing but how long a run takes.
    requirements: [enable in callbacks_enabled]
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Loads them when a playbook begins: the directories of plugins are known then."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "preload"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: Playbook) -> None:
        """Load all filters and tests; getting one does."""
        filter_loader.get("bool")
        test_loader.get("defined")

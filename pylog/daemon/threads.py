"""A program whose thread a bug ended ends too, and systemd starts it again.

Otherwise its page would go on saying what that thread said last.
"""

import os
import sys
import threading

from pylog.faults import BUG


def end_with_threads() -> None:
    """End the process when any of its threads ends by an exception that nobody caught."""
    threading.excepthook = _end


def _end(bug: threading.ExceptHookArgs) -> None:
    threading.__excepthook__(bug)
    sys.stderr.write(f"level=critical event=thread_ended code={BUG.code}\n")
    sys.stderr.flush()
    os._exit(BUG.exit_code)

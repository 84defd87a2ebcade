"""A program whose thread a bug ended ends too, and systemd starts it again.

Otherwise its page would go on saying what that thread said last.
"""

import os
import threading


def end_with_threads() -> None:
    """End the process with exit code 1 when any of its threads ends by an exception that nobody caught."""
    threading.excepthook = _end


def _end(bug: threading.ExceptHookArgs) -> None:
    threading.__excepthook__(bug)
    os._exit(1)

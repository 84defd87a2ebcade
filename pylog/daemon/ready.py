"""Tells systemd that a program has started, where its unit waits for that."""

import sys

from pylog.systemd import tell_systemd


def tell_ready() -> None:
    """Send READY=1 to systemd; without systemd nothing happens."""
    try:
        tell_systemd("READY=1")
    except OSError as error:
        print(f"pylog: systemd was not told that this program started: {error}", file=sys.stderr)

"""Tells systemd that a program has started, where its unit waits for that."""

import os
import socket
import sys


def tell_ready() -> None:
    """Send READY=1 to systemd; without systemd nothing happens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.connect(address)
            sock.send(b"READY=1")
    except OSError as error:
        print(f"pylog: systemd was not told that this program started: {error}", file=sys.stderr)

"""Tells systemd how a program is, where its unit waits for that."""

import os
import socket


def tell_systemd(state: str) -> None:
    """Send *state*, such as ``READY=1``, to systemd; without systemd nothing happens.

    Raises:
        OSError: systemd was not told.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect(address)
        sock.send(state.encode())

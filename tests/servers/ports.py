"""Ports for servers that must know theirs before they start."""

import fcntl
import os
import socket
import tempfile
from pathlib import Path

FIRST, LAST = 10_000, 32_767
"""Below the ports that the kernel hands out by itself (32768 on): neither a client's end of a connection nor a server
on port 0 takes one of these while it is chosen and not listened on yet, or while its server is down."""

_COUNTER = Path(tempfile.gettempdir()) / f"pylog-test-ports-{os.getuid()}"
"""The last port handed out, shared by all test runs of this user: two that run side by side never get the same."""


def free_ports(count: int, counter: Path = _COUNTER) -> list[int]:
    """Return *count* loopback ports that nobody listens on, and that no other test run gets for a long time.

    Args:
        count: how many.
        counter: file with the last port handed out; made if missing.
    """
    with counter.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        port = int(text) if text.isdecimal() else FIRST - 1
        chosen: list[int] = []
        for _ in range(LAST - FIRST + 1):
            if len(chosen) == count:
                break
            port = port + 1 if FIRST - 1 <= port < LAST else FIRST
            if _is_free(port):
                chosen.append(port)
        assert len(chosen) == count, f"{count} ports wanted, {len(chosen)} of {FIRST} to {LAST} are free"
        file.seek(0)
        file.truncate()
        file.write(str(port))
    return chosen


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True

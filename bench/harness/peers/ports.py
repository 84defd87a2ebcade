"""Waiting for somebody else's server, and ending it."""

import socket
import subprocess
import time
from pathlib import Path

_PATIENCE_S = 90.0
_STOP_TIMEOUT_S = 30.0


def wait_port(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until a loopback port answers.

    Raises:
        RuntimeError: the process ended, or did not open it; the message has its last words.
    """
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"{process.args!r} opened no port {port} in {_PATIENCE_S:.0f} s:\n{log.read_text()[-2000:]}")


def stop(process: "subprocess.Popen[bytes] | None") -> None:
    """End a server that was started, by force when it takes too long."""
    assert process is not None, "it was started"
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

"""Asks a broker on this host over its admin socket: HTTP/1.1 and JSON on a Unix socket."""

import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pylog.errors import Unreachable

RUN_DIR = Path("/run/pylog")
"""Where brokers that run as services put their sockets."""

_REPLY_LIMIT_BYTES = 64 << 20
"""A status of 100,000 partitions is about 20 MB; more than this is no broker of ours."""


def socket_of(broker_id: int) -> Path:
    """Return where the admin socket of a broker on this host is."""
    return RUN_DIR / f"broker-{broker_id}.sock"


def ask(path: Path, method: str, target: str, body: object = None, timeout_s: float = 10) -> tuple[int, Any]:
    """Send one request and return status and decoded JSON.

    Args:
        path: the socket.
        method: GET or POST.
        target: such as ``/status``.
        body: JSON to send, if any.
        timeout_s: for every single wait.

    Raises:
        Unreachable: nobody answers there, or not in HTTP and JSON.
    """
    connection = _UnixConnection(path, timeout_s)
    try:
        payload = None if body is None else json.dumps(body).encode()
        headers: Mapping[str, str] = {} if payload is None else {"Content-Type": "application/json"}
        connection.request(method, target, payload, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read(_REPLY_LIMIT_BYTES))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable(f"{path}: {error}") from error
    finally:
        connection.close()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))

"""A connection to hosts that are not there: answers what a host would that is as it should be, and runs nothing.

So what is measured is the control machine alone.  Each host's answers lie in ``STANDIN_DIR/HOST.json``:
``{"facts": ..., "brokers": ..., "zookeeper": ...}``, as `pylog.ops.host` gives them.  A host without any
cannot be reached.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError  # type: ignore[import-untyped]
from ansible.plugins.connection import ConnectionBase  # type: ignore[import-untyped]

DOCUMENTATION = """
    name: standin
    short_description: answer for a host that is not there
    description: Answers what a host would that is as it should be.
    extends_documentation_fragment: [connection_pipelining]
"""
WELL = {"is_well": True, "is_over": True, "is_ready": True, "reason": "", "waited": {}}
# What a command says: health, reassignments and topics all of a cluster that is well.
SAID = {"healthy": True, "controller_id": 1, "problems": [], "changes": [], "outages": [], "partitions": []}
MODULE = re.compile(rb"ansible_module='([\w.]+)'")
PARAMETERS = re.compile(rb"params='(.*?)',\n", re.DOTALL)


class Connection(ConnectionBase):  # type: ignore[misc]
    """Answers modules of the bundle."""

    transport = "standin"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Return what the module in *in_data* would print on a host that is as it should be."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        if not self._answers().exists():
            raise AnsibleConnectionFailure(f"{self._play_context.remote_addr} is not there")
        if "echo ~" in cmd:
            return 0, b"/root\n", b""
        module = MODULE.search(in_data or b"")
        if module is None:
            raise AnsibleError(f"stand-ins run modules through pipelining alone, found {cmd}")
        return 0, json.dumps(self._answer(module[1].decode(), in_data or b"")).encode(), b""

    def _answers(self) -> Path:
        return Path(os.environ["STANDIN_DIR"]) / f"{self._play_context.remote_addr}.json"

    def _answer(self, module: str, source: bytes) -> dict[str, Any]:
        if module != "pylog_host":
            return {"changed": False, "rc": 0, "stdout": json.dumps(SAID), "stderr": "", "answer": {}, "ping": "pong"}
        kept = json.loads(self._answers().read_text())
        read = re.search(rb"read\W+(facts|disks|units|brokers|zookeeper|ensemble|steady)\b", source)
        verb = read[1].decode() if read else ""
        answer = {"facts": {}, "units": {}} | {verb: WELL} | kept
        return {"changed": False, "answer": answer[verb]}

    def put_file(self, in_path: str, out_path: str) -> None:
        """Refuse: nothing is to be written."""
        raise AnsibleError(f"a stand-in was to get {out_path}")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Refuse: nothing is there."""
        raise AnsibleError(f"a stand-in was to give {in_path}")

    def close(self) -> None:
        """Have nothing to close."""
        self._connected = False

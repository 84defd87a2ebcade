"""What role `stream` writes is a configuration that `pylog stream` reads."""

import re
from pathlib import Path
from typing import Any

import pytest

from pylog.config import load_stream_config
from tests.templates import render

QUERY = {
    "name": "q", "output": "out", "trigger": "10 seconds", "options": {"compression": "zstd"},
    "sql": "SELECT key, \"x\" AS value -- '%'\nFROM words w\nLEFT JOIN users u ON u.key = w.key\n",
    "inputs": {
        "words": {"topic": "words", "watermark": "timestamp 1 minute", "options": {"maxOffsetsPerTrigger": 9}},
        "users": {"topic": "users", "table": True},
    },
}  # fmt: skip
ROLE = {
    "ansible_managed": "written by Ansible", "stream_bootstrap": "a:9092,b:9092,", "stream_state_dir": "/var/lib/s",
    "stream_metrics_dir": "/var/lib/m", "stream_spark_master": "local[2]", "__stream_password_file": "PASSWORD",
}  # fmt: skip


@pytest.mark.parametrize("logs_in", [True, False])
@pytest.mark.parametrize("more", [{}, {"group": "own"}])
def test_the_role_writes_what_the_command_reads(tmp_path: Path, logs_in: bool, more: dict[str, Any]) -> None:
    password = tmp_path / "stream.password"
    password.write_text("a password of some length\n")
    password.chmod(0o600)
    given = {
        **ROLE,
        "__stream_logs_in": logs_in,
        "__stream_password_file": password,
        "__stream_query": {**QUERY, **more},
    }
    path = tmp_path / "stream-q.yml"
    text = render("etc/pylog/stream.yml.j2", **given)
    if logs_in:
        assert "ca_file: /etc/pylog/ca.pem" in text
    path.write_text(re.sub(r",\s+ca_file: [^}]*", "", text))  # which this machine has not
    found = load_stream_config(path)
    assert (found.sql, found.trigger, found.output) == (QUERY["sql"], "10 seconds", "out")
    assert found.cluster.bootstrap == "a:9092,b:9092"
    assert (found.checkpoint, found.metrics_file) == (Path("/var/lib/s/q"), Path("/var/lib/m/stream-q.prom"))
    assert found.group == more.get("group", "stream-q")
    assert found.inputs["users"].is_table
    assert found.inputs["words"].options == {"maxOffsetsPerTrigger": "9"}
    assert found.options == {"compression": "zstd"}
    assert found.security.get("user") == ("pylog-stream" if logs_in else None)

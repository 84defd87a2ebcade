"""The modules and filters as Ansible finds them, on this machine, changing nothing."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
SILENT = {"units": [], "answering": ["127.0.0.1:1"]}
PLAY = {
    "hosts": "localhost",
    "connection": "local",
    "gather_facts": False,
    "tasks": [
        {"name": "Read", "pylog_host": {"read": "disks", "about": {"disks": ["/dev/no-such-disk"]}}},
        {
            "name": "Wait",
            "pylog_host": {"read": "steady", "about": SILENT, "must_be_well": False},
        },
        {"name": "Fail", "pylog_host": {"read": "steady", "about": SILENT},
         "ignore_errors": True},
        {"name": "Roll", "pylog_roll": {"verb": "back", "about": {"names": []}}},
        {"name": "Record", "pylog_former": {"verb": "record", "about": {"sysctls": []}}},
        {
            "name": "Decide",
            "ansible.builtin.set_fact": {
                "decided": "{{ {'id': 1, 'brokers': [1, 2], 'evidence': {'is_reached': false}} | roll_verdict }}",
                "judged": "{{ 'tickTime=0' | zoo_cfg_problems(1) | first }}",
            },
        },
    ],
}  # fmt: skip


def test_ansible_finds_every_module_and_filter(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(yaml.safe_dump([PLAY]))
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    environment = os.environ | {"ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"}
    before_ms = time.time_ns() // 1_000_000
    done = subprocess.run(
        [program, "--check", "-i", "localhost,", "-e", f"ansible_python_interpreter={sys.executable}",
         str(tmp_path / "play.yml")],
        cwd=ROOT, capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    [play] = json.loads(done.stdout[done.stdout.index("{") :])["plays"]
    found: dict[str, Any] = {task["task"]["name"]: task["hosts"]["localhost"] for task in play["tasks"]}
    assert found["Read"]["answer"] == {"disks": {"/dev/no-such-disk": {"exists": False}}}
    assert (found["Wait"]["changed"], found["Wait"]["answer"]["is_well"]) == (False, False)
    assert before_ms <= found["Read"]["asked_ms"] <= found["Read"]["answered_ms"] <= time.time_ns() // 1_000_000
    assert found["Fail"]["msg"].startswith("not well: nothing answers at 127.0.0.1:1")
    assert found["Roll"]["skipped"], "a check changes nothing"
    assert found["Record"]["skipped"]
    facts = found["Decide"]["ansible_facts"]
    assert facts["decided"] == {"outcome": "hold", "why": "its host could not be reached any more"}
    assert facts["judged"] == "initLimit is missing"

"""Filters of the bundle are loaded once, by the process that forks the workers."""

import os
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]


def test_filters_are_loaded_before_the_first_worker_starts(tmp_path: Path) -> None:
    task = {"ansible.builtin.debug": {"msg": "{{ 'it works' | upper }}"}}
    play = {"hosts": "all", "connection": "local", "gather_facts": False, "tasks": [task]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    # Python reports each import to the standard error, which a worker does not have.
    report = {"PYTHONPROFILEIMPORTTIME": "1", "ANSIBLE_FORCE_COLOR": "0"}
    command = [program, "-i", "localhost,", str(tmp_path / "play.yml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | report)
    assert "IT WORKS" in done.stdout, done.stdout
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert imported.count("pylog.ops.firewall") == 1

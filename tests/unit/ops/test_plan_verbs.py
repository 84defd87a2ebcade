"""What the playbooks `plan` and `apply` ask of the program that makes plans, which stands in here."""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """import json, sys
from pathlib import Path
Path("asked.json").write_text(json.dumps(sys.argv[1:]))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with both playbooks, an empty `site`, and a program that notes what it is asked."""
    for directory in ("playbooks", "pylog/ops"):
        (tmp_path / directory).mkdir(parents=True)
    for verb in ("plan", "apply"):
        shutil.copy(ROOT / "playbooks" / f"{verb}.yml", tmp_path / "playbooks")
    (tmp_path / "playbooks" / "site.yml").write_text("- {hosts: pylog_broker, gather_facts: false, tasks: []}\n")
    for package in ("pylog", "pylog/ops"):
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "pylog" / "ops" / "plan.py").write_text(PROGRAM)
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {"pylog_broker": {"hosts": {"h1": local, "h2": local}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
    return tmp_path


def extra_vars_asked(checkout: Path, verb: str, extra: dict[str, Any]) -> list[dict[str, Any]]:
    """Run the playbook of *verb* and return the variables that it hands on, none or one set."""
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(checkout / "hosts.yml")]
    command += [f"playbooks/{verb}.yml", "--extra-vars", json.dumps(extra | {"plan_file": "plan.json"})]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    asked = json.loads((checkout / "asked.json").read_text())
    return [json.loads(value) for name, value in itertools.pairwise(asked) if name == "--extra-vars"]


@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_f4_a_plan_is_made_without_the_hosts_that_are_away(checkout: Path, verb: str) -> None:
    extra = {"away": "h2", "plan_vars": {"broker_num_partitions": 4}}
    assert extra_vars_asked(checkout, verb, extra) == [{"away": "h2", "broker_num_partitions": 4}]
    assert extra_vars_asked(checkout, verb, {}) == []

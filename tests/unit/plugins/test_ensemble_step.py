"""One step of a ZooKeeper roll, as `playbooks/tasks/ensemble_step.yml` carries it out on a host that is not there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
HOST = '''#!/usr/bin/python3
"""Answer with the next reading of its kind."""
import json
from pathlib import Path
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"read": {}, "about": {"type": "dict"}, "must_be_well": {"type": "bool"}})
kept = Path("PLACE/readings.json")
readings = json.loads(kept.read_text())
answer = readings[module.params["read"]].pop(0)
kept.write_text(json.dumps(readings))
module.exit_json(changed=False, answer=answer)
'''
ROLL = '''#!/usr/bin/python3
"""Note what is asked."""
from pathlib import Path
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"verb": {}, "about": {"type": "dict"}})
with Path("PLACE/asked").open("a") as asked:
    asked.write(module.params["verb"] + "\\n")
module.exit_json(changed=True, answer={})
'''
WELL = {"is_well": True, "silent": [], "reason": ""}
STEP = {"host": "zk1", "unit": "pylog-zookeeper.service", "action": "restart", "reasons": ["asked"], "is_well": True}


def unwell(*silent: str) -> dict[str, Any]:
    return {"is_well": False, "silent": [*silent], "reason": "zk1 does not serve"}


def server(**changes: Any) -> dict[str, Any]:
    return {"is_active": True, "is_crashing": False, "is_ready": False, **changes}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "library").mkdir()
    for name, text in {"pylog_host": HOST, "pylog_roll": ROLL}.items():
        (tmp_path / "library" / f"{name}.py").write_text(text.replace("PLACE", str(tmp_path)))
    return tmp_path


def step(
    place: Path,
    after: dict[str, Any],
    now: dict[str, Any],
    seen: dict[str, Any] | None = None,
    gone: tuple[str, ...] = (),
) -> tuple[str, list[str]]:
    """Carry out the step of zk1, before which all are well; return the output, and the verbs that were asked.

    Args:
        place: directory of the run.
        after: what zk1's host reads of the ensemble at the end.
        now: what zk1 says of itself.
        seen: what the host of another server reads then, where *after* names silent ones; the same unless given.
        gone: hosts that cannot be reached.
    """
    (place / "readings.json").write_text(json.dumps({"ensemble": [WELL, after, seen or after], "zookeeper": [now]}))
    ensemble = {"servers": dict.fromkeys(("zk1", "zk2", "zk3", "zk4"), "192.0.2.1:2181"), "away": ["zk4"]}
    member = {"about": {}, "ensemble": ensemble, "desired": {"files": {}}, "ready_timeout_s": 30, "ready_readings": 3}
    facts = {"zookeeper_member": member, "roll_plan": {"steps": [STEP]}, "roll_token": "t"}
    turn = {
        "ansible.builtin.include_tasks": str(ROOT / "playbooks" / "tasks" / "ensemble_step.yml"), "run_once": True,
        "loop": "{{ roll_plan.steps }}", "loop_control": {"loop_var": "roll_step", "index_var": "roll_index"},
    }  # fmt: skip
    play = {"hosts": "zk1", "gather_facts": False, "any_errors_fatal": True}
    (place / "play.yml").write_text(yaml.safe_dump([play | {"tasks": [{"ansible.builtin.set_fact": facts}, turn]}]))
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    lost = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    hosts = {name: lost if name in (*gone, "zk4") else here for name in ensemble["servers"]}
    (place / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(place / "hosts.yml"),
         str(place / "play.yml")],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"ANSIBLE_LIBRARY": str(place / "library"), "ANSIBLE_PIPELINING": "1"},
    )  # fmt: skip
    assert (done.returncode == 0) is after["is_well"], done.stdout
    return " ".join(done.stdout.split()), (place / "asked").read_text().split()


def test_f6_a_step_that_passes_its_gate_is_noted(place: Path) -> None:
    _, asked = step(place, WELL, server(is_ready=True))
    assert asked == ["restart", "finish"]


def test_f6_a_server_that_runs_while_another_does_not_answer_keeps_its_files(place: Path) -> None:
    """Without a majority no server is ready, whatever its own files say."""
    said, asked = step(place, unwell("zk2"), server(), gone=("zk2",))
    assert asked == ["restart"]
    assert "put back: nothing; it runs, and zk2 does not answer" in said


def test_a_server_that_nobody_else_can_be_asked_about_keeps_its_files(place: Path) -> None:
    said, asked = step(place, unwell("zk2", "zk3"), server(), gone=("zk2", "zk3"))
    assert asked == ["restart"]
    assert "put back: nothing; it runs, and zk2, zk3 does not answer" in said


def test_a_server_whose_own_files_keep_it_from_the_others_gets_back_what_it_ran(place: Path) -> None:
    """The others answer each other, and are silent to the host of this step alone."""
    _, asked = step(place, unwell("zk2", "zk3"), server(), seen=unwell("zk1"))
    assert asked == ["restart", "back"]


@pytest.mark.parametrize(
    ("after", "now"),
    [
        pytest.param(unwell("zk1"), server(), id="all others answer"),
        pytest.param(unwell("zk1", "zk2"), server(is_crashing=True), id="it crashes again and again"),
    ],
)
def test_f6_a_server_that_is_to_blame_gets_back_what_it_ran(
    place: Path, after: dict[str, Any], now: dict[str, Any]
) -> None:
    _, asked = step(place, after, now)
    assert asked == ["restart", "back"]

"""One step of a roll, as `playbooks/tasks/step.yml` carries it out, on two hosts that are not there.

Modules answer from a file, and SSH is a program that runs the command here until the file `cut` exists.  So a host can
be lost in the middle of a step, and the play says what an operator would read.
"""

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
"""Answer as a host whose readings are in a file: of broker 1 after its restart and at the end, and of broker 2."""
import json
from pathlib import Path
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"read": {}, "about": {"type": "dict"}, "must_be_well": {"type": "bool"}})
about = module.params["about"]
name = "others" if about["brokers"] == [2] else "came" if about["wait_s"] == 30 else "now"
module.exit_json(changed=False, answer=json.loads(Path("PLACE/readings.json").read_text())[name])
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
SSH = """#!/bin/bash
[[ ! -e PLACE/cut ]] || exit 255
exec sh -c "${@: -1}"
"""
CLI = """#!/bin/sh
echo '{"controller_id": 2, "problems": []}'
[ ! -e PLACE/cuts ] || touch PLACE/cut
"""
WELL = {"id": 1, "is_active": True, "is_ready": True, "reason": "", "status": {"is_registered": True}}
ALONE = WELL | {"is_ready": False, "reason": "not registered", "status": {"is_registered": False}}
STEP = {
    "host": "h1", "datacenter": "live", "id": 1, "unit": "pylog-broker@1.service", "action": "restart",
    "reasons": ["asked"], "is_well": True,
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "library").mkdir()
    files = {"library/pylog_host.py": HOST, "library/pylog_roll.py": ROLL, "ssh": SSH, "pylog": CLI}
    for name, text in files.items():
        (tmp_path / name).write_text(text.replace("PLACE", str(tmp_path)))
        (tmp_path / name).chmod(0o755)
    return tmp_path


def step(place: Path, **readings: dict[str, Any]) -> tuple[int, str, list[str]]:
    """Carry out broker 1's step with `--limit` to its host; return exit code, output, and the verbs that were asked."""
    (place / "readings.json").write_text(json.dumps(readings))
    member = {
        "desired": {}, "ready_timeout_s": 30, "pylog": str(place / "pylog"), "health": [], "whole": [], "names": [],
        "peers": [1, 2], "hosts": {"h1": [1], "h2": [2]}, "bootstrap": "h2:9092",
    }  # fmt: skip
    facts = {
        "broker_member": member, "roll_plan": {"steps": [STEP]}, "roll_places": {"live": ["h1", "h2"]},
        "roll_finished": [], "roll_controllers": {}, "roll_token": "t",
    }  # fmt: skip
    turn = {
        "ansible.builtin.include_tasks": str(ROOT / "playbooks" / "tasks" / "step.yml"), "run_once": True,
        "loop": "{{ roll_plan.steps }}", "loop_control": {"loop_var": "roll_turn", "index_var": "roll_index"},
    }  # fmt: skip
    play = {"hosts": "all", "gather_facts": False, "any_errors_fatal": True}
    (place / "play.yml").write_text(yaml.safe_dump([play | {"tasks": [{"ansible.builtin.set_fact": facts}, turn]}]))
    host = {"ansible_ssh_executable": str(place / "ssh"), "ansible_python_interpreter": sys.executable}
    (place / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"h1": host, "h2": host}}}))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(place / "hosts.yml"), "--limit", "h1",
         str(place / "play.yml")],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {
            "ANSIBLE_LIBRARY": str(place / "library"), "ANSIBLE_PIPELINING": "1", "ANSIBLE_SSH_RETRIES": "0",
            "ANSIBLE_TRANSPORT": "ssh", "ANSIBLE_SSH_ARGS": "",
        },
    )  # fmt: skip
    asked = (place / "asked").read_text().split() if (place / "asked").exists() else []
    return done.returncode, " ".join(done.stdout.split()), asked


def reading(broker: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"brokers": [broker], "is_well": broker["is_ready"], **more}


def test_a_step_that_passes_its_gate_is_noted(place: Path) -> None:
    code, said, asked = step(place, came=reading(WELL))
    assert (code, asked) == (0, ["restart", "finish"]), said


def test_a_host_that_is_lost_after_its_gate_holds_the_roll_and_says_so(place: Path) -> None:
    (place / "cuts").touch()
    code, said, asked = step(place, came=reading(WELL))
    assert code != 0
    assert asked == ["restart"]
    assert "it was well, and the end of its step could not be noted" in said
    assert "put back: nothing; it holds" in said


def test_who_is_done_is_remembered_or_the_roll_ends(place: Path) -> None:
    (place / "pylog").write_text("#!/bin/sh\necho no JSON\n")
    code, said, _ = step(place, came=reading(WELL))
    assert code != 0, said
    assert "Remember who is done" in said


@pytest.mark.parametrize(("waited", "is_blamed"), [({"late_s": 30}, True), ({"late_s": 1}, False), ({}, True)])
def test_zookeeper_is_blamed_for_the_wait_for_the_first_session(
    place: Path, waited: dict[str, float], is_blamed: bool
) -> None:
    behind = WELL | {"is_ready": False, "reason": "1 partitions not in sync"}
    came = reading(behind, waited={"store_s": 30} | waited)
    _, said, _ = step(place, came=came, now=reading(behind), others={"brokers": [WELL | {"id": 2}]})
    assert ("it waited 30 s for its session with ZooKeeper" in said) is is_blamed, said


def test_a_step_that_zookeeper_fails_under_takes_nothing_back(place: Path) -> None:
    """With `--limit` too, the broker of another host is asked, though the play is not for that host."""
    waits = reading(ALONE, waited={"store_s": 30})
    code, said, asked = step(place, came=waits, now=reading(ALONE), others={"brokers": [ALONE | {"id": 2}]})
    assert code != 0
    assert asked == ["restart"]
    assert "it runs, and other brokers have no session with ZooKeeper" in said
    assert "put back: nothing; it holds" in said

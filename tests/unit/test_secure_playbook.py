"""What playbook `secure` does before the roll of a step, by Ansible itself on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pylog.ops.migration import STEPS, Position, next_turn
from pylog.ops.securing import turn_of

ROOT = Path(__file__).resolve().parents[2]


def before_the_roll(directory: Path, done: int) -> subprocess.CompletedProcess[str]:
    """Run that play for the step after so many, on a host whose broker does not answer."""
    play: dict[str, Any] = yaml.safe_load((ROOT / "playbooks" / "secure.yml").read_text())[2]
    assert play["name"].startswith("See whom the step would cut off")
    (directory / "play.yml").write_text(yaml.safe_dump([play | {"connection": "local", "become": False}]))
    (directory / "hosts.ini").write_text("[pylog_broker]\nlocalhost\n[live]\nlocalhost\n")
    turn = turn_of(next_turn(Position(done=done), STEPS, to_open=False), Position(done=done))
    given = {
        "__preflight_turns": {"live": turn}, "__preflight_standings": {"live": turn["words"]},
        "pylog_broker_instances": [{"id": 4_000_000}], "secure_quiet_s": 60,
        "secure_mark": str(directory / "securing"),
    }  # fmt: skip
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(directory / "hosts.ini")]
    command += [str(directory / "play.yml"), "-e", json.dumps(given)]
    plain = os.environ | {"ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=plain)


def number(name: str) -> int:
    return [step.name for step in STEPS].index(name)


def test_a_step_that_cuts_nobody_off_goes_on(tmp_path: Path) -> None:
    done = before_the_roll(tmp_path, number("peers-accept"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 8 of 16: peers-accept" in done.stdout
    assert (tmp_path / "securing").read_text() == "peers-accept secured\n"


def test_a_step_stops_where_a_broker_does_not_say_who_uses_it(tmp_path: Path) -> None:
    done = before_the_roll(tmp_path, number("listener-closed"))
    assert done.returncode == 2, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "listener-closed: brokers lose the open listener would cut off:" in said
    assert "broker 4000000 on localhost did not say who uses it" in said
    assert "nothing was changed" in said
    assert not (tmp_path / "securing").exists()


@pytest.mark.parametrize(("stages", "is_left"), [({"profile": "programs=secured"}, False), ({}, True)])
def test_purge_removes_the_profile_that_the_bundle_wrote_whatever_the_inventory_says(
    tmp_path: Path, stages: dict[str, str], is_left: bool
) -> None:
    tasks = yaml.safe_load((ROOT / "roles" / "broker" / "tasks" / "purge.yml").read_text())
    [task] = [one for one in tasks if one["name"].startswith("Remove the profile")]
    (profile := tmp_path / "config.yml").write_text("bootstrap: localhost:9092\n")
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    given = {"__broker_profile": str(profile), "purge_read": {"answer": {"stages": stages}}}
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,"]
    subprocess.run([*command, str(tmp_path / "play.yml"), "-e", json.dumps(given)], cwd=ROOT, check=True)
    assert profile.exists() is is_left

"""The plays as they lie in the repository: what each must say of the hosts that it is for."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from pylog.ops.preflight import GROUPS

ROOT = Path(__file__).resolve().parents[2]
PLAYS: list[tuple[str, dict[str, Any]]] = [
    (path.stem, play)
    for path in sorted(ROOT.glob("playbooks/*.yml"))
    for play in yaml.safe_load(path.read_text())
    if "hosts" in play
]
"""Verb and play."""
INDEPENDENT = {
    ("backup_metadata", "Back up the metadata"): "the backup of one datacenter needs no host of another",
    ("check_inventory", "Judge the inventory"): "it is for one host",
    ("plan", "Show what a deployment would do"): "it is for one host",
    ("purge", "Remove the parts, the last that came first"): "no host needs what another one loses",
    ("secure", "Check what is asked for"): "it is for one host",
    ("secure", "Say what comes next"): "it is for one host",
    ("rolling_upgrade", "Say what is left to the operator"): "it changes nothing, and nothing comes after it",
}
"""Plays in which a host may fail and the others go on, with the reason."""
SERVING = {"audit", "connect", "console", "load_balancer", "mirror", "probe", "registry", "stream"}
"""Roles with programs that others need: the next host waits until the one before is well."""


def roles_of(play: dict[str, Any]) -> set[str]:
    """Return the roles that *play* runs from their beginning."""
    listed = {role["role"] for role in play.get("roles", [])}
    tasks = [
        task.get(f"ansible.builtin.{how}_role", {}) for task in play.get("tasks", []) for how in ("import", "include")
    ]
    return listed | {task["name"] for task in tasks if task and "tasks_from" not in task}


def test_f28_a_host_that_fails_ends_the_play_for_all() -> None:
    """Or it leaves the run without a word, and the next plays roll the others to another release than it has."""
    assert {(verb, play["name"]) for verb, play in PLAYS if not play.get("any_errors_fatal")} == INDEPENDENT.keys()


def test_f7_programs_restart_on_one_host_at_a_time() -> None:
    serving = [(verb, play) for verb, play in PLAYS if roles_of(play) & SERVING]
    assert {role for _, play in serving for role in roles_of(play)} >= SERVING
    assert [(verb, play["name"]) for verb, play in serving if play.get("serial") != 1] == []


def test_f4_no_play_is_for_a_host_that_is_away(tmp_path: Path) -> None:
    hosts = {f"h{number}": {"ansible_connection": "local"} for number in (1, 2, 3)}
    groups = {group: {"hosts": hosts} for group in GROUPS}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": groups}}))
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    verbs = sorted({f"playbooks/{verb}.yml" for verb, play in PLAYS if play["hosts"] != "localhost"})
    done = subprocess.run(
        [program, "-i", str(tmp_path / "hosts.yml"), "--list-hosts", "-e", "away=h2,h3", *verbs],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    plays = [play for play in done.stdout.split("  play #")[1:] if "pattern: ['localhost']" not in play]
    assert len(plays) >= sum(play["hosts"] != "localhost" for _, play in PLAYS)
    assert [play for play in plays if re.findall(r"^      (\S+)$", play, re.MULTILINE) != ["h1"]] == []

"""What is late follows from the inventory's schedules, as Ansible itself reads the role's variables."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


def thresholds(directory: Path, brokers: dict[str, dict[str, Any]], spark: dict[str, dict[str, Any]], own: str) -> Any:
    """Return the limits that role `monitoring` makes of an inventory; *own* are those that it names itself."""
    groups = {"pylog_broker": {"hosts": brokers}} | ({"pylog_spark": {"hosts": spark}} if spark else {})
    (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": groups}}))
    show = {"ansible.builtin.debug": {"var": "__monitoring_thresholds"}, "run_once": True}
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "vars": {"monitoring_thresholds": json.loads(own)},
        "vars_files": [str(ROOT / "roles/monitoring/vars/main.yml")],
        "tasks": [show],
    }
    (directory / "play.yml").write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "play.yml"],
        cwd=directory, capture_output=True, text=True, check=False,
        env=os.environ | {"ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    [play_found] = json.loads(done.stdout[done.stdout.index("{") :])["plays"]
    [task] = play_found["tasks"]
    return next(iter(task["hosts"].values()))["__monitoring_thresholds"]


@pytest.mark.parametrize(
    ("brokers", "spark", "own", "wanted"),
    [
        ({"a": {}, "b": {}}, {}, "{}", (3900, 90_000, 900)),
        (
            {"a": {"retention_schedule": "*/5 * * * *", "backup_schedule": "0 */6 * * *"}, "b": {}},
            {"c": {"ingest_interval_s": 300}},
            "{}",
            (3900, 90_000, 1140),
        ),
        (
            {"a": {"retention_schedule": "*/5 * * * *", "backup_schedule": "0 4 * * sun"}},
            {"c": {}},
            '{"load_late_s": 5}',
            (600, 7 * 86_400 + 3600, 5),
        ),
    ],
)
def test_late_is_what_the_slowest_schedule_does_not_explain(
    tmp_path: Path, brokers: Any, spark: Any, own: str, wanted: tuple[int, ...]
) -> None:
    found = thresholds(tmp_path, brokers, spark, own)
    assert tuple(int(found[name]) for name in ("retention_late_s", "backup_late_s", "load_late_s")) == wanted
    assert int(found["group_lag_s"]) == 600

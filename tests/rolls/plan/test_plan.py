"""What `plan` says beforehand is what `site` then does: no miss, no false alarm, over random changes."""

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pylog.ops.plan import CHANGES, NOTHING
from tests.rolls import cluster

# How many variables change in each round, 30 over all: one alone, whose absence would show, up to every one of them.
ROUNDS = (1, 2, 1, 5, 9, 7, 5) if os.environ.get("FULL") else (3, 3)
SEED = 20_260_807
# What each variable may become; the sum of all rounds so far is in force, as an inventory's would be.
DICE: Mapping[str, Callable[[random.Random], Any]] = {
    "broker_config": lambda dice: {"log.retention.hours": dice.randint(1, 500)},
    "broker_open_files": lambda dice: dice.randint(20_000, 90_000),
    "broker_session_timeout_ms": lambda dice: dice.choice([5_000, 6_000, 7_000]),
    "broker_stop_timeout_s": lambda dice: dice.randint(100, 400),
    "zookeeper_max_connections": lambda dice: dice.randint(100, 300),
    "zookeeper_autopurge_hours": lambda dice: dice.randint(1, 48),
    "retention_schedule": lambda dice: f"{dice.randint(0, 59)} * * * *",
    "tuning_open_files": lambda dice: dice.randint(50_000, 150_000),
    # Read by the deployment alone.
    "broker_ready_timeout_s": lambda dice: dice.randint(100, 200),
}
RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", re.MULTILINE)


def plan(extra: Mapping[str, Any], path: Path) -> tuple[int, dict[str, Any], float]:
    """Return exit code, plan and seconds."""
    began_s = time.monotonic()
    command = [sys.executable, "-m", "pylog.ops.plan", cluster.INVENTORY, "--extra-vars", json.dumps(extra)]
    done = subprocess.run(
        [*command, "--json", str(path)], cwd=cluster.ROOT, env=cluster.environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode in (NOTHING, CHANGES), done.stdout + done.stderr
    assert cluster.leaked(done.stdout + done.stderr + path.read_text()) == []
    found: dict[str, Any] = json.loads(path.read_text())
    return done.returncode, found, time.monotonic() - began_s


def processes() -> dict[tuple[str, str], str]:
    """Return (host, unit) -> what systemd calls its present run."""
    found = {}
    for target in cluster.targets():
        units = ["pylog-zookeeper.service", f"pylog-broker@{target.broker_ids[0]}.service"]
        for unit in units:
            found[target.name, unit] = cluster.on(target.name, f"systemctl show --property InvocationID --value {unit}")
    return found


def test_a_plan_says_what_a_run_then_does(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    extra: dict[str, Any] = {}
    rounds: list[dict[str, Any]] = []
    for number, changes in enumerate(ROUNDS):
        names = dice.sample(sorted(DICE), changes)
        extra |= {name: DICE[name](dice) for name in names}
        code, planned, seconds = plan(extra, tmp_path / "plan.json")
        before = processes()
        done = cluster.playbook("site", extra)
        assert done.returncode == 0
        after = processes()
        restarted = {one for one in before if before[one] != after[one]}
        assert restarted == {(step["host"], step["unit"]) for step in planned["restarts"]}, (number, extra)
        changed = {host for host, count in RECAP.findall(done.stdout) if int(count) and host != "localhost"}
        assert bool(changed) == (code == CHANGES), (number, extra)
        assert planned["hosts"].keys() | {host for host, _ in restarted} == changed, (number, extra)
        rounds.append({
            "changes": names, "hosts": sorted(changed), "restarts": len(restarted), "plan_s": round(seconds, 1),
            "load": round(os.getloadavg()[0], 1),
        })  # fmt: skip
        cluster.keep_result("plan", {"rounds": rounds})
    code, planned, seconds = plan(extra, tmp_path / "plan.json")
    assert (code, planned["hosts"], planned["restarts"]) == (NOTHING, {}, [])
    cluster.keep_result("plan", {"nothing_to_do_s": round(seconds, 1), "load": round(os.getloadavg()[0], 1)})
    assert sum(len(one["changes"]) for one in rounds) == sum(ROUNDS)


def test_apply_does_what_was_approved_and_nothing_when_it_is_stale(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    approved = {"broker_open_files": 31_313}
    made = cluster.playbook("plan", {"plan_vars": approved, "plan_file": str(path)})
    assert made.returncode == 0
    planned = json.loads(path.read_text())
    before = processes()
    other = {"broker_open_files": 32_323}
    stale = cluster.playbook("apply", other | {"plan_vars": other, "plan_file": str(path)})
    assert stale.returncode != 0
    assert "is stale" in stale.stdout
    assert processes() == before, "stopped before any host was touched"
    done = cluster.playbook("apply", approved | {"plan_vars": approved, "plan_file": str(path)})
    assert done.returncode == 0
    after = processes()
    assert {one for one in before if before[one] != after[one]} == {
        (step["host"], step["unit"]) for step in planned["restarts"]
    }
    # Whatever the rounds before left otherwise goes back with it, so ZooKeeper may restart too.
    assert {f"pylog-broker@{target.broker_ids[0]}.service" for target in cluster.targets()} <= {
        step["unit"] for step in planned["restarts"]
    }


def test_a_plan_changes_nothing(tmp_path: Path) -> None:
    listing = "find /etc /opt/pylog /usr/local -newermt @{since} -not -type d"
    since = {target.name: cluster.on(target.name, "date +%s") for target in cluster.targets()}
    time.sleep(1)
    before = processes()
    plan({"broker_open_files": 12_345, "zookeeper_max_connections": 77}, tmp_path / "plan.json")
    assert processes() == before
    for host, start in since.items():
        assert cluster.on(host, listing.format(since=start)) == ""

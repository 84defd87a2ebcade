"""The control process dies at random moments: a rerun goes on, and no broker restarts twice."""

import random
import subprocess
import time

from tests.rolls import cluster

KILLS = 5
SEED = 20_260_807


def run_and_kill(after_s: float) -> bool:
    """Start the roll and kill it with all its children; say whether it had ended by itself."""
    with (cluster.RESULTS / "resume.log").open("a") as log:
        run = subprocess.Popen(
            cluster.command("rolling_restart"), cwd=cluster.ROOT, env=cluster.environment(), start_new_session=True,
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            assert run.wait(after_s) == 0, log.name
        except subprocess.TimeoutExpired:
            cluster.kill_tree(run)
            return False
    return True


def times_started(since_s: int) -> dict[str, int]:
    """Return host -> how often its broker became ready since then."""
    return {
        host: int(cluster.on(
            host, f"journalctl --no-pager --since=@{since_s} --unit 'pylog-broker@*' | grep -c ' ready port=' || true"))
        for host in cluster.readings()
    }  # fmt: skip


def test_a_killed_roll_goes_on_and_restarts_nobody_twice() -> None:
    cluster.RESULTS.mkdir(parents=True, exist_ok=True)
    chance = random.Random(SEED)
    since_s = int(cluster.on(next(iter(cluster.readings())), "date +%s"))
    before, killed_after_s = cluster.starts(), []
    with cluster.loaded("resume") as load:
        began_s = time.monotonic()
        for _ in range(KILLS):
            after_s = chance.uniform(8, 30)
            if run_and_kill(after_s):
                break
            killed_after_s.append(round(after_s))
        else:
            assert cluster.playbook("rolling_restart").returncode == 0
        took_s = time.monotonic() - began_s
    load.check()
    assert killed_after_s, "no run was killed, so none had to go on"
    assert times_started(since_s) == dict.fromkeys(before, 1)
    assert cluster.health()["problems"] == []
    assert all(
        (reading["marker"]["state"], reading["asked_ms"]) == ("done", 0) for reading in cluster.readings().values()
    )
    cluster.keep_result("resume", {
        "seconds": round(took_s), "killed_after_s": ", ".join(map(str, killed_after_s)), "clients": load.reports,
    })  # fmt: skip


def test_a_roll_asked_for_anew_restarts_all_of_them() -> None:
    before = cluster.starts()
    assert cluster.playbook("rolling_restart").returncode == 0
    after = cluster.starts()
    assert all(after[host] > before[host] for host in before)

"""A good release, and a fault that is not its own: nothing is taken back, nothing is left that no gate has judged."""

import re
from pathlib import Path

from tests.rolls import cluster

STEP = r"TASK \[Give its leaderships back and wait until all is well: pylog-broker@\d+.service on (\w+)\]"
WAIT = r"TASK \[Wait until it is in sync: pylog-broker@\d+.service on (\w+)\]"
# With the sessions that are open, which a stopped service leaves alone.
CUT = """
systemctl stop ssh.socket ssh.service
for comm in /proc/[0-9]*/comm; do [ "$(cat "$comm")" != sshd ] || kill -9 "$(basename "$(dirname "$comm")")"; done
"""


def good(directory: Path) -> dict[str, object]:
    release = cluster.altered(directory, "pylog/__main__.py", f"# good, for {directory.name}\n")
    return {"pylog_wheelhouse": str(release), "broker_ready_timeout_s": 25}


def roll_to_the_end(extra: dict[str, object], before: dict[str, str]) -> None:
    """Run the roll again, now that nothing is in its way."""
    assert cluster.playbook("rolling_upgrade", extra | {"broker_ready_timeout_s": 120}).returncode == 0
    after = set(cluster.releases().values())
    assert len(after) == 1
    assert after.isdisjoint(before.values())
    assert cluster.health()["problems"] == []


def test_another_broker_that_dies_does_not_take_back_the_one_whose_step_it_is(tmp_path: Path) -> None:
    before, extra = cluster.releases(), good(tmp_path)
    stepping: list[str] = []
    dead: list[str] = []

    def stop_another(line: str) -> None:
        stepping.append(re.search(STEP, line)[1])  # type: ignore[index]
        dead.append(next(host for host in before if host not in stepping))
        cluster.inside(dead[0], "systemctl kill --signal=KILL 'pylog-broker@*'; systemctl stop 'pylog-broker@*'")

    with cluster.loaded("another") as load:
        code, text = cluster.during("rolling_upgrade", extra, STEP, stop_another)
        started_ms = cluster.starts()[stepping[0]]
        releases = cluster.releases()
        cluster.inside(dead[0], "systemctl start pylog-broker@$(ls /etc/pylog | grep -o '[0-9]*')")
        cluster.wait_for(lambda: not cluster.health(0)["problems"])
        assert cluster.starts()[stepping[0]] == started_ms, "nobody touches it meanwhile"
        roll_to_the_end(extra, before)
    assert code != 0
    assert "it runs, and others are not well" in " ".join(text.split())
    assert "put back: nothing; it holds" in " ".join(text.split())
    assert releases[stepping[0]] != before[stepping[0]], "it keeps the release that it runs well with"
    assert cluster.starts()[stepping[0]] == started_ms, "the second run gates it and restarts it no more"
    load.check()


def test_ssh_that_is_cut_in_mid_step_leaves_the_others_with_what_they_run(tmp_path: Path) -> None:
    before, extra = cluster.releases(), good(tmp_path)
    hashes = {host: reading["config_hash"] for host, reading in cluster.readings().items()}
    starts = cluster.starts()
    stepping: list[str] = []

    def cut(line: str) -> None:
        stepping.append(re.search(WAIT, line)[1])  # type: ignore[index]
        cluster.inside(stepping[0], CUT)

    with cluster.loaded("cut") as load:
        changed = extra | {"broker_session_timeout_ms": 7000}
        code, text = cluster.during("rolling_upgrade", changed, WAIT, cut)
        cluster.inside(stepping[0], "systemctl start ssh.service")
        cluster.wait_for(lambda: cluster.readings()[stepping[0]]["is_ready"])
        others = {host: reading for host, reading in cluster.readings().items() if host not in stepping}
        assert {host: reading["current"] for host, reading in others.items()} == {host: before[host] for host in others}
        assert {host: reading["config_hash"] for host, reading in others.items()} == {
            host: hashes[host] for host in others
        }
        assert {host: cluster.starts()[host] for host in others} == {host: starts[host] for host in others}
        roll_to_the_end(changed, before)
    assert code != 0
    assert "its host could not be reached any more" in " ".join(text.split())
    load.check()

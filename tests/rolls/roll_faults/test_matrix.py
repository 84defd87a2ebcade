"""Every fault at every phase of a step (F2, F3): no send fails, nothing is lost, and the next run finishes the roll.

A diagonal of five cells without FULL=1, all of them with it. They take an hour and more, so they may run in parts:
`PYTEST_ADDOPTS='-k "disk and gate"' make molecule SCENARIO=roll_faults`; the page of results has the last of each cell.
"""

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from tests.rolls import cluster
from tests.rolls.bad_release.test_other_faults import CUT

FAULT_S = 45
"""When a fault is ended, unless the run ends before; clients give a send up after 120 s."""

UNIT = r": pylog-broker@\d+.service on \w+\]"
PHASES = {
    "gate before": r"TASK \[Wait until the cluster is well, before the first is touched\]",
    "stop and start": rf"TASK \[Stop, hand over what it leads and start anew{UNIT}",
    "coming in sync": rf"TASK \[Wait until it is in sync{UNIT}",
    "gate after": rf"TASK \[Give its leaderships back and wait until all is well{UNIT}",
    "end of the step": rf"TASK \[Note the end of the step{UNIT}",
}
# In one piece but for the last of it, since a file system refuses the very last blocks: zeros would take a minute.
FILL = """
cd "$(sed -n 's/^data_dir: *"\\(.*\\)"$/\\1/p' /etc/pylog/broker-*.yml | head -1)" && [ "$PWD" != / ] || exit 1
fallocate --length "$(($(df --output=avail --block-size=1M . | tail -1) - 64))M" ../filled || true
dd if=/dev/zero of=../filled bs=64k oflag=append conv=notrunc 2>/dev/null || true
"""
EMPTY = """
cd "$(sed -n 's/^data_dir: *"\\(.*\\)"$/\\1/p' /etc/pylog/broker-*.yml | head -1)" && rm -f ../filled
"""
BROKERS = "$(ls /etc/pylog | sed -n 's/^broker-\\([0-9]*\\).yml$/pylog-broker@\\1/p')"
COMMIT = subprocess.run(
    ["git", "rev-parse", "--short=10", "HEAD"], cwd=cluster.ROOT, capture_output=True, text=True, check=True
).stdout.strip()
Act = Callable[[str], None]


def names() -> list[str]:
    return [target.name for target in cluster.targets()]


def another(stepping: str) -> str:
    return next(name for name in names() if name != stepping)


def kill_another(stepping: str) -> None:
    cluster.inside(another(stepping), f"systemctl kill --signal=KILL {BROKERS}; systemctl stop {BROKERS}")


def start_another(stepping: str) -> None:
    cluster.inside(another(stepping), f"systemctl start --no-block {BROKERS}")


def cut_ssh(stepping: str) -> None:
    cluster.inside(stepping, CUT)


def mend_ssh(stepping: str) -> None:
    cluster.inside(stepping, "systemctl start ssh.service")


def fill_disk(stepping: str) -> None:
    cluster.inside(stepping, FILL)


def empty_disk(stepping: str) -> None:
    cluster.inside(stepping, EMPTY)


def stop_zookeeper(_: str) -> None:
    for name in names():
        cluster.inside(name, "systemctl kill --signal=KILL pylog-zookeeper; systemctl stop pylog-zookeeper")


def start_zookeeper(_: str) -> None:
    for name in names():
        cluster.inside(name, "systemctl start pylog-zookeeper")


def nothing(_: str) -> None:
    pass


# Name -> what happens, and what ends it; the control machine's death is the runner's own.
FAULTS: dict[str, tuple[Act, Act]] = {
    "another broker killed": (kill_another, start_another),
    "SSH cut": (cut_ssh, mend_ssh),
    "control machine killed": (nothing, nothing),
    "disk full": (fill_disk, empty_disk),
    "ZooKeeper down": (stop_zookeeper, start_zookeeper),
}
# How a run that stopped says so, by a few of its words.
ENDS = {
    "held": "put back: nothing; it holds",
    "went back": "the cluster is well again",
    "went back, others unwell": "the cluster is NOT well",
}


def cells() -> Iterator[Any]:
    for number, ((row, fault), (column, phase)) in enumerate(product(enumerate(FAULTS), enumerate(PHASES))):
        marks = [] if row == column else [pytest.mark.full]
        yield pytest.param(number, fault, phase, marks=marks, id=f"{fault}, {phase}")


def keep(result: dict[str, Any]) -> None:
    """Keep a cell's numbers in the place of those that an earlier part of the matrix left; see scenario.sh."""
    name = (result["fault"], result["phase"])
    others = [cell for cell in cluster.kept("roll_faults").get("cells", []) if (cell["fault"], cell["phase"]) != name]
    order = list(product(FAULTS, PHASES))
    cells = sorted([*others, result], key=lambda cell: order.index((cell["fault"], cell["phase"])))
    cluster.keep_result("roll_faults", {"cells": cells})


@pytest.fixture(autouse=True)
def healed() -> Iterator[None]:
    """Begin and end each cell with a cluster that is well, whatever the one before left."""
    heal()
    yield
    heal()


def heal() -> None:
    for name in names():
        for end in (mend_ssh, empty_disk, start_zookeeper):
            end(name)
        cluster.inside(name, f"systemctl start --no-block {BROKERS}")
    assert cluster.health()["problems"] == []


def end_of(code: int | None, text: str) -> str:
    """Say how the run ended that the fault hit."""
    if code is None:
        return "killed"
    if code == 0:
        return "finished"
    flat = " ".join(text.split())
    untouched = "stopped later" if "TASK [Stop, hand over" in flat else "stopped, nothing touched"
    return next((end for end, words in ENDS.items() if words in flat), untouched)


@pytest.mark.parametrize(("number", "fault", "phase"), list(cells()))
def test_f2_f3_a_fault_at_a_phase_costs_nobody_anything(number: int, fault: str, phase: str) -> None:
    begin, end = FAULTS[fault]
    stepping = names()[number % len(names())]
    extra = {"broker_open_files": 21_000 + time.time_ns() // 10**9 % 60_000, "broker_ready_timeout_s": 30}
    began_s: list[float] = []
    ended_s: list[float] = []
    ended = threading.Event()

    def finish() -> None:
        if not ended.is_set():
            ended.set()
            end(stepping)
            ended_s.append(time.monotonic())

    def act(_: str) -> None:
        began_s.append(time.monotonic())
        begin(stepping)
        timer.start()

    timer = threading.Timer(FAULT_S, finish)
    others = {host: started for host, started in cluster.starts().items() if host != stepping}
    with cluster.loaded("faults") as load:
        start_s = time.monotonic()
        if fault == "control machine killed":
            cluster.interrupt("rolling_upgrade", extra, PHASES[phase], limit=stepping)
            code, text = None, ""
        else:
            code, text = cluster.during("rolling_upgrade", extra, PHASES[phase], act, limit=stepping)
            timer.cancel()
            finish()
        first_s = round(time.monotonic() - start_s)
        cluster.wait_for(lambda: cluster.health(0)["problems"] == [])
        again = cluster.playbook("rolling_upgrade", extra | {"broker_ready_timeout_s": 120}, "--limit", stepping)
        seconds = round(time.monotonic() - start_s)
    result = {
        "fault": fault, "phase": phase, "commit": COMMIT, "fault_s": round(ended_s[0] - began_s[0]) if ended_s else 0,
        "first_run": end_of(code, text), "first_run_s": first_s, "both_runs_s": seconds, "clients": load.reports,
    }  # fmt: skip
    keep(result)
    assert again.returncode == 0
    reading = cluster.readings()[stepping]
    assert reading["marker"]["state"] == "done"
    assert re.search(rf"LimitNOFILE={extra['broker_open_files']}$", cluster.inside(
        stepping, "systemctl cat pylog-broker@.service"), re.MULTILINE), "it runs what was wanted"  # fmt: skip
    now = {host: started for host, started in cluster.starts().items() if host != stepping}
    if fault == "another broker killed":
        now.pop(another(stepping))
        others.pop(another(stepping))
    assert now == others, "nobody else restarts"
    assert cluster.health()["problems"] == []
    load.check()

"""The simulated cluster: production code, faults by lot, and checks after every step; see docs/design/simulation.md."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim import mutants
from tests.sim.faults import seeds_of_stage
from tests.sim.mutants import MUTANTS
from tests.sim.stories import STORIES

ROOT = Path(__file__).parents[2]
SEEDS = 20


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.sim", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_twenty_seeds_break_no_invariant() -> None:
    done = simulate("--seeds", str(SEEDS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seeds={SEEDS} failed=none" in done.stdout
    assert "elections=0" not in done.stdout


def test_the_same_seed_is_the_same_run() -> None:
    first, second = (simulate("--first", "7", "--seeds", "2", "--verbose").stdout.splitlines()[:2] for _ in range(2))
    assert len(first) == 2
    assert first == second
    assert first[0].split()[1] != first[1].split()[1], "two seeds, one run"


BUG = """
import sys
from pylog.broker.data.replication import Replication
from tests.sim import __main__ as sim

find = Replication._wanted_changes

def fail(self):
    assert not find(self), "a bug in a background task"
    return []

Replication._wanted_changes = fail
sys.exit(sim.main())
"""


def test_a_bug_in_a_background_task_fails_the_run() -> None:
    command = [sys.executable, "-c", BUG, "--seeds", "2"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "a bug in a background task" in found.stdout


ENDLESS = """
import sys, threading
from tests.sim import __main__ as sim, seeds
from tests.sim.checks import Checks

seeds.CPU_S, seeds.KILL_S, seeds.POLL_S = 1, 1, 1
seeds.SILENT_S = {silent_s}
lock = threading.Lock()
lock.acquire()

def look(self, process):
    while {loop}:
        pass

Checks.look = look
sys.exit(sim.main())
"""


@pytest.mark.parametrize(("loop", "silent_s", "told"), [
    ("True", 300, "no end after 1 s of processor time"),
    ("lock.acquire()", 5, "the run's process waits"),
    ("sum(range(10**13))", 300, "was killed after 1 s of processor time"),
])  # fmt: skip
def test_a_run_that_does_not_end_fails_its_seed_and_the_next_one_runs(loop: str, silent_s: int, told: str) -> None:
    script = ENDLESS.format(loop=loop, silent_s=silent_s)
    command = [sys.executable, "-c", script, "--seeds", "2", "--go-on", "--events", "0"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert found.returncode == 1, found.stdout + found.stderr
    assert [line for line in found.stdout.splitlines() if line.startswith("FAILED")] == [
        line for line in found.stdout.splitlines() if told in line
    ]
    assert "seeds=2 failed=1,2" in found.stdout


def test_every_fault_still_has_its_place_in_the_code() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 15
    for mutant in MUTANTS:
        assert mutant.applied()
        assert mutant.story in STORIES if mutant.story else 1 <= mutant.seed <= 1000
        assert not mutant.stage or seeds_of_stage(mutant.stage, range(1, 1001))


def test_the_seeds_of_faults_are_brought_up_to_date() -> None:
    text = Path(mutants.__file__).read_text()
    one, other, *_ = (mutant for mutant in MUTANTS if mutant.seed)
    noted = mutants.note_seeds(text, {other.name: 987})
    changed = [pair for pair in zip(text.splitlines(), noted.splitlines(), strict=True) if pair[0] != pair[1]]
    assert changed == [(f"        seed={other.seed},", "        seed=987,")], one.name


@pytest.mark.parametrize(("stage", "fault"), [
    ("die-before-the-news", "truncate-by-high-watermark"),
    ("join-in-the-gap", "join-the-isr-below-the-start-of-the-epoch"),
    ("cut-power-at-an-acknowledgement", "acknowledge-before-the-flush"),
    ("sleep-over-an-image", "apply-a-stale-image"),
    ("kill-everybody-else-in-the-dark", "hide-an-unclean-stop"),
    ("lose-two-coordinators", "load-groups-to-the-high-watermark"),
])  # fmt: skip
def test_a_stage_brings_about_what_it_was_made_for(stage: str, fault: str) -> None:
    found = simulate("--mutant", fault, "--stage", stage, "--seeds", "1000", "--events", "0")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "FAILED seed=" in found.stdout
    print(found.stdout)


@pytest.mark.parametrize("name", ["acknowledge-before-the-isr-has-it", "join-the-isr-without-catching-up"])
def test_a_fault_in_the_code_is_found_and_replays(name: str) -> None:
    found = simulate("--mutant", name, "--seeds", "50")
    assert found.returncode == 1, found.stdout + found.stderr
    seed = found.stdout.partition("FAILED seed=")[2].partition(":")[0]
    again = simulate("--mutant", name, "--seed", seed, "--events", "0")
    wanted = [line for line in found.stdout.splitlines() if line.startswith("FAILED")]
    assert [line for line in again.stdout.splitlines() if line.startswith("FAILED")] == wanted

"""The simulated cluster: production code, faults by lot, and checks after every step; see docs/design/simulation.md."""

import subprocess
import sys

import pytest

from pylog.sim.mutants import MUTANTS

SEEDS = 20


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pylog.sim", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


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


def test_every_fault_still_has_its_place_in_the_code() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 15
    for mutant in MUTANTS:
        assert mutant.applied()


@pytest.mark.parametrize("name", ["acknowledge-before-the-isr-has-it", "join-the-isr-without-catching-up"])
def test_a_fault_in_the_code_is_found_and_replays(name: str) -> None:
    found = simulate("--mutant", name, "--seeds", "50")
    assert found.returncode == 1, found.stdout + found.stderr
    seed = found.stdout.partition("FAILED seed=")[2].partition(":")[0]
    again = simulate("--mutant", name, "--seed", seed, "--events", "0")
    wanted = [line for line in found.stdout.splitlines() if line.startswith("FAILED")]
    assert [line for line in again.stdout.splitlines() if line.startswith("FAILED")] == wanted

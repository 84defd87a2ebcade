"""Two minutes of `make chaos`: real processes, every kind of fault, and a checker that finds nothing wrong."""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SEED = "1"
LIMIT_S = 590


def test_two_minutes_break_nothing() -> None:
    command = [sys.executable, "-m", "tests.chaos", "--minutes", "2", "--seed", SEED]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 0, run.stdout + run.stderr

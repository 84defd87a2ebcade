"""`make chaos` from outside: two minutes in which nothing is violated, and what is left of a run that is ended."""

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.ledger import MOUNT, NAMESPACE, Ledger, processes

CHECKOUT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "tests.chaos"]
SEED = "1"
LIMIT_S = 590
BROKERS, SERVERS = 3, 3


def test_two_minutes_break_nothing() -> None:
    command = [*COMMAND, "--minutes", "2", "--seed", SEED]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    shutil.rmtree(directory_of(run.stdout))


def directory_of(said: str) -> Path:
    found = re.search(r"directory=(\S+);", said)
    assert found, said
    return Path(found[1])


@contextmanager
def started() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A run whose brokers and ZooKeeper servers have been started, and its directory."""
    command = [*COMMAND, "--minutes", "2", "--seed", SEED, "--brokers", str(BROKERS)]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        try:
            assert run.stdout is not None
            directory = directory_of(run.stdout.readline())
            ledger = Ledger(directory)
            deadline_s = time.monotonic() + LIMIT_S / 2
            while len(processes(ledger.names(NAMESPACE)) - {run.pid}) < BROKERS + SERVERS:
                assert run.poll() is None
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
            yield run, directory
        finally:
            run.kill()


def is_removed(directory: Path) -> bool:
    ledger = Ledger(directory)
    spaces, mounts = ledger.names(NAMESPACE), ledger.names(MOUNT)
    assert len(spaces) == BROKERS + SERVERS + 1
    assert len(mounts) == BROKERS
    return not any(Path("/run/netns", space).exists() for space in spaces) and not any(
        map(Path.is_mount, map(Path, mounts))
    )


def test_a_run_that_is_interrupted_removes_what_it_made() -> None:
    with started() as (run, directory):
        run.send_signal(signal.SIGTERM)  # handled as SIGINT is
        assert run.wait(LIMIT_S) != 0
        assert is_removed(directory)
    shutil.rmtree(directory)


def test_what_a_killed_run_made_is_removed_on_request() -> None:
    with started() as (run, directory):
        clean = [*COMMAND, "--clean", str(directory)]
        refused = subprocess.run(clean, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        assert refused.returncode == 2
        assert f"still going on: process {run.pid}" in refused.stderr
        run.kill()
        run.wait()
        assert not is_removed(directory)
        subprocess.run(clean, cwd=CHECKOUT, check=True)
        assert is_removed(directory)
    shutil.rmtree(directory)

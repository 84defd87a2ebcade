"""Verbs while a host is away, on stand-ins (`bench.deploy`), one of which does not answer."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench.deploy.standins import BIN, ROOT, environment, prepare


@pytest.fixture(scope="module")
def inventory() -> Iterator[Path]:
    """Five hosts, the last of which cannot be reached."""
    with TemporaryDirectory() as made:
        path = prepare(Path(made), 5)
        (path.parent / "host005.json").unlink()
        yield path


def run(inventory: Path, verb: str, *extra: str) -> tuple[int, str]:
    command = [str(BIN / "ansible-playbook"), "-i", str(inventory), f"playbooks/{verb}.yml"]
    done = subprocess.run(
        command + [f"--extra-vars={one}" for one in extra],
        cwd=ROOT, env=environment(inventory.parent), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_f4_a_host_that_cannot_be_reached_stops_a_verb_that_does_not_know_it(inventory: Path) -> None:
    code, said = run(inventory, "rolling_restart")
    assert code != 0
    assert "host005  login" in said
    assert "Ask each server for a restart" not in said


def test_f4_a_roll_goes_round_a_host_that_is_away(inventory: Path) -> None:
    code, said = run(inventory, "rolling_restart", "away=host005")
    assert code == 0, said
    assert "TASK [Read what runs, waiting for brokers that just started]" in said


def test_f4_a_host_that_is_away_is_taken_out_of_service_without_being_asked(inventory: Path) -> None:
    code, said = run(inventory, "decommission", "away=host005", "decommission_host=host005")
    assert code == 0, said
    assert "host005 was away, and may still start its brokers when it comes back" in " ".join(said.split())

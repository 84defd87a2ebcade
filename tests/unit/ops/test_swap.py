"""What a roll changes on a host: real files below a directory, and a systemctl that only notes what it is told."""

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from pylog.ops import swap

SYSTEMCTL = """#!/bin/sh
echo "$@" >> {log}
case "$1" in
  is-active) cat {state}/$2 2>/dev/null || echo inactive ;;
  stop) rm -f {state}/$2 ;;
  start) shift; [ "$1" = --no-block ] && shift; echo active > {state}/$1 ;;
esac
"""


class Machine:
    """A host with one broker, its files and releases."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "etc" / "broker-1.yml"
        self.lock = path / "opt" / "current" / "requirements.lock"
        self.log = path / "systemctl.log"
        self.state = path / "state"
        for directory in ("etc", "opt/releases", "opt/bases", "run", "state", "bin"):
            (path / directory).mkdir(parents=True)
        program = path / "bin" / "systemctl"
        program.write_text(SYSTEMCTL.format(log=self.log, state=self.state))
        program.chmod(0o755)
        for age, release in ((300, "1-old"), (200, "1-a"), (100, "1-b")):
            self.install(release, age)
        self.config.write_text("a: 1\n")
        self.point("1-a")
        self.start()

    def install(self, release: str, age_s: int = 0) -> None:
        root = self.path / "opt" / "releases" / release
        site = root / "lib" / "python3.11" / "site-packages"
        site.mkdir(parents=True)
        base = self.path / "opt" / "bases" / f"base-of-{release}"
        base.mkdir()
        (site / "base.pth").write_text(f"{base}/lib/python3.11/site-packages\n")
        (root / "requirements.lock").write_text(f"# {release}\n")
        then = time.time() - age_s
        os.utime(root / "requirements.lock", (then, then))

    def point(self, release: str) -> None:
        link = self.path / "opt" / "current"
        link.unlink(missing_ok=True)
        link.symlink_to(f"releases/{release}")

    def start(self) -> None:
        """Be systemd: run the broker and record what it starts with."""
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}" for path in (self.config, self.lock)]
        (self.path / "run" / "broker-1.started").write_text("\n".join(lines) + "\n")
        (self.state / "pylog-broker@1.service").write_text("active\n")

    def marker(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.path / "opt" / "rolls" / "broker-1.json").read_text())
        return found

    def releases(self) -> set[str]:
        return {path.name for path in (self.path / "opt" / "releases").iterdir()}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(tmp_path)
    monkeypatch.setattr(swap, "ROOT", tmp_path / "opt")
    monkeypatch.setattr(swap, "RUN", tmp_path / "run")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return found


ALL = {"brokers": [1]}
WANTED = {"broker": 1, "release": "1-b", "reasons": ["because"]}


def test_a_restart_moves_the_link_and_starts_without_waiting(machine: Machine) -> None:
    done = swap.restart(WANTED)
    assert done["swapped"] is True
    assert swap.current_release() == "1-b"
    assert machine.log.read_text().splitlines() == [
        "daemon-reload", "stop pylog-broker@1.service", "reset-failed pylog-broker@1.service",
        "start --no-block pylog-broker@1.service",
    ]  # fmt: skip
    assert machine.marker()["state"] == "restarting"


def test_a_release_that_is_not_whole_is_refused_before_anything_stops(machine: Machine) -> None:
    with pytest.raises(swap.SwapError, match="1-c is not installed"):
        swap.restart(WANTED | {"release": "1-c"})
    assert swap.current_release() == "1-a"
    assert not machine.log.exists()


def test_what_ran_before_comes_back(machine: Machine) -> None:
    assert swap.keep(ALL) == {"kept": [1]}
    machine.config.write_text("a: 2\n")
    swap.restart(WANTED)
    machine.start()
    done = swap.back(ALL | {"why": "gate"})
    assert done == {"restored": ["release 1-a", str(machine.config)], "restarted": [1], "release": "1-a"}
    assert machine.config.read_text() == "a: 1\n"
    assert (machine.marker()["state"], machine.marker()["why"]) == ("rolled back", "gate")


def test_a_broker_that_never_started_is_started_with_what_came_back(machine: Machine) -> None:
    swap.keep(ALL)
    swap.restart(WANTED)
    (machine.state / "pylog-broker@1.service").write_text("activating\n")
    assert swap.back(ALL | {"why": "gate"})["restarted"] == [1]


def test_a_broker_that_runs_what_it_ran_before_is_left_alone(machine: Machine) -> None:
    swap.keep(ALL)
    assert swap.back(ALL | {"why": "gate"}) == {"restored": [], "restarted": [], "release": "1-a"}


def test_files_go_back_under_a_broker_whose_turn_had_not_come(machine: Machine) -> None:
    swap.keep(ALL)
    machine.config.write_text("a: 2\n")
    assert swap.leave(ALL) == {"restored": [str(machine.config)]}
    assert machine.config.read_text() == "a: 1\n"
    assert machine.log.read_text().splitlines()[-1] == "daemon-reload"


def test_nothing_goes_back_under_a_broker_that_runs_something_newer(machine: Machine) -> None:
    swap.keep(ALL)
    machine.config.write_text("a: 2\n")
    machine.start()
    assert swap.leave(ALL) == {"restored": []}
    assert machine.config.read_text() == "a: 2\n"


def test_an_interrupted_run_does_not_overwrite_what_is_kept(machine: Machine) -> None:
    swap.keep(ALL)
    machine.config.write_text("a: 2\n")
    assert swap.keep(ALL) == {"kept": []}
    swap.back(ALL | {"why": "gate"})
    assert machine.config.read_text() == "a: 1\n"


def test_copies_are_for_root_alone(machine: Machine) -> None:
    swap.keep(ALL)
    assert (machine.path / "opt" / "rolls").stat().st_mode & 0o077 == 0


def test_a_finished_step_keeps_the_previous_release_and_removes_older_ones(machine: Machine) -> None:
    swap.keep(ALL)
    swap.restart(WANTED)
    machine.start()
    done = swap.finish({"broker": 1})
    assert done["pruned"] == ["1-old", "base-of-1-old"]
    assert machine.releases() == {"1-a", "1-b"}
    assert machine.marker()["state"] == "done"
    assert machine.marker()["reasons"] == ["because"]


def test_a_release_on_its_way_in_is_not_pruned(machine: Machine) -> None:
    swap.keep(ALL)
    machine.install("1-c")
    swap.restart(WANTED)
    assert swap.finish({"broker": 1})["pruned"] == ["1-old", "base-of-1-old"]


def test_a_restart_asked_for_twice_is_asked_for_once(machine: Machine) -> None:
    first = swap.ask({})
    assert swap.ask({}) == first
    swap.asked({})
    assert swap.ask({})["asked_ms"] >= first["asked_ms"]


def test_the_program_says_what_is_wrong_and_exits_with_1(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert swap.main(["restart", json.dumps(WANTED | {"release": "1-c"})]) == 1
    assert "1-c is not installed" in capsys.readouterr().err

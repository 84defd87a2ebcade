"""What a roll changes on a host: real files below a directory, and a systemctl that only notes what it is told."""

import hashlib
import json
import os
import shlex
import subprocess
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
        for directory in ("etc", "opt/releases", "opt/bases", "run/pylog", "state", "bin"):
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
        (self.path / "run" / "pylog" / "broker-1.started").write_text("\n".join(lines) + "\n")
        (self.state / "pylog-broker@1.service").write_text("active\n")

    def stage(self, text: str) -> dict[str, str]:
        """Be the role: write the broker's next configuration where `keep` says, and return what is wanted."""
        target = Path(swap.keep(ALL | {"paths": [str(self.config)]})["stage"] + str(self.config))
        target.write_text(text)
        return {str(self.config): hashlib.sha256(text.encode()).hexdigest()}

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
    monkeypatch.setattr(swap, "ETC", tmp_path / "etc")
    monkeypatch.setattr(swap, "UNITS", tmp_path / "units")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return found


ALL = {"names": ["broker-1"]}
WANTED = {"name": "broker-1", "release": "1-b", "reasons": ["because"]}


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


def test_new_files_come_with_the_restart_and_not_before(machine: Machine) -> None:
    files = machine.stage("a: 2\n")
    assert machine.config.read_text() == "a: 1\n", "a crash now must start what ran before"
    swap.restart(WANTED | {"files": files})
    assert machine.config.read_text() == "a: 2\n"


def test_a_broker_that_does_not_run_gets_its_files_at_once(machine: Machine) -> None:
    (machine.state / "pylog-broker@1.service").unlink()
    assert swap.keep(ALL | {"paths": [str(machine.config)]}) == {"kept": [], "stage": ""}


def test_a_file_that_nobody_prepared_is_refused_before_anything_stops(machine: Machine) -> None:
    files = machine.stage("a: 2\n")
    with pytest.raises(swap.SwapError, match=r"broker-1.yml differs from what is wanted"):
        swap.restart(WANTED | {"files": dict.fromkeys(files, "0" * 64)})
    assert (machine.config.read_text(), swap.current_release()) == ("a: 1\n", "1-a")
    assert not any(line.startswith("stop") for line in machine.log.read_text().splitlines())


def test_what_another_run_prepared_is_forgotten(machine: Machine) -> None:
    files = machine.stage("a: 2\n")
    machine.stage("a: 3\n")
    swap.keep(ALL)
    with pytest.raises(swap.SwapError):
        swap.restart(WANTED | {"files": files})


def test_files_of_another_broker_on_the_host_wait_for_its_step(machine: Machine) -> None:
    other = machine.config.with_name("broker-2.yml")
    other.write_text("b: 1\n")
    swap.restart(WANTED | {"files": machine.stage("a: 2\n") | {str(other): "0" * 64}})
    assert other.read_text() == "b: 1\n"


def test_a_step_that_is_repeated_after_a_lost_connection_does_not_restart_again(machine: Machine) -> None:
    swap.restart(WANTED | {"token": "t1"})
    machine.start()
    stops = machine.log.read_text().count("stop ")
    swap.restart(WANTED | {"token": "t1"})
    assert machine.log.read_text().count("stop ") == stops
    swap.restart(WANTED | {"token": "t2"})
    assert machine.log.read_text().count("stop ") == stops + 1


def test_a_step_that_was_cut_before_the_stop_is_repeated_whole(machine: Machine) -> None:
    started = machine.path / "run" / "pylog" / "broker-1.started"
    os.utime(started, (time.time() - 60, time.time() - 60))
    swap.write(swap.rolls() / "broker-1.json", {"state": "restarting", "token": "t1", "began_ms": swap.now_ms()})
    swap.restart(WANTED | {"token": "t1"})
    assert "stop pylog-broker@1.service" in machine.log.read_text()


def test_what_ran_before_comes_back(machine: Machine) -> None:
    files = machine.stage("a: 2\n")
    assert swap.keep(ALL)["kept"] == [], "the copies are there already"
    files = machine.stage("a: 2\n")
    swap.restart(WANTED | {"files": files})
    machine.start()
    done = swap.back(ALL | {"why": "gate"})
    assert done == {"restored": ["release 1-a", str(machine.config)], "restarted": ["broker-1"], "release": "1-a"}
    assert machine.config.read_text() == "a: 1\n"
    assert (machine.marker()["state"], machine.marker()["why"]) == ("rolled back", "gate")


def test_a_broker_that_never_started_is_started_with_what_came_back(machine: Machine) -> None:
    swap.keep(ALL)
    swap.restart(WANTED)
    (machine.state / "pylog-broker@1.service").write_text("activating\n")
    assert swap.back(ALL | {"why": "gate"})["restarted"] == ["broker-1"]


def test_a_broker_that_runs_what_it_ran_before_is_left_alone(machine: Machine) -> None:
    swap.keep(ALL)
    assert swap.back(ALL | {"why": "gate"}) == {"restored": [], "restarted": [], "release": "1-a"}


def test_an_interrupted_run_does_not_overwrite_what_is_kept(machine: Machine) -> None:
    swap.keep(ALL)
    machine.config.write_text("a: 2\n")
    assert swap.keep(ALL)["kept"] == []
    swap.back(ALL | {"why": "gate"})
    assert machine.config.read_text() == "a: 1\n"


def test_copies_are_for_root_alone(machine: Machine) -> None:
    swap.keep(ALL)
    assert (machine.path / "opt" / "rolls").stat().st_mode & 0o077 == 0


def test_a_finished_step_keeps_the_previous_release_and_removes_older_ones(machine: Machine) -> None:
    swap.keep(ALL)
    swap.restart(WANTED)
    machine.start()
    done = swap.finish({"name": "broker-1"})
    assert done["pruned"] == ["1-old", "base-of-1-old"]
    assert machine.releases() == {"1-a", "1-b"}
    assert machine.marker()["state"] == "done"
    assert machine.marker()["reasons"] == ["because"]


def test_a_release_on_its_way_in_is_not_pruned(machine: Machine) -> None:
    swap.keep(ALL)
    machine.install("1-c")
    swap.restart(WANTED)
    assert swap.finish({"name": "broker-1"})["pruned"] == ["1-old", "base-of-1-old"]


def test_a_restart_asked_for_twice_is_asked_for_once(machine: Machine) -> None:
    first = swap.ask({"of": "brokers"})
    assert swap.ask({"of": "brokers"}) == first
    assert swap.asked({"of": "brokers"}) == {"changed": True}
    assert swap.ask({"of": "brokers"})["asked_ms"] >= first["asked_ms"]


def test_a_process_of_a_debian_package_moves_no_release(machine: Machine) -> None:
    config = machine.path / "etc" / "zoo.cfg"
    config.write_text("clientPort=1\n")
    jar = machine.path / "zookeeper.jar"
    jar.write_bytes(b"jar")
    (machine.path / "run" / "pylog-zookeeper").mkdir()
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}" for path in (config, jar)]
    (machine.path / "run" / "pylog-zookeeper" / "started").write_text("\n".join(lines) + "\n")
    (machine.state / "pylog-zookeeper.service").write_text("active\n")
    stage = swap.keep({"names": ["zookeeper"], "paths": [str(config)]})["stage"]
    Path(stage + str(config)).write_text("clientPort=2\n")
    digest = hashlib.sha256(b"clientPort=2\n").hexdigest()
    swap.restart({"name": "zookeeper", "files": {str(config): digest}, "reasons": []})
    assert (config.read_text(), swap.current_release()) == ("clientPort=2\n", "1-a")
    machine.point("1-b")
    assert swap.back({"names": ["zookeeper"], "why": "gate"})["restored"] == [str(config)]
    assert (config.read_text(), swap.current_release()) == ("clientPort=1\n", "1-b")


def test_f21_a_host_without_brokers_loses_the_releases_that_nothing_runs(machine: Machine) -> None:
    machine.point("1-b")
    wanted = {"root": str(machine.path / "opt"), "keep": []}
    assert swap.prune_all(wanted) == {"pruned": ["1-a", "1-old", "base-of-1-a", "base-of-1-old"], "changed": True}
    assert swap.prune_all(wanted) == {"pruned": [], "changed": False}
    assert machine.releases() == {"1-b"}


def test_f21_what_is_about_to_become_current_stays(machine: Machine) -> None:
    machine.point("1-b")
    kept = {"root": str(machine.path / "opt"), "keep": ["1-old", "base-of-1-a"]}
    assert swap.prune_all(kept)["pruned"] == ["1-a"]
    assert machine.releases() == {"1-b", "1-old"}


def test_f21_nothing_is_pruned_where_nothing_is_installed(tmp_path: Path) -> None:
    assert swap.prune_all({"root": str(tmp_path), "keep": []}) == {"pruned": [], "changed": False}


UNIT = """[Service]
ExecStartPre=/bin/sh -c 'exec sha256sum {config} {lock} > {record}'
ExecStart={opt}/current/bin/pylog broker --config {config}
Restart=on-failure
"""


@pytest.fixture
def pair(machine: Machine) -> Machine:
    """A host with two brokers that run release 1-a, the second of which is `broker-2`."""
    run = machine.path / "run" / "pylog"
    (run / "broker-2.started").write_text((run / "broker-1.started").read_text())
    (machine.state / "pylog-broker@2.service").write_text("active\n")
    (machine.path / "units").mkdir()
    unit = UNIT.format(
        config=machine.config, lock=machine.lock, record=run / "broker-2.started", opt=machine.path / "opt"
    )
    (machine.path / "units" / "pylog-broker@.service").write_text(unit)
    return machine


def drop_in(machine: Machine, number: int) -> Path:
    return machine.path / "units" / f"pylog-broker@{number}.service.d" / "kept.conf"


def test_f31_a_crash_of_the_second_broker_during_the_firsts_step_starts_the_release_that_it_ran(pair: Machine) -> None:
    swap.restart(WANTED)
    assert swap.current_release() == "1-b"
    assert not drop_in(pair, 1).exists()
    lines = drop_in(pair, 2).read_text().splitlines()
    assert f"ExecStart={pair.path}/opt/releases/1-a/bin/pylog broker --config {pair.config}" in lines
    assert "ExecStart=" in lines, "or systemd would refuse a second one"
    # What it then records is compared by the next roll: it does not run what `current` names.
    [before] = [line.removeprefix("ExecStartPre=") for line in lines if line.startswith("ExecStartPre=/")]
    record = pair.path / "run" / "pylog" / "broker-2.started"
    old = hashlib.sha256((pair.path / "opt/releases/1-a/requirements.lock").read_bytes()).hexdigest()
    record.unlink()
    subprocess.run(shlex.split(before), check=True)
    assert f"{old}  {pair.lock}" in record.read_text().splitlines()


def test_f31_its_own_step_gives_the_second_broker_the_new_release(pair: Machine) -> None:
    swap.restart(WANTED)
    swap.restart(WANTED | {"name": "broker-2"})
    assert not drop_in(pair, 2).parent.exists()


def test_f31_the_way_back_leaves_the_second_broker_alone(pair: Machine) -> None:
    swap.keep({"names": ["broker-1", "broker-2"]})
    swap.restart(WANTED)
    done = swap.back({"names": ["broker-1", "broker-2"], "why": "no"})
    assert (done["release"], drop_in(pair, 2).exists()) == ("1-a", False)
    assert "stop pylog-broker@2.service" not in pair.log.read_text()


def test_f31_a_release_that_a_broker_would_start_is_not_pruned(pair: Machine) -> None:
    swap.restart(WANTED)
    swap.finish({"name": "broker-1"})
    assert pair.releases() == {"1-a", "1-b"}

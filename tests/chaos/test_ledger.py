"""A run that was killed is removed by what it wrote down, and nothing of another run is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.disks import Disk
from tests.chaos.ledger import NAMESPACE, Ledger, clean_run, note_runner, processes

NAME = f"chaos-test-{os.getpid()}"


def namespaces() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines()}


def add_namespace(ledger: Ledger, name: str) -> None:
    ledger.note(NAMESPACE, name)
    subprocess.run(["ip", "netns", "add", name], check=True)


def sleeper(space: str) -> subprocess.Popen[bytes]:
    command = ["ip", "netns", "exec", space, sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_processes_mounts_and_namespaces_of_one_run_are_removed(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for directory in (mine, other):
        directory.mkdir()
        add_namespace(Ledger(directory), f"{NAME}-{directory.name}")
    disk = Disk(mine / "disks" / "1", 64, Ledger(mine))
    disk.make()
    with sleeper(f"{NAME}-mine") as running, sleeper(f"{NAME}-other") as left:
        assert processes([f"{NAME}-mine"]) == {running.pid}
        assert clean_run(mine) == []
        assert running.wait(10) == -9
        assert not disk.directory.is_mount()
        assert f"{NAME}-mine" not in namespaces()
        assert left.poll() is None
        assert clean_run(other) == []
    assert clean_run(mine) == [], "what was removed is no error"


def test_a_run_that_is_going_on_is_left_alone(tmp_path: Path) -> None:
    Ledger(tmp_path).note(NAMESPACE, f"{NAME}-running")
    note_runner(tmp_path)
    with pytest.raises(ValueError, match=f"still going on: process {os.getpid()}"):
        clean_run(tmp_path)


def test_another_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not the directory of a run"):
        clean_run(tmp_path)


def test_a_disk_is_filled_and_emptied(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "disk", 64, Ledger(tmp_path))
    disk.make()
    try:
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.directory / "file").write_bytes(bytes(1 << 20))
        disk.empty()
        (disk.directory / "file").write_bytes(bytes(1 << 20))
    finally:
        assert Ledger(tmp_path).clean() == []

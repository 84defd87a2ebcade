"""What a host was like before: recorded once, put back from the record."""

import json
import subprocess
from pathlib import Path

import pytest

from pylog.ops import former

WANTED = {"sysctls": ["vm.swappiness", "vm.dirty_ratio"]}


class Machine:
    """The files of a kernel below a directory."""

    def __init__(self, path: Path) -> None:
        self.swappiness = path / "proc" / "vm" / "swappiness"
        self.dirty = path / "proc" / "vm" / "dirty_ratio"
        self.hugepages = path / "sys" / former.HUGEPAGES
        self.read_ahead = path / "sys" / "block" / "vda" / "queue" / "read_ahead_kb"
        self.scheduler = self.read_ahead.with_name("scheduler")
        self.passwd = path / "etc" / "passwd"
        self.fstab = path / "etc" / "fstab"
        for file, text in (
            (self.swappiness, "60"), (self.dirty, "20"), (self.hugepages, "[always] madvise never"),
            (self.read_ahead, "128"), (self.scheduler, "[none] mq-deadline"),
            (self.passwd, "root:x:0:0::/root:/bin/bash"), (self.fstab, "# none"),
        ):  # fmt: skip
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")

    def tune(self) -> None:
        self.swappiness.write_text("1\n")
        self.hugepages.write_text("always [madvise] never\n")
        self.read_ahead.write_text("1024\n")
        self.scheduler.write_text("none [mq-deadline]\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(tmp_path)
    for name in ("RECORD", "USERS", "PROC", "SYS", "ETC"):
        monkeypatch.setattr(former, name, tmp_path / name.lower())
    monkeypatch.setattr(former, "is_container", lambda: False)
    return found


def test_what_was_before_comes_back(machine: Machine) -> None:
    assert former.record(WANTED) == {"changed": True}
    machine.tune()
    done = former.restore({})
    assert machine.swappiness.read_text() == "60\n"
    assert machine.dirty.read_text() == "20\n"
    assert machine.hugepages.read_text() == "always\n"
    assert machine.read_ahead.read_text() == "128\n"
    assert machine.scheduler.read_text() == "none\n"
    assert (len(done["restored"]), done["refused"]) == (4, [])


def test_a_second_run_does_not_take_our_own_values_for_the_former_ones(machine: Machine) -> None:
    former.record(WANTED)
    machine.tune()
    assert former.record(WANTED) == {"changed": False}
    former.restore({})
    assert machine.swappiness.read_text() == "60\n"


def test_a_setting_that_comes_later_is_noted_beside_the_others(machine: Machine) -> None:
    former.record({"sysctls": ["vm.swappiness"]})
    machine.tune()
    machine.dirty.write_text("10\n")
    assert former.record(WANTED) == {"changed": True}
    assert former.noted()["sysctls"] == {"vm.swappiness": "60", "vm.dirty_ratio": "10"}


def test_what_the_kernel_refuses_is_named(machine: Machine) -> None:
    former.record(WANTED)
    machine.tune()
    machine.swappiness.unlink()
    machine.swappiness.mkdir()
    assert former.restore({})["refused"] == [f"{machine.swappiness}: Is a directory"]


def test_in_a_container_the_kernel_is_left_alone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    former.record(WANTED)
    machine.tune()
    monkeypatch.setattr(former, "is_container", lambda: True)
    assert former.restore({})["restored"] == []
    assert machine.swappiness.read_text() == "1\n"


def test_nothing_is_touched_without_a_record(machine: Machine) -> None:
    machine.tune()
    assert former.restore({"users": True})["changed"] is False
    assert machine.swappiness.read_text() == "1\n"


def test_a_user_who_was_there_before_stays(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.passwd.write_text("pylog:x:999:999::/:/bin/false\n")
    assert former.main(["record", json.dumps(WANTED)]) == 0
    assert former.main(["restore", '{"users": true}']) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["users"] == []


@pytest.mark.parametrize("is_installed_again", [False, True])
def test_users_that_stayed_with_their_data_go_with_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, is_installed_again: bool
) -> None:
    removed: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: removed.append(command))
    former.record(WANTED)
    machine.passwd.write_text("pylog:x:999:999::/:/bin/false\n")
    assert former.restore({"users": False})["changed"] is True
    assert former.restore({"users": False})["changed"] is False
    if is_installed_again:
        machine.swappiness.write_text("30\n")
        former.record(WANTED)
        assert former.noted()["sysctls"]["vm.swappiness"] == "30", "what somebody else set meanwhile"
    assert former.restore({"users": True})["users"] == ["pylog"]
    assert removed == [["userdel", "pylog"]]
    assert not former.RECORD.exists()
    assert not former.USERS.exists()

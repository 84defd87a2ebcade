"""How virtual machines and their disks are started; that a cut forgets, `make baremetal` itself shows."""

import importlib.util
import itertools
import os
import signal
from dataclasses import asdict
from pathlib import Path

import pytest

from local.hosts import hosts, machines


def machine_set(*names: str) -> hosts.HostSet:
    found = hosts.HostSet(set="machines", network="pv01234567", subnet="10.70.3.0/24", gateway="10.70.3.1")
    for name in names or ("live1", "live2"):
        found.hosts[name] = hosts.Host(ip=hosts.address(found, name), container="", disks=["/dev/vdb", "/dev/vdc"])
    return found


def values(command: list[str], option: str) -> list[str]:
    return [value for word, value in itertools.pairwise(command) if word == option]


def test_a_disk_holds_writes_back_until_a_flush() -> None:
    command = machines.disk_command("live1-system")
    assert "cache=writeback" in command
    # The first filter is the one the guest talks to: a flush must reach the cache, and may end below it.
    assert values(["", *command], "nbdkit") == ["--unix"]
    assert [word for word in command if word.startswith("--filter")] == ["--filter=cache", "--filter=fua"]


def test_the_guest_finds_its_disks_in_the_order_of_their_names() -> None:
    command = machines.machine_command(machine_set(), "live1", Path("/image"))
    served = [value.rpartition("=")[2] for value in values(command, "-blockdev")]
    assert served == [str(machines.disk_socket(f"live1-{name}")) for name in ("system", "1", "2")]
    assert all("write-cache=on" in value for value in values(command, "-device") if "virtio-blk" in value)
    assert values(command, "-append")[0].startswith("root=/dev/vda rw")
    assert machines.plan_disks() == ["/dev/vdb", "/dev/vdc"]


def test_a_processor_that_cannot_run_machines_is_emulated() -> None:
    without = "flags\t\t: fpu hypervisor vmmcall\n"
    assert values(machines.processor(without), "-accel")[0].startswith("tcg,")
    assert machines.kernel_words(without).startswith(f"{machines.KERNEL} ")


def test_two_machines_share_neither_card_nor_cable_nor_process_file() -> None:
    both = machine_set("live1", "offline1")
    seen = [
        (machines.mac(facts.ip), machines.tap(both, name), machines.pid_file(name))
        for name, facts in both.hosts.items()
    ]
    for first, second in zip(*seen, strict=True):
        assert first != second


@pytest.mark.parametrize("host", ["live1", "live89", "offline99"])
def test_an_interface_has_a_name_that_the_kernel_takes(host: str) -> None:
    name = machines.new_set_name()
    found = machine_set(host)
    found.network = name
    assert len(machines.tap(found, host)) <= 15


def test_sockets_have_paths_that_the_kernel_takes() -> None:
    assert len(os.fsencode(machines.disk_socket("offline99-system"))) < 107


def test_a_process_of_somebody_else_is_never_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machines, "RUN", tmp_path)
    assert machines.process("live1") is None, "it was never started"
    machines.pid_file("live1").write_text(f"{os.getpid()}\n")
    assert machines.process("live1") is None, "the number is in use again"


def test_what_is_written_into_the_disk_belongs_to_root_and_keys_are_secret() -> None:
    files = {"/etc/hostname": ("live1\n", 0o644), "/etc/ssh/ssh_host_ed25519_key": ("secret", 0o600)}
    text = machines.writing(files, {path: Path("/tmp") / str(number) for number, path in enumerate(files)})
    assert "write /tmp/1 /etc/ssh/ssh_host_ed25519_key\n" in text
    assert "set_inode_field /etc/ssh/ssh_host_ed25519_key mode 0100600\n" in text
    assert text.count(" uid 0\n") == text.count(" gid 0\n") == len(files)


def test_every_machine_knows_every_other_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machines, "DIRECTORY", tmp_path)
    both = machine_set()
    both.ssh_key = str(tmp_path / "ssh")
    for path in (Path(both.ssh_key), machines.host_key("live1")):
        hosts.ensure_key(path)
    files = machines.identity(both, "live1")
    assert files["/etc/hostname"] == ("live1\n", 0o644)
    assert "10.70.3.12 live2\n" in files["/etc/hosts"][0]
    assert "Address=10.70.3.11/24" in files["/etc/systemd/network/lan.network"][0]


def test_the_inventory_of_containers_serves_machines_too() -> None:
    spec = importlib.util.spec_from_file_location("inventory", hosts.ROOT / "inventories" / "local" / "hosts.py")
    assert spec is not None
    assert spec.loader is not None
    inventory = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(inventory)
    found = machine_set()
    found.without, found.variables = ["pylog_monitoring"], {"broker_session_timeout_ms": 30_000}
    read = inventory.inventory(asdict(found))
    assert "pylog_monitoring" not in read
    assert read["pylog_broker"] == {"hosts": ["live1", "live2"]}
    facts = read["_meta"]["hostvars"]["live2"]
    assert (facts["local_disks"], facts["broker_session_timeout_ms"]) == (["/dev/vdb", "/dev/vdc"], 30_000)


@pytest.mark.parametrize("words", [["cut", "live9"], ["logs", "live9"], ["start", "live1", "live9"]])
def test_a_machine_that_is_not_there_is_named(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hosts, "STATE", tmp_path)
    (tmp_path / machines.SET).mkdir()
    hosts.save(machine_set())
    assert machines.main(words) == 1
    assert "no machine live9: there are live1, live2" in capsys.readouterr().err


def test_a_verb_leaves_the_signals_of_its_process_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hosts, "STATE", tmp_path)
    assert machines.main(["status"]) == 0
    # The default ends a process whose peer went away, whatever else it is at.
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN

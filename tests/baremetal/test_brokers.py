"""Three brokers on kernels and disks of their own lose power: one of them, then all at once.

Nothing but a broker runs on these machines, and the ZooKeeper that they know keeps its power: shown is what pylog, XFS
and the kernel make of a power cut, at a tenth of what whole hosts cost (tests/baremetal/test_power.py). The system's
disk is the image itself, which nothing writes to; a broker's code, configuration and data are on one of its own.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from local.hosts import hosts, machines
from pylog.ops.load import Load
from tests.baremetal import power
from tests.baremetal.power import gaps, kept, nothing_went_wrong
from tests.rolls import cluster
from tests.servers.zookeeper import ZooKeeper

IDS = {"live1": 1, "live2": 2, "live3": 3}
VICTIM = "live2"
PORT, INTERNAL_PORT = 9092, 9192
SESSION_MS = 30_000
RECORDS_PER_S = 30
BEFORE = 600
"""Acknowledged records before anything happens."""
MEMORY_MIB = 512
DISK_BYTES = 1 << 30
DISK = "/mnt/disk"
# What is left of a system: its first program is a shell that mounts the disk and goes on with what stands there.
BOOT = (
    f"mount -t tmpfs tmpfs /mnt; mkdir {DISK}; modprobe xfs; while ! test -b /dev/vdb; do sleep 1; done; "
    f"mount -o noatime /dev/vdb {DISK}; exec sh {DISK}/init"
)
INIT = f"""
for directory in /run /tmp; do mount -t tmpfs tmpfs $directory; done
modprobe virtio_net
ip link set lo up; ip link set eth0 up; ip address add ADDRESS dev eth0
cd {DISK}/code
set -- /opt/pylog/bases/*
while :; do $1/bin/python -m pylog broker --config {DISK}/broker.yml; sleep 1; done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """Machines with a broker and nothing else on them."""

    machines: hosts.HostSet
    image: Path

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers."""
        return ",".join(f"{facts.ip}:{PORT}" for facts in self.machines.hosts.values())

    def cut(self, *names: str) -> None:
        """Take power away, from all at the same moment."""
        machines.power_off(names)

    def start(self, *names: str) -> None:
        """Give power back; who waits for more than that asks the brokers."""
        for host in names:
            [disk] = _disks(host)
            for left in (machines.disk_socket(disk), machines.pid_file(disk)):
                left.unlink(missing_ok=True)
            environment = ["env", f"TMPDIR={machines.DIRECTORY / 'disks'}"]
            hosts.privileged("setsid", *environment, *machines.disk_command(disk))
            machines.wait_served(disk)
            machines.connect(self.machines, host)
            hosts.privileged("setsid", *machines.rank(machines.CPUINFO.read_text()), *self._command(host, disk))

    def well(self) -> None:
        """Wait until all brokers are there and every partition is in sync."""
        power.well(self.bootstrap, len(IDS))

    def loaded(self, **topics: Mapping[str, str]) -> AbstractContextManager[dict[str, Load]]:
        """Produce during the block to topics whose every partition prefers the victim."""
        replicas = [IDS[VICTIM], *(number for host, number in IDS.items() if host != VICTIM)]
        return power.loaded(self.bootstrap, replicas, topics, per_s=RECORDS_PER_S, before=BEFORE)

    def _command(self, host: str, disk: str) -> list[str]:
        cpuinfo = machines.CPUINFO.read_text()
        words = machines.kernel_words(cpuinfo).replace(" rw ", " ro ")
        return [
            "qemu-system-x86_64", "-name", f"{self.machines.network}-{host}", "-nodefaults", "-no-user-config",
            "-machine", "q35", *machines.processor(cpuinfo), "-m", f"{MEMORY_MIB}M",
            "-kernel", str(self.image / "vmlinuz"), "-initrd", str(self.image / "initrd.img"),
            "-append", f'{words} init=/bin/sh -- -c "{BOOT}"',
            "-blockdev", f"driver=file,node-name=system,filename={self.image / 'root.img'},read-only=on",
            "-device", "virtio-blk-pci,drive=system",
            "-blockdev", f"driver=nbd,node-name=data,server.type=unix,server.path={machines.disk_socket(disk)}",
            "-device", "virtio-blk-pci,drive=data,write-cache=on",
            "-netdev", f"tap,id=net,ifname={machines.tap(self.machines, host)},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=net,mac={machines.mac(self.machines.hosts[host].ip)}",
            "-device", "virtio-rng-pci", "-display", "none", "-serial", f"file:{machines.console(host)}",
            "-daemonize", "-pidfile", str(machines.pid_file(host)),
        ]  # fmt: skip


def _disks(host: str) -> list[str]:
    return [f"{host}-1"]


def _fill(file: Path, host: str, found: hosts.HostSet, zookeeper: str) -> None:
    """Make a broker's disk: XFS with its code, its configuration and what starts it."""
    with file.open("xb") as new:
        new.truncate(DISK_BYTES)
    subprocess.run(["/usr/sbin/mkfs.xfs", "-q", str(file)], check=True)
    address = found.hosts[host].ip
    config = {
        "version": 1, "broker_id": IDS[host],
        "listeners": {
            "client": {"host": address, "port": PORT}, "internal": {"host": address, "port": INTERNAL_PORT},
        },
        "data_dir": f"{DISK}/data", "admin_socket": "/run/admin.sock",
        "store": {"kind": "zookeeper", "hosts": zookeeper, "session_timeout_ms": SESSION_MS},
        "cluster_secret_file": f"{DISK}/secret",
        "config": {"default.replication.factor": 3, "min.insync.replicas": 2},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as mounted:
        disk = Path(mounted)
        subprocess.run(["mount", "-o", "loop", str(file), mounted], check=True)
        try:
            (disk / "data").mkdir()
            (disk / "secret").write_text("hush")
            (disk / "broker.yml").write_text(yaml.safe_dump(config))
            (disk / "init").write_text(INIT.replace("ADDRESS", f"{address}/24"))
            shutil.copytree(cluster.ROOT / "pylog", disk / "code" / "pylog", ignore=shutil.ignore_patterns("*.pyc"))
            # Here, where it takes a second; by content, whatever the clocks say.
            compiling = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(disk / "code")]
            subprocess.run([sys.executable, *compiling], check=True)
        finally:
            subprocess.run(["umount", mounted], check=True)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    """The machines, with all brokers in sync."""
    with pytest.MonkeyPatch.context() as patch:
        # A set of their own, beside the hosts of `make baremetal`.
        patch.setattr(machines, "DIRECTORY", tmp_path_factory.mktemp("bare"))
        patch.setattr(machines, "RUN", Path(f"{machines.RUN}-bare"))
        patch.setattr(machines, "disk_names", _disks)
        yield from _bare(tmp_path_factory.mktemp("zookeeper"))


def _bare(directory: Path) -> Iterator[Bare]:
    subnet = hosts.free_subnet(f"{hosts.CHECKOUT_ID}-bare")
    found = hosts.HostSet(set="bare", network=f"{machines.new_set_name()}b", subnet=str(subnet), gateway=str(subnet[1]))
    for host in IDS:
        found.hosts[host] = hosts.Host(ip=hosts.address(found, host), container="", disks=[])
    machines.power_off(list(IDS))  # left by a run that was killed
    machines.remove_network(found)
    machines.bridge(found)
    machines.RUN.mkdir(exist_ok=True)
    (machines.DIRECTORY / "disks").mkdir()
    tag = subprocess.run(
        [str(cluster.ROOT / "local" / "hosts" / "machine_image.sh"), "tag"], capture_output=True, check=True
    )
    made = Bare(machines=found, image=Path(tag.stdout.decode().strip()))
    power.note(hypervisor="kvm" if machines.is_real(machines.CPUINFO.read_text()) else "qemu")
    try:
        with ZooKeeper(directory, host=found.gateway, tick_ms=3000) as zookeeper:
            for host in IDS:
                _fill(machines.disk_file(f"{host}-1"), host, found, zookeeper.hosts)
            made.start(*IDS)
            made.well()
            yield made
    finally:
        made.cut(*IDS)
        machines.remove_network(found)
        for host in IDS:
            print(f"---- {host}", machines.console_tail(host), sep="\n")
        shutil.rmtree(machines.DIRECTORY)
        shutil.rmtree(machines.RUN)


def test_one_broker_that_loses_power_loses_nothing_acknowledged(bare: Bare) -> None:
    began_s = time.monotonic()
    with bare.loaded(by_default={}) as loads:
        bare.cut(VICTIM)
        bare.start(VICTIM)
        bare.well()
        # What it lost with its memory it must have taken from the others before it leads again.
        power.let_lead(bare.bootstrap, IDS[VICTIM])
    [history] = kept("power cut of one bare broker", began_s, loads)
    assert nothing_went_wrong(history)


def test_all_brokers_that_lose_power_at_once_keep_what_was_flushed(bare: Bare) -> None:
    began_s = time.monotonic()
    with bare.loaded(flushed={"flush.messages": "1"}, unflushed={}) as loads:
        bare.cut(*IDS)
        bare.start(*IDS)
        bare.well()
        power.let_lead(bare.bootstrap, IDS[VICTIM])
    flushed, unflushed = kept("power cut of all bare brokers", began_s, loads)
    assert nothing_went_wrong(flushed)
    assert unflushed.failures == []
    assert unflushed.lost() > 0, "the cut took nothing, and so says nothing about what was flushed"
    assert max(gaps(unflushed)) == 1, "what is lost is the end of the log as it was, and nothing before it"
    said = "".join(machines.console(host).read_text(errors="replace") for host in IDS)
    assert said.count("possible loss") >= len(loads) * power.PARTITIONS, "who decides says where there may be a loss"

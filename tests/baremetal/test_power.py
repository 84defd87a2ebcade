"""Machines with a kernel and disks of their own are rebooted, and lose power one by one and all at once.

Run by `make baremetal`, in this order; local/hosts/machines.py says what a power cut is.
"""

import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress

import pytest
from fabric.exceptions import GroupException
from paramiko import SSHException

from pylog.ops.load import Load
from tests.baremetal import power
from tests.baremetal.power import gaps, kept, nothing_went_wrong, wait_for
from tests.rolls import cluster

HOSTS = [target.name for target in cluster.targets()]
VICTIM = HOSTS[len(HOSTS) // 2]
IDS = {target.name: target.broker_ids[0] for target in cluster.targets()}
DISK = "/var/lib/pylog/disk2"
RECORDS_PER_S = 45
BEFORE = 1000
"""Acknowledged records before anything happens."""
BOOT = "cat /proc/sys/kernel/random/boot_id"
ATTEMPTS = 5
UNREACHABLE = (OSError, SSHException, GroupException, EOFError)

# What the role `tuning` and the role `disks` set and a container does not have.
APPLIED = """
sysctl vm.swappiness vm.dirty_background_ratio vm.dirty_ratio vm.max_map_count
cat /sys/kernel/mm/transparent_hugepage/enabled
for mount in /var/lib/pylog/disk*; do
  findmnt --noheadings --output TARGET,FSTYPE,UUID,OPTIONS $mount
  lsblk --noheadings --nodeps --output NAME,RA,SCHED $(findmnt --noheadings --output SOURCE $mount)
done
"""
# One file with room for two blocks, all of it on the disk. XFS flushes by itself every 30 s; from the next thaw on it
# does so in two hours.
PREPARE = f"""
rm -f {DISK}/blocks {DISK}/cached
dd if=/dev/zero of={DISK}/blocks bs=4096 count=2 conv=fsync status=none && sync
sysctl --quiet fs.xfs.xfssyncd_centisecs=720000
fsfreeze --freeze {DISK} && fsfreeze --unfreeze {DISK}
"""
# Both blocks go past the page cache to the disk; only the first is followed by a flush.
WRITE = f"""
yes flushed | dd of={DISK}/blocks bs=4096 count=1 iflag=fullblock oflag=direct conv=notrunc,fsync status=none
yes written | dd of={DISK}/blocks bs=4096 count=1 seek=1 iflag=fullblock oflag=direct conv=notrunc status=none
yes cached | head -c 4096 > {DISK}/cached
"""
READ = f"""
for block in 0 1; do dd if={DISK}/blocks bs=4096 count=1 skip=$block status=none | tr -d '\\0' | head -n 1; echo .; done
head -n 1 {DISK}/cached 2>/dev/null | tr -d '\\0'
"""


def on(host: str, command: str) -> str:
    """Return what *command*, which may run twice, prints on *host*; emulated, a host may be slow to let us in."""
    for _ in range(ATTEMPTS):
        with suppress(*UNREACHABLE):
            return cluster.on(host, command)
    return cluster.on(host, command)


def machines(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "local.hosts.machines", *words], cwd=cluster.ROOT, check=True)


def booted(host: str) -> str:
    return on(host, BOOT)


def running(host: str) -> list[str]:
    """Return the units of ours that are up on *host*; the packet filter's has done its work and runs no more."""
    shown = on(host, "systemctl list-units --plain --no-legend --state=active 'pylog-*'")
    return sorted(line.split()[0] for line in shown.splitlines())


def loaded(**topics: Mapping[str, str]) -> AbstractContextManager[dict[str, Load]]:
    """Produce during the block to topics whose every partition prefers the victim."""
    replicas = [IDS[VICTIM], *(number for host, number in IDS.items() if host != VICTIM)]
    return power.loaded(cluster.bootstrap(), replicas, topics, per_s=RECORDS_PER_S, before=BEFORE)


def is_anew(host: str, before: str) -> bool:
    """Say whether *host* has booted since its boot *before*, and lets us in."""
    try:
        return cluster.on(host, BOOT) != before
    except UNREACHABLE:
        return False


def well() -> None:
    power.well(cluster.bootstrap(), len(HOSTS))


def test_a_power_cut_takes_what_was_not_flushed_and_nothing_else() -> None:
    on(VICTIM, PREPARE)
    on(VICTIM, WRITE)
    machines("cut", VICTIM)
    machines("start", VICTIM)
    assert on(VICTIM, READ).split() == ["flushed", ".", "."]
    well()


def test_a_reboot_keeps_settings_units_and_data() -> None:
    before, units, applied = booted(VICTIM), running(VICTIM), on(VICTIM, APPLIED)
    assert f"pylog-broker@{VICTIM[-1]}.service" in units
    began_s = time.monotonic()
    with loaded(by_default={}) as loads:
        on(VICTIM, "nohup sh -c 'sleep 1; systemctl reboot' >/dev/null 2>&1 &")
        wait_for(lambda: is_anew(VICTIM, before))
        well()
        wait_for(lambda: running(VICTIM) == units)
        power.let_lead(cluster.bootstrap(), IDS[VICTIM])
    [history] = kept("reboot of one", began_s, loads)
    assert nothing_went_wrong(history)
    assert on(VICTIM, APPLIED) == applied
    cluster.keep_more("baremetal", "settings", {VICTIM: applied.splitlines()})


@pytest.mark.skipif(len(HOSTS) < 3, reason="one host of one: the test of all hosts is the same")
def test_one_host_that_loses_power_loses_nothing_acknowledged() -> None:
    before, units = booted(VICTIM), running(VICTIM)
    began_s = time.monotonic()
    with loaded(by_default={}) as loads:
        machines("cut", VICTIM)
        machines("start", VICTIM)
        assert booted(VICTIM) != before
        well()
        wait_for(lambda: running(VICTIM) == units)
        # What it lost with its memory it must have taken from the others before it leads again.
        power.let_lead(cluster.bootstrap(), IDS[VICTIM])
    [history] = kept("power cut of one", began_s, loads)
    assert nothing_went_wrong(history)


def test_all_hosts_that_lose_power_at_once_keep_what_was_flushed() -> None:
    units = {host: running(host) for host in HOSTS}
    began_s = time.monotonic()
    with loaded(flushed={"flush.messages": "1"}, unflushed={}) as loads:
        machines("cut")
        machines("start")
        well()
        wait_for(lambda: all(running(host) == units[host] for host in HOSTS))
    flushed, unflushed = kept("power cut of all", began_s, loads)
    assert nothing_went_wrong(flushed)
    assert unflushed.failures == []
    assert unflushed.lost() > 0, "the cut took nothing, and so says nothing about what was flushed"
    assert max(gaps(unflushed)) == 1, "what is lost is the end of the log as it was, and nothing before it"
    count = "journalctl -b -u 'pylog-broker@*' | grep -c 'possible loss' || true"
    warnings = sum(int(on(host, count)) for host in HOSTS)
    assert warnings >= len(loads) * power.PARTITIONS, "the broker that decides says where there may be a loss"


@pytest.fixture(scope="module", autouse=True)
def numbers() -> None:
    """Say in this run's numbers what the hosts run on: `qemu` is an emulated processor, `kvm` a real one."""
    power.note(hypervisor=on(VICTIM, "systemd-detect-virt --vm"))

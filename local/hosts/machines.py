"""Virtual machines for what a container cannot show: a kernel and disks of their own, a reboot, a power cut.

`python3 -m local.hosts.machines`, run from the checkout's root:

    up [HOST...]      create or start what is missing, wait until SSH answers
    cut [HOST...]     a power cut, of all named hosts at the same moment
    start [HOST...]   power back on; returns when SSH answers
    down              shut them down; disks stay, `up` continues with them
    destroy           remove machines, network and disks
    status            who runs, and where
    logs HOST [UNIT]  the end of a machine's journal, or of its console where SSH does not answer

Without names: all of them. What Ansible needs to know stands in `.local/machines/hosts.json`, in the same form as for
containers (local/hosts/hosts.py), so that the same inventory serves both.

A machine is one process of qemu and one of nbdkit for each of its disks. **The power cut**: all of these are killed
at once (SIGKILL). What the guest had not written to its disk is gone with its memory. What it had written, but not
flushed, is gone too: each nbdkit keeps writes in a cache of its own and lets them through to the disk's file at a
flush, as a disk with a volatile cache does that loses all of it. A kill of qemu alone, with any of its cache modes,
would keep such writes in the page cache of the machine around it, and a missing flush would never show.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from local.hosts import apt_cache, hosts
from local.hosts.hosts import HostsError, HostSet, in_parallel, privileged, run, say

SET = "machines"
DIRECTORY = hosts.STATE / SET
RUN = Path("/run") / f"pylog-{hosts.CHECKOUT_ID}"
"""Sockets and process numbers. A socket's path may have 107 bytes, which a checkout far down in a tree would exceed."""
DEFAULT_HOSTS = ("live1", "live2", "live3")

MEMORY_MIB = 1280
"""ZooKeeper's JVM and a broker with room for a page cache."""

DISKS_PER_HOST = 2
DISK_BYTES = hosts.DISK_BYTES
SILENCE_S = 900
"""A machine whose console said nothing for so long, and whose SSH does not answer, hangs. Emulated on a machine that is
busy with something else, it says something every few minutes."""
START_LIMIT_S = 3600
LOGIN_S = 90
"""Emulated on a machine that is busy with something else, the exchange of keys takes tens of seconds."""

WITHOUT = ["pylog_load_balancer", "pylog_monitoring"]
"""Containers show these as well, and emulated they would take a quarter of each processor."""
EMULATED = {
    "broker_session_timeout_ms": 60_000, "zookeeper_tick_ms": 3000, "broker_watchdog_s": 120,
    "broker_ready_timeout_s": 3600, "broker_start_timeout_s": 3600, "zookeeper_ready_timeout_s": 3600,
    "firewall_undo_s": 600, "ansible_timeout": LOGIN_S,
}  # fmt: skip
"""An emulated processor that others keep waiting must not pass for a dead server, nor for a host that is gone."""
ALONE = {
    "broker_config": {"default.replication.factor": 1, "min.insync.replicas": 1, "offsets.topic.replication.factor": 1}
}
"""What a cluster of one broker sets."""

KERNEL = "root=/dev/vda rw console=ttyS0 net.ifnames=0"
EMULATED_KERNEL = (
    # Guards against a processor that this one is not; jumps are what an emulator is slowest at.
    "mitigations=off"
    # Memory that is cleared whenever it is handed out, and a copy that moves a word a turn.
    " init_on_alloc=0 clearcpuid=rep_good"
    " apparmor=0 audit=0"
    # Whoever was kept waiting for a processor does not have a timer that does not work.
    " no_timer_check"
)
"""What an emulated kernel is told: everything that costs it time and shows nothing here."""
EMULATED_NICE = ["nice", "-n", "10"]
"""Emulated, a machine takes all of a processor for minutes; whoever works beside it goes first."""

CPUINFO = Path("/proc/cpuinfo")
VIRTUAL = re.compile(r"^flags\s*:.*\b(vmx|svm)\b", re.MULTILINE)
"""The processor can run machines. A /dev/kvm alone says little: there are some that no kernel boots on."""


def disk_names(host: str) -> list[str]:
    """Return a host's disks: its system, then its data disks, in the order of the guest's names."""
    return [f"{host}-{name}" for name in ("system", *(str(number + 1) for number in range(DISKS_PER_HOST)))]


def disk_file(name: str) -> Path:
    """Return the sparse file behind a disk."""
    return DIRECTORY / "disks" / f"{name}.img"


def disk_socket(name: str) -> Path:
    """Return where a disk is served."""
    return RUN / f"{name}.sock"


def pid_file(name: str) -> Path:
    """Return where a process, of a machine or a disk, notes its number."""
    return RUN / f"{name}.pid"


def disk_command(name: str) -> list[str]:
    """Return how a disk is served that forgets at a power cut what was not flushed.

    The order matters: `cache` holds writes back until a flush. That flush ends at `fua`: the machine around does not
    lose power, and need not sync its own disk for every flush of a guest.
    """
    return [
        "nbdkit", "--unix", str(disk_socket(name)), "--pidfile", str(pid_file(name)), "--filter=cache", "--filter=fua",
        "file", str(disk_file(name)), "cache=writeback", "cache-min-block-size=4096", "fuamode=discard",
    ]  # fmt: skip


def processor(cpuinfo: str) -> list[str]:
    """Return what a machine's processor is, from this machine's /proc/cpuinfo: a real one where that can be had.

    `max` is what either kind can do. Five levels of page tables, which the emulated one could do, cost a step more for
    each look-up and hold nothing that a small machine needs; fast copies of bytes (`erms`) are emulated byte by byte.
    """
    if is_real(cpuinfo):
        return ["-accel", "kvm", "-cpu", "max", "-smp", "1"]
    return ["-accel", "tcg,tb-size=512", "-cpu", "max,la57=off,svm=off,erms=off", "-smp", "1"]


def rank(cpuinfo: str) -> list[str]:
    """Return what stands before a machine's command, for those that work beside it."""
    return [] if is_real(cpuinfo) else EMULATED_NICE


def kernel_words(cpuinfo: str) -> str:
    """Return what a machine's kernel is told at its start."""
    return KERNEL if is_real(cpuinfo) else f"{KERNEL} {EMULATED_KERNEL}"


def is_real(cpuinfo: str) -> bool:
    """Say whether machines get the real processor, with KVM."""
    return VIRTUAL.search(cpuinfo) is not None and Path("/dev/kvm").exists()


def mac(ip: str) -> str:
    """Return the hardware address of the machine at *ip*: in the range for qemu, never the same for two."""
    return "52:54:00:" + ":".join(f"{byte:02x}" for byte in ipaddress.IPv4Address(ip).packed[1:])


def tap(machines: HostSet, host: str) -> str:
    """Return the name of a machine's end of the network; an interface's name has 15 bytes at most."""
    return f"{machines.network}{ipaddress.IPv4Address(machines.hosts[host].ip).packed[3]}"


def machine_command(machines: HostSet, host: str, image: Path) -> list[str]:
    """Return how a machine runs: one processor, its disks, one network card, a console that goes to a file."""
    disks = []
    for number, name in enumerate(disk_names(host)):
        disks += [
            "-blockdev", f"driver=nbd,node-name=disk{number},server.type=unix,server.path={disk_socket(name)}",
            "-device", f"virtio-blk-pci,drive=disk{number},serial={name},write-cache=on",
        ]  # fmt: skip
    return [
        "qemu-system-x86_64", "-name", f"{machines.network}-{host}", "-nodefaults", "-no-user-config",
        "-machine", "q35", *processor(CPUINFO.read_text()), "-m", f"{MEMORY_MIB}M",
        "-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd.img"),
        "-append", kernel_words(CPUINFO.read_text()),
        *disks,
        "-netdev", f"tap,id=net,ifname={tap(machines, host)},script=no,downscript=no",
        "-device", f"virtio-net-pci,netdev=net,mac={mac(machines.hosts[host].ip)}",
        "-device", "virtio-rng-pci", "-display", "none", "-serial", f"file:{console(host)}",
        "-daemonize", "-pidfile", str(pid_file(host)),
    ]  # fmt: skip


def console(host: str) -> Path:
    """Return the file with what a machine said on its console since it was last started."""
    return DIRECTORY / f"{host}.console"


def identity(machines: HostSet, host: str) -> dict[str, tuple[str, int]]:
    """Return path -> (content, mode) of what an installer would have written on this machine and no other."""
    names = "".join(f"{facts.ip} {name}\n" for name, facts in machines.hosts.items())
    length = ipaddress.IPv4Network(machines.subnet).prefixlen
    key = host_key(host)
    return {
        "/etc/hostname": (f"{host}\n", 0o644),
        "/etc/hosts": (f"127.0.0.1 localhost\n{names}", 0o644),
        "/etc/fstab": ("/dev/vda / ext4 errors=remount-ro 0 1\n", 0o644),
        "/etc/systemd/network/lan.network":
            (f"[Match]\nName=eth0\n[Network]\nAddress={machines.hosts[host].ip}/{length}\n", 0o644),
        "/etc/ssh/ssh_host_ed25519_key": (key.read_text(), 0o600),
        "/etc/ssh/ssh_host_ed25519_key.pub": (key.with_suffix(".pub").read_text(), 0o644),
        "/root/.ssh/authorized_keys": (Path(machines.ssh_key).with_suffix(".pub").read_text(), 0o600),
    }  # fmt: skip


def host_key(host: str) -> Path:
    """Return the key that a machine identifies itself by: made here, so that nothing is trusted at first sight."""
    return DIRECTORY / "keys" / host


def writing(files: Mapping[str, tuple[str, int]], sources: Mapping[str, Path]) -> str:
    """Return the words for debugfs that write *files*, none of which is there yet, into an unmounted file system."""
    lines = []
    for path, (_, mode) in files.items():
        lines += [
            f"write {sources[path]} {path}",
            f"set_inode_field {path} mode 0{0o100000 | mode:o}",
            f"set_inode_field {path} uid 0", f"set_inode_field {path} gid 0",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


# --- processes


def is_ours(pid: int, command: str) -> bool:
    """Say whether *pid* still is a process of this checkout's: numbers are used again."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return words[0].decode() == command and any(os.fsencode(RUN) in word for word in words)
    return False


def process(name: str) -> int | None:
    """Return the number of the process of a machine or a disk, or None where it does not run."""
    try:
        pid = int(pid_file(name).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return pid if is_ours(pid, "nbdkit" if "-" in name else "qemu-system-x86_64") else None


def powered(machines: HostSet) -> list[str]:
    """Return the machines that run."""
    return [host for host in machines.hosts if process(host) is not None]


def power_off(names: Sequence[str]) -> None:
    """Kill machines and their disks: at once, without a word to any of them."""
    everyone = [*names, *(disk for host in names for disk in disk_names(host))]
    pids = [pid for name in everyone if (pid := process(name)) is not None]
    if pids:
        privileged("kill", "-KILL", *map(str, pids), check=False)
    deadline_s = time.monotonic() + 10
    while any(process(name) is not None for name in everyone):
        if time.monotonic() > deadline_s:
            raise HostsError(f"killed, and still there: {pids}")
        time.sleep(0.05)


def power_on(machines: HostSet, host: str) -> None:
    """Start a machine's disks and then the machine, unless it runs."""
    if process(host) is not None:
        return
    power_off([host])  # disks that a machine left behind which ended itself
    for name in disk_names(host):
        for left in (disk_socket(name), pid_file(name)):
            left.unlink(missing_ok=True)
        # The cache is a file without a name in this directory; it goes with its process.
        # In sessions of their own: whoever interrupts this program does not cut the machines' power.
        privileged("setsid", "env", f"TMPDIR={DIRECTORY / 'disks'}", *disk_command(name))
        wait_served(name)
    connect(machines, host)
    privileged("setsid", *rank(CPUINFO.read_text()), *machine_command(machines, host, Path(machines.image)))


def wait_served(name: str) -> None:
    """Wait until a disk's process says that it listens: it notes its number then, and not before."""
    deadline_s = time.monotonic() + 10
    while process(name) is None:
        if time.monotonic() > deadline_s:
            raise HostsError(f"nbdkit did not begin to serve {name}")
        time.sleep(0.02)


def wait_ready(machines: HostSet, host: str) -> None:
    """Wait until a machine lets us in and its systemd has started everything; the wait is about silence, not time.

    Raises:
        HostsError: it ended, or said nothing any more; with the end of its console.
    """
    login = login_to(machines, host)
    began_s = heard_s = time.monotonic()
    said = -1
    while run(*login, "systemctl is-system-running --wait >/dev/null; systemctl is-active ssh", check=False).returncode:
        now_s = time.monotonic()
        size = console(host).stat().st_size if console(host).exists() else 0
        if size != said:
            said, heard_s = size, now_s
        if process(host) is None or now_s - heard_s > SILENCE_S or now_s - began_s > START_LIMIT_S:
            state = "ended" if process(host) is None else f"did not let us in within {now_s - began_s:.0f} s"
            raise HostsError(f"{host} {state}; its console said last:\n{console_tail(host)}")
        time.sleep(1)


def login_to(machines: HostSet, host: str) -> list[str]:
    """Return how to run a command on a machine, which may vanish meanwhile.

    Of an option that is given twice, ssh takes the first: an exchange of keys that is given up is one more to be done.
    """
    patience = ["-o", f"ConnectTimeout={LOGIN_S}", "-o", "ServerAliveInterval=15", "-o", "LogLevel=ERROR"]
    options = [*patience, *hosts.ssh_options(machines)]
    return ["ssh", *options, f"{machines.user}@{machines.hosts[host].ip}"]


def console_tail(host: str, lines: int = 30) -> str:
    """Return the end of what a machine said on its console."""
    text = console(host).read_text(errors="replace") if console(host).exists() else ""
    return "\n".join(text.splitlines()[-lines:])


# --- network


def bridge(machines: HostSet) -> None:
    """Make the machines' network: a bridge of its own, with this machine at the gateway's address."""
    if run("ip", "link", "show", machines.network, check=False).returncode == 0:
        return
    length = ipaddress.IPv4Network(machines.subnet).prefixlen
    privileged("ip", "link", "add", machines.network, "type", "bridge")
    privileged("ip", "address", "add", f"{machines.gateway}/{length}", "dev", machines.network)
    privileged("ip", "link", "set", machines.network, "up")


def connect(machines: HostSet, host: str) -> None:
    """Make a machine's cable and plug it in."""
    name = tap(machines, host)
    if run("ip", "link", "show", name, check=False).returncode != 0:
        privileged("ip", "tuntap", "add", name, "mode", "tap")
    privileged("ip", "link", "set", name, "master", machines.network, "up")


def remove_network(machines: HostSet) -> None:
    """Remove bridge and cables."""
    for name in (*(tap(machines, host) for host in machines.hosts), machines.network):
        if run("ip", "link", "show", name, check=False).returncode == 0:
            privileged("ip", "link", "delete", name)


# --- the verbs


def plan(wanted: Sequence[str]) -> HostSet:
    """Give the machines names and addresses, and write them down; start nothing."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with hosts.machine_lock():
        machines = hosts.load(SET) or new_set()
        machines.image = run(str(hosts.ROOT / "local" / "hosts" / "machine_image.sh"), "tag").stdout.strip()
        for host in wanted:
            facts = hosts.Host(ip=hosts.address(machines, host), container="", disks=plan_disks())
            machines.hosts.setdefault(host, facts)
        emulated = {} if is_real(CPUINFO.read_text()) else EMULATED
        machines.variables = {**emulated, **(ALONE if len(machines.hosts) == 1 else {})}
        hosts.save(machines)
        bridge(machines)
    return machines


def plan_disks() -> list[str]:
    """Return the data disks as the guest names them: behind its system's disk, in the order they are plugged in."""
    return [f"/dev/vd{letter}" for letter in "bcdefgh"[:DISKS_PER_HOST]]


def new_set_name() -> str:
    """Return the name of this checkout's bridge, which leaves room for the names of the cables."""
    return f"pylog{hosts.CHECKOUT_ID}"


def new_set() -> HostSet:
    """Return a set without hosts, on a subnet that nothing on this machine uses."""
    subnet = hosts.free_subnet(f"{hosts.CHECKOUT_ID}-{SET}")
    return HostSet(
        set=SET, network=new_set_name(), subnet=str(subnet), gateway=str(subnet[1]),
        known_hosts=str(DIRECTORY / "known_hosts"), without=WITHOUT,
    )  # fmt: skip


def make_disks(machines: HostSet, host: str) -> None:
    """Make a machine's disks unless they are there: the installed system, and blank ones."""
    system, *blank = map(disk_file, disk_names(host))
    system.parent.mkdir(exist_ok=True)
    for file in blank:
        if not file.exists():
            with file.open("xb") as new:
                new.truncate(DISK_BYTES)
    if system.exists():
        return
    part = system.with_suffix(".part")
    run("cp", "--sparse=always", "--reflink=auto", str(Path(machines.image) / "root.img"), str(part))
    files = identity(machines, host)
    with tempfile.TemporaryDirectory() as directory:
        sources = {path: Path(directory) / str(number) for number, path in enumerate(files)}
        for path, (content, _) in files.items():
            sources[path].write_text(content)
        script = Path(directory) / "script"
        script.write_text(writing(files, sources))
        done = run("/usr/sbin/debugfs", "-w", "-f", str(script), str(part))
    # Its exit code does not say whether a command failed; beside errors it says its version.
    if errors := [line for line in done.stderr.splitlines() if not line.startswith("debugfs ")]:
        raise HostsError(f"what makes {host} this machine could not be written into its disk: {errors}")
    part.rename(system)


def up(wanted: Sequence[str]) -> None:
    """Bring machines up, whatever an earlier run left of them."""
    machines = plan(wanted)
    hosts.ensure_key(Path(machines.ssh_key))
    for host in machines.hosts:
        hosts.ensure_key(host_key(host))
    keys = {host: host_key(host).with_suffix(".pub").read_text().split()[:2] for host in machines.hosts}
    lines = [f"{machines.hosts[host].ip},{host} {' '.join(key)}\n" for host, key in keys.items()]
    Path(machines.known_hosts).write_text("".join(lines))
    privileged("install", "-d", "-m", "755", str(RUN))
    in_parallel(lambda host: make_disks(machines, host), list(machines.hosts))
    machines.apt_proxy = apt_cache.start(machines.gateway)
    hosts.save(machines)
    start(machines, list(machines.hosts))


def start(machines: HostSet, names: Sequence[str]) -> None:
    """Power machines on, and wait until they let us in."""
    began_s = time.monotonic()
    for host in names:
        power_on(machines, host)
    in_parallel(lambda host: wait_ready(machines, host), names)
    say(f"{len(names)} machines are up after {time.monotonic() - began_s:.0f} s: {', '.join(names)}")


def down(machines: HostSet) -> None:
    """Shut machines down as an operator would."""
    for host in powered(machines):
        run(*login_to(machines, host), "systemctl poweroff", check=False)
    deadline_s = time.monotonic() + START_LIMIT_S
    while powered(machines) and time.monotonic() < deadline_s:
        time.sleep(0.5)
    power_off(list(machines.hosts))
    say("the machines are shut down; `python3 -m local.hosts.machines up` continues with their disks")


def destroy(machines: HostSet) -> None:
    """Remove machines, network and disks."""
    power_off(list(machines.hosts))
    remove_network(machines)
    privileged("rm", "-rf", str(RUN))
    privileged("rm", "-rf", str(DIRECTORY))
    say(f"removed {len(machines.hosts)} machines with their disks")


def status(machines: HostSet) -> None:
    """Print who runs."""
    print(f"network {machines.network} {machines.subnet}, package cache {machines.apt_proxy}")
    for host, facts in machines.hosts.items():
        pid = process(host)
        print(f"{host}  {facts.ip}  {f'process {pid}' if pid else 'off'}  console {console(host)}")


def logs(machines: HostSet, host: str, unit: str | None) -> None:
    """Print the end of a machine's journal; of its console, where it does not let us in."""
    options = ["--no-pager", "--lines", "40", *(["--unit", unit] if unit else [])]
    done = run(*login_to(machines, host), "journalctl", *options, check=False)
    print(done.stdout if done.returncode == 0 else console_tail(host))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m local.hosts.machines", description="Virtual machines of this checkout."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("up", "cut", "start"):
        verbs.add_parser(verb).add_argument("hosts", nargs="*")
    for verb in ("down", "destroy", "status"):
        verbs.add_parser(verb)
    log_parser = verbs.add_parser("logs")
    log_parser.add_argument("host")
    log_parser.add_argument("unit", nargs="?")
    return parser.parse_args(arguments)


def carry_out(options: argparse.Namespace) -> None:
    """Run one verb.

    Raises:
        HostsError: there are no machines, or none of that name.
    """
    if options.verb == "up":
        up(options.hosts or DEFAULT_HOSTS)
        return
    machines = hosts.load(SET)
    if machines is None:
        if options.verb in ("down", "destroy", "status"):
            say("there are no machines")
            return
        raise HostsError("there are no machines: python3 -m local.hosts.machines up")
    named = getattr(options, "hosts", None) or ([options.host] if options.verb == "logs" else list(machines.hosts))
    if unknown := [name for name in named if name not in machines.hosts]:
        raise HostsError(f"no machine {', '.join(unknown)}: there are {', '.join(machines.hosts)}")
    match options.verb:
        case "cut":
            power_off(named)
        case "start":
            start(machines, named)
        case "down":
            down(machines)
        case "destroy":
            destroy(machines)
        case "status":
            status(machines)
        case "logs":
            logs(machines, options.host, options.unit)


def main(arguments: Sequence[str]) -> int:
    """Run one verb."""
    options = parse(arguments)
    return hosts.exit_code(lambda: carry_out(options))


if __name__ == "__main__":
    hosts.be_program(main)

"""The local hosts: Debian machines in containers, with disks, addresses and SSH, for Ansible to deploy onto.

`python3 -m local.hosts`, run from the checkout's root:

    [--set NAME] plan [HOST...]    choose names, addresses and devices, start nothing; its options are below
    [--set NAME] up [HOST...]      create or restart what is missing, wait until SSH answers
    [--set NAME] down              stop the hosts; disks and root file systems stay, `up` continues
    [--set NAME] destroy           remove hosts, network, disks and data
    [--set NAME] status            what runs on each host and where it listens
    [--set NAME] cpu               the seconds that processors worked for the hosts since they started
    [--set NAME] shell HOST        a root shell on a host
    [--set NAME] logs HOST [UNIT]  the end of a host's journal; FOLLOW=1 goes on

A set is one network with its hosts; `make up` uses `main`, Molecule and tests name their own and run beside it.
`plan --user deploy --data-network --bastion NAME --behind HOST --behind …` plans hosts as a company hands them over:
DNS names, no login as root, sudo with a password, a second network for data, hosts whose SSH answers the bastion only.
`plan --without GROUP …` leaves groups of the inventory empty.

Names, subnet and loop devices derive from the checkout's path, so two checkouts never meet. What Ansible needs to
know stands in `.local/hosts.json` (`.local/NAME/hosts.json` for another set):

    {"set", "network", "subnet", "gateway", "image", "user", "ssh_key", "known_hosts", "apt_proxy",
     "hosts": {"live1": {"ip", "container", "disks": ["/dev/loop4711", ...], "data_ip"}, ...},
     "data_network", "data_subnet", "bastion", "behind": hosts that only the bastion reaches by SSH,
     "without": groups of the inventory that these hosts leave empty, "variables": what differs on all of them}
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import fcntl
import hashlib
import ipaddress
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from local.hosts import apt_cache

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".local"
CHECKOUT_ID = hashlib.sha256(os.fsencode(ROOT)).hexdigest()[:6]

DEFAULT_HOSTS = ("live1", "live2", "live3", "offline1")
"""Live datacenter: three hosts, each a ZooKeeper server and a broker; offline: one host with mirror and Spark."""

FIRST_ADDRESS = {"live": 10, "offline": 100, "spark": 200}
"""`live2` gets the subnet's address 12, `offline1` 101: the name alone fixes it. `spark1` is a host of the offline
datacenter without a broker."""

SHARED_DIR = "/srv/lake"
"""What all hosts named spark see at one place, as they would a file system of the network."""

DISKS_PER_HOST = 2
DISK_BYTES = 4 << 30
"""Sparse; XFS wants 300 MB at least, and a broker's segments and indexes need room to roll."""

# crun refuses some cgroup layouts. systemd needs the limits named: without them podman passes on the caller's.
RUN_OPTIONS = (
    "--systemd=always",
    "--ulimit=nofile=20000:20000",
    "--ulimit=nproc=30000:30000",
    "--cap-add=SYS_ADMIN",  # mounts the data disks, and systemd's own sandboxing of services
    "--security-opt=unmask=/sys/dev/block",  # without it no UUID leads to a disk
    "--cap-add=NET_ADMIN",  # a firewall of the host's own; its network is nobody else's
    "--cap-add=SYS_RESOURCE",  # where this machine has it, a unit may ask for more files than above
)
INOTIFY_A_HOST = 9
"""Measured: systemd 5, logind 1, the session of whoever deploys 3. With too few, units fail without a word."""
MACHINE_LOCK = Path("/run/lock/pylog-hosts.lock")
LOOP_SPACING = 200
READY_TIMEOUT_S = 90
RESERVED_NAMES = frozenset({"apt-cache", "cache", "disks", "journal", "machines", "shared", "ssh", "wheelhouse"})

READY_SCRIPT = f"""
home=$(getent passwd "$1" | cut -d : -f 6) && [ -n "$home" ] || exit 1
install -d -m 700 -o "$1" "$home/.ssh" && install -m 600 -o "$1" /dev/stdin "$home/.ssh/authorized_keys" || exit 1
end=$(( $(date +%s) + {READY_TIMEOUT_S} ))
while [ "$(date +%s)" -lt $end ]; do
  state=$(timeout {READY_TIMEOUT_S} systemctl is-system-running --wait 2>/dev/null)
  case $state in
    running|degraded)
      if systemctl is-active --quiet ssh; then echo "$state"; cat /etc/ssh/ssh_host_ed25519_key.pub; exit 0; fi;;
  esac
  sleep 0.2
done
echo "systemd says ${{state:-nothing}}, ssh is $(systemctl is-active ssh)" >&2
exit 1
"""

LOGIN_SCRIPT = """
set -e
read -r password
id "$1" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$1"
echo "$1:$password" | chpasswd
echo "$1 ALL=(ALL:ALL) ALL" >/etc/sudoers.d/login
{ echo 'PermitRootLogin no'; echo 'PasswordAuthentication no'; echo "AllowUsers $1${2:+@$2}"; } \
  >/etc/ssh/sshd_config.d/login.conf
systemctl try-reload-or-restart ssh 2>/dev/null || true
"""
"""A login without root: the user $1, whose password for sudo comes in, and who comes from $2 only where it is given."""


class HostsError(Exception):
    """Something about the local hosts went wrong; the message says what and what to do."""


@dataclass(slots=True)
class Host:
    """One host as Ansible sees it."""

    ip: str
    container: str
    disks: list[str]
    data_ip: str = ""


@dataclass(slots=True)
class HostSet:
    """One network with its hosts, as it stands in hosts.json."""

    set: str
    network: str
    subnet: str
    gateway: str
    image: str = ""
    user: str = "root"
    ssh_key: str = str(STATE / "ssh" / "id_ed25519")
    known_hosts: str = ""
    apt_proxy: str = ""
    hosts: dict[str, Host] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)
    data_network: str = ""
    data_subnet: str = ""
    bastion: str = ""
    behind: list[str] = field(default_factory=list)


def say(text: str) -> None:
    """Tell the operator; stdout stays free for what a program may read."""
    print(text, file=sys.stderr, flush=True)


def run(*command: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program and capture what it says.

    Raises:
        HostsError: it failed, and *check* is set; carries its last words.
    """
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        words = (done.stderr or done.stdout).strip()
        raise HostsError(f"{' '.join(command[:6])} … failed with exit code {done.returncode}: {words}")
    return done


def privileged(*command: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program as root."""
    return run(*as_root(*command), stdin=stdin, check=check)


def as_root(*command: str) -> tuple[str, ...]:
    """Return *command* with sudo in front, unless this already is root."""
    return command if os.geteuid() == 0 else ("sudo", *command)


@contextlib.contextmanager
def machine_lock() -> Iterator[None]:
    """Hold what checkouts share, subnets and loop devices, while one of them picks its own."""
    # Opened for reading: that is enough to lock it. The kernel refuses O_CREAT on a file that another user made here.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(MACHINE_LOCK, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o644))
    fd = os.open(MACHINE_LOCK, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


_OPEN_INOTIFY = """
import ctypes, sys
room = 0
while room < int(sys.argv[1]) and ctypes.CDLL(None).inotify_init() >= 0:
    room += 1
print(room)
"""


def inotify_room(wanted: int) -> int:
    """Return how many inotify instances of *wanted* root may still open; containers count with their machine's root."""
    return int(privileged(sys.executable, "-c", _OPEN_INOTIFY, str(wanted)).stdout)


def inotify_remedy() -> str:
    """Return the command that makes room for many more hosts."""
    limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    return f"sysctl -w fs.inotify.max_user_instances={max(1024, 2 * limit)}"


# --- where a set keeps its things


def set_dir(name: str) -> Path:
    """Return the directory of a set's own state."""
    return STATE if name == "main" else STATE / name


def load(name: str) -> HostSet | None:
    """Return the set as hosts.json has it, or None where there is none."""
    try:
        raw: dict[str, Any] = json.loads((set_dir(name) / "hosts.json").read_text())
    except FileNotFoundError:
        return None
    raw["hosts"] = {host: Host(**facts) for host, facts in raw["hosts"].items()}
    return HostSet(**raw)


def save(hosts: HostSet) -> None:
    """Write hosts.json; it is there whole or not at all."""
    path = set_dir(hosts.set) / "hosts.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(hosts), indent=2) + "\n")
    part.replace(path)


def known_sets() -> list[HostSet]:
    """Return every set of this checkout."""
    names = ["main", *(path.parent.name for path in STATE.glob("*/hosts.json"))]
    return [hosts for name in names if (hosts := load(name)) is not None]


# --- names, addresses, loop devices


def plan(name: str) -> HostSet:
    """Give a new set its names and a subnet that nothing on this machine uses."""
    suffix = "" if name == "main" else f"-{name}"
    subnet = free_subnet(f"{CHECKOUT_ID}{suffix}")
    return HostSet(
        set=name,
        network=f"pylog-{CHECKOUT_ID}{suffix}",
        subnet=str(subnet),
        gateway=str(subnet[1]),
        known_hosts=str(set_dir(name) / "known_hosts"),
    )


def used_subnets() -> list[ipaddress.IPv4Network]:
    """Return what this machine routes or podman has promised to a network."""
    destinations = [route["dst"] for route in json.loads(run("ip", "-json", "-4", "route", "show").stdout or "[]")]
    networks = json.loads(privileged("podman", "network", "ls", "--format", "json").stdout or "[]")
    promised = [subnet["subnet"] for network in networks for subnet in network.get("subnets") or []]
    return [
        parsed
        for text in [*destinations, *promised]
        if text != "default" and isinstance(parsed := ipaddress.ip_network(text, strict=False), ipaddress.IPv4Network)
    ]


def free_subnet(seed: str) -> ipaddress.IPv4Network:
    """Return a free /24 of 10.64.0.0/10, starting from where *seed* points."""
    used = used_subnets()
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:2], "big")
    for step in range(1 << 14):
        number = (start + step) % (1 << 14)
        subnet = ipaddress.IPv4Network(f"10.{64 + (number >> 8)}.{number & 0xFF}.0/24")
        if not any(subnet.overlaps(other) for other in used):
            return subnet
    raise HostsError("no free /24 in 10.64.0.0/10: remove podman networks that are no longer needed")


def address(hosts: HostSet, host: str) -> str:
    """Return the address that belongs to a host's name; one with a DNS name gets the next that is free."""
    if "." in host:
        taken = {facts.ip for facts in hosts.hosts.values()}
        free = (str(one) for one in list(ipaddress.IPv4Network(hosts.subnet).hosts())[9:])
        return next(one for one in free if one not in taken)
    match = re.fullmatch(r"(live|offline|spark)([1-9][0-9]?)", host)
    if match is None or (match[1] == "spark" and int(match[2]) > 50):
        raise HostsError(f"unknown host {host!r}: names are live1…live89, offline1…offline99 and spark1…spark50")
    number = FIRST_ADDRESS[match[1]] + int(match[2])
    return str(ipaddress.IPv4Network(hosts.subnet)[number])


def data_name(host: str) -> str:
    """Return the DNS name of a host in the network for data."""
    label, _, domain = host.partition(".")
    return f"{label}.data.{domain}"


def names(hosts: HostSet) -> list[tuple[str, str]]:
    """Return address and name of every host of a set with DNS names, in each of its networks."""
    known = [(facts.ip, name) for name, facts in hosts.hosts.items() if "." in name]
    return known + [(facts.data_ip, data_name(name)) for name, facts in hosts.hosts.items() if facts.data_ip]


def attached_loops() -> dict[str, str]:
    """Return the backing file of every loop device in use."""
    text = privileged("losetup", "--list", "--json", "--output", "NAME,BACK-FILE").stdout
    devices = json.loads(text)["loopdevices"] if text.strip() else []
    return {device["name"]: device["back-file"] for device in devices}


def pick_loops(hosts: HostSet, count: int) -> list[str]:
    """Choose loop devices that neither the machine nor a stopped set of this checkout uses.

    The numbers start far above those that `losetup --find` hands out, at a place of this checkout's own: after a
    reboot they are still free, and a container keeps the devices it was made with.
    """
    taken = set(attached_loops())
    for other in [*known_sets(), hosts]:
        taken.update(disk for host in other.hosts.values() for disk in host.disks)
    first = 1000 + int(CHECKOUT_ID, 16) % 4000 * LOOP_SPACING
    free = [device for number in range(first, first + LOOP_SPACING) if (device := f"/dev/loop{number}") not in taken]
    if len(free) < count:
        raise HostsError(f"loop devices {first}…{first + LOOP_SPACING - 1} are all in use: see losetup --list")
    return free[:count]


def disk_file(hosts: HostSet, host: str, number: int) -> Path:
    """Return the sparse file behind a host's disk; numbers start at 1."""
    return set_dir(hosts.set) / "disks" / f"{host}-{number}.img"


def attach_disks(hosts: HostSet, host: str) -> None:
    """Make every disk of a host exist under exactly the device name it was given."""
    attached = attached_loops()
    for number, device in enumerate(hosts.hosts[host].disks, start=1):
        file = disk_file(hosts, host, number)
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            with file.open("xb") as new:
                new.truncate(DISK_BYTES)
        if device not in attached:
            privileged("losetup", device, str(file))
        elif attached[device] != str(file):
            raise HostsError(
                f"{device} of {host} is in use for {attached[device]}: free it with `losetup -d {device}`, "
                "or start over with `make down`"
            )


def detach_disks(hosts: HostSet) -> None:
    """Give back the loop devices of this set, and only those that still carry its files."""
    attached = attached_loops()
    for host, facts in hosts.hosts.items():
        for number, device in enumerate(facts.disks, start=1):
            if attached.get(device, "").removesuffix(" (deleted)") == str(disk_file(hosts, host, number)):
                privileged("losetup", "--detach", device)


# --- containers


def container_states(hosts: HostSet) -> dict[str, tuple[str, str]]:
    """Return state and image of every container of this set, by container name."""
    text = privileged(
        "podman", "ps", "--all", "--filter", f"label=pylog.network={hosts.network}", "--format", "json"
    ).stdout
    return {c["Names"][0]: (c["State"], c["Image"]) for c in json.loads(text or "[]")}


def create(hosts: HostSet, host: str) -> None:
    """Create and start one host."""
    facts = hosts.hosts[host]
    # A journal on the container's own tmpfs would not survive a reboot of this machine; a real host's does.
    journal = set_dir(hosts.set) / "journal" / host
    journal.mkdir(parents=True, exist_ok=True)
    volumes = [f"--volume={journal}:/var/log/journal"]
    if host.startswith("spark"):
        shared = set_dir(hosts.set) / "shared"
        shared.mkdir(exist_ok=True)
        volumes.append(f"--volume={shared}:{SHARED_DIR}")
    privileged(
        "podman",
        "--runtime=runc",
        "run",
        "--detach",
        "--name",
        facts.container,
        "--hostname",
        host,
        f"--network={hosts.network}:ip={facts.ip},alias={host}",
        *([f"--network={hosts.data_network}:ip={facts.data_ip}"] if facts.data_ip else []),
        *(f"--add-host={name}:{ip}" for ip, name in names(hosts)),
        "--label",
        f"pylog.checkout={ROOT}",
        "--label",
        f"pylog.network={hosts.network}",
        *volumes,
        *RUN_OPTIONS,
        *(f"--device={disk}" for disk in facts.disks),
        hosts.image,
    )


def bring_up(hosts: HostSet, host: str, state: str | None) -> None:
    """Make one host run, whatever an earlier run left of it."""
    container = hosts.hosts[host].container
    if state in ("created", "configured", "initialized"):
        # Never ran: an interrupted run left it, and there is nothing in it to keep.
        privileged("podman", "rm", "--force", container)
        state = None
    if state is None:
        create(hosts, host)
    elif state != "running":
        privileged("podman", "start", container)


def wait_ready(hosts: HostSet, host: str) -> str:
    """Wait until systemd has booted a host and sshd answers; return its known_hosts line."""
    facts = hosts.hosts[host]
    public_key = Path(hosts.ssh_key + ".pub").read_text()
    within = ("podman", "exec", "--interactive", facts.container, "sh", "-c")
    if hosts.user != "root":
        password = sudo_password(hosts)
        door = hosts.hosts[hosts.bastion].ip if host in hosts.behind else ""
        privileged(*within, LOGIN_SCRIPT, "login", hosts.user, door, stdin=f"{password}\n")
    done = privileged(*within, READY_SCRIPT, "ready", hosts.user, stdin=public_key, check=False)
    if done.returncode != 0:
        raise HostsError(f"{host} did not come up: {done.stderr.strip()}\n{journal_tail(hosts, host)}")
    state, key = done.stdout.strip().splitlines()
    if state == "degraded":
        say(f"{host}: some units failed (systemctl --failed)")
    return f"{facts.ip},{host} {' '.join(key.split()[:2])}\n"


def sudo_password(hosts: HostSet) -> str:
    """Return what sudo asks for on the hosts of a set."""
    return (set_dir(hosts.set) / "sudo.secret").read_text().strip()


def check_ssh(hosts: HostSet, host: str) -> None:
    """Log in once, the way Ansible will."""
    login = f"{hosts.user}@{hosts.hosts[host].ip}"
    options = ssh_options(hosts)
    if host in hosts.behind:
        # Not ProxyJump: the ssh to the bastion would not have these options.
        way = shlex.join(["ssh", *options, "-W", "%h:%p", f"{hosts.user}@{hosts.hosts[hosts.bastion].ip}"])
        options = [*options, "-o", f"ProxyCommand={way}"]
    command = ("ssh", *options, login, "true")
    # Whoever spoke to a host of this address before remembers its former interface for half a minute.
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while run(*command, check=False).returncode != 0:
        if time.monotonic() > deadline_s:
            run(*command)
        time.sleep(1)


def ssh_options(hosts: HostSet) -> list[str]:
    """Return the options that reach a host and trust no other machine at its address."""
    return [
        "-i",
        hosts.ssh_key,
        "-o",
        f"UserKnownHostsFile={hosts.known_hosts}",
        "-o",
        "IdentitiesOnly=yes",
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=yes",
        "-o",
        "ConnectTimeout=10",
        "-F",
        "none",
    ]


def journal_tail(hosts: HostSet, host: str, unit: str | None = None, lines: int = 40) -> str:
    """Return the end of a host's journal, for a message about what failed."""
    command = ["journalctl", "--no-pager", "--lines", str(lines), *(["--unit", unit] if unit else [])]
    return privileged("podman", "exec", hosts.hosts[host].container, *command, check=False).stdout


def in_parallel(work: Callable[[str], Any], names: Sequence[str]) -> dict[str, Any]:
    """Do the same for several hosts at once.

    Raises:
        HostsError: one or more failed; all of their messages.
    """
    results: dict[str, Any] = {}
    errors: list[str] = []
    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        futures = {pool.submit(work, name): name for name in names}
        for future in concurrent.futures.as_completed(futures):
            try:
                results[futures[future]] = future.result()
            except HostsError as error:
                errors.append(f"{futures[future]}: {error}")
    if errors:
        raise HostsError("\n".join(errors))
    return results


# --- the verbs


def reserve(name: str, wanted: Sequence[str], without: Sequence[str] = ()) -> HostSet:
    """Give a set and its hosts names, addresses and devices, and write them down; start nothing."""
    set_dir(name).mkdir(parents=True, exist_ok=True)
    with machine_lock():
        hosts = load(name) or plan(name)
        hosts.without = list(without) or hosts.without
        hosts.image = run(str(ROOT / "local" / "hosts" / "image.sh"), "tag").stdout.strip()
        for host in wanted:
            if host not in hosts.hosts:
                facts = Host(ip=address(hosts, host), container=f"{hosts.network}-{host}", disks=[])
                facts.disks = pick_loops(hosts, DISKS_PER_HOST)
                hosts.hosts[host] = facts
                if hosts.data_subnet and host != hosts.bastion:
                    offset = int(ipaddress.ip_address(facts.ip)) - int(ipaddress.ip_network(hosts.subnet)[0])
                    facts.data_ip = str(ipaddress.ip_network(hosts.data_subnet)[offset])
        save(hosts)
        make_network(hosts.network, hosts.subnet)
    return hosts


def make_network(name: str, subnet: str, *options: str) -> None:
    """Make a network unless it is there; its gateway is the first address."""
    if privileged("podman", "network", "exists", name, check=False).returncode != 0:
        gateway = str(ipaddress.ip_network(subnet)[1])
        within = ("--subnet", subnet, "--gateway", gateway, "--label", f"pylog.checkout={ROOT}")
        privileged("podman", "network", "create", *within, *options, name)


def hand_over(name: str, user: str, has_data_network: bool, bastion: str, behind: Sequence[str]) -> None:
    """Plan a set whose hosts are as a company hands them over, before its hosts are planned.

    Nothing leads from its networks to anywhere else.
    """
    set_dir(name).mkdir(parents=True, exist_ok=True)
    with machine_lock():
        hosts = load(name) or plan(name)
        hosts.user, hosts.bastion, hosts.behind = user, bastion, list(behind)
        # Here, and not when a host comes up: several do at once.
        path = set_dir(name) / "sudo.secret"
        path.touch(mode=0o600)
        if not path.read_text():
            path.write_text(secrets.token_hex(16) + "\n")
        make_network(hosts.network, hosts.subnet, "--internal")
        if has_data_network:
            hosts.data_network = f"{hosts.network}-data"
            hosts.data_subnet = hosts.data_subnet or str(free_subnet(hosts.data_network))
            make_network(hosts.data_network, hosts.data_subnet, "--internal")
        save(hosts)


def up(name: str, wanted: Sequence[str]) -> None:
    """Bring a set up: create what is missing, restart what stopped, keep what runs."""
    began = time.monotonic()
    hosts = reserve(name, wanted)
    with machine_lock():
        for host in hosts.hosts:
            attach_disks(hosts, host)
    ensure_key(Path(hosts.ssh_key))
    states = container_states(hosts)
    for container, (_, old_image) in states.items():
        if old_image != hosts.image:
            say(f"{container} keeps the older image it was made from; `make down` and `make up` renew it")
    everyone = list(hosts.hosts)
    starting = sum(states.get(facts.container, ("", ""))[0] != "running" for facts in hosts.hosts.values())
    if (room := inotify_room(starting * INOTIFY_A_HOST)) < starting * INOTIFY_A_HOST:
        raise HostsError(
            f"inotify instances: found room for {room} more, wanted {starting * INOTIFY_A_HOST} for {starting} hosts: "
            f"{inotify_remedy()}"
        )
    in_parallel(lambda host: bring_up(hosts, host, states.get(hosts.hosts[host].container, (None, ""))[0]), everyone)
    keys = in_parallel(lambda host: wait_ready(hosts, host), everyone)
    Path(hosts.known_hosts).write_text("".join(keys[host] for host in everyone))
    in_parallel(lambda host: check_ssh(hosts, host), everyone)
    # Only now: the bridge, whose address the cache listens on, exists once a container runs.
    hosts.apt_proxy = apt_cache.start(hosts.gateway)
    save(hosts)
    say(f"{len(everyone)} hosts of set {name} are up after {time.monotonic() - began:.1f} s: {', '.join(everyone)}")


def ensure_key(path: Path) -> None:
    """Make this checkout's SSH key unless it is there."""
    if path.exists() and path.with_suffix(".pub").exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"pylog {ROOT}", "-f", str(path))


def down(name: str) -> None:
    """Stop a set; everything on its disks stays."""
    hosts = load(name)
    if hosts is None:
        say(f"there is no set {name}")
        return
    containers = list(container_states(hosts))
    in_parallel(lambda container: privileged("podman", "stop", "--time", "30", container), containers)
    detach_disks(hosts)
    say(f"stopped {len(containers)} hosts of set {name}; `python3 -m local.hosts up` continues with their data")


def destroy(name: str) -> None:
    """Remove a set with all its data."""
    hosts = load(name)
    if hosts is None:
        say(f"there is no set {name}")
        return
    containers = list(container_states(hosts))
    in_parallel(lambda container: privileged("podman", "rm", "--force", "--time", "0", container), containers)
    for network in filter(None, (hosts.network, hosts.data_network)):
        if privileged("podman", "network", "exists", network, check=False).returncode == 0:
            privileged("podman", "network", "rm", network)
    detach_disks(hosts)
    directory = set_dir(name)
    # The hosts' root wrote there.
    privileged("rm", "-rf", *(str(directory / name) for name in ("disks", "journal", "shared")))
    for file in ("known_hosts", "hosts.json"):
        (directory / file).unlink(missing_ok=True)
    if name != "main":
        shutil.rmtree(directory, ignore_errors=True)
    say(f"removed {len(containers)} hosts of set {name} with their data")


STATUS_SCRIPT = """
echo "  systemd: $(systemctl is-system-running)"
systemctl list-units --all --plain --no-legend --type=service,timer 'pylog*' 'zookeeper*' \
  | awk '{ printf "  unit %-36s %s (%s)\\n", $1, $3, $4 }'
ss -ltnH | awk '{ n = split($4, part, ":"); if (part[n] != 22) print part[n] }' | sort -nu | tr '\\n' ' ' \
  | sed 's/^\\(.\\)/  ports \\1/; s/$/\\n/'
df --output=target,used,avail -h -t xfs 2>/dev/null \\
  | awk 'NR > 1 { printf "  disk %s: %s used, %s free\\n", $1, $2, $3 }'
"""


def status(name: str) -> None:
    """Print every host with its units, ports and disks."""
    hosts = load(name)
    if hosts is None:
        print(f"no hosts in set {name}: `make up` creates them")
        return
    states = container_states(hosts)
    print(f"set {name}: network {hosts.network} {hosts.subnet}, package cache {hosts.apt_proxy}")
    for host, facts in hosts.hosts.items():
        state = states.get(facts.container, ("absent", ""))[0]
        print(f"{host}  {facts.ip}  {facts.container}  {state}")
        if state == "running":
            print(privileged("podman", "exec", facts.container, "sh", "-c", STATUS_SCRIPT, check=False).stdout, end="")


def cpu(name: str) -> None:
    """Print the seconds that processors worked for the running hosts of a set; 0 where there are none."""
    hosts = load(name)
    states = container_states(hosts) if hosts else {}
    running = [container for container, (state, _) in states.items() if state == "running"]
    command = ["sh", "-c", "cat /proc/[0-9]*/stat"]
    stats = [privileged("podman", "exec", container, *command, check=False).stdout for container in running]
    print(round(sum(map(processor_seconds, stats)), 1))


def processor_seconds(stats: str) -> float:
    """Return what all processes used, those included that ended and were waited for.

    Args:
        stats: a line of /proc/PID/stat for each process there is.
    """
    # After the name, which may have blanks and brackets, come 11 fields, then utime, stime, cutime and cstime.
    ticks = sum(int(field) for line in stats.splitlines() for field in line.rpartition(")")[2].split()[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def find(name: str, host: str) -> tuple[HostSet, Host]:
    """Return a host that exists.

    Raises:
        HostsError: it does not; names those that do.
    """
    hosts = load(name)
    if hosts is None or host not in hosts.hosts:
        there = ", ".join(hosts.hosts) if hosts else "none"
        raise HostsError(f"no host {host or '(name one: HOST=live1)'} in set {name}: there are {there}")
    return hosts, hosts.hosts[host]


def shell(name: str, host: str) -> None:
    """Become a root shell on a host."""
    _, facts = find(name, host)
    command = as_root("podman", "exec", "--interactive", "--tty", facts.container, "bash", "--login")
    os.execvp(command[0], command)


def logs(name: str, host: str, unit: str | None) -> None:
    """Become journalctl on a host."""
    _, facts = find(name, host)
    options = ["--no-pager", "--lines", "200", *(["--unit", unit] if unit else [])]
    if os.environ.get("FOLLOW"):
        options.append("--follow")
    command = as_root("podman", "exec", facts.container, "journalctl", *options)
    os.execvp(command[0], command)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python3 -m local.hosts", description="The local hosts of this checkout.")
    parser.add_argument("--set", dest="name", default="main", help="which set of hosts (default: main)")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("plan", "up"):
        verbs.add_parser(verb).add_argument("hosts", nargs="*", default=list(DEFAULT_HOSTS))
    planning = verbs.choices["plan"]
    planning.add_argument("--user", default="root", help="who logs in; sudo asks all but root for a password")
    planning.add_argument("--data-network", action="store_true", help="a second network, with names of its own")
    planning.add_argument("--bastion", default="", metavar="HOST", help="the host that others are reached through")
    planning.add_argument("--behind", action="append", default=[], metavar="HOST", help="a host behind the bastion")
    planning.add_argument("--without", action="append", default=[], metavar="GROUP", help="a group that stays empty")
    for verb in ("down", "destroy", "status", "cpu"):
        verbs.add_parser(verb)
    verbs.add_parser("shell").add_argument("host", nargs="?", default="")
    log_parser = verbs.add_parser("logs")
    log_parser.add_argument("host", nargs="?", default="")
    log_parser.add_argument("unit", nargs="?")
    parsed = parser.parse_args(arguments)
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", parsed.name) or parsed.name in RESERVED_NAMES:
        parser.error(f"a set's name is lower-case letters, digits and dashes, and none of {sorted(RESERVED_NAMES)}")
    return parsed


def carry_out(options: argparse.Namespace) -> None:
    """Run one verb."""
    match options.verb:
        case "plan":
            if options.user != "root":
                hand_over(options.name, options.user, options.data_network, options.bastion, options.behind)
            reserve(options.name, options.hosts, options.without)
        case "up":
            up(options.name, options.hosts)
        case "down":
            down(options.name)
        case "destroy":
            destroy(options.name)
        case "status":
            status(options.name)
        case "cpu":
            cpu(options.name)
        case "shell":
            shell(options.name, options.host)
        case "logs":
            logs(options.name, options.host, options.unit)


def exit_code(work: Callable[[], None]) -> int:
    """Do *work* and return the command's exit code; what went wrong is said."""
    try:
        work()
    except (HostsError, TimeoutError) as error:
        say(f"error: {error}")
        return 1
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run one verb."""
    options = parse(arguments)
    return exit_code(lambda: carry_out(options))


def be_program(run: Callable[[Sequence[str]], int]) -> NoReturn:
    """Make *run* this process: `make status | head` is no error, which a process of somebody else may see otherwise."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(run(sys.argv[1:]))

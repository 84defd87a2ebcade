"""Check everything the local cluster needs of this machine, all of it before anything fails half-way.

Prints a table (check, found, wanted, remedy) and ends with exit code 1 when a need is not met. Changes nothing.
"""

from __future__ import annotations

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from local.hosts import hosts

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30

# Measured on the finished local cluster: four hosts with a ZooKeeper server and a broker each, one with Spark.
WANTED_CORES = 2
WANTED_MEMORY_BYTES = 6 * GIB
WANTED_DISK_BYTES = 15 * GIB
NETWORK_TIMEOUT_S = 15
FOUND_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """One row: what was looked at, what is there, what should be, what to do about it."""

    check: str
    found: str
    wanted: str
    is_met: bool
    remedy: str = ""


def first_line(*command: str) -> str:
    """Return the first line a program prints, or nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=NETWORK_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next(iter((done.stdout or done.stderr).splitlines()), "")


def system() -> Finding:
    """Debian 12: the hosts' packages and the control machine's tools come from its archive."""
    release = dict(re.findall(r'(?m)^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text()))
    found = f"{release.get('ID')} {release.get('VERSION_ID', '')}, {os.uname().machine}"
    is_met = found.startswith("debian 12,") and os.uname().machine in ("x86_64", "aarch64")
    return Finding("system", found, "debian 12, 64 bit", is_met, "use a Debian 12 machine")


def rights() -> Finding:
    """Root, or sudo that needs no password now."""
    if os.geteuid() == 0:
        return Finding("rights", "root", "root or sudo", True)
    if shutil.which("sudo") is None:
        return Finding("rights", "neither", "root or sudo", False, "run make as root, or install sudo")
    works = subprocess.run(["sudo", "--non-interactive", "true"], capture_output=True, check=False).returncode == 0
    return Finding("rights", "sudo" if works else "sudo, locked", "root or sudo", works, "run `sudo -v` first")


def cores() -> Finding:
    """Processor cores this process may use."""
    count = len(os.sched_getaffinity(0))
    return Finding("cores", str(count), f"{WANTED_CORES}", count >= WANTED_CORES, "give the machine more cores")


def memory() -> Finding:
    """Memory that could be had, page cache included; what our own hosts hold counts as had."""
    available = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable:")
    )
    is_ours = hosts.load("main") is not None
    return Finding(
        "memory",
        f"{available / GIB:.1f} GiB free" + (", hosts exist" if is_ours else ""),
        f"{WANTED_MEMORY_BYTES // GIB} GiB",
        is_ours or available >= WANTED_MEMORY_BYTES,
        "stop other programs, or give the machine more memory",
    )


def disk() -> Finding:
    """Room where the checkout lies, and where podman keeps root file systems."""
    storage = Path("/var/lib/containers")
    places = [ROOT, storage if storage.exists() else Path("/var/lib")]
    free = min(shutil.disk_usage(place).free for place in places)
    is_ours = hosts.load("main") is not None
    return Finding(
        "disk",
        f"{free / GIB:.0f} GiB free",
        f"{WANTED_DISK_BYTES // GIB} GiB",
        is_ours or free >= WANTED_DISK_BYTES,
        f"make room below {' or '.join(map(str, places))}",
    )


def file_systems() -> Finding:
    """Overlay for containers, XFS for their data disks."""
    known = Path("/proc/filesystems").read_text().split()
    wanted = ("overlay", "xfs")
    missing = [name for name in wanted if name not in known and not first_line("/sbin/modinfo", "-n", name)]
    return Finding(
        "file systems",
        "all" if not missing else f"no {', '.join(missing)}",
        ", ".join(wanted),
        not missing,
        "use a kernel with these file systems (Debian's own has them)",
    )


def loop_devices() -> Finding:
    """Loop devices carry the hosts' data disks."""
    there = Path("/dev/loop-control").exists() or bool(first_line("/sbin/modinfo", "-n", "loop"))
    return Finding("loop devices", "yes" if there else "no /dev/loop-control", "yes", there, "modprobe loop")


def control_groups() -> Finding:
    """Either layout serves, but systemd inside a container needs one of them."""
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        found = "v2"
    elif Path("/sys/fs/cgroup/systemd").exists():
        found = "v1 with systemd's hierarchy"
    else:
        found = "none mounted"
    return Finding(
        "control groups", found, "v2, or v1 with systemd", found != "none mounted", "mount cgroup2 on /sys/fs/cgroup"
    )


def inotify() -> Finding:
    """Every systemd takes several; with too few, services of the last host fail without a word."""
    missing = len(hosts.DEFAULT_HOSTS) if hosts.load("main") is None else 0
    wanted = missing * hosts.INOTIFY_A_HOST
    room = hosts.inotify_room(wanted)
    return Finding(
        "inotify instances",
        f"room for {room}" if missing else "hosts exist",
        f"room for {wanted}",
        room >= wanted,
        hosts.inotify_remedy(),
    )


def packages() -> Finding:
    """What setup installs."""
    done = subprocess.run([ROOT / "local" / "setup.sh", "missing"], capture_output=True, text=True, check=False)
    missing = done.stdout.split()
    return Finding(
        "Debian packages", "all" if not missing else f"without {', '.join(missing)}", "all", not missing, "make setup"
    )


def python_packages() -> Finding:
    """The control machine's own Python packages; where there are none yet, `make up` and `make setup` put them."""
    python = ROOT / ".venv" / "bin" / "python"
    found = first_line(str(python), "--version").removeprefix("Python ") if python.exists() else "none yet"
    is_met = found == "none yet" or bool(re.match(r"3\.(1[1-9]|[2-9]\d)", found))
    return Finding("Python of .venv", found or "does not start", "3.11 or newer", is_met, "rm -r .venv; make setup")


def container() -> Finding:
    """Start a container the way hosts are started, out of three files of this machine."""
    wanted = "a container starts"
    if not all(shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") for name in ("podman", "runc")):
        return Finding("podman, runc", "not installed", wanted, False, "make setup")
    root = tempfile.mkdtemp(prefix="pylog-doctor-")
    try:
        listing = subprocess.run(["ldd", "/bin/true"], capture_output=True, text=True, check=False).stdout
        for file in ["/bin/true", *re.findall(r"(/\S+) \(0x", listing)]:
            target = Path(root + file)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        command = hosts.as_root(
            "podman", "--runtime=runc", "run", "--rm", *hosts.RUN_OPTIONS, "--rootfs", root, "/bin/true"
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        return Finding("podman, runc", "no answer in 60 s", wanted, False, "podman info")
    finally:
        hosts.privileged("rm", "-rf", root, check=False)  # podman left root's files in it
    found = "starts" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
    return Finding("podman, runc", found, wanted, done.returncode == 0, "podman info; journalctl --dmesg | tail")


def network() -> Finding:
    """A /24 of our own for the hosts."""
    if shutil.which("podman") is None:
        return Finding("subnet", "unknown without podman", "a free /24", False, "make setup")
    try:
        ours = hosts.load("main")
        found = f"{ours.subnet}, ours" if ours else f"{hosts.free_subnet(hosts.CHECKOUT_ID)} is free"
    except hosts.HostsError as error:
        return Finding("subnet", str(error), "a free /24", False, "podman network prune")
    return Finding("subnet", found, "a free /24", True)


def leftovers() -> Finding:
    """Containers of this checkout that no state file knows; `make down` finds them by their label."""
    if shutil.which("podman") is None:
        return Finding("leftovers", "none", "none", True)
    known = {host.container for each in hosts.known_sets() for host in each.hosts.values()}
    text = hosts.privileged(
        "podman", "ps", "--all", "--filter", f"label=pylog.checkout={ROOT}", "--format", "{{.Names}}", check=False
    ).stdout
    strays = sorted(set(text.split()) - known)
    return Finding("leftovers", ", ".join(strays) or "none", "none", not strays, "make down")


def reaches(check: str, url: str, remedy: str) -> Finding:
    """Ask a server for one small thing, through whatever proxy the environment names."""
    server = urllib.parse.urlsplit(url).hostname or url
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=NETWORK_TIMEOUT_S) as answer:
            found = f"answers {answer.status}"
    except urllib.error.HTTPError as error:
        # It speaks HTTP and is there; that this very page is not, says nothing.
        found = f"answers {error.code}"
    except OSError as error:
        return Finding(check, str(getattr(error, "reason", error)), server, False, remedy)
    return Finding(check, found, server, True)


def debian_mirror() -> Finding:
    """Where apt on this machine and on the hosts fetches packages."""
    command = ["apt-get", "indextargets", "--format", "$(SITE)/dists/$(RELEASE)/InRelease", "Created-By: Packages"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    url = next((one for one in listed if one.endswith("/dists/bookworm/InRelease")), None)
    if url is None:
        remedy = "add Debian 12's archive to /etc/apt/sources.list"
        return Finding("Debian mirror", "none in apt's sources", "one with bookworm", False, remedy)
    return reaches("Debian mirror", url, "check name resolution and http_proxy")


def python_index() -> Finding:
    """Where pip and uv fetch packages."""
    uv = ROOT / ".local" / "cache" / "uv-venv" / "bin" / "uv"
    if not uv.exists():
        # Only what asks as the installation will can tell: an address looked up here may be another one.
        return Finding("Python index", "nothing to ask it with yet", "answers", True, "make setup asks it")
    remedy = "set UV_DEFAULT_INDEX to one you reach"
    command = [str(uv), "pip", "compile", "--quiet", "--refresh-package", "pip", "-"]
    try:
        done = subprocess.run(command, input="pip", capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        return Finding("Python index", "no answer in a minute", "answers", False, remedy)
    lines = done.stderr.strip().splitlines() or ["refused"]
    found = "answers" if done.returncode == 0 else lines[-1][:60]
    return Finding("Python index", found, "answers", done.returncode == 0, remedy)


def maven_repository() -> Finding:
    """Where the interop tests fetch Apache Kafka's jars."""
    if any((ROOT / ".local" / "cache").glob("kafka-*/*.jar")):
        return Finding("Maven repository", "not needed, the jars are here", "for `make test` only", True)
    command = [
        "mvn",
        "-q",
        "-B",
        "dependency:get",
        "-Dartifact=org.apache.kafka:kafka-clients:3.9.2:pom",
        "-Dtransitive=false",
    ]
    try:
        is_there = subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        is_there = False
    # Met in either case: `make up`, which stops at what is not met, needs no jars.
    found = "answers" if is_there else "does not answer: `make test` fails, `make up` works"
    return Finding("Maven repository", found, "for `make test` only", True)


CHECKS: tuple[Callable[[], Finding], ...] = (
    system,
    rights,
    cores,
    memory,
    disk,
    file_systems,
    loop_devices,
    control_groups,
    inotify,
    packages,
    python_packages,
    container,
    network,
    leftovers,
    debian_mirror,
    python_index,
    maven_repository,
)


def table(findings: list[Finding]) -> str:
    """Return the findings as aligned columns; a remedy stands only where one is needed."""
    rows = [("", "check", "found", "wanted", "remedy")]
    rows += [
        (
            "ok" if f.is_met else "FAIL",
            f.check,
            textwrap.shorten(f.found, FOUND_WIDTH, placeholder=" …"),
            f.wanted,
            "" if f.is_met else f.remedy,
        )
        for f in findings
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def main() -> int:
    """Run all checks at once; the slow ones wait for the network or a container."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(CHECKS)) as pool:
        findings = list(pool.map(lambda check: check(), CHECKS))
    print(table(findings))
    unmet = sum(not finding.is_met for finding in findings)
    print(f"{len(findings)} checks, {unmet} not met" if unmet else f"{len(findings)} checks, all met")
    return 1 if unmet else 0


if __name__ == "__main__":
    sys.exit(main())

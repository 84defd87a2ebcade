"""What runs on a host: one program, sent over SSH to the host's own Python, that prints what it found as JSON.

It reads and waits, it never changes anything.  The standard library is all it needs, because a host that is being
checked before its first installation has nothing else::

    python3 - facts     '{"disks": ["/dev/vdb"], "names": ["h1"]}'   what preflight judges
    python3 - disks     '{"disks": ["/dev/vdb"]}'                    what is on these disks
    python3 - brokers   '{"brokers": [1, 2], "wait_s": 60}'          what each broker instance says of itself
    python3 - zookeeper '{"id": 1, "port": 2181, "members": 3, ...}' role, followers, what changed since its start
    python3 - ensemble  '{"servers": {"zk1": "10.0.0.1:2181"}}'   whether all servers of an ensemble serve
    python3 - units     '{"units": {"pylog-ship": "/run/..."}}'      state, and the files changed since the start
    python3 - steady    '{"units": ["pylog-ship.service"], ...}'     whether they run and go on running
    python3 - rights    '{"brokers": [1, 2]}'                        who uses each broker, and whom it would deny

``brokers``, ``zookeeper``, ``ensemble`` and ``steady`` wait until all is well when told how long.
"""

# Preflight refuses old Pythons, and can say so only if this file loads on them.
from __future__ import annotations

import contextlib
import grp
import hashlib
import http.client
import json
import platform
import pwd
import re
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# A socket that does not answer within this time counts as silent; a broker answers from memory in milliseconds.
ANSWER_TIMEOUT_S = 5.0
# Exit code that says "asked and not well"; 1 is Python's own for a crash.
NOT_WELL = 3
# What the roles put on a host. Read at once, so that a task runs only for what differs: asking file by file costs a
# second a task, twice over.
OWN_PATHS = (
    "/etc/pylog",
    "/etc/pylog/*.yml",
    "/etc/pylog/*.secret",
    "/etc/pylog/*.pem",
    "/etc/pylog/*.password",
    "/root/.config/pylog/config.yml",
    "/etc/pylog-connect",
    "/etc/pylog-connect/*",
    "/etc/pylog-zookeeper",
    "/etc/pylog-zookeeper/*",
    "/etc/pylog-firewall",
    "/etc/pylog-firewall/*",
    "/etc/pylog-load-balancer",
    "/etc/pylog-load-balancer/*",
    "/etc/pylog-monitoring",
    "/etc/pylog-monitoring/*",
    "/etc/pylog-monitoring/*/*",
    "/etc/pylog-monitoring/grafana/*/*",
    "/var/lib/pylog/metrics/certificates.prom",
    "/var/lib/pylog-zookeeper",
    "/var/lib/pylog-zookeeper/myid",
    "/etc/systemd/system/pylog-*",
    "/etc/cron.d/pylog-*",
    "/etc/*/60-pylog*",
    "/etc/sysctl.d/99-zz-pylog.conf",
    "/etc/*/*/60-pylog*",
    "/etc/tmpfiles.d/pylog.conf",
    "/usr/local/bin/pylog",
    "/opt/pylog",
    "/opt/pylog/bases",
    "/opt/pylog/releases",
    "/opt/pylog/current",
    "/opt/pylog/bases/*/requirements.lock",
    "/opt/pylog/releases/*/requirements.lock",
    "/opt/pylog/spark",
    "/opt/pylog/spark/bases",
    "/opt/pylog/spark/releases",
    "/opt/pylog/spark/current",
    "/opt/pylog/spark/bases/*/requirements.lock",
    "/opt/pylog/spark/releases/*/requirements.lock",
    "/opt/pylog/connect",
    "/opt/pylog/connect/*",
    "/run/pylog",
    "/var/lib/pylog",
    "/var/lib/pylog/backups",
    "/var/lib/pylog/metrics",
    "/var/lib/pylog/lake",
    "/var/lib/pylog-former.json",
)
OWN_USERS = ("pylog", "pylog-connect", "pylog-zookeeper")
# Key and certificate of this host's ZooKeeper server.
ZOOKEEPER_KEYS = Path("/etc/pylog-zookeeper/tls.pem")
# Files with certificates; the private key before them is not read out.
CERTIFICATES = (
    "/etc/pylog/*.pem",
    "/etc/pylog-connect/*.pem",
    "/etc/pylog-zookeeper/*.pem",
    "/etc/pylog-load-balancer/*.pem",
    "/etc/pylog-monitoring/*.pem",
)
CURRENT = Path("/opt/pylog/current")
# What `pylog` takes for root on a host of brokers.
PROFILE = Path("/root/.config/pylog/config.yml")
SECURING = Path("/etc/pylog/securing")
SYS = Path("/sys")
# What `pylog-firewall.service` notes of the table that it loaded.
FILTER_LOADED = Path("/run/pylog-firewall/loaded")
# What `pylog.ops.swap` notes on the host: how each broker's last restart went, and what to put back.
ROLLS = Path("/opt/pylog/rolls")
# Seconds that a program without a gate must run without a new start; most that cannot run end sooner.
STEADY_S = 6
# Starts by systemd after which a process counts as crashing.
CRASHES = 3
# Kernel settings that the tuning role sets; read once here so that preflight and status can show them.
SYSCTLS = ("vm.swappiness", "vm.dirty_background_ratio", "vm.dirty_ratio", "vm.max_map_count")


def run(*command: str, stdin: str | None = None) -> tuple[int, str]:
    """Run *command* and return its exit code and standard output; a missing program is code 127."""
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return 127, ""
    return done.returncode, done.stdout


def os_release(text: str) -> dict[str, str]:
    """Return the fields of an os-release file."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key: value.strip().strip('"') for key, value in pairs}


def listeners(ss_output: str) -> list[dict[str, Any]]:
    """Return the TCP listeners of ``ss -ltneH``: port, address and the user who holds each.

    The user, not the process: naming the process of another user takes a capability that a container lacks.
    """
    found = []
    for line in ss_output.splitlines():
        address, _, port = line.split()[3].rpartition(":")
        uid = re.search(r" uid:(\d+)", line)  # left out for root
        found.append({"port": int(port), "address": address, "user": user_name(int(uid[1]) if uid else 0)})
    return found


def addresses(ip_output: str) -> list[str]:
    """Return the addresses of ``ip -json address show scope global``."""
    found = (one for link in json.loads(ip_output or "[]") for one in link.get("addr_info", []))
    return [one["local"] for one in found if "local" in one]


def ssh_ports(sshd_output: str) -> list[int]:
    """Return the ports of ``sshd -T``; 22, its default, where it would not say."""
    found = re.findall(r"^port (\d+)$", sshd_output, re.MULTILINE)
    return sorted({int(port) for port in found}) or [22]


def user_name(uid: int) -> str:
    """Return the name of user *uid*, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    """Return the name of group *gid*, or the number where it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def disk(device: str) -> dict[str, Any]:
    """Return what is on block device *device*: its signature, label, UUID, where it is mounted, and what it carries."""
    path = Path(device)
    if not path.is_block_device():
        return {"exists": False}
    _, out = run("blkid", "-p", "-o", "export", device)
    fields = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    real = str(path.resolve())
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines() if line.split()[0] == real]
    return {
        "exists": True,
        "type": fields.get("TYPE") or fields.get("PTTYPE") or "",
        "label": fields.get("LABEL", ""),
        "uuid": fields.get("UUID", ""),
        "mounts": mounts,
        "carries": carried(run("lsblk", "--noheadings", "--raw", "--output", "MOUNTPOINT", device)[1]),
    }


def carried(lsblk_output: str) -> list[str]:
    """Return where a disk and what lies on it, as partitions or logical volumes, are mounted; swap as ``[SWAP]``."""
    return sorted({line.strip() for line in lsblk_output.splitlines() if line.strip()})


def disks(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is on each device of ``{"disks": [device, ...]}``."""
    return {"disks": {device: disk(device) for device in wanted.get("disks", [])}}


def file_state(path: Path) -> str:
    """Return what is at *path* in one line: content and who may do what with it; empty when there is nothing."""
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            return f"link {path.readlink()}"
        is_directory = stat.S_ISDIR(found.st_mode)
        content = "directory" if is_directory else hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
    group = group_name(found.st_gid)
    return f"{content} {stat.S_IMODE(found.st_mode):04o} {user_name(found.st_uid)} {group}"


def file_states(more: Sequence[str]) -> dict[str, str]:
    """Return the state of every path in `OWN_PATHS` and *more* that exists."""
    paths = [path for pattern in OWN_PATHS for path in map(str, Path("/").glob(pattern[1:]))]
    return {path: state for path in (*paths, *more) if (state := file_state(Path(path)))}


def certificates() -> dict[str, str]:
    """Return path -> certificates in PEM, of every file of `CERTIFICATES` that has any."""
    found = {}
    for path in (path for pattern in CERTIFICATES for path in Path("/").glob(pattern[1:])):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            blocks = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", path.read_text(), re.DOTALL)
            found[str(path)] = "".join(f"{block}\n" for block in blocks)
    return {path: pem for path, pem in found.items() if pem}


def server_configs(units: Sequence[str], zookeeper_config: str = "") -> dict[str, str]:
    """Return unit -> the text of its configuration, of brokers and ZooKeeper servers among *units*."""
    found = {}
    for unit in units:
        if broker_id := re.fullmatch(r"pylog-broker@(\d+)\.service", unit):
            path = f"/etc/pylog/broker-{broker_id[1]}.yml"
        elif unit == "pylog-zookeeper.service":
            path = zookeeper_config or "/etc/pylog-zookeeper/zoo.cfg"
        else:
            continue
        with contextlib.suppress(OSError):
            found[unit] = Path(path).read_text()
    return found


def secured(configs: Mapping[str, str]) -> dict[str, bool]:
    """Return unit -> whether its configuration asks for encryption, of `server_configs`."""
    pattern = r"^ +security\.protocol: SASL_SSL$|^secureClientPort="
    return {unit: re.search(pattern, text, re.MULTILINE) is not None for unit, text in configs.items()}


def login_listeners(configs: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Return unit -> name of a listener of its clients -> port, of those with encryption and login."""
    blocks = {
        unit: re.findall(r"^  (\w+):\n((?:    .*\n)+)", text, re.MULTILINE)
        for unit, text in configs.items()
        if unit.startswith("pylog-broker@")
    }
    return {
        unit: {
            name: int(port[1])
            for name, block in named
            if "    security.protocol: SASL_SSL\n" in block
            if (port := re.search(r"^    port: (\d+)$", block, re.MULTILINE))
        }
        for unit, named in blocks.items()
    }


def stages(configs: Mapping[str, str], profile: str = "") -> dict[str, str]:
    """Return what files say of their part of a migration: unit -> its comment, where it has one, and ``profile``.

    Args:
        configs: of `server_configs`.
        profile: the text of the profile for operators; the bundle writes one only where its programs log in.
    """
    says = {unit: re.search(r"^# stage: (.+)$", text, re.MULTILINE) for unit, text in configs.items()}
    found = {unit: one[1] for unit, one in says.items() if one}
    if "# For `pylog` run by root on this host." in profile and "SASL_SSL" in profile:
        found["profile"] = "programs=secured"
    return found


def free_bytes(directories: Sequence[str]) -> dict[str, int]:
    """Return directory -> free bytes, once for each file system that *directories* are on, or will be."""
    found: dict[int, tuple[str, int]] = {}
    for directory in directories:
        path = next(one for one in (Path(directory), *Path(directory).parents) if one.exists())
        found.setdefault(path.stat().st_dev, (directory, shutil.disk_usage(path).free))
    return dict(found.values())


def users() -> dict[str, list[str]]:
    """Return those of `OWN_USERS` that exist, with the groups they were added to."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return {name: [group.gr_name for group in grp.getgrall() if name in group.gr_mem] for name in names & {*OWN_USERS}}


def sysctls(more: Sequence[str] = ()) -> dict[str, str]:
    """Return the running values of the settings in `SYSCTLS` and *more*; empty for one that this kernel lacks."""
    paths = {name: Path("/proc/sys", name.replace(".", "/")) for name in (*SYSCTLS, *more)}
    # The kernel puts tabs between numbers, and people spaces.
    return {name: " ".join(setting(path).split()) for name, path in paths.items()}


def packet_filter() -> str:
    """Return what is loaded of pylog's own table of nftables: empty, ``loaded``, or ``changed`` since it was loaded."""
    code, text = run("/usr/sbin/nft", "list", "table", "inet", "pylog")
    if code:
        return ""
    try:
        noted = FILTER_LOADED.read_text().split()[0]
    except (OSError, IndexError):
        return "changed"
    return "loaded" if noted == hashlib.sha256(text.encode()).hexdigest() else "changed"


def kernel(devices: Sequence[str]) -> dict[str, Any]:
    """Return the choice of huge pages, and read-ahead and I/O scheduler of each of *devices*, as they are in force."""
    queues = {}
    for device in devices:
        block = SYS / "class" / "block" / Path(device).resolve().name
        # A partition's queue is its disk's.
        queue = next((path for path in (block / "queue", block.resolve().parent / "queue") if path.is_dir()), None)
        if queue is not None:
            queues[device] = {
                "read_ahead_kib": setting(queue / "read_ahead_kb"),
                "io_scheduler": setting(queue / "scheduler"),
            }
    return {"hugepages": setting(SYS / "kernel" / "mm" / "transparent_hugepage" / "enabled"), "queues": queues}


def setting(path: Path) -> str:
    """Return what is in force in a file of the kernel's, which may list all choices; empty where there is none."""
    try:
        text = path.read_text().strip()
    except OSError:
        return ""
    chosen = re.search(r"\[([\w-]+)\]", text)
    return chosen[1] if chosen else text


def ensemble_ids(path: str) -> list[int]:
    """Return the ids of the servers that the ZooKeeper configuration at *path* names; none of a server alone."""
    try:
        text = Path(path).read_text()
    except OSError:
        return []
    return sorted(int(number) for number in re.findall(r"^server\.(\d+)=", text, re.MULTILINE))


def resolved(name: str) -> list[str]:
    """Return the addresses that this host knows for *name*; none if it cannot resolve it."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(one[4][0]) for one in found})


def facts(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that preflight judges about this host."""
    release = os_release(Path("/etc/os-release").read_text())
    memory = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    assert memory, "/proc/meminfo has no MemTotal"
    _, packages = run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Package}\n")
    code, container = run("systemd-detect-virt", "--container")
    shown = show_units("pylog-*")
    here, stopped = (server_configs(units, wanted.get("zookeeper_config", "")) for units in here_and_stopped(shown))
    return {
        "os": {"id": release.get("ID", ""), "version": release.get("VERSION_ID", ""), "arch": platform.machine()},
        "memory_bytes": int(memory[1]) * 1024,
        "container": container.strip() if code == 0 else "",
        "python": list(sys.version_info[:2]),
        "init": Path("/proc/1/comm").read_text().strip(),
        "packages": sorted(line[3:] for line in packages.splitlines() if line.startswith("ii")),
        "listeners": listeners(run("ss", "-ltneH")[1]),
        "addresses": addresses(run("ip", "-json", "address", "show", "scope", "global")[1]),
        "ssh_ports": ssh_ports(run("/usr/sbin/sshd", "-T")[1]),
        "disks": disks(wanted)["disks"],
        "files": file_states(wanted.get("paths", [])),
        "users": users(),
        "certificates": certificates(),
        "secured": secured(here),
        "stopped": secured(stopped),
        "logins": login_listeners(here),
        # The step that `secure.yml` began here, while its run has not come to its end.
        "securing": SECURING.read_text() if SECURING.is_file() else "",
        "stages": stages(here | stopped, PROFILE.read_text() if PROFILE.is_file() else ""),
        # A timer starts with nothing that systemd does not know.
        "settled_units": [
            unit for unit in settled(shown) if unit.endswith(".timer") or not changed_since_start(record_of(unit))
        ],
        "outdated_units": outdated(shown),
        "enabled_units": enabled(shown),
        "started_with": {unit: sorted(started_with(record_of(unit))) for unit in enabled(shown)},
        "fstab": [" ".join(line.split()) for line in Path("/etc/fstab").read_text().splitlines()],
        "mounts": [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()],
        "sysctls": sysctls(wanted.get("sysctls", [])),
        "packet_filter": packet_filter(),
        "ensemble": ensemble_ids(wanted.get("zookeeper_config", "")),
        "resolved": {name: resolved(name) for name in wanted.get("names", [])},
        "kernel": kernel(wanted.get("disks", [])),
        "free_bytes": free_bytes(wanted.get("directories", [])),
        "clock_ms": time.time_ns() // 1_000_000,
    }


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket, which the standard library lacks."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_TIMEOUT_S)
        self.path = path

    def connect(self) -> None:
        """Connect to the socket's path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_TIMEOUT_S)
        self.sock.connect(self.path)


def ask(path: str, target: str) -> dict[str, Any] | None:
    """Return the JSON a broker's admin socket at *path* answers to GET *target*; None when nobody answers."""
    connection = UnixConnection(path)
    with contextlib.closing(connection):
        try:
            connection.request("GET", target)
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return None
    return answer


def unit_state(unit: str) -> dict[str, str]:
    """Return systemd's properties of *unit* that say how it runs, and since when."""
    names = "ActiveState,SubState,MainPID,Result,NRestarts,Job,ActiveEnterTimestampMonotonic"
    _, out = run("systemctl", "show", unit, "-p", names)
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def settled(shown: str) -> list[str]:
    """Return the units of ``systemctl show`` that run, start at boot, and are known to systemd as their files are."""
    return [unit["Id"] for unit in _shown(shown) if unit.items() >= _SETTLED.items()]


def enabled(shown: str) -> list[str]:
    """Return the units of ``systemctl show`` that run now and will at the next boot."""
    return [
        unit["Id"] for unit in _shown(shown) if unit["ActiveState"] == "active" and unit["UnitFileState"] == "enabled"
    ]


def here_and_stopped(shown: str) -> tuple[list[str], list[str]]:
    """Return the units of ``systemctl show`` that start at boot: those that nobody stopped, and those that are stopped.

    One that starts, ends or failed has its part in what its servers do, or will have it in a moment.
    """
    found = [unit for unit in _shown(shown) if unit["UnitFileState"] == "enabled"]
    is_stopped = {unit["Id"]: unit["ActiveState"] == "inactive" for unit in found}
    return [name for name in is_stopped if not is_stopped[name]], [name for name in is_stopped if is_stopped[name]]


def outdated(shown: str) -> list[str]:
    """Return the units of ``systemctl show`` whose files differ from what systemd has read."""
    return [unit["Id"] for unit in _shown(shown) if unit["NeedDaemonReload"] == "yes"]


def _shown(text: str) -> list[dict[str, str]]:
    found = (dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in text.split("\n\n"))
    return [unit for unit in found if unit]


_SETTLED = {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}


def show_units(*units: str) -> str:
    """Return what ``systemctl show`` says of *units*, which may be patterns, for `settled` and `outdated`."""
    return run("systemctl", "show", "--property", ",".join(["Id", *_SETTLED]), *units)[1]


def changed_since_start(record: str) -> list[str]:
    """Return the files that differ from what the running process started with.

    Every unit of pylog writes ``sha256sum`` of its unit file, configuration and release to *record* before it starts.
    A missing record means that nobody knows, which is a reason of its own.
    """
    if not Path(record).exists():
        return [record]
    _, out = run("sha256sum", "--check", "--quiet", record)
    return [line.rsplit(": ", 1)[0] for line in out.splitlines() if ": " in line]


def record_of(unit: str) -> str:
    """Return where *unit* writes what it starts with."""
    name, _, instance = unit.removesuffix(".service").partition("@")
    return f"/run/pylog/{name.removeprefix('pylog-')}-{instance}.started" if instance else f"/run/{name}/started"


def started_with(record: str) -> dict[str, str]:
    """Return path -> SHA-256 of the files that a process started with, from its *record*."""
    try:
        lines = Path(record).read_text().splitlines()
    except OSError:
        return {}
    return {path: digest for digest, path in (line.split(maxsplit=1) for line in lines)}


def read_json(path: Path) -> object:
    """Return what the JSON file at *path* holds; None where there is none."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def free_percent(directory: str) -> int:
    """Return how much of the file system below *directory* is free; 100 where nothing is there yet."""
    try:
        found = shutil.disk_usage(directory)
    except OSError:
        return 100
    return 100 * found.free // found.total


def broker(broker_id: int, data_dir: str = "") -> dict[str, Any]:
    """Return what one broker instance says of itself, beside what systemd and the files say."""
    unit = f"pylog-broker@{broker_id}.service"
    admin_socket = f"/run/pylog/broker-{broker_id}.sock"
    record = f"/run/pylog/broker-{broker_id}.started"
    config = Path(f"/etc/pylog/broker-{broker_id}.yml")
    state = unit_state(unit)
    is_active = state.get("ActiveState") in ("active", "activating", "deactivating", "reloading")
    is_off = state.get("ActiveState") in ("inactive", "failed") and not state.get("Job")
    silence = f"it is {state['ActiveState']}, and nothing starts it" if is_off else "the admin socket does not answer"
    ready = ask(admin_socket, "/ready") if is_active else None
    status = ask(admin_socket, "/status") if is_active else None
    return {
        "id": broker_id,
        "unit": unit,
        "config_hash": hashlib.sha256(config.read_bytes()).hexdigest()[:16] if config.exists() else "",
        "is_active": is_active,
        "is_off": is_off,
        "restarts": int(state.get("NRestarts") or 0),
        "changed_files": changed_since_start(record) if is_active else [],
        "started_with": started_with(record) if is_active else {},
        "current": CURRENT.readlink().name if CURRENT.is_symlink() else "",
        "marker": read_json(ROLLS / f"broker-{broker_id}.json"),
        "asked_ms": read_json(ROLLS / "asked-brokers") or 0,
        "free_percent": free_percent(data_dir),
        "status": {key: value for key, value in status.items() if key != "partitions"} if status else None,
        "is_ready": bool(ready and ready.get("ready")),
        "reason": (ready or {}).get("reason", silence),
        "lacking": (ready or {}).get("lacking", 0),
    }


def rights(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return broker id -> its answer to ``GET /rights``, empty where it gave none, and this host's time."""
    answers = {str(one): ask(f"/run/pylog/broker-{one}.sock", "/rights") or {} for one in wanted["brokers"]}
    return {"brokers": answers, "now_ms": time.time_ns() // 1_000_000}


def is_without_session(reading: Mapping[str, Any]) -> bool:
    """Say whether a broker answers and has no session with ZooKeeper."""
    return not (reading["status"] or {}).get("is_registered", True)


def brokers(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the readings of ``{"brokers": [id, ...]}``, and whether all of them are ready."""
    directories = wanted.get("data_dirs", {})
    readings = [broker(broker_id, directories.get(str(broker_id), "")) for broker_id in wanted["brokers"]]
    is_ready = all(reading["is_ready"] for reading in readings)
    # A process that systemd starts again and again will not get well by waiting, nor one that it does not start.
    is_hopeless = any(
        reading["is_off"] or (reading["restarts"] >= CRASHES and not reading["is_ready"]) for reading in readings
    )
    is_recovering = any((reading["status"] or {}).get("state") == "recovering" for reading in readings)
    unwell = [f"broker {reading['id']}: {reading['reason']}" for reading in readings if not reading["is_ready"]]
    return {
        "brokers": readings, "is_ready": is_ready, "is_hopeless": is_hopeless, "is_recovering": is_recovering,
        "is_without_session": any(map(is_without_session, readings)),
        "has_session": all(reading["status"] and not is_without_session(reading) for reading in readings),
        "reason": "; ".join(unwell), "lacking": sum(reading["lacking"] for reading in readings),
    }  # fmt: skip


def four_letters(word: str, port: int, host: str = "localhost") -> str:
    """Return a ZooKeeper server's answer to a four-letter word, empty when it is silent.

    By TLS first where this host has a server's certificate: an open server ends such a connection at once, while a
    secured one would keep an open connection waiting.
    """
    contexts = [_zookeeper_context(), None] if ZOOKEEPER_KEYS.exists() else [None]
    for context in contexts:
        try:
            if answer := _answer(word, port, host, context):
                return answer
        except (OSError, ValueError):
            continue
    return ""


def _zookeeper_context() -> ssl.SSLContext | None:
    try:
        context = ssl.create_default_context(cafile=str(ZOOKEEPER_KEYS.with_name("ca.pem")))
        context.load_cert_chain(ZOOKEEPER_KEYS)
    except OSError:
        return None
    return context


def _answer(word: str, port: int, host: str, context: ssl.SSLContext | None) -> str:
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((host, port), ANSWER_TIMEOUT_S))
        if context is not None:
            connection = stack.enter_context(context.wrap_socket(connection, server_hostname=host))
        connection.sendall(word.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")


def zookeeper(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the role of this host's ZooKeeper server and whether its ensemble is complete as seen from here."""
    state = unit_state("pylog-zookeeper.service")
    is_active = state.get("ActiveState") == "active"
    monitor = monitored(four_letters("mntr", wanted["port"]))
    mode = monitor.get("zk_server_state", "")
    synced = int(float(monitor.get("zk_synced_followers", "0")))
    is_ready = mode in ("follower", "standalone") or (mode == "leader" and synced >= wanted["members"] // 2)
    return {
        "id": wanted["id"],
        "unit": "pylog-zookeeper.service",
        "is_active": is_active,
        "is_crashing": int(state.get("NRestarts") or 0) >= CRASHES and not is_ready,
        "mode": mode,
        "synced_followers": synced,
        "changed_files": changed_since_start(wanted["started_file"]) if is_active else [],
        "started_with": started_with(wanted["started_file"]) if is_active else {},
        "status": {"started_ms": modified_ms(wanted["started_file"])} if is_active else None,
        "marker": read_json(ROLLS / "zookeeper.json"),
        "asked_ms": read_json(ROLLS / "asked-zookeeper") or 0,
        "is_ready": is_ready,
        "reason": "" if is_ready else f"mode {mode or 'unknown'}, {synced} synced followers",
    }


def monitored(answer: str) -> dict[str, str]:
    """Return the values of an answer to ``mntr``; empty where a server has no leader and refuses."""
    return dict(line.split("\t", 1) for line in answer.splitlines() if "\t" in line)


def modified_ms(path: str) -> int:
    """Return when the file at *path* was written; 0 where there is none."""
    try:
        return Path(path).stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0


def ensemble(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Say whether every server of ``{"servers": {name: "HOST:PORT"}, "away": [name]}`` serves, one of them as leader.

    Asked over the clients' port and not by SSH: it is about servers outside of a ``--limit`` too.
    """
    here = {name: address for name, address in wanted["servers"].items() if name not in wanted.get("away", [])}
    places = {name: address.rpartition(":") for name, address in here.items()}
    said = {name: four_letters("mntr", int(port), host.strip("[]")) for name, (host, _, port) in places.items()}
    found = {name: monitored(answer) for name, answer in said.items()}
    judged = judge_ensemble(found, len(wanted["servers"]), leaving=wanted.get("leaving", 0))
    # One that has no leader answers that it does not serve; a silent one may be what others lack for a majority.
    return judged | {"silent": [name for name, answer in said.items() if not answer]}


def judge_ensemble(found: Mapping[str, Mapping[str, str]], size: int, leaving: int = 0) -> dict[str, Any]:
    """Say from what each server that is not away answered to ``mntr`` whether an ensemble of *size* servers is well.

    With *leaving* servers that were not asked, which may serve or not, one of them may lead.
    """
    modes = {name: monitor.get("zk_server_state", "") for name, monitor in found.items()}
    if size == 1:
        reasons = [f"{name} does not serve" for name, mode in modes.items() if mode != "standalone"]
    else:
        reasons = [f"{name} {_not_serving(mode)}" for name, mode in modes.items() if mode not in ("leader", "follower")]
        leaders = [name for name, mode in modes.items() if mode == "leader"]
        if len(leaders) != 1 and not (leaving and not leaders):
            reasons.append(f"{len(leaders)} leaders, wanted 1")
        synced = sum(int(float(found[name].get("zk_synced_followers", "0"))) for name in leaders)
        if leaders and synced < len(found) - 1:
            reasons.append(f"{synced} synced followers, wanted {len(found) - 1}")
        if 2 * len(found) <= size + leaving:
            reasons.append(f"{len(found)} of {size + leaving} servers are there, which is no majority")
    return {"modes": modes, "is_ready": not reasons, "reason": "; ".join(reasons)}


def _not_serving(mode: str) -> str:
    return f"is {mode}" if mode else "does not serve"


def units(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return state, and files changed since the start, of each unit in ``{"units": {name: record}}``."""
    found = {}
    for unit, record in wanted["units"].items():
        state = unit_state(unit)
        is_active = state.get("ActiveState") == "active"
        found[unit] = {
            "state": f"{state.get('ActiveState', '')}/{state.get('SubState', '')}",
            "is_active": is_active,
            "changed_files": changed_since_start(record) if is_active and record else [],
            "is_settled": bool(settled(show_units(unit))),
        }
    return {"units": found}


def steady(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Say whether every unit has run for a while, and every address in ``answering`` accepts connections.

    That a unit runs says little of a program that crashes after it started, which systemd starts again and again: the
    time since its last start does.
    """
    reasons, is_hopeless = [], False
    for unit in wanted["units"]:
        state = unit_state(unit)
        found = f"{state.get('ActiveState', '')}/{state.get('SubState', '')}"
        runs_s = time.monotonic() - int(state.get("ActiveEnterTimestampMonotonic") or 0) / 1_000_000
        if found != "active/running" or runs_s < STEADY_S:
            again = int(state.get("NRestarts") or 0)
            since = f" for {runs_s:.0f} s, wanted {STEADY_S}" if found == "active/running" else ""
            restarts = f", and systemd has started it again {again} times" if again else ""
            reasons.append(f"{unit} is {found}{since}{restarts}")
            is_hopeless = is_hopeless or state.get("ActiveState") == "failed"
    reasons += [f"nothing answers at {address}" for address in wanted.get("answering", []) if not answers(address)]
    return {"is_ready": not reasons, "is_hopeless": is_hopeless, "reason": "; ".join(reasons)}


def answers(address: str) -> bool:
    """Say whether something on this host accepts connections at HOST:PORT, where it may listen on every address."""
    name, _, port = address.rpartition(":")
    name = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}.get(name, name.strip("[]"))
    try:
        socket.create_connection((name, int(port)), ANSWER_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def with_journal(reading: dict[str, Any], units: Sequence[str]) -> dict[str, Any]:
    """Return the end of a wait for *units*, with the last lines of their journals if they did not get well."""
    if reading["is_well"]:
        return reading
    _, lines = run("journalctl", "--no-pager", "--lines=20", *(f"--unit={unit}" for unit in units))
    return {**reading, "journal": lines.splitlines()}


def wait(read: Callable[[Mapping[str, Any]], dict[str, Any]], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Read until ``consecutive`` readings in a row are well or ``wait_s`` is over; return the last one.

    Without ``wait_s`` this reads once.  Reading logs after a crash does not count as waiting: it ends by itself, and
    whoever gave up on it would make it begin again.  Nor does copying partitions, as long as it goes on: the time
    begins anew with each that is in sync.  The time that a broker has no session with ZooKeeper is counted apart, as
    ``store_s`` of ``waited``, and has ``wait_s`` of its own: no restart brings ZooKeeper back.  ``late_s`` is what
    of it was over when the broker first had a session: one that loses its session later may do so by its own fault.

    With ``report_s`` this returns after so long what it still waits for; unless ``is_over``, ask again with ``waited``
    of the answer.
    """
    waited: dict[str, float] = {"s": 0, "store_s": 0, "lowest": sys.maxsize, **wanted.get("waited", {})}
    began_s = before_s = time.monotonic()
    clean = 0
    while True:
        reading = read(wanted)
        clean = clean + 1 if reading["is_ready"] else 0
        is_well = clean >= wanted.get("consecutive", 1)
        now_s = time.monotonic()
        if reading.get("has_session"):
            waited.setdefault("late_s", waited["store_s"])
        if not reading.get("is_recovering"):
            waited["store_s" if reading.get("is_without_session") else "s"] += now_s - before_s
        before_s = now_s
        if 0 < reading.get("lacking", 0) < waited["lowest"]:
            waited |= {"s": 0, "lowest": reading["lacking"]}
        is_late = max(waited["s"], waited["store_s"]) >= wanted.get("wait_s", 0)
        is_over = bool(is_well or is_late or reading.get("is_hopeless"))
        if is_over or now_s - began_s >= wanted.get("report_s", sys.maxsize):
            return {**reading, "is_well": is_well, "is_over": is_over, "waited": waited}
        time.sleep(wanted.get("interval_s", 1))


VERBS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "facts": facts,
    "rights": rights,
    "disks": disks,
    "units": units,
    "certificates": lambda _: certificates(),
    "brokers": lambda wanted: wait(brokers, wanted),
    "zookeeper": lambda wanted: wait(zookeeper, wanted),
    "ensemble": lambda wanted: wait(ensemble, wanted),
    "steady": lambda wanted: with_journal(wait(steady, wanted), wanted["units"]),
}


def main(arguments: Sequence[str]) -> int:
    """Carry out one verb; `NOT_WELL` says that what was waited for did not come."""
    verb, wanted = arguments
    answer = VERBS[verb](json.loads(wanted))
    print(json.dumps(answer, sort_keys=True))
    return 0 if answer.get("is_well", True) else NOT_WELL


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A support bundle: what whoever helps needs to see of each host, in one archive without secrets.

bundle.tar.gz => pylog-bundle/{about.json, inventory.json, HOST/{files/PATH, NAME.txt, NAME.json}}

What is asked of a host, and how the answers become an archive; `pylog.ops.tasks` asks.
"""

import gzip
import io
import json
import shlex
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pylog.ops import masking
from pylog.ops.inventory import Target
from pylog.ops.status import HOST_PROGRAM, units

ROOT = "pylog-bundle"
JOURNAL_LINES = 5_000
FILE_BYTES = 1 << 20
"""Of a file that is longer the end is taken."""

PATTERNS = (
    "/etc/pylog/*.yml",
    "/etc/pylog-zookeeper/*",
    "/etc/systemd/system/pylog-*",
    "/etc/cron.d/pylog-*",
    "/etc/*/60-pylog*",
    "/etc/sysctl.d/99-zz-pylog.conf",
    "/etc/tmpfiles.d/pylog.conf",
    "/etc/fstab",
    "/etc/os-release",
    "/opt/pylog/current/requirements.lock",
    "/opt/pylog/rolls/*.json",
    "/var/lib/pylog-former.json",
    "/run/pylog/*.started",
)
"""Files of a host; the cluster's secret is none of them."""

SECRETS = "cat /etc/pylog/*.secret /etc/pylog/backup.key 2>/dev/null; true"
"""What must not be in the bundle, wherever it leaked to; asked of the host, for an inventory may hold but a lookup."""

COMMANDS = {
    "uname": "uname -a",
    "uptime": "uptime",
    "memory": "free -b; cat /proc/pressure/* 2>/dev/null",
    "disks": "df -B1 -T; df -i; lsblk -b -o NAME,SIZE,TYPE,FSTYPE,MOUNTPOINT 2>/dev/null; cat /proc/self/mounts",
    "sysctl": "sysctl -a 2>/dev/null | grep -E '^(vm|fs|net.core|net.ipv4.tcp)\\.'",
    "listeners": "ss -ltnep",
    "connections": "ss -tne | head -2000",
    "processes": "ps -eo pid,ppid,user,stat,etimes,rss,nlwp,pcpu,comm --sort=-rss | head -100",
    "units": "systemctl list-units --all --no-pager 'pylog-*' cron.service; systemctl --failed --no-pager",
    "packages": "dpkg-query -W -f '${Package} ${Version}\\n'",
    "releases": "ls -l /opt/pylog /opt/pylog/releases; /opt/pylog/current/bin/pylog --version",
    "data": "ls -l /var/lib/pylog; du -sk /var/lib/pylog/*/* 2>/dev/null",
    "kernel": "journalctl --no-pager -k -n 500",
}
"""What a host is asked beside its files: name -> shell command."""

_READ_FILES = """
import glob, json, sys
found = {}
for pattern in json.loads(sys.argv[1]):
    for path in sorted(glob.glob(pattern)):
        try:
            with open(path, "rb") as file:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - int(sys.argv[2])))
                found[path] = file.read().decode(errors="replace")
        except OSError as error:
            found[path] = f"cannot be read: {error}"
print(json.dumps(found))
"""
_ASK = """
import http.client, socket, sys
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.settimeout(10)
connection.sock.connect(sys.argv[1])
connection.request("GET", sys.argv[2])
print(connection.getresponse().read().decode())
"""
"""A bare host has Python, but no curl."""

REPORTS = ("status", "ready", "metrics")


def questions(target: Target) -> dict[str, str]:
    """Return name -> shell command whose output belongs into the bundle.

    ``files`` is answered with JSON; ``secrets`` with what must not be in it.
    """
    asked = {
        "files": _python(_READ_FILES, json.dumps(PATTERNS), str(FILE_BYTES)),
        "secrets": SECRETS,
        **COMMANDS,
    }
    for broker_id in target.broker_ids:
        for report in REPORTS:
            asked[f"broker-{broker_id}-{report}"] = _python(_ASK, f"/run/pylog/broker-{broker_id}.sock", f"/{report}")
        asked[f"broker-{broker_id}-unit"] = f"systemctl show pylog-broker@{broker_id}.service"
    if "pylog_zookeeper" in target.groups:
        port = int(target.variables.get("zookeeper_client_port", 2181))
        words = {"id": 0, "port": port, "members": 1, "started_file": "/run/pylog-zookeeper/started"}
        asked["zookeeper"] = _python(HOST_PROGRAM, "zookeeper", json.dumps(words))
    for unit in units(target):
        journal = ["journalctl", "--no-pager", "--output=short-iso-precise", f"--lines={JOURNAL_LINES}", "--unit", unit]
        if unit.endswith(".timer"):  # why a run failed is said by what the timer starts
            journal += ["--unit", unit.replace(".timer", ".service")]
        asked[f"journal-{unit.removesuffix('.service')}"] = shlex.join(journal)
    return {name: f"{target.sudo}sh -c {shlex.quote(command)}" for name, command in asked.items()}


def _python(program: str, *arguments: str) -> str:
    return shlex.join(["python3", "-c", program, *arguments])


def members(host: str, answers: Mapping[str, str]) -> dict[str, str]:
    """Return path in the archive -> content, from what *host* answered."""
    found = {f"{host}/{name}.txt": text for name, text in answers.items() if name != "files"}
    try:
        files: dict[str, str] = json.loads(answers.get("files") or "{}")
    except ValueError:
        return found | {f"{host}/files.txt": answers["files"]}
    return found | {f"{host}/files{path}": text for path, text in files.items()}


def archive(members: Mapping[str, str], secrets: Iterable[str], now_s: int) -> bytes:
    """Return the archive, every member masked; equal input makes equal bytes."""
    known = frozenset(secrets)
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for path, text in sorted(members.items()):
            data = masking.mask(text, known).encode()
            entry = tarfile.TarInfo(f"{ROOT}/{path}")
            entry.size, entry.mtime, entry.mode = len(data), now_s, 0o600
            tar.addfile(entry, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=now_s)


def inventory_of(targets: Iterable[Target]) -> str:
    """Return hosts, groups and variables as JSON."""
    found: dict[str, Any] = {
        target.name: {"groups": sorted(target.groups), "variables": dict(target.variables)} for target in targets
    }
    return json.dumps(found, indent=1, sort_keys=True, default=str)


def write(path: Path, content: bytes) -> None:
    """Write the archive for its owner alone.

    Raises:
        OSError: it exists, or the disk refuses.
    """
    with path.open("xb") as file:
        path.chmod(0o600)
        file.write(content)

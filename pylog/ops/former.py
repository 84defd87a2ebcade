"""What a host was like before pylog, and how it gets so again: one program, sent over SSH, that prints JSON.

    python3 - record  '{"sysctls": ["vm.swappiness"]}'       note what is there now, unless it was noted before
    python3 - restore '{"users": true}'                      put back what was noted, and forget it

The record lies in ``/var/lib/pylog-former.json``::

    {"sysctls": {name: value}, "hugepages": "madvise", "read_ahead_kib": {"sda": 128},
     "io_schedulers": {"sda": "none"}, "users": [name], "fstab": [line]}

Where the users stay with their data, ``/var/lib/pylog-users.json`` goes on saying who was there before, for the purge
that removes both.  The standard library is all it needs.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RECORD = Path("/var/lib/pylog-former.json")
USERS = Path("/var/lib/pylog-users.json")
PROC = Path("/proc/sys")
SYS = Path("/sys")
ETC = Path("/etc")
OWN_USERS = ("pylog", "pylog-zookeeper")
HUGEPAGES = "kernel/mm/transparent_hugepage/enabled"
# Files in which the kernel lists what can be chosen, with what is chosen in brackets.
CHOICES = ("enabled", "scheduler")


def read(path: Path) -> str:
    """Return what a file holds without the last line's end; empty where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def sysctl_path(name: str) -> Path:
    """Return where the kernel shows a setting."""
    return PROC / name.replace(".", "/")


def chosen(path: Path) -> str:
    """Return what is in force in one of `CHOICES`; empty where there is no choice."""
    found = re.search(r"\[([\w-]+)\]", read(path))
    return found[1] if found else ""


def read_aheads() -> dict[str, int]:
    """Return block device -> read-ahead in KiB."""
    return {path.parent.parent.name: int(read(path) or 0) for path in SYS.glob("block/*/queue/read_ahead_kb")}


def io_schedulers() -> dict[str, str]:
    """Return block device -> its I/O scheduler, of those that can have one."""
    return {path.parent.parent.name: name for path in SYS.glob("block/*/queue/scheduler") if (name := chosen(path))}


def users() -> list[str]:
    """Return those of `OWN_USERS` that exist."""
    names = {line.split(":")[0] for line in read(ETC / "passwd").splitlines()}
    return sorted(names & {*OWN_USERS})


def is_container() -> bool:
    """Say whether the kernel belongs to the machine around this host; nothing of it is ours to put back then."""
    return subprocess.run(["systemd-detect-virt", "--quiet", "--container"], check=False).returncode == 0


def noted() -> dict[str, Any]:
    """Return the record; empty where there is none."""
    found: dict[str, Any] = json.loads(read(USERS) or "{}") | json.loads(read(RECORD) or "{}")
    return found


def write(path: Path, value: object) -> None:
    """Write *value* as JSON; the file is there whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, sort_keys=True) + "\n")
    part.replace(path)


def record(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Note what is there now.  What was noted before stays: it is older, and the rest is our own doing since."""
    before = noted()
    now = {
        "hugepages": chosen(SYS / HUGEPAGES),
        "read_ahead_kib": read_aheads(),
        "io_schedulers": io_schedulers(),
        "users": users(),
        "fstab": read(ETC / "fstab").splitlines(),
    }
    sysctls = {name: read(sysctl_path(name)) for name in wanted["sysctls"]}
    after = now | before | {"sysctls": sysctls | before.get("sysctls", {})}
    if after != before:
        write(RECORD, after)
        USERS.unlink(missing_ok=True)
    return {"changed": after != before}


def restore(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Put back what was noted.  What the kernel refuses is named and stays."""
    former, has_record = noted(), RECORD.exists()
    restored, refused = [], []
    for path, value in () if is_container() else targets(former):
        if (chosen(path) if path.name in CHOICES else read(path)) == value:
            continue
        try:
            path.write_text(f"{value}\n")
            restored.append(str(path))
        except OSError as error:
            refused.append(f"{path}: {error.strerror}")
    gone = list(remove_users(former)) if wanted.get("users") and former else []
    if wanted.get("users"):
        USERS.unlink(missing_ok=True)
    elif has_record:
        write(USERS, {"users": former["users"]})
    RECORD.unlink(missing_ok=True)
    return {"restored": restored, "refused": refused, "users": gone, "changed": bool(restored or gone or has_record)}


def targets(former: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield each file of the kernel with the value it had."""
    for name, value in former.get("sysctls", {}).items():
        yield sysctl_path(name), value
    if former.get("hugepages"):
        yield SYS / HUGEPAGES, former["hugepages"]
    for kind, name in (("read_ahead_kib", "read_ahead_kb"), ("io_schedulers", "scheduler")):
        for device, value in former.get(kind, {}).items():
            path = SYS / "block" / device / "queue" / name
            if path.exists():
                yield path, str(value)


def remove_users(former: Mapping[str, Any]) -> Iterator[str]:
    """Remove those of our users that were not there before; yield their names."""
    for name in users():
        if name not in former["users"]:
            subprocess.run(["userdel", name], check=True, capture_output=True)
            yield name


VERBS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"record": record, "restore": restore}


def main(arguments: Sequence[str]) -> int:
    """Carry out one verb."""
    verb, wanted = arguments
    print(json.dumps(VERBS[verb](json.loads(wanted)), sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What a roll changes on a host: one program, sent over SSH to the host's own Python, that prints what it did as JSON.

It changes and never waits for a cluster; `pylog.ops.host` does the waiting, `pylog.ops.restart` the deciding.  The
standard library is all it needs, and every verb may be repeated after it was killed half way::

    python3 - keep    '{"brokers": [1]}'                                    copy what each process started with
    python3 - restart '{"broker": 1, "release": "0.1.0-ab", "reasons": []}' point current at the release and restart
    python3 - back    '{"brokers": [1], "why": "..."}'                      put the copies and their release back
    python3 - leave   '{"brokers": [1]}'                                    put back where they still run with them
    python3 - finish  '{"broker": 1}'                                       note that the gate was passed; prune
    python3 - ask     '{}'                                                  ask for a restart of all that runs now
    python3 - asked   '{}'                                                  forget that

What it keeps lies under ``/opt/pylog/rolls``, for root alone: ``broker-<id>/`` holds copies of the files and
``what.json``; ``broker-<id>.json`` is the marker of the last step::

    {"state": "restarting" | "done" | "rolled back", "release", "reasons", "files", "began_ms", "took_s", "why"}
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path("/opt/pylog")
RUN = Path("/run/pylog")
# Of every broker's files; a copy is found again by its path with dashes for slashes.
LOCK = "requirements.lock"


class SwapError(Exception):
    """Something on the host is not as a step needs it; the message says what."""


def systemctl(*arguments: str, check: bool = True) -> str:
    """Run systemctl and return what it printed.

    Raises:
        SwapError: it failed, and *check* is set.
    """
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise SwapError(f"systemctl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def rolls() -> Path:
    """Return the directory of what is kept, made if need be."""
    path = ROOT / "rolls"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def unit_of(broker_id: int) -> str:
    """Return the unit of a broker."""
    return f"pylog-broker@{broker_id}.service"


def now_ms() -> int:
    """Return the host's time."""
    return time.time_ns() // 1_000_000


def write(path: Path, value: object) -> None:
    """Write *value* as JSON; the file is there whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, sort_keys=True) + "\n")
    part.replace(path)


def read(path: Path) -> dict[str, Any]:
    """Return the mapping that the JSON file at *path* holds; an empty one where there is none."""
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    return {}


def sha256(path: Path) -> str:
    """Return the hash of a file; empty when there is none."""
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


def started_with(broker_id: int) -> dict[str, str]:
    """Return path -> SHA-256 of what the running process recorded when it started; empty if nothing runs."""
    if systemctl("is-active", unit_of(broker_id), check=False) != "active":
        return {}
    with contextlib.suppress(OSError):
        lines = (RUN / f"broker-{broker_id}.started").read_text().splitlines()
        return {path: digest for digest, path in (line.split(maxsplit=1) for line in lines)}
    return {}


def current_release() -> str:
    """Return the name of the release that `current` points at; empty when there is none."""
    link = ROOT / "current"
    return link.readlink().name if link.is_symlink() else ""


def point_at(release: str) -> bool:
    """Make *release* the current one, in one step; say whether it was another."""
    target = ROOT / "releases" / release
    if not (target / LOCK).exists():
        raise SwapError(f"{target} is not installed: {LOCK} is missing")
    if current_release() == release:
        return False
    part = ROOT / "current.part"
    part.unlink(missing_ok=True)
    part.symlink_to(f"releases/{release}")
    part.replace(ROOT / "current")
    return True


def keep(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Copy what each broker's process started with, as long as that is what is installed.

    Where an interrupted run has replaced some of it already, the older copy is the right one and stays.
    """
    return {"kept": [broker_id for broker_id in wanted["brokers"] if keep_one(broker_id)]}


def keep_one(broker_id: int) -> bool:
    """Copy one broker's files; say whether there was something to copy."""
    started = started_with(broker_id)
    if not started or any(sha256(Path(path)) != digest for path, digest in started.items()):
        return False
    target = rolls() / f"broker-{broker_id}"
    if read(target / "what.json") == {"release": current_release(), "files": started}:
        return False
    part = rolls() / f"broker-{broker_id}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    for path in map(Path, started):
        if path.name != LOCK:
            copy(path, part / path.name)
    write(part / "what.json", {"release": current_release(), "files": started})
    shutil.rmtree(target, ignore_errors=True)
    part.replace(target)
    return True


def copy(source: Path, target: Path) -> None:
    """Copy a file with its owner and mode, so that it is there whole or not at all."""
    part = target.with_name(f".{target.name}.part")
    shutil.copy2(source, part)
    found = source.stat()
    os.chown(part, found.st_uid, found.st_gid)
    part.replace(target)


def restart(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Stop one broker, which hands over what it leads, and start it on the wanted release; do not wait for it."""
    broker_id, began_ms = wanted["broker"], now_ms()
    marker = rolls() / f"broker-{broker_id}.json"
    release = wanted.get("release") or current_release()
    note = {"state": "restarting", "release": release, "reasons": wanted["reasons"], "began_ms": began_ms}
    write(marker, note)
    swapped = point_at(release)
    systemctl("daemon-reload")
    # Both halves apart: a restart that is awaited would wait as long as the unit allows, not as long as the gate does.
    systemctl("stop", unit_of(broker_id))
    stopped_ms = now_ms()
    systemctl("reset-failed", unit_of(broker_id), check=False)
    systemctl("start", "--no-block", unit_of(broker_id))
    return {**note, "swapped": swapped, "stop_ms": stopped_ms - began_ms}


def back(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Put back what the host's brokers ran with before, and restart those that run anything else."""
    restored: list[str] = []
    restarted: list[int] = []
    kept = {broker_id: rolls() / f"broker-{broker_id}" for broker_id in wanted["brokers"]}
    for directory in kept.values():
        if what := read(directory / "what.json"):
            restored += restore(directory, what)
    systemctl("daemon-reload")
    for broker_id, directory in kept.items():
        files = read(directory / "what.json").get("files", {})
        if files and started_with(broker_id) == files:
            continue
        note = {"state": "rolled back", "release": current_release(), "why": wanted["why"], "began_ms": now_ms()}
        write(rolls() / f"broker-{broker_id}.json", note)
        systemctl("stop", unit_of(broker_id), check=False)
        systemctl("reset-failed", unit_of(broker_id), check=False)
        systemctl("start", "--no-block", unit_of(broker_id))
        restarted.append(broker_id)
    return {"restored": restored, "restarted": restarted, "release": current_release()}


def leave(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Put the copies back under brokers that still run with them; restart nothing.

    After a roll that stopped elsewhere, a crash here must not start what did not pass there.
    """
    restored: list[str] = []
    for directory in (rolls() / f"broker-{broker_id}" for broker_id in wanted["brokers"]):
        what = read(directory / "what.json")
        if what and started_with(int(directory.name.removeprefix("broker-"))) == what["files"]:
            restored += restore(directory, what)
    if restored:
        systemctl("daemon-reload")
    return {"restored": restored}


def restore(directory: Path, what: Mapping[str, Any]) -> Iterator[str]:
    """Put the copies in *directory* and their release back; yield what differed."""
    if what["release"] and point_at(what["release"]):
        yield f"release {what['release']}"
    for path, digest in what["files"].items():
        if Path(path).name != LOCK and sha256(Path(path)) != digest:
            copy(directory / Path(path).name, Path(path))
            yield path


def finish(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Note that a broker passed its gate, and remove releases that nothing runs or could go back to."""
    marker = rolls() / f"broker-{wanted['broker']}.json"
    note = read(marker)
    took_s = round((now_ms() - note.get("began_ms", now_ms())) / 1000)
    note |= {"state": "done", "files": started_with(wanted["broker"]), "took_s": took_s}
    write(marker, note)
    pruned = list(prune())
    return {"took_s": took_s, "pruned": pruned, "changed": bool(pruned)}


def prune() -> Iterator[str]:
    """Remove releases, and bases below them, that are neither current nor kept nor newer than current."""
    what = [read(path) for path in rolls().glob("broker-*/what.json")]
    wanted = {current_release(), *(one.get("release", "") for one in what)}
    installed = sorted(path for path in (ROOT / "releases").iterdir() if path.is_dir())
    # A release that was installed after the current one is on its way in.
    current_ms = (ROOT / "releases" / current_release() / LOCK).stat().st_mtime
    for path in installed:
        if path.name not in wanted and not ((path / LOCK).exists() and (path / LOCK).stat().st_mtime > current_ms):
            shutil.rmtree(path)
            yield path.name
    bases = {Path(line.split("/lib/")[0]).name for line in base_lines()}
    for path in (ROOT / "bases").iterdir():
        if bases and path.is_dir() and path.name not in bases:
            shutil.rmtree(path)
            yield path.name


def base_lines() -> Iterator[str]:
    """Yield what each installed release says of the base it stands on."""
    for path in (ROOT / "releases").glob("*/lib/python3*/site-packages/base.pth"):
        yield path.read_text().strip()


def ask(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for a restart of every broker that runs now, unless an earlier roll still asks."""
    path = rolls() / "asked"
    if not path.exists():
        write(path, now_ms())
    return {"asked_ms": json.loads(path.read_text())}


def asked(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Forget that a restart was asked for: every broker has had it."""
    (rolls() / "asked").unlink(missing_ok=True)
    return {}


CHANGING = ("restart", "back", "leave")
"""Verbs that change what runs or what would run; the others keep notes, and say ``changed`` where that matters."""

VERBS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "keep": keep, "restart": restart, "back": back, "leave": leave, "finish": finish, "ask": ask, "asked": asked,
}  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Carry out one verb; exit 1 with a message when the host is not as it must be."""
    verb, wanted = arguments
    try:
        print(json.dumps(VERBS[verb](json.loads(wanted)), sort_keys=True))
    except (SwapError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What a roll changes on a host: one program of the standard library that says what it did.

It changes and never waits for a cluster; `pylog.ops.host` does the waiting, `pylog.ops.restart` the deciding.  Ansible
brings it as module `pylog_roll`, because it must take back a release that does not run.  Every verb may be repeated
after it was killed half way::

    keep    {"names": ["broker-1"], "paths": [...]}  copy what each process started with; say where new files go
    restart {"name", "release", "files", "reasons", "token"}  put new files and release in place, and restart
    back    {"names": [...], "why": "..."}           put the copies and their release back
    finish  {"name"}                                 note that the gate was passed; prune
    ask     {"of": "brokers"}                        ask for a restart of all that runs now
    asked   {"of": "brokers"}                        forget that
    prune   {"root": "/opt/pylog/spark", "keep"}     remove releases that nothing runs or could go back to

A name is that of a process: ``broker-<id>`` or ``zookeeper``.  What is kept lies under ``/opt/pylog/rolls``, for root
alone: ``<name>/`` holds copies of its files and ``what.json``; ``<name>.json`` is the marker of the last step::

    {"state": "restarting" | "done" | "rolled back", "release", "reasons", "files", "began_ms", "took_s", "why",
     "token"}

While one broker of a host has its step, the others run what they started with: should systemd start one of them again,
it gets the release it had, from a drop-in of its unit (``kept.conf``) that names it.  Its own step removes that.

``next/`` is laid out as the host is, and holds the files that a process gets in its own step.  Until then those that it
runs with stay where they are: a crash, a reboot or a lost connection never starts what no gate has judged.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path("/opt/pylog")
RUN = Path("/run")
ETC = Path("/etc")
UNITS = Path("/etc/systemd/system")
# Of the files that a process starts with, the one that belongs to a release and moves with its link.
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
    ROOT.mkdir(mode=0o755, exist_ok=True)  # a host with ZooKeeper alone has no release
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def unit_of(name: str) -> str:
    """Return the unit of a process."""
    kind, _, number = name.partition("-")
    return f"pylog-{kind}@{number}.service" if number else f"pylog-{kind}.service"


def record_of(name: str) -> Path:
    """Return where a process records what it starts with."""
    return RUN / "pylog" / f"{name}.started" if "-" in name else RUN / f"pylog-{name}" / "started"


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


def is_active(name: str) -> bool:
    """Say whether a process runs, or is about to."""
    return systemctl("is-active", unit_of(name), check=False) in ("active", "activating", "reloading")


def started_with(name: str) -> dict[str, str]:
    """Return path -> SHA-256 of what the running process recorded when it started; empty if nothing runs."""
    if systemctl("is-active", unit_of(name), check=False) != "active":
        return {}
    with contextlib.suppress(OSError):
        lines = record_of(name).read_text().splitlines()
        return {path: digest for digest, path in (line.split(maxsplit=1) for line in lines)}
    return {}


def is_ours(path: str) -> bool:
    """Say whether the deployment writes this file of a process; others come with a release or a Debian package."""
    return Path(path).is_relative_to(ETC)


def current_release(root: Path | None = None) -> str:
    """Return the name of the release that `current` points at; empty when there is none."""
    link = (root or ROOT) / "current"
    return link.readlink().name if link.is_symlink() else ""


def check_installed(release: str) -> None:
    """Raise SwapError unless *release* is whole."""
    target = ROOT / "releases" / release
    if not (target / LOCK).exists():
        raise SwapError(f"{target} is not installed: {LOCK} is missing")


def point_at(release: str) -> bool:
    """Make *release* the current one, in one step; say whether it was another."""
    check_installed(release)
    if current_release() == release:
        return False
    part = ROOT / "current.part"
    part.unlink(missing_ok=True)
    part.symlink_to(f"releases/{release}")
    part.replace(ROOT / "current")
    return True


def keep(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Copy what each process started with, and say below which directory its new files are to be written.

    That is `next` while any of them runs, and nowhere, which is their place itself, while none does.
    """
    kept = [name for name in wanted["names"] if keep_one(name)]
    target = rolls() / "next"
    shutil.rmtree(target, ignore_errors=True)  # of a run that died, perhaps for another inventory
    if not any(is_active(name) for name in wanted["names"]):
        return {"kept": kept, "stage": ""}
    for path in wanted.get("paths", []):
        staged(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {"kept": kept, "stage": str(target)}


def staged(path: str) -> Path:
    """Return where the next version of the file at *path* waits for its step."""
    return rolls() / "next" / path.lstrip("/")


def keep_one(name: str) -> bool:
    """Copy one process's files, as long as they are what it started with; say whether there was something to copy.

    Where an interrupted run has replaced some of it already, the older copy is the right one and stays.
    """
    started = started_with(name)
    judged = {path: digest for path, digest in started.items() if is_ours(path) or Path(path).name == LOCK}
    if not started or any(sha256(Path(path)) != digest for path, digest in judged.items()):
        return False
    release = current_release() if any(Path(path).name == LOCK for path in started) else ""
    target = rolls() / name
    if read(target / "what.json") == {"release": release, "files": started}:
        return False
    part = rolls() / f"{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    for path in map(Path, filter(is_ours, started)):
        copy(path, part / path.name)
    write(part / "what.json", {"release": release, "files": started})
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
    """Give one process its new files and release, stop it, which hands over what it leads, and start it.

    Does not wait for it.  A repetition with the same token, after a lost connection, leaves a process alone that this
    step has already started.

    Raises:
        SwapError: a file or the release is not there; nothing was touched.
    """
    name, token, began_ms = wanted["name"], wanted.get("token", ""), now_ms()
    marker = rolls() / f"{name}.json"
    before = read(marker)
    if token and (before.get("state"), before.get("token")) == ("restarting", token) and is_new(name, before):
        return before
    release = wanted.get("release") or ""
    moves = list(prepared(name, wanted.get("files") or {}))
    note = {"state": "restarting", "release": release or current_release(), "reasons": wanted["reasons"],
            "began_ms": began_ms, "token": token}  # fmt: skip
    if release:
        check_installed(release)
    write(marker, note)
    unpin(name)
    if release and release != current_release():
        pin_others(name)
    swapped = bool(release) and point_at(release)
    for source, target in moves:
        copy(source, target)
    systemctl("daemon-reload")
    # Both halves apart: a restart that is awaited would wait as long as the unit allows, not as long as the gate does.
    systemctl("stop", unit_of(name))
    stopped_ms = now_ms()
    systemctl("reset-failed", unit_of(name), check=False)
    systemctl("start", "--no-block", unit_of(name))
    return {**note, "swapped": swapped, "stop_ms": stopped_ms - began_ms}


def drop_in_of(name: str) -> Path:
    """Return the drop-in that has a process start from the release that it runs."""
    return UNITS / f"{unit_of(name)}.d" / "kept.conf"


def pin_others(name: str) -> None:
    """Have the host's other brokers that run start again from the release that `current` still points at.

    What such a start records keeps the name of the link, with the hash of the release that it ran: the next roll sees
    that it is not the wanted one.
    """
    unit = UNITS / "pylog-broker@.service"
    for record in (RUN / "pylog").glob("broker-*.started"):
        other = record.stem
        target = drop_in_of(other)
        if other == name or not is_active(other) or target.exists() or not unit.exists():
            continue
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        part.write_text("[Service]\n" + "".join(pinned(unit.read_text())))
        part.replace(target)


def pinned(unit: str) -> Iterator[str]:
    """Yield the lines of a drop-in that starts what *unit* starts, from the present release instead of `current`."""
    link, release = f"{ROOT / 'current'}/", f"{ROOT / 'releases' / current_release()}/"
    for line in unit.splitlines():
        key, _, value = line.partition("=")
        if key in ("ExecStartPre", "ExecStart"):
            own = value.replace(link, release)
            if key == "ExecStartPre":
                own = own.replace("exec sha256sum", "sha256sum").replace(" > ", f" | sed s#{release}#{link}# > ")
            yield f"{key}=\n{key}={own}\n"


def unpin(name: str) -> None:
    """Have a process start from `current` again."""
    drop_in_of(name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        drop_in_of(name).parent.rmdir()


def is_new(name: str, note: Mapping[str, Any]) -> bool:
    """Say whether a process has been started since the step of *note* began."""
    with contextlib.suppress(OSError):
        return is_active(name) and record_of(name).stat().st_mtime * 1000 >= note["began_ms"]
    return False


def prepared(name: str, files: Mapping[str, str]) -> Iterator[tuple[Path, Path]]:
    """Yield from where to where a process's new files are to be copied.

    Args:
        name: the process; files of other brokers on the host wait for their own step.
        files: path -> SHA-256 of all that is wanted on the host.

    Raises:
        SwapError: a file that differs is not prepared.
    """
    for path, digest in files.items():
        is_anothers = Path(path).name.startswith("broker-") and Path(path).stem != name
        if not is_ours(path) or is_anothers or sha256(Path(path)) == digest:
            continue
        if sha256(staged(path)) != digest:
            raise SwapError(f"{path} differs from what is wanted, and {staged(path)} is not that either; run again")
        yield staged(path), Path(path)


def back(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Put back what the host's processes ran with before, and restart those that run anything else."""
    restored: list[str] = []
    restarted: list[str] = []
    kept = {name: rolls() / name for name in wanted["names"]}
    for directory in kept.values():
        if what := read(directory / "what.json"):
            restored += restore(directory, what)
    for name, directory in kept.items():
        if read(directory / "what.json").get("release", "") == current_release():
            unpin(name)  # what it is pinned to is the current one again
    systemctl("daemon-reload")
    for name, directory in kept.items():
        files = read(directory / "what.json").get("files", {})
        if files and started_with(name) == files:
            continue
        note = {"state": "rolled back", "release": current_release(), "why": wanted["why"], "began_ms": now_ms()}
        write(rolls() / f"{name}.json", note)
        systemctl("stop", unit_of(name), check=False)
        systemctl("reset-failed", unit_of(name), check=False)
        systemctl("start", "--no-block", unit_of(name))
        restarted.append(name)
    return {"restored": restored, "restarted": restarted, "release": current_release()}


def restore(directory: Path, what: Mapping[str, Any]) -> Iterator[str]:
    """Put the copies in *directory* and their release back; yield what differed."""
    if what["release"] and point_at(what["release"]):
        yield f"release {what['release']}"
    for path, digest in what["files"].items():
        if is_ours(path) and sha256(Path(path)) != digest:
            copy(directory / Path(path).name, Path(path))
            yield path


def finish(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Note that a process passed its gate, and remove releases that nothing runs or could go back to."""
    marker = rolls() / f"{wanted['name']}.json"
    note = read(marker)
    took_s = round((now_ms() - note.get("began_ms", now_ms())) / 1000)
    note |= {"state": "done", "files": started_with(wanted["name"]), "took_s": took_s}
    write(marker, note)
    pruned = list(prune())
    return {"took_s": took_s, "pruned": pruned, "changed": bool(pruned)}


def prune(root: Path | None = None, keep: Collection[str] = ()) -> Iterator[str]:
    """Remove releases below *root*, and their bases, that are neither current nor kept nor newer than current.

    Releases and bases named in *keep* stay too.
    """
    root = root or ROOT
    if not (current := current_release(root)):
        return
    what = [read(path) for path in rolls().glob("broker-*/what.json")]
    wanted = {current, *keep, *(one.get("release", "") for one in what), *pinned_releases()}
    installed = sorted(path for path in (root / "releases").iterdir() if path.is_dir())
    # A release that was installed after the current one is on its way in.
    current_ms = (root / "releases" / current / LOCK).stat().st_mtime
    for path in installed:
        if path.name not in wanted and not ((path / LOCK).exists() and (path / LOCK).stat().st_mtime > current_ms):
            shutil.rmtree(path)
            yield path.name
    bases = {Path(line.split("/lib/")[0]).name for line in base_lines(root)}
    for path in (root / "bases").iterdir():
        if bases and path.is_dir() and path.name not in {*bases, *keep}:
            shutil.rmtree(path)
            yield path.name


def pinned_releases() -> Iterator[str]:
    """Yield the releases that drop-ins name."""
    for path in UNITS.glob("pylog-broker@*.service.d/kept.conf"):
        yield from re.findall(rf"^ExecStart={ROOT}/releases/([^/]+)/", path.read_text(), re.MULTILINE)


def prune_all(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Remove releases that nothing runs or could go back to, before another one is installed.

    A host without brokers has no step that would do it, nor has Spark's own environment.
    """
    pruned = list(prune(Path(wanted["root"]), wanted["keep"]))
    return {"pruned": pruned, "changed": bool(pruned)}


def base_lines(root: Path) -> Iterator[str]:
    """Yield what each release that is installed below *root* says of the base it stands on."""
    for path in (root / "releases").glob("*/lib/python3*/site-packages/base.pth"):
        yield path.read_text().strip()


def ask(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for a restart of all that runs now, unless an earlier roll still asks."""
    path = rolls() / f"asked-{wanted['of']}"
    if not path.exists():
        write(path, now_ms())
    return {"asked_ms": json.loads(path.read_text()), "changed": True}


def asked(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Forget that a restart was asked for: everything has had it."""
    path = rolls() / f"asked-{wanted['of']}"
    was_there = path.exists()
    path.unlink(missing_ok=True)
    return {"changed": was_there}


CHANGING = ("restart", "back")
"""Verbs that change what runs; the others keep notes, and say ``changed`` where that matters."""

VERBS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "keep": keep,
    "restart": restart,
    "back": back,
    "finish": finish,
    "ask": ask,
    "asked": asked,
    "prune": prune_all,
}

"""One release as two files: the wheels a host needs and their hashes, packed on the control machine.

Hosts never reach a package index.  The wheelhouse holds wheels and, for each kind of host, a locked requirements file
that names every wheel with its SHA-256, pylog's own among them.  A release is named ``<version>-<digest of that
file>``, so the same sources give the same release and restart nothing, and one byte of difference gives another.

Other people's wheels make a base of their own, since they are a hundred times larger than pylog's and change seldom:
an upgrade then sends and installs one small wheel.
"""

import hashlib
import io
import json
import re
import sys
import tarfile
from pathlib import Path

LOCK = "requirements.lock"
OWN = "pylog-cluster"


class WheelhouseError(Exception):
    """A wheel is missing; `make wheelhouse` builds it."""


def normal(name: str) -> str:
    """Return a distribution name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(lock: str) -> dict[str, str]:
    """Return name -> version of the pins in a locked requirements file."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", lock, re.MULTILINE)
    return {normal(name): version for name, version in pins}


def find_wheels(wheelhouse: Path, pins: dict[str, str]) -> dict[str, Path]:
    """Return the wheel of every pin.

    Raises:
        WheelhouseError: names every wheel that is missing.
    """
    there = {}
    for path in wheelhouse.glob("*.whl"):
        name, version = path.name.split("-")[:2]
        there[normal(name), version] = path
    missing = [f"{name}=={version}" for name, version in pins.items() if (name, version) not in there]
    if OWN not in pins:
        missing.append(OWN)
    if missing:
        raise WheelhouseError(f"{wheelhouse} lacks {', '.join(missing)}; run: make wheelhouse")
    return {name: there[name, version] for name, version in pins.items()}


def digest(text: str) -> str:
    """Return a short name for *text*."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def pack(lock: Path, target: Path) -> dict[str, str]:
    """Pack the wheels that the file *lock* pins under *target*, those that are not there already.

    Returns:
        Names and archives of release and base, for the role that installs them.

    Raises:
        WheelhouseError: the wheelhouse is not complete.
    """
    if not lock.exists():
        raise WheelhouseError(f"{lock} is missing; run: make wheelhouse")
    text = lock.read_text()
    pins = pinned(text)
    wheels = find_wheels(lock.parent, pins)
    own = [line for line in text.splitlines(keepends=True) if normal(line.split("==")[0]) == OWN]
    others = [line for line in text.splitlines(keepends=True) if line not in own]
    release = f"{pins[OWN]}-{digest(text)}"
    base = digest("".join(others))
    # Processes record the hash of this lock when they start, so it names the base too: another base is another release.
    own_lock = f"# release {release} on base {base}\n{''.join(own)}"
    archive = pack_one(target, f"pylog-{lock.stem}", release, [wheels.pop(OWN)], own_lock)
    base_archive = pack_one(target, f"base-{lock.stem}", base, sorted(wheels.values()), "".join(others))
    return {
        "release": release,
        "version": pins[OWN],
        "archive": str(archive.resolve()),
        "lock_sha256": hashlib.sha256(own_lock.encode()).hexdigest(),
        "base": base,
        "base_archive": str(base_archive.resolve()),
    }


def pack_one(target: Path, kind: str, name: str, wheels: list[Path], lock: str) -> Path:
    """Pack *wheels* and *lock* into ``<kind>-<name>.tar``, which replaces the former one of its kind."""
    archive = target / f"{kind}-{name}.tar"
    if not archive.exists():
        target.mkdir(parents=True, exist_ok=True)
        for former in target.glob(f"{kind}-*.tar"):
            former.unlink()
        partial = archive.with_suffix(".part")
        with tarfile.open(partial, "w") as tar:
            for path in wheels:
                tar.add(path, arcname=path.name)
            entry = tarfile.TarInfo(LOCK)
            entry.size = len(lock.encode())
            tar.addfile(entry, io.BytesIO(lock.encode()))
        partial.replace(archive)
    return archive


def main(lock: str, target: str) -> int:
    """Pack one release and print what it is as JSON."""
    try:
        print(json.dumps(pack(Path(lock), Path(target))))
    except (WheelhouseError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))

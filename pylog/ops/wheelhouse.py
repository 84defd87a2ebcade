"""One release as one file: the wheels a host needs and their hashes, packed on the control machine.

Hosts never reach a package index.  The wheelhouse holds wheels and, for each kind of host, a locked requirements file
that names every wheel with its SHA-256, pylog's own among them.  A release is named ``<version>-<digest of that
file>``, so the same sources give the same release and restart nothing, and one byte of difference gives another.
"""

import hashlib
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


def find_wheels(wheelhouse: Path, pins: dict[str, str]) -> list[Path]:
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
    return sorted(there[pin] for pin in pins.items())


def pack(lock: Path, target: Path) -> dict[str, str]:
    """Pack the wheels that the file *lock* pins into a tar under *target*, unless it is there already.

    Returns:
        The release's name, version and archive, for the role that installs it.

    Raises:
        WheelhouseError: the wheelhouse is not complete.
    """
    if not lock.exists():
        raise WheelhouseError(f"{lock} is missing; run: make wheelhouse")
    text = lock.read_text()
    pins = pinned(text)
    wheels = find_wheels(lock.parent, pins)
    name = f"{pins[OWN]}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    archive = target / f"pylog-{lock.stem}-{name}.tar"
    if not archive.exists():
        target.mkdir(parents=True, exist_ok=True)
        for former in target.glob(f"pylog-{lock.stem}-*.tar"):
            former.unlink()
        partial = archive.with_suffix(".part")
        with tarfile.open(partial, "w") as tar:
            for path in [*wheels, lock]:
                tar.add(path, arcname=LOCK if path == lock else path.name)
        partial.replace(archive)
    return {"release": name, "version": pins[OWN], "archive": str(archive.resolve())}


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

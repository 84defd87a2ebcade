"""Scripts of others that tests of the console run in a browser: from npm, by name, version and integrity.

    path_of("axe-core") -> .local/cache/scripts/axe-core-4.11.0.js

Nothing of theirs is committed. `npm pack` fetches the package once, and its bytes must have the hash below.
"""

import base64
import hashlib
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".local" / "cache" / "scripts"


@dataclass(frozen=True, slots=True)
class Script:
    """One file of an npm package.

    Attributes:
        version: of the package.
        integrity: of the package's archive, as npm says it: ``sha512-`` and base 64.
        member: path of the file in the archive.
    """

    version: str
    integrity: str
    member: str


SCRIPTS = {
    "axe-core": Script(
        "4.11.0",
        "sha512-ilYanEU8vxxBexpJd8cWM4ElSQq4QctCLKih0TSfjIfCQTeyH/6zVrmIJfLPrKTKJRbiG+cfnZbQIjAlJmF1jQ==",
        "package/axe.min.js",
    )
}


class WrongArchive(Exception):
    """The fetched package is not the one that is wanted."""


def path_of(name: str) -> Path:
    """Return the script of package *name*, after fetching it if it is not there yet.

    Raises:
        WrongArchive: the archive has another hash, or lacks the file.
        CalledProcessError: npm could not fetch it.
    """
    script = SCRIPTS[name]
    path = CACHE / f"{name}-{script.version}.js"
    if not path.exists():
        with tempfile.TemporaryDirectory() as directory:
            command = ["npm", "pack", "--silent", "--pack-destination", directory, f"{name}@{script.version}"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            [archive] = Path(directory).glob("*.tgz")
            content = extract(archive, script)
        CACHE.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_bytes(content)
        new.replace(path)
    return path


def extract(archive: Path, script: Script) -> bytes:
    """Return the script's file of an archive that has the right hash.

    Raises:
        WrongArchive: it has another hash, or lacks the file.
    """
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != script.integrity:
        raise WrongArchive(f"{archive.name}: wanted {script.integrity}, got {found}")
    with tarfile.open(archive) as files:
        try:
            member = files.extractfile(script.member)
        except KeyError:
            member = None
        if member is None:
            raise WrongArchive(f"{archive.name} has no file {script.member}")
        return member.read()

"""Jars of other people, by coordinates and hash: locked once, fetched once, packed for hosts that reach no registry.

Lock files are lines of ``group:artifact:version --sha256=HEX``, one a jar, dependencies included; lines with # are
comments.  Maven is needed only where a lock is made and where jars are fetched:

    python -m pylog.ops.jars lock  GROUP:ARTIFACT:VERSION.. >LOCK   the named jars with all that they need
    python -m pylog.ops.jars fetch JARS LOCK..                      into the directory JARS, each checked by its hash
    python -m pylog.ops.jars pack  JARS ARCHIVES NAME=LOCK..        an archive with a folder for each lock; prints JSON
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from xml.sax.saxutils import escape

_LINE = re.compile(
    r"(?P<group>[A-Za-z0-9._-]+):(?P<artifact>[A-Za-z0-9._-]+):(?P<version>[A-Za-z0-9._+-]+)"
    r" --sha256=(?P<sha256>[0-9a-f]{64})"
)
_COORDINATES = re.compile(r"[A-Za-z0-9._-]+:[A-Za-z0-9._-]+:[A-Za-z0-9._+-]+")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_MAVEN = (
    "mvn",
    "-q",
    "-B",
    "dependency:copy-dependencies",
    "-DincludeScope=runtime",
    "-Dmdep.useRepositoryLayout=true",
)


class JarsError(Exception):
    """A lock is wrong, a jar is missing or is not what its lock says, or Maven failed; the message says which."""


@dataclass(frozen=True, slots=True, order=True)
class Jar:
    """One jar of a lock."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Its name on a host; the group keeps two artifacts of one name apart."""
        return f"{self.group}.{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        """Its name for Maven."""
        return f"{self.group}:{self.artifact}:{self.version}"

    def __str__(self) -> str:
        return f"{self.coordinates} --sha256={self.sha256}"


def read_lock(text: str, where: str) -> list[Jar]:
    """Return the jars of a lock.

    Args:
        text: the lock.
        where: its file, for messages.

    Raises:
        JarsError: names the lines that are no jars, or says that there are none.
    """
    jars, wrong = [], []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        if found := _LINE.fullmatch(line):
            jars.append(Jar(**found.groupdict()))
        else:
            wrong.append(f"{where}:{number}: found {line[:80]!r}, wanted group:artifact:version --sha256=HEX")
    files = [jar.file for jar in jars]
    wrong += [f"{where}: {name} stands there twice" for name in sorted({n for n in files if files.count(n) > 1})]
    if not jars and not wrong:
        wrong.append(f"{where}: found no jar")
    if wrong:
        raise JarsError("\n".join(wrong))
    return sorted(jars)


def lock(coordinates: Sequence[str]) -> list[Jar]:
    """Return the named jars with all that they need, as Maven resolves it now.

    Raises:
        JarsError: coordinates have the wrong form, or Maven failed.
    """
    if wrong := [one for one in coordinates if not _COORDINATES.fullmatch(one)]:
        raise JarsError(f"found {', '.join(wrong)}, wanted group:artifact:version")
    with tempfile.TemporaryDirectory() as temporary:
        return sorted(
            Jar(".".join(path.parts[:-3]), path.parts[-3], path.parts[-2], _hash(Path(temporary) / path))
            for path in _resolve(coordinates, Path(temporary), with_dependencies=True)
        )


def fetch(jars: Iterable[Jar], directory: Path) -> int:
    """Fetch what *directory* lacks; what is there by its hash is left alone.

    Returns:
        How many were fetched.

    Raises:
        JarsError: Maven failed, or what came has another hash than its lock says; nothing of that is kept.
    """
    directory.mkdir(parents=True, exist_ok=True)
    missing = {jar.coordinates: jar for jar in jars if not _place(directory, jar).exists()}
    if not missing:
        return 0
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        there = {
            f"{'.'.join(path.parts[:-3])}:{path.parts[-3]}:{path.parts[-2]}": Path(temporary) / path
            for coordinates in rounds(missing.values())
            for path in _resolve(coordinates, Path(temporary), with_dependencies=False)
        }
        wrong = [
            f"{name}: found {_hash(there[name]) if name in there else 'no jar'}, wanted {jar.sha256}"
            for name, jar in sorted(missing.items())
            if name not in there or _hash(there[name]) != jar.sha256
        ]
        if wrong:
            raise JarsError("jars that are not what their locks say:\n" + "\n".join(wrong))
        for name, jar in missing.items():
            there[name].replace(_place(directory, jar))
    return len(missing)


def rounds(jars: Iterable[Jar]) -> list[list[str]]:
    """Return the jars' coordinates in as few lists as can be with one version of an artifact in each.

    Of two versions in one project Maven takes one; plugins have each their own.
    """
    versions: dict[tuple[str, str], list[str]] = {}
    for jar in jars:
        versions.setdefault((jar.group, jar.artifact), []).append(jar.coordinates)
    return [[one for one in row if one] for row in zip_longest(*versions.values())]


def pack(locks: Mapping[str, Path], directory: Path, target: Path) -> dict[str, str]:
    """Pack the jars of *locks* under *target*, a folder for each lock, unless that archive is there.

    Args:
        locks: the name of a folder -> its lock.
        directory: what `fetch` filled.
        target: directory of the archives.

    Returns:
        ``name`` of the archive's content, by its hashes, and its ``archive``.

    Raises:
        JarsError: a lock is wrong, or jars are missing or damaged; the message names all of them.
    """
    wrong: list[str] = [f"{name!r} is no name of a folder" for name in locks if not _NAME.fullmatch(name)]
    chosen: dict[str, list[Jar]] = {}
    for name, path in sorted(locks.items()):
        try:
            chosen[name] = read_lock(path.read_text(), str(path))
        except OSError as error:
            wrong.append(f"{path}: {error.strerror}")
        except JarsError as error:
            wrong.append(str(error))
    if wrong:
        raise JarsError("\n".join(wrong))
    missing = {jar.coordinates: name for name in chosen for jar in chosen[name] if not _place(directory, jar).exists()}
    if missing:
        paths = " ".join(str(locks[name]) for name in dict.fromkeys(missing.values()))
        raise JarsError(f"{directory} lacks {', '.join(sorted(missing))}; run: make jars LOCKS='{paths}'")
    text = "\n".join(f"{name} {jar}" for name, jars in chosen.items() for jar in jars)
    name = hashlib.sha256(text.encode()).hexdigest()[:10]
    archive = target / f"connect-{name}.tar"
    if not archive.exists():
        target.mkdir(parents=True, exist_ok=True)
        damaged = [
            jar.coordinates for jars in chosen.values() for jar in jars if _hash(_place(directory, jar)) != jar.sha256
        ]
        if damaged:
            raise JarsError(f"{directory}: damaged: {', '.join(damaged)}; remove {directory} and run: make jars")
        for former in target.glob("connect-*.tar"):
            former.unlink()
        partial = archive.with_suffix(".part")
        with tarfile.open(partial, "w") as tar:
            for folder, jars in chosen.items():
                for jar in jars:
                    tar.add(_place(directory, jar), arcname=f"{folder}/{jar.file}", filter=_plain)
        partial.replace(archive)
    return {"name": name, "archive": str(archive.resolve())}


def is_whole(directory: Path, jar: Jar) -> bool | None:
    """Return whether what `fetch` left in *directory* is *jar* by its hash; None where it is not there."""
    place = _place(directory, jar)
    return _hash(place) == jar.sha256 if place.exists() else None


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode = 0o644
    entry.mtime = 0
    return entry


def _place(directory: Path, jar: Jar) -> Path:
    return directory / f"{jar.sha256}.jar"


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _resolve(coordinates: Sequence[str], directory: Path, *, with_dependencies: bool) -> list[Path]:
    """Have Maven copy jars below *directory*; return them, relative to it, in Maven's layout group/artifact/version."""
    if shutil.which("mvn") is None:
        raise JarsError("Maven is needed to fetch jars: apt-get install maven")
    directory = directory.resolve()  # Maven's own directory is that of its pom
    pom = directory / "pom.xml"
    pom.write_text(pom_of(coordinates, with_dependencies=with_dependencies))
    command = [*_MAVEN, "-f", str(pom), f"-DoutputDirectory={directory}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise JarsError(f"Maven failed ({done.returncode}):\n{done.stdout[-2000:]}")
    found = sorted(path.relative_to(directory) for path in directory.rglob("*.jar"))
    # A lock has no place for what tells them apart from the plain jar of the same version.
    if special := [str(path.name) for path in found if path.name != f"{path.parts[-3]}-{path.parts[-2]}.jar"]:
        raise JarsError(f"found jars with a classifier: {', '.join(special)}")
    return found


def pom_of(coordinates: Sequence[str], *, with_dependencies: bool) -> str:
    """Return a project of Maven's that depends on jars, ``group:artifact:version`` each."""
    # Excluded here and not when copying: what is excluded need not even be found.
    without = (
        ""
        if with_dependencies
        else "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    )
    rows = (escape(one).split(":") for one in coordinates)
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{without}</dependency>"
        for group, artifact, version in rows
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>pylog</groupId><artifactId>jars</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>\n"
    )


def main(verb: str = "", *arguments: str) -> int:
    """Make a lock, fetch or pack."""
    try:
        match verb, arguments:
            case "lock", [_, *_]:
                print(f"# made by: python -m pylog.ops.jars lock {' '.join(arguments)}")
                print("\n".join(map(str, lock(arguments))))
            case "fetch", [directory, _, *_]:
                wanted = [jar for path in arguments[1:] for jar in read_lock(Path(path).read_text(), path)]
                print(
                    f"{fetch(wanted, Path(directory))} of {len(wanted)} jars fetched into {directory}", file=sys.stderr
                )
            case "pack", [directory, target, _, *_] if all("=" in one for one in arguments[2:]):
                locks = dict(one.split("=", 1) for one in arguments[2:])
                print(json.dumps(pack({n: Path(p) for n, p in locks.items()}, Path(directory), Path(target))))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except (JarsError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

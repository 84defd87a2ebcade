"""Java programs that find their classes in an archive, which halves what a start costs a processor.

The Java machine writes such an archive of what a run has loaded when the run ends. It is kept beside the jars; one for
other jars or for another Java has another name, and the machine itself ignores one that does not fit.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.servers.maven import cache_dir

Run = Callable[[Sequence[str]], None]


@cache
def shared_classes(name: str, classpath: str, run: Run) -> tuple[str, ...]:
    """Return the flags with which Java takes its classes from an archive; none where it cannot make one.

    Args:
        name: of the program.
        classpath: its jars, separated by colons, the same as in the command that gets the flags.
        run: runs the program to its end once, with these flags, and has it do what is usual.
    """
    archive = _archive(name, classpath)
    if not archive.exists():
        with learning(name, classpath) as flags:
            run(flags)
    return (_from(archive),) if archive.exists() else ()


@contextmanager
def learning(name: str, classpath: str) -> Iterator[tuple[str, ...]]:
    """Yield the flags of a run that ends well within the context: it leaves the archive, or takes its classes from it.

    Args:
        name: of the program.
        classpath: its jars, separated by colons, the same as in the command that gets the flags.
    """
    archive = _archive(name, classpath)
    if archive.exists():
        yield (_from(archive),)
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    # Two test runs may do so at once: each moves a whole archive there.
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        made = Path(directory) / archive.name
        yield (f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable")
        if made.exists():
            made.replace(archive)


def _archive(name: str, classpath: str) -> Path:
    java = shutil.which("java")
    assert java is not None, "Java is missing"
    files = [Path(java).resolve(), *map(Path, classpath.split(":"))]
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists()]
    return cache_dir() / "classes" / f"{name}-{hashlib.sha256(repr(stats).encode()).hexdigest()[:16]}.jsa"


def _from(archive: Path) -> str:
    return f"-XX:SharedArchiveFile={archive}"

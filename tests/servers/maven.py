"""Other people's Java programs: jars that come through Maven once and stay in a cache."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pylog.ops.jars import pom_of

_CHECKOUT = Path(__file__).resolve().parents[2]


def cache_dir() -> Path:
    """Return where jars are kept: ``$PYLOG_CACHE`` or ``.local/cache`` of this checkout."""
    root = os.environ.get("PYLOG_CACHE")
    return Path(root) if root else _CHECKOUT / ".local" / "cache"


def jars(name: str, artifacts: Sequence[str], *, transitive: bool = True) -> Path:
    """Return the directory that holds *artifacts* with all they need, fetching them unless it is full already.

    Args:
        name: of the directory in the cache.
        artifacts: ``group:artifact:version``.
        transitive: whether what they depend on comes along.

    Raises:
        RuntimeError: Maven is missing or failed; the message carries its last lines.
    """
    target = cache_dir() / name
    complete = target / "complete"
    if complete.exists() and complete.read_text().split() == list(artifacts):
        return target
    if shutil.which("mvn") is None:
        raise RuntimeError(f"Maven (mvn) is needed once to fetch {artifacts[0]}: apt-get install maven")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    pom = target / "pom.xml"
    pom.write_text(pom_of(artifacts, with_dependencies=transitive))
    command = [
        "mvn",
        "-q",
        "-B",
        "-f",
        str(pom),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={target}",
        "-DincludeScope=runtime",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Maven failed ({done.returncode}):\n{done.stdout[-2000:]}")
    # Written last, so that an interrupted fetch is never taken for a full cache.
    complete.write_text("\n".join(artifacts) + "\n")
    return target


def classpath(directory: Path, *, without: str | None = None) -> str:
    """Return the jars of *directory*, except those whose names begin with *without*."""
    found = sorted(directory.glob("*.jar"))
    return ":".join(str(jar) for jar in found if without is None or not jar.name.startswith(without))

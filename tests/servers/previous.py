"""Brokers of the release before this one: its sources from the repository's history, run by this checkout's Python."""

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMIT_FILE = ROOT / "molecule" / "previous_release"
SOURCES = ROOT / ".local" / "previous-sources"


def previous_commit() -> str:
    """Return the commit of the release before this one."""
    return COMMIT_FILE.read_text().strip()


@functools.cache
def previous_sources(commit: str | None = None) -> Path:
    """Return the directory of a release's compiled sources; made at the first call in a checkout.

    Args:
        commit: of the release; the one before this one unless given.

    Raises:
        RuntimeError: the repository's history does not have that release, as in a shallow clone.
    """
    commit = _full_name(commit or previous_commit())
    path = SOURCES / commit
    if path.exists():
        return path
    archive = _git("archive", commit, "pylog")
    SOURCES.mkdir(parents=True, exist_ok=True)
    # A test that is run beside this one may make the same directory.
    with tempfile.TemporaryDirectory(dir=SOURCES) as made:
        subprocess.run(["tar", "--extract", "--directory", made], input=archive, timeout=60, check=True)
        compile_sources(Path(made))
        if not path.exists():
            Path(made).rename(path)
            Path(made).mkdir()
    return path


def compile_sources(directory: Path) -> None:
    """Compile what is in *directory*, so that no start of a broker has to."""
    # Nothing compiles it later where PYTHONDONTWRITEBYTECODE is set, and each start would.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(directory)], check=True, env=environment)


def _full_name(commit: str) -> str:
    return _git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, timeout=60, check=False)
    if done.returncode:
        reason = done.stderr.decode().strip()
        raise RuntimeError(f"the previous release ({COMMIT_FILE}) cannot be taken from git: {reason}")
    return done.stdout


def previous_environment() -> Mapping[str, str]:
    """Return what to add to the environment of a broker so that it runs the release before this one."""
    # Safe path: else Python would find the `pylog` of the working directory first.
    return {"PYTHONPATH": os.fspath(previous_sources()), "PYTHONSAFEPATH": "1"}

"""Brokers of the release before this one: its sources from the repository's history, run by this checkout's Python."""

import functools
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMIT_FILE = ROOT / "molecule" / "previous_release"
SOURCES = ROOT / ".local" / "previous-sources"


@functools.cache
def previous_sources() -> Path:
    """Return the directory of the sources of the release before this one; made at the first call in a checkout.

    Raises:
        RuntimeError: the repository's history does not have that release, as in a shallow clone.
    """
    commit = COMMIT_FILE.read_text().strip()
    path = SOURCES / commit
    if path.exists():
        return path
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "pylog"], capture_output=True, timeout=60, check=False
    )
    if archive.returncode:
        reason = archive.stderr.decode().strip()
        raise RuntimeError(f"{COMMIT_FILE} names {commit}, which git does not have: {reason}")
    SOURCES.mkdir(parents=True, exist_ok=True)
    # A test that is run beside this one may make the same directory.
    with tempfile.TemporaryDirectory(dir=SOURCES) as made:
        subprocess.run(["tar", "--extract", "--directory", made], input=archive.stdout, timeout=60, check=True)
        if not path.exists():
            Path(made).rename(path)
            Path(made).mkdir()
    return path


def previous_environment() -> Mapping[str, str]:
    """Return what to add to the environment of a broker so that it runs the release before this one."""
    # Safe path: else Python would find the `pylog` of the working directory first.
    return {"PYTHONPATH": os.fspath(previous_sources()), "PYTHONSAFEPATH": "1"}

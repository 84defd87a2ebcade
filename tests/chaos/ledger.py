"""What a run makes on this machine, written down before it is made, so that it can be removed whatever ends the run.

Everything that a run starts is inside network namespaces of its own, so the namespaces know its processes.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

NAMESPACE, MOUNT = "namespace", "mount"
_ENDING_S = 10.0
_POLL_S = 0.05


class Ledger:
    """The list of one run, a line for each thing: kind and name, separated by a tab.

    Attributes:
        path: the file.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "ledger.tsv"

    def note(self, kind: str, name: str) -> None:
        """Write down that the run is about to make this."""
        with self.path.open("a") as file:
            file.write(f"{kind}\t{name}\n")
            file.flush()
            os.fsync(file.fileno())

    def names(self, kind: str) -> list[str]:
        """Return what was noted of one kind, the last first; each once."""
        if not self.path.exists():
            return []
        rows = [line.split("\t") for line in self.path.read_text().splitlines() if line.count("\t") == 1]
        return list(dict.fromkeys(name for noted, name in reversed(rows) if noted == kind))

    def clean(self) -> list[str]:
        """End the run's processes, remove its mounts and namespaces; return what could not be removed.

        The calling process is left alone.
        """
        spaces = self.names(NAMESPACE)
        _end_processes(spaces)
        left = [f"mount {path}" for path in self.names(MOUNT) if not _unmount(Path(path))]
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
            if Path("/run/netns", space).exists():
                left.append(f"namespace {space}")
        return left


def processes(spaces: list[str]) -> set[int]:
    """Return the processes in these namespaces, but for this one."""
    found = set()
    for space in spaces:
        done = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
        found |= set(map(int, done.stdout.split()))
    return found - {os.getpid()}


def _end_processes(spaces: list[str]) -> None:
    deadline_s = time.monotonic() + _ENDING_S
    while (running := processes(spaces)) and time.monotonic() < deadline_s:
        for pid in running:
            try:
                os.kill(pid, signal.SIGKILL)  # a stopped process ends too
            except ProcessLookupError:
                continue
        time.sleep(_POLL_S)


def _unmount(path: Path) -> bool:
    deadline_s = time.monotonic() + _ENDING_S
    while path.is_mount():
        subprocess.run(["umount", str(path)], capture_output=True, check=False)
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def clean_run(directory: Path) -> list[str]:
    """Remove what the run in *directory* left on this machine, and its data; return what could not be removed.

    Raises:
        ValueError: *directory* is no run's, or the run is still going on.
    """
    ledger = Ledger(directory)
    if not ledger.path.exists():
        raise ValueError(f"{directory} is not the directory of a run: it has no {ledger.path.name}")
    runner = runner_of(directory)
    if runner is not None:
        raise ValueError(f"the run in {directory} is still going on: process {runner}")
    left = ledger.clean()
    if not left:
        shutil.rmtree(directory / "disks", ignore_errors=True)
    return left


def note_runner(directory: Path) -> None:
    """Write down that this process is the run's."""
    (directory / "runner").write_text(f"{os.getpid()} {_started(os.getpid())}\n")


def runner_of(directory: Path) -> int | None:
    """Return the process of the run in *directory*; None if it has ended."""
    path = directory / "runner"
    if not path.exists():
        return None
    pid, _, started = path.read_text().strip().partition(" ")
    # The number may belong to another process by now; its time of start tells.
    return int(pid) if started and _started(int(pid)) == started else None


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""

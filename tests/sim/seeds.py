"""Many runs, each in a process of its own, a few at a time.

A run that does not end is a failure like any other: virtual time and the number of events have their limits
(`tests.sim.world`), and what loops or waits within one event has a limit of processor time, or of time without any.
"""

import gc
import os
import pickle
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from tests.sim import threads
from tests.sim.run import Result, Run
from tests.sim.stories import tell

MEMORY = Path("/dev/shm")

CPU_S = 120
"""Processor time that a run may use; it needs one to two seconds."""

KILL_S = 5
"""After so much more it is killed, if it no longer runs Python's code and cannot say where it is."""

SILENT_S = 300.0
"""After so long without any processor time a run waits for what never comes; a machine may be busy for a while."""

POLL_S = 5.0
INNERMOST = 8
"""Frames that are told of a run that does not end."""

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def run_seeds(seeds: Sequence[int], jobs: int, *, trace: bool = False) -> Iterator[Result]:
    """Yield the result of each seed, in order; whoever stops asking ends what still runs."""
    return _run([(seed, partial(_run_seed, seed, trace=trace)) for seed in seeds], jobs)


def tell_stories(names: Sequence[str], jobs: int, *, trace: bool = False) -> Iterator[Result]:
    """Yield the result of each story, in order."""
    return _run([(number, partial(tell, name, trace=trace)) for number, name in enumerate(names)], jobs)


def _run_seed(seed: int, directory: Path, *, trace: bool) -> Result:
    return Run(seed, directory, trace=trace).go()


def _run(runs: Sequence[tuple[int, Callable[[Path], Result]]], jobs: int) -> Iterator[Result]:
    gc.freeze()
    running: list[_Child] = []
    waiting = list(reversed(runs))
    root = Path(tempfile.mkdtemp(prefix="pylog-sim-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, run = waiting.pop()
                running.append(_fork(number, root / str(number), run))
            result = running[0].wait()
            del running[0]
            yield result
    finally:
        for child in running:
            child.kill()
        shutil.rmtree(root, ignore_errors=True)


class _Child:
    """A process with one run."""

    def __init__(self, number: int, pid: int, fd: int) -> None:
        """Read from *fd* what process *pid* says of run *number*."""
        self._number = number
        self._pid = pid
        self._fd = fd
        self._data = bytearray()

    def wait(self) -> Result:
        """Return how the run ended; one that neither ends nor works is killed."""
        used, since_s = -1, time.monotonic()
        while True:
            if select.select([self._fd], [], [], POLL_S)[0]:
                part = os.read(self._fd, 1 << 20)
                if not part:
                    break
                self._data += part
            now, now_s = _ticks(self._pid), time.monotonic()
            if now != used:
                used, since_s = now, now_s
            elif now_s - since_s > SILENT_S:
                self.kill()
                return self._failure("progress", f"the run's process waits, and has used {used / TICKS_PER_S:.0f} s")
        os.close(self._fd)
        _, status = os.waitpid(self._pid, 0)
        if self._data:
            result: Result = pickle.loads(self._data)
            return result
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
            return self._failure("progress", f"the run's process was killed after {CPU_S} s of processor time")
        return self._failure("no exception", f"the run's process died, status {status}")

    def kill(self) -> None:
        """End the process."""
        os.kill(self._pid, signal.SIGKILL)
        os.close(self._fd)
        os.waitpid(self._pid, 0)

    def _failure(self, invariant: str, detail: str) -> Result:
        return Result(self._number, invariant=invariant, detail=f"{invariant}: {detail}")


def _ticks(pid: int) -> int:
    """Return the processor time that a process has used, in ticks of the kernel's clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _fork(number: int, directory: Path, run: Callable[[Path], Result]) -> _Child:
    """Make one run in a child, which ends without cleaning up: what a killed broker left behind must do nothing."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return _Child(number, pid, reader)
    end_process, write = os._exit, os.write

    def send(result: Result) -> None:
        data = pickle.dumps(result)
        while data:
            data = data[write(writer, data) :]

    def give_up(number_of_signal: int, frame: FrameType | None) -> None:
        send(_endless(number, frame))
        end_process(1)

    os.close(reader)
    gc.disable()
    try:
        signal.signal(signal.SIGXCPU, give_up)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + KILL_S))
        # One thread runs at a time: on one core the next is woken where the last one ended, in half the time.
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[number % len(cpus)]})
        directory.mkdir()
        result = run(directory)
        result.cpu_s = time.process_time()
        send(result)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        end_process(0)


def _endless(number: int, main: FrameType | None) -> Result:
    """Return what to say of a run that has used its time: where its threads are, but for those that are parked."""
    frames = sys._current_frames() | {threading.get_ident(): main}
    stacks = [traceback.extract_stack(frame) for frame in frames.values()]
    places = ["".join(stack.format()[-INNERMOST:]) for stack in stacks if not _is_parked(stack)]
    detail = f"progress: no end after {CPU_S} s of processor time; threads:"
    return Result(number, invariant="progress", detail="\n".join([detail, *places]))


def _is_parked(stack: traceback.StackSummary) -> bool:
    """Whether a thread waits for its turn, or for work."""
    return stack[-1].filename == threads.__file__

"""Many runs, each in a process of its own, a few at a time."""

import gc
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.sim.run import Result, Run
from tests.sim.stories import tell

MEMORY = Path("/dev/shm")


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
    running: list[tuple[int, int, int]] = []  # number, process, pipe
    waiting = list(reversed(runs))
    root = Path(tempfile.mkdtemp(prefix="pylog-sim-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, run = waiting.pop()
                running.append(_fork(number, root / str(number), run))
            number, pid, fd = running.pop(0)
            with os.fdopen(fd, "rb") as pipe:
                data = pipe.read()
            _, status = os.waitpid(pid, 0)
            yield (
                pickle.loads(data)
                if data
                else Result(number, invariant="no exception", detail=f"the run's process died, status {status}")
            )
    finally:
        for _, pid, fd in running:
            os.kill(pid, 9)
            os.close(fd)
            os.waitpid(pid, 0)
        shutil.rmtree(root, ignore_errors=True)


def _fork(number: int, directory: Path, run: Callable[[Path], Result]) -> tuple[int, int, int]:
    """Make one run in a child, which ends without cleaning up: what a killed broker left behind must do nothing."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return number, pid, reader
    end_process, write = os._exit, os.write
    os.close(reader)
    gc.disable()
    try:
        # One thread runs at a time: on one core the next is woken where the last one ended, in half the time.
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[number % len(cpus)]})
        directory.mkdir()
        data = pickle.dumps(run(directory))
        while data:
            data = data[write(writer, data) :]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        end_process(0)

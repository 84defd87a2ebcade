"""Each planted fault until the checker finds it: runs with the seeds 1, 2, ... one after the other, and the table."""

import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.chaos.planted import PLANTED, Planted

VIOLATIONS = "violations.tsv"
"""File in a run's directory: a line for each violation, which begins with its kind."""

_CHECKOUT = Path(__file__).resolve().parents[2]
_MOST_RUNS = 10
_PATIENCE_S = 60
"""Some faults keep the cluster from ever coming to rest; what the checker finds then is found all the same."""


class Found(NamedTuple):
    """What came of one planted fault.

    Attributes:
        runs: how many it took, or all there were.
        kinds: violations that the checker told in the last one, by kind; empty if it told none in any.
        is_found: whether one of the kinds that the fault must show is among them.
        took_s: of the clock, setting up and checking included.
        kept: directories of the runs in which the checker told something that the fault must not show, or nothing.
    """

    planted: Planted
    runs: int
    kinds: Counter[str]
    is_found: bool
    took_s: float
    kept: Sequence[Path] = ()


def hunt(planted: Planted, options: Sequence[str]) -> Found:
    """Run the fault with one seed after the other until the checker finds what it must."""
    began_s = time.monotonic()
    kinds: Counter[str] = Counter()
    kept: list[Path] = []
    for seed in range(1, _MOST_RUNS + 1):
        directory = _run(planted, seed, options)
        kinds = Counter(violations(directory))
        if is_explained(planted, kinds.keys()):
            shutil.rmtree(directory)
        else:
            kept.append(directory)
        if planted.kinds & kinds.keys():
            return Found(planted, seed, kinds, True, time.monotonic() - began_s, kept)
    return Found(planted, _MOST_RUNS, kinds, False, time.monotonic() - began_s, kept)


def is_explained(planted: Planted, kinds: Collection[str]) -> bool:
    """Whether the fault alone explains what the checker told; anything else must be looked at."""
    return bool(kinds) and set(kinds) <= planted.kinds


def violations(directory: Path) -> list[str]:
    """Return the kinds of violations that the checker told of a run."""
    return [line.partition("\t")[0] for line in (directory / VIOLATIONS).read_text().splitlines()]


def table(found: Sequence[Found], minutes: float) -> str:
    """Return the page in Markdown."""
    rows = [
        f"| {one.planted.name} | {one.planted.what} | {one.runs if one.is_found else 'not found'} |"
        f" {', '.join(f'{kind} ({count})' for kind, count in one.kinds.most_common())} | {one.took_s:.0f} |"
        for one in found
    ]
    head = [
        "# Faults that were planted for the checker of chaos",
        "",
        f"Runs of {minutes:g} min with the seeds 1, 2, ... until the checker finds the fault; all brokers have it.",
        "Seconds are of the clock and include the start and the end of each run. In brackets: how many violations were",
        "told.",
        "",
        "| fault | what it breaks | runs | found as | seconds |",
        "| --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *rows, ""])


def chosen(names: Sequence[str]) -> Iterator[Planted]:
    """Yield the planted faults of these names, all without one.

    Raises:
        ValueError: there is no such fault.
    """
    known = {planted.name: planted for planted in PLANTED}
    for name in names or known:
        if name not in known:
            raise ValueError(f"no planted fault {name!r}; known: {', '.join(known)}")
        yield known[name]


def _run(planted: Planted, seed: int, options: Sequence[str]) -> Path:
    """Run the fault once; return the directory of the run."""
    # A process for each run: a run enters a network namespace and never leaves it.
    command = [
        *(sys.executable, "-m", "tests.chaos", "--one-release", f"--patience={_PATIENCE_S}"),
        *("--mutant", planted.name, "--seed", str(seed), *options),
    ]
    done = subprocess.run(command, cwd=_CHECKOUT, capture_output=True, text=True, check=False)
    said = re.search(r"directory=(\S+);", done.stdout)
    if said is None or not Path(said[1], VIOLATIONS).exists():
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    return Path(said[1])

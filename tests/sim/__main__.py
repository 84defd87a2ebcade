"""`python -m tests.sim`: run seeds and tell of those that fail, with their last events."""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sim import mutants
from tests.sim.mutants import MUTANTS, Mutant, find, install

if TYPE_CHECKING:
    from tests.sim.survey import Survey

HASH_SEED = "0"
LAST_EVENTS = 60


def main() -> int:
    """Run what the command line asks for; 1 if an invariant broke."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        # Sets of strings would come in another order every time.
        command = [sys.executable, "-m", "tests.sim", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": HASH_SEED})
    arguments = _arguments()
    if arguments.sum_up is not None:
        return _sum_up_record(arguments.sum_up)
    if arguments.mutants:
        return run_mutants(arguments)
    if arguments.mutant is not None:
        install(find(arguments.mutant))
    if arguments.story is not None:
        return _tell_stories(arguments)
    return _run_seeds(arguments)


def _run_seeds(arguments: argparse.Namespace) -> int:
    """Run seeds one after the other, and tell of those that fail; 1 if one did."""
    from tests.sim.faults import seeds_of_stage
    from tests.sim.seeds import run_seeds
    from tests.sim.survey import Range, Survey, Totals, digest, left

    is_replay = arguments.seed is not None
    seeds: Sequence[int] = range(arguments.first, arguments.first + arguments.seeds)
    if is_replay:
        seeds = [arguments.seed]
    if arguments.stage is not None:
        seeds = seeds_of_stage(arguments.stage, seeds)
    survey = Survey(arguments.keep) if arguments.keep is not None else None
    if survey is not None:
        seeds = left(seeds, survey.rows())
    tree = digest() if arguments.record is not None else ""  # before files change while the seeds run
    started_s = time.monotonic()
    totals = Totals()
    with _stopping():
        for result in run_seeds(seeds, arguments.jobs, trace=is_replay):
            totals.add(result)
            if survey is not None:
                survey.add(result)
            if is_replay or arguments.verbose:
                print(result.summary, flush=True)
            if is_replay and not result.invariant:
                print(result.story(arguments.events))
            if result.invariant:
                is_told = is_replay or not arguments.events
                for replayed in [result] if is_told else run_seeds([result.seed], 1, trace=True):
                    print(replayed.story(arguments.events), flush=True)
                if not arguments.go_on:
                    break
    if arguments.count and totals.runs:
        print(totals.table())
    if arguments.record is not None and totals.runs:
        line = Range.of(totals, tree).line()
        with arguments.record.open("a") as file:
            file.write(f"{line}\n")
        print(line)
    took_s = time.monotonic() - started_s
    counts = " ".join(f"{name}={count}" for name, count in sorted(totals.counts.items()))
    failed = ",".join(map(str, totals.broken)) or "none"
    print(f"seeds={totals.runs} failed={failed} took_s={took_s:.0f} cpu_s={totals.cpu_s:.0f} {counts}")
    return _sum_up(survey) if survey is not None else bool(totals.broken)


def _sum_up_record(path: Path) -> int:
    """Say what the ranges of a record add up to; 1 if no tree has yet all that is required."""
    from tests.sim.survey import read_record, summed_up

    try:
        text, is_enough = summed_up(read_record(path))
    except (OSError, ValueError) as error:
        raise SystemExit(f"cannot sum up {path}: {error}") from error
    print(text)
    return 0 if is_enough else 1


def _sum_up(survey: "Survey") -> int:
    """Say what a survey has by now, and write its page if that is enough; 1 if a seed of it failed."""
    from tests.sim.survey import PAGE_SEEDS, ranges

    rows = survey.rows()
    failed = [row.seed for row in rows if row.invariant]
    run = ranges([row.seed for row in rows])
    print(f"tree={survey.tree} seeds={len(rows)} failed={ranges(failed) or 'none'} run={run}")
    page = survey.write_page()
    print(f"wrote {page}" if page is not None else f"no page: it takes {PAGE_SEEDS} seeds")
    return 1 if failed else 0


@contextmanager
def _stopping() -> Iterator[None]:
    """Let an interrupt or SIGTERM end the runs in between, without a traceback."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        print("stopped", flush=True)


def _tell_stories(arguments: argparse.Namespace) -> int:
    """Tell one story, or all; 1 if an invariant broke."""
    from tests.sim.seeds import tell_stories
    from tests.sim.stories import STORIES

    names = list(STORIES) if arguments.story == "all" else [arguments.story]
    if unknown := [name for name in names if name not in STORIES]:
        raise SystemExit(f"unknown story {unknown[0]!r}; known: all, {', '.join(STORIES)}")
    failed = []
    for result in tell_stories(names, arguments.jobs, trace=bool(arguments.events)):
        print(result.summary, flush=True)
        if result.invariant:
            failed.append(result.name)
            print(result.story(arguments.events), flush=True)
    print(f"stories={len(names)} failed={','.join(failed) or 'none'}")
    return 1 if failed else 0


def run_mutants(arguments: argparse.Namespace) -> int:
    """Run the simulator against every mutant; print a row for each, and return 1 if one was not found."""
    from tests.sim.survey import mutants_page

    rows: list[tuple[str, str, str]] = []
    moved: dict[str, int] = {}
    last = arguments.first + arguments.seeds - 1
    for mutant in MUTANTS:
        started_s = time.monotonic()
        mutant.applied()
        found = None
        if mutant.story:
            found = _search(mutant, "--story", mutant.story)
        elif arguments.first <= mutant.seed <= last:
            found = _search_seeds(mutant, mutant.seed, 1, 1)
        if found is None and not mutant.story:
            if mutant.stage:
                found = _search_seeds(mutant, arguments.first, arguments.seeds, arguments.jobs, "--stage", mutant.stage)
            if found is None:
                found = _search_seeds(mutant, arguments.first, arguments.seeds, arguments.jobs)
            if found is not None:
                moved[mutant.name] = int(found[0])
        rows.append((mutant.name, *(found or ("", ""))))
        by = " by ".join(found) if found is not None else "not found"
        print(f"{mutant.name}: {by} ({time.monotonic() - started_s:.0f} s)", flush=True)
    if moved:
        path = Path(mutants.__file__)
        path.write_text(mutants.note_seeds(path.read_text(), moved))
        print(f"noted other seeds in {path.name}: {moved}")
    print(f"wrote {mutants_page(rows, arguments.first, last)}")
    missed = [name for name, by, _ in rows if not by]
    print(f"{len(MUTANTS)} faults, {len(missed)} not found by seeds {arguments.first} to {last}", *missed)
    return 1 if missed else 0


def _search_seeds(mutant: Mutant, first: int, seeds: int, jobs: int, *which: str) -> tuple[str, str] | None:
    return _search(mutant, "--first", str(first), "--seeds", str(seeds), "--jobs", str(jobs), *which)


def _search(mutant: Mutant, *runs: str) -> tuple[str, str] | None:
    """Return the first seed or story that finds a fault, and by which invariant; None if none of them does."""
    command = [sys.executable, "-m", "tests.sim", "--mutant", mutant.name, "--events", "0", *runs]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"^FAILED (?:seed|story)=([\w-]+): ([^:]+)", done.stdout, re.MULTILINE)
    return (found[1], found[2].splitlines()[0]) if found else None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--mutant", help="with this fault in the code")
    parser.add_argument("--mutants", action="store_true", help="with each known fault, until it is found")
    parser.add_argument("--stage", help="only seeds whose run is that one situation, again and again")
    parser.add_argument("--story", help="tell one of the stories, or all")
    parser.add_argument("--seed", type=int, help="replay this one, with its events")
    parser.add_argument("--events", type=int, default=LAST_EVENTS, help="how many events of a failure to print")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("--count", action="store_true", help="print how often each kind of event happened")
    parser.add_argument("--keep", type=Path, help="keep results of this tree below here, and skip seeds that are there")
    parser.add_argument("--record", type=Path, help="append a line about these seeds and this tree to a file")
    parser.add_argument("--sum-up", type=Path, help="say what the lines of such a file add up to, and what is missing")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--verbose", action="store_true", help="a line a seed")
    arguments = parser.parse_args()
    chosen = (arguments.seed, arguments.stage, arguments.story, arguments.mutant)
    if arguments.record is not None and any(one is not None for one in chosen):
        parser.error("--record takes whole ranges of seeds: not with --seed, --stage, --story, or --mutant")
    return arguments


if __name__ == "__main__":
    sys.exit(main())

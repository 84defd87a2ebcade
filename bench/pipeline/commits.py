"""A day of loads: is the last commit as cheap as the first?

python -m bench.pipeline.commits [--commits 1440] [--rounds 3] [--topics 100] [--partitions 8] [--directory DIR]

What a driver does beside its tasks for each load: reads where it stands, begins, commits, moves the files out, purges
and prunes.  A load a minute, by one driver (`--every 60`); each makes a file of each topic and has the positions of all
partitions.  Once an hour a compaction makes one file a topic of the hour before, as the role's timer does.  The files
are not Parquet, since nothing of this opens them.  No Spark, no broker, no Iceberg.

What else runs on the machine makes CPU time dearer, and it changes in the course of a day's commits.  So the last ten
are made by turns with the first ten of a lake that begins then, one commit of each; further rounds go on with the day,
each beside another new lake.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pylog.ingest.lake import COMMITS_KEPT_S, HOUR_S, Attempt, File, Kind, Lake, path_of
from pylog.ingest.plan import Position
from pylog.model import TopicPartition

_TEN = 10
_FIRST_HOUR = 490_000
_HOUR = 60


class Cost(NamedTuple):
    """What one commit took."""

    wall_s: float
    cpu_s: float


def written(attempt: Attempt, topics: Sequence[str], hour: int) -> list[File]:
    """Write a file of each topic, as tasks do."""
    found = []
    for topic in topics:
        name = f"{attempt.directory.name}-{topic}.parquet"
        (attempt.directory / name).write_bytes(b"rows")
        found.append(File(path_of(topic, _FIRST_HOUR + hour, name), 100, 4))
    return found


def load(root: Path, before: Lake | None, minute: int, topics: Sequence[str], partitions: int) -> tuple[Lake, Cost]:
    """Make one commit; return what it took of the driver, without the writing of the files."""
    position = Position(
        {TopicPartition(name, one): 100 * (minute + 1) for name in topics for one in range(partitions)},
        {name: f"{name:0<22}" for name in topics},
    )
    began = time.perf_counter(), time.process_time()
    lake = Lake.create(root, before)
    state = lake.finish()
    lake.clean(state)
    lake.purge(state, 0)
    lake.prune(COMMITS_KEPT_S)
    attempt = lake.begin(Kind.LOAD, state)
    apart = time.perf_counter(), time.process_time()
    files = written(attempt, topics, minute // _HOUR)
    again = time.perf_counter(), time.process_time()
    lake.commit(attempt, files, more={"position": position.to_json()})
    ended = time.perf_counter(), time.process_time()
    return lake, Cost(*(a - b + c - d for a, b, c, d in zip(apart, began, ended, again, strict=True)))


def compact(root: Path, hour: int, topics: Sequence[str]) -> None:
    """Replace the files of an hour by one a topic."""
    lake = Lake.open(root)
    state = lake.finish()
    old = [path for path, file in state.files.items() if file.hour_ended_s == (_FIRST_HOUR + hour + 1) * HOUR_S]
    attempt = lake.begin(Kind.COMPACTION, state)
    lake.commit(attempt, written(attempt, topics, hour), replaces=old, more={})


def main(arguments: Sequence[str]) -> int:
    """Print the medians of ten commits here and there in the day, and of its last ten beside a new lake's first ten."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("commits", 1440), ("rounds", 3), ("topics", 100), ("partitions", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--directory", type=Path, help="for the lake, on the disk that is meant")
    given = parser.parse_args(arguments)
    topics = [f"topic-{number:04}" for number in range(given.topics)]
    work = Path(tempfile.mkdtemp(prefix="pylog-bench-", dir=given.directory))
    lake: Lake | None = None
    costs: list[Cost] = []

    def load_of_the_day(minute: int) -> None:
        nonlocal lake
        if minute % _HOUR == 0 and minute:
            compact(work / "lake", minute // _HOUR - 1, topics)
        lake, cost = load(work / "lake", lake, minute, topics, given.partitions)
        costs.append(cost)

    try:
        for minute in range(given.commits - _TEN):
            load_of_the_day(minute)
            if len(costs) % 240 == _TEN:
                print(_line(f"commits {len(costs) - 9} to {len(costs)}", costs[-_TEN:]), flush=True)
        for number in range(given.rounds):
            new: Lake | None = None
            first: list[Cost] = []
            for minute in range(_TEN):
                load_of_the_day(len(costs))
                new, cost = load(work / f"new-{number}", new, minute, topics, given.partitions)
                first.append(cost)
            print(_line(f"commits {len(costs) - 9} to {len(costs)}", costs[-_TEN:]))
            print(_line("by turns with commits 1 to 10 of another lake", first))
            late, early = _median(costs[-_TEN:]), _median(first)
            print(
                f"last ten / first ten: elapsed {late.wall_s / early.wall_s:.2f}, CPU {late.cpu_s / early.cpu_s:.2f}",
                flush=True,
            )
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


def _line(which: str, costs: Sequence[Cost]) -> str:
    median = _median(costs)
    return (
        f"{which}: median {median.wall_s * 1000:.1f} ms, CPU {median.cpu_s * 1000:.1f} ms, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(statistics.median(one.wall_s for one in costs), statistics.median(one.cpu_s for one in costs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A day of loads: is the last commit as cheap as the first?

python -m bench.pipeline.commits [--commits 1440] [--topics 100] [--partitions 8] [--directory DIR]

What a driver does beside its tasks for each load: reads where it stands, begins, commits, moves the files out, purges
and prunes.  A load a minute, by one driver (`--every 60`); each makes a file of each topic and has the positions of all
partitions.  Once an hour a compaction makes one file a topic of the hour before, as the role's timer does.  The files
are not Parquet, since nothing of this opens them.  No Spark, no broker, no Iceberg.
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
    """Print the medians of the first ten commits, the last ten, and some between."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("commits", 1440), ("topics", 100), ("partitions", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--directory", type=Path, help="for the lake, on the disk that is meant")
    given = parser.parse_args(arguments)
    topics = [f"topic-{number:04}" for number in range(given.topics)]
    work = Path(tempfile.mkdtemp(prefix="pylog-bench-", dir=given.directory))
    lake: Lake | None = None
    costs: list[Cost] = []
    try:
        for minute in range(given.commits):
            if minute % _HOUR == 0 and minute:
                compact(work / "lake", minute // _HOUR - 1, topics)
            lake, cost = load(work / "lake", lake, minute, topics, given.partitions)
            costs.append(cost)
            if len(costs) % 240 == _TEN or len(costs) == given.commits:
                median = _median(costs[-_TEN:])
                print(
                    f"commits {len(costs) - 9} to {len(costs)}: median {median.wall_s * 1000:.0f} ms, "
                    f"CPU {median.cpu_s * 1000:.0f} ms, load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
    finally:
        shutil.rmtree(work, ignore_errors=True)
    first, last = _median(costs[:_TEN]), _median(costs[-_TEN:])
    print(f"last ten / first ten: elapsed {last.wall_s / first.wall_s:.2f}, CPU {last.cpu_s / first.cpu_s:.2f}")
    return 0


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(statistics.median(one.wall_s for one in costs), statistics.median(one.cpu_s for one in costs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

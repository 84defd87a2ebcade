"""The compaction job: many small files of a closed hour become one, by a commit that replaces them.

Started by a timer beside the load job; the two do not disturb each other (`pylog.ingest.lake`).
"""

import argparse
import errno
import os
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import pyarrow.parquet as pq
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pylog.errors import PylogError, StorageError
from pylog.faults import code_of
from pylog.ingest.compaction import TARGET_BYTES, plan_compaction
from pylog.ingest.lake import Attempt, File, Kind, Lake, LakeError, sync
from pylog.ingest.spark import DEFAULT_MASTER, error_of, session
from pylog.ingest.status import compaction_metrics, replace_text

DEFAULT_LATENESS_S = 3600
DEFAULT_GRACE_S = 3600

_MAX_SETS = 200
# Of one commit: what a killed run has done so far is done.

_SIDE_BY_SIDE = 64
# Spark jobs at once, at most; each is one task, so that as many run as there are cores.

_MAX_NAMED = 10
# Failures that one error names; the causes of the others are hardly other ones.

_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))
# How Java and Python alike say that the disk takes no more.


class DiskFull(StorageError):
    """The lake's disk takes no more: no other files can be compacted either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactConfig:
    """What to make fewer.

    Attributes:
        lake: directory.
        master: Spark's master URL; None for that of ``spark-submit``.
        lateness_s: how long after its end an hour counts as open.
        grace_s: how long replaced files stay for readers that have listed them.
        target_bytes: about the size of a new file.
        metrics_file: written when all is done, in Prometheus's text format; None for none.
    """

    lake: Path
    master: str | None = None
    lateness_s: float = DEFAULT_LATENESS_S
    grace_s: float = DEFAULT_GRACE_S
    target_bytes: int = TARGET_BYTES
    metrics_file: Path | None = None


def in_offset_order(records: DataFrame) -> DataFrame:
    """Columns of the lake -> the same in one file, each partition's records in their order."""
    return records.coalesce(1).sortWithinPartitions("partition", "offset")


def run(config: CompactConfig) -> tuple[int, int]:
    """Compact what is to be compacted, and delete what was replaced long enough ago.

    Files that cannot be compacted are left as they are, and hold up no others.  Where the disk is full, or none of a
    whole round can be compacted, the fault is not the files': the others are not tried.

    Returns:
        How many files went in and how many came out.

    Raises:
        Lost: another compaction was faster.
        PylogError: the message says what is wrong and what to do.  Where that is some files', the others are compacted.
    """
    lake = Lake.open(config.lake)
    closed_before_s = time.time() - config.lateness_s
    before = after = 0
    # What is loaded meanwhile waits for the next run: one that never ends would write late records' hours again and
    # again.
    present = set(lake.finish().files)
    failures: list[str] = []
    is_over = False
    while True:
        state = lake.finish()
        lake.clean(state)
        lake.purge(state, config.grace_s)
        if (config.lake / "_iceberg").exists():
            raise LakeError(f"lake {config.lake} has Iceberg tables, which name its files: it is not compacted")
        files_left = [file for path, file in state.files.items() if path in present]
        sets = plan_compaction(files_left, closed_before_s, config.target_bytes)
        if not sets or is_over:
            if failures:
                raise LakeError(
                    f"compacted {before} files into {after}; left as they are: {_listed(failures)}"
                    f"{f'; left for the next run: {sum(map(len, sets))} files' if sets else ''}"
                )
            return before, after
        done, failed = _commit(lake, lake.begin(Kind.COMPACTION, state), sets[:_MAX_SETS], config)
        is_over = not done or any(isinstance(error, DiskFull) for _, error in failed)
        before += sum(len(one) for one, _ in done)
        after += len(done)
        for files, error in failed:
            present -= {file.path for file in files}
            failures.append(f"{len(files)} files of {files[0].group}: {error}")


def _listed(failures: Sequence[str]) -> str:
    """Return the first of *failures*, and how many more there are."""
    more = len(failures) - _MAX_NAMED
    return "; ".join([*failures[:_MAX_NAMED], *([f"and {more} more"] if more > 0 else [])])


_Set: TypeAlias = Sequence[File]


def _commit(
    lake: Lake, attempt: Attempt, sets: Sequence[_Set], config: CompactConfig
) -> tuple[list[tuple[_Set, File]], list[tuple[_Set, PylogError]]]:
    """Compact *sets* side by side, and commit what came of them; return that, and what failed.

    Once the disk is full, those that have not begun are left out.

    Raises:
        PylogError: Spark does not answer any more.
    """
    spark = session(config.master, "pylog-compact")
    done: list[tuple[_Set, File]] = []
    failed: list[tuple[_Set, PylogError]] = []
    with ThreadPoolExecutor(_SIDE_BY_SIDE, "compact") as threads:
        jobs = [threads.submit(_compacted, spark, config.lake, attempt, one) for one in sets]
        try:
            for one, job in zip(sets, jobs, strict=True):
                try:
                    done.append((one, job.result()))
                except (Py4JJavaError, PySparkException, PylogError) as error:
                    failed.append((one, _error_of(error)))
                    if isinstance(failed[-1][1], DiskFull):
                        break
        except Py4JError as error:
            raise error_of(str(error)) from error
        finally:
            for job in jobs:
                job.cancel()
    if done:
        replaced = [file.path for one, _ in done for file in one]
        lake.commit(attempt, [file for _, file in done], replaces=replaced, more={})
    else:
        lake.abandon(attempt)
    return done, failed


def _error_of(error: Exception) -> PylogError:
    """Return an error of Spark's or ours as one of ours, `DiskFull` if that is the cause."""
    text = str(error)
    for full in _FULL:
        if full in text:
            return DiskFull(full)
    return error if isinstance(error, PylogError) else error_of(text)


def _compacted(spark: SparkSession, root: Path, attempt: Attempt, files: Sequence[File]) -> File:
    name = f"{attempt.plan:08}-{uuid4().hex[:16]}.parquet"
    output = attempt.directory / f"{name}.d"
    records = spark.read.parquet(*(f"file://{root / file.path}" for file in files))
    in_offset_order(records).write.option("compression", "snappy").parquet(f"file://{output}")
    try:
        (written,) = output.glob("part-*.parquet")
        staged = attempt.directory / name
        written.replace(staged)
        shutil.rmtree(output)
        sync(staged)  # what it replaces will be deleted
    except (OSError, ValueError) as error:
        raise StorageError(f"{output} does not hold the one file that Spark was to write: {error}") from error
    rows = pq.read_metadata(staged).num_rows
    wanted = sum(file.rows for file in files)
    if rows != wanted:
        raise LakeError(f"{wanted} records of {files[0].group} became {rows}: nothing is replaced; look at its files")
    return File(f"{files[0].group}/{name}", rows, staged.stat().st_size)


def parse(arguments: Sequence[str] | None = None) -> CompactConfig:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m pylog.ingest.compact", description="Make one file of the many small ones of each closed hour."
    )
    parser.add_argument("--lake", required=True, type=Path, metavar="DIR")
    parser.add_argument("--master", help=f"Spark's master (default: that of spark-submit, or {DEFAULT_MASTER})")
    parser.add_argument(
        "--lateness", type=float, default=DEFAULT_LATENESS_S, metavar="SECONDS",
        help="how long after its end an hour counts as open (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--grace", type=float, default=DEFAULT_GRACE_S, metavar="SECONDS",
        help="how long replaced files stay for readers that have listed them (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--target-bytes", type=int, default=TARGET_BYTES, metavar="N",
        help="about the size of a new file (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--metrics-file", type=Path, metavar="FILE", help="written when all is done, in Prometheus's text format"
    )
    given = parser.parse_args(arguments)
    return CompactConfig(
        lake=given.lake.absolute(), master=given.master, lateness_s=given.lateness, grace_s=given.grace,
        target_bytes=given.target_bytes, metrics_file=given.metrics_file,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; 0 when done, 1 with one line on stderr when not."""
    config = parse(arguments)
    try:
        before, after = run(config)
        if config.metrics_file is not None:
            replace_text(config.metrics_file, compaction_metrics(time.time_ns() // 1_000_000))
    except PylogError as error:
        print(f"pylog compact: {error} [{code_of(error)}]", file=sys.stderr)
        return 1
    print(f"compacted files={before} into={after} lake={config.lake}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How long the event loop is held when the tail of a segment of 1 GiB is cut, as a follower does after an election.

    python -m bench.micro.truncation [--mib 1024] [--batch-bytes 1024] [--no-write]

Each case fills one segment, makes its log survive a power cut, and truncates it. What runs on the loop is the call of
`Log.truncate_to`, checkpoints before it included, and `finish` of each job it leaves; what runs in a thread is `run`.
Processor time is that of the calling thread alone, so what else the machine does hardly counts.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.harness import pages
from bench.harness.measure import write_rows
from pylog.log.config import LogConfig
from pylog.log.directory import LogDirectory
from pylog.log.jobs import Job
from pylog.log.log import Log
from pylog.model import TopicPartition
from pylog.wire.records import Record, check_batch, encode_batch

_KEY, _TOPIC_ID = TopicPartition("bench", 0), uuid.UUID(int=1)
_CONFIG = LogConfig(segment_bytes=2**31 - 1, segment_index_bytes=2**31 - 1)
_PAGE = """\
# Cutting a tail

How long the event loop is held when a follower cuts the tail of its active segment: {mib:,} MiB in {count:,} batches,
synced; processor time of the calling thread, so that other work on the machine hardly counts. {cores} cores, {day}.
Every figure: [{csv_name}](../results/{csv_name}).

{table}

On the loop: the longest of the calls that the event loop makes, which are `Log.truncate_to` and the `finish` of each
job. In a thread: the job that reads batches for idempotent producers of which nothing is left in memory, slowed down so
that the loop gets its turns; there is none where the column is empty. The aim is 20 ms on the loop for a tail of one
record.

Up to 0.1.0 every truncation read the whole segment on the loop:
{before}.

Again: `python -m bench.micro.truncation`.
"""
_BEFORE = "1,000 to 1,300 ms for each of the first three rows, measured with the same program"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What was written; *producers* take turns, and *cut_batches* are cut off."""

    name: str
    producers: int = 0
    cut_batches: int = 1
    is_reopened: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one case took, in milliseconds."""

    case: str
    loop_ms: float
    loop_wall_ms: float
    thread_ms: float
    thread_wall_ms: float


CASES = (
    Case(name="one record; no idempotent producer"),
    Case(name="one record; the same after a restart", is_reopened=True),
    Case(name="one record; one idempotent producer", producers=1),
    Case(name="one record; 40,000 idempotent producers by turns", producers=40_000),
    Case(name="10 batches of one idempotent producer", producers=1, cut_batches=10),
)


def filled(directory: LogDirectory, case: Case, size_bytes: int, batch_bytes: int) -> Log:
    """Return a log with one synced segment of *size_bytes*."""
    log = directory.get_or_create(_KEY, _TOPIC_ID, _CONFIG, now_ms=0)
    value = b"x" * (batch_bytes - len(encode_batch([Record(0, 0, None, b"")])) - 2)
    batch = memoryview(bytearray(encode_batch([Record(0, 1_700_000_000_000, None, value)])))
    header = check_batch(batch)
    sequences = [0] * case.producers
    for number in range(size_bytes // len(batch)):
        if sequences:
            header.producer_id = number % len(sequences)
            header.producer_epoch, header.base_sequence = 0, sequences[header.producer_id]
            sequences[header.producer_id] += 1
        log.append_as_leader(batch, header, 1, 0)
    log.high_watermark = log.log_end_offset - case.cut_batches
    log.flush()
    directory.run_jobs()
    return log


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the processor and the wall time of *work* in this thread, in milliseconds."""
    begun_s, begun_cpu_s = time.perf_counter(), time.thread_time()
    work()
    return 1000 * (time.thread_time() - begun_cpu_s), 1000 * (time.perf_counter() - begun_s)


def left(directory: LogDirectory) -> Iterator[Job]:
    """Yield the jobs that a call has left."""
    while directory.jobs:
        yield directory.jobs.popleft()


def measure(case: Case, path: Path, size_bytes: int, batch_bytes: int) -> Row:
    """Run one case in *path*."""
    directory = LogDirectory.open(path, broker_id=1)
    log = filled(directory, case, size_bytes, batch_bytes)
    if case.is_reopened:
        directory.close()
        directory = LogDirectory.open(path, broker_id=1)
        log = directory.get_or_create(_KEY, _TOPIC_ID, _CONFIG, now_ms=0)
        directory.run_jobs()
    end_offset = log.log_end_offset - case.cut_batches
    loop = [timed(lambda: log.truncate_to(end_offset))]
    thread = []
    for job in left(directory):
        thread.append(timed(job.run))
        loop.append(timed(job.finish))
    assert log.log_end_offset == end_offset
    directory.close()
    longest, longest_wall = max(loop), max(wall for _, wall in loop)
    return Row(
        case=case.name,
        loop_ms=round(longest[0], 2),
        loop_wall_ms=round(longest_wall, 2),
        thread_ms=round(sum(cpu for cpu, _ in thread), 1),
        thread_wall_ms=round(sum(wall for _, wall in thread), 1),
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    lines = ["| cut off | on the loop, CPU ms | in a thread, CPU ms | in a thread, wall ms |", "|---|--:|--:|--:|"]
    for row in rows:
        in_thread = f"{row.thread_ms:,.0f} | {row.thread_wall_ms:,.0f}" if row.thread_ms >= 1 else " | "
        lines.append(f"| {row.case} | {row.loop_ms:.1f} | {in_thread} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark, print its table and keep its results."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.micro.truncation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--batch-bytes", type=int, default=1024)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="keep results in docs/")
    options = parser.parse_args(arguments)
    rows = []
    for case in CASES:
        path = Path(tempfile.mkdtemp())
        try:
            rows.append(measure(case, path, options.mib << 20, options.batch_bytes))
        finally:
            shutil.rmtree(path)
        print(rows[-1], flush=True)
    text = _PAGE.format(
        mib=options.mib,
        count=(options.mib << 20) // options.batch_bytes,
        cores=os.cpu_count(),
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        csv_name=pages.result_name("truncation"),
        table=table(rows),
        before=_BEFORE,
    )
    print(text)
    if options.write:
        write_rows(pages.RESULTS / pages.result_name("truncation"), Row, rows)
        pages.write_page("truncation", text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

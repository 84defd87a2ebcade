"""How long work takes that waits for a disk, measured on the thread that does it."""

import asyncio
import time

from pylog.log.jobs import Job
from pylog.metrics import Histogram, Metrics


def sync_times(metrics: Metrics, reason: str) -> Histogram:
    """Return the histogram of the syncs that are made for *reason*: ``acknowledgement`` or ``upkeep``."""
    help = (
        "How long a sync of a log takes. reason: acknowledgement, with flush.messages or flush.ms, where clients wait "
        "for it; or upkeep."
    )
    return metrics.histogram("pylog_sync_seconds", help, reason=reason)


def time_job(job: Job) -> int:
    """Run *job* and return how long that took, in ns; called in its thread."""
    began_ns = time.perf_counter_ns()
    job.run()
    return time.perf_counter_ns() - began_ns


def note_time(done: "asyncio.Future[int]", histogram: Histogram | None) -> None:
    """Count what `time_job` returned, unless a bug ended it; called on the loop."""
    if histogram is not None and not done.cancelled() and done.exception() is None:
        histogram.observe_ns(done.result())

"""Watches the worker of a host: restarts what failed on it, and writes metrics for the node exporter.

Kafka Connect leaves a failed task failed until somebody restarts it.  Each host's watch looks after the failures of its
own worker, so that two of them never restart the same one.
"""

import time
from collections.abc import Callable, Collection
from pathlib import Path

from pylog.connect.health import Restarts, Status, metrics_text
from pylog.connect.workers import Refused, WorkerAway, Workers
from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.log.checkpoint import write_atomically

INTERVAL_S = 5.0
"""Between two looks at the worker."""


def watch(
    workers: Workers,
    own: Collection[str] | None,
    metrics_file: Path | None,
    stop: Stop,
    notices: Notices,
    *,
    now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
) -> None:
    """Look after one worker until *stop*.

    Args:
        workers: the worker of this host.
        own: its ids, ``host:port`` as it advertises itself; None to look after all workers.
        metrics_file: for the node exporter's text collector; None for nowhere.
        stop: ends the watch.
        notices: where restarts are told.
        now_ms: a clock that does not go back.

    Raises:
        StorageError: the metrics cannot be written.
    """
    restarts = Restarts()
    while not stop.is_wanted:
        try:
            statuses = workers.statuses()
        except (WorkerAway, Refused) as error:
            statuses = None
            notices.tell(time.monotonic(), "warning", "worker_away", reason=error)
        if statuses is not None:
            for name in restarts.due(statuses, now_ms(), own):
                _restart(workers, statuses[name], notices)
        if metrics_file is not None:
            write_atomically(metrics_file, metrics_text(statuses, restarts.counts, time.time()), durable=False)
        stop.wait(INTERVAL_S)


def _restart(workers: Workers, status: Status, notices: Notices) -> None:
    reason = next((task.reason for task in status.tasks if task.state == "failed"), status.reason)
    facts = {"connector": status.name, "tasks": status.failed, "reason": reason}
    notices.tell(time.monotonic(), "warning", "restarting", about=status.name, **facts)
    try:
        workers.restart(status.name, only_failed=True)
    except (WorkerAway, Refused) as error:
        notices.tell(
            time.monotonic(), "warning", "restart_failed", about=status.name, connector=status.name, reason=error
        )

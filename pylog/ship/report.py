"""What a shipper has done, as a file for the node exporter's text collector."""

from dataclasses import dataclass
from pathlib import Path

from pylog.log.checkpoint import write_atomically
from pylog.metrics import Metrics

INTERVAL_S = 5.0
"""Between two writes of the file: Prometheus looks every 15 s."""


@dataclass(slots=True)
class Totals:
    """What this process has done so far; duplicates after a restart are counted again.

    Attributes:
        shipped: entries that the brokers acknowledged.
        truncated: entries that were cut to the topic's largest record.
        unreadable: lines of journalctl that are no entries.
        waiting: entries that were read and are not acknowledged.
        progress_s: when an entry was acknowledged last, or none waited, in seconds since the Unix epoch.
    """

    shipped: int = 0
    truncated: int = 0
    unreadable: int = 0
    waiting: int = 0
    progress_s: float = 0.0


def metrics_of(totals: Totals) -> str:
    """Return *totals* in Prometheus's text format."""
    metrics = Metrics()
    metrics.counter("pylog_ship_entries_total", "Entries of the journal that the brokers acknowledged.").add(
        totals.shipped
    )
    metrics.counter("pylog_ship_truncated_total", "Entries that were cut to the topic's largest record.").add(
        totals.truncated
    )
    metrics.counter("pylog_ship_unreadable_total", "Lines of journalctl that are no entries.").add(totals.unreadable)
    metrics.gauge(
        "pylog_ship_waiting_entries", "Entries that were read and are not acknowledged."
    ).value = totals.waiting
    metrics.gauge(
        "pylog_ship_last_progress_timestamp_seconds",
        "When an entry was acknowledged last, or none waited, since the Unix epoch.",
    ).value = totals.progress_s
    return metrics.render()


class Report:
    """Writes *totals* to *path* from time to time; None: nowhere."""

    def __init__(self, path: Path | None, totals: Totals) -> None:
        self._path = path
        self._totals = totals
        self._next_s = 0.0

    def write(self, now_s: float) -> None:
        """Write the file if it is older than `INTERVAL_S` at *now_s*, of any clock that only grows.

        Raises:
            StorageError: the disk refuses.
        """
        if self._path is None or now_s < self._next_s:
            return
        self._next_s = now_s + INTERVAL_S
        write_atomically(self._path, metrics_of(self._totals), durable=False)

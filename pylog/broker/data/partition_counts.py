"""What the partitions of a broker add up to, counted in one pass at every scrape."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pylog.broker.data.partitions import Moved, Partition, Partitions
from pylog.log.producers import UNKNOWN
from pylog.metrics import MAX_TOPICS, Metrics, keep_largest
from pylog.model import NO_LEADER, Key

_STEP = 500
"""Partitions a step: 1 ms or two, so that a scrape of thousands holds up no request."""


@dataclass(slots=True)
class _Totals:
    """What one pass found.

    Attributes:
        written_ms: when the producer of an open transaction that is silent for longest wrote last.
        log_bytes: by topic, as the only value of a row.
        follower_lag_s: by follower, as the only value of a row; of the partition in which it lags most.
    """

    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    offline: int = 0
    open_transactions: int = 0
    written_ms: int | None = None
    log_bytes: dict[tuple[str, ...], float] = field(default_factory=dict)
    follower_lag_s: dict[tuple[str, ...], float] = field(default_factory=dict)

    def add(self, partition: Partition, now_ms: int) -> None:
        """Count *partition* at *now_ms*, by the clock that its leader goes by."""
        self.offline += partition.is_offline
        log, leading = partition.log, partition.leading
        if log is not None:
            row = partition.key[:1]
            self.log_bytes[row] = self.log_bytes.get(row, 0) + log.size_bytes
        if leading is not None:
            in_sync = len(leading.isr)
            self.led += 1
            self.under_replicated += in_sync < leading.factor
            self.under_min_isr += in_sync < leading.min_isr
            self.at_min_isr += in_sync == leading.min_isr < leading.factor
            if log is not None:
                for follower, lag_ms in leading.lags_ms(log.log_end_offset, now_ms):
                    row = (str(follower),)
                    self.follower_lag_s[row] = max(self.follower_lag_s.get(row, 0), lag_ms / 1000)
            if log is not None and log.producers.transactions is not None:
                self._add_transactions(log.producers.last_written_ms())

    def _add_transactions(self, written_ms: list[int]) -> None:
        self.open_transactions += len(written_ms)
        known = [one for one in written_ms if one != UNKNOWN]
        if known:
            oldest = min(known)
            self.written_ms = oldest if self.written_ms is None else min(self.written_ms, oldest)


class PartitionCounts:
    """Counts the partitions of one broker."""

    def __init__(
        self,
        partitions: Partitions,
        metrics: Metrics,
        is_controller: Callable[[], bool],
        wall_ms: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        """Show them in *metrics*; those of the whole cluster only while *is_controller* says so."""
        self._partitions = partitions
        self._wall_ms = wall_ms
        self._now_ms = now_ms
        self._is_controller = is_controller
        self._totals = _Totals()
        self._leader_epochs: dict[Key, int] = {}
        metrics.before_sample(self._count)
        for name, help, read in (
            ("pylog_partitions", "Partitions hosted.", lambda: len(partitions)),
            ("pylog_partitions_led", "Partitions led here.", lambda: self._totals.led),
            ("pylog_partitions_offline", "Hosted partitions whose log cannot be used.", lambda: self._totals.offline),
            (
                "pylog_partitions_under_replicated",
                "Partitions led here with fewer in-sync replicas than replicas.",
                lambda: self._totals.under_replicated,
            ),
            (
                "pylog_partitions_under_min_isr",
                "Partitions led here with fewer in-sync replicas than min.insync.replicas: acks=all is refused.",
                lambda: self._totals.under_min_isr,
            ),
            (
                "pylog_partitions_at_min_isr",
                "Partitions led here with exactly min.insync.replicas in sync, and more replicas than that: the next "
                "replica that falls out stops acks=all.",
                lambda: self._totals.at_min_isr,
            ),
            (
                "pylog_transactions_open",
                "Open transactions in partitions led here: readers of committed records wait for each of them.",
                lambda: self._totals.open_transactions,
            ),
            (
                "pylog_transaction_silence_seconds",
                "How long ago the producer of an open transaction wrote last to a partition led here, of the one that "
                "is silent for longest; 0 where none is open. What was written before a start counts from the start.",
                self._silence_seconds,
            ),
            ("pylog_controller_epoch", "Epoch of the controller that this broker obeys.", self._controller_epoch),
        ):
            metrics.gauge(name, help, read=read)
        metrics.table(
            "pylog_partitions_leaderless",
            "gauge",
            "Partitions of the cluster without a leader; shown by the controller.",
            (),
            self._leaderless,
        )
        help = "Bytes of the log directories of a topic on this broker; the largest topics are told apart."
        metrics.table(
            "pylog_topic_log_bytes",
            "gauge",
            help,
            ("topic",),
            lambda: keep_largest(self._totals.log_bytes, MAX_TOPICS),
        )
        metrics.table(
            "pylog_follower_lag_seconds",
            "gauge",
            "How long ago a follower last had everything of the partition led here in which it lags most; 0 if it has "
            "everything.",
            ("follower",),
            lambda: self._totals.follower_lag_s,
        )
        self._leader_changes = metrics.counter("pylog_leader_changes_total", "Leaders that hosted partitions got.")
        partitions.subscribe(self._note, Moved.LEADER)

    def _controller_epoch(self) -> float:
        return self._partitions.image.controller_epoch

    def _note(self, key: Key, what: Moved) -> None:
        partition = self._partitions.get(*key)
        if partition is None:
            self._leader_epochs.pop(key, None)
        elif partition.leader != NO_LEADER and partition.leader_epoch > self._leader_epochs.get(key, -1):
            self._leader_epochs[key] = partition.leader_epoch
            self._leader_changes.value += 1

    def _silence_seconds(self) -> float:
        written_ms = self._totals.written_ms
        return 0 if written_ms is None else max(0, self._wall_ms() - written_ms) / 1000

    def _count(self) -> Iterator[None]:
        totals = _Totals()
        for number, partition in enumerate(tuple(self._partitions), 1):
            totals.add(partition, self._now_ms())
            if number % _STEP == 0:
                yield
        self._totals = totals

    def _leaderless(self) -> dict[tuple[str, ...], float]:
        if not self._is_controller():
            return {}
        topics = self._partitions.image.topics.values()
        return {(): sum(state.leader == NO_LEADER for topic in topics for state in topic.partitions.values())}

"""What the partitions of a broker add up to, counted in one pass at every scrape."""

from collections.abc import Callable

from pylog.broker.data.partitions import Moved, Partition, Partitions
from pylog.log.producers import UNKNOWN
from pylog.metrics import Metrics
from pylog.model import NO_LEADER, Key


class PartitionCounts:
    """Counts the partitions of one broker."""

    def __init__(
        self, partitions: Partitions, metrics: Metrics, is_controller: Callable[[], bool], wall_ms: Callable[[], int]
    ) -> None:
        """Show them in *metrics*; those of the whole cluster only while *is_controller* says so."""
        self._partitions = partitions
        self._wall_ms = wall_ms
        self._is_controller = is_controller
        self._led = self._under_replicated = self._under_min_isr = self._at_min_isr = self._offline = 0
        self._open_transactions = 0
        self._written_ms: int | None = None
        self._bytes: dict[tuple[str, ...], float] = {}
        self._leader_epochs: dict[Key, int] = {}
        metrics.before_sample(self._count)
        for name, help, read in (
            ("pylog_partitions", "Partitions hosted.", lambda: len(partitions)),
            ("pylog_partitions_led", "Partitions led here.", lambda: self._led),
            ("pylog_partitions_offline", "Hosted partitions whose log cannot be used.", lambda: self._offline),
            (
                "pylog_partitions_under_replicated",
                "Partitions led here with fewer in-sync replicas than replicas.",
                lambda: self._under_replicated,
            ),
            (
                "pylog_partitions_under_min_isr",
                "Partitions led here with fewer in-sync replicas than min.insync.replicas: acks=all is refused.",
                lambda: self._under_min_isr,
            ),
            (
                "pylog_partitions_at_min_isr",
                "Partitions led here with exactly min.insync.replicas in sync, and more replicas than that: the next "
                "replica that falls out stops acks=all.",
                lambda: self._at_min_isr,
            ),
            (
                "pylog_transactions_open",
                "Open transactions in partitions led here: readers of committed records wait for each of them.",
                lambda: self._open_transactions,
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
        help = "Bytes of the log directories of a topic on this broker."
        metrics.table("pylog_topic_log_bytes", "gauge", help, ("topic",), lambda: self._bytes)
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
        return 0 if self._written_ms is None else max(0, self._wall_ms() - self._written_ms) / 1000

    def _count(self) -> None:
        self._led = self._under_replicated = self._under_min_isr = self._at_min_isr = self._offline = 0
        self._open_transactions = 0
        self._written_ms = None
        self._bytes = {}
        for partition in self._partitions:
            self._add(partition)

    def _add(self, partition: Partition) -> None:
        self._offline += partition.is_offline
        log, leading = partition.log, partition.leading
        if log is not None:
            row = partition.key[:1]
            self._bytes[row] = self._bytes.get(row, 0) + log.size_bytes
        if leading is not None:
            in_sync = len(leading.isr)
            self._led += 1
            self._under_replicated += in_sync < leading.factor
            self._under_min_isr += in_sync < leading.min_isr
            self._at_min_isr += in_sync == leading.min_isr < leading.factor
            if log is not None and log.producers.transactions is not None:
                self._note_transactions(log.producers.last_written_ms())

    def _note_transactions(self, written_ms: list[int]) -> None:
        self._open_transactions += len(written_ms)
        known = [one for one in written_ms if one != UNKNOWN]
        if known:
            oldest = min(known)
            self._written_ms = oldest if self._written_ms is None else min(self._written_ms, oldest)

    def _leaderless(self) -> dict[tuple[str, ...], float]:
        if not self._is_controller():
            return {}
        topics = self._partitions.image.topics.values()
        return {(): sum(state.leader == NO_LEADER for topic in topics for state in topic.partitions.values())}

"""What the partitions of a broker add up to, counted in one pass at every scrape."""

from collections.abc import Callable

from pylog.broker.data.partitions import Moved, Partition, Partitions
from pylog.metrics import Metrics
from pylog.model import NO_LEADER, Key


class PartitionCounts:
    """Counts the partitions of one broker."""

    def __init__(self, partitions: Partitions, metrics: Metrics, is_controller: Callable[[], bool]) -> None:
        """Show them in *metrics*; those of the whole cluster only while *is_controller* says so."""
        self._partitions = partitions
        self._is_controller = is_controller
        self._led = self._under_replicated = self._under_min_isr = self._at_min_isr = self._offline = 0
        self._open_transactions = 0
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

    def _count(self) -> None:
        self._led = self._under_replicated = self._under_min_isr = self._at_min_isr = self._offline = 0
        self._open_transactions = 0
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
                self._open_transactions += len(log.producers.transactions.first_offsets())

    def _leaderless(self) -> dict[tuple[str, ...], float]:
        if not self._is_controller():
            return {}
        topics = self._partitions.image.topics.values()
        return {(): sum(state.leader == NO_LEADER for topic in topics for state in topic.partitions.values())}

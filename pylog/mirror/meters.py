"""What a mirror tells of itself: counters, and each partition's lag."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Set
from functools import partial

from pylog.metrics import Metrics
from pylog.mirror.lag import Lag
from pylog.model import Offset, TopicPartition


def now_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Meters:
    """Counts, from two threads: the session's and the scout's.

    Attributes:
        refused: topics of which the target does not take everything.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.refused = 0
        self._metrics = metrics
        metrics.gauge(
            "pylog_mirror_refused_topics",
            "Topics that the target does not take, or not with all partitions or settings.",
            lambda: float(self.refused),
        )
        self._carried_s = math.nan
        metrics.gauge(
            "pylog_mirror_groups_age_seconds",
            "Since the groups' offsets were last carried to the target; NaN on instances that do not carry them.",
            lambda: time.monotonic() - self._carried_s,
        )
        self._lags: dict[TopicPartition, Lag] = {}
        self._heard_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def carried(self) -> None:
        """Note that what the source's groups committed is in the target."""
        self._carried_s = time.monotonic()

    def begin_carrying(self) -> None:
        """Note that this instance is to carry it from now on."""
        if math.isnan(self._carried_s):
            self.carried()

    def forget_carried(self) -> None:
        """Note that another instance carries it."""
        self._carried_s = math.nan

    def hear(self, cluster: str) -> None:
        """Note that a cluster answered, or begin to listen to it."""
        if cluster not in self._heard_s:
            self._metrics.gauge(
                "pylog_mirror_silence_seconds",
                "Since a cluster last answered: the source is asked every second, the target every half a minute.",
                lambda: time.monotonic() - self._heard_s[cluster],
                cluster=cluster,
            )
        self._heard_s[cluster] = time.monotonic()

    def begin(self, partition: TopicPartition, next_source: Offset, complete_ms: int | None) -> None:
        """Look after a partition from *next_source* on.

        Args:
            partition: which.
            next_source: everything below it has arrived.
            complete_ms: when everything had arrived, as whoever had the partition before knew; None if nobody did.
        """
        with self._lock:
            self._lags.setdefault(partition, Lag(now_ms(), complete_ms)).reset(next_source)
        labels = {"topic": partition.topic, "partition": str(partition.partition)}
        self._metrics.gauge(
            "pylog_mirror_lag_records",
            "Records of the source that are not in the target; NaN while the source does not answer.",
            partial(self._lag, partition, Lag.records),
            **labels,
        )
        self._metrics.gauge(
            "pylog_mirror_lag_seconds",
            "Age of the newest moment of which everything is in the "
            "target; NaN on instances that do not have the partition.",
            partial(self._lag, partition, Lag.seconds),
            **labels,
        )

    def complete_ms(self, partition: TopicPartition) -> int | None:
        """Return the last moment of which everything in a partition has arrived."""
        with self._lock:
            lag = self._lags.get(partition)
            return None if lag is None else lag.complete_ms

    def partitions(self) -> list[TopicPartition]:
        """Return what is looked after."""
        with self._lock:
            return list(self._lags)

    def keep(self, partitions: Set[TopicPartition]) -> None:
        """Look after these only."""
        with self._lock:
            for partition in self._lags.keys() - partitions:
                del self._lags[partition]

    def reached(self, partition: TopicPartition, next_source: Offset, count: int) -> None:
        """Note that everything below *next_source* arrived or was not to go, *count* records since the last time."""
        if count:
            self._metrics.counter("pylog_mirror_records_total", "Records that the target acknowledged.",
                                  topic=partition.topic).add(count)  # fmt: skip
        with self._lock:
            if (lag := self._lags.get(partition)) is not None:
                lag.arrive(next_source)

    def skipped(self, topic: str) -> None:
        """Note a record that was first written in the target."""
        self._metrics.counter(
            "pylog_mirror_returned_total", "Records that are not sent back to where they came from.", topic=topic
        ).add()

    def lost(self, topic: str, count: int) -> None:
        """Note records that the source forgot before they were read."""
        self._metrics.counter(
            "pylog_mirror_forgotten_total", "Offsets that the source deleted before they were mirrored.", topic=topic
        ).add(count)

    def parked(self, topic: str, error: str) -> None:
        """Note a record that the target refused in its topic with *error*, a name of `refusal_name`."""
        self._metrics.counter(
            "pylog_mirror_parked_total",
            "Records that the target refused in their own topic, by the error that it answered.",
            topic=topic,
            error=error,
        ).add()

    def left_out(self, topic: str, count: int) -> None:
        """Note offsets whose records can be neither sent nor parked."""
        self._metrics.counter(
            "pylog_mirror_left_out_total",
            "Offsets whose records could be neither unpacked nor sent nor parked; the target lacks them.",
            topic=topic,
        ).add(count)

    def saw_end(self, partition: TopicPartition, end: Offset, at_ms: int) -> None:
        """Note the source's end of a partition."""
        with self._lock:
            if (lag := self._lags.get(partition)) is not None:
                lag.see_end(end, at_ms)

    def progress(self, source: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield for each partition a record that says up to when everything has arrived."""
        with self._lock:
            known = [(partition, lag.complete_ms) for partition, lag in self._lags.items()]
        for partition, complete_ms in known:
            if complete_ms is not None:
                key = {"kind": "progress", "source": source, "topic": partition.topic, "partition": partition.partition}
                yield (json.dumps(key).encode(), json.dumps({"version": 1, **key, "complete_ms": complete_ms}).encode())

    def _lag(self, partition: TopicPartition, read: Callable[[Lag, int], float]) -> float:
        with self._lock:
            lag = self._lags.get(partition)
            return math.nan if lag is None else read(lag, now_ms())

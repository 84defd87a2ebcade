"""The data path of one broker: its parts, wired."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pylog.broker.clock import steady_ms, wall_ms
from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.fetch import FetchHandler
from pylog.broker.data.partitions import Moved, Partitions
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.produce import ProduceHandler
from pylog.broker.data.reading import NearReplicas
from pylog.broker.data.replication import Replication, ReplicationConfig
from pylog.broker.data.throttles import Throttles
from pylog.broker.flusher import Flusher
from pylog.broker.settings import RACK_AWARE_SELECTOR, Value, typed
from pylog.cluster.controller import IsrRequest, IsrResult
from pylog.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """The settings of fetches; see `pylog.broker.settings`."""

    fetch_max_bytes: int
    replica_selector_class: str

    @property
    def is_rack_aware(self) -> bool:
        """Whether consumers may read from a replica in their rack."""
        return self.replica_selector_class == RACK_AWARE_SELECTOR


class DataPath:
    """What records pass between producers, replicas and consumers.

    Attributes:
        acknowledgements: wait until every in-sync replica has what was appended.
        deletions: wait until every live replica has deleted records.
        produce: answers Produce.
        fetch: answers Fetch, of consumers and of followers.
        flusher: syncs logs with `flush.messages` or `flush.ms`.
        replication: follows other leaders, and watches the in-sync replicas of the partitions led here.
    """

    def __init__(
        self,
        broker_id: int,
        keys: PeerKeys,
        settings: Mapping[str, Value],
        partitions: Partitions,
        metrics: Metrics,
        *,
        broker_epoch: Callable[[], int],
        ask_isr: Callable[[list[IsrRequest]], Awaitable[list[IsrResult]]],
    ) -> None:
        """Wire the parts; nothing runs before `replication` starts.

        Args:
            broker_id: of this broker.
            keys: by which brokers know each other.
            settings: of this broker.
            partitions: hosted here.
            metrics: where to count.
            broker_epoch: epoch of this broker's registration; -1 without one.
            ask_isr: brings changes of in-sync replicas to the controller.
        """
        config = typed(FetchConfig, settings)
        self.acknowledgements = Acknowledgements(steady_ms)
        partitions.subscribe(self.acknowledgements.moved, Moved.HIGH_WATERMARK, Moved.LEADER)
        self.deletions = Acknowledgements(steady_ms)
        partitions.subscribe(self.deletions.moved, Moved.START, Moved.LEADER)
        partitions.on_follower_start = lambda key: self.deletions.moved(key, Moved.START)
        self.flusher = Flusher(now_ms=steady_ms, synced=partitions.synced, failed=partitions.failed, metrics=metrics)
        partitions.on_unsynced = self.flusher.unsynced
        self._throttles = Throttles(broker_id, settings, partitions, steady_ms)
        metrics.gauge(
            "pylog_replication_throttled_partitions",
            "Hosted partitions under a replication throttle; above 0 without a move, one was left behind.",
            read=lambda: self._throttles.listed_count,
        )
        metrics.table(
            "pylog_replication_throttle_bytes_per_second",
            "gauge",
            "Bytes a second that the replication throttle allows, by side; absent while no partition is throttled.",
            ("side",),
            self._throttles.limits,
        )
        metrics.table(
            "pylog_replication_throttled_bytes_total",
            "counter",
            "Bytes that went under the replication throttle: sent by a leader, or fetched by a follower.",
            ("side",),
            lambda: self._throttles.moved_bytes,
        )
        self.fetch = FetchHandler(
            partitions,
            metrics,
            max_bytes=config.fetch_max_bytes,
            now_ms=steady_ms,
            throttles=self._throttles,
            near=NearReplicas(broker_id, partitions) if config.is_rack_aware else None,
        )
        self.produce = ProduceHandler(partitions, metrics, now_ms=wall_ms, acknowledgements=self.acknowledgements)
        self.replication = Replication(
            broker_id,
            partitions,
            typed(ReplicationConfig, settings),
            metrics,
            now_ms=steady_ms,
            keys=keys,
            broker_epoch=broker_epoch,
            ask_isr=ask_isr,
            sync=partial(self.flusher.sync, always=True),
            throttles=self._throttles,
        )

    def image_applied(self) -> None:
        """Follow the leaders of the image in force, under its throttles."""
        self._throttles.image_applied()
        self.deletions.look_at_all()  # a replica may have died for which they waited
        self.fetch.reader.image_applied()
        self.replication.image_applied()

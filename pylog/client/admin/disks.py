"""What lies on the brokers' disks: sizes of replicas, how far each is behind, room that is left."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pylog.client.connection import Connection
from pylog.client.raw import RawClient, RawConfig, raise_for
from pylog.errors import PylogError
from pylog.model import NodeAddress, TopicPartition
from pylog.wire.api.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse

_VERSION = 4  # with the bytes of the file system


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """One replica: its bytes, and how many offsets it lacks of what consumers see."""

    size_bytes: int
    offset_lag: int


@dataclass(frozen=True, slots=True)
class LogDir:
    """One data directory of a broker; `total_bytes` and `usable_bytes` of its file system are -1 where unknown."""

    path: str
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, ReplicaSize] = field(repr=False)


@dataclass(frozen=True, slots=True)
class BrokerDisks:
    """What one broker said: its directories, or why it said nothing."""

    dirs: tuple[LogDir, ...] = ()
    error: PylogError | None = None

    def replica(self, partition: TopicPartition) -> ReplicaSize | None:
        """Return the replica of *partition* there; None if there is none."""
        return next((one.replicas[partition] for one in self.dirs if partition in one.replicas), None)


def broker_disks(cluster: Connection, brokers: Sequence[NodeAddress]) -> dict[int, BrokerDisks]:
    """Ask each of *brokers* about its own disks, all at once; return what each said, by id."""
    answers: dict[int, BrokerDisks] = {}
    threads = [threading.Thread(target=_ask, args=(cluster, one, answers), daemon=True) for one in brokers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _ask(cluster: Connection, broker: NodeAddress, answers: dict[int, BrokerDisks]) -> None:
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    limit = RawConfig(request_timeout_ms=int(cluster.timeout_s * 1000), retry_ms=0)
    try:
        with RawClient(f"{host}:{broker.port}", limit, cluster.security()) as client:
            answer = DescribeLogDirsResponse.decode(_VERSION, client.ask(DescribeLogDirsRequest(), _VERSION))
        raise_for(answer.error_code, f"log directories of broker {broker.node_id}")
    except PylogError as error:
        answers[broker.node_id] = BrokerDisks(error=error)
        return
    answers[broker.node_id] = BrokerDisks(
        tuple(
            LogDir(
                one.log_dir,
                one.total_bytes,
                one.usable_bytes,
                {
                    TopicPartition(topic.name, row.partition_index): ReplicaSize(row.partition_size, row.offset_lag)
                    for topic in one.topics
                    for row in topic.partitions
                    if not row.is_future_key
                },
            )
            for one in answer.results
        )
    )

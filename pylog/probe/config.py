"""What a probe asks, and where it shows what it found."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pylog.client.connection import Connection
from pylog.store.zookeeper_security import PLAIN, ZooKeeperSecurity

if TYPE_CHECKING:
    from pylog.security.server_tls import TlsConfig

CANARY_TOPIC = "_pylog_canary"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeConfig:
    """One probe.

    Attributes:
        cluster: whose brokers and groups.
        listen: host and port of ``/metrics``.
        metrics_tls: encryption of that address, and whose clients may read it; None for plain HTTP to everybody.
        zookeeper: ``host:port`` of every server of the ensemble; none if the brokers use none.
        zookeeper_security: encryption of these connections, and the certificate that they show.
        canary_topic: where its records go; empty for no canary.
        canary_interval_s: between two records to one broker.
        replication_factor: of the canary's topic, at most as many as there are brokers.
        lag_interval_s: between two samples of the logs' ends.
        zookeeper_interval_s: between two requests for a ZooKeeper server's counters.
    """

    cluster: Connection
    listen: tuple[str, int]
    metrics_tls: "TlsConfig | None" = None
    zookeeper: tuple[str, ...] = ()
    zookeeper_security: ZooKeeperSecurity = PLAIN
    canary_topic: str = CANARY_TOPIC
    canary_interval_s: float = 1.0
    replication_factor: int = 3
    lag_interval_s: float = 15.0
    zookeeper_interval_s: float = 15.0

"""What a broker needs to be told before it starts; `pylog.config` fills it from a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pylog.broker.listener_settings import ListenerSettings, default_listener_settings
from pylog.broker.settings import Value
from pylog.cluster.znodes import registered_name
from pylog.model import MAIN_LISTENER
from pylog.store.zookeeper_security import PLAIN, ZooKeeperSecurity

if TYPE_CHECKING:
    from pylog.security.server_tls import TlsConfig

STANDALONE_ID = 0
"""Id of every standalone broker: there is never a second one beside it."""

INTERNAL = "internal"
"""Name of the brokers' own listener."""

STORE = "store"
"""Where a standalone broker keeps its store, below its data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """Where to listen, what to tell others to connect to, and how the connections are protected."""

    host: str
    port: int
    advertised_host: str
    advertised_port: int
    settings: ListenerSettings = field(default_factory=default_listener_settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Where the cluster's state lives: `zookeeper` with *hosts*, or `embedded` in the data directory."""

    kind: str
    hosts: str = ""
    session_timeout_ms: int = 6000
    security: ZooKeeperSecurity = PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Everything a broker needs to start.

    Attributes:
        client: the main listener for clients: the first one of the file.
        client_name: its name.
        more_clients: the other listeners for clients, by name.
        metrics_tls: encryption of `metrics_listen`, and whose clients may read it; None for plain HTTP to everybody.
    """

    broker_id: int
    data_dir: Path
    client: ListenerConfig
    internal: ListenerConfig | None
    admin_socket: Path
    store: StoreConfig
    rack: str | None = None
    metrics_listen: tuple[str, int] | None = None
    metrics_tls: "TlsConfig | None" = None
    cluster_secret: bytes = field(default=b"", repr=False)  # see `pylog.wire.internal.secrets_of`
    cluster_secret_file: Path | None = None
    client_name: str = MAIN_LISTENER
    more_clients: Mapping[str, ListenerConfig] = field(default_factory=dict)
    settings: Mapping[str, Value] = field(default_factory=dict)
    config_hash: str = ""

    @property
    def clients(self) -> dict[str, ListenerConfig]:
        """The listeners for clients by name, the main one first."""
        return {self.client_name: self.client, **self.more_clients}

    def identity(self) -> dict[str, str | None]:
        """Return what makes this broker this one, under the names that Kafka's tools ask for."""
        clients = {registered_name(name, one.settings.protocol): one for name, one in self.clients.items()}
        return {
            "broker.id": str(self.broker_id),
            "broker.rack": self.rack,
            "log.dirs": str(self.data_dir),
            "listeners": ",".join(f"{name}://{one.host}:{one.port}" for name, one in clients.items()),
            "advertised.listeners": ",".join(
                f"{name}://{one.advertised_host}:{one.advertised_port}" for name, one in clients.items()
            ),
            "listener.security.protocol.map": ",".join(
                f"{name}:{one.settings.protocol}" for name, one in clients.items()
            ),
        }

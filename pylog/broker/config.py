"""What a broker needs to be told before it starts; `pylog.config` fills it from a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pylog.broker.listener_settings import ListenerSettings, default_listener_settings
from pylog.broker.settings import Value

STANDALONE_ID = 0
"""Id of every standalone broker: there is never a second one beside it."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Everything a broker needs to start."""

    broker_id: int
    data_dir: Path
    client: ListenerConfig
    internal: ListenerConfig | None
    admin_socket: Path
    store: StoreConfig
    rack: str | None = None
    metrics_listen: tuple[str, int] | None = None
    cluster_secret: bytes = field(default=b"", repr=False)  # see `pylog.wire.internal.secrets_of`
    settings: Mapping[str, Value] = field(default_factory=dict)
    config_hash: str = ""
    is_standalone: bool = False

    def identity(self) -> dict[str, str | None]:
        """Return what makes this broker this one, under the names that Kafka's tools ask for."""
        client = self.client
        return {
            "broker.id": str(self.broker_id),
            "broker.rack": self.rack,
            "log.dirs": str(self.data_dir),
            "listeners": f"{client.settings.protocol}://{client.host}:{client.port}",
            "advertised.listeners": f"{client.settings.protocol}://{client.advertised_host}:{client.advertised_port}",
        }

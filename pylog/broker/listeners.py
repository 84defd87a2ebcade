"""The two listeners of a broker: one for clients, one for the other brokers of its cluster."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pylog.broker.client_counts import ClientCounts
from pylog.broker.config import BrokerConfig, ListenerConfig
from pylog.metrics import Metrics
from pylog.model import NodeAddress
from pylog.net.connection import FrameHandler
from pylog.net.listener import Listener, ListenerSecurity

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """The settings of each listener; see `pylog.broker.settings`."""

    socket_request_max_bytes: int
    max_connections: int


class Listeners:
    """Both listeners; a standalone broker has none for other brokers."""

    def __init__(
        self,
        config: BrokerConfig,
        limits: ListenerLimits,
        metrics: Metrics,
        *,
        clients: FrameHandler,
        brokers: FrameHandler,
        client_delay_ms: Callable[[str], int],
        client_security: ListenerSecurity | None = None,
    ) -> None:
        """Make them, not listening yet.

        Args:
            config: addresses.
            limits: of each listener.
            metrics: where open connections are counted.
            clients: handles what clients send.
            brokers: handles what other brokers send.
            client_delay_ms: see `Quotas.connection_delay_ms`.
            client_security: of the clients' listener.
        """
        self._config = config
        self._limits = limits
        self._metrics = metrics
        self._client = self._listener("client", clients, client_delay_ms, client_security)
        self._internal = self._listener("internal", brokers, lambda host: 0) if config.internal else None
        ClientCounts([one for one in (self._client, self._internal) if one is not None]).show(metrics)

    def open(self) -> tuple[NodeAddress, NodeAddress]:
        """Bind both, serve other brokers, and return the addresses that clients and brokers are told to connect to.

        Clients are refused until `serve_clients`.

        Raises:
            OSError: an address is taken.
        """
        config = self._config
        client = self._bind(self._client, config.client)
        if self._internal is None or config.internal is None:
            return client, client
        internal = self._bind(self._internal, config.internal)
        self._internal.start()
        return client, internal

    def serve_clients(self) -> None:
        """Begin to answer clients."""
        self._client.start()

    def close_clients(self) -> None:
        """Close the connections of clients, and take no more."""
        self._client.close()

    def close_internal(self) -> None:
        """Close the connections of other brokers, and take no more."""
        if self._internal is not None:
            self._internal.close()

    def _bind(self, listener: Listener, config: ListenerConfig) -> NodeAddress:
        bound_port = listener.open(config.host, config.port)
        # Port 0 means any free one; clients need to know which one it became.
        port = config.advertised_port or bound_port
        return NodeAddress(self._config.broker_id, config.advertised_host, port)

    def _listener(
        self,
        name: str,
        handler: FrameHandler,
        delay_ms: Callable[[str], int],
        security: ListenerSecurity | None = None,
    ) -> Listener:
        listener = Listener(
            name,
            handler,
            max_frame_bytes=self._limits.socket_request_max_bytes,
            max_connections=self._limits.max_connections,
            on_event=partial(_log_connection, name),
            delay_ms=delay_ms,
            security=security,
        )
        self._metrics.gauge(
            "pylog_connections", "Open connections.", read=lambda: len(listener.connections), listener=name
        )
        return listener


def _log_connection(listener: str, event: str, peer: str, reason: str) -> None:
    _logger.warning("%s listener=%s peer=%s reason=%s", event, listener, peer, reason)

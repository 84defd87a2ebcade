"""The listeners of a broker: one or more for clients, one for the other brokers of its cluster."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pylog.broker.client_counts import ClientCounts
from pylog.broker.clock import steady_ms
from pylog.broker.config import INTERNAL, BrokerConfig, ListenerConfig
from pylog.broker.connection_log import ConnectionLog
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
    """All listeners; a standalone broker has none for other brokers."""

    def __init__(
        self,
        config: BrokerConfig,
        limits: ListenerLimits,
        metrics: Metrics,
        *,
        clients: Mapping[str, tuple[FrameHandler, ListenerSecurity | None]],
        brokers: tuple[FrameHandler, ListenerSecurity | None],
        client_delay_ms: Callable[[str], int],
    ) -> None:
        """Make them, not listening yet.

        Args:
            config: addresses.
            limits: of each listener.
            metrics: where open connections are counted.
            clients: by listener, what handles requests and how connections are protected.
            brokers: the same for other brokers.
            client_delay_ms: see `Quotas.connection_delay_ms`.
        """
        self._config = config
        self._limits = limits
        self._metrics = metrics
        self._clients = {
            name: self._listener(name, handler, client_delay_ms, security)
            for name, (handler, security) in clients.items()
        }
        self._internal = self._listener(INTERNAL, brokers[0], lambda host: 0, brokers[1]) if config.internal else None
        internal = [] if self._internal is None else [self._internal]
        self._counts = ClientCounts([*self._clients.values(), *internal])
        self._counts.show(metrics)

    def open(self) -> tuple[dict[str, NodeAddress], NodeAddress]:
        """Bind all, serve other brokers, and return the addresses that clients and brokers are told to connect to.

        Clients are refused until `serve_clients`.

        Raises:
            OSError: an address is taken.
        """
        config = self._config
        clients = {name: self._bind(self._clients[name], one) for name, one in config.clients.items()}
        if self._internal is None or config.internal is None:
            return clients, clients[config.client_name]
        internal = self._bind(self._internal, config.internal)
        self._internal.start()
        return clients, internal

    def serve_clients(self) -> None:
        """Begin to answer clients."""
        for listener in self._clients.values():
            listener.start()

    def last_requests(self) -> list[dict[str, Any]]:
        """Return when each principal last sent a request, by listener for clients, the latest first.

        A listener that nobody used has a row without principal.  What was before this process is not known.
        """
        found = sorted(self._counts.last_requests().items(), key=lambda pair: -pair[1])
        rows = [
            {"listener": listener, "protocol": self._protocol(listener), "principal": principal, "last_ms": last_ms}
            for (listener, principal), last_ms in found
            if listener in self._clients
        ]
        silent = self._clients.keys() - {row["listener"] for row in rows}
        empty = {"principal": "", "last_ms": 0}
        return rows + [{"listener": one, "protocol": self._protocol(one), **empty} for one in sorted(silent)]

    def _protocol(self, listener: str) -> str:
        return str(self._config.clients[listener].settings.protocol)

    def close_clients(self) -> None:
        """Close the connections of clients, and take no more."""
        for listener in self._clients.values():
            listener.close()

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
            on_event=ConnectionLog(name, steady_ms, _logger.warning).note,
            delay_ms=delay_ms,
            security=security,
        )
        self._metrics.gauge(
            "pylog_connections", "Open connections.", read=lambda: len(listener.connections), listener=name
        )
        return listener

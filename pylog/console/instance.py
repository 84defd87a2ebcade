"""Starts and stops a console."""

import time
from typing import TYPE_CHECKING

from pylog.client.avro import AvroDeserializer, RegistryClient
from pylog.client.connection import Connection
from pylog.console.app import Console
from pylog.console.config import ConsoleConfig
from pylog.console.counts import Counts
from pylog.console.sources import Lags
from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.daemon.web import WebServer
from pylog.metrics import Metrics
from pylog.probe.reader import LagReader

if TYPE_CHECKING:
    from pylog.security.server_tls import TlsConfig

LAG_INTERVAL_S = 15.0
"""Between two samples of the logs' ends, as the probe takes them."""

_JOIN_S = 15.0
_REGISTRY_TIMEOUT_S = 2.0


def run(config: ConsoleConfig, stop: Stop, notices: Notices) -> None:
    """Serve until *stop*, also while the cluster is away.

    Raises:
        ConfigError: the address cannot be listened on, or the certificate cannot be used.
    """
    reader = LagReader(config.cluster, LAG_INTERVAL_S, Metrics(), stop, notices)
    counts = Counts((config.cluster, *config.ledgers), config.window_ms)

    def deserializer_of(person: Connection) -> AvroDeserializer:
        # As who looks: a schema says more of a topic than everybody may know, and its id is anybody's guess.
        security = person.security()
        return AvroDeserializer(RegistryClient(config.registries, timeout_s=_REGISTRY_TIMEOUT_S, security=security))

    app = Console(config, Lags(reader), counts, deserializer_of if config.registries else None).app()
    with WebServer(*config.listen, app, tls=_tls(config), has_proxy=bool(config.public_url)) as server:
        reader.start()
        notices.tell(time.monotonic(), "info", "ready", url=_url(config, server.port))
        while not stop.wait(60.0):
            pass
    reader.join(_JOIN_S)


def _tls(config: ConsoleConfig) -> "TlsConfig | None":
    if config.certificate is None:
        return None
    from pylog.security.server_tls import TlsConfig

    return TlsConfig(key_store=config.certificate, key=config.key)


def _url(config: ConsoleConfig, port: int) -> str:
    host = config.listen[0]
    scheme = "http" if config.certificate is None else "https"
    return config.public_url or f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"

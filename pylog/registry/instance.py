"""Starts and stops one instance of the registry."""

import math
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pylog.client.connection import Connection
from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.daemon.web import WebServer
from pylog.errors import ApiError, Unreachable
from pylog.metrics import Metrics
from pylog.process_metrics import measure_process
from pylog.registry.access import Access
from pylog.registry.api import new_app
from pylog.registry.avro import Level
from pylog.registry.following import Follower, Source
from pylog.registry.replica import Replica, TopicConfig, ensure_topic
from pylog.registry.service import Service
from pylog.registry.state import Registry
from pylog.store.base import Store
from pylog.store.zookeeper import ZooKeeperStore
from pylog.store.zookeeper_security import PLAIN, ZooKeeperSecurity

if TYPE_CHECKING:
    from pylog.security.server_tls import TlsConfig

_RETRY_S = 2.0
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """One instance.

    Attributes:
        listen: host and port of the REST API; port 0 takes a free one.
        advertised_url: where other instances forward to.
        cluster: brokers that keep the schemas.
        topic: of one partition, compacted.
        replication_factor: of the topic when it is made.
        zookeeper: ``host:port,host:port/path`` for the election; None for an instance that is alone.
        zookeeper_security: encryption and identity of that session.
        session_timeout_ms: after which a silent primary is replaced.
        level: compatibility wanted where nothing else is set.
        follow: instances of another registry whose schemas come here; empty for a registry of its own.
        tls: encryption of the REST API; None for plain HTTP.
        login_mechanism: SCRAM mechanism by which brokers judge who asks; empty to let everybody do everything.
    """

    listen: tuple[str, int]
    advertised_url: str
    cluster: Connection
    topic: str = "_schemas"
    replication_factor: int = 3
    zookeeper: str | None = None
    zookeeper_security: ZooKeeperSecurity = PLAIN
    session_timeout_ms: int = 6_000
    level: Level = field(default=Level.BACKWARD)
    follow: tuple[str, ...] = ()
    tls: "TlsConfig | None" = None
    login_mechanism: str = ""


def run(config: RegistryConfig, stop: Stop, notices: Notices) -> None:
    """Serve until *stop*.

    Raises:
        ConfigError: the topic or the address cannot be used.
    """
    writer = uuid.uuid4().hex
    topic = TopicConfig(cluster=config.cluster, topic=config.topic, replication_factor=config.replication_factor)
    if not _wait_topic(topic, stop, notices):
        return
    replica = Replica(topic, Registry(config.level), writer, notices)
    replica.start()
    store: Store | None = None
    if config.zookeeper is not None:
        store = ZooKeeperStore(
            config.zookeeper, session_timeout_ms=config.session_timeout_ms, security=config.zookeeper_security
        )
    metrics = Metrics()
    measure_process(metrics)
    follows = ", ".join(config.follow) or None
    service = Service(config.cluster, config.topic, replica, store, writer, config.advertised_url, notices, follows)
    _measure(metrics, service)
    source = Source(config.follow, config.cluster.security())
    follower = Follower(service, source, notices) if config.follow else None
    access = Access(config.cluster, config.login_mechanism, config.topic) if config.login_mechanism else None
    try:
        while not replica.wait_loaded(_LOOK_S):
            if stop.is_wanted:
                return
        with WebServer(*config.listen, new_app(service, metrics, access), tls=config.tls) as server:
            service.election.start()
            if follower is not None:
                service.follow(follower.catch_up)
                _measure_following(metrics, follower)
                follower.start()
            notices.tell(time.monotonic(), "info", "ready", port=server.port)
            while not stop.wait(_LOOK_S):
                replica.wait_loaded(0)  # raises what ended the reader
            if follower is not None:
                follower.close()
            service.election.close()
    finally:
        replica.close()


def _wait_topic(topic: TopicConfig, stop: Stop, notices: Notices) -> bool:
    """Make the topic once the brokers can; return False if the end is wanted before."""
    while not stop.is_wanted:
        try:
            ensure_topic(topic)
            return True
        except (ApiError, Unreachable) as error:
            notices.tell(time.monotonic(), "warning", "waits_for_brokers", topic=topic.topic, reason=error)
            stop.wait(_RETRY_S)
    return False


def _measure_following(metrics: Metrics, follower: Follower) -> None:
    metrics.gauge(
        "pylog_registry_followed_age_seconds",
        "Since everything of the followed registry was here; NaN on instances that do not write.",
        lambda: math.nan if follower.followed_s is None else time.monotonic() - follower.followed_s,
    )
    metrics.gauge(
        "pylog_registry_conflicts",
        "Versions of the followed registry whose ids stand for other schemas here.",
        lambda: float(follower.conflicts),
    )


def _measure(metrics: Metrics, service: Service) -> None:
    metrics.gauge(
        "pylog_registry_is_primary", "1 on the instance that writes.", lambda: float(service.election.is_primary)
    )
    metrics.gauge(
        "pylog_registry_subjects",
        "Subjects that are not deleted.",
        lambda: service.read(lambda registry: float(len(registry.subjects()))),
    )
    metrics.gauge(
        "pylog_registry_max_id", "Highest id ever given.", lambda: service.read(lambda registry: float(registry.max_id))
    )
    metrics.gauge(
        "pylog_registry_next_offset",
        "Next offset of the topic that this copy reads.",
        lambda: float(service.replica.next_offset),
    )

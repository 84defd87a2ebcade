"""The broker: start and stop, and how its parts are wired."""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pylog import __version__
from pylog.broker import logs, status
from pylog.broker.acks import Acknowledgements
from pylog.broker.admin import AdminServer, Reply, Routes
from pylog.broker.clock import steady_ms, wall_ms
from pylog.broker.config import BrokerConfig, ListenerConfig
from pylog.broker.control.membership import Membership
from pylog.broker.coordinator import GroupCoordinator
from pylog.broker.fetch import FetchHandler, NearReplicas
from pylog.broker.flusher import Flusher
from pylog.broker.maintenance import Maintenance
from pylog.broker.partitions import Partition, Partitions
from pylog.broker.peers import PeerRequests
from pylog.broker.produce import ProduceHandler
from pylog.broker.quotas import Quotas
from pylog.broker.replication import Replication
from pylog.broker.requests import Requests
from pylog.broker.settings import RACK_AWARE_SELECTOR, Value
from pylog.broker.tasks import end_process
from pylog.broker.throttles import Throttles
from pylog.broker.watchdog import Watchdog, notify
from pylog.cluster.formats import NEWEST_LEVEL
from pylog.errors import ApiError, ErrorCode, PylogError
from pylog.faults import FILE_UNREADABLE, code_of
from pylog.log.directory import LogDirectory
from pylog.metrics import Metrics
from pylog.model import NodeAddress, TopicPartition
from pylog.net.connection import FrameHandler
from pylog.net.listener import Listener
from pylog.wire.api import Message
from pylog.wire.api.message import Request

_logger = logging.getLogger(__name__)

DEFAULT_HANG_LIMIT_S = 6.0
"""How long the loop may hang before the process ends itself, where no session time-out says otherwise."""


class Broker:
    """One broker, from its first file to its last.

    Also what handlers know of the cluster; see `pylog.broker.handler.Cluster`.

    Attributes:
        exit_code: what the process ends with.
    """

    def __init__(self, config: BrokerConfig, directory: LogDirectory, stop: asyncio.Event) -> None:
        """Wire the parts; no log is opened yet.  *stop* is set when the broker cannot go on."""
        self.config = config
        self.broker_id = config.broker_id
        self.settings: Mapping[str, Value] = config.settings
        self.metrics = Metrics()
        self.exit_code = 0
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._state = "starting"
        self._started_ms = wall_ms()
        self._directory = directory
        self.partitions = Partitions(directory, config.broker_id, config.settings)
        self.membership = Membership(
            config,
            directory,
            self.partitions,
            on_image=self._image_applied,
            on_leadership_lost=self._leadership_changed,
            on_failure=self._failed,
        )
        self.partitions.registered_epoch = lambda: self.membership.broker_epoch
        self.acknowledgements = Acknowledgements(self.partitions, steady_ms)
        self._flusher = Flusher(now_ms=steady_ms, synced=self._synced)
        self.partitions.on_unsynced = self._flusher.unsynced
        self._throttles = Throttles(config.broker_id, config.settings, self.partitions, steady_ms)
        self._fetch = FetchHandler(
            self.partitions,
            self.metrics,
            max_bytes=int(config.settings["fetch.max.bytes"]),
            now_ms=steady_ms,
            advanced=self.acknowledgements.changed,
            throttles=self._throttles,
            near=(
                NearReplicas(config.broker_id, self.partitions)
                if config.settings["replica.selector.class"] == RACK_AWARE_SELECTOR
                else None
            ),
        )
        self._produce = ProduceHandler(
            self.partitions,
            self.metrics,
            now_ms=wall_ms,
            appended=self._fetch.grew,
            acknowledgements=self.acknowledgements,
        )
        self.groups = GroupCoordinator(
            self.partitions,
            config.settings,
            self.metrics,
            now_ms=steady_ms,
            wall_ms=wall_ms,
            appended=self._fetch.grew,
            acknowledgements=self.acknowledgements,
            is_used_elsewhere=self.membership.has_consumers if config.store.kind == "zookeeper" else None,
        )
        self._quotas = Quotas(self.metrics, steady_ms)
        self._requests = Requests(self, self._produce, self._fetch, self._quotas, self.metrics)
        self._client = self._listener("client", self._requests, self._quotas.connection_delay_ms)
        self.metrics.gauge(
            "pylog_is_controller",
            "1 on the broker that knows itself as controller.",
            read=lambda: self.membership.is_controller,
        )
        self._peer_requests = PeerRequests(config.cluster_secret, self._fetch, self.membership.answer)
        self._internal = self._listener("internal", self._peer_requests) if config.internal else None
        self._replication = Replication(
            config.broker_id,
            self.partitions,
            config.settings,
            self.metrics,
            now_ms=steady_ms,
            secret=config.cluster_secret,
            broker_epoch=lambda: self.membership.broker_epoch,
            ask_isr=self.membership.alter_isr,
            changed=self._high_watermark_moved,
            sync=self._flusher.sync,
            throttles=self._throttles,
        )
        self._maintenance = Maintenance(
            directory,
            self.partitions,
            self._produce,
            config.settings,
            self.metrics,
            now_ms=wall_ms,
            is_retention_ours=config.is_standalone,
        )
        self._admin = AdminServer(self._routes(), self._loop)
        self._watchdog = Watchdog(self._hang_limit_s())

    async def start(self) -> None:
        """Open the logs, listen, join the cluster; return once registered and under a first image.

        Raises:
            PylogError: the data, the configuration or the cluster says that this broker must not run.
            OSError: an address is taken.
        """
        config = self.config
        self._admin.open_unix(config.admin_socket)
        if config.metrics_listen:
            self._admin.open_metrics(*config.metrics_listen)
        # Bound before registering: the address that is told to the cluster must already be ours.
        client = _advertised(self.broker_id, config.client, self._client.open(config.client.host, config.client.port))
        peers = client
        if self._internal is not None and config.internal is not None:
            port = self._internal.open(config.internal.host, config.internal.port)
            peers = _advertised(self.broker_id, config.internal, port)
            self._internal.start()
        self._watchdog.start()
        await self.membership.join(client, peers)
        self._state = "recovering"
        await self.membership.wait_accepted()
        self._maintenance.start()
        self._replication.start()
        self.groups.start()
        self._client.start()
        self._state = "running"
        notify("READY=1")
        took_ms = wall_ms() - self._started_ms
        _logger.info("ready port=%d broker=%d release=%s took_ms=%d", client.port, self.broker_id, __version__, took_ms)

    async def stop(self) -> None:
        """Let others take over, stop serving, leave the cluster, close the logs cleanly."""
        notify("STOPPING=1")
        if self._state == "running":
            await self.membership.hand_over(int(self.settings["controlled.shutdown.max.wait.ms"]) / 1000)
        self._state = "stopping"
        self._client.close()
        await self.membership.leave()
        if self._internal is not None:
            self._internal.close()
        await self._replication.stop()
        await self.groups.stop()
        await self._requests.close()
        await self._peer_requests.close()
        await self.membership.stop()
        await self._maintenance.stop()
        await self._flusher.stop()
        await asyncio.to_thread(self._admin.close)
        await asyncio.to_thread(self._directory.close)
        self._watchdog.stop()
        _logger.info("stopped broker=%d exit=%d", self.broker_id, self.exit_code)

    # -- what handlers ask ---------------------------------------------------------------------------------------

    @property
    def controller_id(self) -> int:
        """See `pylog.broker.handler.Cluster`."""
        return self.membership.controller_id

    async def ask_controller(self, request: Request) -> Message:
        """See `pylog.broker.handler.Cluster`."""
        return await self.membership.ask(request)

    async def new_producer_id(self) -> int:
        """See `pylog.broker.handler.Cluster`."""
        return await self.membership.new_producer_id()

    # -- what the parts report ------------------------------------------------------------------------------------

    def _failed(self, error: PylogError) -> None:
        _logger.critical("cannot go on reason=%s", error)
        self.exit_code = 1
        self._stop.set()

    def _leadership_changed(self, changed: list[Partition]) -> None:
        for partition in changed:
            self._fetch.changed(partition.key)
            self.acknowledgements.changed(partition.key)
        self._throttles.image_applied()
        self._replication.image_applied()
        self.groups.image_applied(changed)

    def _image_applied(self, changed: list[Partition]) -> None:
        self._quotas.learn(self.partitions.image.client_quotas)
        self._leadership_changed(changed)

    def _high_watermark_moved(self, key: tuple[str, int]) -> None:
        self._fetch.changed(key)
        self.acknowledgements.changed(key)

    def _synced(self, key: TopicPartition) -> None:
        partition = self.partitions.get(*key)
        if partition is not None and partition.leading is not None:
            self.partitions.advance(partition)
            self._high_watermark_moved(key)

    # -- the admin socket ----------------------------------------------------------------------------------------

    def _routes(self) -> Routes:
        return {
            ("GET", "/status"): self._answer_status,
            ("GET", "/ready"): self._answer_ready,
            ("GET", "/metrics"): self._answer_metrics,
            ("POST", "/retention"): self._answer_retention,
            ("POST", "/finalize"): self._answer_finalize,
        }

    async def _answer_status(self, body: Mapping[str, Any]) -> Reply:
        directory = self._directory
        return Reply(
            200,
            {
                "broker_id": self.broker_id,
                "cluster_id": self.membership.cluster_id,
                "release": __version__,
                "config_hash": self.config.config_hash,
                "started_ms": self._started_ms,
                "state": self._state,
                "recovery": {"done": directory.loaded_count, "total": directory.total_count},
                "controller_id": self.membership.elected_id,
                "is_registered": self.membership.is_registered,
                "format_level": self.partitions.image.level,
                "newest_format_level": NEWEST_LEVEL,
                "partitions": [status.describe_partition(partition) for partition in self.partitions],
            },
        )

    async def _answer_ready(self, body: Mapping[str, Any]) -> Reply:
        found = status.readiness(
            self.partitions,
            self.broker_id,
            is_registered=self.membership.is_registered and self._state == "running",
            has_image=self.partitions.image.version > 0,
        )
        return Reply(200 if found["ready"] else 503, found)

    async def _answer_metrics(self, body: Mapping[str, Any]) -> Reply:
        return Reply(200, self.metrics.render())

    async def _answer_retention(self, body: Mapping[str, Any]) -> Reply:
        if self._state != "running":
            return Reply(503, {"error": f"the broker is {self._state}"})
        return Reply(200, await self._maintenance.retain(dry_run=body.get("dry_run") is True))

    async def _answer_finalize(self, body: Mapping[str, Any]) -> Reply:
        if self._state == "starting":
            return Reply(503, {"error_code": ErrorCode.BROKER_NOT_AVAILABLE, "error": "the broker is starting"})
        try:
            return Reply(200, {"level": await self.membership.finalize()})
        except ApiError as error:
            return Reply(409, {"error_code": error.code, "error": str(error)})

    # -- parts ---------------------------------------------------------------------------------------------------

    def _listener(self, name: str, handler: FrameHandler, delay_ms: Callable[[str], int] = lambda host: 0) -> Listener:
        listener = Listener(
            name,
            handler,
            max_frame_bytes=int(self.settings["socket.request.max.bytes"]),
            max_connections=int(self.settings["max.connections"]),
            on_event=partial(_log_connection, name),
            delay_ms=delay_ms,
        )
        self.metrics.gauge(
            "pylog_connections", "Open connections.", read=lambda: len(listener.connections), listener=name
        )
        return listener

    def _hang_limit_s(self) -> float:
        store = self.config.store
        return store.session_timeout_ms / 1000 if store.kind == "zookeeper" else DEFAULT_HANG_LIMIT_S


def run(config: BrokerConfig) -> int:
    """Run a broker until SIGTERM or SIGINT; return the process's exit code."""
    logs.configure()
    try:
        import uvloop

        new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    except ImportError:
        new_loop = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.get_loop().set_exception_handler(end_process)
        return runner.run(_run(config))


async def _run(config: BrokerConfig) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        directory = LogDirectory.open(config.data_dir, broker_id=config.broker_id)
    except PylogError as error:
        return _cannot_run(error)
    broker = Broker(config, directory, stop)
    try:
        starting = loop.create_task(broker.start())
        stopping = loop.create_task(stop.wait())
        # A broker that waits for ZooKeeper, or reads a long log, must still obey SIGTERM.
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            gc.freeze()  # modules and partitions stay: a collection that looks at them too stops everybody for 30 ms
        else:
            starting.cancel()
        await stopping
    except (PylogError, OSError) as error:
        broker.exit_code = _cannot_run(error)
    finally:
        try:
            await broker.stop()
        except (PylogError, OSError) as error:  # the disk fails at the end: the next start checks the logs
            broker.exit_code = _cannot_run(error)
    return broker.exit_code


def _cannot_run(error: PylogError | OSError) -> int:
    code = code_of(error) if isinstance(error, PylogError) else FILE_UNREADABLE.code
    _logger.critical("cannot run code=%s reason=%s", code, error)
    return 1


def _advertised(broker_id: int, listener: ListenerConfig, bound_port: int) -> NodeAddress:
    # Port 0 means any free one, and then the one that was got is what clients need to know.
    return NodeAddress(broker_id, listener.advertised_host, listener.advertised_port or bound_port)


def _log_connection(listener: str, event: str, peer: str, reason: str) -> None:
    _logger.warning("%s listener=%s peer=%s reason=%s", event, listener, peer, reason)

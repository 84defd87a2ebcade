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
from pylog.broker.agent import ClusterAgent, ControllerInfo
from pylog.broker.clock import steady_ms, wall_ms
from pylog.broker.config import STORE, BrokerConfig, ListenerConfig
from pylog.broker.controller_link import ControllerLink
from pylog.broker.coordinator import GroupCoordinator
from pylog.broker.fetch import FetchHandler, NearReplicas
from pylog.broker.flusher import Flusher
from pylog.broker.images import Images
from pylog.broker.maintenance import Maintenance
from pylog.broker.partitions import Partition, Partitions
from pylog.broker.peers import PeerClient, PeerRequests
from pylog.broker.produce import ProduceHandler
from pylog.broker.quotas import Quotas
from pylog.broker.replication import Replication
from pylog.broker.requests import Requests
from pylog.broker.settings import RACK_AWARE_SELECTOR, Value, check_topic_configs
from pylog.broker.tasks import Tasks, end_process
from pylog.broker.throttles import Throttles
from pylog.broker.watchdog import Watchdog, notify
from pylog.cluster.controller import IsrRequest, IsrResult
from pylog.cluster.formats import NEWEST_LEVEL
from pylog.cluster.image import ClusterImage
from pylog.cluster.topics import UNCLEAN_ELECTION, ClusterConfig
from pylog.cluster.znodes import BrokerRegistration, consumer_ids_path, is_node_name
from pylog.errors import ApiError, ErrorCode, PylogError
from pylog.faults import FILE_UNREADABLE, code_of
from pylog.log.directory import LogDirectory
from pylog.metrics import Metrics
from pylog.model import NodeAddress, TopicPartition
from pylog.net.connection import FrameHandler
from pylog.net.listener import Listener
from pylog.store.base import SessionState, Store, StoreError
from pylog.wire import internal
from pylog.wire.api import Message
from pylog.wire.api.message import Request
from pylog.wire.internal import InternalKey, InternalRequest

_logger = logging.getLogger(__name__)

DEFAULT_HANG_LIMIT_S = 6.0
"""How long the loop may hang before the process ends itself, where no session time-out says otherwise."""

IMAGE_TIMEOUT_S = 10.0
"""How long a start waits for an image that has this broker before it says so."""

SETTLED_TIMEOUT_S = 2.0
"""How long it waits then for a controller to have settled what an unclean stop left.  That takes two reports, unless
partitions wait for other brokers, and the rest can be served meanwhile."""


HAND_OVER_RETRY_S = 0.2
HAND_OVER_GRACE_S = 0.05

RECOVERY_REPORT_S = 0.5
"""How often a broker says what an unclean stop left it, until a controller has settled that."""


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
        self._session: SessionState | None = None
        self._controller: ControllerInfo | None = None
        self._directory = directory
        # Stopped before a controller has compared our logs, we must be in doubt again when we come back (rule 3).
        directory.is_settled = directory.was_clean
        self.partitions = Partitions(directory, config.broker_id, config.settings)
        self.partitions.registered_epoch = lambda: self._agent.broker_epoch if self._agent else -1
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
            is_used_elsewhere=self._has_own_consumers if config.store.kind == "zookeeper" else None,
        )
        self._quotas = Quotas(self.metrics, steady_ms)
        self._requests = Requests(self, self._produce, self._fetch, self._quotas, self.metrics)
        self._client = self._listener("client", self._requests, self._quotas.connection_delay_ms)
        self.metrics.gauge(
            "pylog_is_controller", "1 on the broker that knows itself as controller.", read=lambda: self._is_controller
        )
        self._peer_requests = PeerRequests(config.cluster_secret, self._fetch, self._answer_peer)
        self._internal = self._listener("internal", self._peer_requests) if config.internal else None
        clients = [
            PeerClient(config.broker_id, config.cluster_secret, self.partitions.format_version)
            if config.internal
            else None
            for _ in range(2)
        ]
        self._peer_clients = [client for client in clients if client is not None]
        self.images = Images(config.broker_id, self.partitions, clients[0])
        self.images.on_applied = self._image_applied
        self._peer_for_controller = clients[1]
        self._replication = Replication(
            config.broker_id,
            self.partitions,
            config.settings,
            self.metrics,
            now_ms=steady_ms,
            secret=config.cluster_secret,
            broker_epoch=lambda: self._agent.broker_epoch if self._agent else -1,
            ask_isr=self._ask_isr,
            changed=self._high_watermark_moved,
            sync=self._flusher.sync,
            throttles=self._throttles,
        )
        self._recovery = Tasks()
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
        self._store: Store | None = None
        self._agent: ClusterAgent | None = None
        self._link: ControllerLink | None = None

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
        self.images.start()
        await asyncio.to_thread(self._join, client, peers)
        self._state = "recovering"
        if not self._directory.was_clean:
            self._recovery.spawn(self._recover())
        # Clients would be told of a cluster without us; some never look for us again then.
        while not await self.images.wait_until(self.partitions.knows_us, IMAGE_TIMEOUT_S):
            _logger.warning("no cluster image has this broker yet; not serving clients retry_s=%d", IMAGE_TIMEOUT_S)
        if not await self.images.wait_until(self._is_accepted, SETTLED_TIMEOUT_S):
            _logger.warning("partitions wait for what others have after an unclean stop waited_s=%g", SETTLED_TIMEOUT_S)
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
            await self._hand_over(int(self.settings["controlled.shutdown.max.wait.ms"]) / 1000)
        self._state = "stopping"
        self._client.close()
        self._recovery.cancel()
        if self._agent is not None:
            await asyncio.to_thread(self._agent.stop)
        if self._internal is not None:
            self._internal.close()
        await self._replication.stop()
        await self.groups.stop()
        await self._requests.close()
        await self._peer_requests.close()
        await self.images.stop()
        await self._maintenance.stop()
        await self._flusher.stop()
        for client in self._peer_clients:
            client.close()
        await asyncio.to_thread(self._admin.close)
        await asyncio.to_thread(self._directory.close)
        self._watchdog.stop()
        _logger.info("stopped broker=%d exit=%d", self.broker_id, self.exit_code)

    async def _hand_over(self, timeout_s: float) -> None:
        """Have the controller give away what we lead, as long as clients still reach us and can be told."""
        if self.config.store.kind == "embedded" or self._link is None:
            return  # there is nobody to take over
        try:
            async with asyncio.timeout(timeout_s):
                while (moved := await self._ask_to_stop()) is None:
                    await asyncio.sleep(HAND_OVER_RETRY_S)
                await self.images.wait_until(self._is_handed_over, timeout_s)
                if moved:
                    # Producers that wait for followers are told by the image; this is for the answers to leave.
                    await asyncio.sleep(HAND_OVER_GRACE_S)
        except TimeoutError:
            _logger.warning("stopping without handing over waited_s=%g", timeout_s)
        else:
            _logger.info("handed over partitions=%d", moved)

    async def _ask_to_stop(self) -> int | None:
        assert self._link is not None
        try:
            return await self._link.shut_down()
        except ApiError as error:
            _logger.warning("not handed over yet reason=%s", error)
            return None

    def _is_handed_over(self, image: ClusterImage) -> bool:
        """Whether *image* leaves us only what nobody else has."""
        return not any(
            state.leader == self.broker_id and len(state.isr) > 1
            for topic in image.topics.values()
            for state in topic.partitions.values()
        )

    # -- what handlers ask ---------------------------------------------------------------------------------------

    @property
    def controller_id(self) -> int:
        """See `pylog.broker.handler.Cluster`."""
        image = self.partitions.image
        # The store tells of a new controller before its first image comes.  librdkafka's admin client keeps to the
        # first that it is told, and spends its whole time-out on the address of one that died.
        if self._controller is not None and self._controller.broker_id in image.brokers:
            return self._controller.broker_id
        return image.controller_id

    async def ask_controller(self, request: Request) -> Message:
        """See `pylog.broker.handler.Cluster`."""
        assert self._link is not None, "the client listener starts after joining"
        return await self._link.ask(request)

    async def new_producer_id(self) -> int:
        """See `pylog.broker.handler.Cluster`."""
        assert self._link is not None
        return await self._link.new_producer_id()

    # -- the cluster ---------------------------------------------------------------------------------------------

    async def _has_own_consumers(self, group_id: str) -> bool:
        """Return whether consumers have registered under *group_id* in ZooKeeper; False while nobody can tell."""
        if self._store is None or not is_node_name(group_id):
            return False
        try:
            [ids] = await asyncio.to_thread(self._store.children_many, [consumer_ids_path(group_id)])
        except StoreError as error:
            _logger.info("consumers not known group=%s reason=%s", group_id, error)
            return False
        return bool(ids)

    def _join(self, client: NodeAddress, peers: NodeAddress) -> None:
        config = self.config
        self._store = open_store(config)
        directory = self._directory
        registration = BrokerRegistration(
            self.broker_id, client, peers, config.rack, directory.cluster_id, directory.was_clean
        )
        cluster_config = ClusterConfig(
            num_partitions=int(config.settings["num.partitions"]),
            replication_factor=int(config.settings["default.replication.factor"]),
            check_configs=check_topic_configs,
            unclean_elections=bool(config.settings[UNCLEAN_ELECTION]),
            unclean_recovery_wait_ms=int(config.settings["unclean.recovery.wait.ms"]),
        )
        call = self._loop.call_soon_threadsafe
        self._agent = ClusterAgent(
            self._store,
            registration,
            cluster_config,
            on_controller=lambda info: _ignore(call(self._controller_moved, info)),
            on_image=lambda image: _ignore(call(self.images.offer, image)),
            on_session=lambda state: _ignore(call(self._session_became, state)),
            on_failure=lambda error: _ignore(call(self._agent_failed, error)),
        )
        self._link = ControllerLink(self.broker_id, self._agent, self.images, self._peer_for_controller, self.settings)
        self._agent.start()
        self._directory.join(self._agent.cluster_id)

    def _controller_moved(self, info: ControllerInfo | None) -> None:
        self._controller = info
        is_self = info is not None and info.broker_id == self.broker_id
        assert self._link is not None
        self._link.moved(info.address if info else None, is_self)
        self.images.follow(info.address if info and not is_self else None)

    def _session_became(self, state: SessionState) -> None:
        if state is not self._session:
            _logger.info("session state=%s", state.value)
        self._session = state
        if state is SessionState.LOST:
            # Others lead by now, or will; what we lead next is what an image says that knows our next registration.
            self._leadership_changed(self.partitions.stop_leading())

    def _agent_failed(self, error: PylogError) -> None:
        _logger.critical("cannot go on reason=%s", error)
        self.exit_code = 1
        self._stop.set()

    def _is_accepted(self, image: ClusterImage) -> bool:
        """Whether a controller counts on this process, whatever its last stop may have cost."""
        found = image.brokers.get(self.broker_id)
        return found is not None and found.is_clean and self.partitions.knows_us(image)

    async def _recover(self) -> None:
        """Tell what is on disk after an unclean stop until a controller has settled it (rule 3)."""
        while not self._is_accepted(self.images.current):
            if not self.partitions.knows_us(self.images.current):
                await self.images.wait_until(self.partitions.knows_us, RECOVERY_REPORT_S)
                continue
            if self._link is not None:
                try:
                    await self._link.report_recovery(self.partitions.ends_in_doubt())
                except ApiError as error:
                    _logger.warning("recovery not reported reason=%s", error)
            await self.images.wait_until(self._is_accepted, RECOVERY_REPORT_S)
        assert self._agent is not None
        self._agent.acknowledged()
        self._directory.is_settled = True

    def _leadership_changed(self, changed: list[Partition]) -> None:
        for partition in changed:
            self._fetch.changed(partition.key)
            self.acknowledgements.changed(partition.key)
        self._throttles.image_applied()
        self._replication.image_applied()
        self.groups.image_applied(changed)

    def _image_applied(self, changed: list[Partition]) -> None:
        self._quotas.learn(self.images.current.client_quotas)
        self._leadership_changed(changed)
        if self._is_controller:
            cleaned = self.partitions.cleaned_topics()
            if cleaned and self._agent is not None:
                self._agent.confirm_cleanup(self.broker_id, cleaned)
            removed = self.partitions.removed_replicas()
            if removed and self._agent is not None:
                self._agent.confirm_removal(self.broker_id, removed)

    def _high_watermark_moved(self, key: tuple[str, int]) -> None:
        self._fetch.changed(key)
        self.acknowledgements.changed(key)

    def _synced(self, key: TopicPartition) -> None:
        partition = self.partitions.get(*key)
        if partition is not None and partition.leading is not None:
            self.partitions.advance(partition)
            self._high_watermark_moved(key)

    async def _ask_isr(self, wanted: list[IsrRequest]) -> list[IsrResult]:
        if self._link is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "not in the cluster yet")
        return await self._link.alter_isr(wanted)

    async def _answer_peer(self, request: InternalRequest) -> bytes:
        # First: peers that remember this broker as the controller ask it again before it has joined.
        if not self._is_controller:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"broker {self.broker_id} is not the controller")
        assert self._link is not None
        assert self._agent is not None
        if request.key is InternalKey.FORWARD:
            return await self._link.execute_forwarded(request.body)
        if request.key is InternalKey.TAKE_IDS:
            block = await self._link.give_ids(internal.parse_broker_id(request.body))
            return internal.encode_id_block(*block)
        if request.key is InternalKey.ALTER_ISR:
            return await self._link.answer_isr_wishes(request.body)
        if request.key is InternalKey.RECOVERED:
            return await self._link.take_recovery(request.body)
        if request.key is InternalKey.SHUT_DOWN:
            return await self._link.take_shutdown(request.body)
        if request.key is InternalKey.FINALIZE:
            return await self._link.take_finalize()
        assert request.key is InternalKey.PULL_IMAGE, request.key
        pull = internal.parse_pull(request.body)
        if pull.cleaned:
            await asyncio.wrap_future(self._agent.confirm_cleanup(pull.broker_id, pull.cleaned))
        if pull.removed:
            await asyncio.wrap_future(self._agent.confirm_removal(pull.broker_id, pull.removed))
        return await self.images.news((pull.epoch, pull.version), pull.max_wait_ms, request.format)

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
                "cluster_id": self._agent.cluster_id if self._agent else "",
                "release": __version__,
                "config_hash": self.config.config_hash,
                "started_ms": self._started_ms,
                "state": self._state,
                "recovery": {"done": directory.loaded_count, "total": directory.total_count},
                "controller_id": self._controller.broker_id if self._controller else -1,
                "is_registered": self._session is SessionState.CONNECTED,
                "format_level": self.images.current.level,
                "newest_format_level": NEWEST_LEVEL,
                "partitions": [status.describe_partition(partition) for partition in self.partitions],
            },
        )

    async def _answer_ready(self, body: Mapping[str, Any]) -> Reply:
        found = status.readiness(
            self.partitions,
            self.broker_id,
            is_registered=self._session is SessionState.CONNECTED and self._state == "running",
            has_image=self.images.current.version > 0,
        )
        return Reply(200 if found["ready"] else 503, found)

    async def _answer_metrics(self, body: Mapping[str, Any]) -> Reply:
        return Reply(200, self.metrics.render())

    async def _answer_retention(self, body: Mapping[str, Any]) -> Reply:
        if self._state != "running":
            return Reply(503, {"error": f"the broker is {self._state}"})
        return Reply(200, await self._maintenance.retain(dry_run=body.get("dry_run") is True))

    async def _answer_finalize(self, body: Mapping[str, Any]) -> Reply:
        if self._link is None:
            return Reply(503, {"error_code": ErrorCode.BROKER_NOT_AVAILABLE, "error": f"the broker is {self._state}"})
        try:
            return Reply(200, {"level": await self._link.finalize()})
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

    @property
    def _is_controller(self) -> bool:
        return self._controller is not None and self._controller.broker_id == self.broker_id

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


def open_store(config: BrokerConfig) -> Store:
    """Return the store that the cluster's state lies in; it is not connected yet."""
    if config.store.kind == "zookeeper":
        from pylog.store.zookeeper import ZooKeeperStore

        return ZooKeeperStore(config.store.hosts, session_timeout_ms=config.store.session_timeout_ms)
    from pylog.store.embedded import EmbeddedTree

    return EmbeddedTree(config.data_dir / STORE).session()


def _advertised(broker_id: int, listener: ListenerConfig, bound_port: int) -> NodeAddress:
    # Port 0 means any free one, and then the one that was got is what clients need to know.
    return NodeAddress(broker_id, listener.advertised_host, listener.advertised_port or bound_port)


def _log_connection(listener: str, event: str, peer: str, reason: str) -> None:
    _logger.warning("%s listener=%s peer=%s reason=%s", event, listener, peer, reason)


def _ignore(handle: object) -> None:
    """Say that what a call returns is of no use."""

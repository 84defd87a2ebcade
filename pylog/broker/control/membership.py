"""This broker's place in its cluster: joining it, following its controller, recovering, handing over, leaving."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pylog.broker.clock import steady_ms
from pylog.broker.config import STORE, BrokerConfig
from pylog.broker.control import elections, formats, producer_ids, reassignments, topics
from pylog.broker.control.agent import ClusterAgent, ControllerInfo
from pylog.broker.control.api import PeerApi, QuestionT, ResultT
from pylog.broker.control.images import Images
from pylog.broker.control.link import ControllerLink
from pylog.broker.control.producer_ids import ProducerIds
from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.peers import PeerClient
from pylog.broker.settings import check_topic_configs, typed
from pylog.broker.tasks import Tasks
from pylog.cluster.controller import IsrRequest, IsrResult
from pylog.cluster.image import ClusterImage
from pylog.cluster.topics import ClusterConfig
from pylog.cluster.znodes import BrokerRegistration, consumer_ids_path, is_node_name
from pylog.errors import ApiError, ErrorCode, PylogError, StorageError
from pylog.log.directory import LogDirectory
from pylog.metrics import Metrics
from pylog.model import NodeAddress
from pylog.replica.leader import TOUCH_MS
from pylog.security.authorizer import AclNews, Authorizer
from pylog.store.base import SessionState, Store, StoreError
from pylog.wire.api import Message
from pylog.wire.api.message import Request
from pylog.wire.internal import InternalRequest

_logger = logging.getLogger(__name__)

IMAGE_TIMEOUT_S = 10.0
"""How long a start waits for an image that has this broker before it logs that it still waits."""

SETTLED_TIMEOUT_S = 2.0
"""How long a start then waits for the controller to finish recovery after an unclean stop.  Normally that takes two
reports; after the time-out the partitions that are ready are served."""

RECOVERY_REPORT_S = 0.5
"""How often a broker reports what an unclean stop left it, until a controller has settled that."""

HAND_OVER_RETRY_S = 0.2
HAND_OVER_GRACE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The settings by which this broker decides when it is the controller; see `pylog.broker.settings`."""

    num_partitions: int
    default_replication_factor: int
    unclean_leader_election_enable: bool
    unclean_recovery_wait_ms: int


def outlasting_ms(session_timeout_ms: int) -> int:
    """Return for how long a session surely has not ended since the loss of its connection was noticed.

    A client of ZooKeeper notices it when two thirds of the session time-out are over, or earlier.
    """
    return min(TOUCH_MS, session_timeout_ms // 3)


class Membership:
    """See the module.

    Attributes:
        images: the cluster images applied here.
        broker_epoch: of this process's registration, -1 while there is none.
        cluster_id: of the cluster this broker joined, "" before.
        producer_ids: those that this broker may hand out.
    """

    def __init__(
        self,
        config: BrokerConfig,
        directory: LogDirectory,
        partitions: Partitions,
        metrics: Metrics,
        keys: PeerKeys,
        *,
        on_image: Callable[[list[Partition]], None],
        on_leadership_lost: Callable[[list[Partition]], None],
        on_failure: Callable[[PylogError], None],
        authorizer: Authorizer | None = None,
    ) -> None:
        """Take everything, do nothing yet.

        Args:
            config: of this broker.
            directory: its data.
            partitions: its replicas.
            metrics: where it says whether this broker is the controller.
            keys: by which brokers know each other.
            on_image: an image was applied; the argument lists the partitions that it changed.
            on_leadership_lost: the session ended, and these partitions are not led any more.
            on_failure: this broker cannot go on.
            authorizer: learns the ACLs in the store; None leaves them alone.
        """
        # Stopped before a controller has compared our logs, we must be in doubt again when we come back (rule 3).
        directory.is_settled = directory.was_clean
        self._config = config
        self._directory = directory
        self._partitions = partitions
        self._on_image = on_image
        self._on_leadership_lost = on_leadership_lost
        self._on_failure = on_failure
        self._authorizer = authorizer
        self._keys = keys
        self._loop = asyncio.get_running_loop()
        # One pulls images, which waits at the controller; the other asks for everything else.
        self._clients = [
            PeerClient(config.broker_id, keys, partitions.format_version) for _ in range(2 if config.internal else 0)
        ]
        puller = self._clients[0] if self._clients else None
        self.images = Images(config.broker_id, partitions, puller)
        self.images.on_applied = self._image_applied
        self.producer_ids = ProducerIds(self._take_producer_ids)
        self._store: Store | None = None
        self._agent: ClusterAgent | None = None
        self._link: ControllerLink | None = None
        self._session: SessionState | None = None
        self._suspended_ms = 0
        self.on_deposed: Callable[[], None] = lambda: None
        """Called when this broker is the controller no more, or in a new term."""
        self._controller: ControllerInfo | None = None
        self._recovery = Tasks()
        metrics.gauge(
            "pylog_is_controller",
            "1 on the broker that knows itself as controller.",
            read=lambda: self.is_controller,
        )
        metrics.gauge(
            "pylog_store_connected",
            "1 while this broker has its session with ZooKeeper and is registered there; 0 while the connection is "
            "gone, the session is over, or this broker waits for ZooKeeper to start.",
            read=lambda: self.is_registered,
        )
        self._sessions_lost = metrics.counter(
            "pylog_store_sessions_lost_total",
            "Sessions with ZooKeeper that ended: each time others took over what this broker led.",
        )

    # -- joining and leaving ---------------------------------------------------------------------------------------

    async def join(self, clients: Mapping[str, NodeAddress], internal: NodeAddress) -> None:
        """Register in the cluster under these addresses; wait for its store as long as that takes.

        *clients* has those for clients by listener.

        Raises:
            PylogError: the data, the configuration or the cluster says that this broker must not run.
        """
        self.images.start()
        await asyncio.to_thread(self._join, clients, internal)
        if not self._directory.was_clean:
            self._recovery.spawn(self._recover())

    def _join(self, clients: Mapping[str, NodeAddress], internal: NodeAddress) -> None:
        config, directory = self._config, self._directory
        self._store = open_store(config)
        registration = BrokerRegistration(
            *(config.broker_id, clients[config.client_name], internal, config.rack),
            *(directory.cluster_id, directory.was_clean, directory.is_same_boot),
            protocol=config.client.settings.security_protocol,
            name=config.client_name,
            internal_protocol=(config.internal or config.client).settings.security_protocol,
            more={
                name: (listener.settings.security_protocol, clients[name])
                for name, listener in config.more_clients.items()
            },
        )
        settings = typed(ControllerConfig, config.settings)
        cluster_config = ClusterConfig(
            num_partitions=settings.num_partitions,
            replication_factor=settings.default_replication_factor,
            check_configs=check_topic_configs,
            unclean_elections=settings.unclean_leader_election_enable,
            unclean_recovery_wait_ms=settings.unclean_recovery_wait_ms,
        )
        call = self._loop.call_soon_threadsafe
        self._agent = ClusterAgent(
            self._store,
            registration,
            cluster_config,
            on_controller=lambda info: _ignore(call(self._controller_changed, info)),
            on_image=lambda image: _ignore(call(self.images.offer, image)),
            on_session=lambda state: _ignore(call(self._session_changed, state)),
            on_failure=lambda error: _ignore(call(self._on_failure, error)),
            on_acls=None if self._authorizer is None else lambda news: _ignore(call(self._acls_changed, news)),
        )
        peer = self._clients[1] if self._clients else None
        self._link = ControllerLink(
            config.broker_id,
            self._agent,
            self.images,
            peer,
            config.settings,
            self._authorizer,
            calls_by_tls=lambda: self._keys.context() is not None,
        )
        self._link.on_later_epoch = self._later_controller_shown
        self._agent.start()
        directory.join(self._agent.cluster_id)

    async def wait_accepted(self) -> None:
        """Wait until an image has this broker, and a while for the end of its recovery after an unclean stop."""
        # Clients would hear of a cluster without this broker; some never look for it again then.
        while not await self.images.wait_until(self._partitions.knows_us, IMAGE_TIMEOUT_S):
            _logger.warning("no cluster image has this broker yet; not serving clients retry_s=%d", IMAGE_TIMEOUT_S)
        authorizer = self._authorizer
        while authorizer is not None and not authorizer.is_loaded:
            if not await self.images.wait_until(lambda image: authorizer.is_loaded, IMAGE_TIMEOUT_S):
                _logger.warning("no ACLs were read yet; not serving clients retry_s=%d", IMAGE_TIMEOUT_S)
        if not await self.images.wait_until(self._is_accepted, SETTLED_TIMEOUT_S):
            _logger.warning("partitions wait for what others have after an unclean stop waited_s=%g", SETTLED_TIMEOUT_S)

    async def hand_over(self, timeout_s: float) -> None:
        """Let the controller give others what this broker leads, while clients still reach it and can be told."""
        if self._config.store.kind == "embedded" or self._link is None:
            return  # no other broker could take over
        try:
            async with asyncio.timeout(timeout_s):
                while (moved := await self._ask_to_stop()) is None:
                    await asyncio.sleep(HAND_OVER_RETRY_S)
                await self.images.wait_until(self._is_handed_over, timeout_s)
                if moved:
                    # The image tells producers that wait for followers; this gives the answers time to leave.
                    await asyncio.sleep(HAND_OVER_GRACE_S)
        except TimeoutError:
            _logger.warning("stopping without handing over waited_s=%g", timeout_s)
        else:
            _logger.info("handed over partitions=%d", moved)

    async def leave(self) -> None:
        """End the session, so that the others see at once that this broker is gone; images go on being applied."""
        self._recovery.cancel()
        if self._agent is not None:
            await asyncio.to_thread(self._agent.stop)

    async def stop(self) -> None:
        """Stop applying images, and close the connections to other brokers."""
        await self.images.stop()
        for client in self._clients:
            client.close()

    async def _ask_to_stop(self) -> int | None:
        try:
            return await self._command(elections.SHUT_DOWN, (self._config.broker_id, self.broker_epoch))
        except ApiError as error:
            _logger.warning("not handed over yet reason=%s", error)
            return None

    def _is_handed_over(self, image: ClusterImage) -> bool:
        """Whether *image* leaves this broker only what no other has."""
        return not any(
            state.leader == self._config.broker_id and len(state.isr) > 1
            for topic in image.topics.values()
            for state in topic.partitions.values()
        )

    # -- recovery after an unclean stop ----------------------------------------------------------------------------

    def _is_accepted(self, image: ClusterImage) -> bool:
        """Whether a controller counts on this process, whatever its last stop may have lost."""
        broker = image.brokers.get(self._config.broker_id)
        return broker is not None and broker.is_clean and self._partitions.knows_us(image)

    async def _recover(self) -> None:
        """Report what is on disk after an unclean stop until a controller has settled it (rule 3)."""
        images, partitions = self.images, self._partitions
        while not self._is_accepted(images.current):
            if not partitions.knows_us(images.current):
                await images.wait_until(partitions.knows_us, RECOVERY_REPORT_S)
                continue
            try:
                report = (self._config.broker_id, self.broker_epoch, partitions.ends_in_doubt())
                await self._command(elections.RECOVERED, report)
            except ApiError as error:
                _logger.warning("recovery not reported reason=%s", error)
            await images.wait_until(self._is_accepted, RECOVERY_REPORT_S)
        assert self._agent is not None
        self._agent.register_as_clean()
        try:
            self._directory.settle()
        except StorageError as error:
            _logger.warning("boot id not written reason=%s", error)  # the next kill counts like a power cut

    # -- state -----------------------------------------------------------------------------------------------------

    @property
    def broker_epoch(self) -> int:
        """See the class."""
        return self._agent.broker_epoch if self._agent is not None else -1

    @property
    def cluster_id(self) -> str:
        """See the class."""
        return self._agent.cluster_id if self._agent is not None else ""

    @property
    def is_registered(self) -> bool:
        """Whether this broker has its session with the store, and its registration stands there."""
        return self._session is SessionState.CONNECTED

    @property
    def has_session(self) -> bool:
        """Whether the session with the store has surely not ended."""
        if self._session is SessionState.SUSPENDED:
            assert self._store is not None
            return steady_ms() - self._suspended_ms <= outlasting_ms(self._store.session_timeout_ms)
        return self.is_registered

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._controller is not None and self._controller.broker_id == self._config.broker_id

    @property
    def elected_id(self) -> int:
        """The controller that the store names, -1 while there is none."""
        return self._controller.broker_id if self._controller is not None else -1

    @property
    def controller_id(self) -> int:
        """The controller that clients are told of, -1 while there has been none."""
        image = self.images.current
        # The store names a new controller before its first image comes.  librdkafka's admin client keeps to the first
        # controller that it hears of, and spends its whole time-out on the address of one that died.
        return self.elected_id if self.elected_id in image.brokers else image.controller_id

    def _controller_changed(self, info: ControllerInfo | None) -> None:
        was_controller = self.is_controller
        self._controller = info
        if was_controller:
            self.on_deposed()
        assert self._link is not None
        self._link.follow(info.address if info else None, self.is_controller, info.epoch if info else -1)
        self.images.follow(info.address if info and not self.is_controller else None)

    def _acls_changed(self, news: AclNews) -> None:
        assert self._authorizer is not None
        self._authorizer.learn(news)
        self.images.look_again()

    def _session_changed(self, state: SessionState) -> None:
        if state is not self._session:
            _logger.info("session state=%s", state.value)
        self._session = state
        self._suspended_ms = steady_ms()
        if state is SessionState.LOST:
            self._sessions_lost.value += 1
            # Others lead by now, or will; what we lead next is what an image says that knows our next registration.
            self._on_leadership_lost(self._partitions.stop_leading())

    def _later_controller_shown(self, reason: str) -> None:
        """Lead nothing until an image of the later controller says what (rule 1)."""
        _logger.warning("no longer controller reason=%s", reason)
        self._on_leadership_lost(self._partitions.stop_leading())
        assert self._agent is not None
        self._agent.read_controller()

    def _image_applied(self, changed: list[Partition]) -> None:
        self._on_image(changed)
        if self.is_controller:
            # Other brokers confirm with their next pull.
            broker_id, agent = self._config.broker_id, self._agent
            assert agent is not None
            if cleaned := self._partitions.cleaned_topics():
                agent.ask(lambda controller: topics.confirm_cleanup(controller, broker_id, cleaned))
            if removed := self._partitions.removed_replicas():
                agent.ask(lambda controller: reassignments.confirm_removal(controller, broker_id, removed))

    # -- asking the controller ---------------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Message:
        """Return the controller's answer to a client's request; see `ControllerLink.ask`."""
        assert self._link is not None, "the client listener starts after joining"
        return await self._link.ask(request)

    async def answer(self, request: InternalRequest) -> bytes:
        """Answer what another broker asks of this one as the controller; see `ControllerLink.answer`."""
        if self._link is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"broker {self._config.broker_id} has not joined its cluster yet")
        return await self._link.answer(request)

    async def new_producer_id(self) -> int:
        """Return a producer id that was never handed out."""
        return await self.producer_ids.next()

    async def alter_isr(self, requests: list[IsrRequest]) -> list[IsrResult]:
        """Return the controller's results for ISR changes that this broker, the leader, asks for.

        Raises:
            ApiError: the controller cannot be reached; nobody knows whether it made the changes.
        """
        return await self._command(elections.ALTER_ISR, (self._config.broker_id, self.broker_epoch, requests))

    async def finalize(self) -> int:
        """Let the whole cluster write this release's formats from now on; return their level.

        Raises:
            ApiError: a broker runs an older release, or the controller cannot be reached.
        """
        level = await self._command(formats.FINALIZE, None)
        formats.check_finalized(level)
        return level

    async def has_consumers(self, group_id: str) -> bool:
        """Return whether consumers have registered under *group_id* in ZooKeeper; False while that is unknown."""
        if self._store is None or not is_node_name(group_id):
            return False
        try:
            [ids] = await asyncio.to_thread(self._store.children_many, [consumer_ids_path(group_id)])
        except StoreError as error:
            _logger.info("consumers not known group=%s reason=%s", group_id, error)
            return False
        return bool(ids)

    async def _take_producer_ids(self) -> tuple[int, int]:
        return await self._command(producer_ids.TAKE_IDS, self._config.broker_id)

    async def _command(self, row: PeerApi[QuestionT, ResultT], question: QuestionT) -> ResultT:
        if self._link is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker has not joined its cluster yet")
        return await self._link.command(row, question)


def open_store(config: BrokerConfig) -> Store:
    """Return the store that keeps the cluster's state; it is not connected yet."""
    if config.store.kind == "zookeeper":
        from pylog.store.zookeeper import ZooKeeperStore

        store = config.store
        return ZooKeeperStore(store.hosts, session_timeout_ms=store.session_timeout_ms, security=store.security)
    from pylog.store.embedded import EmbeddedTree

    return EmbeddedTree(config.data_dir / STORE).session()


def _ignore(handle: object) -> None:
    """Drop the handle of a scheduled call, which the agent's callbacks must not return."""

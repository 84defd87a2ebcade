"""The one thread of a broker that talks to the store: registration, election, and the controller's duties.

Everything that happens (a watch, a change of the session, a request) is put on one queue and handled in order; what a
watch saw is never trusted but read again.  So nothing here is ever done by two threads at once, and an event that is
missed, doubled or late does no harm.
"""

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pylog.broker.clock import steady_ms, wall_ms
from pylog.broker.duties import ControllerDuties, Growth, TopicResult, Watches, new_topic_ids
from pylog.cluster.controller import IsrRequest, IsrResult
from pylog.cluster.formats import check_level
from pylog.cluster.image import ClusterImage, TopicImage, topic_id_text
from pylog.cluster.quotas import QuotaEntity
from pylog.cluster.topics import ClusterConfig, NewTopic
from pylog.cluster.znodes import BrokerRegistration
from pylog.errors import ApiError, ConfigError, ErrorCode, ProtocolError, PylogError
from pylog.model import NodeAddress
from pylog.store.base import NodeExists, NotConnected, SessionLost, SessionState, Store, StoreError, Watch
from pylog.store.tree import ClusterTree, Deposed

log = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_ATTEMPT_S = 10.0
"""How long one attempt to reach the store takes before a line is logged and the next begins."""

RETRY_S = 2.0
"""Pause after something in the store that cannot be read, before it is read again."""

STALE_NODE_TIMEOUTS = 3
"""Session time-outs after which a registration of ours that stays is another process: servers expire in ticks."""

MAX_ATTEMPTS = 3
"""How often a request meets a store that is not what was read, before it is answered with an error."""

MAX_QUEUED_COMMANDS = 1000
"""Requests waiting for this thread; each is a client that waits, so beyond this they are refused at once."""


class ControllerInfo(NamedTuple):
    """Who is controller, and where the other brokers reach it."""

    broker_id: int
    epoch: int
    address: NodeAddress


class _Look(Enum):
    """What to read again; handled in this order."""

    REGISTRATION = 1
    CONTROLLER = 2
    BROKERS = 3
    TOPICS = 4
    DELETIONS = 5
    CONFIGS = 6


@dataclass(slots=True)
class _Command:
    run: Callable[[ControllerDuties], Any]
    future: Future[Any]
    attempts: int = 0


class _Stop:
    pass


_Item = SessionState | _Look | _Command | _Stop


class ClusterAgent:
    """A broker's seat in the cluster.

    Callbacks come from the agent's thread and must only hand on.  Their order is a promise: `on_image` of a new
    controller comes before the `on_controller` that names this broker.

    Attributes:
        cluster_id: of the cluster this broker joined; "" before `start` returned.
        broker_epoch: czxid of the registration that stands, -1 while there is none.
    """

    def __init__(
        self,
        store: Store,
        registration: BrokerRegistration,
        config: ClusterConfig,
        *,
        on_controller: Callable[[ControllerInfo | None], None],
        on_image: Callable[[ClusterImage], None],
        on_session: Callable[[SessionState], None],
        on_failure: Callable[[PylogError], None] = lambda error: None,
    ) -> None:
        """Take everything, do nothing yet.

        Args:
            store: not yet connected; the agent connects and closes it.
            registration: what to tell the cluster of this broker.
            config: what to fill in where a request for a topic leaves it open.
            on_controller: another broker, or this one, became controller; None while there is none.
            on_image: this broker is controller and the cluster changed.
            on_session: CONNECTED once registered, SUSPENDED, LOST.
            on_failure: the agent cannot go on after `start` returned; the broker has to end.
        """
        self.cluster_id = ""
        self.broker_epoch = -1
        self._store = store
        self._tree = ClusterTree(store)
        self._registration = registration
        self._config = config
        self._on_controller = on_controller
        self._on_image = on_image
        self._on_session = on_session
        self._on_failure = on_failure
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._commands: list[_Command] = []
        self._looks: set[_Look] = set(_Look)
        self._answers: list[Callable[[], None]] = []
        self._duties: ControllerDuties | None = None
        self._info: ControllerInfo | None = None
        self._served_epoch = 0
        self._session_told = SessionState.LOST
        self._is_connected = False
        self._is_stopping = threading.Event()
        self._stale_until_s = 0.0
        self._joined: Future[None] = Future()
        self._watch: dict[_Look, Watch] = {look: self._watch_for(look) for look in _Look}
        self._thread = threading.Thread(target=self._run, name="cluster-agent", daemon=True)

    @property
    def _broker_id(self) -> int:
        return self._registration.broker_id

    def start(self, timeout_s: float | None = None) -> None:
        """Join the cluster; return once registered.

        Args:
            timeout_s: None waits for the store as long as it takes, so that the order of starting does not matter.

        Raises:
            ConfigError: the broker id is taken by another host, or the data belongs to another cluster.
            NotConnected: not registered within *timeout_s*.
        """
        self._thread.start()
        try:
            self._joined.result(timeout_s)
        except TimeoutError:
            self.stop()
            raise NotConnected(message=f"broker {self._broker_id} not registered within {timeout_s} s") from None

    def stop(self) -> None:
        """Leave: end the session, so that the others see it at once, and refuse what still waits."""
        self._is_stopping.set()
        self._queue.put(_Stop())
        if self._thread.ident is None:
            # Never started: an embedded store still holds its journal.
            self._store.close()
        else:
            self._thread.join()

    def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Future[list[TopicResult]]:
        """Create topics; the result has one entry each, in order.  NOT_CONTROLLER fails the future as a whole."""
        ids = new_topic_ids(topic.name for topic in topics)
        return self._ask(lambda duties: duties.create_topics(topics, ids, validate_only=validate_only))

    def grow_topics(self, wanted: Sequence[Growth], *, validate_only: bool = False) -> Future[list[TopicResult]]:
        """Add partitions to topics; the result has one entry each, in order."""
        begun: dict[str, int] = {}
        return self._ask(lambda duties: duties.grow_topics(wanted, begun, validate_only=validate_only))

    def delete_topics(self, names: Sequence[str]) -> Future[list[TopicResult]]:
        """Delete topics; the result has one entry each, in order."""
        begun: set[str] = set()
        return self._ask(lambda duties: duties.delete_topics(names, begun))

    def confirm_cleanup(self, broker_id: int, topic_ids: Collection[uuid.UUID]) -> Future[None]:
        """Take in that *broker_id* has deleted its data of these topics; until then images list them as deleted."""
        return self._ask(lambda duties: duties.confirm_cleanup(broker_id, topic_ids))

    def confirm_removal(self, broker_id: int, removed: Collection[tuple[uuid.UUID, int]]) -> Future[None]:
        """Take in that *broker_id* has deleted partitions that it held before they were moved."""
        return self._ask(lambda duties: duties.confirm_removal(broker_id, removed))

    def move_partitions(
        self, wanted: Mapping[tuple[str, int], Sequence[int] | None]
    ) -> Future[dict[tuple[str, int], ApiError | None]]:
        """Let partitions be held by other brokers, or with None call that off; the result says why one cannot be."""
        return self._ask(lambda duties: duties.move_partitions(wanted))

    def moves(self) -> Future[dict[str, TopicImage]]:
        """Return the topics with partitions that are being moved."""
        return self._ask(lambda duties: duties.moves())

    def finalize(self) -> Future[int]:
        """Let the formats of this release be written from now on; the result is their level."""
        return self._ask(lambda duties: duties.finalize())

    def alter_broker_configs(
        self, changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> Future[None]:
        """Set dynamic configs of brokers, by id as text or ``<default>``, or with None unset them."""
        return self._ask(lambda duties: duties.alter_broker_configs(changes, validate_only=validate_only))

    def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> Future[list[TopicResult]]:
        """Set configs of topics, or with None unset them; the result has one entry a topic, in order."""
        return self._ask(lambda duties: duties.alter_topic_configs(changes, validate_only=validate_only))

    def alter_client_quotas(self, changes: Mapping[QuotaEntity, Mapping[str, str | None]]) -> Future[None]:
        """Set quotas of clients, or with None remove them."""
        return self._ask(lambda duties: duties.alter_client_quotas(changes))

    def alter_isr(self, broker_id: int, broker_epoch: int, wanted: Sequence[IsrRequest]) -> Future[list[IsrResult]]:
        """Change in-sync replicas as *broker_id*, their leader, wishes; the result has one entry each, in order."""
        return self._ask(lambda duties: duties.alter_isr(broker_id, broker_epoch, wanted))

    def recover(
        self, broker_id: int, broker_epoch: int, ends: Mapping[tuple[uuid.UUID, int], tuple[int, int]]
    ) -> Future[None]:
        """Take in what *broker_id* found after an unclean stop; the image says when that is settled."""
        return self._ask(lambda duties: duties.recover(broker_id, broker_epoch, ends, steady_ms()))

    def elect_leaders(
        self, wanted: Sequence[tuple[str, int]] | None, *, unclean: bool = False
    ) -> Future[dict[tuple[str, int], ErrorCode]]:
        """Elect the preferred leaders, or with *unclean* any where nobody leads; None means all partitions."""
        return self._ask(lambda duties: duties.elect_leaders(wanted, unclean=unclean))

    def shut_down(self, broker_id: int, broker_epoch: int) -> Future[int]:
        """Let others take over from *broker_id*, which is about to stop; the result says for how many partitions."""
        return self._ask(lambda duties: duties.shut_down(broker_id, broker_epoch))

    def acknowledged(self) -> None:
        """Register as clean from now on: a controller has settled our unclean stop."""
        self._registration = replace(self._registration, is_clean=True)

    def allocate_producer_ids(self, broker_id: int | None = None) -> Future[tuple[int, int]]:
        """Take a block of producer ids, for another broker if one is named: the first, and how many."""
        owner = self._broker_id if broker_id is None else broker_id
        return self._ask(lambda duties: duties.take_producer_ids(owner))

    def _ask(self, run: Callable[[ControllerDuties], T]) -> Future[T]:
        future: Future[T] = Future()
        if self._is_stopping.is_set() or self._queue.qsize() + len(self._commands) >= MAX_QUEUED_COMMANDS:
            future.set_exception(ApiError(ErrorCode.NOT_CONTROLLER, "this broker stops or is overloaded"))
        else:
            self._queue.put(_Command(run, future))
        return future

    def _run(self) -> None:
        failure: PylogError | None = None
        try:
            self._connect()
            self._loop()
        except PylogError as error:
            failure = error
        except Exception as error:  # the top of this thread: say what happened, then end
            log.exception("agent_failed")
            failure = PylogError(f"{type(error).__name__}: {error}")
        self._leave(failure)

    def _connect(self) -> None:
        self._store.listen(self._queue.put)
        while not self._is_stopping.is_set():
            try:
                self._store.connect(CONNECT_ATTEMPT_S)
            except NotConnected as error:
                log.warning("store_unreachable %s", error)
            else:
                return

    def _loop(self) -> None:
        while not self._is_stopping.is_set():
            self._take(self._wait_s())
            if not self._is_connected:
                if self._duties is None:
                    self._refuse_commands()
                continue
            try:
                self._work()
            except (NotConnected, SessionLost) as error:
                # The session's next event says how it goes on; what we were doing is read again before it is repeated.
                log.warning("store_interrupted reason=%s", error)
                self._looks.update(_Look)
            self._publish()

    def _wait_s(self) -> float | None:
        """Return how long the queue may be waited for: for ever, if nothing is due by itself."""
        if not self._is_connected:
            return None
        if self._stale_until_s:
            return 1.0
        return RETRY_S if self._looks else None

    def _take(self, wait_s: float | None) -> None:
        """Wait for the next item and sort in all that came."""
        try:
            item = self._queue.get(timeout=wait_s)
            while True:
                self._sort_in(item)
                item = self._queue.get_nowait()
        except queue.Empty:
            return

    def _sort_in(self, item: _Item) -> None:
        match item:
            case SessionState():
                self._session_became(item)
            case _Look():
                self._looks.add(item)
            case _Command():
                if item.future.set_running_or_notify_cancel():
                    self._commands.append(item)
            case _Stop():
                self._is_stopping.set()

    def _session_became(self, state: SessionState) -> None:
        self._is_connected = state is SessionState.CONNECTED
        if state is SessionState.CONNECTED:
            self._looks.update(_Look)
            return
        log.warning("session_%s broker=%d", state.value, self._broker_id)
        if state is SessionState.LOST:
            self._store.renew()
            self.broker_epoch = -1
            self._step_down(None)
        self._tell_session(state)

    def _work(self) -> None:
        if _Look.REGISTRATION in self._looks:
            if not self._register():
                return
            self._looks.discard(_Look.REGISTRATION)
        try:
            self._look_for_controller()
            if self._duties is not None:
                self._serve(self._duties)
        except Deposed as error:
            log.warning("deposed broker=%d reason=%s", self._broker_id, error)
            self._step_down(None)
            self._tree.resign()
            self._looks.add(_Look.CONTROLLER)
            self._queue.put(_Look.CONTROLLER)
        except (NotConnected, SessionLost):
            raise
        except ProtocolError as error:
            log.error("store_unreadable reason=%s retry_s=%g", error, RETRY_S)
            self._looks.add(_Look.CONTROLLER)
            self._refuse_commands()
        except StoreError as error:
            # The store is not what we read: somebody wrote past the fence.  Read again, then decide again.
            log.warning("store_changed_underneath reason=%s", error)
            self._looks.add(_Look.CONTROLLER)
            self._queue.put(_Look.CONTROLLER)

    def _register(self) -> bool:
        """Make sure that this broker's node stands and is of this session; False while an older one stands."""
        self._tree.prepare()
        self._join_cluster()
        found = self._tree.registered(self._broker_id)
        if found is None:
            try:
                self.broker_epoch = self._tree.register(self._registration, wall_ms())
            except NodeExists:
                return self._register_later()
        elif found[1].ephemeral_owner == self._store.session_id:
            self.broker_epoch = found[1].czxid
        else:
            self._check_stale(found[0].client.host)
            self._tree.registered(self._broker_id, self._watch[_Look.REGISTRATION])
            return False
        # Armed only now: it is to tell of losing the node, not of making it.
        self._tree.registered(self._broker_id, self._watch[_Look.REGISTRATION])
        self._stale_until_s = 0.0
        log.info("registered broker=%d epoch=%d cluster=%s", self._broker_id, self.broker_epoch, self.cluster_id)
        if not self._joined.done():
            self._joined.set_result(None)
        self._tell_session(SessionState.CONNECTED)
        return True

    def _register_later(self) -> bool:
        self._queue.put(_Look.REGISTRATION)
        return False

    def _join_cluster(self) -> None:
        own, found = self._registration.cluster_id, self._tree.cluster_id()
        if own is not None and own != found:
            state = "names no cluster" if found is None else f"is of cluster {found}"
            raise ConfigError(
                f"the data of broker {self._broker_id} is of cluster {own}, but the store {state}; "
                "correct `store`; if the store of a standalone broker is lost: pylog cluster adopt --data DIR"
            )
        self.cluster_id = found or self._tree.give_cluster_id(topic_id_text(uuid.uuid4()))
        # From now on it is ours: a store that is wiped under a running broker must not look like a first start.
        self._registration = replace(self._registration, cluster_id=self.cluster_id)
        check_level(self._tree.level())

    def _check_stale(self, host: str) -> None:
        """Wait out a node that an earlier session of ours left; it is never deleted, it may still be alive."""
        own = self._registration.client.host
        if host != own:
            raise ConfigError(f"broker id {self._broker_id} is registered by host {host}; this is {own}")
        now_s = time.monotonic()
        if not self._stale_until_s:
            self._stale_until_s = now_s + STALE_NODE_TIMEOUTS * self._store.session_timeout_ms / 1000
        left_s = self._stale_until_s - now_s
        if left_s <= 0:
            raise ConfigError(f"broker id {self._broker_id} is registered by another process on this host, {host}")
        log.info("waiting_for_own_stale_registration broker=%d left_s=%.0f", self._broker_id, left_s)

    def _look_for_controller(self) -> None:
        if _Look.CONTROLLER not in self._looks:
            return
        watch = self._watch[_Look.CONTROLLER]
        node = self._tree.controller(watch)
        if node is None:
            self._step_down(None)
            self._tree.claim_controller(self._broker_id, wall_ms())
            node = self._tree.controller(watch)
        if node is None:
            # Elected and gone between two reads: its watch has put this look on the queue again.
            return
        if node.session_id == self._store.session_id:
            if self._duties is not None and self._duties.fence != node.fence:
                # Only an election moves the epoch, and ours has not ended: somebody wrote it by hand.  Begin anew.
                raise Deposed(f"the controller epoch moved from {self._duties.fence} to {node.fence}")
            if self._duties is None:
                if node.fence.epoch <= self._served_epoch:
                    # Left over from a resignation that failed; images of that epoch are out, so it cannot begin anew.
                    raise Deposed(f"controller epoch {node.fence.epoch} was given up")
                self._served_epoch = node.fence.epoch
                self._step_down(None)
                log.info("elected broker=%d controller_epoch=%d", self._broker_id, node.fence.epoch)
                looks = (_Look.BROKERS, _Look.TOPICS, _Look.DELETIONS, _Look.CONFIGS)
                watches = Watches(*(self._watch[look] for look in looks))
                self._duties = ControllerDuties(self._tree, node.fence, watches)
            self._duties.reload(self._broker_id, self.cluster_id, self._config)
            self._looks -= {_Look.BROKERS, _Look.TOPICS, _Look.DELETIONS, _Look.CONFIGS}
        else:
            found = self._tree.registered(node.broker_id)
            if found is None:
                # Both nodes are of one session, so the claim is about to go too; its watch comes back here.
                return
            self._step_down(ControllerInfo(node.broker_id, node.fence.epoch, found[0].internal))
        self._looks.discard(_Look.CONTROLLER)

    def _serve(self, duties: ControllerDuties) -> None:
        for look, react in (
            (_Look.BROKERS, duties.look_at_brokers),
            (_Look.TOPICS, duties.look_at_topics),
            (_Look.DELETIONS, duties.look_at_deletions),
            (_Look.CONFIGS, duties.look_at_configs),
        ):
            if look in self._looks:
                react()
                self._looks.discard(look)
        while self._commands:
            self._answer(self._commands[0], duties)
            self._commands.pop(0)

    def _answer(self, command: _Command, duties: ControllerDuties) -> None:
        """Carry out one command; the answer waits until the image that shows it is published."""
        command.attempts += 1
        try:
            result = command.run(duties)
        except ApiError as error:
            self._answers.append(partial(command.future.set_exception, error))
        except (NotConnected, SessionLost, Deposed):
            raise
        except StoreError as error:
            if command.attempts < MAX_ATTEMPTS:
                raise
            refusal = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            self._answers.append(partial(command.future.set_exception, refusal))
        else:
            self._answers.append(partial(command.future.set_result, result))

    def _publish(self) -> None:
        """Show the new image, then say who is controller, then answer."""
        duties = self._duties
        if duties is not None:
            image = duties.take_image()
            if image is not None:
                self._on_image(image)
            if self._info is None and duties.is_ready:
                self._tell(ControllerInfo(self._broker_id, duties.fence.epoch, self._registration.internal))
        else:
            self._refuse_commands()
        answers, self._answers = self._answers, []
        for answer in answers:
            answer()

    def _step_down(self, successor: ControllerInfo | None) -> None:
        self._duties = None
        self._tell(successor)
        self._refuse_commands()

    def _tell_session(self, state: SessionState) -> None:
        if state is not self._session_told:
            self._session_told = state
            self._on_session(state)

    def _tell(self, info: ControllerInfo | None) -> None:
        if info != self._info:
            self._info = info
            log.info("controller broker=%s epoch=%s", *((info.broker_id, info.epoch) if info else ("none", "none")))
            self._on_controller(info)

    def _refuse_commands(self) -> None:
        commands, self._commands = self._commands, []
        for command in commands:
            command.future.set_exception(
                ApiError(ErrorCode.NOT_CONTROLLER, f"broker {self._broker_id} is not the controller")
            )

    def _watch_for(self, look: _Look) -> Watch:
        # One callable for each, so that the store can tell that it is armed already.
        return lambda event: self._queue.put(look)

    def _leave(self, failure: PylogError | None) -> None:
        self._is_stopping.set()
        self._take(0)
        self._refuse_commands()
        try:
            self._store.close()
        except PylogError as error:
            failure = failure or error
        if not self._joined.done():
            self._joined.set_exception(failure or NotConnected(message="stopped before it was registered"))
        elif failure is not None:
            log.error("agent_ends broker=%d reason=%s", self._broker_id, failure)
            self._on_failure(failure)

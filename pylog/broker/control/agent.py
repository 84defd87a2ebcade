"""The one thread of a broker that talks to the store: registration, election, and the work of the active controller.

Everything that happens (a watch, a change of the session, a request) is put on one queue and handled in order.  A watch
only says what to read again.  So no two threads ever do this work at once, and an event that is missed, doubled or late
does no harm.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pylog.broker.clock import wall_ms
from pylog.broker.control.acl_feed import AclFeed
from pylog.broker.control.controller import ActiveController, Watches
from pylog.broker.control.registration import Registration
from pylog.cluster.image import ClusterImage
from pylog.cluster.topics import ClusterConfig
from pylog.cluster.znodes import BrokerRegistration
from pylog.errors import ApiError, ErrorCode, ProtocolError, PylogError
from pylog.model import NodeAddress
from pylog.security.authorizer import AclNews
from pylog.store.base import (
    NodeExists,
    NotAllowed,
    NotConnected,
    SessionLost,
    SessionState,
    Store,
    StoreError,
    StoreFull,
    Watch,
)
from pylog.store.tree import ClusterTree, Deposed

_logger = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_ATTEMPT_S = 10.0
"""How long one attempt to reach the store takes before a line is logged and the next begins."""

RETRY_S = 2.0
"""Pause after something in the store that cannot be read, before it is read again."""

UNASKED_SESSIONS = 2
UNASKED_MIN_S = 5.0
"""A controller that no other broker has asked for so many session time-outs, but at least for so long, gives up office:
the others are registered, so it is the controller whom they do not reach.  They ask every two seconds."""

UNASKED_LOOK_S = 1.0
"""How often that is looked at."""

MAX_ATTEMPTS = 3
"""How often a request meets a store that is not what was read, or loses the connection, before it is answered with an
error."""

MAX_QUEUED_COMMANDS = 1000
"""Requests waiting for this thread; each is a client that waits, so beyond this they are refused at once."""


class ControllerInfo(NamedTuple):
    """Who is controller, and where the other brokers reach it."""

    broker_id: int
    epoch: int
    address: NodeAddress


class _Reading(Enum):
    """A part of the store to read again; handled in this order."""

    REGISTRATION = 1
    CONTROLLER = 2
    BROKERS = 3
    TOPICS = 4
    DELETIONS = 5
    CONFIGS = 6
    ACLS = 7


@dataclass(slots=True)
class _Command:
    operation: Callable[[ActiveController], Any]
    future: Future[Any]
    attempts: int = 0


class _Stop:
    pass


_Item = SessionState | _Reading | _Command | _Stop


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
        on_acls: Callable[[AclNews], None] | None = None,
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
            on_acls: ACLs were read or changed; None leaves them unread, and makes no nodes for them.
        """
        self._store = store
        self._tree = ClusterTree(store)
        self._config = config
        self._on_controller = on_controller
        self._on_image = on_image
        self._on_session = on_session
        self._on_failure = on_failure
        self._acls = None if on_acls is None else AclFeed(self._tree, on_acls)
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._commands: list[_Command] = []
        self._due: set[_Reading] = set(_Reading)
        self._answers: list[Callable[[], None]] = []
        self._active: ActiveController | None = None
        self._info: ControllerInfo | None = None
        self._served_epoch = 0
        self._asked_s = 0.0
        self._stands_back_until_s = 0.0
        self._session_told = SessionState.LOST
        self._is_connected = False
        self._is_stopping = threading.Event()
        self._joined: Future[None] = Future()
        self._watch: dict[_Reading, Watch] = {reading: self._watch_for(reading) for reading in _Reading}
        self._registration = Registration(store, self._tree, registration, self._watch[_Reading.REGISTRATION])
        self._thread = threading.Thread(target=self._run, name="cluster-agent", daemon=True)

    @property
    def _broker_id(self) -> int:
        return self._registration.broker.broker_id

    @property
    def cluster_id(self) -> str:
        """See the class."""
        return self._registration.cluster_id

    @property
    def broker_epoch(self) -> int:
        """See the class."""
        return self._registration.broker_epoch

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

    def ask(self, operation: Callable[[ActiveController], T]) -> Future[T]:
        """Run *operation* in the agent's thread while this broker is the controller.

        The result comes after the image that shows it was handed to `on_image`.  An operation that meets a lost
        connection or a changed store runs again, at most `MAX_ATTEMPTS` times, after the store was read anew: it must
        recognize what it had written already.

        Returns:
            A future that fails with ApiError: NOT_CONTROLLER, or what the operation raised.
        """
        future: Future[T] = Future()
        if self._is_stopping.is_set() or self._queue.qsize() + len(self._commands) >= MAX_QUEUED_COMMANDS:
            future.set_exception(ApiError(ErrorCode.NOT_CONTROLLER, "this broker stops or is overloaded"))
        else:
            self._queue.put(_Command(operation, future))
        return future

    def note_asked(self) -> None:
        """Take note that another broker reaches this one as the controller; in any thread."""
        self._asked_s = time.monotonic()

    def read_controller(self) -> None:
        """Look again who is controller, since another broker has shown that it is not this one."""
        self._queue.put(_Reading.CONTROLLER)

    def register_as_clean(self) -> None:
        """Register as clean from now on: a controller has settled the unclean stop of this broker."""
        self._registration.mark_clean()

    def _run(self) -> None:
        failure: PylogError | None = None
        try:
            self._connect()
            self._loop()
        except PylogError as error:
            failure = error
        except Exception as error:  # the top of this thread: say what happened, then end
            _logger.exception("agent_failed")
            failure = PylogError(f"{type(error).__name__}: {error}")
        self._leave(failure)

    def _connect(self) -> None:
        self._store.listen(self._queue.put)
        while not self._is_stopping.is_set():
            try:
                self._store.connect(CONNECT_ATTEMPT_S)
            except NotConnected as error:
                _logger.warning("store_unreachable %s", error)
            else:
                return

    def _loop(self) -> None:
        while not self._is_stopping.is_set():
            self._take(self._wait_s())
            if not self._is_connected:
                if self._active is None:
                    self._refuse_commands()
                continue
            try:
                self._work()
            except (NotConnected, SessionLost) as error:
                # The session's next event says how it goes on; what we were doing is read again before it is repeated.
                _logger.warning("store_interrupted reason=%s", error)
                self._due.update(_Reading)
            self._publish()

    def _wait_s(self) -> float | None:
        """Return how long the queue may be waited for: for ever, if nothing is due by itself."""
        if not self._is_connected:
            return None
        if self._registration.is_waiting:
            return 1.0
        if self._due:
            return RETRY_S
        return UNASKED_LOOK_S if self._active is not None else None

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
            case _Reading():
                self._due.add(item)
            case _Command():
                if item.future.set_running_or_notify_cancel():
                    self._commands.append(item)
            case _Stop():
                self._is_stopping.set()

    def _session_became(self, state: SessionState) -> None:
        self._is_connected = state is SessionState.CONNECTED
        if state is SessionState.CONNECTED:
            self._due.update(_Reading)
            if self._acls is not None:
                self._acls.forget()
            return
        _logger.warning("session_%s broker=%d", state.value, self._broker_id)
        if state is SessionState.LOST:
            self._store.renew()
            self._registration.lose()
            self._step_down(None)
        self._tell_session(state)

    def _work(self) -> None:
        if _Reading.REGISTRATION in self._due:
            if not self._register():
                return
            self._due.discard(_Reading.REGISTRATION)
        self._read_acls()
        try:
            self._read_controller()
            if self._active is not None:
                self._check_asked(self._active)
                self._serve(self._active)
        except Deposed as error:
            _logger.warning("deposed broker=%d reason=%s", self._broker_id, error)
            self._step_down(None)
            try:
                self._tree.resign()
            except NotAllowed as refusal:
                _logger.error("resignation_refused broker=%d reason=%s", self._broker_id, refusal)
            self._due.add(_Reading.CONTROLLER)
            self._queue.put(_Reading.CONTROLLER)
        except (NotConnected, SessionLost):
            raise
        except (ProtocolError, NotAllowed) as error:
            # An operator has to repair the node, or its rights: until then it is looked at now and then.
            _logger.error("store_unreadable reason=%s retry_s=%g", error, RETRY_S)
            self._due.add(_Reading.CONTROLLER)
            self._refuse_commands()
        except StoreFull as error:
            # What a command had written before is read again; clients repeat the command until there is room.
            _logger.error("store_full reason=%s retry_s=%g", error, RETRY_S)
            self._due.add(_Reading.CONTROLLER)
            self._refuse_commands(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        except StoreError as error:
            # The store is not what we read: somebody wrote past the fence.  Read again, then decide again.
            _logger.warning("store_changed_underneath reason=%s", error)
            self._due.add(_Reading.CONTROLLER)
            self._queue.put(_Reading.CONTROLLER)

    def _register(self) -> bool:
        """Make sure that this broker is registered; return False while that has to wait."""
        try:
            if not self._registration.register():
                return False
        except NodeExists:
            self._queue.put(_Reading.REGISTRATION)
            return False
        except (NotAllowed, StoreFull) as error:
            if not self._joined.done():
                raise  # a wrong identity at the start is a mistake in this broker's file
            _logger.error("registration_refused broker=%d reason=%s retry_s=%g", self._broker_id, error, RETRY_S)
            return False
        if not self._joined.done():
            self._joined.set_result(None)
        self._tell_session(SessionState.CONNECTED)
        return True

    def _read_acls(self) -> None:
        if _Reading.ACLS not in self._due:
            return
        if self._acls is not None:
            try:
                self._acls.read(self._watch[_Reading.ACLS])
            except (NotConnected, SessionLost):
                raise
            except StoreError as error:
                _logger.error("acls_unreadable reason=%s retry_s=%g", error, RETRY_S)
                self._acls.forget()
                return
        self._due.discard(_Reading.ACLS)

    def _read_controller(self) -> None:
        if _Reading.CONTROLLER not in self._due:
            return
        watch = self._watch[_Reading.CONTROLLER]
        node = self._tree.controller(watch)
        if node is None:
            self._step_down(None)
            if time.monotonic() < self._stands_back_until_s:
                return  # still due, and read again soon
            self._tree.claim_controller(self._broker_id, wall_ms())
            node = self._tree.controller(watch)
        if node is None:
            # Elected and gone between two reads: its watch has put this reading on the queue again.
            return
        if node.session_id == self._store.session_id:
            if self._active is not None and self._active.fence != node.fence:
                # Only an election moves the epoch, and ours has not ended: somebody wrote it by hand.  Begin anew.
                raise Deposed(f"the controller epoch moved from {self._active.fence} to {node.fence}")
            if self._active is None:
                if node.fence.epoch <= self._served_epoch:
                    # Left over from a resignation that failed; images of that epoch are out, so it cannot begin anew.
                    raise Deposed(f"controller epoch {node.fence.epoch} was given up")
                self._served_epoch = node.fence.epoch
                self._step_down(None)
                _logger.info("elected broker=%d controller_epoch=%d", self._broker_id, node.fence.epoch)
                readings = (_Reading.BROKERS, _Reading.TOPICS, _Reading.DELETIONS, _Reading.CONFIGS)
                watches = Watches(*(self._watch[reading] for reading in readings))
                self._active = ActiveController(self._tree, node.fence, watches)
            self._active.reload(self._broker_id, self.cluster_id, self._config)
            self._due -= {_Reading.BROKERS, _Reading.TOPICS, _Reading.DELETIONS, _Reading.CONFIGS}
        else:
            found = self._tree.registered(node.broker_id)
            if found is None:
                # Both nodes are of one session, so the claim is about to go too; its watch comes back here.
                return
            self._step_down(ControllerInfo(node.broker_id, node.fence.epoch, found[0].internal))
        self._due.discard(_Reading.CONTROLLER)

    def _check_asked(self, active: ActiveController) -> None:
        """Give up office if the other brokers do not reach this one, and let one of them claim it first.

        Raises:
            Deposed: it is given up.
        """
        session_s = self._store.session_timeout_ms / 1000
        limit_s = max(UNASKED_SESSIONS * session_s, UNASKED_MIN_S)
        now_s = time.monotonic()
        unasked_s = now_s - max(self._asked_s, active.elected_ms / 1000)
        if not active.is_ready or unasked_s <= limit_s or active.state.brokers.keys() <= {self._broker_id}:
            return
        self._stands_back_until_s = now_s + session_s
        raise Deposed(f"no other broker has asked the controller for {unasked_s:.0f} s")

    def _serve(self, active: ActiveController) -> None:
        for reading, react in (
            (_Reading.BROKERS, active.read_brokers),
            (_Reading.TOPICS, active.read_topics),
            (_Reading.DELETIONS, active.read_deletions),
            (_Reading.CONFIGS, active.read_configs),
        ):
            if reading in self._due:
                react()
                self._due.discard(reading)
        while self._commands:
            self._carry_out(self._commands[0], active)

    def _carry_out(self, command: _Command, active: ActiveController) -> None:
        """Carry out the first command; the answer waits until the image that shows it is published."""
        command.attempts += 1
        try:
            result = command.operation(active)
        except ApiError as error:
            self._answer_first(partial(command.future.set_exception, error))
        except (SessionLost, Deposed, StoreFull):
            raise
        except StoreError as error:
            # A lost connection counts too: it may be this command that the store breaks it for.
            if command.attempts == MAX_ATTEMPTS:
                refusal = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
                self._answer_first(partial(command.future.set_exception, refusal))
            raise  # and the store is read again, whether the command is repeated or not
        except PylogError:
            raise
        except Exception:  # a fault of ours: it costs the request, not the cluster one controller after the other
            _logger.exception("command_failed broker=%d", self._broker_id)
            message = f"broker {self._broker_id}, the controller, failed at this request; its log says why"
            refusal = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
            self._answer_first(partial(command.future.set_exception, refusal))
            # It may have stopped between a write and its confirmation: what stands in the store counts.
            active.reload(self._broker_id, self.cluster_id, self._config)
        else:
            self._answer_first(partial(command.future.set_result, result))

    def _answer_first(self, answer: Callable[[], None]) -> None:
        self._commands.pop(0)
        self._answers.append(answer)

    def _publish(self) -> None:
        """Show the new image, then say who is controller, then answer."""
        active = self._active
        if active is not None:
            image = active.take_image()
            if image is not None:
                self._on_image(image)
            if self._info is None and active.is_ready:
                self._tell(ControllerInfo(self._broker_id, active.fence.epoch, self._registration.broker.internal))
        else:
            self._refuse_commands()
        answers, self._answers = self._answers, []
        for answer in answers:
            answer()

    def _step_down(self, successor: ControllerInfo | None) -> None:
        self._active = None
        self._tell(successor)
        self._refuse_commands()

    def _tell_session(self, state: SessionState) -> None:
        if state is not self._session_told:
            self._session_told = state
            self._on_session(state)

    def _tell(self, info: ControllerInfo | None) -> None:
        if info != self._info:
            self._info = info
            _logger.info("controller broker=%s epoch=%s", *((info.broker_id, info.epoch) if info else ("none", "none")))
            self._on_controller(info)

    def _refuse_commands(self, error: ApiError | None = None) -> None:
        refusal = error or ApiError(ErrorCode.NOT_CONTROLLER, f"broker {self._broker_id} is not the controller")
        commands, self._commands = self._commands, []
        for command in commands:
            command.future.set_exception(refusal)

    def _watch_for(self, reading: _Reading) -> Watch:
        # One callable for each, so that the store can tell that it is armed already.
        return lambda event: self._queue.put(reading)

    def _leave(self, failure: PylogError | None) -> None:
        self._is_stopping.set()
        self._take(0)
        self._refuse_commands()
        if failure is not None:
            # Before the session ends: others may lead at once, while this broker is still handing over.
            self._tell_session(SessionState.LOST)
        try:
            self._store.close()
        except PylogError as error:
            failure = failure or error
        if not self._joined.done():
            self._joined.set_exception(failure or NotConnected(message="stopped before it was registered"))
        elif failure is not None:
            _logger.error("agent_ends broker=%d reason=%s", self._broker_id, failure)
            self._on_failure(failure)

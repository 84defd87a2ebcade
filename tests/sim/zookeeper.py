"""A ZooKeeper ensemble and its clients: sessions that expire by silence, watches, answers that get lost.

The tree and its rules are the embedded store's (`pylog.store.nodes`); here is what an ensemble adds: time, distance,
and a client that does not know what became of its last request.  Reads are never stale: followers that lag are not
simulated.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from pylog.cluster.znodes import CONTROLLER, CONTROLLER_EPOCH
from pylog.store.base import (
    Delete,
    EventKind,
    NotConnected,
    Operation,
    Result,
    SessionListener,
    SessionLost,
    SessionState,
    Stat,
    Store,
    Watch,
    WatchEvent,
)
from pylog.store.embedded import EmbeddedStore, EmbeddedTree
from tests.sim.network import Network
from tests.sim.threads import Turns
from tests.sim.world import CURRENT, Process, World

T = TypeVar("T")

HOST = "zookeeper"
TICK_S = 0.1
AMBUSH_S = 0.5


class Ensemble:
    """The servers.

    Attributes:
        is_up: a quorum stands.
        drop: chance that an answer is lost with its connection.
        is_in_ambush: the controller's next write is held up on its way, and its claim deleted meanwhile.
    """

    def __init__(self, world: World, turns: Turns, network: Network, directory: Path, session_timeout_s: float) -> None:
        self.world = world
        self.turns = turns
        self.network = network
        self.session_timeout_s = session_timeout_s
        self.tree = EmbeddedTree(directory)
        self.is_up = True
        self.drop = 0.0
        self.is_in_ambush = False
        self._stores: list[SimStore] = []
        self._operator = self.tree.begin_session()
        world.after(TICK_S, None, self._tick)

    def store(self) -> "SimStore":
        """Return a client for the running process."""
        process = CURRENT.get()
        assert process is not None
        store = SimStore(self, process)
        self._stores.append(store)
        return store

    def depose(self) -> None:
        """Delete the controller's claim, as operators do to have another one elected."""
        if CONTROLLER in self.tree.tree.nodes:
            self.world.note("depose")
            self.tree.commit([Delete(CONTROLLER)], self._operator)

    def reaches(self, host: str) -> bool:
        """Whether requests and answers of *host* pass."""
        cut = self.network.is_cut
        return self.is_up and not cut(host, HOST) and not cut(HOST, host)

    def _tick(self) -> None:
        self.world.after(TICK_S, None, self._tick)
        for store in list(self._stores):
            store.tick()
            if store.is_over:
                self._stores.remove(store)


class SimStore(Store):
    """One client with its session."""

    def __init__(self, ensemble: Ensemble, process: Process) -> None:
        self._ensemble = ensemble
        self._process = process
        self._world = ensemble.world
        self._inner = EmbeddedStore(ensemble.tree)
        self._wanted = False  # whether a session is wanted: from connect to close
        self._heard_s = 0.0  # when the ensemble heard from the client, which it ends the session by
        self._answered_s = 0.0  # when the client heard from the ensemble
        self._is_suspended = False
        self._is_expired = False
        self._has_session = False
        self._wrapped: dict[Watch, Watch] = {}
        self.is_over = False

    # -- the ensemble's side -----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Hear from the client, or expire its session."""
        now_s, timeout_s = self._world.now_s, self._ensemble.session_timeout_s
        process = self._process
        if not self._wanted and not self._has_session:
            self.is_over = not process.is_alive
            return
        is_heard = process.is_alive and not process.is_paused and self._wanted and self._ensemble.reaches(process.host)
        if not self._ensemble.is_up:
            # Without a quorum nothing expires, and the next leader gives every session its whole time again.
            self._heard_s = now_s
        if is_heard and self._has_session and not self._is_expired and not self._is_suspended:
            self._heard_s = self._answered_s = now_s
        if self._has_session and not self._is_expired and now_s - self._heard_s > timeout_s:
            self._expire()
        if is_heard and self._is_suspended:
            self._as_process(self._reconnect)
        elif not is_heard and process.is_alive and not process.is_paused and now_s - self._answered_s > timeout_s * 0.6:
            self._as_process(self.suspend)

    def _expire(self) -> None:
        assert self._inner.session_id, "a session that nobody has"
        self._world.note("expired", self._process.host, self._inner.session_id)
        self._is_expired = True
        self._ensemble.tree.end_session(self._inner.session_id)
        if not self._process.is_alive:
            self._has_session = False
            self.is_over = True
        elif not self._is_suspended:
            # A paused client finds its connection gone when it goes on.
            self._as_process(self.suspend)

    def _as_process(self, step: Callable[[], None]) -> None:
        self._world.after(0.0, self._process, lambda: _as(self._process, step))

    # -- the client's side -------------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Notice that the connection is gone."""
        if self._wanted and self._has_session and not self._is_suspended:
            self._is_suspended = True
            self._world.note("suspended", self._process.host)
            _as(None, self._inner.suspend)

    def _reconnect(self) -> None:
        if not self._wanted or not self._is_suspended:
            return
        self._is_suspended = False
        if self._is_expired:
            self._world.note("session_lost", self._process.host)
            _as(None, self._inner.expire)
            self._is_expired = False
            _as(None, self._inner.connect)
        else:
            self._inner.resume()
        self._heard_s = self._answered_s = self._world.now_s

    def connect(self, timeout_s: float = 15.0) -> None:
        """Open the session."""
        self._wanted = True
        deadline_s = self._world.now_s + timeout_s
        while not self._ensemble.reaches(self._process.host):
            if self._world.now_s >= deadline_s:
                raise NotConnected(message="no session in time")
            self._sleep(0.2)
        self._sleep(self._delay_s())
        _as(None, self._inner.connect)
        self._has_session, self._is_expired, self._is_suspended = True, False, False
        self._heard_s = self._answered_s = self._world.now_s

    def close(self) -> None:
        """End the session; without a connection it ends by its time-out."""
        self._wanted = False
        if self._is_expired:
            self._has_session = False
        if self._ensemble.reaches(self._process.host):
            self._has_session, self.is_over = False, True
            _as(None, self._inner.close)

    def renew(self) -> None:
        """Accept one loss."""
        self._inner.renew()

    @property
    def session_id(self) -> int:
        """The session's number."""
        return self._inner.session_id

    @property
    def session_timeout_ms(self) -> int:
        """As configured."""
        return int(self._ensemble.session_timeout_s * 1000)

    def listen(self, listener: SessionListener) -> None:
        """Tell *listener* every later change."""

        def told(state: SessionState) -> None:
            listener(state)

        self._inner.listen(told)

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return self._ask(lambda: self._inner.get(path, self._wrap(watch)))

    def get_many(self, paths: Iterable[str]) -> list[tuple[bytes, Stat] | None]:
        wanted = list(paths)
        return self._ask(lambda: self._inner.get_many(wanted)) if wanted else []

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return self._ask(lambda: self._inner.exists(path, self._wrap(watch)))

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self._ask(lambda: self._inner.children(path, self._wrap(watch)))

    def children_many(self, paths: Iterable[str]) -> list[list[str]]:
        wanted = list(paths)
        return self._ask(lambda: self._inner.children_many(wanted)) if wanted else []

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if not operations:
            return []
        self._world.note("multi", self._process.host, *(f"{type(one).__name__}:{one.path}" for one in operations))
        if self._ensemble.is_in_ambush and operations[0].path == CONTROLLER_EPOCH:
            self._ensemble.is_in_ambush = False
            _as(None, self._ensemble.depose)
            self._sleep(self._world.random.uniform(0, AMBUSH_S))
        return self._ask(lambda: self._inner.multi(operations))

    def _ask(self, verb: Callable[[], T]) -> T:
        """Bring a request there and its answer back, through whatever lies between."""
        session_id = self._inner.session_id
        self._inner._check()
        self._sleep(self._delay_s())
        if not self._ensemble.reaches(self._process.host):
            self._lose_answer()
        if self._is_expired:
            self.suspend()
            raise SessionLost(message="the session expired")
        self._inner._check()
        if session_id != self._inner.session_id:
            raise SessionLost(message="the session is another one")
        try:
            result: T | None = _as(None, verb)
            error: Exception | None = None
        except (NotConnected, SessionLost):
            raise
        except Exception as refusal:
            result, error = None, refusal
        self._sleep(self._delay_s())
        if not self._ensemble.reaches(self._process.host) or self._world.random.random() < self._ensemble.drop:
            self._lose_answer()
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    def _lose_answer(self) -> None:
        if self._ensemble.reaches(self._process.host):
            self.suspend()
        else:
            self._sleep(self._world.random.uniform(0, self._ensemble.session_timeout_s))
            self.suspend()
        raise NotConnected(message="no answer")

    def _wrap(self, watch: Watch | None) -> Watch | None:
        """Return what tells *watch* in its own process; always the same for one watch, so that it is armed once."""
        if watch is None:
            return None
        wrapped = self._wrapped.get(watch)
        if wrapped is None:

            def wrapped(event: WatchEvent, watch: Watch = watch) -> None:
                delay_s = 0.0 if event.kind is EventKind.DISCONNECTED else self._delay_s()
                self._world.after(delay_s, self._process, lambda: _as(self._process, lambda: watch(event)))

            self._wrapped[watch] = wrapped
        return wrapped

    def _delay_s(self) -> float:
        low, high = self._ensemble.network.weather.delay_s
        return self._world.random.uniform(low, high)

    def _sleep(self, delay_s: float) -> None:
        thread = self._ensemble.turns.running
        assert thread is not None, "the loop must not ask the store"
        thread.park(delay_s)


def _as(process: Process | None, step: Callable[[], T]) -> T:
    """Do a step as another process; the ensemble's own disk and files are no broker's."""
    token = CURRENT.set(process)
    try:
        return step()
    finally:
        CURRENT.reset(token)

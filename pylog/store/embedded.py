"""A store in one process: the tree in memory, every multi synced to a journal before anyone sees it."""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from pylog.errors import PylogError, StorageError
from pylog.store.base import (
    Delete,
    EventKind,
    NoNode,
    NotConnected,
    Operation,
    Result,
    SessionListener,
    SessionLost,
    SessionState,
    Stat,
    Store,
    StoreFull,
    Watch,
    WatchEvent,
    check_path,
)
from pylog.store.journal import Journal
from pylog.store.nodes import Node, NodeTree

SESSION_TIMEOUT_MS = 6_000
"""What an embedded session answers when asked; it ends with `close` or with the process, never by silence."""

_Fired = tuple[Watch, WatchEvent]


class EmbeddedTree:
    """The nodes that all embedded sessions of one process share, and their watches.

    Invariant: memory never runs ahead of the journal; a multi that could not be synced changed nothing.
    """

    def __init__(self, directory: Path) -> None:
        self.lock = threading.RLock()
        self._journal = Journal(directory)
        self._last_session_id = 0
        self._live_sessions: set[int] = set()
        self._data_watches = _Watches()
        self._child_watches = _Watches()
        try:
            self.tree = NodeTree(*self._journal.replay())
            # Whoever made an ephemeral node did so in a process that is gone.
            for owner in {node.ephemeral_owner for node in self.tree.nodes.values()} - {0}:
                self.end_session(owner)
        except StoreFull as error:
            self._journal.close()
            raise StorageError(f"no room to start: {error}; free space on this disk, then start again") from error
        except PylogError:
            self._journal.close()
            raise

    def session(self) -> "EmbeddedStore":
        """Return a new session, not yet connected."""
        return EmbeddedStore(self)

    def close(self) -> None:
        """Give the journal back; sessions still open can no longer write.  May be called twice."""
        with self.lock:
            self._journal.close()

    def begin_session(self) -> int:
        """Return a session id that no session of this directory had while it left a trace."""
        with self.lock:
            self._last_session_id = max(self._last_session_id + 1, (self.tree.zxid + 1) << 16)
            self._live_sessions.add(self._last_session_id)
            return self._last_session_id

    def end_session(self, session_id: int) -> None:
        """Remove the session's ephemeral nodes and set off its watches."""
        self.disconnect(session_id)
        fired: list[_Fired] = []
        with self.lock:
            self._live_sessions.discard(session_id)
            owned = self.tree.owned_by(session_id)
            if owned:
                fired = self._commit([Delete(path) for path in owned], session_id)[1]
        _fire(fired)

    def disconnect(self, session_id: int) -> None:
        """Set off every watch of the session: what happens from here on it would not hear."""
        with self.lock:
            fired = self._data_watches.drop(session_id) + self._child_watches.drop(session_id)
        _fire(fired)

    def commit(self, operations: Sequence[Operation], session_id: int) -> list[Result]:
        """Plan, sync, adopt, then tell the watches; raise with nothing changed."""
        with self.lock:
            # Asked under the lock: a session that ends meanwhile must leave no ephemeral node behind.
            if session_id not in self._live_sessions:
                raise SessionLost(message="the session is over")
            results, fired = self._commit(operations, session_id)
        _fire(fired)
        return results

    def arm(self, path: str, session_id: int, watch: Watch | None, *, children: bool = False) -> None:
        """Have *watch* called once, at the next event of *path*."""
        if watch is not None:
            (self._child_watches if children else self._data_watches).add(path, session_id, watch)

    def _commit(self, operations: Sequence[Operation], session_id: int) -> tuple[list[Result], list[_Fired]]:
        plan = self.tree.plan(operations, session_id)
        if not plan.changes:
            return plan.results, []
        self._journal.append(plan.zxid, plan.changes)
        self.tree.adopt(plan)
        if self._journal.wants_compaction():
            self._journal.compact(self.tree.zxid, self.tree.nodes)
        fired: list[_Fired] = []
        for event in plan.events:
            if event.kind is not EventKind.CHILDREN:
                fired += self._data_watches.take(event)
            if event.kind in {EventKind.CHILDREN, EventKind.DELETED}:
                fired += self._child_watches.take(event)
        return plan.results, fired


class EmbeddedStore(Store):
    """One session with an `EmbeddedTree`.

    `suspend`, `resume` and `expire` do to it what a network does to a ZooKeeper session, for tests and the simulator.
    """

    def __init__(self, tree: EmbeddedTree, *, owns_tree: bool = False) -> None:
        self._tree = tree
        self._owns_tree = owns_tree
        self._listeners: list[SessionListener] = []
        self._state = SessionState.LOST
        self._session_id = 0
        self._unaccepted_losses = 0

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the tree of *directory* for one session only; closing the session closes the tree."""
        return cls(EmbeddedTree(directory), owns_tree=True)

    @property
    def tree(self) -> EmbeddedTree:
        """The tree, from which more sessions can be made."""
        return self._tree

    @property
    def session_id(self) -> int:
        """The session's number; 0 without a session."""
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """A constant: embedded sessions end with `close` or the process."""
        return SESSION_TIMEOUT_MS

    def connect(self, timeout_s: float = 15.0) -> None:
        """Open the session; there is nothing to wait for."""
        self._session_id = self._tree.begin_session()
        self._become(SessionState.CONNECTED)

    def renew(self) -> None:
        """Accept one loss."""
        self._unaccepted_losses -= 1
        assert self._unaccepted_losses >= 0, "renewed more often than lost"

    def close(self) -> None:
        """End the session and drop its ephemeral nodes."""
        self._state = SessionState.LOST
        session_id, self._session_id = self._session_id, 0
        self._listeners.clear()
        try:
            if session_id:
                # Without room for it the next start removes what this process made.
                with contextlib.suppress(StoreFull):
                    self._tree.end_session(session_id)
        finally:
            if self._owns_tree:
                self._tree.close()

    def listen(self, listener: SessionListener) -> None:
        """Tell *listener* every later change."""
        self._listeners.append(listener)

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Return data and stat."""
        with self._tree.lock:
            node = self._read(path)
            if node is None:
                raise NoNode(path)
            self._tree.arm(path, self._session_id, watch)
            return node.data, node.stat

    def get_many(self, paths: Iterable[str]) -> list[tuple[bytes, Stat] | None]:
        """Return data and stat of each, None where missing."""
        with self._tree.lock:
            return [None if (node := self._read(path)) is None else (node.data, node.stat) for path in paths]

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the stat or None."""
        with self._tree.lock:
            node = self._read(path)
            self._tree.arm(path, self._session_id, watch)
            return None if node is None else node.stat

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names below *path*, sorted."""
        with self._tree.lock:
            if self._read(path) is None:
                raise NoNode(path)
            self._tree.arm(path, self._session_id, watch, children=True)
            return sorted(self._tree.tree.names.get(path, ()))

    def children_many(self, paths: Iterable[str]) -> list[list[str]]:
        """Return the names below each path, [] where missing."""
        with self._tree.lock:
            return [sorted(self._tree.tree.names.get(path, ())) if self._read(path) else [] for path in paths]

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Do all or nothing; on return it is synced."""
        # Taken before the check: a session that ends after it is refused by the tree.
        session_id = self._session_id
        self._check()
        return self._tree.commit(operations, session_id)

    def suspend(self) -> None:
        """Lose the connection but not the session: every verb fails and the watches are gone."""
        self._become(SessionState.SUSPENDED)
        self._tree.disconnect(self._session_id)

    def resume(self) -> None:
        """Come back within the session."""
        self._become(SessionState.CONNECTED)

    def expire(self) -> None:
        """Lose the session; `connect` starts a new one, as ZooKeeper's client does by itself."""
        session_id, self._session_id = self._session_id, 0
        self._state = SessionState.LOST
        self._unaccepted_losses += 1
        self._tree.end_session(session_id)
        self._become(SessionState.LOST)

    def _read(self, path: str) -> Node | None:
        self._check()
        return self._tree.tree.nodes.get(check_path(path))

    def _check(self) -> None:
        if self._state is SessionState.SUSPENDED:
            raise NotConnected(message="the session is suspended")
        if self._state is SessionState.LOST or self._unaccepted_losses:
            raise SessionLost(message="the session is over")

    def _become(self, state: SessionState) -> None:
        self._state = state
        for listener in list(self._listeners):
            listener(state)


class _Watches:
    """Watches of one kind by path, each called once."""

    def __init__(self) -> None:
        self._armed: defaultdict[str, list[tuple[int, Watch]]] = defaultdict(list)

    def add(self, path: str, session_id: int, watch: Watch) -> None:
        if (session_id, watch) not in self._armed[path]:
            self._armed[path].append((session_id, watch))

    def take(self, event: WatchEvent) -> list[_Fired]:
        return [(watch, event) for _, watch in self._armed.pop(event.path, [])]

    def drop(self, session_id: int) -> list[_Fired]:
        fired: list[_Fired] = []
        for path, armed in list(self._armed.items()):
            gone = WatchEvent(EventKind.DISCONNECTED, path)
            fired += [(watch, gone) for owner, watch in armed if owner == session_id]
            self._armed[path] = [one for one in armed if one[0] != session_id]
            if not self._armed[path]:
                del self._armed[path]
        return fired


def _fire(fired: list[_Fired]) -> None:
    for watch, event in fired:
        watch(event)

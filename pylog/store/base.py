"""What pylog asks of the place where cluster state rests, in as few verbs as kazoo has.

A store is a tree of nodes; a path is absolute and names one node; a node has bytes, a version and children.  Nodes
marked ephemeral vanish with the session that made them.  Both implementations pass the tests in ``tests/unit/store``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from pylog.errors import PylogError

ANY_VERSION = -1
"""Expected version that fits every version."""


class SessionState(Enum):
    """What became of the session; a listener hears every change."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is gone; the session, its ephemeral nodes and our claims may still stand."""
    LOST = "lost"
    """The session is over and its ephemeral nodes are gone.  A new one starts by itself and says CONNECTED; its verbs
    fail until `Store.renew` has been called once for each LOST."""


class EventKind(Enum):
    """What a watch saw."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"
    DISCONNECTED = "disconnected"
    """The watch is gone with its connection: read again once connected."""


class WatchEvent(NamedTuple):
    """Why a watch fired; read the node again to learn what it is now."""

    kind: EventKind
    path: str


class Stat(NamedTuple):
    """A node's bookkeeping.

    Attributes:
        version: number of times the data was set since creation.
        czxid: transaction that created the node; unique and growing over the store's life.
        mzxid: transaction that last set its data.
        ephemeral_owner: session that the node dies with; 0 for a persistent node.
        created_ms: when the node was created, by the store's wall clock; 0 if the store does not note it.
    """

    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int
    created_ms: int = 0


Watch: TypeAlias = Callable[[WatchEvent], None]
"""Called once, from the store's thread or that of another writer: hand the event on and return."""

SessionListener: TypeAlias = Callable[[SessionState], None]
"""Called from the store's thread: hand the state on and return."""


@dataclass(frozen=True, slots=True)
class Check:
    """Part of a multi: *path* exists with *version*."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Part of a multi: make *path*; with ``sequence`` ten digits that grow are put after its name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Part of a multi: replace the data of *path* if it has *version*."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Part of a multi: remove *path*, which has no children, if it has *version*."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Check | Create | Set | Delete
Result: TypeAlias = str | Stat | None
"""Of a Create its path, of a Set the new stat, otherwise None."""


class StoreError(PylogError):
    """The store refused or could not tell.

    Attributes:
        path: the node in question, or "".
        operation_index: which operation of a multi failed; nothing of that multi was done.
    """

    fault = 103

    def __init__(self, path: str = "", operation_index: int | None = None, message: str = "") -> None:
        super().__init__(f"{type(self).__name__}: {message or path}")
        self.path = path
        self.operation_index = operation_index


class NodeExists(StoreError):
    """The node to create is already there."""


class NoNode(StoreError):
    """The node, or the parent of the node to create, is not there."""


class BadVersion(StoreError):
    """The node has another version than expected: read it again and decide again."""


class NotEmpty(StoreError):
    """The node to delete still has children."""


class NotAllowed(StoreError):
    """The store refuses this to our identity: an operator has to give a right back, or to correct the identity."""

    fault = 106


class StoreFull(StoreError):
    """The store has no room: nothing was written, and the same may be asked again."""


class TooLarge(StoreError):
    """A node would have more data than a store takes: nothing was written, and asked again it is refused again."""


class NoChildrenForEphemerals(StoreError):
    """The parent of the node to create is ephemeral."""


class NotConnected(StoreError):
    """No answer came: what was asked may have happened or not; after CONNECTED read before deciding again."""


class SessionLost(StoreError):
    """The session is over: whoever acted under it has lost its claims."""


class Store(ABC):
    """One session with a tree of nodes; every verb blocks until the answer is there.

    Raises:
        NotConnected: of every verb, while suspended or when the connection fails on the way.
        SessionLost: of every verb, when the session ended.
    """

    @abstractmethod
    def connect(self, timeout_s: float = 15.0) -> None:
        """Open the session; raise NotConnected if there is none within *timeout_s*."""

    @abstractmethod
    def close(self) -> None:
        """End the session now, so that its ephemeral nodes vanish at once.  May be called twice."""

    @abstractmethod
    def renew(self) -> None:
        """Accept that a session was lost; call it once for each LOST that a listener heard.

        Until then every verb raises SessionLost, also under the new session: whoever still acts on what the old one
        had claimed is stopped in the middle.
        """

    @property
    @abstractmethod
    def session_id(self) -> int:
        """The session's number as `Stat.ephemeral_owner` shows it; 0 without a session."""

    @property
    @abstractmethod
    def session_timeout_ms(self) -> int:
        """How long a silent session's ephemeral nodes stay, as agreed with the server."""

    @abstractmethod
    def listen(self, listener: SessionListener) -> None:
        """Call *listener* at every later change of the session's state."""

    @abstractmethod
    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Return data and stat; *watch* fires at the next set or delete.  Raises NoNode (and leaves no watch)."""

    @abstractmethod
    def get_many(self, paths: Iterable[str]) -> list[tuple[bytes, Stat] | None]:
        """Return data and stat of each path, None where there is no node, in about one round trip."""

    @abstractmethod
    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the stat or None; *watch* fires at the next create, set or delete."""

    @abstractmethod
    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of the children, sorted; *watch* fires when one comes or goes, or *path* goes."""

    @abstractmethod
    def children_many(self, paths: Iterable[str]) -> list[list[str]]:
        """Return the children of each path, sorted, [] where there is no node, in about one round trip."""

    @abstractmethod
    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Do all operations in order, or none; a later one sees the effects of an earlier one.

        Raises:
            NodeExists, NoNode, BadVersion, NotEmpty, NoChildrenForEphemerals: with `operation_index`; nothing was done.
        """

    def multis(self, groups: Sequence[Sequence[Operation]]) -> list[list[Result]]:
        """Do several multis in this order, each all or nothing, without waiting for one before the next is sent.

        Raises:
            As `multi`, for the first that failed; those after it were tried all the same.
        """
        results: list[list[Result]] = []
        failure: StoreError | None = None
        for group in groups:
            try:
                results.append(self.multi(group))
            except StoreError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return results

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Make a node and return its path; with *make_parents* also the persistent nodes above it that are missing."""
        if make_parents:
            self.ensure(parent_of(path))
        [created] = self.multi([Create(path, data, ephemeral, sequence)])
        assert isinstance(created, str), created
        return created

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace the data and return the new stat.  Raises NoNode, BadVersion."""
        [stat] = self.multi([Set(path, data, version)])
        assert isinstance(stat, Stat), stat
        return stat

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a node without children.  Raises NoNode, BadVersion, NotEmpty."""
        self.multi([Delete(path, version)])

    def ensure(self, *paths: str) -> None:
        """Make those persistent nodes and their ancestors that are missing; others may be doing the same."""
        wanted = sorted({node for path in paths for node in with_ancestors(path)})
        # Every refusal means that somebody else made one of them first, so each round has fewer left to make.
        for _ in range(len(wanted) + 1):
            missing = [path for path, found in zip(wanted, self.get_many(wanted), strict=True) if found is None]
            if not missing:
                return
            try:
                self.multi([Create(path) for path in missing])
            except NodeExists:
                continue
            return
        raise StoreError(message=f"nodes keep vanishing while {', '.join(paths)} are made")


def check_path(path: str) -> str:
    """Return *path* if it is absolute and in its one normal form, else raise ValueError."""
    parts = path.split("/")[1:]
    if path != "/" and (not path.startswith("/") or "\0" in path or any(part in {"", ".", ".."} for part in parts)):
        raise ValueError(f"store path {path!r} is not absolute and normal")
    return path


def parent_of(path: str) -> str:
    """Return the path of the node above; the root is its own parent."""
    return path.rpartition("/")[0] or "/"


def with_ancestors(path: str) -> list[str]:
    """Return *path* and every node above it except the root, highest first."""
    parts = check_path(path).split("/")[1:]
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts)) if parts[0]]

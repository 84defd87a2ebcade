"""The rules of a store's tree, in memory: what a multi does, what it refuses, which watches it sets off.

Nothing here waits, writes or knows the time, so that the embedded store and a simulated one share it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pylog.store.base import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    Set,
    Stat,
    TooLarge,
    WatchEvent,
    check_path,
    parent_of,
)

MAX_DATA_BYTES = 1 << 20
"""Data of one node, as a ZooKeeper server limits a request (its jute.maxbuffer)."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node at rest."""

    data: bytes
    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int = 0
    next_sequence: int = 0

    @property
    def stat(self) -> Stat:
        """What a reader sees beside the data."""
        return Stat(self.version, self.czxid, self.mzxid, self.ephemeral_owner)


@dataclass(slots=True)
class Plan:
    """What a multi would do: nodes as they become (None = removed), answers, and watches to set off."""

    zxid: int
    changes: dict[str, Node | None] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    events: list[WatchEvent] = field(default_factory=list)


class NodeTree:
    """All nodes by path, and the names below each.

    Invariant: every node but the root has its parent; `zxid` is the last transaction adopted.
    """

    def __init__(self, nodes: Mapping[str, Node], zxid: int) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0)} | dict(nodes)
        self.zxid = zxid
        self.names: defaultdict[str, set[str]] = defaultdict(set)
        for path in self.nodes:
            if path != "/":
                self.names[parent_of(path)].add(path.rpartition("/")[2])

    def plan(self, operations: Sequence[Operation], session_id: int) -> Plan:
        """Return what *operations* would do in this order, without doing it; raise the first refusal."""
        draft = _Draft(self, session_id)
        for index, operation in enumerate(operations):
            draft.apply(index, operation)
        return draft.plan

    def adopt(self, plan: Plan) -> None:
        """Make *plan*, which was the last one planned, the state."""
        assert plan.zxid == self.zxid + 1, (plan.zxid, self.zxid)
        self.zxid = plan.zxid
        for path, node in plan.changes.items():
            parent, _, name = path.rpartition("/")
            if node is not None:
                self.nodes[path] = node
                if path != "/":
                    self.names[parent or "/"].add(name)
            elif path in self.nodes:
                del self.nodes[path]
                self.names.pop(path, None)
                self.names[parent or "/"].discard(name)

    def owned_by(self, session_id: int) -> list[str]:
        """Return the paths of the session's ephemeral nodes."""
        return sorted(path for path, node in self.nodes.items() if node.ephemeral_owner == session_id)


class _Draft:
    def __init__(self, tree: NodeTree, session_id: int) -> None:
        self._tree = tree
        self._session_id = session_id
        self.plan = Plan(tree.zxid + 1)

    def apply(self, index: int, operation: Operation) -> None:
        check_path(operation.path)
        match operation:
            case Check(path, version):
                self._existing(path, version, index)
                self.plan.results.append(None)
            case Create():
                self.plan.results.append(self._create(operation, index))
            case Set(path, data, version):
                node = self._existing(path, version, index)
                _check_size(data, path, index)
                changed = replace(node, data=data, version=node.version + 1, mzxid=self.plan.zxid)
                self.plan.changes[path] = changed
                self.plan.results.append(changed.stat)
                self._say(EventKind.CHANGED, path)
            case Delete(path, version):
                self._delete(path, version, index)
                self.plan.results.append(None)

    def _create(self, operation: Create, index: int) -> str:
        _check_size(operation.data, operation.path, index)
        path, parent_path = operation.path, parent_of(operation.path)
        parent = self._find(parent_path)
        if parent is None:
            raise NoNode(path, index)
        if parent.ephemeral_owner:
            raise NoChildrenForEphemerals(path, index)
        if operation.sequence:
            path = f"{path}{parent.next_sequence:010d}"
            self.plan.changes[parent_path] = replace(parent, next_sequence=parent.next_sequence + 1)
        if self._find(path) is not None:
            raise NodeExists(path, index)
        owner = self._session_id if operation.ephemeral else 0
        self.plan.changes[path] = Node(operation.data, 0, self.plan.zxid, self.plan.zxid, owner)
        self._say(EventKind.CREATED, path)
        self._say(EventKind.CHILDREN, parent_path)
        return path

    def _delete(self, path: str, version: int, index: int) -> None:
        self._existing(path, version, index)
        prefix = path.rstrip("/") + "/"
        if (
            path == "/"
            or any(self._find(prefix + name) for name in self._tree.names.get(path, ()))
            or any(node is not None and parent_of(other) == path for other, node in self.plan.changes.items())
        ):
            raise NotEmpty(path, index)
        self.plan.changes[path] = None
        self._say(EventKind.DELETED, path)
        self._say(EventKind.CHILDREN, parent_of(path))

    def _find(self, path: str) -> Node | None:
        changes = self.plan.changes
        return changes[path] if path in changes else self._tree.nodes.get(path)

    def _existing(self, path: str, version: int, index: int) -> Node:
        node = self._find(path)
        if node is None:
            raise NoNode(path, index)
        if version not in {ANY_VERSION, node.version}:
            raise BadVersion(path, index, f"{path} has version {node.version}, not {version}")
        return node

    def _say(self, kind: EventKind, path: str) -> None:
        self.plan.events.append(WatchEvent(kind, path))


def _check_size(data: bytes, path: str, index: int) -> None:
    if len(data) > MAX_DATA_BYTES:
        raise TooLarge(path, index, f"{len(data)} bytes for one node; at most {MAX_DATA_BYTES}")

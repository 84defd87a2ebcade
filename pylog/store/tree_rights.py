"""Gives the nodes of a tree that is there the rights that they should have, or opens them to everybody again.

Only nodes that differ are written, so an interrupted run is finished by the next one, and a repetition changes nothing.
Nodes that are made meanwhile get their rights from whoever makes them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from pylog.model import OnProgress, nobody
from pylog.store.node_rights import OPEN, OWN_ROOTS, NodeRights, Rights

MAX_BATCH = 500
"""Nodes that are compared and written before the next ones: what is remembered of a large tree is its paths alone."""

SYSTEM_ROOT = "zookeeper"
"""What ZooKeeper itself keeps below its root; its rights are ZooKeeper's own."""


class RightsStore(Protocol):
    """What this needs of `pylog.store.zookeeper.ZooKeeperStore`."""

    def children_many(self, paths: list[str]) -> list[list[str]]:
        """Return the names below each path, [] where missing."""

    def rights_many(self, paths: list[str]) -> list[Rights | None]:
        """Return what each node's ACL says, None where there is no node."""

    def set_rights(self, wanted: dict[str, Rights]) -> None:
        """Replace the ACL of each path; a node that is gone is passed over."""


@dataclass(slots=True)
class Outcome:
    """What was done.

    Attributes:
        seen: nodes that were looked at.
        changed: paths whose rights were changed, in that order.
        foreign: nodes right below the root that belong to others; they were left alone, and so was the root.
    """

    seen: int = 0
    changed: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


def secure_tree(
    store: RightsStore,
    rights: NodeRights,
    on_change: Callable[[str], None] = lambda path: None,
    on_progress: OnProgress = nobody,
) -> Outcome:
    """Give each node the rights of its path.

    Args:
        store: connected with an identity that has the right ADMIN on each node; on an open tree everybody has.
        rights: who may do what.
        on_change: told of each path as soon as its rights are changed.
        on_progress: told how many nodes were looked at.

    Raises:
        NotAllowed: names the node whose rights we may not see or change; what was changed before stays.
    """
    return _apply(store, rights.of, on_change, on_progress)


def is_closed(store: RightsStore, rights: NodeRights) -> bool:
    """Return whether the root has its rights, which is the last node that `secure_tree` gives them to."""
    return store.rights_many(["/"]) == [rights.of("/")]


def open_tree(
    store: RightsStore, on_change: Callable[[str], None] = lambda path: None, on_progress: OnProgress = nobody
) -> Outcome:
    """Let everybody do everything with each node again; see `secure_tree`."""
    return _apply(store, lambda path: OPEN, on_change, on_progress)


def _apply(
    store: RightsStore, wanted: Callable[[str], Rights], on_change: Callable[[str], None], on_progress: OnProgress
) -> Outcome:
    outcome = Outcome()
    # Nodes before the node above them: a tree whose root is closed has been closed as a whole.
    paths = [*reversed(list(_nodes(store, outcome)))]
    if not outcome.foreign:
        paths.append("/")
    for first in range(0, len(paths), MAX_BATCH):
        part = paths[first : first + MAX_BATCH]
        found = dict(zip(part, store.rights_many(part), strict=True))
        outcome.seen += sum(now is not None for now in found.values())
        differing = {path: wanted(path) for path, now in found.items() if now is not None and now != wanted(path)}
        store.set_rights(differing)
        for path in differing:
            outcome.changed.append(path)
            on_change(path)
        on_progress(first + len(part), len(paths))
    return outcome


def _nodes(store: RightsStore, outcome: Outcome) -> Iterator[str]:
    """Yield the cluster's nodes, each after the one above it; note in *outcome* what else is below the root."""
    [names] = store.children_many(["/"])
    level = [f"/{name}" for name in names if name != SYSTEM_ROOT]
    outcome.foreign = [path for path in level if path not in OWN_ROOTS]
    level = [path for path in level if path in OWN_ROOTS]
    while level:
        yield from level
        below = store.children_many(level)
        level = [f"{path}/{name}" for path, names in zip(level, below, strict=True) for name in names]

"""A cluster's metadata as one file, and back into a store.

file => {"version": 1, "cluster_id": text, "made_ms": int, "release": text, "sha256": text, "nodes": {path: data}}

``data`` is the node's text; bytes that are none are kept as lone surrogates.  ``sha256`` is of the nodes as JSON with
sorted keys: a file that was cut or edited is refused.  Registrations, which die with their sessions, are no part of it.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pylog.cluster import znodes
from pylog.errors import PylogError
from pylog.model import OnProgress, nobody
from pylog.store.base import Create, Delete, NodeExists, NoNode, Operation, Set, Stat, Store
from pylog.store.tree import cut

FORMAT = 1

MAX_PASSES = 20
"""Readings of the whole store before a backup gives up: a cluster whose every second brings changes has other needs."""

_ROOTS = (
    "/cluster", "/config", "/consumers", "/kafka-acl", "/kafka-acl-extended", "/pylog", znodes.TOPICS,
    znodes.DELETE_TOPICS, znodes.CONTROLLER_EPOCH, znodes.PRODUCER_ID_BLOCK,
)  # fmt: skip
"""What is backed up, with all below it."""

Nodes = Mapping[str, bytes]


class BackupError(PylogError):
    """There is no backup, it is not usable, or the store is not in a state for it."""

    fault = 213


def encode_backup(nodes: Nodes, now_ms: int, release: str) -> str:
    """Return the file's content.

    Raises:
        BackupError: the store names no cluster.
    """
    if znodes.CLUSTER_ID not in nodes:
        raise BackupError(f"the store names no cluster: {znodes.CLUSTER_ID} is not there")
    texts = {path: data.decode(errors="surrogateescape") for path, data in sorted(nodes.items())}
    return json.dumps(
        {
            "version": FORMAT,
            "cluster_id": znodes.decode_cluster_id(nodes[znodes.CLUSTER_ID]),
            "made_ms": now_ms,
            "release": release,
            "sha256": _digest(texts),
            "nodes": texts,
        },
        indent=1,
    )


def decode_backup(text: str | bytes, name: str) -> dict[str, bytes]:
    """Return the nodes that a file holds.

    Args:
        text: its content.
        name: where it came from, for messages.

    Raises:
        BackupError: it is no backup, or not whole.
    """
    try:
        document: dict[str, Any] = json.loads(text)
        if document["version"] != FORMAT:
            raise BackupError(f"{name}: version {document['version']!r}, wanted {FORMAT}")
        texts: dict[str, str] = document["nodes"]
        if document["sha256"] != _digest(texts):
            raise BackupError(f"{name}: its content does not have the SHA-256 that it names; take another backup")
        nodes = {path: data.encode(errors="surrogateescape") for path, data in texts.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupError(f"{name}: {error!r}; wanted what `pylog cluster backup` writes") from error
    return nodes


def _digest(texts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()


def read_nodes(store: Store, on_progress: OnProgress = nobody) -> dict[str, bytes]:
    """Return all that a backup holds, as it stood at one moment.

    Everything is read until two readings in a row are the same: between them nothing had changed.  What came and went
    within that time is in neither.

    Args:
        store: connected.
        on_progress: told how many nodes this reading and those before have read, and how many are known of by now.

    Raises:
        BackupError: the store changes all the time.
    """
    before: dict[str, tuple[bytes, Stat]] = {}
    read = 0

    def on_part(done: int, total: int) -> None:
        on_progress(read + done, read + total)

    for _ in range(MAX_PASSES):
        now = _read_once(store, on_part)
        read += len(now)
        if now == before and now:
            return {path: data for path, (data, _) in now.items()}
        before = now
    raise BackupError(f"the store changed between each two of {MAX_PASSES} readings: wanted a quiet moment")


def _read_once(store: Store, on_progress: OnProgress = nobody) -> dict[str, tuple[bytes, Stat]]:
    found: dict[str, tuple[bytes, Stat]] = {}
    level = list(_ROOTS)
    while level:
        nodes = [
            (path, node)
            for path, node in zip(level, store.get_many(level), strict=True)
            if node is not None and not node[1].ephemeral_owner and path != znodes.CONFIG_CHANGES
        ]
        found |= dict(nodes)
        paths = [path for path, _ in nodes]
        below = store.children_many(paths)
        level = [f"{path}/{name}" for path, names in zip(paths, below, strict=True) for name in names]
        on_progress(len(found), len(found) + len(level))
    return found


def replace_nodes(store: Store, wanted: Nodes, on_progress: OnProgress = nobody) -> None:
    """Make the store hold *wanted*; interrupted, it names no cluster, no broker starts over it, and a rerun is due.

    Consumers' own nodes are only added: a later commit stands there, and is right.

    Args:
        store: connected.
        wanted: what a backup holds.
        on_progress: told how many nodes were changed.

    Raises:
        BackupError: a broker is registered, or the store is of another cluster.
    """
    if registered := _children(store, znodes.BROKER_IDS):
        running = ", ".join(registered)
        raise BackupError(f"broker {running} is registered: stop all brokers, and wait for their sessions to end")
    [named] = store.get_many([znodes.CLUSTER_ID])
    cluster = wanted[znodes.CLUSTER_ID]
    if named is not None and znodes.decode_cluster_id(named[0]) != znodes.decode_cluster_id(cluster):
        raise BackupError(
            f"the store is of cluster {znodes.decode_cluster_id(named[0])}, the backup of cluster "
            f"{znodes.decode_cluster_id(cluster)}: wanted the same, or an empty store"
        )
    if named is not None:
        store.delete(znodes.CLUSTER_ID)
    store.ensure(*znodes.BASE_PATHS)
    changes, written = list(_changes(store, wanted)), 0
    for part in cut(changes):
        store.multi(part)
        written += len(part)
        on_progress(written, len(changes))
    # Last, for it says that the store is whole; a broker that made a cluster of its own meanwhile shows here.
    try:
        store.multi([Create(znodes.CLUSTER_ID, cluster)])
    except NodeExists as error:
        raise BackupError("a broker started meanwhile and made a cluster of its own: stop it, then again") from error


def _changes(store: Store, wanted: Nodes) -> Iterator[Operation]:
    present = _read_once(store)
    for path in sorted(present, key=lambda path: path.count("/"), reverse=True):
        if path not in wanted and path not in znodes.BASE_PATHS and not _is_consumers(path) and "/" in path[1:]:
            yield Delete(path)
    for path in sorted(wanted, key=lambda path: path.count("/")):
        if path == znodes.CLUSTER_ID:
            continue
        if path not in present:
            yield Create(path, wanted[path])
        elif not _is_consumers(path) and present[path][0] != wanted[path]:
            yield Set(path, wanted[path])


def _is_consumers(path: str) -> bool:
    return path.startswith(f"{znodes.CONSUMERS}/")


def _children(store: Store, path: str) -> Sequence[str]:
    with contextlib.suppress(NoNode):
        return store.children(path)
    return []

"""The partitions that one consumer owns, and its committed offsets: every change of them goes through here.

A partition is owned by whoever made its owner node.  The node is ephemeral and is made together with a write to the
partition's offset, so that taking a partition over makes the version stale that the last owner would commit with:

    claim    = one multi: check own registration, create owner nodes, write each offset anew (or for the first time)
    commit   = one multi: check owner nodes, set each offset with the version that the claim or last commit left
    release  = one multi: set the offsets, delete the owner nodes

Offsets are kept by a topic's name.  The node above them has the topic's id, and each claim and commit checks its
version.  A claim that finds the id of a former topic there sets all offsets of the topic to the beginning of its logs,
and the owners of the former topic's partitions can commit nothing from then on.

A node that is there may be a later one of somebody else, so its czxid is compared before each commit and release.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar
from uuid import UUID

from pylog.client.paper.registries import (
    decode_offset,
    decode_topic_id,
    encode_topic_id,
    id_path,
    offset_path,
    owner_path,
    read_topics,
    topic_offsets_path,
)
from pylog.cluster.znodes import Assignment
from pylog.errors import PylogError
from pylog.model import Offset, TopicPartition
from pylog.store.base import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotConnected,
    Operation,
    SessionLost,
    Set,
    Store,
    StoreError,
)

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")

MAX_PARTITIONS_A_MULTI = 500
"""Two operations each of about a hundred bytes: far below the megabyte that a server takes."""

RETRY_S = 0.05
"""Pause before a question is asked again that a lost connection left without an answer."""

_CREATED_VERSION = 0


class OwnerConflict(PylogError):
    """A partition to claim is still somebody else's: let all go, wait, and try again.

    Attributes:
        path: the node that is in the way; it changes when waiting has an end.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path} {message}")
        self.path = path


class OwnershipLost(PylogError):
    """Partitions whose offsets were to be committed belong to this consumer no longer.

    Their messages will come again, to whoever has them now.
    """


StartOffsets: TypeAlias = Callable[[list[TopicPartition]], Mapping[TopicPartition, Offset]]
"""Returns where partitions begin, for a group that never read them for instance."""


class Offsets(Protocol):
    """Where committed offsets are kept."""

    def claiming(self, partitions: Iterable[TopicPartition]) -> list[Operation]:
        """Return what makes the last owner's commits stale."""

    def claimed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Take note that the operations of `claiming` were done; return where each partition goes on."""

    def committing(self, offsets: Mapping[TopicPartition, Offset]) -> list[Operation]:
        """Return what commits *offsets* under the versions known."""

    def committed(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Take note that the operations of `committing` were done; do what has no operations."""

    def reread(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return what is committed, and know its versions again."""


class OffsetRegistry:
    """Committed offsets in ZooKeeper.

    Args:
        start: where a partition begins that the group never read; the claim writes it down, so that nothing is skipped
            if the first owner ends before its first commit.
        log_start: the first offset that is kept, where the group goes on in a topic that was deleted and made again.
    """

    def __init__(self, store: Store, group: str, start: StartOffsets, log_start: StartOffsets) -> None:
        self._store = store
        self._group = group
        self._start = start
        self._log_start = log_start
        # The topic that offsets are of, and the version of the node that says so, as the last claim found them.
        self._topics: dict[str, tuple[UUID | None, int]] = {}
        # Offset and version of each node; None, if there is no node yet.
        self._nodes: dict[TopicPartition, tuple[Offset, int | None]] = {}

    def claiming(self, partitions: Iterable[TopicPartition]) -> list[Operation]:
        """Return a write of each offset as it is; see `Offsets`.

        Raises:
            NodeExists, BadVersion: somebody else changed the offsets of a topic that was made again.
        """
        wanted = list(partitions)
        self._follow_topics({one.topic for one in wanted})
        return self.committing(self.reread(wanted))

    def claimed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return what was written; see `Offsets`."""
        offsets = {partition: self._nodes[partition][0] for partition in partitions}
        self.committed(offsets)
        return offsets

    def committing(self, offsets: Mapping[TopicPartition, Offset]) -> list[Operation]:
        """Return a write of each offset, if they are still those of the same topics; see `Offsets`."""
        topics = sorted({one.topic for one in offsets})
        checks = [Check(topic_offsets_path(self._group, topic), self._topics[topic][1]) for topic in topics]
        return [*checks, *self._writes(offsets)]

    def _writes(self, offsets: Mapping[TopicPartition, Offset]) -> list[Operation]:
        return [self._write(partition, offset) for partition, offset in offsets.items()]

    def committed(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Follow the versions; see `Offsets`."""
        for partition, offset in offsets.items():
            version = self._nodes[partition][1]
            self._nodes[partition] = (offset, _CREATED_VERSION if version is None else version + 1)

    def reread(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return what the nodes say; see `Offsets`."""
        wanted = list(partitions)
        self._reread_topics({one.topic for one in wanted})
        nodes = self._store.get_many(offset_path(self._group, partition) for partition in wanted)
        found = dict(zip(wanted, nodes, strict=True))
        # A node without a number is one that was made to be written, and then was not.
        new = [partition for partition, node in found.items() if node is None or not node[0]]
        first = self._start(new) if new else {}
        for partition, node in found.items():
            offset = first[partition] if partition in first else decode_offset(partition, node[0] if node else b"")
            self._nodes[partition] = (offset, node[1].version if node else None)
        return {partition: self._nodes[partition][0] for partition in wanted}

    def _reread_topics(self, topics: Iterable[str]) -> None:
        """Know versions again, but not those of a topic that was made again since the claim."""
        for topic, (kept, version) in self._kept_topics(topics).items():
            if self._topics.get(topic, (kept, version))[0] == kept:
                self._topics[topic] = kept, version

    def _follow_topics(self, topics: Iterable[str]) -> None:
        """Have the offsets of each of *topics* be those of the topic that has the name now."""
        # In this order: a server of ZooKeeper that lags behind, but has a topic's id here, has that topic too.
        kept_topics = self._kept_topics(topics)
        present = read_topics(self._store, kept_topics)
        for topic, (kept, version) in kept_topics.items():
            found = present.get(topic)
            if found is None or found.topic_id == kept:
                self._topics[topic] = kept, version
                continue
            if kept is not None:
                self._begin_anew(topic, found, version)
            path = topic_offsets_path(self._group, topic)
            self._topics[topic] = (
                found.topic_id,
                self._store.set(path, encode_topic_id(found.topic_id), version).version,
            )

    def _kept_topics(self, topics: Iterable[str]) -> dict[str, tuple[UUID | None, int]]:
        """Return of which topics offsets are kept, and the versions of the nodes that say so."""
        paths = {topic: topic_offsets_path(self._group, topic) for topic in sorted(topics)}
        kept: dict[str, tuple[UUID | None, int]] = {}
        for (topic, path), node in zip(paths.items(), self._store.get_many(paths.values()), strict=True):
            if node is None:
                raise NoNode(path)
            kept[topic] = decode_topic_id(node[0]), node[1].version
        return kept

    def _begin_anew(self, topic: str, present: Assignment, version: int) -> None:
        """Replace the offsets of a former topic by the beginning of the one that has its name now.

        Until the node above says so they are taken for those of the former topic: whoever claims next begins again.
        """
        parent = topic_offsets_path(self._group, topic)
        starts = self._log_start([TopicPartition(topic, number) for number in present.replicas])
        former = {TopicPartition(topic, int(name)) for name in self._store.children(parent) if name.isdigit()}
        paths = {one: offset_path(self._group, one) for one in sorted({*former, *starts})}
        writes: dict[TopicPartition, Operation] = {}
        for (one, path), node in zip(paths.items(), self._store.get_many(paths.values()), strict=True):
            data = str(starts.get(one)).encode()
            if node is None:
                writes[one] = Create(path, data)
            else:
                writes[one] = Set(path, data, node[1].version) if one in starts else Delete(path, node[1].version)
        for part in _parts(writes):
            self._store.multi([Check(parent, version), *part.values()])
        message = "topic was deleted and made again: offsets begin anew group=%s topic=%s partitions=%d"
        _logger.warning(message, self._group, topic, len(starts))

    def _write(self, partition: TopicPartition, offset: Offset) -> Operation:
        version = self._nodes[partition][1]
        path, data = offset_path(self._group, partition), str(offset).encode()
        return Create(path, data) if version is None else Set(path, data, version)


@dataclass(slots=True)
class _Owned:
    stream: str
    czxid: int
    committed: Offset
    topic_id: UUID | None


class Ownership:
    """What one consumer owns; thread-safe.

    Args:
        store: its session.
        group: its group.
        consumer_id: its registration, without which nothing can be claimed.
        offsets: where offsets are kept.
    """

    def __init__(self, store: Store, group: str, consumer_id: str, offsets: Offsets) -> None:
        self._store = store
        self._group = group
        self._registration = id_path(group, consumer_id)
        self._offsets = offsets
        self._owned: dict[TopicPartition, _Owned] = {}
        # Claims and releases without an answer: nodes of ours that are there or not.
        self._doubtful: set[TopicPartition] = set()
        # Held over the store's answer: a commit and a release must not interleave.
        self._lock = threading.RLock()

    def streams(self) -> dict[TopicPartition, str]:
        """Return what is owned, and by which stream."""
        with self._lock:
            return {partition: owned.stream for partition, owned in self._owned.items()}

    def of_former_topics(self, topic_ids: Mapping[str, UUID]) -> set[TopicPartition]:
        """Return what is owned of topics that were deleted, and perhaps made again, since it was claimed.

        Args:
            topic_ids: of the topics that there are now.
        """
        with self._lock:
            return {one for one, owned in self._owned.items() if topic_ids.get(one.topic) != owned.topic_id}

    def forget(self) -> None:
        """Own nothing any more: the session is over, and the owner nodes went with it."""
        with self._lock:
            self._owned.clear()
            self._doubtful.clear()

    def settle(self) -> None:
        """Remove owner nodes of this session that a claim or release without an answer left behind."""
        with self._lock:
            ordered = sorted(self._doubtful - self._owned.keys())
            paths = [owner_path(self._group, partition) for partition in ordered]
            nodes = zip(paths, self._store.get_many(paths), strict=True)
            ours = [path for path, node in nodes if node and node[1].ephemeral_owner == self._store.session_id]
            for path in ours:
                self._store.delete(path)
            self._doubtful.clear()

    def claim(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, Offset]:
        """Make *wanted*, partition -> stream, ours; return where each goes on.

        Raises:
            OwnerConflict: somebody else has one of them; some of the others may be ours already.
            StoreError: NoNode, if our registration is gone; NotConnected and SessionLost as always.
        """
        starts: dict[TopicPartition, Offset] = {}
        with self._lock:
            self._ensure_parents(wanted)
            for part in _parts(wanted):
                self._doubtful |= part.keys()
                starts |= self._claim_part(part)
                self._doubtful -= part.keys()
        return starts

    def _claim_part(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, Offset]:
        paths = {partition: owner_path(self._group, partition) for partition in wanted}
        for path, node in zip(paths.values(), self._store.get_many(paths.values()), strict=True):
            if node is not None:
                raise OwnerConflict(path, f"is {node[0].decode(errors='replace')}")
        # Read before the offsets: if the topic is made again in between, the next look finds another id than this.
        topic_ids = self._topic_ids(wanted)
        made = [Create(path, wanted[partition].encode(), ephemeral=True) for partition, path in paths.items()]
        try:
            self._store.multi([Check(self._registration, _CREATED_VERSION), *made, *self._offsets.claiming(wanted)])
        except (NodeExists, BadVersion) as error:
            raise OwnerConflict(error.path, "was changed meanwhile") from error
        offsets = self._offsets.claimed(wanted)
        for (partition, path), node in zip(paths.items(), self._store.get_many(paths.values()), strict=True):
            if node is None or node[1].ephemeral_owner != self._store.session_id:
                raise SessionLost(path, message=f"{path} is gone again")
            self._owned[partition] = _Owned(
                wanted[partition], node[1].czxid, offsets[partition], topic_ids.get(partition.topic)
            )
        return offsets

    def commit(self, offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
        """Commit those of *offsets* that lie before us; return what is committed now of each.

        Raises:
            OwnershipLost: one of them is not ours; none was committed.
            NotConnected: no answer came within the session's time-out; they may be committed or not.
        """
        with self._lock, _as_loss():
            missing = offsets.keys() - self._owned.keys()
            if missing:
                raise OwnershipLost(f"{', '.join(map(str, sorted(missing)))}: not owned by this consumer")
            self._until_answered(lambda: self._commit_forward(offsets))
            return {partition: self._owned[partition].committed for partition in offsets}

    def commit_owned(self, offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
        """Commit those of *offsets* that are of partitions that are ours; see `commit`."""
        with self._lock:
            return self.commit({partition: offset for partition, offset in offsets.items() if partition in self._owned})

    def release(self, partitions: Iterable[TopicPartition], offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit *offsets*, which are of *partitions*, and let those go that are ours; after it none is.

        Nothing is committed of a topic that was deleted since: its name may be another topic's.
        """
        with self._lock:
            going = [partition for partition in partitions if partition in self._owned]
            self._doubtful |= set(going)
            try:
                self._until_answered(lambda: self._release_owned(going, offsets))
                self._doubtful -= set(going)
            finally:
                for partition in going:
                    del self._owned[partition]

    def _commit_forward(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        forward = {
            partition: offset for partition, offset in offsets.items() if offset > self._owned[partition].committed
        }
        if not forward:
            return
        self._check_owned(forward)
        for part in _parts(forward):
            checks = [Check(owner_path(self._group, partition), _CREATED_VERSION) for partition in part]
            self._store.multi([*checks, *self._offsets.committing(part)])
            self._offsets.committed(part)
            for partition, offset in part.items():
                self._owned[partition].committed = offset

    def _release_owned(self, partitions: list[TopicPartition], offsets: Mapping[TopicPartition, Offset]) -> None:
        ours = self._still_owned(partitions)
        kept = set(ours) - self.of_former_topics(self._topic_ids(ours))
        try:
            self._commit_forward({partition: offset for partition, offset in offsets.items() if partition in kept})
        except StoreError:
            raise
        except PylogError as error:  # where offsets are kept: their messages will come again, but to the next owner
            _logger.warning("offsets not committed on release group=%s reason=%s", self._group, error)
        for part in _parts(dict.fromkeys(ours, 0)):
            self._store.multi([Delete(owner_path(self._group, partition), _CREATED_VERSION) for partition in part])

    def _still_owned(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those whose owner node is the very one that this consumer made."""
        wanted = list(partitions)
        nodes = self._store.get_many(owner_path(self._group, partition) for partition in wanted)
        return [
            partition
            for partition, node in zip(wanted, nodes, strict=True)
            if node is not None and node[1].czxid == self._owned[partition].czxid
        ]

    def _check_owned(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = set(partitions)
        lost = wanted - set(self._still_owned(wanted))
        if lost:
            raise OwnershipLost(f"{', '.join(map(str, sorted(lost)))}: taken over by another consumer")
        former = wanted & self.of_former_topics(self._topic_ids(wanted))
        if former:
            raise OwnershipLost(f"{', '.join(map(str, sorted(former)))}: the topic was deleted")

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, UUID]:
        found = read_topics(self._store, sorted({one.topic for one in partitions}))
        return {topic: one.topic_id for topic, one in found.items()}

    def _until_answered(self, act: Callable[[], None]) -> None:
        """Run *act* again while the connection fails: it begins by reading what became of the last time."""
        deadline_s = time.monotonic() + self._store.session_timeout_ms / 1000
        while True:
            try:
                return act()
            except NotConnected:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(RETRY_S)
            except BadVersion:
                if time.monotonic() > deadline_s:
                    raise
                # The owner node is ours, so this is a try of ours whose answer was lost, or somebody with a shell.
                for partition, offset in self._offsets.reread(self._owned).items():
                    self._owned[partition].committed = offset

    def _ensure_parents(self, partitions: Iterable[TopicPartition]) -> None:
        topics = {partition.topic for partition in partitions}
        first = [TopicPartition(topic, 0) for topic in topics]
        above = [path(self._group, one).rpartition("/")[0] for one in first for path in (owner_path, offset_path)]
        if above:
            self._store.ensure(*above)


def _parts(values: Mapping[TopicPartition, _T]) -> Iterator[dict[TopicPartition, _T]]:
    ordered = sorted(values)
    for first in range(0, len(ordered), MAX_PARTITIONS_A_MULTI):
        yield {partition: values[partition] for partition in ordered[first : first + MAX_PARTITIONS_A_MULTI]}


@contextmanager
def _as_loss() -> Iterator[None]:
    try:
        yield
    except (SessionLost, NoNode) as error:
        raise OwnershipLost(f"the session with ZooKeeper is over: {error}") from error

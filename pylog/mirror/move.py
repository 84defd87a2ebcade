"""Groups that move from the source to the target and back, and how far the mirror is."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pylog.client.admin.cluster import OffsetRange
from pylog.client.admin.groups import GroupAdmin
from pylog.errors import PylogError
from pylog.mirror import follow, groups
from pylog.mirror.config import Cluster, MirrorConfig
from pylog.mirror.offsets import MapKey, OffsetMap
from pylog.model import Offset, OnProgress, TopicPartition, nobody

MOVABLE = ("Empty", "Dead")
"""States of a group that nobody reads in."""

_LOOK_S = 0.5


class MoveRefused(PylogError):
    """The group cannot be moved as things are."""


class Way(StrEnum):
    """Where a group moves."""

    OVER = "over"
    """From the source to the target."""
    BACK = "back"

    def ends(self, config: MirrorConfig) -> tuple[Cluster, Cluster]:
        """Return the cluster that is left and the one that is entered."""
        both = config.source, config.target
        return both if self is Way.OVER else both[::-1]


@dataclass(frozen=True, slots=True)
class Move:
    """One partition of a group that moves.

    Attributes:
        left: what the group committed in the cluster that it leaves.
        entered: where it goes on in the other; None where the other does not have the partition.
        is_mapped: whether the offset map says so; else it is the log start there.
        ahead: what the other holds from there on.
    """

    partition: TopicPartition
    left: Offset
    entered: Offset | None
    is_mapped: bool
    ahead: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the mirror is in one partition; None where it has committed nothing."""

    partition: TopicPartition
    end: Offset
    mirrored: Offset | None
    pairs: int

    @property
    def lag(self) -> int:
        """Offsets of the source that are not in the target for sure."""
        return max(0, self.end - (self.mirrored or 0))


def moves(
    committed: Mapping[TopicPartition, Offset],
    held: Mapping[TopicPartition, OffsetRange],
    translate: Callable[[TopicPartition, Offset], Offset | None],
) -> list[Move]:
    """Return where a group goes on; decides only.

    Args:
        committed: by the group in the cluster that it leaves.
        held: by the other.
        translate: offsets of the one to offsets of the other; None means at the log start.
    """
    found = []
    for partition, offset in sorted(committed.items()):
        there = held.get(partition)
        if there is None:
            found.append(Move(partition, offset, None, False, 0))
            continue
        translated = translate(partition, offset)
        entered = min(max(there.start if translated is None else translated, there.start), there.end)
        found.append(Move(partition, offset, entered, translated is not None, there.end - entered))
    return found


def plan_move_without_source(config: MirrorConfig, group: str) -> list[Move]:
    """Return where *group* would go on in the target, asking the target alone: the source is lost.

    What the group committed is what the mirror last carried over, so it reads a little more again.

    Raises:
        MoveRefused: it has members in the target, or the mirror carried nothing of it.
    """
    there = GroupAdmin(config.target.connection)
    state = there.group(group).state
    if state not in MOVABLE:
        raise MoveRefused(f"group {group} is {state} in {config.target.name}; stop its consumers first")
    topics = {key.topic: one for key, one in groups.load(config).items() if key.group == group}
    if not topics:
        raise MoveRefused(f"group {group} has no checkpoint in {config.target.name}, topic {config.groups_topic}")
    committed = {TopicPartition(name, p): offset for name, one in topics.items() for p, offset in one.offsets.items()}
    held = _held(there, committed)
    maps, target_ids = follow.load_maps(config), follow.topic_ids(config.target, {one.topic for one in held})

    def translate(partition: TopicPartition, offset: Offset) -> Offset | None:
        known = maps.get(MapKey(topics[partition.topic].topic_id, partition.partition))
        if known is None or known.target_id != target_ids.get(partition.topic):
            return None
        return known.translate(offset)

    return moves(committed, held, translate)


def plan_move(config: MirrorConfig, group: str, way: Way = Way.OVER) -> list[Move]:
    """Return where *group* would go on in the other cluster.

    Raises:
        MoveRefused: it has members in one of the clusters, or committed nothing in the one that it leaves.
    """
    leaves, enters = way.ends(config)
    here, there = GroupAdmin(leaves.connection), GroupAdmin(enters.connection)
    for cluster, admin in ((leaves, here), (enters, there)):
        state = admin.group(group).state
        if state not in MOVABLE:
            raise MoveRefused(f"group {group} is {state} in {cluster.name}; stop its consumers first")
    committed = here.committed(group)
    if not committed:
        raise MoveRefused(f"group {group} committed nothing in {leaves.name}")
    held = _held(there, committed)
    maps = _valid_maps(config, {one.topic for one in held})
    earlier = there.committed(group) if way is Way.BACK else {}

    def translate(partition: TopicPartition, offset: Offset) -> Offset | None:
        known = maps.get(partition)
        if known is None:
            return None
        return known.translate(offset) if way is Way.OVER else returning(known, offset, earlier.get(partition))

    return moves(committed, held, translate)


def returning(known: OffsetMap, committed: Offset, earlier: Offset | None) -> Offset | None:
    """Return where in the source a group goes on that *committed* in the target and *earlier* in the source.

    What it had read before it left need not come again, unless somebody set it back in the target meanwhile.
    """
    found = known.translate_back(committed)
    entered = None if earlier is None else known.translate(earlier)
    if earlier is None or entered is None or committed < entered:
        return found
    return max(earlier, found or 0)


def _valid_maps(config: MirrorConfig, names: set[str]) -> dict[TopicPartition, OffsetMap]:
    """Return the maps between the lives that topics have now, by partition."""
    source_ids, target_ids = follow.topic_ids(config.source, names), follow.topic_ids(config.target, names)
    topics = {source_ids[name]: name for name in names if name in source_ids}
    return {
        TopicPartition(topics[key.topic_id], key.partition): found
        for key, found in follow.load_maps(config).items()
        if key.topic_id in topics and found.target_id == target_ids.get(topics[key.topic_id])
    }


def execute(config: MirrorConfig, group: str, planned: Iterable[Move], way: Way = Way.OVER) -> None:
    """Commit in the cluster that is entered what was planned, for the partitions that it has."""
    _, enters = way.ends(config)
    wanted = {one.partition: one.entered for one in planned if one.entered is not None}
    GroupAdmin(enters.connection).commit(group, wanted)


class Patience:
    """Is over once what is missing has not become less for a while: a slow mirror is waited for, a stuck one is not.

    Args:
        stall_s: how long.
    """

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._least = math.inf
        self._less_s = 0.0

    def is_over(self, missing: int, now_s: float) -> bool:
        """Note how much is missing now, and return whether to wait no more."""
        if missing < self._least:
            self._least, self._less_s = missing, now_s
        return now_s - self._less_s > self._stall_s


def wait_arrived(config: MirrorConfig, stall_s: float, on_progress: OnProgress = nobody) -> dict[TopicPartition, int]:
    """Wait until everything that the source has now is in the target, and the mirror has written that down.

    Args:
        config: the mirror's.
        stall_s: how long nothing may arrive before this gives up.
        on_progress: told how many of the offsets have arrived that were missing at first.

    Returns:
        What is still missing when nothing has arrived for *stall_s*: offsets by partition.
    """
    source = GroupAdmin(config.source.connection)
    views = source.cluster().topics
    names = follow.mirrored(config, views)
    held = source.offsets([TopicPartition(name, one.partition) for name in names for one in views[name].partitions])
    patience, missing_at_first = Patience(stall_s), 0
    while True:
        committed = source.committed(config.group)
        missing = {p: one.end - max(committed.get(p, 0), one.start) for p, one in held.items()}
        behind = {p: count for p, count in missing.items() if count > 0}
        missing_at_first = missing_at_first or sum(behind.values())
        on_progress(missing_at_first - sum(behind.values()), missing_at_first)
        if not behind or patience.is_over(sum(behind.values()), time.monotonic()):
            return behind
        time.sleep(_LOOK_S)


def standings(config: MirrorConfig) -> list[Standing]:
    """Return how far the mirror is in every partition that it mirrors."""
    source = GroupAdmin(config.source.connection)
    views = source.cluster().topics
    names = follow.mirrored(config, views)
    partitions = [TopicPartition(name, one.partition) for name in names for one in views[name].partitions]
    ends, committed = source.ends(partitions), source.committed(config.group)
    ids, maps = follow.topic_ids(config.source, names), follow.load_maps(config)
    found = []
    for one in partitions:
        known = maps.get(MapKey(ids[one.topic], one.partition))
        found.append(Standing(one, ends[one], committed.get(one), 0 if known is None else len(known.pairs)))
    return found


def _held(admin: GroupAdmin, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
    topics = admin.cluster().topics
    there = [one for one in wanted if one.topic in topics and one.partition < len(topics[one.topic].partitions)]
    return admin.offsets(there)

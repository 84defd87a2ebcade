"""Groups that move from the source to the target, and how far the mirror is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pylog.client.admin import OffsetRange
from pylog.client.groups import GroupAdmin
from pylog.errors import PylogError
from pylog.mirror import follow
from pylog.mirror.config import MirrorConfig
from pylog.mirror.offsets import MapKey, OffsetMap
from pylog.model import Offset, TopicPartition

MOVABLE = ("Empty", "Dead")
"""States of a group that nobody reads in."""


class MoveRefused(PylogError):
    """The group cannot be moved as things are."""


@dataclass(frozen=True, slots=True)
class Move:
    """One partition of a group that moves.

    Attributes:
        source: what the group committed in the source.
        target: where it goes on in the target.
        is_mapped: whether a pair says so; else it is the target's log start.
        left: what the target holds from there on.
    """

    partition: TopicPartition
    source: Offset
    target: Offset
    is_mapped: bool
    left: int


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
    source_ids: Mapping[str, str],
    target_ids: Mapping[str, str],
    maps: Mapping[MapKey, OffsetMap],
) -> list[Move]:
    """Return where a group goes on; decides only.

    Args:
        committed: by the group in the source.
        held: by the target; a partition that it lacks is left out.
        source_ids: of the source's topics.
        target_ids: of the target's topics.
        maps: of the mirror.
    """
    found = []
    for partition, offset in sorted(committed.items()):
        there = held.get(partition)
        if there is None:
            continue
        known = maps.get(MapKey(source_ids.get(partition.topic, ""), partition.partition))
        if known is not None and known.target_id != target_ids.get(partition.topic):
            known = None
        translated = None if known is None else known.translate(offset)
        target = min(max(there.start if translated is None else translated, there.start), there.end)
        found.append(Move(partition, offset, target, translated is not None, there.end - target))
    return found


def plan_move(config: MirrorConfig, group: str) -> list[Move]:
    """Return where *group* would go on in the target.

    Raises:
        MoveRefused: it has members in one of the clusters, or committed nothing in the source.
    """
    source, target = GroupAdmin(config.source.connection), GroupAdmin(config.target.connection)
    for cluster, admin in ((config.source, source), (config.target, target)):
        state = admin.group(group).state
        if state not in MOVABLE:
            raise MoveRefused(f"group {group} is {state} in {cluster.name}; stop its consumers first")
    committed = source.committed(group)
    if not committed:
        raise MoveRefused(f"group {group} committed nothing in {config.source.name}")
    held = _held(target, committed)
    names = {one.topic for one in held}
    source_ids = follow.topic_ids(config.source, names & source.cluster().topics.keys())
    return moves(committed, held, source_ids, follow.topic_ids(config.target, names), follow.load_maps(config))


def execute(config: MirrorConfig, group: str, planned: Iterable[Move]) -> None:
    """Commit in the target what was planned."""
    GroupAdmin(config.target.connection).commit(group, {one.partition: one.target for one in planned})


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

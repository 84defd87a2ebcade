"""Who leads a partition, given who lives: the only place that picks leaders.

Leaders come from the ISR, because only its members have every acknowledged record.  The ISR never becomes empty: when
its last members are gone it names them, and the partition waits for one of them.
"""

from collections.abc import Collection
from dataclasses import replace

from pylog.cluster.image import PartitionImage
from pylog.model import NO_LEADER


def elect(
    partition: PartitionImage,
    live: Collection[int],
    *,
    leaving: Collection[int] = frozenset(),
    unclean: bool = False,
) -> PartitionImage:
    """Return the partition's state as it should be with these brokers; itself if nothing is to change.

    The leader epoch grows whenever leadership is given anew, also to the same broker: what it acknowledged before is
    then settled first.  It stays when only dead followers leave the ISR; the partition epoch orders those changes.

    Args:
        partition: the state that stands.
        live: brokers that are registered now.
        leaving: live brokers that must not keep what another can take over: they bounced (their log may have lost its
            end) or are shutting down.
        unclean: elect any live replica when no ISR member lives, and lose what only the ISR had.
    """
    staying = [broker for broker in live if broker not in leaving] if leaving else live
    isr = tuple(broker for broker in partition.isr if broker in staying)
    if isr:
        leader = partition.leader if partition.leader in isr else _first(partition.replicas, isr)
    else:
        # Only leaving members are left, or none at all: keep the ISR, its members still have everything.
        isr = partition.isr
        leader = _first(partition.replicas, [broker for broker in isr if broker in live])
        if leader == NO_LEADER and unclean:
            leader = _first(partition.replicas, live)
            isr = partition.isr if leader == NO_LEADER else (leader,)
    if leader == partition.leader and (leader == NO_LEADER or leader not in leaving):
        return partition if isr == partition.isr else replace(partition, isr=isr)
    return replace(partition, leader=leader, isr=isr, leader_epoch=partition.leader_epoch + 1)


def elect_preferred(partition: PartitionImage, live: Collection[int]) -> PartitionImage | None:
    """Return the state in which the first replica leads, or None while it is dead or not in sync."""
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return partition
    if preferred not in partition.isr or preferred not in live:
        return None
    return replace(partition, leader=preferred, leader_epoch=partition.leader_epoch + 1)


def elect_first(replicas: tuple[int, ...], live: Collection[int]) -> PartitionImage:
    """Return the first state of a new partition: all its live replicas are in sync, since there is nothing to lack."""
    isr = tuple(broker for broker in replicas if broker in live)
    # With no replica alive the first one will lead: an empty ISR could never be left again.
    return PartitionImage(isr[0] if isr else NO_LEADER, 0, isr or replicas[:1], replicas, partition_epoch=0)


def _first(replicas: tuple[int, ...], allowed: Collection[int]) -> int:
    return next((broker for broker in replicas if broker in allowed), NO_LEADER)

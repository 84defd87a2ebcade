"""Who leads a partition, given who lives: the only place that picks leaders.

Leaders come from the ISR, because only its members have every acknowledged record.  The ISR never becomes empty: when
its last members are gone it names them, and the partition waits for one of them.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from pylog.cluster.image import Move, PartitionImage
from pylog.model import NO_LEADER


def elect(
    partition: PartitionImage,
    live: Collection[int],
    *,
    leaving: Collection[int] = frozenset(),
    bounced: Collection[int] = frozenset(),
    doubtful: Collection[int] = frozenset(),
    move: Move = Move(),  # noqa: B008  (it cannot be changed)
    unclean: bool = False,
) -> PartitionImage:
    """Return the partition's state as it should be with these brokers; itself if nothing is to change.

    The leader epoch grows whenever leadership is given anew, also to the same broker: what it acknowledged before is
    then settled first.  It stays when only dead followers leave the ISR; the partition epoch orders those changes.  It
    grows when a doubtful one leaves: what the leader knows of that follower is no longer so.

    Args:
        partition: the state that stands.
        live: brokers that are registered now.
        leaving: live brokers that must not keep what another can take over: they are shutting down, say.
        bounced: live brokers of which another process registered since; as *leaving*, but what one of them keeps it
            leads anew.
        doubtful: live brokers whose logs may have lost their ends in an unclean stop: they leave every ISR that has
            another member alive, and lead nothing; see `elect_doubtful`.
        move: where the partition is on its way to, if it is.
        unclean: elect any live replica when no ISR member lives, and lose what only the ISR had.  One that lives and is
            in doubt soon says what it has; until then it must not lead on in its old epoch, in which others may have
            records that it lost.
    """
    away = {*leaving, *bounced, *doubtful}
    staying = [one for one in live if one not in away] if away else live
    isr = tuple(broker for broker in partition.isr if broker in staying)
    if isr:
        leader = partition.leader if partition.leader in isr else _first(partition.replicas, isr)
    else:
        # Only leaving members are left, or none at all: keep the ISR, its members still have everything.
        isr = partition.isr
        leader = _first(partition.replicas, [one for one in isr if one in live and one not in doubtful])
        if leader != NO_LEADER and doubtful:
            isr = tuple(broker for broker in isr if broker not in doubtful)
        if leader == NO_LEADER and unclean and not any(one in live for one in isr):
            # One that goes has its log deleted at the end of the move, so it is passed over for none that also had all.
            # One that comes may have next to nothing.
            had_all = tuple(broker for broker in partition.replicas if broker not in move.adding)
            leader = _first((*move.removing, *had_all, *move.adding), live)
            isr = partition.isr if leader == NO_LEADER else (leader,)
    is_in_doubt = any(broker in doubtful and broker not in isr for broker in partition.isr)
    if leader == partition.leader and not is_in_doubt and (leader == NO_LEADER or leader not in bounced):
        return partition if isr == partition.isr else replace(partition, isr=isr)
    return replace(partition, leader=leader, isr=isr, leader_epoch=partition.leader_epoch + 1)


def elect_doubtful(partition: PartitionImage, ends: Mapping[int, tuple[int, int]]) -> PartitionImage:
    """Return the state in which the longest of some logs leads, where every member of the ISR stopped uncleanly.

    What the others had beyond it is lost, so it alone is in sync.

    Args:
        partition: a state without leader.
        ends: (last leader epoch, log end offset) by broker, at least one.
    """
    leader = _first(partition.replicas, fullest(ends))
    return replace(partition, leader=leader, isr=(leader,), leader_epoch=partition.leader_epoch + 1)


def fullest(ends: Mapping[int, tuple[int, int]]) -> list[int]:
    """Return the brokers whose logs have everything that is known to be committed, and most beyond it.

    The highest (last leader epoch, log end offset) decides.  Release 0.1.0 could leave a log whose records were all
    deleted without an epoch.  Only committed records are ever deleted, so where that log begins they reached: a log
    that ends below lacks some, whatever its epoch.

    Args:
        ends: (last leader epoch, log end offset) by broker, at least one; epoch -1 in a log without records.
    """
    committed = max((end for epoch, end in ends.values() if epoch < 0), default=0)
    best = max(log for log in ends.values() if log[1] >= committed)
    return [broker for broker, log in ends.items() if log == best]


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

"""Moving a partition to other brokers: which replicas it has on the way, when it has arrived, what is left behind.

While a partition moves, its replicas are those it shall have, followed by those it had and shall lose.  Who is new
joins the ISR like any follower; once all that shall hold it are in sync, the others go, and leadership with them.

An unclean election may have put who is new into the ISR with next to nothing.  Then those that held the partition
before the move keep what they have until one of them is in sync again, or somebody orders a move anew.

Who is new may have been a replica before and still be about to delete what it had: it has not heard yet that it was
taken away, or a fetch of before is still on its way.  So a new leader epoch begins whenever replicas come, in which
nobody fetches who does not know of this move.

Source: KIP-455; Kafka's ReplicaAssignment.reassignTo, KafkaController.onPartitionReassignment and
updateLeaderEpochAndSendRequest.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from pylog.cluster.election import elect
from pylog.cluster.image import Move, PartitionImage, TopicImage
from pylog.errors import ApiError, ErrorCode
from pylog.model import NO_LEADER


def begin_move(topic: TopicImage, number: int, wanted: Sequence[int] | None, live: Collection[int]) -> TopicImage:
    """Return *topic* with one partition on its way to *wanted*; its state may have another ISR and leader.

    A move that is under way already is replaced: it starts where the partition was before.  Where a broker leads that
    the former move added, and none is in sync that had the partition before, it starts from who is in sync: that is how
    an operator lets go of brokers that will not come back.

    Args:
        topic: as it is.
        number: the partition.
        wanted: brokers that shall hold it, the preferred leader first; None calls its move off.
        live: brokers that are registered and may lead.

    Raises:
        ApiError: UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS or INVALID_REPLICA_ASSIGNMENT.
    """
    state = topic.partitions.get(number)
    if state is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic.name}-{number}")
    before = topic.moves.get(number)
    if wanted is None and before is None:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic.name}-{number} is not being reassigned")
    origin = _without(state.replicas, before.adding if before else ())
    if wanted is not None and state.leader != NO_LEADER and not set(origin) & set(state.isr):
        origin = tuple(broker for broker in state.replicas if broker in state.isr)
    target = origin if wanted is None else tuple(wanted)
    _check(topic.name, number, state, target, live)
    replicas = (*target, *_without(origin, target))
    move = Move(_without(replicas, origin), _without(replicas, target))
    gone = _without(state.isr, replicas)
    if gone and state.leader == NO_LEADER:
        # Until somebody leads, nobody knows which of the in-sync replicas has everything, as after a power cut.
        message = f"{topic.name}-{number} has no leader, and in-sync replicas {gone} may have what others lack: wait"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    after = _restrict(state, replicas, live)
    if after is None:
        message = (
            f"all in-sync replicas of {topic.name}-{number} would go: {state.isr}; wait for {replicas} to be in sync"
        )
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if _without(replicas, state.replicas):
        after = replace(after, leader_epoch=state.leader_epoch + 1)
    return _with(topic, number, after, move)


def finish_move(topic: TopicImage, number: int, live: Collection[int]) -> TopicImage | None:
    """Return *topic* with the move of one partition done, or None while it cannot be.

    It is done when every broker that shall hold the partition is in sync, and one of them can lead.  One that held it
    before has to be in sync too: without any, an unclean election may be what put the others into the ISR.
    """
    state, move = topic.partitions[number], topic.moves[number]
    target = _without(state.replicas, move.removing)
    if not set(target) <= set(state.isr):
        return None
    if set(state.isr) <= set(move.adding):
        return None
    after = _restrict(state, target, live)
    if after is None or after.leader == NO_LEADER:
        return None
    return _with(topic, number, after, Move())


def _check(topic: str, number: int, state: PartitionImage, target: tuple[int, ...], live: Collection[int]) -> None:
    fault = ""
    unknown = sorted(set(target) - set(state.replicas) - set(live))
    if not target:
        fault = "the list of replicas is empty"
    elif len(set(target)) != len(target):
        fault = f"a broker is named twice in {list(target)}"
    elif min(target) < 0:
        fault = f"{min(target)} is no broker id"
    elif unknown:
        fault = f"no such broker is registered: {', '.join(map(str, unknown))}"
    if fault:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{topic}-{number}: {fault}")


def _restrict(state: PartitionImage, replicas: tuple[int, ...], live: Collection[int]) -> PartitionImage | None:
    """Return *state* with these replicas only, or None if none of them is in sync."""
    isr = tuple(broker for broker in state.isr if broker in replicas)
    if not isr:
        return None
    after = replace(state, replicas=replicas, isr=isr)
    return after if state.leader in isr or state.leader == NO_LEADER else elect(after, live)


def _with(topic: TopicImage, number: int, after: PartitionImage, move: Move) -> TopicImage:
    gone = _without(topic.partitions[number].replicas, after.replicas)
    leaving = _without((*topic.leaving.get(number, ()), *gone), after.replicas)
    moves = {key: one for key, one in {**topic.moves, number: move}.items() if one != Move()}
    left = {key: brokers for key, brokers in {**topic.leaving, number: leaving}.items() if brokers}
    return replace(topic, partitions={**topic.partitions, number: after}, moves=moves, leaving=left)


def _without(brokers: Sequence[int], others: Collection[int]) -> tuple[int, ...]:
    return tuple(broker for broker in dict.fromkeys(brokers) if broker not in others)

"""What the admin socket says of a broker."""

from collections.abc import Mapping
from typing import Any

from pylog.broker.partitions import Partition, Partitions
from pylog.model import NO_LEADER


def describe_partition(partition: Partition) -> dict[str, Any]:
    """Return one entry of /status."""
    log = partition.log
    is_offline = partition.is_offline
    row: dict[str, Any] = {
        "topic": partition.key.topic,
        "partition": partition.key.partition,
        "role": "offline" if is_offline else "leader" if partition.is_leader else "follower",
        "leader_epoch": partition.leader_epoch,
        "in_sync": not is_offline,
    }
    if log is not None:
        row |= {
            "log_start_offset": log.log_start_offset,
            "high_watermark": log.high_watermark,
            "log_end_offset": log.log_end_offset,
            "size_bytes": log.size_bytes,
        }
    if is_offline:
        row["reason"] = partition.fault or str(log.offline if log else "")
    return row


def readiness(partitions: Partitions, broker_id: int, *, is_registered: bool, has_image: bool) -> Mapping[str, Any]:
    """Return what /ready answers: ready only with every hosted partition led, and in sync here.

    "lacking" counts those that are not in sync here: whoever waits sees by it whether it goes on.
    """
    image = partitions.image
    reason, lacking = "", []
    if not is_registered:
        reason = "not registered: no session with the cluster store"
    elif not has_image:
        reason = "no cluster image yet: the controller has not been reached"
    else:
        lacking = [
            f"{topic.name}-{number}"
            for topic in image.topics.values()
            for number, state in topic.partitions.items()
            if broker_id in state.replicas
            and not _is_in_sync(partitions, broker_id, topic.name, number, state.isr)
            # What is only on its way here, others have; nobody waits for it.
            and not (number in topic.moves and broker_id in topic.moves[number].adding)
        ]
        leaderless = [
            f"{topic.name}-{number}"
            for topic in image.topics.values()
            for number, state in topic.partitions.items()
            if state.leader == NO_LEADER and broker_id in state.replicas
        ]
        if lacking:
            reason = f"{len(lacking)} partitions not in sync, first {lacking[0]}"
        elif leaderless:
            reason = f"{len(leaderless)} partitions without leader, first {leaderless[0]}"
    return {"ready": not reason, "reason": reason, "lacking": len(lacking)}


def _is_in_sync(partitions: Partitions, broker_id: int, topic: str, number: int, isr: tuple[int, ...]) -> bool:
    hosted = partitions.get(topic, number)
    return broker_id in isr and hosted is not None and not hosted.is_offline

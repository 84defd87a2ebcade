"""Which replicas a replication throttle holds for.

Source: KIP-73; the lists are Kafka's `leader.replication.throttled.replicas` and its follower's twin.
"""

from functools import lru_cache

ALL = "*"


@lru_cache(maxsize=1024)
def throttled_partitions(replicas: str, broker_id: int) -> frozenset[int] | None:
    """Return the partitions of which *broker_id*'s replica is in a list of throttled ones; None stands for all.

    Args:
        replicas: ``partition:broker,…``, or ``*``.
        broker_id: whose replicas.
    """
    if replicas == ALL:
        return None
    pairs = (part.split(":") for part in replicas.split(",") if part)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)

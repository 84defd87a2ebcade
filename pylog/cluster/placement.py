"""Which brokers hold a new partition: spread over racks first, then over hosts, then evenly over brokers."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from pylog.cluster.image import BrokerInfo
from pylog.errors import ApiError, ErrorCode


def place_replicas(
    brokers: Iterable[BrokerInfo], partition_count: int, replication_factor: int, start_index: int = 0
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of each partition from 0; the first is its preferred leader.

    The same arguments give the same answer.  Preferred leaders go round the brokers from *start_index* on, neighbours
    in that round standing in different racks and on different hosts.  Each further replica goes where the partition
    has least: rack before host, then to the broker that was given fewest.

    Args:
        brokers: candidates; a broker without rack shares one rack with all others without.
        partition_count: at least 1.
        replication_factor: replicas of each partition, 1 to the number of brokers.
        start_index: place in the round at which to begin; count it on from topic to topic.

    Raises:
        ApiError: INVALID_REPLICATION_FACTOR if it is below 1 or above the number of brokers.
    """
    ring = _spread(brokers)
    check_replication_factor(replication_factor, len(ring))
    given: Counter[int] = Counter()
    assignment: dict[int, tuple[int, ...]] = {}
    for partition in range(partition_count):
        first = (start_index + partition) % len(ring)
        chosen = [ring[first]]
        # Begin one further each time round, or the same pairs of brokers would meet again and again.
        turn = (start_index + partition) // len(ring)
        for _ in range(replication_factor - 1):
            chosen.append(_next_replica(ring, first + 1 + turn, chosen, given))
        given.update(broker.broker_id for broker in chosen)
        assignment[partition] = tuple(broker.broker_id for broker in chosen)
    return assignment


def check_replication_factor(replication_factor: int, broker_count: int) -> None:
    """Raise INVALID_REPLICATION_FACTOR unless as many brokers can each hold one replica."""
    if replication_factor < 1:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor is {replication_factor}; at least 1 is wanted"
        )
    if replication_factor > broker_count:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor is {replication_factor}, but only {broker_count} brokers are registered",
        )


def _next_replica(ring: list[BrokerInfo], begin: int, chosen: list[BrokerInfo], given: Counter[int]) -> BrokerInfo:
    racks = Counter(broker.rack for broker in chosen)
    hosts = Counter(_host(broker) for broker in chosen)
    taken = {broker.broker_id for broker in chosen}
    candidates = (
        (racks[broker.rack], hosts[_host(broker)], given[broker.broker_id], distance, broker)
        for distance in range(len(ring))
        if (broker := ring[(begin + distance) % len(ring)]).broker_id not in taken
    )
    return min(candidates, key=lambda candidate: candidate[:4])[4]


def _spread(brokers: Iterable[BrokerInfo]) -> list[BrokerInfo]:
    """Return the brokers so that neighbours differ in rack, and within a rack in host, as far as possible."""
    racks: defaultdict[str, defaultdict[str, list[BrokerInfo]]] = defaultdict(lambda: defaultdict(list))
    for broker in sorted(brokers, key=lambda broker: broker.broker_id):
        racks[broker.rack or ""][_host(broker)].append(broker)
    by_rack = [_round_robin(list(hosts.values())) for _, hosts in sorted(racks.items())]
    return _round_robin(by_rack)


def _round_robin(queues: list[list[BrokerInfo]]) -> list[BrokerInfo]:
    longest = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def _host(broker: BrokerInfo) -> str:
    # The internal listener is bound to a machine's own address; several instances on a machine share it.
    return broker.internal.host

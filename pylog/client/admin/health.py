"""Is the cluster healthy?  A judgement over what was seen, without asking anybody itself."""

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass

from pylog.client.admin.cluster import ClusterView, PartitionView
from pylog.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason not to be healthy.

    Attributes:
        kind: a fixed word for programs: no_controller, broker_missing, broker_silent, no_leader, not_in_sync,
            not_leading, not_ready, nowhere_else, unreachable, refused.
        subject: broker or partition.
        detail: found and wanted, for people.
    """

    kind: str
    subject: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What must hold beside the cluster's own needs.

    Attributes:
        broker_count: brokers that must be registered, at least.
        broker: id of a broker that must be registered and in every ISR it belongs to.
        is_leading: whether that broker must also lead the partitions that name it first.
        away: ids of brokers that may be lost: what the others hold must be complete without them.
    """

    broker_count: int = 1
    broker: int | None = None
    is_leading: bool = False
    away: Set[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Outage:
    """What clients cannot do with a partition while a broker is down.

    Attributes:
        broker: id of the broker.
        partition: topic and number.
        effect: ``offline``, or ``read-only`` for producers with ``acks=all``.
        detail: why, for people.
    """

    broker: int
    partition: str
    effect: str
    detail: str


def outages(view: ClusterView, brokers: Collection[int], min_isr: Mapping[str, int]) -> Iterator[Outage]:
    """Yield what the stop of each of *brokers*, one at a time, takes from clients.

    Args:
        view: the cluster's own metadata.
        brokers: ids of brokers that will stop.
        min_isr: topic -> min.insync.replicas; a topic with fewer replicas needs all of them.
    """
    for broker in sorted({*brokers}):
        for topic in view.topics.values():
            for partition in topic.partitions:
                if broker not in partition.isr:
                    continue
                name = str(TopicPartition(topic.name, partition.partition))
                left = [one for one in partition.isr if one != broker]
                needed = min(min_isr.get(topic.name, 1), len(partition.replicas))
                if not left:
                    yield Outage(broker, name, "offline", f"in sync on {broker} alone")
                elif len(left) < needed:
                    detail = (
                        f"{len(left)} of {len(partition.replicas)} replicas in sync, min.insync.replicas is {needed}"
                    )
                    yield Outage(broker, name, "read-only", detail)


def judge(
    view: ClusterView,
    answering: Set[int],
    wanted: Wanted,
    not_ready: str | None = None,
    arriving: Mapping[TopicPartition, Collection[int]] | None = None,
) -> list[Problem]:
    """Return every reason why the cluster is not as *wanted*; none means healthy.

    Args:
        view: the cluster's own metadata.
        answering: ids of brokers that answered a request themselves.
        wanted: what must hold.
        not_ready: why the wanted broker says it is not ready, if it was asked and is not.
        arriving: replicas of partitions on the move that need not be in sync yet.
    """
    problems = _broker_problems(view, answering, wanted)
    if not_ready is not None:
        problems.append(Problem("not_ready", f"broker {wanted.broker}", not_ready))
    for topic in view.topics.values():
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.partition)
            optional = wanted.away | {*(arriving or {}).get(name, ())}
            problems += _partition_problems(str(name), partition, wanted, optional)
    return problems


def _broker_problems(view: ClusterView, answering: Set[int], wanted: Wanted) -> list[Problem]:
    problems = []
    registered = {broker.node_id for broker in view.brokers}
    if view.controller_id not in registered:
        problems.append(Problem("no_controller", "cluster", f"controller is {view.controller_id}, no such broker"))
    if len(registered) < wanted.broker_count:
        problems.append(
            Problem("broker_missing", "cluster", f"{len(registered)} brokers registered, {wanted.broker_count} wanted")
        )
    if wanted.broker is not None and wanted.broker not in registered:
        found = ", ".join(map(str, sorted(registered))) or "none"
        problems.append(Problem("broker_missing", f"broker {wanted.broker}", f"not registered; registered: {found}"))
    problems += [
        Problem("broker_silent", f"broker {b.node_id}", f"registered, but {b.host}:{b.port} does not answer")
        for b in view.brokers
        if b.node_id not in answering | wanted.away
    ]
    return problems


def _partition_problems(name: str, partition: PartitionView, wanted: Wanted, optional: Set[int]) -> list[Problem]:
    if not partition.has_leader:
        return [Problem("no_leader", name, f"no leader; replicas {_ids(partition.replicas)}")]
    problems = []
    if partition.isr and wanted.away >= set(partition.isr):
        problems.append(
            Problem(
                "nowhere_else", name, f"in sync only on {_ids(partition.isr)}: whatever that loses, nobody else has"
            )
        )
    elif not optional | set(partition.isr) >= set(partition.replicas):
        problems.append(
            Problem("not_in_sync", name, f"in sync {_ids(partition.isr)}, replicas {_ids(partition.replicas)}")
        )
    if wanted.is_leading and partition.replicas[0] == wanted.broker != partition.leader:
        problems.append(Problem("not_leading", name, f"leader is {partition.leader}, preferred is {wanted.broker}"))
    return problems


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers)) or "none"

"""Is the cluster healthy?  A judgement over what was seen, without asking anybody itself."""

from collections.abc import Set
from dataclasses import dataclass

from pylog.client.admin import ClusterView, PartitionView


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason not to be healthy.

    Attributes:
        kind: a fixed word for programs: no_controller, broker_missing, broker_silent, no_leader, not_in_sync,
            not_leading, not_ready.
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
    """

    broker_count: int = 1
    broker: int | None = None
    is_leading: bool = False


def judge(view: ClusterView, answering: Set[int], wanted: Wanted, not_ready: str | None = None) -> list[Problem]:
    """Return every reason why the cluster is not as *wanted*; none means healthy.

    Args:
        view: the cluster's own metadata.
        answering: ids of brokers that answered a request themselves.
        wanted: what must hold.
        not_ready: why the wanted broker says it is not ready, if it was asked and is not.
    """
    problems = _broker_problems(view, answering, wanted)
    if not_ready is not None:
        problems.append(Problem("not_ready", f"broker {wanted.broker}", not_ready))
    for topic in view.topics.values():
        for partition in topic.partitions:
            problems += _partition_problems(f"{topic.name}-{partition.partition}", partition, wanted)
    return problems


def _broker_problems(view: ClusterView, answering: Set[int], wanted: Wanted) -> list[Problem]:
    problems = []
    registered = {broker.node_id for broker in view.brokers}
    if view.controller_id not in registered:
        problems.append(Problem("no_controller", "cluster", f"controller is {view.controller_id}, no such broker"))
    if len(registered) < wanted.broker_count:
        problems.append(Problem(
            "broker_missing", "cluster", f"{len(registered)} brokers registered, {wanted.broker_count} wanted"))
    if wanted.broker is not None and wanted.broker not in registered:
        found = ", ".join(map(str, sorted(registered))) or "none"
        problems.append(Problem("broker_missing", f"broker {wanted.broker}", f"not registered; registered: {found}"))
    problems += [
        Problem("broker_silent", f"broker {b.node_id}", f"registered, but {b.host}:{b.port} does not answer")
        for b in view.brokers if b.node_id not in answering
    ]
    return problems


def _partition_problems(name: str, partition: PartitionView, wanted: Wanted) -> list[Problem]:
    if not partition.has_leader:
        return [Problem("no_leader", name, f"no leader; replicas {_ids(partition.replicas)}")]
    problems = []
    if not partition.is_in_sync:
        problems.append(Problem(
            "not_in_sync", name, f"in sync {_ids(partition.isr)}, replicas {_ids(partition.replicas)}"))
    if wanted.is_leading and partition.replicas[0] == wanted.broker != partition.leader:
        problems.append(Problem("not_leading", name, f"leader is {partition.leader}, preferred is {wanted.broker}"))
    return problems


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers)) or "none"

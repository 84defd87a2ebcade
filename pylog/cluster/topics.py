"""From a request for a topic to the topic: names, counts, assignments, configs."""

import re
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pylog.cluster.election import elect_first
from pylog.cluster.image import BrokerInfo, TopicImage
from pylog.cluster.placement import check_replication_factor, place_replicas
from pylog.errors import ApiError, ConfigError, ErrorCode
from pylog.model import INTERNAL_TOPICS, MAX_TOPIC_NAME_LENGTH

BROKER_DEFAULT = -1
"""Partition count or replication factor that the cluster's default stands for."""

UNCLEAN_ELECTION = "unclean.leader.election.enable"
"""The one setting of a topic that the controller itself goes by."""

MAX_PARTITIONS = 10_000
"""Partitions of one topic: its assignment must fit one store node of 1 MiB, whatever a client asks for."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic somebody wants.

    Attributes:
        partitions: how many, or BROKER_DEFAULT; must be BROKER_DEFAULT with *assignments*.
        replication_factor: replicas of each, or BROKER_DEFAULT; must be BROKER_DEFAULT with *assignments*.
        assignments: brokers of each partition, the preferred leader first; None lets the cluster place them.
        configs: settings of the topic's own.
    """

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What the controller fills in where a request leaves it open.

    Attributes:
        num_partitions: partitions of a topic that names no number.
        replication_factor: replicas of a topic that names no number.
        check_configs: raises ConfigError for settings that no topic can have.
        unclean_elections: whether a partition without live ISR member may be led by another replica, where its topic
            does not say.
        unclean_recovery_wait_ms: how long a partition whose ISR members all stopped uncleanly waits for all of them.
    """

    num_partitions: int = 1
    replication_factor: int = 1
    check_configs: Callable[[Mapping[str, str | None]], None] = lambda configs: None
    unclean_elections: bool = False
    unclean_recovery_wait_ms: int = 300_000


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless *name* can be a directory, a store node and a topic."""
    fault = ""
    if not name:
        fault = "is empty"
    elif name in {".", ".."}:
        fault = "means a directory"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        fault = f"has {len(name)} characters; at most {MAX_TOPIC_NAME_LENGTH} are allowed"
    elif not _LEGAL_NAME.fullmatch(name):
        fault = "has a character other than a-z, A-Z, 0-9, '.', '_' and '-'"
    if fault:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:MAX_TOPIC_NAME_LENGTH]!r} {fault}")


def repeated_names(names: Iterable[str]) -> set[str]:
    """Return the names that occur more than once: which of them is meant cannot be told."""
    return {name for name, count in Counter(names).items() if count > 1}


def plan_topic(
    wanted: NewTopic, topic_id: uuid.UUID, brokers: Collection[BrokerInfo], config: ClusterConfig, start_index: int
) -> TopicImage:
    """Return the topic as it will be, with a leader for each partition.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT,
            INVALID_REQUEST (numbers beside an assignment) or INVALID_CONFIG.
    """
    check_topic_name(wanted.name)
    live = frozenset(broker.broker_id for broker in brokers)
    if wanted.assignments is not None:
        assignment = _check_assignments(wanted, wanted.assignments, live)
    else:
        assignment = _place(wanted, brokers, config, start_index)
    try:
        config.check_configs(wanted.configs)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return TopicImage(
        wanted.name,
        topic_id,
        {partition: elect_first(replicas, live) for partition, replicas in assignment.items()},
        {name: value for name, value in wanted.configs.items() if value is not None},
    )


def plan_growth(
    topic: TopicImage,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    brokers: Collection[BrokerInfo],
    start_index: int,
) -> TopicImage:
    """Return the topic with *count* partitions in all, the new ones with leaders.

    Args:
        topic: as it is.
        count: partitions it shall have.
        assignments: brokers of each new partition, the preferred leader first; None lets the cluster place them.
        brokers: registered now.
        start_index: where in the round of brokers to begin.

    Raises:
        ApiError: INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR or INVALID_REPLICA_ASSIGNMENT.
    """
    if topic.name in INTERNAL_TOPICS:
        message = f"{topic.name} keeps its partitions: with another number nothing in it would be found where it is"
        raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
    present = len(topic.partitions)
    if not present < count <= MAX_PARTITIONS:
        message = f"topic {topic.name!r} has {present} partitions; {present + 1} to {MAX_PARTITIONS} in all are allowed"
        raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
    live = frozenset(broker.broker_id for broker in brokers)
    factor = len(topic.partitions[0].replicas)
    if assignments is None:
        placed = list(place_replicas(brokers, count - present, factor, start_index).values())
    else:
        if len(assignments) != count - present or any(len(replicas) != factor for replicas in assignments):
            message = f"{count - present} new partitions with {factor} replicas each are to be assigned"
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        wanted = NewTopic(topic.name, assignments=dict(enumerate(assignments)))
        placed = list(_check_assignments(wanted, wanted.assignments or {}, live).values())
    new = {present + number: elect_first(replicas, live) for number, replicas in enumerate(placed)}
    return replace(topic, partitions={**topic.partitions, **new})


def _place(
    wanted: NewTopic, brokers: Collection[BrokerInfo], config: ClusterConfig, start_index: int
) -> dict[int, tuple[int, ...]]:
    count = config.num_partitions if wanted.partitions == BROKER_DEFAULT else wanted.partitions
    if not 1 <= count <= MAX_PARTITIONS:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"{count} partitions; 1 to {MAX_PARTITIONS} are allowed")
    factor = config.replication_factor if wanted.replication_factor == BROKER_DEFAULT else wanted.replication_factor
    check_replication_factor(factor, len(brokers))
    return place_replicas(brokers, count, factor, start_index)


def _check_assignments(
    wanted: NewTopic, assignments: Mapping[int, Sequence[int]], live: Collection[int]
) -> dict[int, tuple[int, ...]]:
    if wanted.partitions != BROKER_DEFAULT or wanted.replication_factor != BROKER_DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "partition count and replication factor must be -1 where replicas are assigned"
        )
    if not 1 <= len(assignments) <= MAX_PARTITIONS:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, f"{len(assignments)} partitions; 1 to {MAX_PARTITIONS} are allowed"
        )
    fault = ""
    if set(assignments) != set(range(len(assignments))):
        fault = f"partitions are not numbered from 0 to {len(assignments) - 1}"
    elif len({len(replicas) for replicas in assignments.values()}) > 1:
        fault = "partitions have different numbers of replicas"
    elif not all(assignments.values()):
        fault = "a partition has no replica"
    elif any(len(set(replicas)) < len(replicas) for replicas in assignments.values()):
        fault = "a broker is named twice in one partition"
    elif unknown := sorted({broker for replicas in assignments.values() for broker in replicas} - set(live)):
        fault = f"no such broker is registered: {', '.join(map(str, unknown))}"
    if fault:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)
    return {partition: tuple(replicas) for partition, replicas in sorted(assignments.items())}

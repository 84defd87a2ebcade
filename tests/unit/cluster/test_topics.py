"""What becomes of a request for a topic."""

import uuid
from collections.abc import Mapping

import pytest

from pylog.cluster.image import BrokerInfo, TopicImage
from pylog.cluster.topics import MAX_PARTITIONS, ClusterConfig, NewTopic, check_topic_name, plan_topic, repeated_names
from pylog.errors import ApiError, ConfigError, ErrorCode
from pylog.model import NodeAddress

ID = uuid.UUID(int=7)
CONFIG = ClusterConfig(num_partitions=2, replication_factor=2)
BROKERS = [
    BrokerInfo(number, 1, None, NodeAddress(number, f"h{number}", 9092), NodeAddress(number, f"h{number}", 9192))
    for number in (1, 2, 3)
]


def plan(topic: NewTopic, config: ClusterConfig = CONFIG) -> TopicImage:
    return plan_topic(topic, ID, BROKERS, config, start_index=0)


def refusal(topic: NewTopic, config: ClusterConfig = CONFIG) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        plan(topic, config)
    return refused.value.code


@pytest.mark.parametrize("name", ["a", "a.b_c-D9", "..a", "...", "x" * 249])
def test_a_legal_name_passes(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a/b", "a\0b", "a b", "ä", "a\n", "a:b", "/", "../x", "a,b"]
)
def test_an_illegal_name_is_refused(name: str) -> None:
    assert refusal(NewTopic(name)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_defaults_stand_in_for_open_numbers() -> None:
    topic = plan(NewTopic("t"))
    assert (topic.name, topic.topic_id) == ("t", ID)
    assert [len(partition.replicas) for partition in topic.partitions.values()] == [2, 2]


def test_every_partition_gets_a_leader_at_once() -> None:
    for partition in plan(NewTopic("t", 3, 3)).partitions.values():
        assert partition.leader == partition.replicas[0]
        assert partition.isr == partition.replicas
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


@pytest.mark.parametrize("count", [0, -2, MAX_PARTITIONS + 1, 2**31 - 1])
def test_a_partition_count_out_of_bounds_is_refused(count: int) -> None:
    assert refusal(NewTopic("t", count)) is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("factor", [0, -2, 4, 32767])
def test_a_replication_factor_out_of_bounds_is_refused(factor: int) -> None:
    assert refusal(NewTopic("t", 1, factor)) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_an_assignment_is_taken_as_it_is() -> None:
    topic = plan(NewTopic("t", assignments={1: [3, 1], 0: [2, 3]}))
    assert {number: partition.replicas for number, partition in topic.partitions.items()} == {0: (2, 3), 1: (3, 1)}
    assert list(topic.partitions) == [0, 1]


@pytest.mark.parametrize(
    "assignments", [{1: [1]}, {0: [1], 2: [1]}, {0: [1], 1: [1, 2]}, {0: [1, 1]}, {0: [9]}, {0: []}, {-1: [1], 0: [1]}]
)
def test_a_bad_assignment_is_refused(assignments: Mapping[int, list[int]]) -> None:
    assert refusal(NewTopic("t", assignments=assignments)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_assignment_without_partitions_is_refused() -> None:
    assert refusal(NewTopic("t", assignments={})) is ErrorCode.INVALID_PARTITIONS


def test_numbers_beside_an_assignment_are_refused() -> None:
    assert refusal(NewTopic("t", 1, assignments={0: [1]})) is ErrorCode.INVALID_REQUEST
    assert refusal(NewTopic("t", -1, 1, assignments={0: [1]})) is ErrorCode.INVALID_REQUEST


def test_configs_are_checked_and_kept() -> None:
    def check(configs: Mapping[str, str | None]) -> None:
        if "bad" in configs:
            raise ConfigError("bad: no such setting")

    config = ClusterConfig(check_configs=check)
    assert plan(NewTopic("t", configs={"retention.ms": "1000"}), config).configs == {"retention.ms": "1000"}
    assert refusal(NewTopic("t", configs={"bad": "1"}), config) is ErrorCode.INVALID_CONFIG


def test_names_given_twice_are_found() -> None:
    assert repeated_names(["a", "b", "a", "c", "c"]) == {"a", "c"}

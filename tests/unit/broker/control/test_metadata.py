"""Metadata and FindCoordinator answer with the addresses of the listener that the client came by."""

import asyncio
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.broker.control.cluster import TopicPolicy
from pylog.broker.control.metadata import handle_describe_cluster, handle_metadata
from pylog.broker.data.partitions import Partitions
from pylog.broker.groups.topic import OffsetsTopic
from pylog.broker.handler import Caller
from pylog.broker.quotas import Quotas
from pylog.broker.settings import parse_broker_settings
from pylog.broker.tasks import Tasks
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.cluster.quotas import CONTROLLER_MUTATION_RATE, QuotaEntity
from pylog.errors import ApiError, ErrorCode
from pylog.group.records import TOPIC
from pylog.log.directory import LogDirectory
from pylog.metrics import Metrics
from pylog.model import NodeAddress
from pylog.security.principal import Session
from pylog.wire.api.cluster import DescribeClusterRequest, DescribeClusterResponse
from pylog.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pylog.wire.api.topics import CreateTopicsRequest, CreateTopicsResponse


def open_at(broker_id: int) -> NodeAddress:
    return NodeAddress(broker_id, f"h{broker_id}", 9092)


def secured_at(broker_id: int) -> NodeAddress:
    return NodeAddress(broker_id, f"log{broker_id}.example", 9093)


IMAGE = ClusterImage(
    1,
    1,
    "c",
    1,
    {
        # The second listener comes with a rolling restart, which has reached broker 1.
        1: BrokerInfo(1, 1, "r", open_at(1), open_at(1), listeners={"client": open_at(1), "secured": secured_at(1)}),
        2: BrokerInfo(2, 2, None, open_at(2), open_at(2)),
    },
    {
        name: TopicImage(
            name, uuid.uuid4(), {0: PartitionImage(1, 0, (1, 2), (1, 2), 0), 1: PartitionImage(2, 0, (1, 2), (1, 2), 0)}
        )
        for name in ("t", TOPIC)
    },
)


def by(listener: str, version: int = 9) -> Caller:
    return Caller("c", Session(client_host="192.0.2.1", listener_name=listener), version)


def metadata(caller: Caller) -> MetadataResponse:
    cluster: Any = SimpleNamespace(partitions=SimpleNamespace(image=IMAGE), controller_id=1)
    answer = handle_metadata(cluster, MetadataRequest(topics=None), caller)
    assert isinstance(answer, MetadataResponse)
    return answer


def addresses(answer: MetadataResponse | DescribeClusterResponse) -> dict[Any, tuple[str, int]]:
    ids = "node_id" if isinstance(answer, MetadataResponse) else "broker_id"
    return {getattr(row, ids): (row.host, row.port) for row in answer.brokers}


def leaders(answer: MetadataResponse) -> dict[int, tuple[int, int]]:
    return {row.partition_index: (row.leader_id, row.error_code) for row in answer.topics[0].partitions}


def test_the_open_listener_shows_all_brokers() -> None:
    answer = metadata(by("client"))
    assert addresses(answer) == {1: ("h1", 9092), 2: ("h2", 9092)}
    assert leaders(answer) == {0: (1, ErrorCode.NONE), 1: (2, ErrorCode.NONE)}


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)])
def test_a_broker_without_the_listener_is_left_out(version: int, error: ErrorCode) -> None:
    answer = metadata(by("secured", version))
    assert addresses(answer) == {1: ("log1.example", 9093)}
    assert leaders(answer) == {0: (1, ErrorCode.NONE), 1: (-1, error)}
    assert [row.offline_replicas for row in answer.topics[0].partitions] == [[2], [2]]


def test_describe_cluster_does_the_same() -> None:
    cluster: Any = SimpleNamespace(partitions=SimpleNamespace(image=IMAGE), controller_id=1)
    answer = handle_describe_cluster(cluster, DescribeClusterRequest(), by("secured", 0))
    assert isinstance(answer, DescribeClusterResponse)
    assert addresses(answer) == {1: ("log1.example", 9093)}


def test_topics_that_are_made_because_they_are_missing_count_for_the_quota_of_mutations() -> None:
    quotas = Quotas(Metrics(), lambda: 1_000_000)
    quotas.learn({QuotaEntity(None, "c"): {CONTROLLER_MUTATION_RATE: 1.0}})
    muted_ms: list[int] = []
    connection: Any = SimpleNamespace(session=by("client").session, mute=muted_ms.append)
    asked: list[list[str]] = []

    async def ask_controller(request: CreateTopicsRequest) -> CreateTopicsResponse:
        asked.append([topic.name for topic in request.topics])
        return CreateTopicsResponse(topics=[])

    cluster: Any = SimpleNamespace(
        partitions=SimpleNamespace(image=IMAGE),
        controller_id=1,
        topic_policy=TopicPolicy(auto_create_topics_enable=True, delete_topic_enable=True, num_partitions=200),
        ask_controller=ask_controller,
    )

    async def ask(*names: str) -> list[int]:
        caller = by("client")._replace(meter=quotas.meter(connection, "c"))
        answer: Any = handle_metadata(
            cluster, MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]), caller
        )
        await asyncio.sleep(0)
        return [row.error_code for row in answer.topics]

    async def story() -> None:
        assert await ask("t") == [ErrorCode.NONE]
        assert muted_ms == []
        assert await ask("new", "newer") == [ErrorCode.LEADER_NOT_AVAILABLE] * 2
        assert len(muted_ms) == 1, "400 partitions at one a second"
        assert asked == [["new", "newer"]], "and they are made all the same"

    asyncio.run(story())


def test_a_coordinator_without_the_listener_is_not_available(tmp_path: Path) -> None:
    partitions = Partitions(LogDirectory.open(tmp_path, broker_id=3), 3, parse_broker_settings({}))
    partitions.switch(IMAGE, {})
    topic = OffsetsTopic(partitions, 2, 1, Tasks())
    of_1, of_2 = (next(g for g in map(str, range(99)) if topic.partition_of(g) == number) for number in (0, 1))
    assert topic.coordinator_of(of_1, "secured") == secured_at(1)
    assert topic.coordinator_of(of_2, "client") == open_at(2)
    with pytest.raises(ApiError, match="broker 2, has no listener secured") as refused:
        topic.coordinator_of(of_2, "secured")
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

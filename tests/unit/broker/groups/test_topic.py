"""When the topic that keeps groups is created."""

import asyncio
from pathlib import Path

import pytest

from pylog.broker.data.partitions import Partitions
from pylog.broker.groups.topic import OffsetsTopic
from pylog.broker.settings import parse_broker_settings
from pylog.broker.tasks import Tasks
from pylog.cluster.image import BrokerInfo, ClusterImage
from pylog.errors import ApiError, ErrorCode
from pylog.log.directory import LogDirectory
from pylog.model import NodeAddress
from pylog.wire.api.message import Request
from pylog.wire.api.topics import CreateTopicsRequest, CreateTopicsResponse


@pytest.mark.parametrize(("live", "factors"), [(2, []), (3, [3])])
def test_rule_16_it_waits_for_as_many_brokers_as_it_needs(tmp_path: Path, live: int, factors: list[int]) -> None:
    async def story() -> None:
        settings = parse_broker_settings({})
        partitions, tasks = Partitions(LogDirectory.open(tmp_path, broker_id=1), 1, settings), Tasks()
        address = NodeAddress(1, "h1", 9092)
        brokers = {one: BrokerInfo(one, one, None, address, address) for one in range(1, live + 1)}
        partitions.switch(ClusterImage(1, 1, "c", 1, brokers, {}), {})
        topic = OffsetsTopic(partitions, 50, 3, tasks)
        asked: list[int] = []

        async def controller(request: Request) -> CreateTopicsResponse:
            assert isinstance(request, CreateTopicsRequest)
            asked.extend(topic.replication_factor for topic in request.topics)
            return CreateTopicsResponse(topics=[])

        topic.create(controller)
        await asyncio.gather(*tasks._running)
        assert asked == factors
        with pytest.raises(ApiError) as found:
            topic.coordinator_of("g", "client")
        assert found.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(story())

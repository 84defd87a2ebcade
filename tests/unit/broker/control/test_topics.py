"""CreateTopics at a controller that was elected a moment ago."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.broker.clock import steady_ms
from pylog.broker.control import topics
from pylog.broker.control.controller import TopicResult
from pylog.broker.control.topics import REGISTRATION_WAIT_MS
from pylog.cluster.image import BrokerInfo, ClusterImage
from pylog.errors import ErrorCode
from pylog.model import NodeAddress
from pylog.wire.api.topics import CreatableTopic, CreateTopicsRequest

ADDRESS = NodeAddress(1, "h", 9092)


class Registering:
    """A controller with one broker; another one registers as soon as it is waited for."""

    def __init__(self, age_ms: int, *, is_alone: bool = False) -> None:
        self.is_alone = is_alone
        self.images = self
        self.waits = 0
        self.brokers = 1
        self._controller = SimpleNamespace(elected_ms=steady_ms() - age_ms)

    @property
    def image(self) -> ClusterImage:
        brokers = {number: BrokerInfo(number, 7, None, ADDRESS, ADDRESS) for number in range(self.brokers)}
        return ClusterImage(1, self.brokers, "c", 1, brokers, {})

    async def wait_until(self, condition: Callable[[ClusterImage], bool], timeout_s: float) -> bool:
        assert 0 < timeout_s <= REGISTRATION_WAIT_MS / 1000
        self.waits += 1
        self.brokers += 1
        return condition(self.image)

    async def run(self, operation: Callable[[Any], Any]) -> Any:  # whatever the operation returns
        return operation(self._controller)


def create(registering: Registering, monkeypatch: pytest.MonkeyPatch, factor: int) -> ErrorCode:
    def create_topics(controller: object, **arguments: Any) -> list[TopicResult]:
        enough = registering.brokers >= factor
        return [TopicResult("t", ErrorCode.NONE if enough else ErrorCode.INVALID_REPLICATION_FACTOR)]

    monkeypatch.setattr(topics, "create_topics", create_topics)
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=factor)])
    context: Any = registering
    answer: Any = asyncio.run(topics.CREATE.execute(context, request))  # type: ignore[arg-type]  # it is a coroutine
    return ErrorCode(answer.topics[0].error_code)


def test_a_new_controller_waits_for_brokers_that_register(monkeypatch: pytest.MonkeyPatch) -> None:
    registering = Registering(age_ms=0)
    assert create(registering, monkeypatch, 3) is ErrorCode.NONE
    assert registering.waits == 2


@pytest.mark.parametrize(("age_ms", "is_alone"), [(REGISTRATION_WAIT_MS, False), (0, True)])
def test_otherwise_a_replication_factor_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, age_ms: int, is_alone: bool
) -> None:
    registering = Registering(age_ms, is_alone=is_alone)
    assert create(registering, monkeypatch, 3) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert registering.waits == 0

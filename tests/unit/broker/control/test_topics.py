"""CreateTopics at a controller that was elected a moment ago."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.broker.clock import steady_ms
from pylog.broker.control import topics
from pylog.broker.control.controller import TopicResult
from pylog.broker.control.topics import REGISTRATION_WAIT_MS
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.errors import ErrorCode
from pylog.model import NodeAddress
from pylog.wire.api import Message
from pylog.wire.api.schema import NO_TOPIC_ID
from pylog.wire.api.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState

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


class Forwarding:
    """A broker whose image is behind the controller's; it keeps what it forwards."""

    def __init__(self, controller: ClusterImage) -> None:
        self.controller = controller
        self.partitions = SimpleNamespace(image=image_of(OLD))
        self.topic_policy = SimpleNamespace(delete_topic_enable=True)

    async def ask_controller(self, request: DeleteTopicsRequest) -> Message:
        async def run(operation: Any) -> list[TopicResult]:  # a partial function
            return [TopicResult(topic.name, topic_id=topic.topic_id) for topic in operation.keywords["topics"]]

        # As the request comes out of the frame in which it is forwarded.
        frame = request.encode(6, b"")
        context: Any = SimpleNamespace(image=self.controller, run=run)
        return await topics.DELETE.execute(context, DeleteTopicsRequest.decode(6, memoryview(frame)))


OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)
EVERYBODY = SimpleNamespace(meter=None, version=6, subject=None, may_topic=lambda operation, name: True)


def image_of(topic_id: uuid.UUID) -> ClusterImage:
    state = PartitionImage(1, 0, (1,), (1,), 0)
    return ClusterImage(1, 1, "c", 1, {}, {"t": TopicImage("t", topic_id, {0: state})})


def delete(controller: ClusterImage, *names: str) -> list[tuple[str | None, uuid.UUID, ErrorCode]]:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
    cluster: Any = Forwarding(controller)
    caller: Any = EVERYBODY
    answer: Any = topics.handle_delete(cluster, request, caller)
    rows = asyncio.run(answer).responses
    return [(row.name, row.topic_id, ErrorCode(row.error_code)) for row in rows]


def test_a_deletion_by_name_means_the_topic_that_the_broker_knew_when_it_was_asked() -> None:
    assert delete(image_of(OLD), "t") == [("t", OLD, ErrorCode.NONE)]
    assert delete(image_of(NEW), "t") == [("t", NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_a_deletion_of_a_topic_that_the_broker_does_not_know_yet_goes_by_name() -> None:
    other = replace(image_of(NEW), topics={"u": replace(image_of(NEW).topics["t"], name="u")})
    assert delete(other, "u") == [("u", NEW, ErrorCode.NONE)]

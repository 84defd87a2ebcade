"""Requests to a controller that goes away."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pylog.broker.control.link import CONTROLLER_APIS, ControllerLink
from pylog.broker.settings import parse_broker_settings
from pylog.cluster.image import ClusterImage
from pylog.errors import ApiError, ErrorCode
from pylog.model import NodeAddress
from pylog.wire.api import SERVED, ApiKey, Message, encode_response, parse_request_header
from pylog.wire.api.configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ResourceType,
)
from pylog.wire.api.message import Request
from pylog.wire.api.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramDeletion,
    ScramUpsertion,
)
from pylog.wire.api.topics import DeleteTopicsRequest, DeleteTopicState
from pylog.wire.internal import InternalKey, InternalRequest, Pull, encode_pull

FIRST, SECOND = NodeAddress(2, "h2", 9192), NodeAddress(3, "h3", 9192)


class Peers:
    """Controllers: the first dies while it is asked, the second answers."""

    def __init__(self) -> None:
        self.asked: list[NodeAddress] = []
        self.link: Any = None

    def close(self) -> None:
        pass

    async def call(self, address: NodeAddress, key: InternalKey, frame: bytes, timeout_s: float) -> bytes:
        self.asked.append(address)
        if address == FIRST:
            self.link.follow(None, is_self=False)
            self.link.follow(SECOND, is_self=False)
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, "the connection was closed")
        header = parse_request_header(memoryview(frame))
        row = AlterConfigsResourceResponse(resource_type=ResourceType.BROKER, resource_name="1")
        answer = IncrementalAlterConfigsResponse(responses=[row])
        return encode_response(answer, header.correlation_id, header.api_version)


def ask(request: Request) -> tuple[Message, list[NodeAddress]]:
    async def story() -> tuple[Message, list[NodeAddress]]:
        async def wait_until(condition: object, timeout_s: float) -> bool:
            return True

        peers = Peers()
        images: Any = SimpleNamespace(current=ClusterImage(1, 1, "c", 3, {}, {}), wait_until=wait_until)
        agent: Any = None
        client: Any = peers
        peers.link = link = ControllerLink(1, agent, images, client, parse_broker_settings({}))
        link.follow(FIRST, is_self=False)
        try:
            return await link.ask(request), peers.asked
        except ApiError as error:
            assert peers.asked == [FIRST], "not repeated"
            raise error from None

    return asyncio.run(story())


def test_a_change_of_settings_is_sent_again_to_the_next_controller() -> None:
    resource = IncrementalAlterConfigsResource(resource_type=ResourceType.BROKER, resource_name="1", configs=[])
    answer, asked = ask(IncrementalAlterConfigsRequest(resources=[resource]))
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE
    assert asked == [FIRST, SECOND]


def test_a_deletion_is_not_sent_again_because_the_topic_may_be_gone() -> None:
    with pytest.raises(ApiError) as refused:
        ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert refused.value.code is ErrorCode.NETWORK_EXCEPTION


@pytest.mark.parametrize(
    ("host", "is_encrypted", "is_sent"),
    [("192.0.2.2", False, False), ("192.0.2.2", True, True), ("127.0.0.1", False, True)],
)
def test_a_salted_password_goes_to_the_controller_by_tls_alone(host: str, is_encrypted: bool, is_sent: bool) -> None:
    controller = NodeAddress(3, host, 9192)
    upsertion = ScramUpsertion(name="carol", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32)

    class Controller(Peers):
        async def call(self, address: NodeAddress, key: InternalKey, frame: bytes, timeout_s: float) -> bytes:
            self.asked.append(address)
            header = parse_request_header(memoryview(frame))
            return encode_response(AlterUserScramCredentialsResponse(), header.correlation_id, header.api_version)

    async def story(request: AlterUserScramCredentialsRequest) -> list[NodeAddress]:
        async def wait_until(condition: object, timeout_s: float) -> bool:
            return True

        peers: Any = Controller()
        images: Any = SimpleNamespace(current=ClusterImage(1, 1, "c", 3, {}, {}), wait_until=wait_until)
        agent: Any = None
        settings = parse_broker_settings({})
        link = ControllerLink(1, agent, images, peers, settings, calls_by_tls=lambda: is_encrypted)
        link.follow(controller, is_self=False)
        await link.ask(request)
        asked: list[NodeAddress] = peers.asked
        return asked

    deletion = ScramDeletion(name="carol", mechanism=1)
    assert asyncio.run(story(AlterUserScramCredentialsRequest(deletions=[deletion]))) == [controller]
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    if is_sent:
        assert asyncio.run(story(request)) == [controller]
    else:
        with pytest.raises(ApiError, match="calls the controller, broker 3, unencrypted") as refused:
            asyncio.run(story(request))
        assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_every_verb_of_the_controller_is_served_and_answers_its_own_request() -> None:
    for key, row in CONTROLLER_APIS.items():
        assert key in SERVED
        assert row.request.api_key is row.response.api_key is key
    repeatable = {key for key, row in CONTROLLER_APIS.items() if row.is_repeatable}
    assert not repeatable & {ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ELECT_LEADERS}


def test_rule_1_a_puller_with_a_later_image_ends_the_office() -> None:
    async def story() -> None:
        async def news(order: tuple[int, int], wait_ms: int, format_version: int) -> bytes:
            return b"news"

        images: Any = SimpleNamespace(current=ClusterImage(4, 1, "c", 1, {}, {}), news=news)
        agent: Any = SimpleNamespace(note_asked=lambda: None)
        client: Any = Peers()
        link = ControllerLink(1, agent, images, client, parse_broker_settings({}))
        ended: list[str] = []
        link.on_later_epoch = ended.append
        link.follow(FIRST, is_self=True, epoch=4)
        assert (
            await link.answer(InternalRequest(InternalKey.PULL_IMAGE, 1, encode_pull(Pull(2, 4, 1, 0), 2), 2))
            == b"news"
        )
        assert not ended
        with pytest.raises(ApiError) as refused:
            await link.answer(InternalRequest(InternalKey.PULL_IMAGE, 2, encode_pull(Pull(2, 5, 1, 0), 2), 2))
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert ended == ["broker 2 has an image of controller epoch 5, ours is 4"]

    asyncio.run(story())

"""Requests of the group APIs that no sound client sends: the right error, and a coordinator that goes on."""

import asyncio
from collections.abc import Sequence

import pytest

from pylog.client.admin.cluster import Admin
from pylog.errors import ConfigError, ErrorCode
from pylog.testing import BrokerProcess
from pylog.wire.api.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pylog.wire.api.message import Message, Request
from tests.consumers.test_storm import coordinate
from tests.kafka_client import Link


@pytest.fixture(scope="module")
def address(broker: BrokerProcess) -> tuple[str, int]:
    """Of a broker that is a coordinator."""
    coordinate(broker.bootstrap)
    host, port = broker.bootstrap.split(":")
    return host, int(port)


def ask(address: tuple[str, int], *requests: tuple[Request, type[Message]]) -> list[Message]:
    """Send requests over one connection."""

    async def go() -> list[Message]:
        link = Link(address)
        await link.connect()
        try:
            return [await link.call(request, answer) for request, answer in requests]
        finally:
            link.close()

    return asyncio.run(go())


def join(
    group: str = "g",
    *,
    instance: str | None = None,
    kind: str = "consumer",
    protocols: Sequence[str] = ("range",),
    member: str = "",
    session_ms: int = 1000,
) -> tuple[Request, type[Message]]:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=1000,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=b"\xff") for name in protocols],
    ), JoinGroupResponse


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (join(""), ErrorCode.INVALID_GROUP_ID),
        (join("g" * 8192), ErrorCode.INVALID_GROUP_ID),
        (join(instance="i" * 256), ErrorCode.INVALID_REQUEST),
        (join(kind="k" * 256), ErrorCode.INVALID_REQUEST),
        (join(protocols=["p" * 256]), ErrorCode.INVALID_REQUEST),
        (join(protocols=[]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join(kind=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join(member="made up"), ErrorCode.UNKNOWN_MEMBER_ID),
        (join(session_ms=-1), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join(session_ms=2**31 - 1), ErrorCode.INVALID_SESSION_TIMEOUT),
        (
            (SyncGroupRequest(group_id="g", generation_id=1, member_id="m"), SyncGroupResponse),
            ErrorCode.UNKNOWN_MEMBER_ID,
        ),
        (
            (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), HeartbeatResponse),
            ErrorCode.UNKNOWN_MEMBER_ID,
        ),
        (
            (HeartbeatRequest(group_id="", generation_id=1, member_id="m"), HeartbeatResponse),
            ErrorCode.INVALID_GROUP_ID,
        ),
        (
            (LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]), LeaveGroupResponse),
            ErrorCode.UNKNOWN_MEMBER_ID,
        ),
    ],
)
def test_each_fault_has_its_error(
    address: tuple[str, int], request_: tuple[Request, type[Message]], code: ErrorCode
) -> None:
    (answer,) = ask(address, request_)
    assert getattr(answer, "error_code") == code  # noqa: B009


def test_a_subscription_that_cannot_be_parsed_is_passed_on_as_it_is(address: tuple[str, int]) -> None:
    (answer,) = ask(address, join("odd", instance="i", protocols=["range"]))
    assert isinstance(answer, JoinGroupResponse)
    assert answer.error_code == ErrorCode.NONE
    assert [one.metadata for one in answer.members] == [b"\xff"]


def test_topics_that_cannot_be_joined_record_by_record_are_named_with_their_partitions(broker: BrokerProcess) -> None:
    admin = Admin(broker.bootstrap)
    for name, count in (("left", 2), ("right", 3), ("other", 2)):
        admin.create_topic(name, partitions=count, replication_factor=1)
    assert admin.check_co_partitioned("left", "other") == 2
    with pytest.raises(ConfigError, match="'left' has 2, 'right' has 3 partitions; wanted as many in each"):
        admin.check_co_partitioned("left", "right")

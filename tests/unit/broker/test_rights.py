"""Every API asks for the rights of its client, for each name that it touches, before it says whether there is one."""

import asyncio
import dataclasses
import logging
import socket
import struct
import threading
import uuid
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from pylog.broker.broker import Broker
from pylog.broker.settings import ACL_AUTHORIZER
from pylog.broker.watchdog import Watchdog
from pylog.config import standalone_config
from pylog.errors import ErrorCode
from pylog.log.directory import LogDirectory
from pylog.net.connection import Connection
from pylog.security.acl import Entry, Operation, Pattern, PatternType, Permission, ResourceType
from pylog.security.authorizer import Decision
from pylog.security.principal import Principal, Session
from pylog.wire.api import SERVED, ApiKey
from pylog.wire.api.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from pylog.wire.api.cluster import DescribeClusterRequest, DescribeClusterResponse, DescribeLogDirsRequest
from pylog.wire.api.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from pylog.wire.api.coordinator import TRANSACTION, FindCoordinatorRequest
from pylog.wire.api.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from pylog.wire.api.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    SyncGroupRequest,
)
from pylog.wire.api.message import Message, Request
from pylog.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pylog.wire.api.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pylog.wire.api.operations import NOT_ASKED
from pylog.wire.api.partitions import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    TopicPartitions,
)
from pylog.wire.api.producers import DescribeProducersRequest, DescribeProducersTopic, InitProducerIdRequest
from pylog.wire.api.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest, QuotaChange, QuotaEntity
from pylog.wire.api.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from pylog.wire.api.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramDeletion,
)
from pylog.wire.api.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from pylog.wire.api.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    MarkerTopic,
    TransactionMarker,
    TransactionTopic,
    TxnOffset,
    TxnOffsetCommitRequest,
    TxnOffsetTopic,
    WriteTxnMarkersRequest,
)
from pylog.wire.api.versions import ApiVersionsRequest
from pylog.wire.records import Record, encode_batch

T = TypeVar("T")

WAIT_S = 60.0
DENIALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
NOBODY_THERE = "no-such-topic"
"""A topic that is not there: who may not see it must not learn that."""


class Right(NamedTuple):
    operation: Operation
    resource_type: ResourceType
    name: str


def topic(operation: Operation, name: str = "t") -> Right:
    return Right(operation, ResourceType.TOPIC, name)


def group(operation: Operation) -> Right:
    return Right(operation, ResourceType.GROUP, "g")


def transaction(operation: Operation) -> Right:
    return Right(operation, ResourceType.TRANSACTIONAL_ID, "x")


def cluster(operation: Operation) -> Right:
    return Right(operation, ResourceType.CLUSTER, "kafka-cluster")


class Row(NamedTuple):
    """A request, the rights that it needs, and the error of who has none of them."""

    request: Request | bytes
    rights: tuple[Right, ...]
    denied: ErrorCode
    version: int = -1


def _produce(batch: bytes = b"") -> bytes:
    batch = batch or encode_batch([Record(0, 1_700_000_000_000, b"key", b"value")])
    head = struct.pack(">hhiih", -1, 1, 1000, 1, 1) + b"t"
    return head + struct.pack(">iii", 1, 0, len(batch)) + batch


def _fetch() -> bytes:
    return struct.pack(">iiiibih", -1, 1, 1, 1000, 0, 1, 1) + b"t" + struct.pack(">iiqi", 1, 0, 0, 1000)


TOPIC, GROUP, CLUSTER, ID_DENIED = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_TRANSACTION: dict[str, Any] = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}
_ACL: dict[str, Any] = {"principal": "User:x", "host": "*", "operation": 3, "permission_type": 3}
_ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 2,
    "resource_name_filter": "nothing",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}

ROWS: dict[ApiKey, Row] = {
    ApiKey.PRODUCE: Row(_produce(), (topic(Operation.WRITE),), TOPIC, 3),
    ApiKey.FETCH: Row(_fetch(), (topic(Operation.READ),), TOPIC, 4),
    ApiKey.LIST_OFFSETS: Row(
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(name=NOBODY_THERE, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
            ],
        ),
        (topic(Operation.DESCRIBE, NOBODY_THERE),),
        TOPIC,
    ),
    ApiKey.METADATA: Row(
        MetadataRequest(topics=[MetadataRequestTopic(name=NOBODY_THERE)], allow_auto_topic_creation=False),
        (topic(Operation.DESCRIBE, NOBODY_THERE),),
        TOPIC,
    ),
    ApiKey.OFFSET_COMMIT: Row(
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
                )
            ],
        ),
        (group(Operation.READ), topic(Operation.READ)),
        GROUP,
    ),
    ApiKey.OFFSET_FETCH: Row(
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g", topics=[OffsetFetchRequestTopic(name=NOBODY_THERE, partition_indexes=[0])]
                )
            ]
        ),
        (group(Operation.DESCRIBE), topic(Operation.DESCRIBE, NOBODY_THERE)),
        GROUP,
    ),
    ApiKey.FIND_COORDINATOR: Row(FindCoordinatorRequest(coordinator_keys=["g"]), (group(Operation.DESCRIBE),), GROUP),
    ApiKey.JOIN_GROUP: Row(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        (group(Operation.READ),),
        GROUP,
    ),
    ApiKey.HEARTBEAT: Row(
        HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), (group(Operation.READ),), GROUP
    ),
    ApiKey.LEAVE_GROUP: Row(
        LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]), (group(Operation.READ),), GROUP
    ),
    ApiKey.SYNC_GROUP: Row(
        SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]),
        (group(Operation.READ),),
        GROUP,
    ),
    ApiKey.DESCRIBE_GROUPS: Row(DescribeGroupsRequest(groups=["g"]), (group(Operation.DESCRIBE),), GROUP),
    # A list leaves out: see the test of lists.
    ApiKey.LIST_GROUPS: Row(ListGroupsRequest(), (), ErrorCode.NONE),
    ApiKey.API_VERSIONS: Row(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), (), ErrorCode.NONE
    ),
    ApiKey.CREATE_TOPICS: Row(
        CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]),
        (topic(Operation.CREATE),),
        TOPIC,
    ),
    ApiKey.DELETE_TOPICS: Row(
        DeleteTopicsRequest(topics=[DeleteTopicState(name=NOBODY_THERE)]),
        (topic(Operation.DELETE, NOBODY_THERE),),
        TOPIC,
    ),
    ApiKey.DELETE_RECORDS: Row(
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])]
        ),
        (topic(Operation.DELETE),),
        TOPIC,
    ),
    # Either of two rights will do; the other one has a test of its own.
    ApiKey.INIT_PRODUCER_ID: Row(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        (cluster(Operation.IDEMPOTENT_WRITE),),
        CLUSTER,
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Row(
        AddPartitionsToTxnRequest(**_TRANSACTION, topics=[TransactionTopic(name=NOBODY_THERE, partitions=[0])]),
        (transaction(Operation.WRITE), topic(Operation.WRITE, NOBODY_THERE)),
        ID_DENIED,
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Row(
        AddOffsetsToTxnRequest(**_TRANSACTION, group_id="g"),
        (transaction(Operation.WRITE), group(Operation.READ)),
        ID_DENIED,
    ),
    ApiKey.END_TXN: Row(EndTxnRequest(**_TRANSACTION, committed=True), (transaction(Operation.WRITE),), ID_DENIED),
    ApiKey.TXN_OFFSET_COMMIT: Row(
        TxnOffsetCommitRequest(
            **_TRANSACTION,
            group_id="g",
            topics=[TxnOffsetTopic(name=NOBODY_THERE, partitions=[TxnOffset(partition_index=0, committed_offset=0)])],
        ),
        (transaction(Operation.WRITE), group(Operation.READ), topic(Operation.READ, NOBODY_THERE)),
        ID_DENIED,
    ),
    # Alter will do as well; it has a test of its own.
    ApiKey.WRITE_TXN_MARKERS: Row(
        WriteTxnMarkersRequest(
            markers=[
                TransactionMarker(
                    producer_id=1,
                    producer_epoch=0,
                    transaction_result=False,
                    topics=[MarkerTopic(name=NOBODY_THERE, partition_indexes=[0])],
                    coordinator_epoch=0,
                )
            ]
        ),
        (cluster(Operation.CLUSTER_ACTION),),
        CLUSTER,
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Row(
        DescribeTransactionsRequest(transactional_ids=["x"]), (transaction(Operation.DESCRIBE),), ID_DENIED
    ),
    # A list leaves out.
    ApiKey.LIST_TRANSACTIONS: Row(ListTransactionsRequest(), (), ErrorCode.NONE),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Row(
        OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic=NOBODY_THERE,
                    partitions=[OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)],
                )
            ],
        ),
        (topic(Operation.DESCRIBE, NOBODY_THERE),),
        TOPIC,
    ),
    ApiKey.DESCRIBE_ACLS: Row(DescribeAclsRequest(**_ANY_ACL), (cluster(Operation.DESCRIBE),), CLUSTER),
    ApiKey.CREATE_ACLS: Row(
        CreateAclsRequest(
            creations=[AclCreation(resource_type=3, resource_name="unused", resource_pattern_type=3, **_ACL)]
        ),
        (cluster(Operation.ALTER),),
        CLUSTER,
    ),
    ApiKey.DELETE_ACLS: Row(
        DeleteAclsRequest(filters=[DeleteAclsFilter(**_ANY_ACL)]), (cluster(Operation.ALTER),), CLUSTER
    ),
    ApiKey.DESCRIBE_CONFIGS: Row(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=2, resource_name=NOBODY_THERE, configuration_keys=None),
            ]
        ),
        (topic(Operation.DESCRIBE_CONFIGS, NOBODY_THERE),),
        TOPIC,
    ),
    ApiKey.ALTER_CONFIGS: Row(
        AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name=NOBODY_THERE, configs=[])]),
        (topic(Operation.ALTER_CONFIGS, NOBODY_THERE),),
        TOPIC,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Row(
        IncrementalAlterConfigsRequest(
            resources=[IncrementalAlterConfigsResource(resource_type=4, resource_name="0", configs=[])]
        ),
        (cluster(Operation.ALTER_CONFIGS),),
        CLUSTER,
    ),
    ApiKey.DESCRIBE_LOG_DIRS: Row(DescribeLogDirsRequest(), (cluster(Operation.DESCRIBE),), CLUSTER),
    ApiKey.CREATE_PARTITIONS: Row(
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=NOBODY_THERE, count=2)]),
        (topic(Operation.ALTER, NOBODY_THERE),),
        TOPIC,
    ),
    ApiKey.DELETE_GROUPS: Row(DeleteGroupsRequest(groups_names=["g"]), (group(Operation.DELETE),), GROUP),
    ApiKey.ELECT_LEADERS: Row(
        ElectLeadersRequest(election_type=0, topic_partitions=[TopicPartitions(topic="t", partitions=[0])]),
        (cluster(Operation.ALTER),),
        CLUSTER,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Row(
        AlterPartitionReassignmentsRequest(topics=[]), (cluster(Operation.ALTER),), CLUSTER
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Row(
        ListPartitionReassignmentsRequest(topics=None), (cluster(Operation.DESCRIBE),), CLUSTER
    ),
    ApiKey.OFFSET_DELETE: Row(
        OffsetDeleteRequest(
            group_id="kept",
            topics=[OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
        ),
        (Right(Operation.DELETE, ResourceType.GROUP, "kept"), topic(Operation.READ)),
        GROUP,
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Row(
        DescribeClientQuotasRequest(components=[]), (cluster(Operation.DESCRIBE_CONFIGS),), CLUSTER
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Row(
        AlterClientQuotasRequest(
            entries=[QuotaChange(entity=[QuotaEntity(entity_type="user", entity_name="u")], ops=[])],
            validate_only=True,
        ),
        (cluster(Operation.ALTER_CONFIGS),),
        CLUSTER,
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Row(
        DescribeUserScramCredentialsRequest(), (cluster(Operation.DESCRIBE),), CLUSTER
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Row(
        AlterUserScramCredentialsRequest(deletions=[ScramDeletion(name="nobody", mechanism=1)]),
        (cluster(Operation.ALTER),),
        CLUSTER,
    ),
    # A login comes before there is anybody who could have a right.
    ApiKey.SASL_HANDSHAKE: Row(SaslHandshakeRequest(mechanism="PLAIN"), (), ErrorCode.NONE),
    ApiKey.SASL_AUTHENTICATE: Row(SaslAuthenticateRequest(auth_bytes=b""), (), ErrorCode.NONE),
    # Whoever has logged in sees the brokers.
    ApiKey.DESCRIBE_CLUSTER: Row(DescribeClusterRequest(), (), ErrorCode.NONE),
    ApiKey.DESCRIBE_PRODUCERS: Row(
        DescribeProducersRequest(topics=[DescribeProducersTopic(name=NOBODY_THERE, partition_indexes=[0])]),
        (topic(Operation.READ, NOBODY_THERE),),
        TOPIC,
    ),
}


class Desk:
    """A standalone broker on a loop of its own thread, asked as a connection asks it."""

    def __init__(self, directory: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._number = 0
        self.run(self._start(directory))
        self.noted: list[Decision] = []
        authorizer = self.broker.authorizer
        assert authorizer is not None
        self.authorizer = authorizer
        count = authorizer.note

        def note(decision: Decision) -> None:
            self.noted.append(decision)
            count(decision)

        authorizer.note = note

    async def _start(self, directory: Path) -> None:
        overrides = {
            "auto.create.topics.enable": "true",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "authorizer.class.name": ACL_AUTHORIZER,
            "super.users": "User:root",
        }
        config = standalone_config(directory, port=0, overrides=overrides)
        self.broker = Broker(config, LogDirectory.open(directory, broker_id=0), asyncio.Event())
        self.broker._watchdog = Watchdog(3600, self.broker.metrics)
        await self.broker.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def close(self) -> None:
        self.run(self.broker.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def user(self, *rights: Right) -> str:
        """Return the name of a new user who has these rights and no other."""
        self._number += 1
        name = f"user-{self._number}"
        acls: dict[Pattern, tuple[Entry, ...]] = {}
        for one in rights:
            pattern = Pattern(one.resource_type, PatternType.LITERAL, one.name)
            acls[pattern] = (
                *acls.get(pattern, self.authorizer.rules.acls.get(pattern, ())),
                Entry(f"User:{name}", "*", one.operation, Permission.ALLOW),
            )
        self._call(self.authorizer.learn, acls)
        return name

    def forget(self, name: str) -> None:
        """Take all rights of a user away."""
        acls = self.authorizer.rules.acls
        changed = {
            pattern: tuple(entry for entry in entries if entry.principal != f"User:{name}")
            for pattern, entries in acls.items()
        }
        self._call(self.authorizer.learn, changed)

    def _call(self, work: Any, *arguments: Any) -> Any:
        async def call() -> Any:
            return work(*arguments)

        return self.run(call())

    def ask(self, user: str, request: Request | bytes, key: ApiKey, version: int = -1) -> tuple[bytes, set[ErrorCode]]:
        """Return the answer's frame, and the errors that are counted for it."""
        self.noted.clear()
        before = self._errors(key)
        reply = self.run(self._ask(user, request, key, version))
        return reply, {error for error, count in self._errors(key).items() if count != before.get(error, 0)}

    def answer(self, user: str, request: Request, response: type[Message], version: int = -1) -> Any:
        key = request.api_key
        version = SERVED[key].max_advertised if version < 0 else version
        frame, _ = self.ask(user, request, key, version)
        return response.decode(version, memoryview(frame)[9 if version >= SERVED[key].flexible_from else 8 :])

    def _errors(self, key: ApiKey) -> dict[ErrorCode, float]:
        name = key.name.lower()
        return {
            error: self.broker.metrics.counter("pylog_errors_total", "", api=name, error=error.name).value
            for error in ErrorCode
        }

    async def _ask(self, user: str, request: Request | bytes, key: ApiKey, version: int) -> bytes:
        row = SERVED[key]
        version = row.max_advertised if version < 0 else version
        body = request if isinstance(request, bytes) else request.encode(version)
        tags = b"\0" if version >= row.flexible_from else b""
        frame = struct.pack(">hhih", key, version, 7, 4) + b"test" + tags + body
        here, there = socket.socketpair()
        for one in (here, there):
            one.setblocking(False)
        session = Session(principal=Principal("User", user), client_host="10.0.0.1", listener_name="client")
        connection = Connection(
            here, handler=self.broker._requests, buffer=bytearray(1 << 20), max_frame_bytes=1 << 20,
            session=session, peer="10.0.0.1:1", on_close=lambda connection, reason: None,
        )  # fmt: skip
        try:
            await self._loop.sock_sendall(there, struct.pack(">i", len(frame)) + frame)
            reply = b""
            while len(reply) < 4 or len(reply) < 4 + int.from_bytes(reply[:4], "big"):
                part = await self._loop.sock_recv(there, 1 << 16)
                assert part, "the connection was closed"
                reply += part
            return reply
        finally:
            connection.close()
            there.close()


def make_groups(desk: Desk) -> None:
    """Commit offsets for two groups, of which other tests may have deleted some."""
    commit = ROWS[ApiKey.OFFSET_COMMIT].request
    assert isinstance(commit, OffsetCommitRequest)
    for name in ("g", "kept"):
        errors = {ErrorCode.NOT_COORDINATOR}
        while errors:  # until the topic of offsets is made and loaded
            _, errors = desk.ask("root", dataclasses.replace(commit, group_id=name), ApiKey.OFFSET_COMMIT)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk(tmp_path_factory.mktemp("rights"))
    desk.ask("root", ROWS[ApiKey.CREATE_TOPICS].request, ApiKey.CREATE_TOPICS)
    desk.ask("root", FindCoordinatorRequest(coordinator_keys=["g"]), ApiKey.FIND_COORDINATOR)
    make_groups(desk)
    yield desk
    desk.close()


def test_every_served_api_has_a_row() -> None:
    """An API without one would be served to everybody: add what it needs to its handler, to this table and the page."""
    assert set(ROWS) == set(SERVED)


def test_the_page_has_every_served_api() -> None:
    page = (Path(__file__).parents[3] / "docs/security.md").read_text()
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
    named = {name.strip() for cell in cells for name in cell.split(",")}
    assert {"".join(part.capitalize() for part in key.name.split("_")) for key in SERVED} <= named


@pytest.mark.parametrize("key", ROWS, ids=lambda key: key.name)
def test_who_has_no_right_is_refused_and_it_is_written_down(desk: Desk, key: ApiKey) -> None:
    row = ROWS[key]
    _, errors = desk.ask(desk.user(), row.request, key, row.version)
    denied = {Right(one.operation, one.resource_type, one.name) for one in desk.noted if not one.is_allowed}
    if row.rights and key is not ApiKey.INIT_PRODUCER_ID:
        assert row.rights[0] in denied
    assert bool(denied) == bool(row.rights)
    assert {one.request for one in desk.noted} <= {key.name.lower()}
    assert errors & DENIALS == ({row.denied} if row.rights else set())


@pytest.mark.parametrize("key", ROWS, ids=lambda key: key.name)
def test_who_has_the_rights_is_not_refused(desk: Desk, key: ApiKey) -> None:
    row = ROWS[key]
    _, errors = desk.ask(desk.user(*row.rights), row.request, key, row.version)
    assert not errors & DENIALS
    assert desk.noted == []


_DENIED_BY_TYPE = {
    ResourceType.GROUP: GROUP,
    ResourceType.TOPIC: TOPIC,
    ResourceType.TRANSACTIONAL_ID: ID_DENIED,
}


@pytest.mark.parametrize(
    ("key", "missing"),
    [(key, right) for key, row in ROWS.items() if len(row.rights) > 1 for right in row.rights],
    ids=str,
)
def test_each_of_several_rights_is_needed(desk: Desk, key: ApiKey, missing: Right) -> None:
    row = ROWS[key]
    user = desk.user(*(right for right in row.rights if right != missing))
    _, errors = desk.ask(user, row.request, key, row.version)
    assert errors & DENIALS == {_DENIED_BY_TYPE[missing.resource_type]}
    assert missing in {Right(one.operation, one.resource_type, one.name) for one in desk.noted}


@pytest.mark.parametrize("key", ROWS, ids=lambda key: key.name)
def test_a_report_refuses_nobody_and_writes_the_same_down(desk: Desk, key: ApiKey) -> None:
    row = ROWS[key]
    policy = desk.authorizer.policy
    desk._call(desk.authorizer.set_policy, dataclasses.replace(policy, is_report_only=True))
    try:
        _, errors = desk.ask(desk.user(), row.request, key, row.version)
    finally:
        desk._call(desk.authorizer.set_policy, policy)
    assert not errors & DENIALS
    assert bool(desk.noted) == bool(row.rights)


def test_a_producer_id_is_for_whoever_may_write_any_topic(desk: Desk) -> None:
    request = ROWS[ApiKey.INIT_PRODUCER_ID].request
    for right in (topic(Operation.WRITE, "somewhere"), cluster(Operation.IDEMPOTENT_WRITE)):
        assert desk.ask(desk.user(right), request, ApiKey.INIT_PRODUCER_ID)[1] == set()
    assert desk.ask(desk.user(topic(Operation.READ)), request, ApiKey.INIT_PRODUCER_ID)[1] == {CLUSTER}


@pytest.mark.parametrize(
    ("request_", "right"),
    [
        (InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), transaction(Operation.WRITE)),
        (FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["x"]), transaction(Operation.DESCRIBE)),
    ],
    ids=["InitProducerId", "FindCoordinator"],
)
def test_a_transactional_id_is_for_whoever_has_a_right_to_it(desk: Desk, request_: Request, right: Right) -> None:
    other = right._replace(name="another")
    assert desk.ask(desk.user(other), request_, request_.api_key)[1] == {ID_DENIED}
    assert not desk.ask(desk.user(right), request_, request_.api_key)[1] & DENIALS


def test_the_end_of_a_transaction_may_be_written_by_who_may_alter_the_cluster(desk: Desk) -> None:
    request = ROWS[ApiKey.WRITE_TXN_MARKERS].request
    assert desk.ask(desk.user(cluster(Operation.ALTER)), request, ApiKey.WRITE_TXN_MARKERS)[1] == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


def test_lists_show_what_one_may_see(desk: Desk) -> None:
    make_groups(desk)

    def topics(*rights: Right) -> list[str | None]:
        answer = desk.answer(desk.user(*rights), MetadataRequest(topics=None), MetadataResponse)
        assert desk.noted == [], "what a list leaves out is no denial"
        return [row.name for row in answer.topics]

    def groups(*rights: Right) -> list[str]:
        answer = desk.answer(desk.user(*rights), ListGroupsRequest(), ListGroupsResponse)
        assert desk.noted == []
        return sorted(row.group_id for row in answer.groups)

    assert topics() == []
    assert topics(topic(Operation.READ)) == ["t"]
    assert groups() == []
    assert groups(group(Operation.DESCRIBE)) == ["g"]
    assert groups(cluster(Operation.DESCRIBE)) == ["g", "kept"]


def test_offsets_of_all_topics_are_those_of_the_topics_one_may_see(desk: Desk) -> None:
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="kept", topics=None)])
    may_group = Right(Operation.DESCRIBE, ResourceType.GROUP, "kept")
    make_groups(desk)

    def shown(user: str) -> list[str]:
        answer = desk.answer(user, everything, OffsetFetchResponse)
        return [row.name for row in answer.groups[0].topics]

    assert shown(desk.user(may_group)) == []
    assert shown(desk.user(may_group, topic(Operation.DESCRIBE))) == ["t"]


def test_a_topic_is_hidden_by_its_id_too(desk: Desk) -> None:
    topic_id = desk.broker.partitions.image.topics["t"].topic_id
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    [row] = desk.answer(desk.user(), by_id, MetadataResponse).topics
    assert (row.error_code, row.name, row.topic_id) == (TOPIC, None, topic_id)
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
    for user in (desk.user(), desk.user(topic(Operation.DESCRIBE))):
        [gone] = desk.answer(user, deletion, DeleteTopicsResponse).responses
        assert (gone.error_code, gone.name) == (TOPIC, None)


def test_what_is_named_again_and_again_is_described_once(desk: Desk) -> None:
    user = desk.user(topic(Operation.DESCRIBE), topic(Operation.DESCRIBE_CONFIGS))
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("t", "none", "t")])
    assert [row.name for row in desk.answer(user, metadata, MetadataResponse).topics] == ["t", "none"]
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)
    configs = DescribeConfigsRequest(resources=[resource] * 3)
    assert len(desk.answer(user, configs, DescribeConfigsResponse).results) == 1
    groups = DescribeGroupsRequest(groups=["g", "g"])
    assert len(desk.answer(user, groups, DescribeGroupsResponse).groups) == 1


def test_a_topic_that_only_the_controller_knows_is_not_deleted_by_its_id(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.broker, "ask_controller", None)  # nobody may be asked: the controller looks at no rights
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=uuid.UUID(int=77))])
    [row] = desk.answer(desk.user(), deletion, DeleteTopicsResponse).responses
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_missing_topic_is_made_for_whoever_may_create_it(desk: Desk) -> None:
    def asked(name: str, *rights: Right) -> int:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        [row] = desk.answer(desk.user(*rights), request, MetadataResponse).topics
        return int(row.error_code)

    assert asked("new-1", topic(Operation.DESCRIBE, "new-1")) == TOPIC
    assert asked("new-2", topic(Operation.DESCRIBE, "new-2"), topic(Operation.CREATE, "new-2")) == 5
    assert asked("new-3", topic(Operation.DESCRIBE, "new-3"), cluster(Operation.CREATE)) == 5
    assert asked("new-4", cluster(Operation.CREATE)) == TOPIC


def test_settings_of_a_new_topic_are_hidden_from_who_may_only_create_it(desk: Desk) -> None:
    def created(name: str, *rights: Right) -> Any:
        request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
        [row] = desk.answer(desk.user(*rights), request, CreateTopicsResponse).topics
        return row

    hidden = created("made-1", topic(Operation.CREATE, "made-1"))
    assert (hidden.error_code, hidden.topic_config_error_code, hidden.num_partitions) == (0, TOPIC, -1)
    shown = created("made-2", cluster(Operation.CREATE), topic(Operation.DESCRIBE_CONFIGS, "made-2"))
    assert (shown.error_code, shown.topic_config_error_code, shown.num_partitions) == (0, 0, 1)


def test_of_several_topics_those_allowed_are_handled(desk: Desk) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("part-1", "part-2")]
    )
    answer = desk.answer(desk.user(topic(Operation.CREATE, "part-1")), request, CreateTopicsResponse)
    assert {row.name: row.error_code for row in answer.topics} == {"part-1": 0, "part-2": TOPIC}


def test_answers_say_which_operations_are_allowed(desk: Desk) -> None:
    def operations(*rights: Right) -> tuple[int, int, int]:
        user = desk.user(*rights)
        topics = MetadataRequest(topics=[MetadataRequestTopic(name="t")], include_topic_authorized_operations=True)
        groups = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        return (
            desk.answer(user, topics, MetadataResponse).topics[0].topic_authorized_operations,
            desk.answer(user, groups, DescribeGroupsResponse).groups[0].authorized_operations,
            desk.answer(
                user, DescribeClusterRequest(include_cluster_authorized_operations=True), DescribeClusterResponse
            ).cluster_authorized_operations,
        )

    bits = [1 << operation for operation in (Operation.READ, Operation.DESCRIBE)]
    assert operations() == (NOT_ASKED, NOT_ASKED, 0)
    assert operations(topic(Operation.READ), group(Operation.DESCRIBE), cluster(Operation.ALTER)) == (
        sum(bits),
        bits[1],
        1 << Operation.ALTER | 1 << Operation.DESCRIBE,
    )


def test_a_transaction_of_another_is_refused_whole(desk: Desk) -> None:
    name = b"\x00\x01x"
    request = name + _produce()[2:]
    _, errors = desk.ask(desk.user(topic(Operation.WRITE)), request, ApiKey.PRODUCE, 3)
    assert errors == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    keys = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["x"])
    assert desk.ask(desk.user(), keys, ApiKey.FIND_COORDINATOR)[1] == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


def test_a_denied_produce_without_acks_closes_the_connection(desk: Desk) -> None:
    request = _produce()
    request = request[:2] + b"\0\0" + request[4:]
    with pytest.raises(AssertionError, match="the connection was closed"):
        desk.ask(desk.user(), request, ApiKey.PRODUCE, 3)


@pytest.mark.parametrize("compression_type", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_denied_produce_is_not_looked_into(desk: Desk, compression_type: str) -> None:
    batch = bytearray(
        encode_batch([Record(0, 1_700_000_000_000, b"key", b"v" * 500)], compression_type=compression_type)
    )
    good = bytes(batch)
    batch[-1] ^= 0xFF
    damaged = bytes(batch)
    nobody, writer = desk.user(), desk.user(topic(Operation.WRITE))
    for one in (good, damaged):
        assert desk.ask(nobody, _produce(one), ApiKey.PRODUCE, 7)[1] == {TOPIC}
    assert desk.ask(writer, _produce(damaged), ApiKey.PRODUCE, 7)[1] == {ErrorCode.CORRUPT_MESSAGE}
    assert desk.ask(writer, _produce(good), ApiKey.PRODUCE, 7)[1] == set()


def test_a_fetch_that_waits_gets_nothing_of_what_its_client_may_not_read_any_more(desk: Desk) -> None:
    user, writer = desk.user(topic(Operation.READ)), desk.user(topic(Operation.WRITE))
    frame, _ = desk.ask(writer, _produce(), ApiKey.PRODUCE, 3)
    (written,) = struct.unpack_from(">q", frame, 8 + 4 + 2 + 1 + 4 + 4 + 2)
    head = struct.pack(">iiiibih", -1, 15_000, 1, 1 << 20, 0, 1, 1) + b"t"
    fetch = head + struct.pack(">iiqi", 1, 0, written + 1, 1 << 20)
    waiting = asyncio.run_coroutine_threadsafe(desk._ask(user, fetch, ApiKey.FETCH, 4), desk._loop)
    for _ in range(100):  # turns of the loop, in which it is read
        desk.run(asyncio.sleep(0))
    assert not waiting.done()
    desk.forget(user)
    assert desk.ask(writer, _produce(), ApiKey.PRODUCE, 3)[1] == set()
    frame = waiting.result(WAIT_S)
    assert b"value" not in frame
    assert struct.unpack_from(">h", frame, 8 + 4 + 4 + 2 + 1 + 4 + 4)[0] == TOPIC


def test_acls_are_made_found_and_removed_and_hold_at_once(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    creation = AclCreation(
        resource_type=2, resource_name="t", resource_pattern_type=3, principal="User:carol", host="*",
        operation=Operation.WRITE, permission_type=3,
    )  # fmt: skip
    odd: Sequence[AclCreation] = [
        dataclasses.replace(creation, host="host.example"),
        dataclasses.replace(creation, resource_pattern_type=2),
        dataclasses.replace(creation, resource_type=99),
        dataclasses.replace(creation, operation=-1),
        dataclasses.replace(creation, resource_name="a/b"),
    ]
    assert desk.ask("carol", _produce(), ApiKey.PRODUCE, 3)[1] == {TOPIC}
    _, errors = desk.ask("root", CreateAclsRequest(creations=[creation, *odd]), ApiKey.CREATE_ACLS)
    assert errors == {ErrorCode.INVALID_REQUEST}
    assert desk.ask("carol", _produce(), ApiKey.PRODUCE, 3)[1] == set()
    wanted: dict[str, Any] = {**_ANY_ACL, "resource_name_filter": None, "principal_filter": "User:carol"}
    for version in (1, 2, 3):
        answer = desk.answer("root", DescribeAclsRequest(**wanted), DescribeAclsResponse, version)
        assert [(row.resource_name, len(row.acls)) for row in answer.resources] == [("t", 1)]
    desk.ask("root", DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted)]), ApiKey.DELETE_ACLS)
    assert desk.ask("carol", _produce(), ApiKey.PRODUCE, 3)[1] == {TOPIC}
    for number in (0, -1, 99):
        unknown = DescribeAclsRequest(**{**wanted, "operation": number})
        assert desk.ask("root", unknown, ApiKey.DESCRIBE_ACLS)[1] == {ErrorCode.INVALID_REQUEST}

"""One function per API of transactions; see `pylog.broker.apis`."""

from collections.abc import Iterator, Mapping
from typing import Protocol
from uuid import UUID

from pylog.broker.control import producer_ids
from pylog.broker.control.cluster import Cluster as ControlCluster
from pylog.broker.data.partitions import Partition
from pylog.broker.groups import handlers as groups
from pylog.broker.groups.coordinator import check_group_id
from pylog.broker.handler import Answer, Caller, Handler
from pylog.broker.large import in_steps
from pylog.broker.transactions.coordinator import TransactionCoordinator
from pylog.broker.transactions.verifying import Verifier
from pylog.errors import ApiError, ErrorCode
from pylog.group import records as group_records
from pylog.group.records import CommittedOffset
from pylog.model import INTERNAL_TOPICS, Key
from pylog.security.acl import Operation, ResourceType
from pylog.transaction import state
from pylog.wire.api import ApiKey
from pylog.wire.api.coordinator import TRANSACTION, Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from pylog.wire.api.message import Message, Request
from pylog.wire.api.producers import InitProducerIdRequest, InitProducerIdResponse
from pylog.wire.api.transactions import (
    AddedPartition,
    AddedTopic,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetResult,
    TxnOffsetTopicResult,
)

NOT_ALLOWED = "transactions are not allowed before `pylog cluster finalize`"
"""What is said of transactional ids while a release that knows none may run in the cluster."""

_FENCED_FROM = {ApiKey.INIT_PRODUCER_ID: 4, ApiKey.ADD_PARTITIONS_TO_TXN: 2, ApiKey.END_TXN: 2}
_FENCED_FROM |= {ApiKey.ADD_OFFSETS_TO_TXN: 2}
"""From which version on clients know PRODUCER_FENCED; earlier ones get INVALID_PRODUCER_EPOCH."""

_FIRST_WITH_ABORTABLE = 4
_FIRST_WITH_LOADING = 2
_EPOCH_EACH_FROM = {ApiKey.END_TXN: 5, ApiKey.TXN_OFFSET_COMMIT: 5}
"""From which version on each transaction has an epoch of its own (KIP-890)."""

_MAX_ASKED = 3
"""How often the coordinator is asked while the marker of the transaction before comes."""


class Cluster(groups.Cluster, ControlCluster, Protocol):
    """What these handlers use of the broker.

    Attributes:
        transactions: the transactional ids coordinated here.
        verifier: asks other coordinators.
    """

    transactions: TransactionCoordinator
    verifier: Verifier


def _require_id(cluster: Cluster, caller: Caller, transactional_id: str) -> None:
    """Refuse who may not write under a transactional id, and everybody while the cluster's formats allow none.

    Raises:
        ApiError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which no client tries again.
    """
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not caller.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise ApiError(code, f"transactional id {transactional_id}: {Operation.WRITE.name} is not allowed")
    if not cluster.transactions.is_on:
        raise ApiError(code, NOT_ALLOWED)


def _told(code: ErrorCode, caller: Caller, api: ApiKey) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and caller.version < _FENCED_FROM[api]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def find_coordinator(cluster: Cluster, request: FindCoordinatorRequest, caller: Caller) -> Answer:
    """Say which broker keeps each group or transactional id; make the topic that keeps them if it is missing."""
    if request.key_type != TRANSACTION:
        return groups.find_coordinator(cluster, request, caller)
    transactions, kind = cluster.transactions, ResourceType.TRANSACTIONAL_ID
    is_allowed = {key: caller.may(Operation.DESCRIBE, kind, key) for key in request.coordinator_keys}
    is_missing = transactions.topic.name not in cluster.partitions.image.topics
    if transactions.is_on and is_missing and any(is_allowed.values()):
        transactions.topic.create(cluster.ask_controller)
    rows = []
    for key in request.coordinator_keys:
        row = Coordinator(key=key)
        rows.append(row)
        try:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            if not is_allowed[key]:
                right = f"transactional id {key}: {Operation.DESCRIBE.name} is not allowed"
                raise ApiError(code, f"authorization failed: {right}")
            if not transactions.is_on:
                # Not retriable, so that a client that wants transactions learns at once that it will not get them.
                raise ApiError(code, NOT_ALLOWED)
            row.node_id, row.host, row.port = transactions.topic.coordinator_of(key, caller.session.listener_name)
        except ApiError as error:
            row.error_code, row.error_message = error.code, str(error)
    return FindCoordinatorResponse(coordinators=rows)


def init_producer_id(cluster: Cluster, request: InitProducerIdRequest, caller: Caller) -> Answer:
    """Give a producer its id; with a transactional id also its epoch, and an end to what was left open under it."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        return producer_ids.handle_init(cluster, request, caller)
    _require_id(cluster, caller, transactional_id)

    async def answer() -> Message:
        found = await cluster.transactions.initialize(
            transactional_id, request.producer_id, request.producer_epoch, request.transaction_timeout_ms
        )
        code = _told(found.code, caller, ApiKey.INIT_PRODUCER_ID)
        if code is not ErrorCode.NONE:
            return request.error_response(code)
        return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.producer_epoch)

    return answer()


def add_partitions(cluster: Cluster, request: AddPartitionsToTxnRequest, caller: Caller) -> Answer:
    """Begin a transaction or extend it; if one partition is refused, none is added."""
    _require_id(cluster, caller, request.transactional_id)
    topic_ids: dict[str, UUID] = {}
    rows: list[AddedTopic] = []
    steps = _look_at_partitions(cluster, request, caller, topic_ids, rows)

    def answer(code: ErrorCode) -> Message:
        if code is not ErrorCode.NONE:
            for row in (row for topic in rows for row in topic.results_by_partition):
                row.partition_error_code = row.partition_error_code or code
        return AddPartitionsToTxnResponse(results_by_topic=rows)

    async def add() -> Message:
        wanted = [(topic.name, number) for topic in request.topics for number in topic.partitions]
        found = await cluster.transactions.add(
            request.transactional_id, request.producer_id, request.producer_epoch, topic_ids, wanted
        )
        return answer(_told(found.code, caller, ApiKey.ADD_PARTITIONS_TO_TXN))

    def add_all() -> Answer:
        is_refused = any(row.partition_error_code for topic in rows for row in topic.results_by_partition)
        return answer(ErrorCode.OPERATION_NOT_ATTEMPTED) if is_refused else add()

    return in_steps(steps, add_all)


def _look_at_partitions(
    cluster: Cluster,
    request: AddPartitionsToTxnRequest,
    caller: Caller,
    topic_ids: dict[str, UUID],
    rows: list[AddedTopic],
) -> Iterator[None]:
    """Add the ids of topics to *topic_ids*, and a row to *rows* for each topic; one partition a step."""
    image = cluster.partitions.image
    for topic in request.topics:
        yield
        row = AddedTopic(name=topic.name, results_by_partition=[])
        rows.append(row)
        is_allowed = caller.may_topic(Operation.WRITE, topic.name) and topic.name not in INTERNAL_TOPICS
        if topic.name in image.topics:
            topic_ids[topic.name] = image.topics[topic.name].topic_id
        for number in topic.partitions:
            yield
            error = ErrorCode.NONE
            if not is_allowed:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image.partition(topic.name, number) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            row.results_by_partition.append(AddedPartition(partition_index=number, partition_error_code=error))


def add_offsets(cluster: Cluster, request: AddOffsetsToTxnRequest, caller: Caller) -> Answer:
    """Let a transaction commit offsets of a group: add the partition that keeps them."""
    _require_id(cluster, caller, request.transactional_id)
    caller.require_group(Operation.READ, request.group_id)
    check_group_id(request.group_id)
    if group_records.TOPIC not in cluster.partitions.image.topics:
        cluster.groups.topic.create(cluster.ask_controller)  # the client asks again
    number = cluster.groups.topic.partition_of(request.group_id)
    topic_id = cluster.partitions.image.topics[group_records.TOPIC].topic_id

    async def answer() -> Message:
        found = await cluster.transactions.add(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            {group_records.TOPIC: topic_id},
            [(group_records.TOPIC, number)],
        )
        return AddOffsetsToTxnResponse(error_code=_told(found.code, caller, ApiKey.ADD_OFFSETS_TO_TXN))

    return answer()


def end(cluster: Cluster, request: EndTxnRequest, caller: Caller) -> Answer:
    """Commit the open transaction, or abort it; answered once the decision is on every in-sync replica."""
    _require_id(cluster, caller, request.transactional_id)

    async def answer() -> Message:
        has_own_epoch = caller.version >= _EPOCH_EACH_FROM[ApiKey.END_TXN]
        decide = cluster.transactions.end_epoch if has_own_epoch else cluster.transactions.end
        found: state.Answer = await decide(
            request.transactional_id, request.producer_id, request.producer_epoch, is_commit=request.committed
        )
        code = _told(found.code, caller, ApiKey.END_TXN)
        if code is not ErrorCode.NONE:
            return EndTxnResponse(error_code=code)
        return EndTxnResponse(producer_id=found.producer_id, producer_epoch=found.producer_epoch)

    return answer()


def commit_offsets(cluster: Cluster, request: TxnOffsetCommitRequest, caller: Caller) -> Answer:
    """Write down how far a group has read, which counts once the transaction is committed."""
    _require_id(cluster, caller, request.transactional_id)
    caller.require_group(Operation.READ, request.group_id)
    check_group_id(request.group_id)
    wanted: dict[Key, CommittedOffset] = {}
    rows: list[TxnOffsetTopicResult] = []
    steps = _look_at_offsets(cluster, request, caller, wanted, rows)

    def answer(error: ErrorCode) -> Message:
        told = _told_offsets(error, caller.version)
        if told is not ErrorCode.NONE:
            for part in (part for row in rows for part in row.partitions):
                part.error_code = part.error_code or told
        return TxnOffsetCommitResponse(topics=rows)

    async def commit() -> Message:
        try:
            return answer(await _commit_verified(cluster, request, caller.version, wanted))
        except ApiError as error:
            return answer(error.code)

    return in_steps(steps, lambda: commit() if wanted else TxnOffsetCommitResponse(topics=rows))


def _look_at_offsets(
    cluster: Cluster,
    request: TxnOffsetCommitRequest,
    caller: Caller,
    wanted: dict[Key, CommittedOffset],
    rows: list[TxnOffsetTopicResult],
) -> Iterator[None]:
    """Add what may be committed to *wanted*, and a row to *rows* for each topic; one partition a step."""
    image = cluster.partitions.image
    for topic in request.topics:
        yield
        row = TxnOffsetTopicResult(name=topic.name, partitions=[])
        rows.append(row)
        is_allowed = caller.may_topic(Operation.READ, topic.name)
        for part in topic.partitions:
            yield
            error = ErrorCode.NONE
            if not is_allowed:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image.partition(topic.name, part.partition_index) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif cluster.groups.is_metadata_too_large(part.committed_metadata):
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                wanted[topic.name, part.partition_index] = CommittedOffset(
                    part.committed_offset, part.committed_leader_epoch, part.committed_metadata or ""
                )
            row.partitions.append(TxnOffsetResult(partition_index=part.partition_index, error_code=error))


async def _commit_verified(
    cluster: Cluster, request: TxnOffsetCommitRequest, version: int, wanted: Mapping[Key, CommittedOffset]
) -> ErrorCode:
    """Commit offsets of a transaction that has their partition, in the name of a member that is still one.

    Raises:
        ApiError: this broker does not coordinate the group.
    """
    groups_here = cluster.groups
    producer = request.producer_id, request.producer_epoch
    partition = groups_here.partition_of(request.group_id)
    is_adding = version >= _EPOCH_EACH_FROM[ApiKey.TXN_OFFSET_COMMIT]
    code = ErrorCode.NONE
    for _ in range(_MAX_ASKED if is_adding else 1):
        code = await _ask_coordinator(cluster, request, partition, is_adding=is_adding)
        if code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
            break
    if code is not ErrorCode.NONE:
        return code
    fault = groups_here.transaction_fault(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    if fault is not ErrorCode.NONE:
        return fault
    # Appended before anything else happens to the group, which is the one that was asked above.
    written = groups_here.commit_pending(request.group_id, wanted, *producer)
    return written if isinstance(written, ErrorCode) else await written


async def _ask_coordinator(
    cluster: Cluster, request: TxnOffsetCommitRequest, partition: Partition, *, is_adding: bool
) -> ErrorCode:
    """Return NONE if *partition*, of the group, belongs to the transaction, or was added.

    Raises:
        ApiError: this broker does not coordinate the group.
    """
    assert partition.log is not None, "led here"
    producers, producer = partition.log.producers, (request.producer_id, request.producer_epoch)
    before = producers.progress(request.producer_id)
    if before.is_open and before.epoch == request.producer_epoch:
        return ErrorCode.NONE
    (code,) = await cluster.verifier.verify(request.transactional_id, *producer, [partition], is_adding=is_adding)
    if code is not ErrorCode.NONE:
        return code
    # What ended meanwhile is asked again by the client: the answer may be about the transaction before.
    if cluster.groups.partition_of(request.group_id) is not partition:
        return ErrorCode.NOT_COORDINATOR
    now = producers.progress(request.producer_id)
    if now.epoch > request.producer_epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if now != before and not now.is_open else ErrorCode.NONE


def _told_offsets(code: ErrorCode, version: int) -> ErrorCode:
    """Return what a client of this version makes the best of."""
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code


TRANSACTION_APIS: Mapping[ApiKey, tuple[type[Request], Handler]] = {
    ApiKey.FIND_COORDINATOR: (FindCoordinatorRequest, find_coordinator),
    ApiKey.INIT_PRODUCER_ID: (InitProducerIdRequest, init_producer_id),
    ApiKey.ADD_PARTITIONS_TO_TXN: (AddPartitionsToTxnRequest, add_partitions),
    ApiKey.ADD_OFFSETS_TO_TXN: (AddOffsetsToTxnRequest, add_offsets),
    ApiKey.END_TXN: (EndTxnRequest, end),
    ApiKey.TXN_OFFSET_COMMIT: (TxnOffsetCommitRequest, commit_offsets),
}
"""The APIs of this module."""

"""What operators' tools ask about transactions: list them, describe them, and write the end of one that hangs.

Source: KIP-664; states are named as Apache Kafka names them.
"""

from collections.abc import Mapping
from typing import Protocol

from pylog.broker.clock import wall_ms
from pylog.broker.data.partitions import Partitions
from pylog.broker.handler import Answer, Caller, Handler
from pylog.broker.transactions.coordinator import KnownId, TransactionCoordinator
from pylog.broker.transactions.ends import TransactionEnds
from pylog.errors import ApiError, ErrorCode
from pylog.security.acl import CLUSTER_NAME, Operation, ResourceType
from pylog.transaction.state import NO_TIME, TransactionMetadata, TransactionState
from pylog.wire.api import ApiKey
from pylog.wire.api.message import Message, Request
from pylog.wire.api.transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
)
from pylog.wire.internal import MarkerWish

NAMES: Mapping[TransactionState, str] = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
}

_NEVER_HERE = frozenset({"Dead", "PrepareEpochFence"})
# States of Apache Kafka that no id is in here: a filter may name them, and selects nothing.


class Cluster(Protocol):
    """What these handlers use of the broker.

    Attributes:
        partitions: hosted here, under the newest image.
        transactions: the transactional ids coordinated here.
        transaction_ends: writes the ends of transactions to the partitions led here.
    """

    partitions: Partitions
    transactions: TransactionCoordinator
    transaction_ends: TransactionEnds


def list_transactions(cluster: Cluster, request: ListTransactionsRequest, caller: Caller) -> Answer:
    """Name the transactional ids coordinated here that the filters select; what may not be seen is left out."""
    states, producer_ids, now_ms = set(request.state_filters), set(request.producer_id_filters), wall_ms()

    def is_selected(one: KnownId) -> bool:
        return (
            (not states or NAMES[one.metadata.state] in states)
            and (not producer_ids or one.metadata.producer_id in producer_ids)
            and (request.duration_filter < 0 or _open_ms(one.metadata, now_ms) > request.duration_filter)
            and caller.sees(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, one.transactional_id)
        )

    return ListTransactionsResponse(
        unknown_state_filters=sorted(states - {*NAMES.values(), *_NEVER_HERE}),
        transaction_states=[
            ListedTransaction(
                transactional_id=one.transactional_id,
                producer_id=one.metadata.producer_id,
                transaction_state=NAMES[one.metadata.state],
            )
            for one in cluster.transactions.known_ids()
            if is_selected(one)
        ],
    )


def _open_ms(metadata: TransactionMetadata, now_ms: int) -> int:
    """Return for how long the transaction is open; -1 for none."""
    is_open = metadata.state is TransactionState.ONGOING or metadata.state.is_ending
    return max(0, now_ms - metadata.start_ms) if is_open and metadata.start_ms != NO_TIME else -1


def describe_transactions(cluster: Cluster, request: DescribeTransactionsRequest, caller: Caller) -> Answer:
    """Say what is known of transactional ids; topics that the caller may not see are left out."""
    return DescribeTransactionsResponse(
        transaction_states=[_described(cluster, name, caller) for name in request.transactional_ids]
    )


def _described(cluster: Cluster, transactional_id: str, caller: Caller) -> DescribedTransaction:
    row = DescribedTransaction(transactional_id=transactional_id)
    if not caller.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        row.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return row
    try:
        metadata = cluster.transactions.describe(transactional_id)
    except ApiError as error:
        row.error_code = error.code
        return row
    if metadata is None:
        row.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return row
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(metadata.partitions):
        if caller.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            by_topic.setdefault(topic, []).append(number)
    row.transaction_state = NAMES[metadata.state]
    row.transaction_timeout_ms = metadata.timeout_ms
    row.transaction_start_time_ms = metadata.start_ms
    row.producer_id, row.producer_epoch = metadata.producer_id, metadata.producer_epoch
    row.topics = [DescribedTransactionTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    return row


def write_markers(cluster: Cluster, request: WriteTxnMarkersRequest, caller: Caller) -> Answer:
    """End transactions in partitions led here, whatever their coordinator knows; tools do so where one hangs.

    Coordinators among brokers do it by a request of pylog's own.

    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED.
    """
    if not caller.has(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        caller.require_cluster(Operation.CLUSTER_ACTION)

    async def answer() -> Message:
        response = request.error_response(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        rows, wishes = [], []
        for marker, answered in zip(request.markers, response.markers, strict=True):
            for topic, topic_row in zip(marker.topics, answered.topics, strict=True):
                found = cluster.partitions.image.topics.get(topic.name)
                for row in topic_row.partitions:
                    state = None if found is None else found.partitions.get(row.partition_index)
                    if found is None or state is None:
                        continue
                    rows.append(row)
                    wishes.append(
                        MarkerWish(
                            found.topic_id,
                            row.partition_index,
                            state.leader_epoch,
                            marker.producer_id,
                            marker.producer_epoch,
                            marker.coordinator_epoch,
                            marker.transaction_result,
                        )
                    )
        for row, code in zip(rows, await cluster.transaction_ends.write(wishes), strict=True):
            row.error_code = code
        return response

    return answer()


TOOL_APIS: Mapping[ApiKey, tuple[type[Request], Handler]] = {
    ApiKey.WRITE_TXN_MARKERS: (WriteTxnMarkersRequest, write_markers),
    ApiKey.DESCRIBE_TRANSACTIONS: (DescribeTransactionsRequest, describe_transactions),
    ApiKey.LIST_TRANSACTIONS: (ListTransactionsRequest, list_transactions),
}
"""The APIs of this module."""

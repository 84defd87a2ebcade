"""Transactions: AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit, and how to look at them.

Source: Kafka protocol guide; KIP-98, KIP-447, KIP-664, KIP-890, KIP-1228.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.schema import Int8, Int16, Int32, Int64, Versions
from pylog.wire.api.table import ApiKey


@dataclass(slots=True, kw_only=True)
class TransactionTopic:
    """Partitions of one topic that a transaction writes to."""

    name: str
    partitions: list[Int32]


@dataclass(slots=True, kw_only=True)
class AddedPartition:
    """Whether one partition was added."""

    partition_index: Int32
    partition_error_code: Int16 = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class AddedTopic:
    """The answers for one topic."""

    name: str
    results_by_partition: list[AddedPartition]


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnResponse(Message):
    """One answer a partition; if one has an error, none was added."""

    api_key: ClassVar[ApiKey] = ApiKey.ADD_PARTITIONS_TO_TXN

    throttle_time_ms: Int32 = 0
    results_by_topic: list[AddedTopic]


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxnRequest(Request):
    """Begin a transaction, or extend it, before the first batch for these partitions is sent."""

    api_key: ClassVar[ApiKey] = ApiKey.ADD_PARTITIONS_TO_TXN

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    topics: list[TransactionTopic]

    def error_response(self, code: ErrorCode, message: str | None = None) -> AddPartitionsToTxnResponse:
        """Return an answer with *code* at every partition."""
        return AddPartitionsToTxnResponse(
            results_by_topic=[
                AddedTopic(
                    name=topic.name,
                    results_by_partition=[
                        AddedPartition(partition_index=number, partition_error_code=code) for number in topic.partitions
                    ],
                )
                for topic in self.topics
            ]
        )


@dataclass(slots=True, kw_only=True)
class AddOffsetsToTxnResponse(Message):
    """Whether the group's offsets belong to the transaction."""

    api_key: ClassVar[ApiKey] = ApiKey.ADD_OFFSETS_TO_TXN

    throttle_time_ms: Int32 = 0
    error_code: Int16 = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class AddOffsetsToTxnRequest(Request):
    """Let offsets of a group be committed by the transaction."""

    api_key: ClassVar[ApiKey] = ApiKey.ADD_OFFSETS_TO_TXN

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str

    def error_response(self, code: ErrorCode, message: str | None = None) -> AddOffsetsToTxnResponse:
        """Return an answer with *code*."""
        return AddOffsetsToTxnResponse(error_code=code)


@dataclass(slots=True, kw_only=True)
class EndTxnResponse(Message):
    """Whether the decision is written; from version 5 on with the id and epoch of the next transaction."""

    api_key: ClassVar[ApiKey] = ApiKey.END_TXN

    throttle_time_ms: Int32 = 0
    error_code: Int16 = ErrorCode.NONE
    producer_id: Annotated[Int64, Versions(5)] = -1
    producer_epoch: Annotated[Int16, Versions(5)] = -1


@dataclass(slots=True, kw_only=True)
class EndTxnRequest(Request):
    """Commit the open transaction, or abort it."""

    api_key: ClassVar[ApiKey] = ApiKey.END_TXN

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: bool

    def error_response(self, code: ErrorCode, message: str | None = None) -> EndTxnResponse:
        """Return an answer with *code*."""
        return EndTxnResponse(error_code=code)


@dataclass(slots=True, kw_only=True)
class MarkerTopic:
    """Partitions of one topic that get a marker."""

    name: str
    partition_indexes: list[Int32]


@dataclass(slots=True, kw_only=True)
class TransactionMarker:
    """The end of one producer's transaction."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: bool
    topics: list[MarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Annotated[Int8, Versions(2)] = 0


@dataclass(slots=True, kw_only=True)
class WrittenMarkerPartition:
    """Whether one partition has the marker."""

    partition_index: Int32
    error_code: Int16 = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class WrittenMarkerTopic:
    """The answers for one topic."""

    name: str
    partitions: list[WrittenMarkerPartition]


@dataclass(slots=True, kw_only=True)
class WrittenMarker:
    """The answers for one producer."""

    producer_id: Int64
    topics: list[WrittenMarkerTopic]


@dataclass(slots=True, kw_only=True)
class WriteTxnMarkersResponse(Message):
    """One answer a partition of each marker."""

    api_key: ClassVar[ApiKey] = ApiKey.WRITE_TXN_MARKERS

    markers: list[WrittenMarker]


@dataclass(slots=True, kw_only=True)
class WriteTxnMarkersRequest(Request):
    """End transactions in partitions led by the broker; for tools that end a hanging one."""

    api_key: ClassVar[ApiKey] = ApiKey.WRITE_TXN_MARKERS

    markers: list[TransactionMarker]

    def error_response(self, code: ErrorCode, message: str | None = None) -> WriteTxnMarkersResponse:
        """Return an answer with *code* at every partition."""
        return WriteTxnMarkersResponse(
            markers=[
                WrittenMarker(
                    producer_id=marker.producer_id,
                    topics=[
                        WrittenMarkerTopic(
                            name=topic.name,
                            partitions=[
                                WrittenMarkerPartition(partition_index=number, error_code=code)
                                for number in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in self.markers
            ]
        )


@dataclass(slots=True, kw_only=True)
class TxnOffset:
    """The next offset that a group reads of one partition, if the transaction is committed."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, Versions(2)] = -1
    committed_metadata: str | None = None


@dataclass(slots=True, kw_only=True)
class TxnOffsetTopic:
    """Offsets of one topic."""

    name: str
    partitions: list[TxnOffset]


@dataclass(slots=True, kw_only=True)
class TxnOffsetResult:
    """Whether the offset of one partition is written."""

    partition_index: Int32
    error_code: Int16 = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class TxnOffsetTopicResult:
    """The answers for one topic."""

    name: str
    partitions: list[TxnOffsetResult]


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitResponse(Message):
    """One answer a partition."""

    api_key: ClassVar[ApiKey] = ApiKey.TXN_OFFSET_COMMIT

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetTopicResult]


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitRequest(Request):
    """Commit offsets of a group with the transaction; a stale generation is refused (KIP-447)."""

    api_key: ClassVar[ApiKey] = ApiKey.TXN_OFFSET_COMMIT

    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Annotated[Int32, Versions(3)] = -1
    member_id: Annotated[str, Versions(3)] = ""
    group_instance_id: Annotated[str | None, Versions(3)] = None
    topics: list[TxnOffsetTopic]

    def error_response(self, code: ErrorCode, message: str | None = None) -> TxnOffsetCommitResponse:
        """Return an answer with *code* at every partition."""
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetTopicResult(
                    name=topic.name,
                    partitions=[
                        TxnOffsetResult(partition_index=row.partition_index, error_code=code)
                        for row in topic.partitions
                    ],
                )
                for topic in self.topics
            ]
        )


@dataclass(slots=True, kw_only=True)
class DescribedTransactionTopic:
    """Partitions of one topic that an open transaction writes to."""

    topic: str
    partitions: list[Int32]


@dataclass(slots=True, kw_only=True)
class DescribedTransaction:
    """What the coordinator knows of one transactional id; -1 stands for nothing."""

    error_code: Int16 = ErrorCode.NONE
    transactional_id: str
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = -1
    transaction_start_time_ms: Int64 = -1
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1
    topics: list[DescribedTransactionTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeTransactionsResponse(Message):
    """One answer a transactional id."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_TRANSACTIONS

    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribedTransaction]


@dataclass(slots=True, kw_only=True)
class DescribeTransactionsRequest(Request):
    """Ask about transactional ids."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_TRANSACTIONS

    transactional_ids: list[str]

    def error_response(self, code: ErrorCode, message: str | None = None) -> DescribeTransactionsResponse:
        """Return an answer with *code* at every id."""
        return DescribeTransactionsResponse(
            transaction_states=[
                DescribedTransaction(error_code=code, transactional_id=name) for name in self.transactional_ids
            ]
        )


@dataclass(slots=True, kw_only=True)
class ListedTransaction:
    """One transactional id."""

    transactional_id: str
    producer_id: Int64
    transaction_state: str


@dataclass(slots=True, kw_only=True)
class ListTransactionsResponse(Message):
    """The ids that this broker coordinates and the filters select."""

    api_key: ClassVar[ApiKey] = ApiKey.LIST_TRANSACTIONS

    throttle_time_ms: Int32 = 0
    error_code: Int16 = ErrorCode.NONE
    unknown_state_filters: list[str] = field(default_factory=list)
    transaction_states: list[ListedTransaction] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ListTransactionsRequest(Request):
    """Ask which transactional ids there are; an empty filter selects all, and so does a duration below 0."""

    api_key: ClassVar[ApiKey] = ApiKey.LIST_TRANSACTIONS

    state_filters: list[str] = field(default_factory=list)
    producer_id_filters: list[Int64] = field(default_factory=list)
    duration_filter: Annotated[Int64, Versions(1)] = -1
    transactional_id_pattern: Annotated[str | None, Versions(2)] = None

    def error_response(self, code: ErrorCode, message: str | None = None) -> ListTransactionsResponse:
        """Return an answer with *code* and no ids."""
        return ListTransactionsResponse(error_code=code)

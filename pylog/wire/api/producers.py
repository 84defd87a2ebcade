"""InitProducerId and DescribeProducers: producer ids, from which idempotence and transactions come."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.schema import Int16, Int32, Int64, Versions
from pylog.wire.api.table import ApiKey


@dataclass(slots=True, kw_only=True)
class InitProducerIdResponse(Message):
    """The producer id and epoch to write with; -1 after an error."""

    api_key: ClassVar[ApiKey] = ApiKey.INIT_PRODUCER_ID

    throttle_time_ms: Int32 = 0
    error_code: Int16 = ErrorCode.NONE
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1


@dataclass(slots=True, kw_only=True)
class InitProducerIdRequest(Request):
    """Ask for a producer id; ``transactional_id`` None is a producer that is only idempotent."""

    api_key: ClassVar[ApiKey] = ApiKey.INIT_PRODUCER_ID

    transactional_id: str | None = None
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Versions(3)] = -1
    producer_epoch: Annotated[Int16, Versions(3)] = -1

    def error_response(self, code: ErrorCode, message: str | None = None) -> InitProducerIdResponse:
        """Return an answer with *code* and no producer id."""
        return InitProducerIdResponse(error_code=code)


@dataclass(slots=True, kw_only=True)
class DescribeProducersTopic:
    """The partitions of one topic."""

    name: str
    partition_indexes: list[Int32]


@dataclass(slots=True, kw_only=True)
class ProducerState:
    """What a partition knows of one producer; -1 stands for nothing yet."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


@dataclass(slots=True, kw_only=True)
class DescribedProducers:
    """The active producers of one partition."""

    partition_index: Int32
    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    active_producers: list[ProducerState] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeProducersTopicResponse:
    """The answers for one topic."""

    name: str
    partitions: list[DescribedProducers]


@dataclass(slots=True, kw_only=True)
class DescribeProducersResponse(Message):
    """One answer a partition."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_PRODUCERS

    throttle_time_ms: Int32 = 0
    topics: list[DescribeProducersTopicResponse]


@dataclass(slots=True, kw_only=True)
class DescribeProducersRequest(Request):
    """Ask who writes to partitions."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_PRODUCERS

    topics: list[DescribeProducersTopic]

    def error_response(self, code: ErrorCode, message: str | None = None) -> DescribeProducersResponse:
        """Return an answer with *code* at every partition."""
        return DescribeProducersResponse(
            topics=[
                DescribeProducersTopicResponse(
                    name=topic.name,
                    partitions=[
                        DescribedProducers(partition_index=index, error_code=code, error_message=message)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in self.topics
            ]
        )

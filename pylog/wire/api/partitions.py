"""Changes to partitions that exist: more of them, fewer records, other leaders, other replicas."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.schema import Int8, Int16, Int32, Int64, Versions
from pylog.wire.api.table import ApiKey


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopicResult:
    """How the growth of one topic ended."""

    name: str
    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None


@dataclass(slots=True, kw_only=True)
class CreatePartitionsResponse(Message):
    """One result a topic."""

    api_key: ClassVar[ApiKey] = ApiKey.CREATE_PARTITIONS

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult]


@dataclass(slots=True, kw_only=True)
class CreatePartitionsAssignment:
    """The brokers that shall hold one new partition, the preferred leader first."""

    broker_ids: list[Int32]


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopic:
    """A topic, the partitions it shall have in all, and where the new ones go; None lets the cluster choose."""

    name: str
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None = None


@dataclass(slots=True, kw_only=True)
class CreatePartitionsRequest(Request):
    """Add partitions, or only say whether it would work."""

    api_key: ClassVar[ApiKey] = ApiKey.CREATE_PARTITIONS

    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32 = 60_000
    validate_only: bool = False

    def error_response(self, code: ErrorCode, message: str | None = None) -> CreatePartitionsResponse:
        """Return an answer with *code* at every topic."""
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
                for topic in self.topics
            ]
        )


@dataclass(slots=True, kw_only=True)
class DeleteRecordsPartitionResult:
    """The new log start offset of one partition; -1 after an error."""

    partition_index: Int32
    low_watermark: Int64 = -1
    error_code: Int16 = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class DeleteRecordsTopicResult:
    """The results for one topic."""

    name: str
    partitions: list[DeleteRecordsPartitionResult]


@dataclass(slots=True, kw_only=True)
class DeleteRecordsResponse(Message):
    """One result a partition."""

    api_key: ClassVar[ApiKey] = ApiKey.DELETE_RECORDS

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult]


@dataclass(slots=True, kw_only=True)
class DeleteRecordsPartition:
    """A partition and the offset before which everything goes; -1 is the high watermark."""

    partition_index: Int32
    offset: Int64


@dataclass(slots=True, kw_only=True)
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str
    partitions: list[DeleteRecordsPartition]


@dataclass(slots=True, kw_only=True)
class DeleteRecordsRequest(Request):
    """Move log start offsets forward."""

    api_key: ClassVar[ApiKey] = ApiKey.DELETE_RECORDS

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32 = 60_000

    def error_response(self, code: ErrorCode, message: str | None = None) -> DeleteRecordsResponse:
        """Return an answer with *code* at every partition."""
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[
                        DeleteRecordsPartitionResult(partition_index=partition.partition_index, error_code=code)
                        for partition in topic.partitions
                    ],
                )
                for topic in self.topics
            ]
        )


@dataclass(slots=True, kw_only=True)
class PartitionResult:
    """How the election of one partition ended."""

    partition_id: Int32
    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None


@dataclass(slots=True, kw_only=True)
class ReplicaElectionResult:
    """The results for one topic."""

    topic: str
    partition_result: list[PartitionResult]


@dataclass(slots=True, kw_only=True)
class ElectLeadersResponse(Message):
    """One result a partition."""

    api_key: ClassVar[ApiKey] = ApiKey.ELECT_LEADERS

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Versions(1)] = ErrorCode.NONE
    replica_election_results: list[ReplicaElectionResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TopicPartitions:
    """The partitions of one topic."""

    topic: str
    partitions: list[Int32]


@dataclass(slots=True, kw_only=True)
class ElectLeadersRequest(Request):
    """Elect the preferred leader (type 0) or, where none is in sync, any replica (1); None means all partitions."""

    api_key: ClassVar[ApiKey] = ApiKey.ELECT_LEADERS

    election_type: Annotated[Int8, Versions(1)] = 0
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = 60_000

    def error_response(self, code: ErrorCode, message: str | None = None) -> ElectLeadersResponse:
        """Return an answer with *code*, at every named partition too: version 0 has it only there."""
        results = [
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in self.topic_partitions or []
        ]
        return ElectLeadersResponse(error_code=code, replica_election_results=results)


@dataclass(slots=True, kw_only=True)
class ReassignablePartitionResponse:
    """Whether the move of one partition began."""

    partition_index: Int32
    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None


@dataclass(slots=True, kw_only=True)
class ReassignableTopicResponse:
    """The results for one topic."""

    name: str
    partitions: list[ReassignablePartitionResponse]


@dataclass(slots=True, kw_only=True)
class AlterPartitionReassignmentsResponse(Message):
    """One result a partition, or one for all."""

    api_key: ClassVar[ApiKey] = ApiKey.ALTER_PARTITION_REASSIGNMENTS

    throttle_time_ms: Int32 = 0
    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    responses: list[ReassignableTopicResponse] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ReassignablePartition:
    """The replicas one partition shall have; None calls its move off."""

    partition_index: Int32
    replicas: list[Int32] | None = None


@dataclass(slots=True, kw_only=True)
class ReassignableTopic:
    """The partitions of one topic."""

    name: str
    partitions: list[ReassignablePartition]


@dataclass(slots=True, kw_only=True)
class AlterPartitionReassignmentsRequest(Request):
    """Move partitions to other brokers, or call moves off."""

    api_key: ClassVar[ApiKey] = ApiKey.ALTER_PARTITION_REASSIGNMENTS

    timeout_ms: Int32 = 60_000
    topics: list[ReassignableTopic]

    def error_response(self, code: ErrorCode, message: str | None = None) -> AlterPartitionReassignmentsResponse:
        """Return an answer with *code* for the whole request."""
        return AlterPartitionReassignmentsResponse(error_code=code, error_message=message)


@dataclass(slots=True, kw_only=True)
class OngoingPartitionReassignment:
    """A partition on the move: replicas now, those that come, those that go."""

    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


@dataclass(slots=True, kw_only=True)
class OngoingTopicReassignment:
    """The moving partitions of one topic."""

    name: str
    partitions: list[OngoingPartitionReassignment]


@dataclass(slots=True, kw_only=True)
class ListPartitionReassignmentsResponse(Message):
    """What is on the move."""

    api_key: ClassVar[ApiKey] = ApiKey.LIST_PARTITION_REASSIGNMENTS

    throttle_time_ms: Int32 = 0
    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    topics: list[OngoingTopicReassignment] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ListPartitionReassignmentsTopics:
    """The partitions of one topic."""

    name: str
    partition_indexes: list[Int32]


@dataclass(slots=True, kw_only=True)
class ListPartitionReassignmentsRequest(Request):
    """Ask what is on the move; None asks for all partitions."""

    api_key: ClassVar[ApiKey] = ApiKey.LIST_PARTITION_REASSIGNMENTS

    timeout_ms: Int32 = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = None

    def error_response(self, code: ErrorCode, message: str | None = None) -> ListPartitionReassignmentsResponse:
        """Return an answer with *code*."""
        return ListPartitionReassignmentsResponse(error_code=code, error_message=message)

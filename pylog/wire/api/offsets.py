"""ListOffsets and OffsetForLeaderEpoch: where in a partition something stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.schema import Int8, Int16, Int32, Int64, Versions
from pylog.wire.api.table import ApiKey

LATEST_TIMESTAMP = -1
"""Asks for the high watermark, or the last stable offset of a reader of committed records."""
EARLIEST_TIMESTAMP = -2
"""Asks for the log start offset."""
MAX_TIMESTAMP = -3
"""Asks for the record with the greatest timestamp (from version 7 on)."""
EARLIEST_LOCAL_TIMESTAMP = -4
"""Asks for the first offset on the broker's own disks (from version 8 on): the log start offset, as all is there."""
LATEST_TIERED_TIMESTAMP = -5
"""Asks for the last offset in remote storage (from version 9 on): none, as there is no such storage."""

SPECIAL_TIMESTAMPS: Mapping[int, int] = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
}
"""Timestamps that stand for a place in the log, and the first version that has each."""


@dataclass(slots=True, kw_only=True)
class ListOffsetsPartition:
    """A partition and the timestamp looked for; negative timestamps are the constants above."""

    partition_index: Int32
    current_leader_epoch: Annotated[Int32, Versions(4)] = -1
    timestamp: Int64


@dataclass(slots=True, kw_only=True)
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: str
    partitions: list[ListOffsetsPartition]


@dataclass(slots=True, kw_only=True)
class ListOffsetsPartitionResponse:
    """The first record at or after the timestamp; offset -1 if there is none."""

    partition_index: Int32
    error_code: Int16 = ErrorCode.NONE
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, Versions(4)] = -1


@dataclass(slots=True, kw_only=True)
class ListOffsetsTopicResponse:
    """The answers for one topic."""

    name: str
    partitions: list[ListOffsetsPartitionResponse]


@dataclass(slots=True, kw_only=True)
class ListOffsetsResponse(Message):
    """One answer a partition."""

    api_key: ClassVar[ApiKey] = ApiKey.LIST_OFFSETS

    throttle_time_ms: Annotated[Int32, Versions(2)] = 0
    topics: list[ListOffsetsTopicResponse]


@dataclass(slots=True, kw_only=True)
class ListOffsetsRequest(Request):
    """Find offsets by time.

    Attributes:
        replica_id: -1 for a client, a broker's id for a follower, -2 for a debugging client.
        isolation_level: 0 reads everything below the high watermark, 1 only what is committed.
    """

    api_key: ClassVar[ApiKey] = ApiKey.LIST_OFFSETS

    replica_id: Int32 = -1
    isolation_level: Annotated[Int8, Versions(2)] = 0
    topics: list[ListOffsetsTopic]

    def error_response(self, code: ErrorCode, message: str | None = None) -> ListOffsetsResponse:
        """Return an answer with *code* at every partition."""
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=code)
                        for partition in topic.partitions
                    ],
                )
                for topic in self.topics
            ]
        )


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderPartition:
    """A partition and the leader epoch whose end is looked for."""

    partition: Int32
    current_leader_epoch: Annotated[Int32, Versions(2)] = -1
    leader_epoch: Int32


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[OffsetForLeaderPartition]


@dataclass(slots=True, kw_only=True)
class EpochEndOffset:
    """The largest epoch not above the asked one, and the offset after its last record; -1 if unknown."""

    error_code: Int16 = ErrorCode.NONE
    partition: Int32
    leader_epoch: Annotated[Int32, Versions(1)] = -1
    end_offset: Int64 = -1


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopicResult:
    """The answers for one topic."""

    topic: str
    partitions: list[EpochEndOffset]


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochResponse(Message):
    """One answer a partition."""

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_FOR_LEADER_EPOCH

    throttle_time_ms: Annotated[Int32, Versions(2)] = 0
    topics: list[OffsetForLeaderTopicResult]


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochRequest(Request):
    """Find where leader epochs end; ``replica_id`` -2 is a client older than version 3."""

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_FOR_LEADER_EPOCH

    replica_id: Annotated[Int32, Versions(3)] = -2
    topics: list[OffsetForLeaderTopic]

    def error_response(self, code: ErrorCode, message: str | None = None) -> OffsetForLeaderEpochResponse:
        """Return an answer with *code* at every partition."""
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[
                        EpochEndOffset(partition=partition.partition, error_code=code) for partition in topic.partitions
                    ],
                )
                for topic in self.topics
            ]
        )

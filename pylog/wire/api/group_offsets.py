"""OffsetCommit, OffsetFetch and OffsetDelete: how far a group has read."""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Self

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.schema import Int16, Int32, Int64, Versions
from pylog.wire.api.table import ApiKey


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponsePartition:
    """How one commit ended."""

    partition_index: Int32
    error_code: Int16 = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponseTopic:
    """The results for one topic."""

    name: str
    partitions: list[OffsetCommitResponsePartition]


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponse(Message):
    """One result a partition."""

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_COMMIT

    throttle_time_ms: Annotated[Int32, Versions(3)] = 0
    topics: list[OffsetCommitResponseTopic]


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestPartition:
    """The next offset to read of one partition."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, Versions(6)] = -1
    committed_metadata: str | None = None


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str
    partitions: list[OffsetCommitRequestPartition]


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequest(Request):
    """Store how far a group has read; generation -1 and no member come from outside the group."""

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_COMMIT

    group_id: str
    generation_id_or_member_epoch: Int32 = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, Versions(7)] = None
    retention_time_ms: Annotated[Int64, Versions(2, 4)] = -1
    topics: list[OffsetCommitRequestTopic]

    def error_response(self, code: ErrorCode, message: str | None = None) -> OffsetCommitResponse:
        """Return an answer with *code* at every partition."""
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                        for partition in topic.partitions
                    ],
                )
                for topic in self.topics
            ]
        )


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponsePartition:
    """The committed offset of one partition; -1 if there is none."""

    partition_index: Int32
    committed_offset: Int64 = -1
    committed_leader_epoch: Annotated[Int32, Versions(5)] = -1
    metadata: str | None = ""
    error_code: Int16 = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseTopic:
    """The offsets in one topic."""

    name: str
    partitions: list[OffsetFetchResponsePartition]


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseGroup:
    """The offsets of one group."""

    group_id: str
    topics: list[OffsetFetchResponseTopic]
    error_code: Int16 = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponse(Message):
    """One answer a group; fill ``groups`` only, older versions get its first entry."""

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_FETCH

    throttle_time_ms: Annotated[Int32, Versions(3)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], Versions(0, 7)] = field(default_factory=list)
    error_code: Annotated[Int16, Versions(2, 7)] = ErrorCode.NONE
    groups: Annotated[list[OffsetFetchResponseGroup], Versions(8)] = field(default_factory=list)

    def _fold(self, version: int) -> None:
        if version < 8:
            self.groups = [OffsetFetchResponseGroup(group_id="", topics=self.topics, error_code=self.error_code)]

    def _spread(self, version: int) -> Self:
        if version >= 8:
            return self
        (only,) = self.groups  # a request that old asks for one group
        return replace(self, topics=only.topics, error_code=only.error_code)


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestTopic:
    """The partitions of one topic."""

    name: str
    partition_indexes: list[Int32]


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestGroup:
    """A group and the partitions wanted; None wants all it has offsets for."""

    group_id: str
    topics: list[OffsetFetchRequestTopic] | None = None


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequest(Request):
    """Ask how far groups have read; read ``groups``, which is filled in every version."""

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_FETCH

    group_id: Annotated[str, Versions(0, 7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, Versions(0, 7, null_from=2)] = field(default_factory=list)
    groups: Annotated[list[OffsetFetchRequestGroup], Versions(8)] = field(default_factory=list)
    require_stable: Annotated[bool, Versions(7)] = False

    def _fold(self, version: int) -> None:
        if version < 8:
            self.groups = [OffsetFetchRequestGroup(group_id=self.group_id, topics=self.topics)]

    def _spread(self, version: int) -> Self:
        if version >= 8:
            return self
        (only,) = self.groups
        return replace(self, group_id=only.group_id, topics=only.topics)

    def error_response(self, code: ErrorCode, message: str | None = None) -> OffsetFetchResponse:
        """Return an answer with *code* at every group, and at every partition for versions that have it only there."""
        return OffsetFetchResponse(groups=[_refused_group(group, code) for group in self.groups])


def _refused_group(group: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(partition_index=index, error_code=code)
                for index in topic.partition_indexes
            ],
        )
        for topic in group.topics or []
    ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=code)


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponsePartition:
    """How the deletion of one offset ended."""

    partition_index: Int32
    error_code: Int16 = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponseTopic:
    """The results for one topic."""

    name: str
    partitions: list[OffsetDeleteResponsePartition]


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponse(Message):
    """One result a partition, or one for all."""

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_DELETE

    error_code: Int16 = ErrorCode.NONE
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequestPartition:
    """A partition whose offset goes."""

    partition_index: Int32


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: str
    partitions: list[OffsetDeleteRequestPartition]


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequest(Request):
    """Forget offsets of topics the group no longer reads."""

    api_key: ClassVar[ApiKey] = ApiKey.OFFSET_DELETE

    group_id: str
    topics: list[OffsetDeleteRequestTopic]

    def error_response(self, code: ErrorCode, message: str | None = None) -> OffsetDeleteResponse:
        """Return an answer with *code* for the whole request."""
        return OffsetDeleteResponse(error_code=code)

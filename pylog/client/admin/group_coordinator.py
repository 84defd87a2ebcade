"""What the coordinator of a consumer group is asked, in the protocol's messages.

Source: Kafka protocol guide, DescribeGroups, OffsetFetch, OffsetCommit and DeleteGroups.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from pylog.client.connection import Connection
from pylog.client.raw import CoordinatorAnswer, RawClient, RawConfig, error_of
from pylog.errors import ApiError, ErrorCode
from pylog.model import NodeAddress, Offset, TopicPartition
from pylog.wire.api.coordinator import GROUP
from pylog.wire.api.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from pylog.wire.api.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pylog.wire.api.message import Request

_T = TypeVar("_T")

_TRIES = 2
"""How often a coordinator that does not answer is asked within one call's time: by then there may be another."""

# Each the last before flexible encoding; Kafka 2.4 and all later ones answer them.
_DESCRIBE_VERSION = 4
_FETCH_VERSION = 5
_COMMIT_VERSION = 7
_DELETE_VERSION = 1

_REASONS = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "is not allowed to this user",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "is not allowed to this user",
    ErrorCode.GROUP_ID_NOT_FOUND: "does not exist",
    ErrorCode.NON_EMPTY_GROUP: "has members",
    ErrorCode.UNKNOWN_MEMBER_ID: "has members",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "does not exist",
}
"""Codes that asking again does not change, in the words that follow a group or a partition."""


class GroupCoordinators:
    """Asks the coordinators of groups, one request at a time; not for several threads at once.

    Every method looks for the coordinator and asks it, and does both again when the coordinator has moved, is loading
    or its connection breaks.  Each raises `Unreachable` when no broker answers, and `ApiError` when one refuses.

    Args:
        cluster: which; its time-out is that of one call.
    """

    def __init__(self, cluster: Connection) -> None:
        timeout_ms = int(cluster.timeout_s * 1000)
        limits = RawConfig(request_timeout_ms=timeout_ms // _TRIES, retry_ms=timeout_ms)
        self._client = RawClient(cluster.bootstrap, limits, cluster.security())

    def close(self) -> None:
        """Close the connections; the next question opens new ones."""
        self._client.close()

    def describe(self, group_id: str) -> tuple[NodeAddress, DescribedGroup]:
        """Return a group and its coordinator; Dead and without a member if nobody ever used it."""

        def read(answer: CoordinatorAnswer) -> tuple[NodeAddress, DescribedGroup]:
            [group] = DescribeGroupsResponse.decode(_DESCRIBE_VERSION, answer.body).groups
            _raise_for(group.error_code, f"group {group_id!r}")
            return answer.broker, group

        return self._ask(group_id, DescribeGroupsRequest(groups=[group_id]), _DESCRIBE_VERSION, read)

    def committed(self, group_id: str) -> dict[TopicPartition, Offset]:
        """Return every offset that a group has committed."""

        def read(answer: CoordinatorAnswer) -> dict[TopicPartition, Offset]:
            [group] = OffsetFetchResponse.decode(_FETCH_VERSION, answer.body).groups
            _raise_for(group.error_code, f"group {group_id!r}")
            offsets: dict[TopicPartition, Offset] = {}
            for topic in group.topics:
                for partition in topic.partitions:
                    where = TopicPartition(topic.name, partition.partition_index)
                    _raise_for(partition.error_code, f"group {group_id!r}, {where}")
                    if partition.committed_offset >= 0:
                        offsets[where] = partition.committed_offset
            return offsets

        request = OffsetFetchRequest(group_id=group_id, groups=[OffsetFetchRequestGroup(group_id=group_id)])
        return self._ask(group_id, request, _FETCH_VERSION, read)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Set offsets of a group that has no members.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, if it has.
        """
        if not offsets:
            return
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            topics.setdefault(topic, []).append(row)
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )

        def read(answer: CoordinatorAnswer) -> None:
            for topic in OffsetCommitResponse.decode(_COMMIT_VERSION, answer.body).topics:
                for partition in topic.partitions:
                    where = TopicPartition(topic.name, partition.partition_index)
                    _raise_for(partition.error_code, f"group {group_id!r}, {where}")

        self._ask(group_id, request, _COMMIT_VERSION, read)

    def delete(self, group_id: str) -> None:
        """Delete a group without members, and its offsets.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP, if it has members.
        """

        def read(answer: CoordinatorAnswer) -> None:
            [result] = DeleteGroupsResponse.decode(_DELETE_VERSION, answer.body).results
            if answer.is_repeated and result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return  # an earlier try deleted the group, and its answer was lost
            _raise_for(result.error_code, f"group {group_id!r}")

        self._ask(group_id, DeleteGroupsRequest(groups_names=[group_id]), _DELETE_VERSION, read)

    def _ask(self, group_id: str, request: Request, version: int, read: Callable[[CoordinatorAnswer], _T]) -> _T:
        return self._client.ask_coordinator(group_id, GROUP, request, version, read)


def _raise_for(error_code: int, what: str) -> None:
    error = error_of(error_code, what)
    if error is None:
        return
    if error.code in _REASONS:
        error = ApiError(error.code, f"{what} {_REASONS[error.code]}")
        error.retriable = False
    raise error

"""One function per API of consumer groups; see `pylog.broker.apis`."""

from collections.abc import Awaitable, Iterator, Mapping
from typing import Protocol

from pylog.broker.data.partitions import Partitions
from pylog.broker.groups.coordinator import GroupCoordinator, check_group_id
from pylog.broker.handler import Answer, Caller, Handler
from pylog.broker.large import in_steps
from pylog.errors import ApiError, ErrorCode
from pylog.group import records as group_records
from pylog.group.records import CommittedOffset
from pylog.group.state import Group, State
from pylog.group.subscription import CONSUMER_PROTOCOL, subscribed_topics
from pylog.model import Key
from pylog.security.acl import CLUSTER_NAME, Operation, ResourceType
from pylog.wire.api import ApiKey
from pylog.wire.api.coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pylog.wire.api.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from pylog.wire.api.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)
from pylog.wire.api.message import Message, Request


class Cluster(Protocol):
    """What these handlers use of the broker.

    Attributes:
        partitions: hosted here, under the newest image.
        groups: the groups coordinated here.
    """

    partitions: Partitions
    groups: GroupCoordinator

    async def ask_controller(self, request: Request) -> Message:
        """Return the controller's answer, once its effect is visible on this broker."""


def find_coordinator(cluster: Cluster, request: FindCoordinatorRequest, caller: Caller) -> Answer:
    """Say which broker keeps each group; make the topic that keeps them if it is missing."""
    is_allowed = {key: caller.may_group(Operation.DESCRIBE, key) for key in request.coordinator_keys}
    if group_records.TOPIC not in cluster.partitions.image.topics and any(is_allowed.values()):
        cluster.groups.topic.create(cluster.ask_controller)
    rows = []
    for key in request.coordinator_keys:
        row = Coordinator(key=key)
        try:
            if not is_allowed[key]:
                # librdkafka shows this instead of the code's own name.
                message = f"authorization failed: group {key}: {Operation.DESCRIBE.name} is not allowed"
                raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, message)
            check_group_id(key)
            row.node_id, row.host, row.port = cluster.groups.topic.coordinator_of(key, caller.session.listener_name)
        except ApiError as error:
            row.error_code, row.error_message = error.code, str(error)
        rows.append(row)
    return FindCoordinatorResponse(coordinators=rows)


def join_group(cluster: Cluster, request: JoinGroupRequest, caller: Caller) -> Answer:
    """Take a member in."""
    caller.require_group(Operation.READ, request.group_id)
    return cluster.groups.join(request, caller.client_id, f"/{caller.session.client_host}", caller.version)


def sync_group(cluster: Cluster, request: SyncGroupRequest, caller: Caller) -> Answer:
    """Give a member its assignment."""
    caller.require_group(Operation.READ, request.group_id)
    return cluster.groups.sync(request)


def heartbeat(cluster: Cluster, request: HeartbeatRequest, caller: Caller) -> Answer:
    """Prolong a member's session."""
    caller.require_group(Operation.READ, request.group_id)
    error = cluster.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=error)


def leave_group(cluster: Cluster, request: LeaveGroupRequest, caller: Caller) -> Answer:
    """Let members go."""
    caller.require_group(Operation.READ, request.group_id)
    return cluster.groups.leave(request)


def offset_commit(cluster: Cluster, request: OffsetCommitRequest, caller: Caller) -> Answer:
    """Write down how far a group has read."""
    caller.require_group(Operation.READ, request.group_id)
    wanted: dict[Key, CommittedOffset] = {}
    rows: list[OffsetCommitResponseTopic] = []
    steps = _look_at_commit(cluster, request, caller, wanted, rows)

    def commit() -> Answer:
        groups = cluster.groups
        fault = groups.commit_fault(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
        )
        # Appended before anything else happens to the group, which is the one that was asked here.
        written = groups.commit(request.group_id, wanted) if fault is ErrorCode.NONE else fault
        return answer(written) if isinstance(written, ErrorCode) else answer_later(written)

    def answer(error: ErrorCode) -> Message:
        return request.error_response(error) if error is not ErrorCode.NONE else OffsetCommitResponse(topics=rows)

    async def answer_later(written: Awaitable[ErrorCode]) -> Message:
        return answer(await written)

    return in_steps(steps, commit)


def _look_at_commit(
    cluster: Cluster,
    request: OffsetCommitRequest,
    caller: Caller,
    wanted: dict[Key, CommittedOffset],
    rows: list[OffsetCommitResponseTopic],
) -> Iterator[None]:
    """Add what may be committed to *wanted*, and a row to *rows* for each topic; one partition a step."""
    image = cluster.partitions.image
    for topic in request.topics:
        yield
        row = OffsetCommitResponseTopic(name=topic.name, partitions=[])
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
            row.partitions.append(OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=error))


def offset_fetch(cluster: Cluster, request: OffsetFetchRequest, caller: Caller) -> Answer:
    """Say how far groups have read."""
    rows: list[OffsetFetchResponseGroup] = []
    steps = _look_up_offsets(cluster, request, caller, rows)

    def answer() -> Message:
        for row in rows:
            if not row.error_code:
                cluster.groups.offsets(row.group_id)  # another broker may coordinate it by now, and know of later ones
        return OffsetFetchResponse(groups=rows)

    return in_steps(steps, answer)


def _look_up_offsets(
    cluster: Cluster, request: OffsetFetchRequest, caller: Caller, rows: list[OffsetFetchResponseGroup]
) -> Iterator[None]:
    """Add a row to *rows* for each group; one partition a step."""
    seen: set[str] = set()
    for wanted in request.groups:
        yield
        # All offsets of a group are told once, however often it is named: its id takes a few bytes, they many thousand.
        if wanted.topics is None and wanted.group_id in seen:
            continue
        seen.add(wanted.group_id)
        try:
            caller.require_group(Operation.DESCRIBE, wanted.group_id)
            known = cluster.groups.offsets(wanted.group_id)
        except ApiError as error:
            refused = OffsetFetchRequest(groups=[wanted]).error_response(error.code)
            assert isinstance(refused, OffsetFetchResponse)
            rows += refused.groups
            continue
        row = OffsetFetchResponseGroup(group_id=wanted.group_id, topics=[])
        rows.append(row)
        yield from _fetch_offsets(cluster.groups, wanted, known, caller, row, require_stable=request.require_stable)


def _fetch_offsets(
    groups: GroupCoordinator,
    wanted: OffsetFetchRequestGroup,
    known: Mapping[Key, CommittedOffset],
    caller: Caller,
    answered: OffsetFetchResponseGroup,
    *,
    require_stable: bool,
) -> Iterator[None]:
    keys: list[Key]
    denied: set[str] = set()
    if wanted.topics is None:
        shown = {topic: caller.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic) for topic, _ in known}
        keys = [key for key in known if shown[key[0]]]
    else:
        keys = [(topic.name, index) for topic in wanted.topics for index in topic.partition_indexes]
        denied = {topic.name for topic in wanted.topics if not caller.may_topic(Operation.DESCRIBE, topic.name)}
    topics: dict[str, OffsetFetchResponseTopic] = {}
    for topic, index in keys:
        yield
        row = OffsetFetchResponsePartition(partition_index=index)
        found = known.get((topic, index))
        if topic in denied:
            row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif require_stable and groups.is_unstable(wanted.group_id, (topic, index)):
            row.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT  # clients ask again
        elif found is not None:
            row.committed_offset, row.committed_leader_epoch = found.offset, found.leader_epoch
            row.metadata = found.metadata
        if topic not in topics:
            topics[topic] = OffsetFetchResponseTopic(name=topic, partitions=[])
            answered.topics.append(topics[topic])
        topics[topic].partitions.append(row)


def offset_delete(cluster: Cluster, request: OffsetDeleteRequest, caller: Caller) -> Answer:
    """Forget offsets of topics a group does not read any more."""
    caller.require_group(Operation.DELETE, request.group_id)
    group = cluster.groups.group(request.group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {request.group_id} does not exist")
    if group.members and group.protocol_type != CONSUMER_PROTOCOL:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {request.group_id} has members")
    subscribed = _subscribed_topics(group)
    image = cluster.partitions.image
    rows, wanted = [], []
    for topic in request.topics:
        row = OffsetDeleteResponseTopic(name=topic.name, partitions=[])
        rows.append(row)
        is_allowed = caller.may_topic(Operation.READ, topic.name)
        for part in topic.partitions:
            error = ErrorCode.NONE
            if not is_allowed:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic.name in subscribed:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif image.partition(topic.name, part.partition_index) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted.append((topic.name, part.partition_index))
            row.partitions.append(OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=error))

    async def answer() -> Message:
        error = await cluster.groups.delete_offsets(request.group_id, wanted)
        return OffsetDeleteResponse(error_code=error, topics=rows)

    return answer()


def _subscribed_topics(group: Group) -> set[str]:
    found: set[str] = set()
    for member in group.members.values():
        topics = subscribed_topics(member.metadata(group.protocol))
        if topics is None:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"the subscription of {member.member_id} cannot be read")
        found |= topics
    return found


def describe_groups(cluster: Cluster, request: DescribeGroupsRequest, caller: Caller) -> Answer:
    """Say what groups look like; one that is not known looks dead."""
    rows = []
    for group_id in dict.fromkeys(request.groups):  # each is described once
        row = DescribedGroup(group_id=group_id)
        rows.append(row)
        try:
            caller.require_group(Operation.DESCRIBE, group_id)
            group = cluster.groups.group(group_id)
        except ApiError as error:
            row.error_code = error.code
            continue
        if request.include_authorized_operations:
            row.authorized_operations = caller.operations(ResourceType.GROUP, group_id)
        if group is None:
            row.group_state = State.DEAD.value
            continue
        row.group_state, row.protocol_type = group.state.value, group.protocol_type or ""
        is_stable = group.state is State.STABLE  # before that, what members had says nothing about what they will have
        row.protocol_data = group.protocol or "" if is_stable else ""
        row.members = [
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ]
    return DescribeGroupsResponse(groups=rows)


def list_groups(cluster: Cluster, request: ListGroupsRequest, caller: Caller) -> Answer:
    """Say which groups are coordinated here."""
    states = {name.lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    is_all = caller.sees(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    if types and "classic" not in types:
        return ListGroupsResponse()
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type="classic",
            )
            for group in cluster.groups.groups()
            if (not states or group.state.value.lower() in states)
            and (is_all or caller.sees(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
        ]
    )


def delete_groups(cluster: Cluster, request: DeleteGroupsRequest, caller: Caller) -> Answer:
    """Delete groups that have no members, with their offsets."""

    async def answer() -> Message:
        rows = []
        for group_id in request.groups_names:
            try:
                caller.require_group(Operation.DELETE, group_id)
                error = await cluster.groups.delete(group_id)
            except ApiError as fault:
                error = fault.code
            rows.append(DeletableGroupResult(group_id=group_id, error_code=error))
        return DeleteGroupsResponse(results=rows)

    return answer()


GROUP_APIS: Mapping[ApiKey, tuple[type[Request], Handler]] = {
    ApiKey.JOIN_GROUP: (JoinGroupRequest, join_group),
    ApiKey.SYNC_GROUP: (SyncGroupRequest, sync_group),
    ApiKey.HEARTBEAT: (HeartbeatRequest, heartbeat),
    ApiKey.LEAVE_GROUP: (LeaveGroupRequest, leave_group),
    ApiKey.OFFSET_COMMIT: (OffsetCommitRequest, offset_commit),
    ApiKey.OFFSET_FETCH: (OffsetFetchRequest, offset_fetch),
    ApiKey.OFFSET_DELETE: (OffsetDeleteRequest, offset_delete),
    ApiKey.DESCRIBE_GROUPS: (DescribeGroupsRequest, describe_groups),
    ApiKey.LIST_GROUPS: (ListGroupsRequest, list_groups),
    ApiKey.DELETE_GROUPS: (DeleteGroupsRequest, delete_groups),
}

"""Consumer groups: joining, syncing, staying, leaving, looking at them."""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Self

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.operations import NOT_ASKED
from pylog.wire.api.schema import Int16, Int32, Versions
from pylog.wire.api.table import ApiKey


@dataclass(slots=True, kw_only=True)
class JoinGroupResponseMember:
    """A member and its subscription, as the leader of the group is told."""

    member_id: str
    group_instance_id: Annotated[str | None, Versions(5)] = None
    metadata: bytes


@dataclass(slots=True, kw_only=True)
class JoinGroupResponse(Message):
    """The new generation; only its leader is told the members."""

    api_key: ClassVar[ApiKey] = ApiKey.JOIN_GROUP

    throttle_time_ms: Annotated[Int32, Versions(2)] = 0
    error_code: Int16 = ErrorCode.NONE
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, Versions(7)] = None
    protocol_name: Annotated[str | None, Versions(null_from=7)] = None
    leader: str = ""
    skip_assignment: Annotated[bool, Versions(9)] = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)

    def _spread(self, version: int) -> Self:
        return replace(self, protocol_name="") if version < 7 and self.protocol_name is None else self


@dataclass(slots=True, kw_only=True)
class JoinGroupRequestProtocol:
    """An assignor the member can run, and its subscription in that assignor's format."""

    name: str
    metadata: bytes


@dataclass(slots=True, kw_only=True)
class JoinGroupRequest(Request):
    """Join a group, or take part in its next generation.

    Attributes:
        rebalance_timeout_ms: how long the others wait for this member; version 0 uses the session's.
        member_id: empty on the first attempt.
        group_instance_id: of a static member.
        protocols: the best first.
    """

    api_key: ClassVar[ApiKey] = ApiKey.JOIN_GROUP

    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, Versions(1)] = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, Versions(5)] = None
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: Annotated[str | None, Versions(8)] = None

    def _fold(self, version: int) -> None:
        if version == 0:
            self.rebalance_timeout_ms = self.session_timeout_ms

    def error_response(self, code: ErrorCode, message: str | None = None) -> JoinGroupResponse:
        """Return an answer with *code* and no generation."""
        return JoinGroupResponse(error_code=code, member_id=self.member_id)


@dataclass(slots=True, kw_only=True)
class SyncGroupResponse(Message):
    """What this member shall read; empty for one without work."""

    api_key: ClassVar[ApiKey] = ApiKey.SYNC_GROUP

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Int16 = ErrorCode.NONE
    protocol_type: Annotated[str | None, Versions(5)] = None
    protocol_name: Annotated[str | None, Versions(5)] = None
    assignment: bytes = b""


@dataclass(slots=True, kw_only=True)
class SyncGroupRequestAssignment:
    """What one member shall read."""

    member_id: str
    assignment: bytes


@dataclass(slots=True, kw_only=True)
class SyncGroupRequest(Request):
    """Ask for the assignment of a generation; the group's leader brings everybody's."""

    api_key: ClassVar[ApiKey] = ApiKey.SYNC_GROUP

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, Versions(3)] = None
    protocol_type: Annotated[str | None, Versions(5)] = None
    protocol_name: Annotated[str | None, Versions(5)] = None
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)

    def error_response(self, code: ErrorCode, message: str | None = None) -> SyncGroupResponse:
        """Return an answer with *code* and nothing to read."""
        return SyncGroupResponse(error_code=code)


@dataclass(slots=True, kw_only=True)
class HeartbeatResponse(Message):
    """Whether the member is still one, or has to join again."""

    api_key: ClassVar[ApiKey] = ApiKey.HEARTBEAT

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Int16 = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class HeartbeatRequest(Request):
    """Say that a member lives."""

    api_key: ClassVar[ApiKey] = ApiKey.HEARTBEAT

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, Versions(3)] = None

    def error_response(self, code: ErrorCode, message: str | None = None) -> HeartbeatResponse:
        """Return an answer with *code*."""
        return HeartbeatResponse(error_code=code)


@dataclass(slots=True, kw_only=True)
class MemberResponse:
    """How the leaving of one member ended."""

    member_id: str
    group_instance_id: str | None = None
    error_code: Int16 = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class LeaveGroupResponse(Message):
    """One result a member."""

    api_key: ClassVar[ApiKey] = ApiKey.LEAVE_GROUP

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Int16 = ErrorCode.NONE
    members: Annotated[list[MemberResponse], Versions(3)] = field(default_factory=list)

    def _spread(self, version: int) -> Self:
        # Before version 3 one member leaves, and its result is the answer's.
        if version < 3 and self.error_code == ErrorCode.NONE and self.members:
            return replace(self, error_code=self.members[0].error_code)
        return self


@dataclass(slots=True, kw_only=True)
class MemberIdentity:
    """A member that leaves: by member id, or a static one by instance id."""

    member_id: str
    group_instance_id: str | None = None
    reason: Annotated[str | None, Versions(5)] = None


@dataclass(slots=True, kw_only=True)
class LeaveGroupRequest(Request):
    """Leave a group; read ``members``, which is filled in every version."""

    api_key: ClassVar[ApiKey] = ApiKey.LEAVE_GROUP

    group_id: str
    member_id: Annotated[str, Versions(0, 2)] = ""
    members: Annotated[list[MemberIdentity], Versions(3)] = field(default_factory=list)

    def _fold(self, version: int) -> None:
        if version < 3:
            self.members = [MemberIdentity(member_id=self.member_id)]

    def _spread(self, version: int) -> Self:
        if version >= 3:
            return self
        (only,) = self.members
        return replace(self, member_id=only.member_id)

    def error_response(self, code: ErrorCode, message: str | None = None) -> LeaveGroupResponse:
        """Return an answer with *code* for the whole request."""
        return LeaveGroupResponse(error_code=code)


@dataclass(slots=True, kw_only=True)
class DescribedGroupMember:
    """A member as an operator sees it."""

    member_id: str
    group_instance_id: Annotated[str | None, Versions(4)] = None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@dataclass(slots=True, kw_only=True)
class DescribedGroup:
    """A group as an operator sees it; ``protocol_data`` is the assignor in force."""

    error_code: Int16 = ErrorCode.NONE
    group_id: str
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = field(default_factory=list)
    authorized_operations: Annotated[Int32, Versions(3)] = NOT_ASKED


@dataclass(slots=True, kw_only=True)
class DescribeGroupsResponse(Message):
    """One description a group."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_GROUPS

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    groups: list[DescribedGroup]


@dataclass(slots=True, kw_only=True)
class DescribeGroupsRequest(Request):
    """Ask what groups look like."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_GROUPS

    groups: list[str]
    include_authorized_operations: Annotated[bool, Versions(3)] = False

    def error_response(self, code: ErrorCode, message: str | None = None) -> DescribeGroupsResponse:
        """Return an answer with *code* at every group."""
        return DescribeGroupsResponse(groups=[DescribedGroup(group_id=group, error_code=code) for group in self.groups])


@dataclass(slots=True, kw_only=True)
class ListedGroup:
    """A group this broker coordinates."""

    group_id: str
    protocol_type: str
    group_state: Annotated[str, Versions(4)] = ""
    group_type: Annotated[str, Versions(5)] = ""


@dataclass(slots=True, kw_only=True)
class ListGroupsResponse(Message):
    """The groups of one broker; a client asks them all."""

    api_key: ClassVar[ApiKey] = ApiKey.LIST_GROUPS

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Int16 = ErrorCode.NONE
    groups: list[ListedGroup] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ListGroupsRequest(Request):
    """Ask which groups there are; an empty filter passes everything."""

    api_key: ClassVar[ApiKey] = ApiKey.LIST_GROUPS

    states_filter: Annotated[list[str], Versions(4)] = field(default_factory=list)
    types_filter: Annotated[list[str], Versions(5)] = field(default_factory=list)

    def error_response(self, code: ErrorCode, message: str | None = None) -> ListGroupsResponse:
        """Return an answer with *code* and no groups."""
        return ListGroupsResponse(error_code=code)


@dataclass(slots=True, kw_only=True)
class DeletableGroupResult:
    """How the deletion of one group ended."""

    group_id: str
    error_code: Int16 = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class DeleteGroupsResponse(Message):
    """One result a group."""

    api_key: ClassVar[ApiKey] = ApiKey.DELETE_GROUPS

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult]


@dataclass(slots=True, kw_only=True)
class DeleteGroupsRequest(Request):
    """Delete empty groups and their offsets."""

    api_key: ClassVar[ApiKey] = ApiKey.DELETE_GROUPS

    groups_names: list[str]

    def error_response(self, code: ErrorCode, message: str | None = None) -> DeleteGroupsResponse:
        """Return an answer with *code* at every group."""
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=group, error_code=code) for group in self.groups_names]
        )

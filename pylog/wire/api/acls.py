"""DescribeAcls, CreateAcls and DeleteAcls.

Types, operations and permissions travel as numbers; `pylog.security.acl` says what they mean.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.schema import Int8, Int16, Int32
from pylog.wire.api.table import ApiKey


@dataclass(slots=True, kw_only=True)
class AclDescription:
    """One entry of a resource pattern."""

    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@dataclass(slots=True, kw_only=True)
class DescribeAclsResource:
    """A resource pattern and the entries of it that the filter selects."""

    resource_type: Int8
    resource_name: str
    pattern_type: Int8
    acls: list[AclDescription]


@dataclass(slots=True, kw_only=True)
class DescribeAclsResponse(Message):
    """What the filter selects."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_ACLS

    throttle_time_ms: Int32 = 0
    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    resources: list[DescribeAclsResource] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeAclsRequest(Request):
    """Ask for bindings; a field that is null, or a number for ANY, selects all."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_ACLS

    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8

    def error_response(self, code: ErrorCode, message: str | None = None) -> DescribeAclsResponse:
        """Return an answer with *code* and no bindings."""
        return DescribeAclsResponse(error_code=code, error_message=message)


@dataclass(slots=True, kw_only=True)
class AclCreationResult:
    """How the creation of one binding ended."""

    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None


@dataclass(slots=True, kw_only=True)
class CreateAclsResponse(Message):
    """One result a creation, in order."""

    api_key: ClassVar[ApiKey] = ApiKey.CREATE_ACLS

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class AclCreation:
    """A binding to create."""

    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@dataclass(slots=True, kw_only=True)
class CreateAclsRequest(Request):
    """Create bindings."""

    api_key: ClassVar[ApiKey] = ApiKey.CREATE_ACLS

    creations: list[AclCreation]

    def error_response(self, code: ErrorCode, message: str | None = None) -> CreateAclsResponse:
        """Return an answer with *code* at every creation."""
        return CreateAclsResponse(
            results=[AclCreationResult(error_code=code, error_message=message) for _ in self.creations]
        )


@dataclass(slots=True, kw_only=True)
class DeleteAclsMatchingAcl:
    """A binding that was deleted, or the reason why it was not."""

    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    resource_type: Int8
    resource_name: str
    pattern_type: Int8
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@dataclass(slots=True, kw_only=True)
class DeleteAclsFilterResult:
    """What one filter deleted."""

    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    matching_acls: list[DeleteAclsMatchingAcl] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DeleteAclsResponse(Message):
    """One result a filter, in order."""

    api_key: ClassVar[ApiKey] = ApiKey.DELETE_ACLS

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DeleteAclsFilter:
    """Selects bindings to delete; see `DescribeAclsRequest`."""

    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


@dataclass(slots=True, kw_only=True)
class DeleteAclsRequest(Request):
    """Delete what filters select."""

    api_key: ClassVar[ApiKey] = ApiKey.DELETE_ACLS

    filters: list[DeleteAclsFilter]

    def error_response(self, code: ErrorCode, message: str | None = None) -> DeleteAclsResponse:
        """Return an answer with *code* at every filter."""
        return DeleteAclsResponse(
            filter_results=[DeleteAclsFilterResult(error_code=code, error_message=message) for _ in self.filters]
        )

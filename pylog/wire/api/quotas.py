"""DescribeClientQuotas and AlterClientQuotas."""

from dataclasses import dataclass, field
from typing import ClassVar

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.schema import Int8, Int16, Int32
from pylog.wire.api.table import ApiKey


@dataclass(slots=True, kw_only=True)
class QuotaEntity:
    """A user or client the quota is for; a name of None is the default."""

    entity_type: str
    entity_name: str | None


@dataclass(slots=True, kw_only=True)
class QuotaValue:
    """One quota in force."""

    key: str
    value: float


@dataclass(slots=True, kw_only=True)
class QuotaEntry:
    """The quotas of one combination of user and client."""

    entity: list[QuotaEntity]
    values: list[QuotaValue]


@dataclass(slots=True, kw_only=True)
class DescribeClientQuotasResponse(Message):
    """What matches; None after an error."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLIENT_QUOTAS

    throttle_time_ms: Int32 = 0
    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    entries: list[QuotaEntry] | None = None


@dataclass(slots=True, kw_only=True)
class QuotaComponent:
    """What an entity must be: the named one (type 0), the default (1), or any with a name (2)."""

    entity_type: str
    match_type: Int8
    match: str | None


@dataclass(slots=True, kw_only=True)
class DescribeClientQuotasRequest(Request):
    """Ask for quotas; strict ones have no further entities."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLIENT_QUOTAS

    components: list[QuotaComponent]
    strict: bool = False

    def error_response(self, code: ErrorCode, message: str | None = None) -> DescribeClientQuotasResponse:
        """Return an answer with *code* and no quotas."""
        return DescribeClientQuotasResponse(error_code=code, error_message=message)


@dataclass(slots=True, kw_only=True)
class QuotaResult:
    """How the change for one combination ended."""

    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    entity: list[QuotaEntity]


@dataclass(slots=True, kw_only=True)
class AlterClientQuotasResponse(Message):
    """One result a combination."""

    api_key: ClassVar[ApiKey] = ApiKey.ALTER_CLIENT_QUOTAS

    throttle_time_ms: Int32 = 0
    entries: list[QuotaResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class QuotaOperation:
    """A quota to set, or to remove."""

    key: str
    value: float
    remove: bool = False


@dataclass(slots=True, kw_only=True)
class QuotaChange:
    """The changes for one combination of user and client."""

    entity: list[QuotaEntity]
    ops: list[QuotaOperation]


@dataclass(slots=True, kw_only=True)
class AlterClientQuotasRequest(Request):
    """Change quotas, or only say whether it would work."""

    api_key: ClassVar[ApiKey] = ApiKey.ALTER_CLIENT_QUOTAS

    entries: list[QuotaChange]
    validate_only: bool = False

    def error_response(self, code: ErrorCode, message: str | None = None) -> AlterClientQuotasResponse:
        """Return an answer with *code* at every combination."""
        return AlterClientQuotasResponse(
            entries=[QuotaResult(entity=entry.entity, error_code=code, error_message=message) for entry in self.entries]
        )

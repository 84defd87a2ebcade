"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, ClassVar

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.schema import Int8, Int16, Int32, Versions
from pylog.wire.api.table import ApiKey


class ResourceType(IntEnum):
    """What a configuration belongs to; a broker's resource name is its id."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Where a value comes from, the strongest first."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigType(IntEnum):
    """What a value looks like."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does with a value; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(slots=True, kw_only=True)
class DescribeConfigsSynonym:
    """A further place where a value is set, in the order in which places count."""

    name: str
    value: str | None
    source: Int8


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResourceResult:
    """One configuration value; a sensitive one travels as None."""

    name: str
    value: str | None
    read_only: bool = False
    config_source: Annotated[Int8, Versions(1)] = ConfigSource.UNKNOWN
    is_sensitive: bool = False
    synonyms: Annotated[list[DescribeConfigsSynonym], Versions(1)] = field(default_factory=list)
    config_type: Annotated[Int8, Versions(3)] = ConfigType.UNKNOWN
    documentation: Annotated[str | None, Versions(3)] = None


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResult:
    """The values of one resource, or why there are none."""

    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    resource_type: Int8
    resource_name: str
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResponse(Message):
    """One result a resource."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CONFIGS

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResource:
    """A resource, and the names wanted; None wants all."""

    resource_type: Int8
    resource_name: str
    configuration_keys: list[str] | None = None


@dataclass(slots=True, kw_only=True)
class DescribeConfigsRequest(Request):
    """Ask for configurations."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CONFIGS

    resources: list[DescribeConfigsResource]
    include_synonyms: Annotated[bool, Versions(1)] = False
    include_documentation: Annotated[bool, Versions(3)] = False

    def error_response(self, code: ErrorCode, message: str | None = None) -> DescribeConfigsResponse:
        """Return an answer with *code* at every resource."""
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    error_code=code,
                    error_message=message,
                )
                for resource in self.resources
            ]
        )


@dataclass(slots=True, kw_only=True)
class AlterConfigsResourceResponse:
    """How the change of one resource ended."""

    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    resource_type: Int8
    resource_name: str


@dataclass(slots=True, kw_only=True)
class AlterConfigsResponse(Message):
    """One result a resource."""

    api_key: ClassVar[ApiKey] = ApiKey.ALTER_CONFIGS

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]


@dataclass(slots=True, kw_only=True)
class AlterableConfig:
    """A value to set; None sets the default."""

    name: str
    value: str | None


@dataclass(slots=True, kw_only=True)
class AlterConfigsResource:
    """A resource and all the values it shall have: others go back to their defaults."""

    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig]


@dataclass(slots=True, kw_only=True)
class AlterConfigsRequest(Request):
    """Replace whole configurations."""

    api_key: ClassVar[ApiKey] = ApiKey.ALTER_CONFIGS

    resources: list[AlterConfigsResource]
    validate_only: bool = False

    def error_response(self, code: ErrorCode, message: str | None = None) -> AlterConfigsResponse:
        """Return an answer with *code* at every resource."""
        return AlterConfigsResponse(responses=_refusals(self.resources, code, message))


@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsResponse(Message):
    """One result a resource."""

    api_key: ClassVar[ApiKey] = ApiKey.INCREMENTAL_ALTER_CONFIGS

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]


@dataclass(slots=True, kw_only=True)
class IncrementallyAlterableConfig:
    """One change to one value."""

    name: str
    config_operation: Int8
    value: str | None


@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsResource:
    """A resource and the changes to it."""

    resource_type: Int8
    resource_name: str
    configs: list[IncrementallyAlterableConfig]


@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsRequest(Request):
    """Change single values and leave the others."""

    api_key: ClassVar[ApiKey] = ApiKey.INCREMENTAL_ALTER_CONFIGS

    resources: list[IncrementalAlterConfigsResource]
    validate_only: bool = False

    def error_response(self, code: ErrorCode, message: str | None = None) -> IncrementalAlterConfigsResponse:
        """Return an answer with *code* at every resource."""
        return IncrementalAlterConfigsResponse(responses=_refusals(self.resources, code, message))


def _refusals(
    resources: list[AlterConfigsResource] | list[IncrementalAlterConfigsResource],
    code: ErrorCode,
    message: str | None,
) -> list[AlterConfigsResourceResponse]:
    return [
        AlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in resources
    ]

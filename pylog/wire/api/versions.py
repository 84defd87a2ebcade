"""ApiVersions: what a client may send.

Source: KIP-35, KIP-511, KIP-584, KIP-890.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple

from pylog.errors import ErrorCode
from pylog.wire.api.header import RequestHeader
from pylog.wire.api.message import Message, Request, encode_response
from pylog.wire.api.schema import Int16, Int32, Int64, Versions
from pylog.wire.api.table import SERVED, ApiKey, ApiVersionRange

EPOCH_EACH = 2
"""Kafka's level of `transaction.version` from which on each transaction has an epoch of its own (KIP-890)."""

_TRANSACTION_VERSION = "transaction.version"
_NONE_SUPPORTED_FROM = 4
"""From which version of ApiVersions on a supported feature may begin at 0 (KAFKA-17011)."""

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


@dataclass(slots=True, kw_only=True)
class ApiVersion:
    """One API and the versions of it that may be sent."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@dataclass(slots=True, kw_only=True)
class SupportedFeature:
    """A cluster feature and the levels this broker can run."""

    name: str
    min_version: Int16
    max_version: Int16


@dataclass(slots=True, kw_only=True)
class FinalizedFeature:
    """A cluster feature and the levels in force."""

    name: str
    max_version_level: Int16
    min_version_level: Int16


class Features(NamedTuple):
    """What is in force in the cluster.

    Attributes:
        epoch: grows with every change; a client believes the highest that it was told.
        transaction_version: 0 for the classic protocol of transactions.
    """

    epoch: int = -1
    transaction_version: int = 0


NO_FEATURES = Features()


@dataclass(slots=True, kw_only=True)
class ApiVersionsResponse(Message):
    """The table of served APIs."""

    api_key: ClassVar[ApiKey] = ApiKey.API_VERSIONS

    error_code: Int16 = ErrorCode.NONE
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    supported_features: Annotated[list[SupportedFeature], Versions(3, tag=0)] = field(default_factory=list)
    finalized_features_epoch: Annotated[Int64, Versions(3, tag=1)] = -1
    finalized_features: Annotated[list[FinalizedFeature], Versions(3, tag=2)] = field(default_factory=list)
    zk_migration_ready: Annotated[bool, Versions(3, tag=3)] = False


@dataclass(slots=True, kw_only=True)
class ApiVersionsRequest(Request):
    """Ask for the table; newer clients say what they are."""

    api_key: ClassVar[ApiKey] = ApiKey.API_VERSIONS

    client_software_name: Annotated[str, Versions(3)] = ""
    client_software_version: Annotated[str, Versions(3)] = ""

    def is_well_formed(self) -> bool:
        """Return whether name and version look as KIP-511 wants them (from version 3 on)."""
        return all(map(_SOFTWARE_NAME.fullmatch, (self.client_software_name, self.client_software_version)))

    def error_response(self, code: ErrorCode, message: str | None = None) -> ApiVersionsResponse:
        """Return an answer with *code* and no table."""
        return ApiVersionsResponse(error_code=code)


def answer_api_versions(
    header: RequestHeader,
    body: memoryview,
    features: Features = NO_FEATURES,
    served: Mapping[ApiKey, ApiVersionRange] = SERVED,
) -> bytes:
    """Return header and body of the answer to an ApiVersions request of any version.

    Args:
        header: of the request.
        body: what follows the header; not looked at when the version is unknown.
        features: in force.
        served: the table to tell.

    Raises:
        ProtocolError: the body is not such a request; close the connection.
    """
    own = served[ApiKey.API_VERSIONS]
    version = header.api_version
    if not own.min_served <= version <= own.max_advertised:
        # The client cannot know our versions yet: version 0 is what both sides can read.
        return encode_response(unsupported_version(own), header.correlation_id, 0)
    request = ApiVersionsRequest.decode(version, body)
    if version >= own.flexible_from and not request.is_well_formed():
        return encode_response(request.error_response(ErrorCode.INVALID_REQUEST), header.correlation_id, version)
    response = table_response(served)
    response.finalized_features_epoch = features.epoch
    if features.transaction_version:
        level = features.transaction_version
        finalized = FinalizedFeature(name=_TRANSACTION_VERSION, max_version_level=level, min_version_level=level)
        response.finalized_features = [finalized]
    if version >= _NONE_SUPPORTED_FROM:
        supported = SupportedFeature(name=_TRANSACTION_VERSION, min_version=0, max_version=EPOCH_EACH)
        response.supported_features = [supported]
    return encode_response(response, header.correlation_id, version)


def client_software(header: RequestHeader, body: memoryview) -> tuple[str, str]:
    """Return name and version that the client gave of itself; empty where it did not, or not well.

    Args:
        header: of an ApiVersions request.
        body: what follows the header; `answer_api_versions` has read it without an error.
    """
    own = SERVED[ApiKey.API_VERSIONS]
    if not own.flexible_from <= header.api_version <= own.max_advertised:
        return "", ""
    request = ApiVersionsRequest.decode(header.api_version, body)
    return (request.client_software_name, request.client_software_version) if request.is_well_formed() else ("", "")


def table_response(served: Mapping[ApiKey, ApiVersionRange] = SERVED) -> ApiVersionsResponse:
    """Return *served* as clients are told it."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=row.min_advertised, max_version=row.max_advertised)
            for key, row in served.items()
        ]
    )


def unsupported_version(own: ApiVersionRange) -> ApiVersionsResponse:
    """Return the answer to an ApiVersions request of a version outside *own*; goes out as version 0."""
    supported = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=own.min_advertised, max_version=own.max_advertised)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[supported])

"""FindCoordinator: which broker keeps a group or a transactional id."""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Self

from pylog.errors import ErrorCode
from pylog.model import NO_LEADER
from pylog.wire.api.message import Message, Request
from pylog.wire.api.schema import Int8, Int16, Int32, Versions
from pylog.wire.api.table import ApiKey

GROUP = 0
"""``key_type`` of a consumer group."""
TRANSACTION = 1
"""``key_type`` of a transactional id."""


@dataclass(slots=True, kw_only=True)
class Coordinator:
    """The coordinator of one key, or why there is none."""

    key: str
    node_id: Int32 = NO_LEADER
    host: str = ""
    port: Int32 = -1
    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None


@dataclass(slots=True, kw_only=True)
class FindCoordinatorResponse(Message):
    """One coordinator a key; fill ``coordinators`` only, older versions get its first entry."""

    api_key: ClassVar[ApiKey] = ApiKey.FIND_COORDINATOR

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Annotated[Int16, Versions(0, 3)] = ErrorCode.NONE
    error_message: Annotated[str | None, Versions(1, 3)] = None
    node_id: Annotated[Int32, Versions(0, 3)] = NO_LEADER
    host: Annotated[str, Versions(0, 3)] = ""
    port: Annotated[Int32, Versions(0, 3)] = -1
    coordinators: Annotated[list[Coordinator], Versions(4)] = field(default_factory=list)

    def _fold(self, version: int) -> None:
        if version < 4:
            only = Coordinator(key="", node_id=self.node_id, host=self.host, port=self.port)
            only.error_code, only.error_message = self.error_code, self.error_message
            self.coordinators = [only]

    def _spread(self, version: int) -> Self:
        if version >= 4:
            return self
        (only,) = self.coordinators  # a request that old asks for one key
        return replace(
            self,
            error_code=only.error_code,
            error_message=only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )


@dataclass(slots=True, kw_only=True)
class FindCoordinatorRequest(Request):
    """Ask for coordinators; read ``coordinator_keys``, which is filled in every version."""

    api_key: ClassVar[ApiKey] = ApiKey.FIND_COORDINATOR

    key: Annotated[str, Versions(0, 3)] = ""
    key_type: Annotated[Int8, Versions(1)] = GROUP
    coordinator_keys: Annotated[list[str], Versions(4)] = field(default_factory=list)

    def _fold(self, version: int) -> None:
        if version < 4:
            self.coordinator_keys = [self.key]

    def _spread(self, version: int) -> Self:
        if version >= 4:
            return self
        (only,) = self.coordinator_keys
        return replace(self, key=only)

    def error_response(self, code: ErrorCode, message: str | None = None) -> FindCoordinatorResponse:
        """Return an answer with *code* at every key."""
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key=key, error_code=code, error_message=message) for key in self.coordinator_keys]
        )

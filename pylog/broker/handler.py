"""What a handler is: the types that every module of handlers shares."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

from pylog.broker.quotas import Meter
from pylog.errors import ApiError, ErrorCode
from pylog.security.acl import ALL_OPERATIONS, CLUSTER_NAME, Operation, ResourceType
from pylog.security.authorizer import Subject
from pylog.security.principal import Session
from pylog.wire.api import Message

Answer: TypeAlias = Message | Awaitable[Message]


class Caller(NamedTuple):
    """The client that sent a request.

    Attributes:
        client_id: what the client calls itself, "" if nothing.
        session: who it is, and from where.
        version: of the request.
        meter: counts what it uses, if a quota governs it.
        subject: decides what it may do; None lets it do everything.
        request: the API, for the log of decisions.

    A handler asks for each name before it looks whether there is such a thing: to whom a topic is hidden, nothing of it
    may be told, nor whether it exists.
    """

    client_id: str
    session: Session
    version: int
    meter: Meter | None = None
    subject: Subject | None = None
    request: str = ""

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the client may do *operation* with a resource; a denial is written down."""
        return self.subject is None or self.subject.may(operation, resource_type, name, self.request)

    def may_topic(self, operation: Operation, name: str) -> bool:
        """Return whether the client may do *operation* with a topic."""
        return self.may(operation, ResourceType.TOPIC, name)

    def may_group(self, operation: Operation, name: str) -> bool:
        """Return whether the client may do *operation* with a group."""
        return self.may(operation, ResourceType.GROUP, name)

    def sees(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether a list shows a resource to the client: what is left out is no denial."""
        return self.subject is None or self.subject.sees(operation, resource_type, name)

    def has(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the ACLs allow *operation*, where another right would do as well: nothing is written down."""
        return self.subject is None or self.subject.has(operation, resource_type, name)

    def may_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether there may be a resource of this type with which the client may do *operation*."""
        return self.subject is None or self.subject.may_any(operation, resource_type, self.request)

    def require_group(self, operation: Operation, name: str) -> None:
        """Refuse who may not do *operation* with a group.

        Raises:
            ApiError: GROUP_AUTHORIZATION_FAILED.
        """
        if not self.may_group(operation, name):
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"group {name}: {operation.name} is not allowed")

    def require_cluster(self, operation: Operation) -> None:
        """Refuse who may not do *operation* with the cluster.

        Raises:
            ApiError: CLUSTER_AUTHORIZATION_FAILED.
        """
        if not self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME):
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"cluster: {operation.name} is not allowed")

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the bit field of what the client may do with a resource."""
        return ALL_OPERATIONS[resource_type] if self.subject is None else self.subject.operations(resource_type, name)


def topic_denied(operation: Operation) -> ApiError:
    """Return the refusal of *operation* with a topic."""
    return ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{operation.name} is not allowed")


Handler: TypeAlias = Callable[[Any, Any, Caller], Answer]
"""Takes the broker, the decoded request and its caller; refuses by raising ApiError.

Each module of handlers says in a Protocol `Cluster` what it uses of the broker.
"""

"""Access control lists as an operator sees and changes them, in the words of kafka-acls.sh."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import admin as rdkafka

from pylog.client.admin.cluster import Admin
from pylog.errors import ApiError, ConfigError, ErrorCode
from pylog.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    Binding,
    BindingFilter,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
)

EnumT = TypeVar("EnumT", PatternType, Operation)

_PRODUCER = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
_CONSUMER = (Operation.READ, Operation.DESCRIBE)
_TRANSACTION = (Operation.WRITE, Operation.DESCRIBE)


def parse_name(kind: type[EnumT], text: str) -> EnumT:
    """Return what *text* names: ``DescribeConfigs``, ``describe-configs`` and ``DESCRIBE_CONFIGS`` are one.

    Raises:
        ConfigError: nothing of this kind has that name.
    """
    wanted = text.replace("-", "").replace("_", "").lower()
    for one in kind:
        if one.name.replace("_", "").lower() == wanted:
            return one
    names = ", ".join(written(one) for one in kind)
    raise ConfigError(f"{text!r} is no {kind.__name__}; there are {names}")


def written(value: PatternType | Operation | Permission | ResourceType) -> str:
    """Return the name of a value as kafka-acls.sh writes it."""
    return "".join(part.capitalize() for part in value.name.split("_"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources that an operator names.

    Attributes:
        is_cluster: whether the cluster is one of them.
        pattern_type: of all names; the cluster's is always literal.
    """

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    is_cluster: bool = False
    pattern_type: PatternType = PatternType.LITERAL

    def patterns(self) -> list[tuple[ResourceType, PatternType, str]]:
        """Return type, pattern type and name of each."""
        named = (
            (ResourceType.TOPIC, self.topics),
            (ResourceType.GROUP, self.groups),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
        )
        found = [(resource_type, self.pattern_type, name) for resource_type, names in named for name in names]
        if self.is_cluster:
            found.append((ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What somebody is to be allowed, or forbidden.

    Attributes:
        principals: whom it is about, as ``User:name``.
        hosts: addresses that it holds for.
        operations: what it is about; ALL without any.
        is_producer: instead, what a producer needs of the topics and transactional ids.
        is_idempotent: and what an idempotent one of an old broker needs of the cluster.
        is_consumer: instead, what a consumer needs of the topics and groups.
    """

    principals: Sequence[str]
    permission: Permission
    hosts: Sequence[str] = ()
    operations: Sequence[Operation] = ()
    is_producer: bool = False
    is_idempotent: bool = False
    is_consumer: bool = False

    def rights(self, resources: Resources) -> list[tuple[Pattern, Operation]]:
        """Return which operations with which of *resources* it is about, each once."""
        found: dict[tuple[Pattern, Operation], None] = {}
        for place in resources.patterns():
            for operation in self._operations(place[0]):
                found[Pattern(*place), operation] = None
        if self.is_idempotent:
            cluster = Pattern(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME)
            found[cluster, Operation.IDEMPOTENT_WRITE] = None
        return list(found)

    def _operations(self, resource_type: ResourceType) -> list[Operation]:
        if not (self.is_producer or self.is_consumer):
            return list(self.operations) or [Operation.ALL]
        found: list[Operation] = []
        if self.is_producer:
            found += {ResourceType.TOPIC: _PRODUCER, ResourceType.TRANSACTIONAL_ID: _TRANSACTION}.get(resource_type, ())
        if self.is_consumer:
            found += {ResourceType.TOPIC: _CONSUMER, ResourceType.GROUP: (Operation.READ,)}.get(resource_type, ())
        return found

    def bindings(self, resources: Resources) -> list[Binding]:
        """Return the bindings to add.

        Raises:
            ApiError: INVALID_REQUEST; one cannot hold.
        """
        return [
            check_binding(Binding(pattern, Entry(principal, host, operation, self.permission)))
            for pattern, operation in self.rights(resources)
            for principal in self.principals
            for host in self.hosts or (WILDCARD,)
        ]

    def filters(self, resources: Resources) -> list[BindingFilter]:
        """Return what selects the bindings to remove; what is not named is not looked at."""
        rights: list[tuple[Pattern, Operation]] = self.rights(resources)
        if not (self.operations or self.is_producer or self.is_consumer or self.is_idempotent):
            rights = [(pattern, Operation.ANY) for pattern, _ in rights]
        principals: Sequence[str | None] = self.principals or (None,)
        hosts: Sequence[str | None] = self.hosts or (None,)
        return [
            BindingFilter(*pattern, principal, host, operation, self.permission)
            for pattern, operation in rights
            for principal in principals
            for host in hosts
        ]


class AclAdmin(Admin):
    """Asks for ACLs and changes them; raises as `Admin` does."""

    def acls(self, wanted: BindingFilter) -> list[Binding]:
        """Return the bindings that *wanted* selects, by resource and principal.

        Raises:
            ApiError: CLUSTER_AUTHORIZATION_FAILED; this client may not see them.
        """
        with self._translated():
            answer = self._client.describe_acls(_filter(wanted), request_timeout=self._cluster.timeout_s)
            found = answer.result(self._cluster.timeout_s + 1)
        if not found and not self._may_describe():
            # librdkafka 2 drops the error of this answer, and leaves an empty list.
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "cluster: DESCRIBE is not allowed")
        return sorted(map(_ours, found))

    def _may_describe(self) -> bool:
        with self._translated():
            answer = self._client.describe_cluster(
                include_authorized_operations=True, request_timeout=self._cluster.timeout_s
            )
            operations = answer.result(self._cluster.timeout_s + 1).authorized_operations
        return rdkafka.AclOperation.DESCRIBE in (operations or ())

    def add(self, bindings: Sequence[Binding]) -> None:
        """Add *bindings*; those that are there already stay.

        Raises:
            ApiError: one was refused; others may have been added.
        """
        with self._translated():
            answers = self._client.create_acls(
                [rdkafka.AclBinding(*_theirs(*one)) for one in bindings], request_timeout=self._cluster.timeout_s
            )
            for answer in answers.values():
                answer.result(self._cluster.timeout_s + 1)

    def remove(self, filters: Sequence[BindingFilter]) -> list[Binding]:
        """Remove what *filters* select, and return it."""
        removed: set[Binding] = set()
        with self._translated():
            answers = self._client.delete_acls(
                [_filter(one) for one in filters], request_timeout=self._cluster.timeout_s
            )
            for answer in answers.values():
                removed |= set(map(_ours, answer.result(self._cluster.timeout_s + 1)))
        return sorted(removed)


# librdkafka's numbers are the protocol's; what we call the cluster is a broker there.


def _theirs(pattern: tuple[int, int, str | None], entry: tuple[str | None, str | None, int, int]) -> tuple[Any, ...]:
    resource_type, pattern_type, name = pattern
    principal, host, operation, permission = entry
    return (
        rdkafka.ResourceType(resource_type),
        name,
        rdkafka.ResourcePatternType(pattern_type),
        principal,
        host,
        rdkafka.AclOperation(operation),
        rdkafka.AclPermissionType(permission),
    )


def _filter(wanted: BindingFilter) -> rdkafka.AclBindingFilter:
    return rdkafka.AclBindingFilter(
        *_theirs(
            (wanted.resource_type, wanted.pattern_type, wanted.name),
            (wanted.principal, wanted.host, wanted.operation, wanted.permission),
        )
    )


def _ours(one: Any) -> Binding:  # noqa: ANN401  # an AclBinding, whose fields may also be texts or numbers
    return Binding(
        Pattern(ResourceType(one.restype.value), PatternType(one.resource_pattern_type.value), one.name),
        Entry(one.principal, one.host, Operation(one.operation.value), Permission(one.permission_type.value)),
    )

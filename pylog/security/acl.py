"""Access control lists: what one says, where it holds, and which of them a filter selects.

binding => pattern: (resource type, pattern type, name), entry: (principal, host, operation, permission)

The numbers of all enumerations are those of the protocol.

Source: KIP-11, KIP-290 (prefixes and MATCH); AclBinding, ResourcePatternFilter and AclEntry of Apache Kafka 3.9.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from pylog.errors import ApiError, ConfigError, ErrorCode
from pylog.security.principal import Principal, normal_host

CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""

WILDCARD = "*"
"""As a literal name every resource of its type, as a host every host, as the name of a user everybody."""

EVERYBODY = f"User:{WILDCARD}"

MAX_NODE_NAME = 32_767
"""Characters of the longest name that can be stored, as Kafka's protocol has them; ZooKeeper takes a megabyte at most
in one request."""


class ResourceType(IntEnum):
    """What a right is about; ANY is for filters."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a name is compared; ANY and MATCH are for filters.

    MATCH selects all patterns that hold for the name: the literal one, the wildcard and every prefix.
    """

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What somebody does with a resource; ANY is for filters, ALL stands for each of the others."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    """Whether an entry forbids or allows; ANY is for filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_IMPLYING: Mapping[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Operations that allow another one too.  To deny them does not deny that one."""

ALLOWED_BY: Mapping[Operation, frozenset[Operation]] = {
    operation: frozenset({operation, Operation.ALL}) | _IMPLYING.get(operation, frozenset()) for operation in Operation
}
"""Operations of an ALLOW entry that allow an operation."""

DENIED_BY: Mapping[Operation, frozenset[Operation]] = {
    operation: frozenset({operation, Operation.ALL}) for operation in Operation
}
"""Operations of a DENY entry that deny an operation."""

SUPPORTED: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DESCRIBE, Operation.DELETE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
}
"""Operations that answers about authorized operations list, by type of resource."""

ALL_OPERATIONS: Mapping[ResourceType, int] = {
    resource_type: sum(1 << operation for operation in operations) for resource_type, operations in SUPPORTED.items()
}
"""The bit field with all that there is to do with a resource of a type."""


class Pattern(NamedTuple):
    """The resources that an entry holds for."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str

    def __str__(self) -> str:
        return f"{self.resource_type.name}:{self.pattern_type.name}:{self.name}"


class Entry(NamedTuple):
    """What somebody may or may not do.

    Attributes:
        principal: ``Type:name``; EVERYBODY for all users.
        host: the address that the client comes from, in Java's spelling, or WILDCARD.
        operation: ALL stands for each.
        permission: DENY counts more than any ALLOW.
    """

    principal: str
    host: str
    operation: Operation
    permission: Permission


class Binding(NamedTuple):
    """An entry, and the resources that it holds for."""

    pattern: Pattern
    entry: Entry


@dataclass(frozen=True, slots=True)
class BindingFilter:
    """Selects bindings; None and ANY select everything.

    Attributes:
        pattern_type: MATCH selects every pattern that holds for *name*.
    """

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def selects_pattern(self, pattern: Pattern) -> bool:
        """Return whether bindings of *pattern* may be selected."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            # A prefix is also a prefix of itself, and a literal name matches itself.
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if pattern.pattern_type is PatternType.LITERAL:
            return pattern.name == WILDCARD
        return self.name.startswith(pattern.name)

    def selects_entry(self, entry: Entry) -> bool:
        """Return whether *entry* is selected, wherever it holds."""
        return (
            self.principal in (None, entry.principal)
            and (self.host is None or self.host == entry.host or stored_host(self.host) == entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def selects(self, binding: Binding) -> bool:
        """Return whether *binding* is selected."""
        return self.selects_pattern(binding.pattern) and self.selects_entry(binding.entry)

    def exact_pattern(self) -> Pattern | None:
        """Return the only pattern that can be selected, None if there may be several.

        Nothing may have its name, which is whatever a client wrote: see `can_be_node`.
        """
        if self.name is None or self.resource_type is ResourceType.ANY:
            return None
        if self.pattern_type in (PatternType.ANY, PatternType.MATCH):
            return None
        return Pattern(self.resource_type, self.pattern_type, self.name)


def check_binding(binding: Binding) -> Binding:
    """Return *binding* as it is to be stored.

    Raises:
        ApiError: INVALID_REQUEST; it says something that is only for filters, or nothing that can hold.
    """
    pattern, entry = binding
    for value in (pattern.resource_type, pattern.pattern_type, entry.operation, entry.permission):
        if value.name in ("ANY", "MATCH"):
            raise _invalid(f"{type(value).__name__} {value.name} is for filters only")
    _check_name(pattern)
    try:
        Principal.parse(entry.principal)
    except ConfigError as error:
        raise _invalid(str(error)) from error
    if entry.host != WILDCARD and not _is_address(entry.host):
        raise _invalid(f"host {entry.host!r} must be an IP address or {WILDCARD}: names are not looked up")
    return Binding(pattern, entry._replace(host=stored_host(entry.host)))


def _check_name(pattern: Pattern) -> None:
    name = pattern.name
    if not name:
        raise _invalid("the resource name must not be empty")
    if pattern.resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"the only cluster resource is {CLUSTER_NAME!r}, got {name!r}")
    # Names are names of nodes in the store.
    if not can_be_node(name):
        raise _invalid(f"resource name {name[:100]!r}: '/', control characters, '.' and '..' cannot be stored")


def can_be_node(name: str) -> bool:
    """Return whether a node of the store can have this name."""
    is_sized = 0 < len(name) <= MAX_NODE_NAME
    return is_sized and "/" not in name and name not in (".", "..") and all(map(_is_storable, name))


def _is_storable(character: str) -> bool:
    """Return whether a path in ZooKeeper may have *character*.  Source: PathUtils.validatePath of ZooKeeper 3.8."""
    code = ord(character)
    is_control = code <= 0x1F or 0x7F <= code <= 0x9F
    return not (is_control or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF)


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return "%" not in host  # an interface of ours says nothing of a client


def stored_host(host: str) -> str:
    """Return an address as Kafka's brokers compare it: Java writes IPv6 without leading zeros and without ``::``."""
    normal = normal_host(host)
    try:
        address = ipaddress.ip_address(normal)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return normal
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))

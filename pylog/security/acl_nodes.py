"""ACLs as Kafka's AclAuthorizer keeps them in ZooKeeper: paths, JSON, and notices of changes.

/kafka-acl/<Type>/<name>                       literal names
/kafka-acl-extended/prefixed/<Type>/<name>     prefixes
    node => {"version": 1, "acls": [{"principal", "permissionType", "operation", "host"}]}
/kafka-acl-changes/acl_changes_<ten digits>             TYPE:name of a literal pattern that changed
/kafka-acl-extended-changes/acl_changes_<ten digits>    {"version": 1, "resourceType", "name", "patternType"}

Source: AclEntry, ZkData (ZkAclStore, ExtendedAclChangeEvent) of Apache Kafka 3.9.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pylog.errors import ProtocolError
from pylog.security.acl import EVERYBODY, WILDCARD, Entry, Operation, Pattern, PatternType, Permission, ResourceType

LITERAL_ROOT = "/kafka-acl"
PREFIXED_ROOT = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES = "/kafka-acl-changes"
EXTENDED_CHANGES = "/kafka-acl-extended-changes"
CHANGE_PREFIX = "acl_changes_"

VERSION = 1

DENY_EVERYTHING = Entry(EVERYBODY, WILDCARD, Operation.ALL, Permission.DENY)
"""What stands for a node that cannot be read: it may have forbidden anything."""


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


_TYPE_NAMES: dict[ResourceType, str] = {one: _camel(one.name) for one in ResourceType if one is not ResourceType.ANY}
_TYPES = {name: one for one, name in _TYPE_NAMES.items()}
_OPERATION_NAMES: dict[Operation, str] = {one: _camel(one.name) for one in Operation if one is not Operation.ANY}
_OPERATIONS = {name: one for one, name in _OPERATION_NAMES.items()}
_PERMISSIONS = {"Allow": Permission.ALLOW, "Deny": Permission.DENY}
_PERMISSION_NAMES = {one: name for name, one in _PERMISSIONS.items()}
_ROOTS = {PatternType.LITERAL: LITERAL_ROOT, PatternType.PREFIXED: PREFIXED_ROOT}

TYPE_PATHS = {
    f"{root}/{name}": (resource_type, pattern_type)
    for pattern_type, root in _ROOTS.items()
    for resource_type, name in _TYPE_NAMES.items()
}
"""The nodes above those of patterns, and what is below each."""

CHANGE_ROOTS = (LITERAL_CHANGES, EXTENDED_CHANGES)
"""The nodes above the notices."""

ACL_PATHS = (*TYPE_PATHS, *CHANGE_ROOTS)
"""What must be there before an ACL is written, or a change is waited for."""


def acl_path(pattern: Pattern) -> str:
    """Return the node that has the entries of *pattern*."""
    return f"{_ROOTS[pattern.pattern_type]}/{_TYPE_NAMES[pattern.resource_type]}/{pattern.name}"


@dataclass(frozen=True, slots=True)
class StoredAcls:
    """The content of a node.

    Attributes:
        entries: those that this release understands.
        foreign: those of another kind, which a rewrite keeps as they are.
    """

    entries: tuple[Entry, ...] = ()
    foreign: tuple[Any, ...] = ()

    def encode(self) -> bytes:
        """Return the node's data."""
        rows = [
            {
                "principal": entry.principal,
                "permissionType": _PERMISSION_NAMES[entry.permission],
                "operation": _OPERATION_NAMES[entry.operation],
                "host": entry.host,
            }
            for entry in self.entries
        ]
        document = {"version": VERSION, "acls": [*rows, *self.foreign]}
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()

    @property
    def is_empty(self) -> bool:
        """Whether the node has to go."""
        return not self.entries and not self.foreign


def decode_acls(data: bytes) -> StoredAcls:
    """Return the content of a node; an empty node has none.

    Raises:
        ProtocolError: it is no such node, or of another version.
    """
    if not data:
        return StoredAcls()
    try:
        document = json.loads(data)
        if document["version"] != VERSION:
            raise ProtocolError(f"ACLs of version {document['version']!r}; {VERSION} is known")
        entries: dict[Entry, None] = {}
        foreign: list[Any] = []
        for row in document["acls"]:
            entry = _entry(row)
            if entry is None:
                foreign.append(row)
            else:
                entries[entry] = None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(f"no ACLs: {data[:200]!r}: {error!r}") from error
    return StoredAcls(tuple(entries), tuple(foreign))


def _entry(row: Any) -> Entry | None:  # noqa: ANN401  # as JSON has it
    """Return an entry; None for an operation that this release does not have.

    Raises:
        ProtocolError: it is about an operation that exists here, but whether it allows or denies cannot be read.
    """
    operation = _OPERATIONS.get(row["operation"])
    if operation is None:
        return None
    permission = _PERMISSIONS.get(row["permissionType"])
    principal, host = row["principal"], row["host"]
    if permission is None or not isinstance(principal, str) or not isinstance(host, str):
        raise ProtocolError(f"ACL entry {row!r} cannot be read")
    return Entry(principal, host, operation, permission)


def encode_change(pattern: Pattern) -> tuple[str, bytes]:
    """Return where the notice of a change of *pattern* is put, up to its number, and its data."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{LITERAL_CHANGES}/{CHANGE_PREFIX}", f"{pattern.resource_type.name}:{pattern.name}".encode()
    document = {
        "version": VERSION,
        "resourceType": pattern.resource_type.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return f"{EXTENDED_CHANGES}/{CHANGE_PREFIX}", data


def decode_change(path: str, data: bytes) -> Pattern:
    """Return what a notice is about.

    Raises:
        ProtocolError: that cannot be read.
    """
    try:
        if path.startswith(f"{LITERAL_CHANGES}/"):
            type_name, colon, name = data.decode().partition(":")
            if not colon or not name:
                raise ProtocolError(f"notice {path}: {data[:200]!r} is not TYPE:NAME")
            return Pattern(_type(type_name), PatternType.LITERAL, name)
        document = json.loads(data)
        if document["version"] != VERSION:
            raise ProtocolError(f"notice {path} of version {document['version']!r}; {VERSION} is known")
        pattern_type = PatternType[document["patternType"].upper()]
        if pattern_type not in _ROOTS:
            raise ProtocolError(f"notice {path} is about a pattern of type {pattern_type.name}")
        return Pattern(_type(document["resourceType"]), pattern_type, str(document["name"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(f"notice {path}: {data[:200]!r}: {error!r}") from error


def _type(text: str) -> ResourceType:
    """Return the type that a notice names: `TOPIC` is written, `Topic` and `topic` were."""
    for resource_type, name in _TYPE_NAMES.items():
        if text.replace("_", "").lower() == name.lower():
            return resource_type
    raise ProtocolError(f"resource type {text!r} is not known")


def change_numbers(names: Iterable[str]) -> dict[int, str]:
    """Return the notices among the children of a node of notices, by number."""
    return {
        int(name.removeprefix(CHANGE_PREFIX)): name
        for name in names
        if name.startswith(CHANGE_PREFIX) and name.removeprefix(CHANGE_PREFIX).isdigit()
    }


def missed_changes(names: Sequence[str], seen: int) -> list[str] | None:
    """Return the notices after number *seen*, in order; None if one of them is gone already."""
    numbers = change_numbers(names)
    newest = max(numbers, default=seen)
    unseen = range(seen + 1, newest + 1)
    if newest < seen or any(number not in numbers for number in unseen):
        return None
    return [numbers[number] for number in unseen]

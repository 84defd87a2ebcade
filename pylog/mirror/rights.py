"""Who may go on reading: the users of a group, and what they lack in the cluster that the group enters.

Nobody says who reads in a group whose consumers are stopped, so its users are those whom an ACL of the cluster that is
left allows to read in it.  Super users stand in no ACL: those of the cluster that is left are not looked at, and one of
the other cluster that has no ACL there is reported although it may do everything.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from pylog.client.admin.groups import GroupAdmin
from pylog.client.admin.users import scram_users
from pylog.client.connection import Connection
from pylog.client.raw import RawClient, RawConfig, raise_for
from pylog.errors import ErrorCode
from pylog.mirror.config import MirrorConfig
from pylog.mirror.move import Way
from pylog.security.acl import (
    ALLOWED_BY,
    WILDCARD,
    Binding,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from pylog.security.rules import Client, Rules
from pylog.wire.api.acls import DescribeAclsRequest, DescribeAclsResponse

_USER = "User:"
_DESCRIBE_VERSION = 1
_EVERYTHING = DescribeAclsRequest(
    resource_type_filter=ResourceType.ANY,
    resource_name_filter=None,
    pattern_type_filter=PatternType.ANY,
    principal_filter=None,
    host_filter=None,
    operation=Operation.ANY,
    permission_type=Permission.ANY,
)
_COMPARED = (ResourceType.TOPIC, ResourceType.GROUP)


class Lack(NamedTuple):
    """What a user of a group lacks in the cluster that the group enters.

    Attributes:
        principal: ``Type:name``.
        host: the client's address; ``*`` for all that no ACL names.
        resource: ``group`` and ``topic``, of which the right Read is lacking, or ``login``.
        name: of the group, the topic, or the user.
    """

    principal: str
    host: str
    resource: str
    name: str


def lacks(here: Iterable[Binding], there: Iterable[Binding], group: str, topics: Collection[str]) -> list[Lack]:
    """Return the rights that users of *group* have in the one cluster and not in the other; decides only.

    Args:
        here: ACLs of the cluster that the group leaves.
        there: ACLs of the other.
        group: its id.
        topics: that it reads.
    """
    left, entered = rules_of(here), rules_of(there)
    places = [(ResourceType.GROUP, group), *((ResourceType.TOPIC, topic) for topic in sorted(topics))]
    return [
        Lack(client.principal, client.host or WILDCARD, kind.name.lower(), name)
        for client in sorted(_readers(left, group))
        for kind, name in places
        if left.decide(client, Operation.READ, kind, name) and not entered.decide(client, Operation.READ, kind, name)
    ]


def rules_of(bindings: Iterable[Binding]) -> Rules:
    """Return *bindings* as what decides."""
    entries: dict[Pattern, list[Entry]] = {}
    for one in bindings:
        entries.setdefault(one.pattern, []).append(one.entry)
    return Rules({pattern: tuple(found) for pattern, found in entries.items()})


def _readers(rules: Rules, group: str) -> set[Client]:
    """Return whom ACLs name that may read in *group*."""
    named = {
        Client(entry.principal, "" if entry.host == WILDCARD else entry.host)
        for pattern, entries in rules.acls.items()
        if pattern.resource_type is ResourceType.GROUP
        for entry in entries
        if entry.permission is Permission.ALLOW and entry.operation in ALLOWED_BY[Operation.READ]
    }
    return {one for one in named if rules.decide(one, Operation.READ, ResourceType.GROUP, group)}


def check(config: MirrorConfig, group: str, way: Way = Way.OVER) -> list[Lack] | None:
    """Return what users of *group* lack in the cluster that it would enter.

    Returns:
        None where nothing can be compared: one of the clusters has no authorizer.

    Raises:
        ApiError: CLUSTER_AUTHORIZATION_FAILED; the mirror's user may not see ACLs, which takes Describe on the cluster.
        Unreachable: one of the clusters does not answer.
    """
    leaves, enters = way.ends(config)
    here, there = _acls(leaves.connection), _acls(enters.connection)
    if here is None or there is None:
        return None
    topics = {one.topic for one in GroupAdmin(leaves.connection).committed(group)}
    users = _users_of(rules_of(here), group)
    return [*lacks(here, there, group, topics), *_without_login(users, leaves.connection, enters.connection)]


def _users_of(rules: Rules, group: str) -> list[str]:
    principals = {one.principal for one in _readers(rules, group)}
    return sorted(one.removeprefix(_USER) for one in principals if one.startswith(_USER))


def _without_login(users: Iterable[str], here: Connection, there: Connection) -> Iterator[Lack]:
    """Yield the users that log in by SCRAM in the one cluster and cannot in the other."""
    logins, others = ({one.name for one in scram_users(cluster)} for cluster in (here, there))
    for user in users:
        if user in logins and user not in others:
            yield Lack(_USER + user, WILDCARD, "login", user)


def _acls(cluster: Connection) -> list[Binding] | None:
    """Return all ACLs, or None where there is no authorizer: librdkafka would leave an empty list for both."""
    timeout_ms = int(cluster.timeout_s * 1000)
    limits = RawConfig(request_timeout_ms=timeout_ms, retry_ms=timeout_ms)
    with RawClient(cluster.bootstrap, limits, cluster.security()) as client:
        body = client.ask(_EVERYTHING, _DESCRIBE_VERSION)
    answer = DescribeAclsResponse.decode(_DESCRIBE_VERSION, body)
    if answer.error_code == ErrorCode.SECURITY_DISABLED:
        return None
    raise_for(answer.error_code, f"ACLs of {cluster.bootstrap}")
    return [
        Binding(
            Pattern(ResourceType(one.resource_type), PatternType(one.pattern_type), one.resource_name),
            Entry(entry.principal, entry.host, Operation(entry.operation), Permission(entry.permission_type)),
        )
        for one in answer.resources
        if one.resource_type in _COMPARED
        for entry in one.acls
    ]

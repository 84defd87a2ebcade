"""`pylog acl`: list, add and remove ACLs, in the words of kafka-acls.sh."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import (
    Bootstrap,
    FormatOption,
    Properties,
    Timeout,
    connection,
    format_of,
    new_app,
    settings,
    told_to_the_user,
)
from pylog.cli.output import Column, emit, note, table
from pylog.cli.rights import clients, denials
from pylog.client.admin.acls import AclAdmin, Grant, Resources, parse_name
from pylog.client.rows import binding_row
from pylog.errors import ApiError, ConfigError
from pylog.security.acl import Binding, BindingFilter, Operation, PatternType, Permission

app = new_app("See, add and remove access control lists.")
app.command(epilog="Example: pylog acl denials --broker 1")(denials)
app.command(epilog="Example: pylog acl clients")(clients)

Names: TypeAlias = list[str] | None
TopicNames = Annotated[Names, typer.Option("--topic", "-t", metavar="NAME", help="A topic, or * for all; repeatable.")]
GroupNames = Annotated[Names, typer.Option("--group", "-g", metavar="NAME", help="A group, or * for all; repeatable.")]
Ids = Annotated[Names, typer.Option("--transactional-id", metavar="NAME", help="A transactional id; repeatable.")]
IsCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Kind = Annotated[str, typer.Option("--resource-pattern-type", metavar="TYPE", help="How names are compared.")]
Allowed = Annotated[Names, typer.Option("--allow-principal", metavar="User:NAME", help="Whom to allow; repeatable.")]
Denied = Annotated[Names, typer.Option("--deny-principal", metavar="User:NAME", help="Whom to deny; repeatable.")]
AllowHosts = Annotated[Names, typer.Option("--allow-host", metavar="ADDRESS", help="From where; repeatable.")]
DenyHosts = Annotated[Names, typer.Option("--deny-host", metavar="ADDRESS", help="From where; repeatable.")]
Operations = Annotated[Names, typer.Option("--operation", metavar="NAME", help="Read, Write, …; repeatable. Else All.")]
IsProducer = Annotated[bool, typer.Option("--producer", help="What a producer needs of the topics.")]
IsConsumer = Annotated[bool, typer.Option("--consumer", help="What a consumer needs of the topics and groups.")]
IsIdempotent = Annotated[bool, typer.Option("--idempotent", help="And IdempotentWrite on the cluster.")]

_COLUMNS = [Column(name) for name in ("resource", "name", "pattern", "principal", "host", "operation", "permission")]


@app.command("list", epilog="Example: pylog acl list --topic clicks --resource-pattern-type match")
def list_acls(
    topic: TopicNames = None,
    group: GroupNames = None,
    transactional_id: Ids = None,
    cluster: IsCluster = False,
    resource_pattern_type: Kind = "any",
    principal: Annotated[
        Names, typer.Option("--principal", metavar="User:NAME", help="Only entries of this one; repeatable.")
    ] = None,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Show ACLs: of the named resources, or all; match shows all that hold for a name, prefixes and wildcards too."""
    resources = _resources(topic, group, transactional_id, cluster, resource_pattern_type, is_filter=True)
    places = [BindingFilter(*place) for place in resources.patterns()] or [BindingFilter(pattern_type=_any(resources))]
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        admin = AclAdmin(connection(found))
        bindings = {one for place in places for one in admin.acls(place)}
    wanted = set(principal or ())
    shown = sorted(one for one in bindings if not wanted or one.entry.principal in wanted)
    _show(format, shown)
    if not bindings:
        note("no ACLs: there are none for this, or the brokers have no authorizer")


@app.command(epilog="Example: pylog acl add --allow-principal User:alice --consumer --topic clicks --group readers")
def add(
    topic: TopicNames = None,
    group: GroupNames = None,
    transactional_id: Ids = None,
    cluster: IsCluster = False,
    resource_pattern_type: Kind = "literal",
    allow_principal: Allowed = None,
    deny_principal: Denied = None,
    allow_host: AllowHosts = None,
    deny_host: DenyHosts = None,
    operation: Operations = None,
    producer: IsProducer = False,
    consumer: IsConsumer = False,
    idempotent: IsIdempotent = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Allow or deny operations with resources; what exists already stays.

    The first ACL of a resource locks out everybody whom no ACL allows.
    """
    resources = _resources(topic, group, transactional_id, cluster, resource_pattern_type, is_filter=False)
    base = _base(operation, is_producer=producer, is_consumer=consumer, is_idempotent=idempotent)
    grants = _grants(base, allow_principal, deny_principal, allow_host, deny_host)
    if not grants:
        raise _missing("--allow-principal, --deny-principal")
    try:
        bindings = [one for grant in grants for one in grant.bindings(resources)]
    except ApiError as error:
        raise _wrong(str(error)) from error
    if not bindings:
        raise _missing("--topic, --group, --transactional-id, --cluster")
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        AclAdmin(connection(found)).add(bindings)
    _show(format, bindings)
    note(f"added {len(bindings)} ACLs")


@app.command(epilog="Example: pylog acl remove --allow-principal User:alice --topic clicks --force")
def remove(
    topic: TopicNames = None,
    group: GroupNames = None,
    transactional_id: Ids = None,
    cluster: IsCluster = False,
    resource_pattern_type: Kind = "literal",
    allow_principal: Allowed = None,
    deny_principal: Denied = None,
    allow_host: AllowHosts = None,
    deny_host: DenyHosts = None,
    operation: Operations = None,
    producer: IsProducer = False,
    consumer: IsConsumer = False,
    idempotent: IsIdempotent = False,
    force: Annotated[bool, typer.Option("--force", help="Do it; else it only shows what would be removed.")] = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = None,
    property: Properties = None,
    format: FormatOption = None,
) -> None:
    """Remove ACLs of the named resources; without a principal those of everybody."""
    resources = _resources(topic, group, transactional_id, cluster, resource_pattern_type, is_filter=True)
    if not resources.patterns() and not idempotent:
        raise _missing("--topic, --group, --transactional-id, --cluster")
    base = _base(operation, is_producer=producer, is_consumer=consumer, is_idempotent=idempotent)
    grants = _grants(base, allow_principal, deny_principal, allow_host, deny_host)
    filters = [one for grant in grants or [base] for one in grant.filters(resources)]
    found = settings(bootstrap, timeout, property)
    with told_to_the_user(found.bootstrap):
        admin = AclAdmin(connection(found))
        gone = admin.remove(filters) if force else sorted({one for wanted in filters for one in admin.acls(wanted)})
    _show(format, gone)
    note(f"{len(gone)} ACLs removed" if force else f"{len(gone)} ACLs would be removed; --force removes them")


def _resources(
    topics: Names, groups: Names, ids: Names, is_cluster: bool, pattern_type: str, *, is_filter: bool
) -> Resources:
    kind = _parsed(PatternType, pattern_type, "--resource-pattern-type")
    if not is_filter and kind in (PatternType.ANY, PatternType.MATCH):
        raise _wrong(f"--resource-pattern-type {pattern_type} is for list and remove; literal and prefixed are allowed")
    return Resources(
        topics=topics or (),
        groups=groups or (),
        transactional_ids=ids or (),
        is_cluster=is_cluster,
        pattern_type=kind,
    )


def _any(resources: Resources) -> PatternType:
    # Without a name there is nothing to match.
    return PatternType.ANY if resources.pattern_type is PatternType.MATCH else resources.pattern_type


def _base(operations: Names, *, is_producer: bool, is_consumer: bool, is_idempotent: bool) -> Grant:
    """Return the grant of the options that hold for everybody whom the others name."""
    if operations and (is_producer or is_consumer):
        raise Failure(
            faults.OPTIONS_CONFLICT,
            "--operation goes with neither --producer nor --consumer",
            where="--operation",
            wanted="one of them",
        )
    return Grant(
        principals=(),
        permission=Permission.ANY,
        operations=[_parsed(Operation, name, "--operation") for name in operations or ()],
        is_producer=is_producer,
        is_consumer=is_consumer,
        is_idempotent=is_idempotent,
    )


def _grants(base: Grant, allowed: Names, denied: Names, allow_hosts: Names, deny_hosts: Names) -> list[Grant]:
    sides = ((allowed, Permission.ALLOW, allow_hosts), (denied, Permission.DENY, deny_hosts))
    return [
        replace(base, principals=who, permission=permission, hosts=hosts or ())
        for who, permission, hosts in sides
        if who
    ]


def _parsed(kind: Any, text: str, option: str) -> Any:  # noqa: ANN401  # one of two enumerations
    try:
        return parse_name(kind, text)
    except ConfigError as error:
        raise _wrong(f"{option}: {error}") from error


def _missing(options: str) -> Failure:
    return Failure(faults.OPTIONS_CONFLICT, "an option is missing", where=options, wanted="at least one")


def _wrong(message: str) -> Failure:
    return Failure(faults.OPTIONS_CONFLICT, message)


def _show(format: FormatOption, bindings: Sequence[Binding]) -> None:
    rows = [binding_row(one) for one in bindings]
    emit(format_of(format), rows, lambda is_wide: table(rows, _COLUMNS, is_wide))

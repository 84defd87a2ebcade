"""Access control lists, read and changed by clients: DescribeAcls, CreateAcls, DeleteAcls.

A broker answers what it goes by itself.  Changes are written by the controller, and every broker hears of them from the
store; the broker that was asked answers once it goes by them too.

Source: AclApis of Apache Kafka 3.9.
"""

import asyncio
from functools import partial
from typing import TypeVar

from pylog.broker.control.api import ControlContext, ControllerApi
from pylog.broker.control.cluster import Cluster
from pylog.broker.control.controller import ActiveController
from pylog.broker.handler import Answer, Caller
from pylog.errors import ApiError, ErrorCode
from pylog.security.acl import (
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
from pylog.security.authorizer import Authorizer
from pylog.wire.api.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from pylog.wire.api.message import Message

EnumT = TypeVar("EnumT", ResourceType, PatternType, Operation, Permission)

MAX_ACLS = 200_000
"""Bindings of the whole cluster, about 100 MB in each broker: more are refused."""


def _authorizer(cluster: Cluster) -> Authorizer:
    if cluster.authorizer is None:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "authorizer.class.name is not set: this broker has no authorizer")
    return cluster.authorizer


def handle_describe(cluster: Cluster, request: DescribeAclsRequest, caller: Caller) -> Answer:
    """List the bindings that a filter selects."""
    authorizer = _authorizer(cluster)
    caller.require_cluster(Operation.DESCRIBE)
    wanted, rules = _filter(request), authorizer.rules

    async def answer() -> Message:
        # There may be a hundred thousand; a change meanwhile replaces what is iterated over.
        return await asyncio.to_thread(_describe, list(rules.acls.items()), wanted)

    return answer()


def _describe(acls: list[tuple[Pattern, tuple[Entry, ...]]], wanted: BindingFilter) -> DescribeAclsResponse:
    resources = [
        DescribeAclsResource(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            pattern_type=pattern.pattern_type,
            acls=[
                AclDescription(
                    principal=one.principal, host=one.host, operation=one.operation, permission_type=one.permission
                )
                for one in entries
                if wanted.selects_entry(one)
            ],
        )
        for pattern, entries in acls
        if wanted.selects_pattern(pattern)
    ]
    return DescribeAclsResponse(resources=[one for one in resources if one.acls])


def handle_create(cluster: Cluster, request: CreateAclsRequest, caller: Caller) -> Answer:
    """Let the controller add bindings."""
    rules = _authorizer(cluster).rules
    caller.require_cluster(Operation.ALTER)
    if rules.entry_count + len(request.creations) > MAX_ACLS:
        message = f"{rules.entry_count} ACLs and {len(request.creations)} new ones; {MAX_ACLS} are allowed"
        raise ApiError(ErrorCode.POLICY_VIOLATION, message)
    return cluster.ask_controller(request)


def handle_delete(cluster: Cluster, request: DeleteAclsRequest, caller: Caller) -> Answer:
    """Let the controller remove bindings."""
    _authorizer(cluster)
    caller.require_cluster(Operation.ALTER)
    return cluster.ask_controller(request)


def _known(kind: type[EnumT], number: int) -> EnumT:
    try:
        return kind(number)
    except ValueError:
        known = ", ".join(f"{one.value} {one.name}" for one in kind)
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{kind.__name__} {number}; {known} are known") from None


def _filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> BindingFilter:
    """Return a request's filter.

    Raises:
        ApiError: INVALID_REQUEST; a number means nothing here.
    """
    return BindingFilter(
        _known(ResourceType, wanted.resource_type_filter),
        _known(PatternType, wanted.pattern_type_filter),
        wanted.resource_name_filter,
        wanted.principal_filter,
        wanted.host_filter,
        _known(Operation, wanted.operation),
        _known(Permission, wanted.permission_type),
    )


def _binding(creation: AclCreation) -> Binding:
    """Return a binding to store.

    Raises:
        ApiError: INVALID_REQUEST; see `check_binding`.
    """
    return check_binding(
        Binding(
            Pattern(
                _known(ResourceType, creation.resource_type),
                _known(PatternType, creation.resource_pattern_type),
                creation.resource_name,
            ),
            Entry(
                creation.principal,
                creation.host,
                _known(Operation, creation.operation),
                _known(Permission, creation.permission_type),
            ),
        )
    )


def _plan_creations(request: CreateAclsRequest) -> list[Binding | ApiError]:
    plans: list[Binding | ApiError] = []
    for creation in request.creations:
        try:
            plans.append(_binding(creation))
        except ApiError as error:
            plans.append(error)
    return plans


async def _execute_create(context: ControlContext, request: CreateAclsRequest) -> CreateAclsResponse:
    plans = _plan_creations(request)
    bindings = [plan for plan in plans if isinstance(plan, Binding)]
    refused = await context.run(partial(create_acls, bindings=bindings)) if bindings else {}
    results = []
    for plan in plans:
        error = plan if isinstance(plan, ApiError) else refused.get(plan.pattern)
        results.append(
            AclCreationResult() if error is None else AclCreationResult(error_code=error.code, error_message=str(error))
        )
    return CreateAclsResponse(results=results)


def create_acls(controller: ActiveController, bindings: list[Binding]) -> dict[Pattern, ApiError]:
    """Add bindings; return why those of a pattern were refused."""
    return controller.tree.create_acls(controller.fence, bindings)


def _is_created(context: ControlContext, request: CreateAclsRequest, response: CreateAclsResponse) -> bool:
    authorizer = context.authorizer
    if authorizer is None:
        return True
    plans = _plan_creations(request)
    return all(
        authorizer.rules.has(plan)
        for plan, row in zip(plans, response.results, strict=True)
        if isinstance(plan, Binding) and row.error_code == ErrorCode.NONE
    )


async def _execute_delete(context: ControlContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    rows = [DeleteAclsFilterResult() for _ in request.filters]
    filters: list[BindingFilter] = []
    places: list[DeleteAclsFilterResult] = []
    for wanted, row in zip(request.filters, rows, strict=True):
        try:
            filters.append(_filter(wanted))
            places.append(row)
        except ApiError as error:
            row.error_code, row.error_message = error.code, str(error)
    removed, refused = await context.run(partial(delete_acls, filters=filters)) if filters else ([], {})
    for row, bindings in zip(places, removed, strict=True):
        row.matching_acls = [_matching(binding, refused.get(binding.pattern)) for binding in bindings]
    return DeleteAclsResponse(filter_results=rows)


def _matching(binding: Binding, error: ApiError | None) -> DeleteAclsMatchingAcl:
    pattern, entry = binding
    row = DeleteAclsMatchingAcl(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
    if error is not None:
        row.error_code, row.error_message = error.code, str(error)
    return row


def delete_acls(
    controller: ActiveController, filters: list[BindingFilter]
) -> tuple[list[list[Binding]], dict[Pattern, ApiError]]:
    """Remove what filters select; return what each removed, and why the entries of a pattern stay."""
    return controller.tree.delete_acls(controller.fence, filters)


def _is_deleted(context: ControlContext, request: DeleteAclsRequest, response: DeleteAclsResponse) -> bool:
    authorizer = context.authorizer
    if authorizer is None:
        return True
    acls = authorizer.rules.acls
    return not any(
        Entry(one.principal, one.host, Operation(one.operation), Permission(one.permission_type))
        in acls.get(Pattern(ResourceType(one.resource_type), PatternType(one.pattern_type), one.resource_name), ())
        for row in response.filter_results
        for one in row.matching_acls
        if one.error_code == ErrorCode.NONE
    )


CREATE = ControllerApi(
    request=CreateAclsRequest,
    response=CreateAclsResponse,
    handle=handle_create,
    execute=_execute_create,
    is_visible=_is_created,
    is_repeatable=True,
)
DELETE = ControllerApi(
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
    handle=handle_delete,
    execute=_execute_delete,
    is_visible=_is_deleted,
    is_repeatable=True,
)

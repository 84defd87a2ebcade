"""Quotas of clients, read and changed: DescribeClientQuotas, AlterClientQuotas.

Source: KIP-546.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from functools import partial

from pylog.broker.control.api import ControlContext, ControllerApi, pass_if_allowed
from pylog.broker.control.cluster import Cluster
from pylog.broker.control.controller import ActiveController
from pylog.broker.handler import Answer, Caller
from pylog.cluster.quotas import (
    CLIENT_QUOTAS,
    CONNECTION_CREATION_RATE,
    IP_QUOTAS,
    WHOLE_QUOTAS,
    QuotaEntity,
    quoted,
    unquoted,
)
from pylog.errors import ApiError, ErrorCode
from pylog.security.acl import Operation, can_be_node
from pylog.wire.api.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaChange,
    QuotaComponent,
    QuotaEntry,
    QuotaOperation,
    QuotaResult,
    QuotaValue,
)
from pylog.wire.api.quotas import QuotaEntity as EntityName

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_TYPES = (USER, CLIENT_ID, IP)  # as the fields of a QuotaEntity stand

_EXACT, _DEFAULT, _ANY = range(3)

Change = Mapping[str, str | None]
"""Quotas to set by key, in the store's spelling; None removes."""


def handle_describe(cluster: Cluster, request: DescribeClientQuotasRequest, caller: Caller) -> Answer:
    """Say which quotas the entities have that a filter lets through."""
    caller.require_cluster(Operation.DESCRIBE_CONFIGS)
    wanted = _components(request.components)
    entries = [
        QuotaEntry(
            entity=[
                EntityName(entity_type=entity_type, entity_name=unquoted(name))
                for entity_type, name in zip(_TYPES, entity, strict=True)
                if name is not None
            ],
            values=[QuotaValue(key=key, value=value) for key, value in quotas.items()],
        )
        for entity, quotas in cluster.partitions.image.client_quotas.items()
        if _is_wanted(wanted, entity, is_strict=request.strict)
    ]
    return DescribeClientQuotasResponse(entries=entries)


def _components(components: Sequence[QuotaComponent]) -> dict[str, QuotaComponent]:
    found: dict[str, QuotaComponent] = {}
    for component in components:
        entity_type = component.entity_type
        _check_type(entity_type)
        if entity_type in found:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{entity_type}: duplicate in filter")
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"match type {component.match_type}; 0, 1 and 2 are known")
        if (component.match_type == _EXACT) != (component.match is not None):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{entity_type}: a name belongs to match type {_EXACT} alone")
        found[entity_type] = component
    if IP in found and len(found) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{IP} goes with no other entity type")
    return found


def _check_type(entity_type: str) -> None:
    if entity_type not in _TYPES:
        # Kafka's answer to a type it does not know.
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"entity type {entity_type!r}; {', '.join(_TYPES)} are known")


def _is_wanted(wanted: Mapping[str, QuotaComponent], entity: QuotaEntity, *, is_strict: bool) -> bool:
    for entity_type, name in zip(_TYPES, entity, strict=True):
        component = wanted.get(entity_type)
        if component is None:
            if is_strict and name is not None:
                return False
        elif name is None or (component.match_type != _ANY and name != quoted(component.match)):
            return False
    return True


async def _execute_alter(context: ControlContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    changes, rows = _plan_changes(request)
    if changes and not request.validate_only:
        await context.run(partial(alter_client_quotas, changes=changes))
    return AlterClientQuotasResponse(entries=rows)


def alter_client_quotas(controller: ActiveController, changes: Mapping[QuotaEntity, Change]) -> None:
    """Set (or, with None, remove) quotas of clients."""
    state = controller.state
    for entity, quotas in controller.tree.write_client_quotas(controller.fence, changes).items():
        state.confirm_quotas(entity, quotas)
    controller.mark_changed()


def _is_altered(
    context: ControlContext, request: AlterClientQuotasRequest, response: AlterClientQuotasResponse
) -> bool:
    if request.validate_only:
        return True
    quotas = context.image.client_quotas
    changes, _ = _plan_changes(request)
    return all(
        quotas.get(entity, {}).get(key) == (None if value is None else float(value))
        for entity, change in changes.items()
        for key, value in change.items()
    )


def _plan_changes(request: AlterClientQuotasRequest) -> tuple[dict[QuotaEntity, Change], list[QuotaResult]]:
    """Return the changes that are valid, and a result for each entity of the request."""
    changes: dict[QuotaEntity, Change] = {}
    rows: list[QuotaResult] = []
    for entry in request.entries:
        row = QuotaResult(entity=entry.entity)
        rows.append(row)
        try:
            entity, change = plan_change(entry)
            if entity in changes:
                raise ApiError(ErrorCode.INVALID_REQUEST, "duplicate entity in request")
            changes[entity] = change
        except ApiError as error:
            row.error_code, row.error_message = error.code, str(error)
    return changes, rows


def plan_change(change: QuotaChange) -> tuple[QuotaEntity, Change]:
    """Return whose quotas *change* is about, and what becomes of them.

    Raises:
        ApiError: it names nobody, somebody twice, an unknown quota, or an impossible value.
    """
    names: dict[str, str] = {}
    for part in change.entity:
        _check_type(part.entity_type)
        if part.entity_type in names or part.entity_name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{part.entity_type}: duplicate, or an empty name")
        name = quoted(_address(part.entity_name) if part.entity_type == IP else part.entity_name)
        if not can_be_node(name):
            message = f"{part.entity_type} {name[:100]}: the names '.' and '..', and very long ones, cannot be stored"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        names[part.entity_type] = name
    if not names or (IP in names and len(names) > 1):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a quota is for a {USER}, a {CLIENT_ID}, or both, or for an {IP}")
    keys = IP_QUOTAS if IP in names else CLIENT_QUOTAS
    changes: dict[str, str | None] = {}
    for operation in change.ops:
        if operation.key in changes:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{operation.key}: duplicate in request")
        if operation.key not in keys:
            message = f"{operation.key}: no quota of a {' and '.join(names)}; there are {', '.join(sorted(keys))}"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        changes[operation.key] = _value(operation)
    return QuotaEntity(*map(names.get, _TYPES)), changes


def _address(name: str | None) -> str | None:
    """Return an address as the listeners see it.  Names are not looked up: no request waits for a name server."""
    if name is None:
        return None
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is not an IP address") from None


def _value(operation: QuotaOperation) -> str | None:
    key, value = operation.key, operation.value
    if operation.remove:
        return None
    may_be_nothing = key == CONNECTION_CREATION_RATE  # nobody is let in from there, as with Kafka
    if not (0 < value < 2**63 or (may_be_nothing and value == 0)):  # and no NaN
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{key}={value}: wanted more than 0")
    if key not in WHOLE_QUOTAS:
        return str(value)
    if value != int(value):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{key}={value}: wanted a whole number a second")
    return str(int(value))


ALTER = ControllerApi(
    request=AlterClientQuotasRequest,
    response=AlterClientQuotasResponse,
    handle=pass_if_allowed(Operation.ALTER_CONFIGS),
    execute=_execute_alter,
    is_visible=_is_altered,
    is_repeatable=True,
)

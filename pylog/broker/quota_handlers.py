"""Quotas of clients, read and changed: DescribeClientQuotas, AlterClientQuotas.

Source: KIP-546.
"""

import ipaddress
from collections.abc import Mapping, Sequence

from pylog.broker.handler import Answer, Caller, Cluster, Handler
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
from pylog.wire.api import ApiKey
from pylog.wire.api.message import Request
from pylog.wire.api.quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaChange,
    QuotaComponent,
    QuotaEntry,
    QuotaOperation,
    QuotaValue,
)
from pylog.wire.api.quotas import QuotaEntity as EntityName

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_TYPES = (USER, CLIENT_ID, IP)  # as the fields of a QuotaEntity stand

_EXACT, _DEFAULT, _ANY = range(3)

Changes = Mapping[str, str | None]
"""What to set by quota key, in the store's spelling; None removes."""


def describe_client_quotas(cluster: Cluster, request: DescribeClientQuotasRequest, caller: Caller) -> Answer:
    """Say which quotas the entities have that a filter lets through."""
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


def alter_client_quotas(cluster: Cluster, request: AlterClientQuotasRequest, caller: Caller) -> Answer:
    """Let the controller set and remove quotas."""
    return cluster.ask_controller(request)


def _components(components: Sequence[QuotaComponent]) -> dict[str, QuotaComponent]:
    found: dict[str, QuotaComponent] = {}
    for component in components:
        entity_type = component.entity_type
        _check_type(entity_type)
        if entity_type in found:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{entity_type}: stands twice in one filter")
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


def planned_change(change: QuotaChange) -> tuple[QuotaEntity, Changes]:
    """Return whose quotas *change* is about, and what becomes of them.

    Raises:
        ApiError: it names nobody, somebody twice, an unknown quota, or an impossible value.
    """
    names: dict[str, str] = {}
    for part in change.entity:
        _check_type(part.entity_type)
        if part.entity_type in names or part.entity_name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{part.entity_type}: stands twice, or has an empty name")
        names[part.entity_type] = quoted(_address(part.entity_name) if part.entity_type == IP else part.entity_name)
    if not names or (IP in names and len(names) > 1):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a quota is for a {USER}, a {CLIENT_ID}, or both, or for an {IP}")
    keys = IP_QUOTAS if IP in names else CLIENT_QUOTAS
    changes: dict[str, str | None] = {}
    for operation in change.ops:
        if operation.key in changes:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{operation.key}: stands twice")
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


QUOTA_APIS: Mapping[ApiKey, tuple[type[Request], Handler]] = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (DescribeClientQuotasRequest, describe_client_quotas),
    ApiKey.ALTER_CLIENT_QUOTAS: (AlterClientQuotasRequest, alter_client_quotas),
}
"""The APIs of this module."""

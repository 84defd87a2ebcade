"""Client quotas: whom one is for, and which one governs a client.

Source: Kafka documentation, "Quotas"; KIP-124 (request time), KIP-546 (the requests that change them), KIP-599
(controller mutations), KIP-612 (connections by address).
"""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"

CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

WHOLE_QUOTAS = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE})
"""Quotas that are whole numbers: bytes or connections a second."""

CLIENT_QUOTAS = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})
"""Quotas of users and client ids; one is a share of one processor in percent, one in partitions a second."""

IP_QUOTAS = frozenset({CONNECTION_CREATION_RATE})
"""Quotas of addresses."""

QUOTA_KEYS = CLIENT_QUOTAS | IP_QUOTAS

DEFAULT = "<default>"
"""Name of the entity that holds for everybody without one of its own; no quoted name is the same."""


class QuotaEntity(NamedTuple):
    """Whom quotas are for: a user, a client id, a client id of a user, or an address.

    Attributes:
        user: quoted as in the store, DEFAULT, or None where any user is meant.
        client_id: the same for the client id.
        ip: the same for the address.
            Invariant: either this is None, or the two others are.
    """

    user: str | None
    client_id: str | None
    ip: str | None = None


ClientQuotas = Mapping[QuotaEntity, Mapping[str, float]]
"""The quotas of each entity by key."""


def quoted(name: str | None) -> str:
    """Return the node name of a user, client id or address; None stands for the default."""
    return DEFAULT if name is None else quote(name, safe="")


def unquoted(node: str) -> str | None:
    """Return the user, client id or address of a node name; None is the default."""
    return None if node == DEFAULT else unquote(node)


def connection_rate(quotas: ClientQuotas, ip: str) -> float | None:
    """Return how many connections a second may come from an address; None if there is no limit."""
    for name in (quoted(ip), DEFAULT):
        limit = quotas.get(QuotaEntity(None, None, name), {}).get(CONNECTION_CREATION_RATE)
        if limit is not None:
            return limit
    return None


def governing(quotas: ClientQuotas, user: str, client_id: str, key: str) -> tuple[QuotaEntity, float] | None:
    """Return whose the one quota is that governs a client, and how much it allows; None if there is none.

    The most specific wins.  It is shared by all who name the same user, the same client id, or both, as it says.

    Args:
        quotas: all there are.
        user: name of the principal.
        client_id: what the client calls itself.
        key: one of CLIENT_QUOTAS.

    Returns:
        The entity with the client's own names in place of defaults: clients that share an allowance have an equal one.
    """
    own_user, own_client = quoted(user), quoted(client_id)
    for named in (
        QuotaEntity(own_user, own_client),
        QuotaEntity(own_user, DEFAULT),
        QuotaEntity(own_user, None),
        QuotaEntity(DEFAULT, own_client),
        QuotaEntity(DEFAULT, DEFAULT),
        QuotaEntity(DEFAULT, None),
        QuotaEntity(None, own_client),
        QuotaEntity(None, DEFAULT),
    ):
        limit = quotas.get(named, {}).get(key)
        if limit is not None:
            sharing = QuotaEntity(
                None if named.user is None else own_user, None if named.client_id is None else own_client
            )
            return sharing, limit
    return None

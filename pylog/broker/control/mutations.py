"""How fast a client may have topics made, grown and deleted: `controller_mutation_rate`, in partitions a second.

Counted where the request comes in.  Admin clients ask the controller, so that is where Kafka counts too; a client that
spreads its requests over other brokers has as much at each.

Source: KIP-599.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pylog.broker.control.cluster import Cluster
from pylog.broker.handler import Answer, Caller
from pylog.errors import ErrorCode
from pylog.wire.api import Message
from pylog.wire.api.partitions import CreatePartitionsRequest
from pylog.wire.api.topics import CreateTopicsRequest, DeleteTopicsRequest

Mutation = CreateTopicsRequest | DeleteTopicsRequest | CreatePartitionsRequest

_STRICT_FROM: dict[type[Mutation], int] = {CreateTopicsRequest: 6, DeleteTopicsRequest: 5, CreatePartitionsRequest: 3}
"""Versions whose clients know THROTTLING_QUOTA_EXCEEDED and ask again."""

_ROWS: dict[type[Mutation], str] = {
    CreateTopicsRequest: "topics",
    DeleteTopicsRequest: "responses",
    CreatePartitionsRequest: "results",
}
"""Where the answer has its row for each topic."""


def ask_within_quota(cluster: Cluster, request: Mutation, caller: Caller, partitions: Callable[[Any], int]) -> Answer:
    """Let the controller do as much of *request* as the caller's quota allows; *partitions* counts those of a topic."""
    meter = caller.meter
    if meter is None or not meter.counts_mutations or getattr(request, "validate_only", False):
        return cluster.ask_controller(request)
    kind = type(request)
    is_strict = caller.version >= _STRICT_FROM[kind]
    allowed: list[Any] = []
    refused: list[Any] = []
    for topic in request.topics:
        (allowed if meter.mutated(partitions(topic), is_strict=is_strict) else refused).append(topic)
    if not refused:
        return cluster.ask_controller(request)

    def part(topics: list[Any]) -> Mutation:
        only: Any = request  # each kind has topics of its own
        found: Mutation = replace(only, topics=topics)
        return found

    refusal = part(refused).error_response(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, "more partitions a second than controller_mutation_rate allows"
    )

    async def answer() -> Message:
        if not allowed:
            return refusal
        found = await cluster.ask_controller(part(allowed))
        getattr(found, _ROWS[kind]).extend(getattr(refusal, _ROWS[kind]))
        return found

    return answer()

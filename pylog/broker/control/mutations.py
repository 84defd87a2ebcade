"""Which topics a client may have made, grown and deleted, and how fast.

`controller_mutation_rate`, in partitions a second, is counted where the request comes in.  Admin clients ask the
controller, so that is where Kafka counts too; a client that spreads its requests has as much at each broker.

Source: KIP-599.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from pylog.broker.control.cluster import Cluster
from pylog.broker.handler import Answer, Caller
from pylog.errors import ApiError, ErrorCode
from pylog.wire.api import Message
from pylog.wire.api.partitions import CreatePartitionsRequest
from pylog.wire.api.topics import CreateTopicsRequest, DeleteTopicsRequest

Mutation = CreateTopicsRequest | DeleteTopicsRequest | CreatePartitionsRequest

_STRICT_FROM: dict[type[Mutation], int] = {CreateTopicsRequest: 6, DeleteTopicsRequest: 5, CreatePartitionsRequest: 3}
"""Versions whose clients know THROTTLING_QUOTA_EXCEEDED and ask again."""

_TOO_FAST = ApiError(
    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "more partitions a second than controller_mutation_rate allows"
)

_ROWS: dict[type[Mutation], str] = {
    CreateTopicsRequest: "topics",
    DeleteTopicsRequest: "responses",
    CreatePartitionsRequest: "results",
}
"""Where the answer has its row for each topic."""


def ask_for_allowed(
    cluster: Cluster,
    request: Mutation,
    caller: Caller,
    refusal: Callable[[Any], ApiError | None],
    partitions: Callable[[Any], int],
    ask: Callable[[Any], Awaitable[Message]] | None = None,
) -> Answer:
    """Let the controller do as much of *request* as the caller's rights and quota allow.

    Args:
        cluster: where it is done.
        request: names topics.
        caller: who wants it.
        refusal: returns why the caller may not have it done with a topic, None if it may.
        partitions: counts those of a topic that the quota is about.
        ask: asks the controller, `Cluster.ask_controller` by default.
    """
    ask = ask or cluster.ask_controller
    kind, meter = type(request), caller.meter
    is_counted = meter is not None and meter.counts_mutations and not getattr(request, "validate_only", False)
    is_strict = caller.version >= _STRICT_FROM[kind]
    allowed: list[Any] = []
    refused: list[Any] = []

    def part(topics: list[Any]) -> Mutation:
        only: Any = request  # each kind has topics of its own
        found: Mutation = replace(only, topics=topics)
        return found

    for topic in request.topics:
        error = refusal(topic)
        if error is None and is_counted:
            assert meter is not None
            error = None if meter.mutated(partitions(topic), is_strict=is_strict) else _TOO_FAST
        if error is None:
            allowed.append(topic)
        else:
            refused += getattr(part([topic]).error_response(error.code, str(error)), _ROWS[kind])
    if not refused:
        return ask(request)

    async def answer() -> Message:
        found = await ask(part(allowed)) if allowed else part([]).error_response(ErrorCode.NONE)
        getattr(found, _ROWS[kind]).extend(refused)
        return found

    return answer()

"""Moving partitions to other brokers: AlterPartitionReassignments and ListPartitionReassignments.

Both are the controller's: moves stand in the store, and nobody else knows all of them at once.
"""

import asyncio
from collections.abc import Mapping, Sequence

from pylog.broker.agent import ClusterAgent
from pylog.broker.handler import Answer, Caller, Cluster, Handler
from pylog.cluster.image import TopicImage
from pylog.errors import ApiError, ErrorCode
from pylog.wire.api import ApiKey
from pylog.wire.api.message import Request
from pylog.wire.api.partitions import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def alter_reassignments(cluster: Cluster, request: AlterPartitionReassignmentsRequest, caller: Caller) -> Answer:
    """Let the controller move partitions to other brokers, or call that off."""
    return cluster.ask_controller(request)


def list_reassignments(cluster: Cluster, request: ListPartitionReassignmentsRequest, caller: Caller) -> Answer:
    """Let the controller say which partitions are on the move."""
    return cluster.ask_controller(request)


async def carry_out_moves(
    agent: ClusterAgent, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Return the controller's answer; a partition that is named twice is refused.

    Raises:
        ApiError: NOT_CONTROLLER, or UNSUPPORTED_VERSION before `pylog cluster finalize`.
    """
    wanted: dict[tuple[str, int], Sequence[int] | None] = {}
    doubled: set[tuple[str, int]] = set()
    for topic in request.topics:
        for one in topic.partitions:
            key = (topic.name, one.partition_index)
            if key in wanted:
                doubled.add(key)
            wanted[key] = one.replicas
    for key in doubled:
        del wanted[key]
    results = await asyncio.wrap_future(agent.move_partitions(wanted))
    twice = ApiError(ErrorCode.INVALID_REQUEST, "the partition stands twice in one request")
    return AlterPartitionReassignmentsResponse(
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _row(one.partition_index, results.get((topic.name, one.partition_index), twice))
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _row(number: int, error: ApiError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=number)
    return ReassignablePartitionResponse(partition_index=number, error_code=error.code, error_message=str(error))


async def list_moves(
    agent: ClusterAgent, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return the controller's answer: what is on the move of the partitions asked for, or of all.

    Raises:
        ApiError: NOT_CONTROLLER.
    """
    wanted = None if request.topics is None else {row.name: set(row.partition_indexes) for row in request.topics}
    moving = await asyncio.wrap_future(agent.moves())
    return ListPartitionReassignmentsResponse(
        topics=[
            OngoingTopicReassignment(name=name, partitions=rows)
            for name, topic in moving.items()
            if (rows := _ongoing(topic, None if wanted is None else wanted.get(name, set())))
        ]
    )


def _ongoing(topic: TopicImage, wanted: set[int] | None) -> list[OngoingPartitionReassignment]:
    return [
        OngoingPartitionReassignment(
            partition_index=number,
            replicas=list(topic.partitions[number].replicas),
            adding_replicas=list(move.adding),
            removing_replicas=list(move.removing),
        )
        for number, move in sorted(topic.moves.items())
        if wanted is None or number in wanted
    ]


REASSIGNMENT_APIS: Mapping[ApiKey, tuple[type[Request], Handler]] = {
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (AlterPartitionReassignmentsRequest, alter_reassignments),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (ListPartitionReassignmentsRequest, list_reassignments),
}
"""The APIs of this module."""

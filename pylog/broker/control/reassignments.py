"""Moving partitions to other brokers: AlterPartitionReassignments and ListPartitionReassignments.

The controller answers both: reassignments are kept in the store, and no other broker knows all of them.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from pylog.broker.control.api import ControlContext, ControllerApi, pass_if_allowed
from pylog.broker.control.controller import ActiveController
from pylog.cluster.controller import Rewrite
from pylog.cluster.image import TopicImage
from pylog.errors import ApiError, ErrorCode
from pylog.model import Key
from pylog.security.acl import Operation
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

NEWS_WAIT_S = 2.0
"""How long a list of moves waits until this broker has heard of the end of others: images come within milliseconds.  A
move that began meanwhile keeps it waiting too."""


async def _execute_alter(
    context: ControlContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    targets: dict[Key, Sequence[int] | None] = {}
    duplicates: set[Key] = set()
    for topic in request.topics:
        for one in topic.partitions:
            key = (topic.name, one.partition_index)
            if key in targets:
                duplicates.add(key)
            targets[key] = one.replicas
    for key in duplicates:
        del targets[key]
    results = await context.run(partial(alter_reassignments, targets=targets))
    duplicate = ApiError(ErrorCode.INVALID_REQUEST, "duplicate partition in request")
    return AlterPartitionReassignmentsResponse(
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _row(one.partition_index, results.get((topic.name, one.partition_index), duplicate))
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


def alter_reassignments(
    controller: ActiveController, targets: Mapping[Key, Sequence[int] | None]
) -> dict[Key, ApiError | None]:
    """Move partitions to these brokers, or with None cancel the move; the result says which were refused and why.

    Raises:
        ApiError: UNSUPPORTED_VERSION; `pylog cluster finalize` comes first.
    """
    rewrite, refused = controller.state.plan_moves(targets)
    controller.write_assignments(rewrite)
    controller.finish_reassignments()
    return {key: refused.get(key) for key in targets}


def confirm_removal(controller: ActiveController, broker_id: int, removed: Collection[tuple[uuid.UUID, int]]) -> None:
    """Take note that *broker_id* has deleted partitions that it held before they were moved."""
    controller.write_assignments(Rewrite(controller.state.after_removal(broker_id, removed), ()))


async def _execute_list(
    context: ControlContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    wanted = None if request.topics is None else {row.name: set(row.partition_indexes) for row in request.topics}
    moving = await context.run(reassigning_topics)
    return ListPartitionReassignmentsResponse(
        topics=[
            OngoingTopicReassignment(name=name, partitions=rows)
            for name, topic in moving.items()
            if (rows := _ongoing(topic, None if wanted is None else wanted.get(name, set())))
        ]
    )


def has_no_other_moves(
    context: ControlContext, request: ListPartitionReassignmentsRequest, response: ListPartitionReassignmentsResponse
) -> bool:
    """Whether this broker has heard of the end of all moves that the controller lists no more.

    Whoever asks it for the replicas next would take those of the way for all that the partition shall have.
    """
    listed = {(topic.name, one.partition_index) for topic in response.topics for one in topic.partitions}
    wanted = None if request.topics is None else {row.name: set(row.partition_indexes) for row in request.topics}
    return all(
        (name, number) in listed
        for name, topic in context.image.topics.items()
        for number in topic.moves
        if wanted is None or number in wanted.get(name, ())
    )


def reassigning_topics(controller: ActiveController) -> dict[str, TopicImage]:
    """Return the topics with partitions that are being moved."""
    return {name: topic for name, topic in controller.state.topics.items() if topic.moves}


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


ALTER = ControllerApi(
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
    handle=pass_if_allowed(Operation.ALTER),
    execute=_execute_alter,
    is_repeatable=True,
)
LIST = ControllerApi(
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
    handle=pass_if_allowed(Operation.DESCRIBE),
    execute=_execute_list,
    is_visible=has_no_other_moves,
    visible_wait_s=NEWS_WAIT_S,
    is_repeatable=True,
)

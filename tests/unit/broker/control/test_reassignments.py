"""What a broker waits for before it answers which partitions are on the move."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from pylog.broker.control.reassignments import has_no_other_moves
from pylog.cluster.image import ClusterImage, Move, PartitionImage, TopicImage
from pylog.wire.api.partitions import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@pytest.mark.parametrize(
    ("listed", "wanted", "is_heard"),
    [([], None, False), ([0], None, True), ([], [0], False), ([], [1], True)],
    ids=["over, and not heard of here", "listed", "over, and asked for", "over, and not asked for"],
)
def test_a_move_that_is_over_must_have_been_heard_of(
    listed: list[int], wanted: list[int] | None, is_heard: bool
) -> None:
    state = PartitionImage(1, 0, (1,), (2, 1), 3)
    topic = TopicImage("t", UUID(int=1), {0: state, 1: state}, moves={0: Move((2,), (1,))})
    context: Any = SimpleNamespace(image=ClusterImage(1, 1, "c", 1, {}, {"t": topic}))
    rows = [
        OngoingPartitionReassignment(partition_index=one, replicas=[2, 1], adding_replicas=[2], removing_replicas=[1])
        for one in listed
    ]
    response = ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment(name="t", partitions=rows)])
    topics = None if wanted is None else [ListPartitionReassignmentsTopics(name="t", partition_indexes=wanted)]
    assert has_no_other_moves(context, ListPartitionReassignmentsRequest(topics=topics), response) is is_heard

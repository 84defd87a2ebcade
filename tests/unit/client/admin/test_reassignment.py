"""Moves in requests: none has more elements than a broker takes."""

from types import TracebackType
from typing import Self

import pytest

from pylog.client.admin import reassignment
from pylog.client.connection import Connection
from pylog.errors import ApiError, ErrorCode
from pylog.model import TopicPartition
from pylog.wire.api.partitions import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


class Controller:
    """Takes every request as it comes over the wire, and refuses partition 5000."""

    def __init__(self) -> None:
        self.moves: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def ask(self, request: AlterPartitionReassignmentsRequest, version: int) -> memoryview:
        asked = AlterPartitionReassignmentsRequest.decode(version, memoryview(request.encode(version)))
        self.moves.append(sum(len(topic.partitions) for topic in asked.topics))
        codes = {5000: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
        answer = AlterPartitionReassignmentsResponse(
            responses=[
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        ReassignablePartitionResponse(
                            partition_index=one.partition_index,
                            error_code=codes.get(one.partition_index, ErrorCode.NONE),
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in asked.topics
            ]
        )
        return memoryview(answer.encode(version))


def test_many_moves_go_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller()
    monkeypatch.setattr(reassignment, "_client", lambda cluster: controller)
    wanted = {TopicPartition(f"t{number}", number): tuple(range(14)) for number in range(10_000)}
    results = reassignment.reassign(Connection(bootstrap="broker:9092"), wanted)
    assert controller.moves == [4096, 4096, 1808]
    assert results.keys() == wanted.keys()
    [(partition, error)] = [(one, error) for one, error in results.items() if error is not None]
    assert partition == TopicPartition("t5000", 5000)
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT

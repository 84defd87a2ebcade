from typing import Any

from pylog.broker.error_counts import ErrorCounts, error_codes
from pylog.errors import ErrorCode
from pylog.metrics import Metrics
from pylog.wire.api import ApiKey
from pylog.wire.api.group_offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pylog.wire.api.groups import HeartbeatResponse
from pylog.wire.api.metadata import MetadataResponse


def _commit(*codes: ErrorCode) -> Any:
    partitions = [
        OffsetCommitResponsePartition(partition_index=number, error_code=code) for number, code in enumerate(codes)
    ]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="pageviews", partitions=partitions)])


def test_an_answer_without_errors_has_none() -> None:
    assert list(error_codes(_commit(ErrorCode.NONE, ErrorCode.NONE))) == []
    assert list(error_codes(HeartbeatResponse())) == []


def test_errors_are_found_at_the_top_and_in_every_part() -> None:
    assert list(error_codes(HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))) == [22]
    codes = _commit(ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert list(error_codes(codes)) == [12, 3]


def test_every_response_can_be_looked_through() -> None:
    assert list(error_codes(MetadataResponse(brokers=[], topics=[]))) == []


def test_they_are_counted_by_api_and_name() -> None:
    metrics = Metrics()
    errors = ErrorCounts(metrics)
    errors.note_all(ApiKey.OFFSET_COMMIT, _commit(ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS))
    errors.note(int(ApiKey.PRODUCE), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    shown = metrics.render()
    assert 'pylog_errors_total{api="offset_commit",error="REBALANCE_IN_PROGRESS"} 2' in shown
    assert 'pylog_errors_total{api="produce",error="NOT_LEADER_OR_FOLLOWER"} 1' in shown

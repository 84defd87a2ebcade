"""Which offset a partition has at a time: ListOffsets."""

import logging

from pylog.broker.data.fetch import check_leader_epoch
from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.handler import Answer, Caller, Cluster
from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.log.log import Log
from pylog.wire.api.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_logger = logging.getLogger(__name__)

_KNOWS_OFFSET_NOT_AVAILABLE = 5
"""First version of ListOffsets whose clients know that error."""


def list_offsets(cluster: Cluster, request: ListOffsetsRequest, caller: Caller) -> Answer:
    """Find offsets by timestamp in the partitions led here."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _list_offset(cluster.partitions, topic.name, wanted, caller.version) for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _list_offset(
    partitions: Partitions, topic: str, wanted: ListOffsetsPartition, version: int
) -> ListOffsetsPartitionResponse:
    number = wanted.partition_index
    try:
        partition, log = partitions.leader(topic, number)
        check_leader_epoch(wanted.current_leader_epoch, partition.leader_epoch)
        timestamp, offset = -1, -1
        if wanted.timestamp != EARLIEST_TIMESTAMP:
            _check_is_caught_up(partition, log)
        if wanted.timestamp == LATEST_TIMESTAMP:
            offset = log.high_watermark
        elif wanted.timestamp == EARLIEST_TIMESTAMP:
            offset = log.log_start_offset
        elif wanted.timestamp == MAX_TIMESTAMP:
            timestamp, offset = log.offset_of_max_timestamp() or (-1, -1)
        elif wanted.timestamp >= 0:
            timestamp, offset = log.offset_for_timestamp(wanted.timestamp) or (-1, -1)
        else:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"unsupported special timestamp {wanted.timestamp}")
        if offset >= log.high_watermark and wanted.timestamp != LATEST_TIMESTAMP and timestamp >= 0:
            timestamp, offset = -1, -1  # not everywhere yet, so not to be seen yet
        return ListOffsetsPartitionResponse(
            partition_index=number, timestamp=timestamp, offset=offset, leader_epoch=partition.leader_epoch
        )
    except ApiError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < _KNOWS_OFFSET_NOT_AVAILABLE:
            code = ErrorCode.LEADER_NOT_AVAILABLE  # which has older clients ask again too (trap 11)
        return ListOffsetsPartitionResponse(partition_index=number, error_code=code)
    except StorageError as error:
        _logger.error("search failed partition=%s-%d reason=%s", topic, number, error)
        return ListOffsetsPartitionResponse(partition_index=number, error_code=ErrorCode.KAFKA_STORAGE_ERROR)


def _check_is_caught_up(partition: Partition, log: Log) -> None:
    """Refuse to say where the log ends while the last leader may have shown more of it than we know (trap 36).

    Raises:
        ApiError: OFFSET_NOT_AVAILABLE; ask again.
    """
    leading = partition.leading
    if leading is not None and log.high_watermark < leading.epoch_start:
        message = f"high watermark {log.high_watermark} has not reached the epoch's start {leading.epoch_start}"
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, message)

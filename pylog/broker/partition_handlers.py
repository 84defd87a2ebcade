"""What clients ask of partitions beside reading and writing.

DeleteRecords, OffsetForLeaderEpoch, DescribeLogDirs, DescribeProducers.
"""

import os
from collections.abc import Mapping

from pylog.broker.data.fetch import check_leader_epoch
from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.handler import Answer, Caller, Cluster, Handler
from pylog.errors import ApiError, ErrorCode, StorageError
from pylog.model import INTERNAL_TOPICS
from pylog.wire.api import ApiKey
from pylog.wire.api.cluster import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from pylog.wire.api.message import Request
from pylog.wire.api.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from pylog.wire.api.partitions import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from pylog.wire.api.producers import (
    DescribedProducers,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    ProducerState,
)


def delete_records(cluster: Cluster, request: DeleteRecordsRequest, caller: Caller) -> Answer:
    """Let logs begin later; followers learn it from their next fetch."""
    partitions = cluster.partitions
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_delete_records(partitions, topic.name, one) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )
    # Without it a crash within the next minute would show the records again.
    partitions.checkpoint_soon()
    return response


def _delete_records(partitions: Partitions, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    row = DeleteRecordsPartitionResult(partition_index=wanted.partition_index)
    try:
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the brokers' own")
        _, log = partitions.leader(topic, wanted.partition_index)
        if not log.config.is_deleting:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{topic} has cleanup.policy={log.config.cleanup_policy}")
        row.low_watermark = log.delete_records_before(wanted.offset)
    except ApiError as error:
        row.error_code = error.code
    except StorageError:
        row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return row


def offset_for_leader_epoch(cluster: Cluster, request: OffsetForLeaderEpochRequest, caller: Caller) -> Answer:
    """Say where leader epochs end, so that a reader finds out whether what it read was cut off since."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_epoch_end(cluster.partitions, topic.topic, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _epoch_end(partitions: Partitions, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition, log = partitions.leader(topic, wanted.partition)
        check_leader_epoch(wanted.current_leader_epoch, partition.leader_epoch)
    except ApiError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    epoch, end_offset = log.offset_for_leader_epoch(wanted.leader_epoch)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)


def describe_log_dirs(cluster: Cluster, request: DescribeLogDirsRequest, caller: Caller) -> Answer:
    """Say what lies in this broker's data directory, and how full its disk is."""
    wanted = None if request.topics is None else {row.topic: set(row.partitions) for row in request.topics}
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in cluster.partitions:
        topic, number = partition.key
        if partition.log is not None and (wanted is None or number in wanted.get(topic, ())):
            by_topic.setdefault(topic, []).append(_describe_replica(partition))
    path = cluster.partitions.path
    disk = os.statvfs(path)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=str(path),
                topics=[DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in by_topic.items()],
                total_bytes=disk.f_blocks * disk.f_frsize,
                usable_bytes=disk.f_bavail * disk.f_frsize,
            )
        ]
    )


def _describe_replica(partition: Partition) -> DescribeLogDirsPartition:
    log = partition.log
    assert log is not None
    lag = max(log.high_watermark - log.log_end_offset, 0)
    return DescribeLogDirsPartition(
        partition_index=partition.key.partition, partition_size=log.size_bytes, offset_lag=lag
    )


def describe_producers(cluster: Cluster, request: DescribeProducersRequest, caller: Caller) -> Answer:
    """Say which idempotent producers write to partitions led here."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResponse(
                name=topic.name,
                partitions=[_producers(cluster.partitions, topic.name, number) for number in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _producers(partitions: Partitions, topic: str, number: int) -> DescribedProducers:
    try:
        _, log = partitions.leader(topic, number)
    except ApiError as error:
        return DescribedProducers(partition_index=number, error_code=error.code, error_message=str(error))
    return DescribedProducers(
        partition_index=number,
        active_producers=[
            ProducerState(
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                last_sequence=one.last_sequence,
                last_timestamp=one.timestamp,
                coordinator_epoch=-1,
            )
            for one in log.producers.facts()
        ],
    )


PARTITION_APIS: Mapping[ApiKey, tuple[type[Request], Handler]] = {
    ApiKey.DELETE_RECORDS: (DeleteRecordsRequest, delete_records),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (OffsetForLeaderEpochRequest, offset_for_leader_epoch),
    ApiKey.DESCRIBE_LOG_DIRS: (DescribeLogDirsRequest, describe_log_dirs),
    ApiKey.DESCRIBE_PRODUCERS: (DescribeProducersRequest, describe_producers),
}
"""The APIs of this module."""

"""What clients ask of partitions beside reading and writing.

ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeLogDirs, DescribeProducers.
"""

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.partitions import Partition, Partitions, Trimmed
from pylog.broker.data.reading import check_leader_epoch
from pylog.broker.handler import Answer, Caller, Handler
from pylog.broker.large import Turns, in_steps
from pylog.errors import ApiError, CorruptRecords, ErrorCode, StorageError
from pylog.log.log import Log
from pylog.log.search import Allowance, first_not_older
from pylog.model import INTERNAL_TOPICS, Key, Offset
from pylog.security.acl import CLUSTER_NAME, Operation, ResourceType
from pylog.security.principal import Session
from pylog.wire.api import ApiKey
from pylog.wire.api.cluster import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from pylog.wire.api.message import Message, Request
from pylog.wire.api.offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    SPECIAL_TIMESTAMPS,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
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
from pylog.wire.fetch import READ_COMMITTED

_logger = logging.getLogger(__name__)

_KNOWS_OFFSET_NOT_AVAILABLE = 5
"""First version of ListOffsets whose clients know that error."""
_NEVER = 32767
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Cluster(Protocol):
    """What these handlers use of the broker.

    Attributes:
        partitions: hosted here, under the newest image.
        deletions: wait until every live replica has deleted records.
    """

    partitions: Partitions
    deletions: Acknowledgements


def list_offsets(cluster: Cluster, request: ListOffsetsRequest, caller: Caller) -> Answer:
    """Find offsets by timestamp in the partitions led here."""
    searches: dict[Key, _Search] = {}
    is_committed = request.isolation_level == READ_COMMITTED
    response = ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _list_offset(
                        cluster.partitions, topic.name, one, caller.version, searches, is_committed=is_committed
                    )
                    for one in topic.partitions
                ]
                if caller.may_topic(Operation.DESCRIBE, topic.name)
                else [
                    ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=_DENIED)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    return _search_all(cluster.partitions, response, searches, caller.session) if searches else response


class _Search(NamedTuple):
    """A search in the records of a partition, and the row of the answer that it fills in."""

    row: ListOffsetsPartitionResponse
    log: Log
    timestamp: int
    is_committed: bool


async def _search_all(
    partitions: Partitions, response: ListOffsetsResponse, searches: Mapping[Key, _Search], session: Session
) -> ListOffsetsResponse:
    """Search one partition after the other, in a thread: batches have to be unpacked, and a client asks for many."""
    for (topic, number), (row, log, timestamp, is_committed) in searches.items():
        try:
            # For each anew: a request may name thousands, and others wait.
            async with partitions.searching.hold(session):
                found = await _search(log, timestamp)
            if found is not None and found[1] < _end_offset(log, is_committed=is_committed):
                row.timestamp, row.offset = found
        except (ApiError, StorageError) as error:
            row.leader_epoch = -1
            if isinstance(error, ApiError):
                row.error_code = error.code
            else:
                _logger.error("search failed partition=%s-%d reason=%s", topic, number, error)
                row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return response


async def _search(log: Log, timestamp: int) -> tuple[int, Offset] | None:
    """Return (timestamp, offset) of the first record of *log* not older than *timestamp*, or None.

    Raises:
        ApiError: the log was cut, the batch in question does not decode, or the search had too much to unpack.
        StorageError: the log cannot be read, and is offline now.
    """
    allowance = Allowance()
    for part in log.parts_not_older(timestamp):
        part.acquire()
        try:
            found = await asyncio.to_thread(first_not_older, part, timestamp, log.log_start_offset, allowance)
        except (StorageError, CorruptRecords) as error:
            if not part.is_current():
                raise _cut_meanwhile() from error
            if isinstance(error, StorageError):
                log.go_offline(str(error))
            raise
        finally:
            part.release()
        if not part.is_current():
            raise _cut_meanwhile()
        if found is not None:
            return found
    return None


def _cut_meanwhile() -> ApiError:
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log was truncated while it was searched")


def _list_offset(
    partitions: Partitions,
    topic: str,
    wanted: ListOffsetsPartition,
    version: int,
    searches: dict[Key, _Search],
    *,
    is_committed: bool,
) -> ListOffsetsPartitionResponse:
    """Return the row for one partition; what has to be searched for is added to *searches*, and is -1 in the row."""
    number = wanted.partition_index
    try:
        partition, log = partitions.leader(topic, number)
        check_leader_epoch(wanted.current_leader_epoch, partition.leader_epoch)
        if wanted.timestamp < 0 and version < SPECIAL_TIMESTAMPS.get(wanted.timestamp, _NEVER):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"unsupported special timestamp {wanted.timestamp}")
        offset, searched = -1, -1
        if wanted.timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            offset = log.log_start_offset
        elif wanted.timestamp == LATEST_TIERED_TIMESTAMP:
            return ListOffsetsPartitionResponse(partition_index=number)  # no record, so it has no leader epoch either
        else:
            _check_is_caught_up(partition, log)
        if wanted.timestamp == LATEST_TIMESTAMP:
            offset = _end_offset(log, is_committed=is_committed)
        elif wanted.timestamp == MAX_TIMESTAMP:
            searched = log.max_timestamp
        elif wanted.timestamp >= 0:
            searched = wanted.timestamp
        row = ListOffsetsPartitionResponse(
            partition_index=number, timestamp=-1, offset=offset, leader_epoch=partition.leader_epoch
        )
        if searched >= 0:
            if (topic, number) in searches:
                raise ApiError(ErrorCode.INVALID_REQUEST, "duplicate partition in request")
            searches[topic, number] = _Search(row, log, searched, is_committed)
        return row
    except ApiError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < _KNOWS_OFFSET_NOT_AVAILABLE:
            code = ErrorCode.LEADER_NOT_AVAILABLE  # which has older clients ask again too (trap 11)
        return ListOffsetsPartitionResponse(partition_index=number, error_code=code)


def _end_offset(log: Log, *, is_committed: bool) -> Offset:
    """Return where readers stop: what is above is not on all replicas yet, or not committed for who wants only that."""
    return log.last_stable_offset if is_committed else log.high_watermark


def _check_is_caught_up(partition: Partition, log: Log) -> None:
    """Refuse to say where the log ends while the last leader may have shown more of it than we know (trap 36).

    Raises:
        ApiError: OFFSET_NOT_AVAILABLE; ask again.
    """
    leading = partition.leading
    if leading is not None and log.high_watermark < leading.epoch_start:
        message = f"high watermark {log.high_watermark} has not reached the epoch's start {leading.epoch_start}"
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, message)


def delete_records(cluster: Cluster, request: DeleteRecordsRequest, caller: Caller) -> Answer:
    """Let logs begin later; answer when every live replica does, and has that on disk.

    Followers and waiting consumers are told at once.
    """
    waits: dict[Key, Trimmed] = {}
    response = DeleteRecordsResponse(topics=[])

    async def answer() -> Message:
        errors = await _wait_deleted(cluster, waits, request.timeout_ms) if waits else {}
        turns = Turns()
        for answered in response.topics:
            for row in answered.partitions:
                trimmed = waits.get((answered.name, row.partition_index))
                if trimmed is not None and not row.error_code:
                    await turns.next()
                    row.error_code = errors[trimmed.partition.key]
                    row.low_watermark = -1 if row.error_code else trimmed.low_watermark()
        return response

    return in_steps(_delete_all_records(cluster.partitions, request, caller, waits, response), answer)


def _delete_all_records(
    partitions: Partitions,
    request: DeleteRecordsRequest,
    caller: Caller,
    waits: dict[Key, Trimmed],
    response: DeleteRecordsResponse,
) -> Iterator[None]:
    """Delete on this broker; one partition a step."""
    for topic in request.topics:
        yield
        is_allowed = caller.may_topic(Operation.DELETE, topic.name)
        rows: list[DeleteRecordsPartitionResult] = []
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=rows))
        for one in topic.partitions:
            yield
            if is_allowed:
                rows.append(_delete_records(partitions, topic.name, one, waits))
            else:
                rows.append(DeleteRecordsPartitionResult(partition_index=one.partition_index, error_code=_DENIED))


async def _wait_deleted(cluster: Cluster, waits: Mapping[Key, Trimmed], timeout_ms: int) -> Mapping[Key, ErrorCode]:
    """Wait until our own disk and every replica that counts have carried the deletions out; return how each ended."""
    partitions = cluster.partitions
    deadline_ms = partitions.now_ms() + timeout_ms
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            # Followers tell where they begin only once it is on disk.
            is_written = await partitions.checkpoint()
    except TimeoutError:
        return dict.fromkeys(waits, ErrorCode.REQUEST_TIMED_OUT)
    if not is_written:
        return dict.fromkeys(waits, ErrorCode.KAFKA_STORAGE_ERROR)
    return await cluster.deletions.wait_for_all(waits, max(deadline_ms - partitions.now_ms(), 0))


def _delete_records(
    partitions: Partitions, topic: str, wanted: DeleteRecordsPartition, waits: dict[Key, Trimmed]
) -> DeleteRecordsPartitionResult:
    """Delete on this broker; add to *waits* what the answer has to wait for, or return why nothing was deleted."""
    row = DeleteRecordsPartitionResult(partition_index=wanted.partition_index)
    try:
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the brokers' own")
        partition, log = partitions.leader(topic, wanted.partition_index)
        if not log.config.is_deleting:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{topic} has cleanup.policy={log.config.cleanup_policy}")
        start_before = log.log_start_offset
        offset = log.high_watermark if wanted.offset == -1 else wanted.offset
        if log.delete_records_before(offset) > start_before:
            partitions.started_later(partition.key)
        if partition.key in waits:  # named twice in one request: both are answered once both are carried out
            offset = max(offset, waits[partition.key].offset)
        waits[partition.key] = Trimmed(partition, offset, lambda: partitions.image.brokers)
    except ApiError as error:
        row.error_code = error.code
    except StorageError:
        row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return row


def offset_for_leader_epoch(cluster: Cluster, request: OffsetForLeaderEpochRequest, caller: Caller) -> Answer:
    """Say where leader epochs end, so that a reader finds out whether what it read was cut off since."""
    is_broker = caller.has(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_epoch_end(cluster.partitions, topic.topic, one) for one in topic.partitions]
                if is_broker or caller.may_topic(Operation.DESCRIBE, topic.topic)
                else [EpochEndOffset(partition=one.partition, error_code=_DENIED) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _epoch_end(partitions: Partitions, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition, log = partitions.leader(topic, wanted.partition)
        check_leader_epoch(wanted.current_leader_epoch, partition.leader_epoch)
        if wanted.leader_epoch > partition.leader_epoch:
            partitions.check_in_touch(partition, f"leader epoch {wanted.leader_epoch} is not known here")
        epoch, end_offset = log.readable_end_of_epoch(wanted.leader_epoch)
    except ApiError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    except StorageError:
        return EpochEndOffset(partition=wanted.partition, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)


def describe_log_dirs(cluster: Cluster, request: DescribeLogDirsRequest, caller: Caller) -> Answer:
    """Say what lies in this broker's data directory, and how full its disk is."""
    caller.require_cluster(Operation.DESCRIBE)
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
    # Each partition once, however often it is named: a number takes four bytes, its producers many thousand.
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    answer = DescribeProducersResponse(topics=[])
    steps = _look_at_producers(cluster.partitions, wanted, caller, answer)
    return in_steps(steps, lambda: answer)


def _look_at_producers(
    partitions: Partitions, wanted: Mapping[str, Iterable[int]], caller: Caller, answer: DescribeProducersResponse
) -> Iterator[None]:
    """Add a row to *answer* for each topic; one partition a step."""
    for name, numbers in wanted.items():
        yield
        row = DescribeProducersTopicResponse(name=name, partitions=[])
        answer.topics.append(row)
        is_allowed = caller.may_topic(Operation.READ, name)
        for number in numbers:
            yield
            if is_allowed:
                row.partitions.append(_producers(partitions, name, number))
            else:
                row.partitions.append(DescribedProducers(partition_index=number, error_code=_DENIED))


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
                coordinator_epoch=one.coordinator_epoch,
                current_txn_start_offset=one.transaction_start,
            )
            for one in log.producers.facts()
        ],
    )


PARTITION_APIS: Mapping[ApiKey, tuple[type[Request], Handler]] = {
    ApiKey.LIST_OFFSETS: (ListOffsetsRequest, list_offsets),
    ApiKey.DELETE_RECORDS: (DeleteRecordsRequest, delete_records),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (OffsetForLeaderEpochRequest, offset_for_leader_epoch),
    ApiKey.DESCRIBE_LOG_DIRS: (DescribeLogDirsRequest, describe_log_dirs),
    ApiKey.DESCRIBE_PRODUCERS: (DescribeProducersRequest, describe_producers),
}
"""The APIs of this module."""

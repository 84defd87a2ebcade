"""One function per control-plane API: what a request means for this broker.

See `pylog.broker.handler` for what a handler is; the other `*_handlers.py` hold those of one subject each.
"""

import logging
from collections.abc import Mapping

from pylog.broker.config_handlers import CONFIG_APIS
from pylog.broker.fetch import check_leader_epoch
from pylog.broker.group_handlers import GROUP_APIS
from pylog.broker.handler import Answer, Caller, Cluster, Handler
from pylog.broker.mutations import ask_within_quota
from pylog.broker.partition_handlers import PARTITION_APIS
from pylog.broker.partitions import Partition, Partitions
from pylog.broker.quota_handlers import QUOTA_APIS
from pylog.broker.reassignment_handlers import REASSIGNMENT_APIS
from pylog.broker.settings import check_topic_configs
from pylog.broker.tasks import Tasks
from pylog.cluster.image import ClusterImage, TopicImage
from pylog.cluster.topics import check_topic_name
from pylog.errors import ApiError, ConfigError, ErrorCode, StorageError
from pylog.log.log import Log
from pylog.model import INTERNAL_TOPICS, NO_LEADER
from pylog.wire.api import ApiKey, Message
from pylog.wire.api.cluster import (
    BROKERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from pylog.wire.api.message import Request
from pylog.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
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
from pylog.wire.api.producers import InitProducerIdRequest, InitProducerIdResponse
from pylog.wire.api.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicState,
)

_logger = logging.getLogger(__name__)

_KNOWS_TOPIC_IDS = 12
"""First version of Metadata that asks for topics by id."""

_KNOWS_OFFSET_NOT_AVAILABLE = 5
"""First version of ListOffsets whose clients know that error."""


def metadata(cluster: Cluster, request: MetadataRequest, caller: Caller) -> Answer:
    """Say who leads what; create what is missing, if allowed, and let the client ask again."""
    image = cluster.partitions.image
    missing: list[str] = []
    if request.topics is None:
        topics = [_describe_topic(image, topic) for topic in image.topics.values()]
    else:
        topics = [_describe_wanted(image, wanted, missing, caller.version) for wanted in request.topics]
    may_create = request.allow_auto_topic_creation and cluster.settings["auto.create.topics.enable"]
    if missing and may_create:
        _create_missing(cluster, missing)
        for row in topics:
            if row.name in missing:
                row.error_code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.broker_id, host=broker.client.host, port=broker.client.port, rack=broker.rack
            )
            for broker in image.brokers.values()
        ],
        cluster_id=image.cluster_id,
        controller_id=cluster.controller_id,
        topics=topics,
    )


def _describe_wanted(
    image: ClusterImage, wanted: MetadataRequestTopic, missing: list[str], version: int
) -> MetadataResponseTopic:
    if wanted.name is None and version < _KNOWS_TOPIC_IDS:
        # The request could say so before the answer could, which has no place for a topic without name.
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name="", topic_id=wanted.topic_id)
    if wanted.name is None:
        found = image.topic_by_id(wanted.topic_id)
        if found is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id)
        return _describe_topic(image, found)
    found = image.topics.get(wanted.name)
    if found is not None:
        return _describe_topic(image, found)
    try:
        check_topic_name(wanted.name)
    except ApiError as error:
        return MetadataResponseTopic(error_code=error.code, name=wanted.name)
    if wanted.name not in INTERNAL_TOPICS:  # those are made by who needs them, with settings of their own
        missing.append(wanted.name)
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=wanted.name)


def _describe_topic(image: ClusterImage, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else ErrorCode.NONE,
                partition_index=number,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                offline_replicas=[replica for replica in state.replicas if replica not in image.brokers],
            )
            for number, state in topic.partitions.items()
        ],
    )


def _create_missing(cluster: Cluster, names: list[str]) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=-1, replication_factor=-1) for name in names]
    )

    async def create() -> None:
        try:
            answer = await cluster.ask_controller(request)
        except ApiError as error:
            _logger.warning("topics not created topics=%s reason=%s", ",".join(names), error)
            return
        except Exception:
            _logger.exception("bug topics=%s", ",".join(names))  # one client's, who asks again
            return
        assert isinstance(answer, CreateTopicsResponse)
        for row in answer.topics:
            if row.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                _logger.warning("topic not created topic=%s reason=%s", row.name, row.error_message)

    # The client is not kept waiting: it gets LEADER_NOT_AVAILABLE and asks again, as it does with Kafka.
    _background.spawn(create())


_background = Tasks()


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
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {wanted.timestamp} names no place here")
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


def create_topics(cluster: Cluster, request: CreateTopicsRequest, caller: Caller) -> Answer:
    """Let the controller create topics."""
    topics, default_count = cluster.partitions.image.topics, int(cluster.settings["num.partitions"])

    def partitions(topic: CreatableTopic) -> int:
        if topic.name in topics:
            return 0
        wanted = len(topic.assignments) or topic.num_partitions
        return wanted if wanted > 0 else default_count

    return ask_within_quota(cluster, request, caller, partitions)


def delete_topics(cluster: Cluster, request: DeleteTopicsRequest, caller: Caller) -> Answer:
    """Let the controller delete topics."""
    if not cluster.settings["delete.topic.enable"]:
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    image = cluster.partitions.image

    def partitions(topic: DeleteTopicState) -> int:
        found = image.topics.get(topic.name) if topic.name is not None else image.topic_by_id(topic.topic_id)
        return 0 if found is None else len(found.partitions)

    return ask_within_quota(cluster, request, caller, partitions)


def init_producer_id(cluster: Cluster, request: InitProducerIdRequest, caller: Caller) -> Answer:
    """Give an idempotent producer an id; without a transactional id it is always a new one."""
    if request.transactional_id is not None:
        return request.error_response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    async def answer() -> Message:
        return InitProducerIdResponse(producer_id=await cluster.new_producer_id(), producer_epoch=0)

    return answer()


def describe_cluster(cluster: Cluster, request: DescribeClusterRequest, caller: Caller) -> Answer:
    """Say which brokers there are and which is the controller."""
    if request.endpoint_type != BROKERS:
        raise ApiError(ErrorCode.INVALID_REQUEST, "controllers have no addresses of their own here")
    image = cluster.partitions.image
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=one.broker_id, host=one.client.host, port=one.client.port, rack=one.rack)
            for one in image.brokers.values()
        ],
    )


def check_new_topic(topic: CreatableTopic) -> dict[str, str]:
    """Return the configs of a topic to create.

    Raises:
        ApiError: a config is unknown or wrong.
    """
    configs = {config.name: config.value for config in topic.configs}
    try:
        check_topic_configs(configs)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return {name: value for name, value in configs.items() if value is not None}


CONTROL_APIS: Mapping[ApiKey, tuple[type[Request], Handler]] = {
    ApiKey.METADATA: (MetadataRequest, metadata),
    ApiKey.LIST_OFFSETS: (ListOffsetsRequest, list_offsets),
    ApiKey.CREATE_TOPICS: (CreateTopicsRequest, create_topics),
    ApiKey.DELETE_TOPICS: (DeleteTopicsRequest, delete_topics),
    ApiKey.INIT_PRODUCER_ID: (InitProducerIdRequest, init_producer_id),
    ApiKey.DESCRIBE_CLUSTER: (DescribeClusterRequest, describe_cluster),
    **CONFIG_APIS,
    **GROUP_APIS,
    **PARTITION_APIS,
    **QUOTA_APIS,
    **REASSIGNMENT_APIS,
}
"""Every API but the two hot ones and ApiVersions; a test compares it with the table of served APIs."""

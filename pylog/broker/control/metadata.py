"""What clients ask of the cluster as a whole: Metadata and DescribeCluster."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pylog.broker.control.cluster import Cluster
from pylog.broker.handler import Answer, Caller
from pylog.broker.tasks import Tasks
from pylog.cluster.image import ClusterImage, PartitionImage, TopicImage
from pylog.cluster.topics import check_topic_name
from pylog.errors import ApiError, ErrorCode
from pylog.model import INTERNAL_TOPICS, NO_LEADER, NodeAddress
from pylog.security.acl import CLUSTER_NAME, Operation, ResourceType
from pylog.wire.api.cluster import (
    BROKERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from pylog.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pylog.wire.api.operations import NOT_ASKED
from pylog.wire.api.schema import NO_TOPIC_ID
from pylog.wire.api.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

_logger = logging.getLogger(__name__)

_KNOWS_TOPIC_IDS = 12
"""First version of Metadata that asks for topics by id."""

_KNOWS_LISTENER_NOT_FOUND = 6
"""First version of Metadata whose clients know the error, as with Kafka."""

_background = Tasks()


def handle_metadata(cluster: Cluster, request: MetadataRequest, caller: Caller) -> Answer:
    """Describe the topics and their leaders; create missing topics if allowed, and let the client ask again."""
    image = cluster.partitions.image
    view = _View(image, _addresses(image, caller), caller.version)
    missing: list[str] = []
    if request.topics is None:
        topics = [
            view.describe(topic)
            for topic in image.topics.values()
            if caller.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    else:
        # Each is described once, however often it is named: a name takes a few bytes, its description many thousand.
        wanted = {(one.name, one.topic_id): one for one in request.topics}
        topics = [_describe_requested(view, requested, missing, caller) for requested in wanted.values()]
    if request.include_topic_authorized_operations:
        for row in topics:
            if row.error_code == ErrorCode.NONE and row.name is not None:
                row.topic_authorized_operations = caller.operations(ResourceType.TOPIC, row.name)
    if missing and request.allow_auto_topic_creation and cluster.topic_policy.auto_create_topics_enable:
        creatable = _creatable(missing, caller)
        if creatable:
            if caller.meter is not None:
                # Not refused, as with Kafka: a consumer or producer would take that for its end. It is made to wait.
                caller.meter.mutated(len(creatable) * cluster.topic_policy.num_partitions, is_strict=False)
            _create_missing(cluster, creatable)
        looked_at, created = set(missing), set(creatable)
        for row in topics:
            if row.name in looked_at:
                is_created = row.name in created
                row.error_code = ErrorCode.LEADER_NOT_AVAILABLE if is_created else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=address.node_id, host=address.host, port=address.port, rack=rack)
            for address, rack in view.addresses.values()
        ],
        cluster_id=image.cluster_id,
        controller_id=cluster.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            _cluster_operations(caller) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _creatable(names: list[str], caller: Caller) -> list[str]:
    if caller.has(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
        return names
    return [name for name in names if caller.may_topic(Operation.CREATE, name)]


def _describe_requested(
    view: "_View", requested: MetadataRequestTopic, missing: list[str], caller: Caller
) -> MetadataResponseTopic:
    if requested.name is None and caller.version < _KNOWS_TOPIC_IDS:
        # Older requests can name a topic by id, but their responses have no place for a topic without name.
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name="", topic_id=requested.topic_id)
    if requested.name is None or requested.topic_id != NO_TOPIC_ID:
        topic = view.image.topic_by_id(requested.topic_id)
        if topic is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=requested.name, topic_id=requested.topic_id
            )
        if not caller.may_topic(Operation.DESCRIBE, topic.name):
            # An id is no secret, the name that belongs to it is: also whether it is the one that was guessed.
            return MetadataResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=requested.name, topic_id=requested.topic_id
            )
        if requested.name not in (None, topic.name):
            error = ErrorCode.INCONSISTENT_TOPIC_ID
            return MetadataResponseTopic(error_code=error, name=requested.name, topic_id=requested.topic_id)
        return view.describe(topic)
    if not caller.may_topic(Operation.DESCRIBE, requested.name):
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=requested.name)
    topic = view.image.topics.get(requested.name)
    if topic is not None:
        return view.describe(topic)
    try:
        check_topic_name(requested.name)
    except ApiError as error:
        return MetadataResponseTopic(error_code=error.code, name=requested.name)
    if requested.name not in INTERNAL_TOPICS:  # the broker that needs them creates them, with settings of their own
        missing.append(requested.name)
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=requested.name)


_Addresses: TypeAlias = Mapping[int, tuple[NodeAddress, str | None]]
"""Address and rack by broker."""


def _addresses(image: ClusterImage, caller: Caller) -> _Addresses:
    """Return the brokers that the client can reach: those with the listener that it came by."""
    listener = caller.session.listener_name
    return {
        broker.broker_id: (address, broker.rack)
        for broker in image.brokers.values()
        if (address := broker.address(listener)) is not None
    }


@dataclass(frozen=True, slots=True)
class _View:
    """The cluster as one client sees it.

    Attributes:
        addresses: of the brokers that it can reach.
        version: of its request.
    """

    image: ClusterImage
    addresses: _Addresses
    version: int

    def describe(self, topic: TopicImage) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[self._describe(number, state) for number, state in topic.partitions.items()],
        )

    def _describe(self, number: int, state: PartitionImage) -> MetadataResponsePartition:
        leader, error = state.leader, ErrorCode.NONE
        if leader == NO_LEADER:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        elif leader not in self.addresses and leader in self.image.brokers:
            # It serves clients, and these cannot reach it: it has no such listener yet, or no longer.
            has_code = self.version >= _KNOWS_LISTENER_NOT_FOUND
            leader, error = NO_LEADER, ErrorCode.LISTENER_NOT_FOUND if has_code else ErrorCode.LEADER_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=number,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            offline_replicas=[replica for replica in state.replicas if replica not in self.addresses],
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
            _logger.exception("bug topics=%s", ",".join(names))  # costs one client nothing but another request
            return
        assert isinstance(answer, CreateTopicsResponse)
        for row in answer.topics:
            if row.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                _logger.warning("topic not created topic=%s reason=%s", row.name, row.error_message)

    # The client is not kept waiting: it gets LEADER_NOT_AVAILABLE and asks again, as it does with Kafka.
    _background.spawn(create())


def handle_describe_cluster(cluster: Cluster, request: DescribeClusterRequest, caller: Caller) -> Answer:
    """Describe the brokers, and say which of them is the controller."""
    if request.endpoint_type != BROKERS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "controllers have no addresses here: endpoint_type must be 1, brokers"
        )
    image = cluster.partitions.image
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=at.node_id, host=at.host, port=at.port, rack=rack)
            for at, rack in _addresses(image, caller).values()
        ],
        cluster_authorized_operations=(
            _cluster_operations(caller) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _cluster_operations(caller: Caller) -> int:
    """Return what the client may do with the cluster; nothing to whom its description is not allowed, as with Kafka."""
    if not caller.sees(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return caller.operations(ResourceType.CLUSTER, CLUSTER_NAME)

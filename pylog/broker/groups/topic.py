"""The topic that keeps groups, `__consumer_offsets`: creating it, and which broker coordinates a group."""

import logging
from collections.abc import Callable, Coroutine

from pylog.broker.data.partitions import Partitions
from pylog.broker.tasks import Tasks
from pylog.errors import ApiError, ErrorCode
from pylog.group import records as group_records
from pylog.group.records import partition_for
from pylog.model import NO_LEADER, NodeAddress
from pylog.wire.api.message import Message, Request
from pylog.wire.api.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_logger = logging.getLogger(__name__)

CREATE_TIMEOUT_MS = 10_000
"""How long the controller may take to create the topic."""

OFFSETS_TOPIC_CONFIGS = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(100 << 20)}


class OffsetsTopic:
    """See the module."""

    def __init__(self, partitions: Partitions, partition_count: int, replication_factor: int, tasks: Tasks) -> None:
        self._partitions = partitions
        self._tasks = tasks
        self._is_being_created = False
        configs = dict(OFFSETS_TOPIC_CONFIGS)
        if replication_factor > 2:
            # A commit that only one replica has is lost with it, whatever other topics ask for.
            configs["min.insync.replicas"] = "2"
        self._topic = CreatableTopic(
            name=group_records.TOPIC,
            num_partitions=partition_count,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )

    def partition_of(self, group_id: str) -> int:
        """Return the partition that keeps *group_id*.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE; the topic does not exist.
        """
        topic = self._partitions.image.topics.get(group_records.TOPIC)
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{group_records.TOPIC} does not exist yet")
        return partition_for(group_id, len(topic.partitions))

    def coordinator_of(self, group_id: str, listener: str) -> NodeAddress:
        """Return the broker that coordinates *group_id*: the leader of its partition.

        The address is that for clients of *listener*.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE; the topic or its leader is missing, or the leader has no such listener.
        """
        image = self._partitions.image
        state = image.partition(group_records.TOPIC, self.partition_of(group_id))
        broker = image.brokers.get(state.leader) if state and state.leader != NO_LEADER else None
        if broker is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no leader for the partition of group {group_id}")
        if (address := broker.address(listener)) is None:
            message = f"the coordinator of group {group_id}, broker {broker.broker_id}, has no listener {listener}"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        return address

    def create(self, ask_controller: Callable[[Request], Coroutine[None, None, Message]]) -> None:
        """Let the controller create the topic unless that is under way; clients ask again meanwhile."""
        brokers, factor = len(self._partitions.image.brokers), self._topic.replication_factor
        if brokers < factor:
            _logger.warning("no group coordinator yet brokers=%d needed=%d", brokers, factor)
        elif not self._is_being_created:
            self._is_being_created = True
            self._tasks.spawn(self._create(ask_controller))

    async def _create(self, ask_controller: Callable[[Request], Coroutine[None, None, Message]]) -> None:
        try:
            response = await ask_controller(CreateTopicsRequest(topics=[self._topic], timeout_ms=CREATE_TIMEOUT_MS))
            assert isinstance(response, CreateTopicsResponse), response
            for row in response.topics:
                if row.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    _logger.warning("offsets topic not created reason=%s", row.error_message)
        except ApiError as error:
            _logger.warning("offsets topic not created reason=%s", error)
        finally:
            self._is_being_created = False

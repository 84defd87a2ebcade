"""The topic that keeps what coordinators know: creating it, and which broker coordinates whom."""

import logging
from collections.abc import Callable, Coroutine, Mapping

from pylog.broker.data.partitions import Partitions
from pylog.broker.tasks import Tasks
from pylog.cluster.image import BrokerInfo
from pylog.errors import ApiError, ErrorCode
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


class StateTopic:
    """See the module; each name, of a group or of a transaction, belongs to one partition."""

    def __init__(
        self,
        partitions: Partitions,
        name: str,
        kind: str,
        configs: Mapping[str, str],
        partition_count: int,
        replication_factor: int,
        tasks: Tasks,
    ) -> None:
        """Make it.

        Args:
            partitions: hosted here, under the image in force.
            name: of the topic.
            kind: what its records are about, for messages: "group".
            configs: that the topic is created with, beside how many replicas must have a record.
            partition_count: that it is created with.
            replication_factor: that it is created with.
            tasks: run the creation.
        """
        self.name = name
        self._kind = kind
        self._partitions = partitions
        self._tasks = tasks
        self._is_being_created = False
        configs = dict(configs)
        if replication_factor > 2:
            # What only one replica has is lost with it, whatever other topics ask for.
            configs["min.insync.replicas"] = "2"
        self._topic = CreatableTopic(
            name=name,
            num_partitions=partition_count,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=one, value=value) for one, value in configs.items()],
        )

    def partition_of(self, name: str) -> int:
        """Return the partition that keeps *name*.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE; the topic does not exist.
        """
        topic = self._partitions.image.topics.get(self.name)
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name} does not exist yet")
        return partition_for(name, len(topic.partitions))

    def leader_of(self, name: str) -> BrokerInfo:
        """Return the broker that coordinates *name*: the leader of its partition.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE; the topic or its leader is missing.
        """
        image = self._partitions.image
        state = image.partition(self.name, self.partition_of(name))
        broker = image.brokers.get(state.leader) if state and state.leader != NO_LEADER else None
        if broker is None:
            message = f"no leader for the partition of {self._kind} {name}"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        return broker

    def coordinator_of(self, name: str, listener: str) -> NodeAddress:
        """Return the address of the broker that coordinates *name*.

        The address is that for clients of *listener*.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE; the topic or its leader is missing, or the leader has no such listener.
        """
        broker = self.leader_of(name)
        if (address := broker.address(listener)) is None:
            message = f"the coordinator of {self._kind} {name}, broker {broker.broker_id}, has no listener {listener}"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        return address

    def create(self, ask_controller: Callable[[Request], Coroutine[None, None, Message]]) -> None:
        """Let the controller create the topic unless that is under way; clients ask again meanwhile."""
        brokers, factor = len(self._partitions.image.brokers), self._topic.replication_factor
        if brokers < factor:
            _logger.warning("no %s coordinator yet brokers=%d needed=%d", self._kind, brokers, factor)
        elif not self._is_being_created:
            self._is_being_created = True
            self._tasks.spawn(self._create(ask_controller))

    async def _create(self, ask_controller: Callable[[Request], Coroutine[None, None, Message]]) -> None:
        try:
            response = await ask_controller(CreateTopicsRequest(topics=[self._topic], timeout_ms=CREATE_TIMEOUT_MS))
            assert isinstance(response, CreateTopicsResponse), response
            for row in response.topics:
                if row.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    _logger.warning("topic not created topic=%s reason=%s", self.name, row.error_message)
        except ApiError as error:
            _logger.warning("topic not created topic=%s reason=%s", self.name, error)
        finally:
            self._is_being_created = False

"""What the handlers of this wing use of the broker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pylog.broker.config import BrokerConfig
from pylog.broker.data.partitions import Partitions
from pylog.broker.settings import Value
from pylog.security.authorizer import Authorizer
from pylog.wire.api import Message
from pylog.wire.api.message import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """What this broker lets clients do to topics, and what it fills in; see `pylog.broker.settings`."""

    auto_create_topics_enable: bool
    delete_topic_enable: bool
    num_partitions: int


class Cluster(Protocol):
    """The cluster, as this broker knows it.

    Attributes:
        broker_id: of this broker.
        config: of this broker.
        partitions: hosted here, under the newest image.
        settings: of this broker, as DescribeConfigs shows them.
        topic_policy: of this broker.
        authorizer: decides what clients may do; None lets them do everything.
    """

    broker_id: int
    config: BrokerConfig
    partitions: Partitions
    settings: Mapping[str, Value]
    topic_policy: TopicPolicy
    authorizer: Authorizer | None

    @property
    def controller_id(self) -> int:
        """The controller that clients are told of; -1 while there has been none."""

    async def ask_controller(self, request: Request) -> Message:
        """Return the controller's answer, once its effect is visible on this broker, which may be the controller."""

    async def new_producer_id(self) -> int:
        """Return a producer id that was never handed out."""

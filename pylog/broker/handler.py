"""What a handler is: the types every `*handlers.py` shares."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from pylog.broker.coordinator import GroupCoordinator
from pylog.broker.data.partitions import Partitions
from pylog.broker.quotas import Meter
from pylog.broker.settings import Value
from pylog.wire.api import Message
from pylog.wire.api.message import Request

Answer: TypeAlias = Message | Awaitable[Message]


class Cluster(Protocol):
    """What handlers know of the cluster.

    Attributes:
        broker_id: ours.
        partitions: hosted here, under the newest image.
        settings: this broker's settings.
        groups: the groups coordinated here.
    """

    broker_id: int
    partitions: Partitions
    settings: Mapping[str, Value]
    groups: GroupCoordinator

    @property
    def controller_id(self) -> int:
        """Who clients are told is the controller; -1 while there has been none."""

    async def ask_controller(self, request: Request) -> Message:
        """Let the controller, which may be this broker, answer *request*; wait until its effect is visible here."""

    async def new_producer_id(self) -> int:
        """Return a producer id nobody ever had."""


class Caller(NamedTuple):
    """Who asks.

    Attributes:
        client_id: what the client calls itself, "" if nothing.
        host: where it is.
        version: of the request.
        meter: counts what it uses, if a quota governs it.
    """

    client_id: str
    host: str
    version: int
    meter: Meter | None = None


Handler: TypeAlias = Callable[[Cluster, Any, Caller], Answer]
"""Takes the broker's view of the cluster, the decoded request and who sent it; its refusals are ApiErrors."""

"""Ids of idempotent producers: InitProducerId of clients; blocks of ids that brokers take from the controller."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from pylog.broker.control.api import PeerApi
from pylog.broker.control.cluster import Cluster
from pylog.broker.control.controller import ActiveController
from pylog.broker.handler import Answer, Caller
from pylog.errors import ApiError, ErrorCode
from pylog.security.acl import CLUSTER_NAME, Operation, ResourceType
from pylog.wire.api import Message
from pylog.wire.api.producers import InitProducerIdRequest, InitProducerIdResponse
from pylog.wire.internal import InternalKey, encode_broker_id, encode_id_block, parse_broker_id, parse_id_block


def handle_init(cluster: Cluster, request: InitProducerIdRequest, caller: Caller) -> Answer:
    """Give an idempotent producer an id; without a transactional id it is always a new one."""
    if not (
        caller.has(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
        or caller.may_any(Operation.WRITE, ResourceType.TOPIC)
    ):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "there is no topic that this client may write")

    async def answer() -> Message:
        return InitProducerIdResponse(producer_id=await cluster.new_producer_id(), producer_epoch=0)

    return answer()


class ProducerIds:
    """The ids this broker may hand out, taken from the controller a block at a time."""

    def __init__(self, take_block: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        """Begin with none; *take_block* returns the first id of a new block and how many it has."""
        self._take_block = take_block
        self._ids: deque[int] = deque()
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """Return a producer id that was never handed out.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS, as Kafka's brokers answer: no controller gave ids, whatever the
                reason.  Producers ask again, while BROKER_NOT_AVAILABLE ends one of Kafka's for good.
        """
        async with self._lock:
            await self._fill()
            return self._ids.popleft()

    async def fill(self) -> None:
        """Make sure that there is an id to `draw`, unless others draw it first.

        Raises:
            ApiError: as `next`.
        """
        if not self._ids:
            async with self._lock:
                await self._fill()

    def draw(self) -> int | None:
        """Return a producer id that was never handed out; None if another block must be taken first."""
        return self._ids.popleft() if self._ids else None

    async def _fill(self) -> None:
        if self._ids:
            return
        try:
            first, count = await self._take_block()
        except ApiError as error:
            message = f"no producer ids from the controller at the moment: {error}"
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message) from error
        self._ids.extend(range(first, first + count))


def take_producer_ids(controller: ActiveController, broker_id: int) -> tuple[int, int]:
    """Give *broker_id* a new block of producer ids; return the first and how many it has."""
    return controller.tree.take_producer_ids(controller.fence, broker_id)


TAKE_IDS = PeerApi(
    key=InternalKey.TAKE_IDS,
    execute=take_producer_ids,
    encode=encode_broker_id,
    parse=parse_broker_id,
    encode_result=lambda block: encode_id_block(*block),
    parse_result=parse_id_block,
)

"""Reaching the controller: this broker's own agent, or the broker that is the controller.

A client may ask any broker for a change.  A broker that is not the controller forwards the request unchanged and
returns the controller's answer, so clients need not follow the controller around.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pylog.broker.control import (
    acls,
    client_quotas,
    configs,
    elections,
    formats,
    producer_ids,
    reassignments,
    topics,
    users,
)
from pylog.broker.control.agent import ClusterAgent
from pylog.broker.control.api import ControlContext, ControllerApi, PeerApi, QuestionT, ResultT
from pylog.broker.control.controller import ActiveController
from pylog.broker.control.images import Images
from pylog.broker.data.peers import PeerClient
from pylog.broker.settings import Value
from pylog.cluster.image import ClusterImage
from pylog.errors import ApiError, ErrorCode
from pylog.model import NodeAddress, is_loopback
from pylog.security.authorizer import Authorizer
from pylog.wire import internal
from pylog.wire.api import Message, encode_response, parse_request_header
from pylog.wire.api.message import Request
from pylog.wire.api.table import SERVED, ApiKey
from pylog.wire.internal import InternalKey, InternalRequest

_logger = logging.getLogger(__name__)

MAX_WAIT_S = 60.0
"""Longest a request waits for its effect, whatever time-out the client names."""

DEFAULT_WAIT_S = 5.0
"""The same for a request that names no time-out."""

SUCCESSOR_WAIT_S = 10.0
"""How long a request that may be repeated waits for a controller that answers: longer than a session, after which the
next one is elected."""

REPEAT_S = 1.0
"""How often it is repeated meanwhile, if no other controller is elected."""

_UNREACHABLE = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE})

CONTROLLER_APIS: Mapping[ApiKey, ControllerApi[Any, Any]] = {
    row.request.api_key: row
    for row in (
        topics.CREATE,
        topics.GROW,
        topics.DELETE,
        configs.ALTER,
        configs.INCREMENTAL_ALTER,
        client_quotas.ALTER,
        users.ALTER,
        reassignments.ALTER,
        reassignments.LIST,
        elections.ELECT,
        acls.CREATE,
        acls.DELETE,
    )
}
"""What only the controller executes of what clients ask."""

PEER_APIS: Mapping[InternalKey, PeerApi[Any, Any]] = {
    row.key: row
    for row in (
        elections.ALTER_ISR,
        elections.SHUT_DOWN,
        elections.RECOVERED,
        formats.FINALIZE,
        producer_ids.TAKE_IDS,
    )
}
"""What brokers ask of the controller for themselves."""


class ControllerLink:
    """The way to the controller, wherever it is."""

    def __init__(
        self,
        broker_id: int,
        agent: ClusterAgent,
        images: Images,
        peer: PeerClient | None,
        settings: Mapping[str, Value],
        authorizer: Authorizer | None = None,
        calls_by_tls: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin without a controller; *calls_by_tls* says whether calls to another broker are encrypted."""
        self._calls_by_tls = calls_by_tls
        self._broker_id = broker_id
        self._agent = agent
        self._images = images
        self._peer = peer
        self._context = ControlContext(agent, images, settings, peer is None, authorizer)
        self._address: NodeAddress | None = None
        self._is_self = False
        self._epoch = -1
        self.on_later_epoch: Callable[[str], None] = lambda reason: None
        """Called when a broker shows that this one is the controller no more."""
        self._changed = asyncio.Event()  # set when another controller, or none, is followed

    def follow(self, address: NodeAddress | None, is_self: bool, epoch: int = -1) -> None:
        """Take note of where the controller of this epoch is; None when there is none.

        A request that still waits for the previous controller fails at once: behind a cut link it would hold up every
        later request too.
        """
        if address != self._address and self._peer is not None:
            self._peer.close()
        self._address = address
        self._is_self = is_self
        self._epoch = epoch
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def ask(self, request: Request) -> Message:
        """Return the controller's answer to a client's *request*, once its effect is visible on this broker.

        Raises:
            ApiError: there is no controller, or it cannot be reached.
        """
        row, context = CONTROLLER_APIS[request.api_key], self._context
        response = await self._execute(row, request)
        timeout_ms = getattr(request, "timeout_ms", None)
        longest_s = MAX_WAIT_S if row.visible_wait_s is None else row.visible_wait_s
        timeout_s = DEFAULT_WAIT_S if timeout_ms is None else min(max(timeout_ms, 0) / 1000, longest_s)

        def is_visible(image: ClusterImage) -> bool:
            return row.is_visible(context, request, response)

        if not is_visible(context.image) and not await self._images.wait_until(is_visible, timeout_s):
            row.mark_late(response)
        return response

    async def _execute(self, row: ControllerApi[Any, Any], request: Request) -> Message:
        """Return the controller's answer; a request that may be repeated waits for the next controller if one dies."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + SUCCESSOR_WAIT_S
        while True:
            changed = self._changed
            try:
                if self._is_self:
                    response: Message = await row.execute(self._context, request)
                    return response
                return await self._forward(row, request)
            except ApiError as error:
                if not row.is_repeatable or error.code not in _UNREACHABLE or loop.time() >= deadline_s:
                    raise
                _logger.info("repeating a request to the controller api=%s reason=%s", request.api_key.name, error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPEAT_S):
                    await changed.wait()

    async def command(self, row: PeerApi[QuestionT, ResultT], question: QuestionT) -> ResultT:
        """Return the controller's answer to what this broker asks for itself.

        Raises:
            ApiError: the controller refuses, or cannot be reached: then nobody knows whether it did what was asked.
        """
        if self._is_self:
            return await self._context.run(lambda controller: row.execute(controller, question))
        return row.parse_result(await self._call(row.key, row.encode(question)))

    async def answer(self, request: InternalRequest) -> bytes:
        """Return the response's body to what another broker asks of this one as the controller.

        Raises:
            ApiError: NOT_CONTROLLER, or what was asked for is refused.
        """
        # First: brokers that remember this one as the controller ask it again before it has joined.
        if not self._is_self:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"broker {self._broker_id} is not the controller")
        self._agent.note_asked()
        if request.key is InternalKey.FORWARD:
            return await self._execute_forwarded(request.body)
        if request.key is InternalKey.PULL_IMAGE:
            pull = internal.parse_pull(request.body)
            if pull.epoch > self._epoch:
                message = (
                    f"broker {pull.broker_id} has an image of controller epoch {pull.epoch}, ours is {self._epoch}"
                )
                self.on_later_epoch(message)
                raise ApiError(ErrorCode.NOT_CONTROLLER, message)
            return await self._answer_pull(pull, request.format)
        row, epoch = PEER_APIS[request.key], self._epoch
        question = row.parse(request.body)

        def execute(controller: ActiveController) -> object:
            if controller.fence.epoch != epoch:
                raise ApiError(ErrorCode.NOT_CONTROLLER, f"controller epoch {epoch} is over")
            return row.execute(controller, question)

        return row.encode_result(await self._context.run(execute))

    async def _answer_pull(self, pull: internal.Pull, format_version: int) -> bytes:
        if pull.cleaned:
            await self._context.run(lambda controller: topics.confirm_cleanup(controller, pull.broker_id, pull.cleaned))
        if pull.removed:
            await self._context.run(
                lambda controller: reassignments.confirm_removal(controller, pull.broker_id, pull.removed)
            )
        return await self._images.news((pull.epoch, pull.version), pull.max_wait_ms, format_version)

    async def _execute_forwarded(self, frame: bytes) -> bytes:
        """Return the reply to a client's request that another broker forwarded."""
        header = parse_request_header(memoryview(frame))
        row = CONTROLLER_APIS.get(header.api_key)  # type: ignore[call-overload]  # an IntEnum key equals its number
        if row is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"API {header.api_key} is not forwarded to the controller")
        request = row.request.decode(header.api_version, memoryview(frame)[header.body_offset :])
        try:
            response = await row.execute(self._context, request)
        except ApiError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise
            response = request.error_response(error.code, str(error))
        return encode_response(response, header.correlation_id, header.api_version)

    async def _forward(self, row: ControllerApi[Any, Any], request: Request) -> Message:
        address = self._address
        if (
            row.has_secrets(request)
            and address is not None
            and not self._calls_by_tls()
            and not is_loopback(address.host)
        ):
            # The client came by TLS, which says nothing of the way from here.
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"broker {self._broker_id} calls the controller, broker {address.node_id}, unencrypted, and who reads "
                "this request can log in as the user; ask that broker, or encrypt listeners.internal",
            )
        key = request.api_key
        version = SERVED[key].max_advertised
        head = bytes((*key.to_bytes(2, "big"), *version.to_bytes(2, "big"), 0, 0, 0, 0, 0xFF, 0xFF))
        if version >= SERVED[key].flexible_from:
            head += b"\x00"
        reply = await self._call(InternalKey.FORWARD, request.encode(version, head))
        body = memoryview(reply)[5 if version >= SERVED[key].flexible_from else 4 :]
        response: Message = row.response.decode(version, body)
        return response

    async def _call(self, key: InternalKey, body: bytes) -> bytes:
        if self._address is None or self._peer is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "no controller is elected at the moment")
        return await self._peer.call(self._address, key, body, MAX_WAIT_S)

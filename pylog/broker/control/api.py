"""What the controller is asked, one row a verb: by clients (`ControllerApi`) and by other brokers (`PeerApi`)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pylog.broker.control.agent import ClusterAgent
from pylog.broker.control.cluster import Cluster
from pylog.broker.control.controller import ActiveController
from pylog.broker.control.images import Images
from pylog.broker.handler import Answer, Caller, Handler
from pylog.broker.settings import Value
from pylog.cluster.image import ClusterImage
from pylog.security.acl import Operation
from pylog.security.authorizer import Authorizer
from pylog.wire.api import Message
from pylog.wire.api.message import Request
from pylog.wire.internal import InternalKey

T = TypeVar("T")
RequestT = TypeVar("RequestT", bound=Request)
ResponseT = TypeVar("ResponseT", bound=Message)
QuestionT = TypeVar("QuestionT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class ControlContext:
    """What a verb works with on this broker.

    Attributes:
        agent: runs operations in its thread, while this broker is the controller.
        images: the cluster images applied here.
        settings: of this broker.
        is_alone: there is never a second broker beside this one.
        authorizer: what this broker knows of ACLs; None if it decides by none.
    """

    agent: ClusterAgent
    images: Images
    settings: Mapping[str, Value]
    is_alone: bool = False
    authorizer: Authorizer | None = None

    @property
    def image(self) -> ClusterImage:
        """The image in force on this broker."""
        return self.images.current

    async def run(self, operation: Callable[[ActiveController], T]) -> T:
        """Return the result of *operation*, which the controller on this broker runs; see `ClusterAgent.ask`.

        Raises:
            ApiError: NOT_CONTROLLER, or the operation refused.
        """
        return await asyncio.wrap_future(self.agent.ask(operation))


def pass_if_allowed(operation: Operation) -> Handler:
    """Return the handler of a request that needs a right on the cluster, and that this broker does not change."""

    def handle(cluster: Cluster, request: Request, caller: Caller) -> Answer:
        caller.require_cluster(operation)
        return cluster.ask_controller(request)

    return handle


def has_no_effect(context: ControlContext, request: Request, response: Message) -> bool:
    """Be the `is_visible` of a verb that changes nothing."""
    return True


def _leave_as_is(response: Message) -> None:
    """Be the `mark_late` of a verb whose response does not say that its effect is not visible yet."""


def _has_none(request: Request) -> bool:
    """Be the `has_secrets` of a verb whose requests anybody may read."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerApi(Generic[RequestT, ResponseT]):
    """A client's request that only the controller can execute.

    Attributes:
        handle: what the broker that got the request from a client does with it; it asks for the client's rights, which
            nobody does after it.
        execute: what the controller does with it; runs on the controller's loop.
        is_visible: whether the image in force on the broker that answers the client shows the effect.
        mark_late: changes the response when the effect was not visible within the request's time-out.
        visible_wait_s: longest wait for that, None for as long as the request says.
        is_repeatable: whether it may be executed twice, so that a controller that dies meanwhile does no harm.
        has_secrets: whether a request holds what nobody may read on its way to the controller.
    """

    request: type[RequestT]
    response: type[ResponseT]
    handle: Handler
    execute: Callable[[ControlContext, RequestT], Awaitable[ResponseT]]
    is_visible: Callable[[ControlContext, RequestT, ResponseT], bool] = has_no_effect
    mark_late: Callable[[ResponseT], None] = _leave_as_is
    visible_wait_s: float | None = None
    is_repeatable: bool = False
    has_secrets: Callable[[RequestT], bool] = _has_none


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerApi(Generic[QuestionT, ResultT]):
    """What a broker asks of the controller for itself, on the brokers' own listener.

    Attributes:
        execute: runs in the thread of the controller's agent.
        encode: returns the request's body.
        parse: returns the question in a body, or raises ProtocolError.
        encode_result: returns the response's body.
        parse_result: returns the result in a body, or raises ProtocolError.
    """

    key: InternalKey
    execute: Callable[[ActiveController, QuestionT], ResultT]
    encode: Callable[[QuestionT], bytes]
    parse: Callable[[bytes], QuestionT]
    encode_result: Callable[[ResultT], bytes]
    parse_result: Callable[[bytes], ResultT]

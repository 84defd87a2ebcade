"""What a handler is: the types that every module of handlers shares."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

from pylog.broker.quotas import Meter
from pylog.security.principal import Session
from pylog.wire.api import Message

Answer: TypeAlias = Message | Awaitable[Message]


class Caller(NamedTuple):
    """The client that sent a request.

    Attributes:
        client_id: what the client calls itself, "" if nothing.
        session: who it is, and from where.
        version: of the request.
        meter: counts what it uses, if a quota governs it.
    """

    client_id: str
    session: Session
    version: int
    meter: Meter | None = None


Handler: TypeAlias = Callable[[Any, Any, Caller], Answer]
"""Takes the broker, the decoded request and its caller; refuses by raising ApiError.

Each module of handlers says in a Protocol `Cluster` what it uses of the broker.
"""

"""What programs on top of the log use to reach it.

The public names are those of `__all__`; each is imported when it is first used, because librdkafka and kazoo take
longer to load than most commands take to run.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pylog.client.admin.cluster import Admin
    from pylog.client.connection import Connection
    from pylog.client.consumer import Consumer
    from pylog.client.message import Message, MessageSet, ReceivedMessage
    from pylog.client.paper.connector import ConsumerConnector
    from pylog.client.paper.deduplicate import Deduplicate
    from pylog.client.paper.stream import MessageStream
    from pylog.client.producer import Producer

__all__ = [
    "Admin",
    "Connection",
    "Consumer",
    "ConsumerConnector",
    "Deduplicate",
    "Message",
    "MessageSet",
    "MessageStream",
    "Producer",
    "ReceivedMessage",
]

_HOME = {
    "Admin": "admin.cluster",
    "Connection": "connection",
    "Consumer": "consumer",
    "ConsumerConnector": "paper.connector",
    "Deduplicate": "paper.deduplicate",
    "Message": "message",
    "MessageSet": "message",
    "MessageStream": "paper.stream",
    "Producer": "producer",
    "ReceivedMessage": "message",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)

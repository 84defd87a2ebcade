"""What programs on top of the log use to reach it.

The public names are those of `__all__`; each is imported when it is first used, because librdkafka and kazoo take
longer to load than most commands take to run.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pylog.client.connection import Connection
    from pylog.client.connector import ConsumerConnector
    from pylog.client.deduplicate import Deduplicate
    from pylog.client.message import Message, MessageSet, ReceivedMessage
    from pylog.client.producer import Producer
    from pylog.client.stream import MessageStream

__all__ = [
    "Connection",
    "ConsumerConnector",
    "Deduplicate",
    "Message",
    "MessageSet",
    "MessageStream",
    "Producer",
    "ReceivedMessage",
]

_HOME = {
    "Connection": "connection",
    "ConsumerConnector": "connector",
    "Deduplicate": "deduplicate",
    "Message": "message",
    "MessageSet": "message",
    "MessageStream": "stream",
    "Producer": "producer",
    "ReceivedMessage": "message",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
